"""Writes nodes of ai.onnx.ml by chance, beside onnxruntime's answers: python3 crates/onnx/benches/draws_ml.py FOLDER COUNT [SEED [FAMILY ...]]

Trees in every mode and with every way to vote, linear models, support vector machines, scalers, imputers, encoders of labels and
categories. Run them by cargo bench --bench onnx -- cases FOLDER.
"""

import numpy as np
from chances import NAN, Case, Dice, T, f32, helper, main, numpy_helper, one

FAMILIES = []
ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def family(draw):
    FAMILIES.append(draw)
    return draw


def near(numbers):
    """As a float32 has them."""
    return [float(np.float32(x)) for x in numbers]


def rows_of(dice, width, kind=None):
    kind = kind or dice.choice([np.float32, np.float32, np.float32, np.float64, np.int64, np.int32])
    x = dice.numbers(dice.randint(1, 9), width, kind=np.int32, low=-3, high=3).astype(kind)
    if np.issubdtype(kind, np.floating):
        x = x + np.array(dice.choice([0, 0.5]), kind)
        if dice.maybe(0.4):
            x[dice.numbers(*x.shape, low=0, high=1) < 0.2] = NAN
    return x


def trees(dice, width, votes, modes):
    """The lists of some trees, with `votes(leaf)` as targets and weights of one leaf."""
    lists = {key: [] for key in ["treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"]}
    ballots = []
    for tree in range(dice.randint(1, 4)):
        number = tree if dice.maybe(0.8) else tree + 10
        ids = iter(range(10_000))

        def grow(depth):
            me = next(ids)
            at = len(lists["treeids"])
            leaf = depth == 0 or dice.maybe(0.2)
            for key, value in [("treeids", number), ("nodeids", me), ("featureids", 0 if leaf else dice.randint(0, width - 1)), ("modes", "LEAF" if leaf else dice.choice(modes)),
                               ("values", 0.0 if leaf else float(dice.randint(-3, 3) + dice.choice([0, 0.5]))), ("truenodeids", 0), ("falsenodeids", 0),
                               ("missing_value_tracks_true", 0 if leaf else dice.choice([0, 1]))]:
                lists[key].append(value)
            if leaf:
                ballots.extend((number, me, target, weight) for target, weight in votes())
            else:
                lists["truenodeids"][at] = grow(depth - 1)
                lists["falsenodeids"][at] = grow(depth - 1)
            return me

        grow(dice.randint(0, 4))
    if dice.maybe():
        lists.pop("missing_value_tracks_true")
    return {f"nodes_{key}": value for key, value in lists.items()}, ballots


def weight(dice, positive):
    return round(dice.uniform(0 if positive else -1, 1), 3)


def pick_modes(dice):
    return dice.choice([["BRANCH_LEQ"], ["BRANCH_LT"], ["BRANCH_GTE"], ["BRANCH_GT"], ["BRANCH_EQ"], ["BRANCH_LEQ", "BRANCH_EQ"], MODES])


@family
def forest_regressor(dice):
    width, targets, positive = dice.randint(1, 5), dice.choice([1, 1, 2, 3]), dice.maybe()
    way = dice.choice(["all", "some", "one"])

    def votes():
        if way == "all":
            return [(t, weight(dice, positive)) for t in range(targets)]
        if way == "one":
            return [(dice.randrange(targets), weight(dice, positive))]
        return [(t, weight(dice, positive)) for t in range(targets) if dice.maybe(0.6)] or [(0, 0.25)]

    lists, ballots = trees(dice, width, votes, pick_modes(dice))
    attributes = lists | {"n_targets": targets, "aggregate_function": dice.choice(["SUM", "AVERAGE", "MIN", "MAX"]), "post_transform": dice.choice(TRANSFORMS)}
    for i, key in enumerate(["target_treeids", "target_nodeids", "target_ids", "target_weights"]):
        attributes[key] = [ballot[i] for ballot in ballots]
    if dice.maybe(0.4):
        attributes["base_values"] = [round(dice.uniform(-1, 1), 2) for _ in range(targets)]
    x = rows_of(dice, width)
    if x.dtype == np.float64 and dice.maybe():
        for key in ["nodes_values", "target_weights", "base_values"]:
            if key in attributes:
                attributes[key + "_as_tensor"] = numpy_helper.from_array(np.array(attributes.pop(key), np.float64), key)
    return one(dice, "TreeEnsembleRegressor", {"x": x}, attributes, "y", domain=ML)


@family
def forest_classifier(dice):
    width, classes, positive = dice.randint(1, 5), dice.choice([1, 2, 2, 2, 3, 4]), dice.maybe()
    way = dice.choice(["all", "some", "first", "last"])

    def votes():
        if way == "all":
            return [(t, weight(dice, positive)) for t in range(classes)]
        if way in ("first", "last"):
            return [(0 if way == "first" else classes - 1, weight(dice, positive))]
        return [(t, weight(dice, positive)) for t in range(classes) if dice.maybe(0.6)] or [(0, 0.25)]

    lists, ballots = trees(dice, width, votes, pick_modes(dice))
    # Of a single score PROBIT makes a second one that nobody has written in onnxruntime.
    attributes = lists | {"post_transform": dice.choice(TRANSFORMS[:4] if classes == 2 else TRANSFORMS)}
    for i, key in enumerate(["class_treeids", "class_nodeids", "class_ids", "class_weights"]):
        attributes[key] = [ballot[i] for ballot in ballots]
    attributes |= {"classlabels_strings": [f"c{i}" for i in range(classes)]} if dice.maybe(0.3) else {"classlabels_int64s": [3 * i for i in range(classes)]}
    if classes > 2 and dice.maybe(0.3):
        # Of two classes it is open what base values are added to, and onnxruntime adds them to some.
        attributes["base_values"] = [round(dice.uniform(-1, 1), 2) for _ in range(classes)]
    return one(dice, "TreeEnsembleClassifier", {"x": rows_of(dice, width)}, attributes, "label scores", domain=ML)


@family
def forest_of_opset_5(dice):
    width, targets = dice.randint(1, 5), dice.choice([1, 2, 3])
    kind = dice.choice([np.float32, np.float64])
    # onnxruntime takes sets in another order than that of their nodes, unless there is one.
    modes = dice.choice([[0], [1], [2], [3], [4], [5], [0, 1, 2, 3, 4, 5]])
    nodes, leaves, members, roots = [], [], [], []

    def grow(depth):
        if depth == 0 or dice.maybe(0.2):
            leaves.append((dice.randrange(targets), weight(dice, False)))
            return len(leaves) - 1, 1
        at = len(nodes)
        mode = dice.choice(modes)
        nodes.append(None)
        split = float(dice.randint(-2, 2))
        if mode == 6:
            members.extend([*dice.sample([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0], dice.randint(1, 4)), NAN])
            split = 0.0
        hold, hold_leaf = grow(depth - 1)
        fail, fail_leaf = grow(depth - 1)
        nodes[at] = (dice.randint(0, width - 1), mode, split, hold, hold_leaf, fail, fail_leaf, dice.choice([0, 1]))
        return at, 0

    def root():
        # A tree begins with a branch; those of one leaf have a branch with twice the same.
        at = len(nodes)
        if dice.maybe(0.1):
            leaves.append((dice.randrange(targets), weight(dice, False)))
            nodes.append((0, 0, 0.0, len(leaves) - 1, 1, len(leaves) - 1, 1, 0))
        else:
            while grow(dice.randint(1, 4))[1] == 1:
                leaves.pop()
        roots.append(at)

    for _ in range(dice.randint(1, 3)):
        root()
    # Sets follow in the order of the nodes.
    tensor = lambda values, key, of=kind: numpy_helper.from_array(np.array(values, of), key)
    column = lambda i: [node[i] for node in nodes]
    attributes = {
        "tree_roots": roots, "nodes_featureids": column(0), "nodes_modes": tensor(column(1), "modes", np.uint8), "nodes_splits": tensor(column(2), "splits"),
        "nodes_truenodeids": column(3), "nodes_trueleafs": column(4), "nodes_falsenodeids": column(5), "nodes_falseleafs": column(6),
        "leaf_targetids": [t for t, _ in leaves], "leaf_weights": tensor([w for _, w in leaves], "weights"), "n_targets": targets,
        # onnxruntime takes 1 for the logistic function and 2 for softmax, which the specification has the other way round.
        "aggregate_function": dice.choice([0, 1, 2, 3]), "post_transform": dice.choice([0, 3, 4]),
    }
    if members:
        attributes["membership_values"] = tensor(members, "members")
    if dice.maybe():
        attributes["nodes_missing_value_tracks_true"] = column(7)
    return one(dice, "TreeEnsemble", {"x": rows_of(dice, width, kind)}, attributes, "y", domain=ML, ml=5)


@family
def linear_regressor(dice):
    width, targets = dice.randint(1, 6), dice.choice([1, 1, 2, 3])
    attributes = {"coefficients": near(dice.numbers(width * targets)), "targets": targets, "post_transform": dice.choice(TRANSFORMS)}
    if dice.maybe():
        attributes["intercepts"] = near(dice.numbers(targets))
    return one(dice, "LinearRegressor", {"x": rows_of(dice, width, np.float32)}, attributes, "y", domain=ML)


@family
def linear_classifier(dice):
    width, classes = dice.randint(1, 6), dice.choice([2, 2, 3, 4])
    scores = dice.choice([1, 2]) if classes == 2 else classes
    attributes = {"coefficients": near(dice.numbers(width * scores)), "intercepts": near(dice.numbers(scores)), "post_transform": dice.choice(TRANSFORMS[:4] if scores == 1 else TRANSFORMS), "multi_class": dice.choice([0, 1])}
    attributes |= {"classlabels_strings": [f"c{i}" for i in range(classes)]} if dice.maybe(0.3) else {"classlabels_ints": [5 - 2 * i for i in range(classes)]}
    return one(dice, "LinearClassifier", {"x": rows_of(dice, width)}, attributes, "label scores", domain=ML)


def kernel(dice):
    kind = dice.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])
    return {"kernel_type": kind, "kernel_params": near([dice.uniform(0.1, 1), dice.uniform(-1, 1), dice.choice([1.0, 2.0, 3.0])])}


@family
def vectors_regressor(dice):
    width, count = dice.randint(1, 5), dice.choice([0, 1, 3, 6])
    attributes = {"rho": near([dice.uniform(-1, 1)]), "one_class": dice.choice([0, 0, 1]), "n_supports": count}
    if count:
        attributes |= kernel(dice) | {"support_vectors": near(dice.numbers(count * width)), "coefficients": near(dice.numbers(count))}
    else:
        attributes |= {"kernel_type": "LINEAR", "coefficients": near(dice.numbers(width))}
    return one(dice, "SVMRegressor", {"x": rows_of(dice, width, np.float32)}, attributes, "y", domain=ML)


@family
def vectors_classifier(dice):
    width, classes = dice.randint(1, 5), dice.choice([2, 2, 3, 4])
    sizes = [dice.randint(1, 4) for _ in range(classes)]
    count, pairs = sum(sizes), classes * (classes - 1) // 2
    if dice.maybe(0.15):
        attributes = {"kernel_type": "LINEAR", "coefficients": near(dice.numbers(classes * width, low=dice.choice([-2, 0]))), "rho": near([dice.uniform(-1, 1)])}
    else:
        attributes = kernel(dice) | {"support_vectors": near(dice.numbers(count * width)), "coefficients": near(dice.numbers(count * (classes - 1), low=dice.choice([-2, -2, 0]))),
                                     "vectors_per_class": sizes, "rho": near(dice.numbers(pairs))}
        if dice.maybe():
            attributes |= {"prob_a": near(dice.numbers(pairs)), "prob_b": near(dice.numbers(pairs))}
    attributes["post_transform"] = dice.choice(TRANSFORMS[:4] if classes == 2 else TRANSFORMS)
    attributes |= {"classlabels_strings": [f"c{i}" for i in range(classes)]} if dice.maybe(0.3) else {"classlabels_ints": [5 - 2 * i for i in range(classes)]}
    # What is no number has no likeness to anything.
    return one(dice, "SVMClassifier", {"x": np.nan_to_num(rows_of(dice, width))}, attributes, "label scores", domain=ML)


@family
def columns_of_numbers(dice):
    kind = dice.choice(["Normalizer", "Scaler", "Imputer", "Binarizer"])
    width = dice.randint(1, 5)
    x = rows_of(dice, width, dice.choice([np.float32, np.float64, np.int64, np.int32]))
    if dice.maybe(0.2):
        x = x[0]
    elif kind != "Imputer" and dice.maybe(0.2):
        x = np.stack([x, x[::-1]])
    if kind == "Normalizer":
        return one(dice, kind, {"x": x}, {"norm": dice.choice(["MAX", "L1", "L2"])}, "y", domain=ML)
    if kind == "Scaler":
        numbers = lambda: near(dice.numbers(dice.choice([1, width])))
        return one(dice, kind, {"x": x}, {"offset": numbers(), "scale": numbers()}, "y", domain=ML)
    if kind == "Binarizer":
        return one(dice, kind, {"x": x}, {"threshold": dice.choice([0.0, 0.5, -1.5, 2.0])}, "y", domain=ML)
    gap = dice.choice([0.0, 1.0, NAN])
    count = dice.choice([1, width])
    if x.dtype.kind == "f":
        attributes = {"imputed_value_floats": near(dice.numbers(count)), "replaced_value_float": gap}
    else:
        attributes = {"imputed_value_int64s": [dice.randint(-9, 9) for _ in range(count)], "replaced_value_int64": dice.choice([0, 1])}
    return one(dice, kind, {"x": x}, attributes, "y", domain=ML)


@family
def labels(dice):
    make = {"strings": lambda n: dice.sample(["a", "b", "cat", "Dog", "", "é", "a b", "1", "x", "zz"], n),
            "int64s": lambda n: dice.sample(range(-4, 6), n), "floats": lambda n: near(dice.sample([-1.5, 0.0, 1.0, 2.0, 2.5, -3.0, 4.0, 7.0], n))}
    n, ways = dice.randint(1, 6), list(make)
    keys, values = dice.choice(ways), dice.choice(ways)
    shape = dice.shape(dice.randint(1, 3), 4)
    x = {"strings": lambda: dice.words(*shape, among=["a", "b", "cat", "Dog", "", "é", "a b", "1", "x", "none"]), "int64s": lambda: dice.numbers(*shape, kind=np.int64, low=-5, high=6),
         "floats": lambda: f32([dice.choice([-1.5, -0.0, 0.0, 1.0, 2.0, 2.5, NAN, 9.0]) for _ in range(int(np.prod(shape)))]).reshape(shape)}[keys]()
    ml = dice.choice([2, 4])
    attributes = {f"keys_{keys}": make[keys](n), f"values_{values}": make[values](n)}
    if dice.maybe():
        attributes[{"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}[values]] = {"strings": "none", "int64s": 77, "floats": 0.5}[values]
    if dice.maybe(0.2) and ml == 2:
        # Texts and their places.
        attributes, ml = {"classes_strings": make["strings"](n)}, 1
        x = dice.words(*shape) if dice.maybe() else dice.numbers(*shape, kind=np.int64, low=-1, high=7)
        return one(dice, "LabelEncoder", {"x": x}, attributes, "y", domain=ML, ml=ml)
    if ml == 4 and dice.maybe():
        kinds = {"strings": object, "int64s": dice.choice([np.int64, np.int32, np.int16]), "floats": dice.choice([np.float32, np.float64])}
        as_tensor = lambda values, kind, key: numpy_helper.from_array(np.array(values, kind), key)
        kinds_of_keys, kinds_of_values = kinds[keys], kinds[values]
        attributes = {"keys_tensor": as_tensor(attributes[f"keys_{keys}"], kinds_of_keys, "k"), "values_tensor": as_tensor(attributes[f"values_{values}"], kinds_of_values, "v"),
                      "default_tensor": as_tensor([make[values](1)[0]], kinds_of_values, "d")}
        x = x.astype(kinds_of_keys)
    return one(dice, "LabelEncoder", {"x": x}, attributes, "y", domain=ML, ml=ml)


@family
def categories(dice):
    kind = dice.choice(["OneHotEncoder", "CategoryMapper", "ArrayFeatureExtractor", "FeatureVectorizer", "ZipMap", "DictVectorizer"])
    shape = dice.shape(dice.randint(1, 3), 4)
    if kind == "OneHotEncoder":
        if dice.maybe():
            return one(dice, kind, {"x": dice.words(*shape)}, {"cats_strings": dice.sample(["a", "b", "cat", "Dog", "", "é"], 4), "zeros": 1}, "y", domain=ML)
        x = dice.numbers(*shape, kind=dice.choice([np.int64, np.int32, np.float32, np.float64]), low=-1, high=6)
        return one(dice, kind, {"x": x}, {"cats_int64s": dice.sample(range(6), dice.randint(1, 6)), "zeros": dice.choice([0, 1])}, "y", domain=ML)
    if kind == "CategoryMapper":
        attributes = {"cats_strings": ["a", "b", "cat", "Dog"], "cats_int64s": dice.sample(range(9), 4), "default_string": "none", "default_int64": -7}
        return one(dice, kind, {"x": dice.words(*shape) if dice.maybe() else dice.numbers(*shape, kind=np.int64, low=0, high=9)}, attributes, "y", domain=ML)
    if kind == "ArrayFeatureExtractor":
        x = dice.words(*shape) if dice.maybe(0.2) else dice.numbers(*shape, kind=dice.choice([np.float32, np.float64, np.int64, np.int32]))
        at = dice.numbers(dice.randint(1, 5), kind=np.int64, low=0, high=shape[-1] - 1)
        return one(dice, kind, {"x": x, "i": at}, {}, "y", domain=ML)
    rows = dice.randint(1, 5)
    if kind == "FeatureVectorizer":
        widths = [dice.randint(1, 4) for _ in range(dice.randint(1, 4))]
        of = dice.choice([np.float32, np.float64, np.int64, np.int32])
        return one(dice, kind, {f"x{i}": dice.numbers(rows, width, kind=of) for i, width in enumerate(widths)}, {"inputdimensions": widths}, "y", domain=ML, chance=1)
    width = dice.randint(1, 5)
    labels = {"classlabels_strings": [f"c{i}" for i in range(width)]} if dice.maybe() else {"classlabels_int64s": dice.sample(range(-9, 9), width)}
    if kind == "ZipMap":
        return one(dice, kind, {"x": dice.numbers(rows, width)}, labels, "y", domain=ML, ml=1)
    # One map for onnxruntime, a row for us.
    x = dice.numbers(1, width)
    keys = next(iter(labels.values()))
    info = helper.make_tensor_value_info("x", T.FLOAT, None)
    info.type.Clear()
    info.type.map_type.key_type = T.STRING if isinstance(keys[0], str) else T.INT64
    info.type.map_type.value_type.tensor_type.elem_type = T.FLOAT
    name = "string_vocabulary" if isinstance(keys[0], str) else "int64_vocabulary"
    node = helper.make_node(kind, ["x"], ["y"], domain=ML, **{name: keys})
    return Case([node], {"x": x}, ["y"], feeds={"x": dict(zip(keys, map(float, x[0])))}, kinds={"x": info}, ml=1)


if __name__ == "__main__":
    main(FAMILIES, __doc__)
