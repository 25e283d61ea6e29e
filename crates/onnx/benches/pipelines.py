"""Trains classical pipelines and asks onnxruntime about their exports: python3 crates/onnx/benches/pipelines.py FOLDER [NAME ...]

    pip install -r crates/onnx/benches/pipelines.txt && pip install --no-deps catboost==1.2.10

Everything that people export with skl2onnx, onnxmltools and CatBoost, small, on scikit-learn's own data and on tables made up
here. NAME.onnx comes with NAME.json as tests/models/make.py describes it: the rows of one request and onnxruntime's answer;
what is not a number is null, and maps have become a column for each class. `cargo bench --bench onnx -- pipelines FOLDER`
then runs them. Those of tests/models/pipelines were written by this program with --few.
"""

import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn import (
    calibration, cluster, compose, datasets, decomposition, discriminant_analysis, ensemble, feature_extraction,
    feature_selection, gaussian_process, impute, linear_model, mixture, multiclass, multioutput, naive_bayes, neighbors,
    neural_network, pipeline, preprocessing, svm, tree,
)  # fmt: skip

warnings.filterwarnings("ignore")
ROWS = 10
OPSET = {"": 17, "ai.onnx.ml": 3}
PLAIN = {"zipmap": False}
PIPELINES = {}


def case(make):
    """Registers a pipeline: a function that gives a model and the rows of a request by input."""
    PIPELINES[make.__name__] = make
    return make


def table(name, scaled=True):
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = preprocessing.StandardScaler().fit_transform(x) if scaled else x
    order = np.random.default_rng(7).permutation(len(x))
    return x[order].astype(np.float32), y[order]


def texts_of(y):
    return np.array(["setosa", "versicolor", "virginica"])[y]


def export(model, x, rows=None, **options):
    """A fitted model over one matrix of float32 under the name X."""
    if "options" in options and options["options"] is not None:
        options["options"] = {id(model): options["options"]}
    given = x[:ROWS] if rows is None else rows
    return to_onnx(model, x[:1], target_opset=OPSET, **options), {"X": given}


def classifier(model, data="iris", **options):
    x, y = table(data)
    return export(model.fit(x, y), x, options=options or PLAIN)


def regressor(model, data="diabetes"):
    x, y = table(data)
    return export(model.fit(x, y / 100.0), x)


# Trees.


@case
def tree_iris():
    return classifier(tree.DecisionTreeClassifier(max_depth=4))


@case
def tree_zipmap_texts():
    x, y = table("iris")
    return export(tree.DecisionTreeClassifier(max_depth=3).fit(x, texts_of(y)), x)


@case
def forest_columns():
    """A probability for each class as an output of its own."""
    x, y = table("wine")
    model = ensemble.RandomForestClassifier(7, max_depth=5, random_state=7).fit(x, y)
    return export(model, x, options={"zipmap": "columns"})


@case
def forest_leaves_and_paths():
    """The leaf that a row ends in and its way there, of each tree: skl2onnx has each leaf vote for its number once a class."""
    x, y = table("iris")
    model = ensemble.RandomForestClassifier(3, max_depth=4, random_state=7).fit(x, y)
    return export(model, x, options={**PLAIN, "decision_leaf": True, "decision_path": True})


@case
def forest_cancer():
    return classifier(ensemble.RandomForestClassifier(20, max_depth=6, random_state=7), "breast_cancer")


@case
def forest_digits():
    return classifier(ensemble.RandomForestClassifier(12, max_depth=9, random_state=7), "digits")


@case
def extra_trees():
    return classifier(ensemble.ExtraTreesClassifier(9, max_depth=5, random_state=7), "wine", zipmap=True)


@case
def forest_regression():
    return regressor(ensemble.RandomForestRegressor(10, max_depth=6, random_state=7))


@case
def extra_trees_regression():
    return regressor(ensemble.ExtraTreesRegressor(10, max_depth=6, random_state=7))


@case
def forest_two_targets():
    x, y = table("diabetes")
    model = ensemble.RandomForestRegressor(5, max_depth=4, random_state=7).fit(x, np.stack([y, y**0.5], 1) / 100)
    return export(model, x)


@case
def boosting_two():
    return classifier(ensemble.GradientBoostingClassifier(n_estimators=12, random_state=7), "breast_cancer")


@case
def boosting_three():
    return classifier(ensemble.GradientBoostingClassifier(n_estimators=6, random_state=7), zipmap=True)


@case
def boosting_regression():
    return regressor(ensemble.GradientBoostingRegressor(n_estimators=15, random_state=7))


@case
def ada_boost():
    return classifier(ensemble.AdaBoostClassifier(n_estimators=5, random_state=7))


@case
def bagging():
    return classifier(ensemble.BaggingClassifier(n_estimators=4, random_state=7), "wine")


@case
def isolation_forest():
    x, _ = table("iris")
    model = ensemble.IsolationForest(n_estimators=4, max_samples=40, random_state=7).fit(x)
    return to_onnx(model, x[:1], target_opset=OPSET), {"X": x[:ROWS]}


# Lines, vectors, neighbours, and other models.


@case
def logistic_texts():
    x, y = table("iris")
    return export(linear_model.LogisticRegression().fit(x, texts_of(y)), x)


@case
def logistic_two():
    return classifier(linear_model.LogisticRegression(), "breast_cancer")


@case
def logistic_scores():
    return classifier(linear_model.LogisticRegression(), raw_scores=True, zipmap=False)


@case
def sgd():
    return classifier(linear_model.SGDClassifier(random_state=7))


@case
def ridge_classifier():
    return classifier(linear_model.RidgeClassifier(), "wine")


@case
def linear():
    return regressor(linear_model.LinearRegression())


@case
def ridge_two_targets():
    x, y = table("diabetes")
    return export(linear_model.Ridge().fit(x, np.stack([y, -y], 1) / 100), x)


@case
def huber_lasso_vote():
    parts = [("a", linear_model.Lasso(0.1)), ("b", linear_model.HuberRegressor()), ("c", linear_model.ElasticNet(0.1))]
    return regressor(ensemble.VotingRegressor(parts))


@case
def poisson():
    return regressor(linear_model.PoissonRegressor())


@case
def svc_rbf():
    return classifier(svm.SVC(probability=True, random_state=7))


@case
def svc_rbf_two():
    return classifier(svm.SVC(probability=True, random_state=7, C=0.5, gamma=0.01), "breast_cancer")


@case
def svc_poly_scores():
    return classifier(svm.SVC(kernel="poly", degree=3))


@case
def svc_linear_two():
    return classifier(svm.SVC(kernel="linear", C=0.1), "breast_cancer")


@case
def svc_sigmoid_texts():
    x, y = table("iris")
    model = svm.SVC(kernel="sigmoid", probability=True, random_state=7).fit(x, texts_of(y))
    return export(model, x, options=PLAIN)


@case
def nu_svc():
    return classifier(svm.NuSVC(probability=True, random_state=7), "wine", zipmap=True)


@case
def linear_svc():
    return classifier(svm.LinearSVC(), "wine", raw_scores=True)


@case
def svr_rbf():
    x, y = table("diabetes")
    return export(svm.SVR().fit(x[:150], y[:150] / 100), x)


@case
def nu_svr_poly():
    return regressor(svm.NuSVR(kernel="poly", degree=2))


@case
def svr_linear():
    return regressor(svm.LinearSVR())


@case
def one_class_svm():
    x, _ = table("iris")
    return to_onnx(svm.OneClassSVM().fit(x), x[:1], target_opset=OPSET), {"X": x[:ROWS]}


@case
def neighbours():
    return classifier(neighbors.KNeighborsClassifier(3))


@case
def neighbours_regression():
    return regressor(neighbors.KNeighborsRegressor(4, weights="distance"))


@case
def gaussian_bayes():
    return classifier(naive_bayes.GaussianNB())


@case
def multinomial_bayes():
    x, y = table("digits", scaled=False)
    return export(naive_bayes.MultinomialNB().fit(x, y), x, options=PLAIN)


@case
def bernoulli_bayes():
    return classifier(naive_bayes.BernoulliNB(), "wine")


@case
def perceptron_net():
    return classifier(neural_network.MLPClassifier((12,), max_iter=60, random_state=7), "wine", zipmap=True)


@case
def perceptron_net_regression():
    return regressor(neural_network.MLPRegressor(hidden_layer_sizes=(12,), max_iter=60, random_state=7))


@case
def gaussian_process_regression():
    x, y = table("diabetes")
    model = gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF(2.0), alpha=0.5)
    return export(model.fit(x[:30], y[:30] / 100), x)


@case
def discriminant():
    return classifier(discriminant_analysis.LinearDiscriminantAnalysis(), "wine")


@case
def k_means():
    x, _ = table("iris")
    return to_onnx(cluster.KMeans(4, n_init=2, random_state=7).fit(x), x[:1], target_opset=OPSET), {"X": x[:ROWS]}


@case
def gaussian_mixture():
    x, _ = table("iris")
    model = mixture.GaussianMixture(3, random_state=7).fit(x)
    return to_onnx(model, x[:1], target_opset=OPSET), {"X": x[:ROWS]}


# Models of models.


@case
def voting():
    parts = [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3, random_state=7))]
    return classifier(ensemble.VotingClassifier(parts, voting="soft", flatten_transform=False))


@case
def voting_hard():
    parts = [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB()), ("c", svm.SVC())]
    return classifier(ensemble.VotingClassifier(parts, voting="hard", flatten_transform=False))


@case
def stacking():
    parts = [("a", naive_bayes.GaussianNB()), ("b", tree.DecisionTreeClassifier(max_depth=3, random_state=7))]
    return classifier(ensemble.StackingClassifier(parts), "breast_cancer")


@case
def calibrated():
    return classifier(calibration.CalibratedClassifierCV(linear_model.SGDClassifier(random_state=7), cv=2), "wine")


@case
def one_against_rest():
    return classifier(multiclass.OneVsRestClassifier(linear_model.LogisticRegression()))


@case
def several_regressions():
    x, y = table("diabetes")
    model = multioutput.MultiOutputRegressor(linear_model.Ridge()).fit(x, np.stack([y, y**0.5], 1) / 100)
    return export(model, x)


# Columns.


@case
def pca_scaled():
    return classifier(
        pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(3), linear_model.LogisticRegression()), "wine"
    )


@case
def preparation():
    """What turns numbers into numbers, one behind the other."""
    x, y = table("wine")
    x[::5, 1] = np.nan
    steps = [
        impute.SimpleImputer(strategy="median"), preprocessing.MinMaxScaler(), preprocessing.RobustScaler(),
        preprocessing.PolynomialFeatures(2), feature_selection.SelectKBest(k=20), preprocessing.MaxAbsScaler(),
        preprocessing.Normalizer(), decomposition.TruncatedSVD(6, random_state=7),
    ]  # fmt: skip
    model = pipeline.make_pipeline(*steps, tree.DecisionTreeClassifier(max_depth=4, random_state=7)).fit(x, y)
    return export(model, x, options=PLAIN)


@case
def bins():
    x, y = table("wine")
    steps = [preprocessing.KBinsDiscretizer(4, encode="onehot-dense"), linear_model.Ridge()]
    return export(pipeline.make_pipeline(*steps).fit(x, y), x)


@case
def normalizers():
    x, _ = table("iris")
    union = pipeline.make_union(
        preprocessing.Normalizer("l1"), preprocessing.Normalizer("max"), preprocessing.Binarizer(threshold=0.3),
        preprocessing.PowerTransformer(), feature_selection.VarianceThreshold(0.1),
    )  # fmt: skip
    return to_onnx(union.fit(x), x[:1], target_opset=OPSET), {"X": x[:ROWS]}


def passengers():
    """A table of texts, numbers and gaps, and whom a made up rule saves."""
    dice = np.random.default_rng(7)
    count = 300
    columns = {
        "age": np.round(dice.uniform(1, 80, (count, 1))).astype(np.float32),
        "fare": dice.gamma(2.0, 15.0, (count, 1)).astype(np.float32),
        "class": dice.integers(1, 4, (count, 1)),
        "sex": dice.choice(["male", "female"], (count, 1)).astype(object),
        "port": dice.choice(["Southampton", "Cherbourg", "Queenstown"], (count, 1)).astype(object),
    }
    saved = (columns["sex"] == "female") | (columns["age"] < 15) & (columns["class"] < 3)
    columns["age"][::6] = np.nan
    return columns, saved[:, 0].astype(int)


def kinds(columns):
    kind = {"f": FloatTensorType, "i": Int64TensorType, "O": StringTensorType}
    return [(name, kind[column.dtype.kind]([None, 1])) for name, column in columns.items()]


def titanic(last, strict=False, y=None, **options):
    import pandas

    columns, saved = passengers()
    frame = pandas.DataFrame({name: column[:, 0] for name, column in columns.items()})
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    known = "error" if strict else "ignore"
    prepare = compose.ColumnTransformer([
        ("numbers", numbers, ["age", "fare"]),
        ("texts", preprocessing.OneHotEncoder(handle_unknown=known), ["sex", "port"]),
        ("class", preprocessing.OneHotEncoder(handle_unknown=known), ["class"]),
    ])  # fmt: skip
    model = pipeline.Pipeline([("prepare", prepare), ("last", last)]).fit(frame, saved if y is None else y(saved))
    if options:
        options = {"options": {id(model): options}}
    exported = to_onnx(model, initial_types=kinds(columns), target_opset=OPSET, **options)
    return exported, {name: column[:ROWS] for name, column in columns.items()}


@case
def titanic_logistic():
    """Several named inputs of texts and numbers, and a map at the end."""
    return titanic(linear_model.LogisticRegression())


@case
def titanic_strict():
    """An unknown category is refused."""
    return titanic(ensemble.RandomForestClassifier(5, max_depth=4, random_state=7), strict=True, zipmap=False)


@case
def titanic_texts():
    return titanic(ensemble.GradientBoostingClassifier(n_estimators=5), y=lambda y: np.array(["lost", "saved"])[y], zipmap=False)


@case
def ordinal():
    columns, saved = passengers()
    x = np.concatenate([columns["sex"], columns["port"]], 1)
    model = pipeline.make_pipeline(preprocessing.OrdinalEncoder(), tree.DecisionTreeClassifier(max_depth=3)).fit(x, saved)
    kind = [("X", StringTensorType([None, 2]))]
    return to_onnx(model, initial_types=kind, target_opset=OPSET, options={id(model): PLAIN}), {"X": x[:ROWS]}


@case
def label_of_texts():
    columns, _ = passengers()
    model = preprocessing.LabelEncoder().fit(columns["port"][:, 0])
    kind = [("X", StringTensorType([None]))]
    return to_onnx(model, initial_types=kind, target_opset=OPSET), {"X": columns["port"][:ROWS, 0]}


# Texts.

SENTENCES = [
    "the quick brown fox jumps over the lazy dog", "A stitch in time saves nine", "the early bird catches the worm",
    "All that glitters is not gold", "a watched pot never boils", "Birds of a feather flock together",
    "the pen is mightier than the sword", "Actions speak louder than words", "a picture is worth a thousand words",
    "the dog and the bird are not gold", "", "words, words; WORDS!", "nine foxes in the pot",
]  # fmt: skip


def texts(*steps, y=None, options=None):
    x = np.array(SENTENCES, object)
    y = np.array([len(text) % 2 for text in SENTENCES])
    model = pipeline.make_pipeline(*steps).fit(x, y)
    kind = [("text", StringTensorType([None, 1]))]
    options = {id(model): options or {}} if options else {}
    return to_onnx(model, initial_types=kind, target_opset=OPSET, options=options), {"text": x.reshape(-1, 1)}


@case
def words_counted():
    return texts(feature_extraction.text.CountVectorizer(), naive_bayes.MultinomialNB(), options=PLAIN)


@case
def words_weighed():
    vectorizer = feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2), lowercase=False)
    return texts(vectorizer, linear_model.LogisticRegression())


@case
def words_without_stops():
    vectorizer = feature_extraction.text.TfidfVectorizer(stop_words=["the", "a"], token_pattern="[a-zA-Z]+", sublinear_tf=True)
    return texts(vectorizer, linear_model.SGDClassifier(random_state=7), options=PLAIN)


@case
def letters_counted():
    return texts(feature_extraction.text.CountVectorizer(analyzer="char", ngram_range=(1, 3)), decomposition.TruncatedSVD(3))


# Other packages.


def boosted(converter, model, x, y, rows=None, **options):
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats

    model.fit(x, y)
    convert = getattr(onnxmltools, f"convert_{converter}")
    exported = convert(model, initial_types=[("X", Floats([None, x.shape[1]]))], target_opset=15, **options)
    return exported, {"X": x[:ROWS] if rows is None else rows}


def gaps(x):
    x = x.copy()
    x[::3, 1] = np.nan
    return x


@case
def xgboost_two():
    import xgboost

    x, y = table("breast_cancer")
    return boosted("xgboost", xgboost.XGBClassifier(n_estimators=12, max_depth=4), gaps(x), y)


@case
def xgboost_three():
    import xgboost

    return boosted("xgboost", xgboost.XGBClassifier(n_estimators=5, max_depth=3), *table("iris"))


@case
def xgboost_regression():
    import xgboost

    x, y = table("diabetes")
    return boosted("xgboost", xgboost.XGBRegressor(n_estimators=12, max_depth=4), gaps(x), y)


@case
def xgboost_poisson():
    import xgboost

    x, y = table("diabetes")
    return boosted("xgboost", xgboost.XGBRegressor(n_estimators=8, max_depth=3, objective="count:poisson"), x, y)


@case
def lightgbm_two():
    import lightgbm

    x, y = table("breast_cancer")
    return boosted("lightgbm", lightgbm.LGBMClassifier(n_estimators=12, num_leaves=15, verbose=-1), gaps(x), y, zipmap=False)


@case
def lightgbm_three():
    import lightgbm

    return boosted("lightgbm", lightgbm.LGBMClassifier(n_estimators=5, num_leaves=7, verbose=-1), *table("wine"))


@case
def lightgbm_regression():
    import lightgbm

    x, y = table("diabetes")
    return boosted("lightgbm", lightgbm.LGBMRegressor(n_estimators=12, num_leaves=15, verbose=-1), gaps(x), y)


@case
def lightgbm_categories():
    """Branches that ask whether a number is one of several."""
    import lightgbm

    dice = np.random.default_rng(7)
    x = np.stack([dice.integers(0, 12, 400), dice.uniform(-1, 1, 400)], 1).astype(np.float32)
    y = np.isin(x[:, 0], [1, 4, 5, 9]) * 2 + x[:, 1]
    model = lightgbm.LGBMRegressor(n_estimators=6, num_leaves=7, verbose=-1, min_child_samples=5, cat_smooth=1)
    model.set_params(categorical_feature=[0])
    return boosted("lightgbm", model, x, y)


def catboost(model, x, y):
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        model.fit(x, y).save_model(file.name, format="onnx")
        return onnx.load(file.name), {"features": x[:ROWS]}


@case
def catboost_two():
    import catboost as cat

    x, y = table("breast_cancer")
    return catboost(cat.CatBoostClassifier(12, depth=4, verbose=0, allow_writing_files=False, random_seed=7), x, y)


@case
def catboost_three_texts():
    import catboost as cat

    x, y = table("iris")
    model = cat.CatBoostClassifier(6, depth=3, verbose=0, allow_writing_files=False, random_seed=7)
    return catboost(model, x, texts_of(y))


@case
def catboost_regression():
    import catboost as cat

    x, y = table("diabetes")
    return catboost(cat.CatBoostRegressor(12, depth=4, verbose=0, allow_writing_files=False, random_seed=7), x, y / 100)


# Made by hand: what the packages above do not write, or not all of it.


def by_hand(operator, feeds, outputs, opset=3, domain="ai.onnx.ml", standard=17, **attributes):
    """A graph of one node over the given inputs."""
    element = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "O": TensorProto.STRING, "d": TensorProto.DOUBLE}
    kind = lambda array: element["d" if array.dtype == np.float64 else array.dtype.kind]
    inputs = [helper.make_tensor_value_info(n, kind(a), [None, *a.shape[1:]]) for n, a in feeds.items()]
    outputs = [helper.make_tensor_value_info(n, e, [None] * rank) for n, e, rank in outputs]
    node = helper.make_node(operator, list(feeds), [o.name for o in outputs], domain=domain, **attributes)
    graph = helper.make_graph([node], operator, inputs, outputs)
    sets = [helper.make_opsetid("", standard)] + ([helper.make_opsetid(domain, opset)] if domain else [])
    return helper.make_model(graph, opset_imports=sets, ir_version=8), feeds


def stump(modes, targets=1, kind="target"):
    """Two features, and a tree of three branches for each mode; leaves vote for every target in turn."""
    nodes = {"treeids": [], "nodeids": [], "featureids": [], "values": [], "modes": [], "truenodeids": [], "falsenodeids": []}
    votes = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for t, mode in enumerate(modes):
        for at in range(7):
            leaf = at >= 3
            row = (t, at, at % 2, [0.0, 0.5, -0.5][at] if not leaf else 0.0, "LEAF" if leaf else mode,
                   0 if leaf else 2 * at + 1, 0 if leaf else 2 * at + 2)  # fmt: skip
            for values, value in zip(nodes.values(), row):
                values.append(value)
            if leaf:
                for values, value in zip(votes.values(), (t, at, (t + at) % targets, 0.25 * (at - 4.5) + t / 10)):
                    values.append(value)
    return {**{f"nodes_{k}": v for k, v in nodes.items()}, **{f"{kind}_{k}": v for k, v in votes.items()}}


def points(kind=np.float32):
    edge = [-1.0, -0.5, 0.0, 0.5, 1.0, np.nan]
    return np.array([[a, b] for a in edge for b in edge], kind)


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
SCORES = [("Y", TensorProto.FLOAT, 2)]
CLASSES = [("label", TensorProto.INT64, 1), ("scores", TensorProto.FLOAT, 2)]

for index, mode in enumerate(MODES):
    PIPELINES[f"hand_mode_{index}"] = lambda mode=mode: by_hand(
        "TreeEnsembleRegressor", {"X": points()}, SCORES, n_targets=1, **stump([mode] * 3),
        nodes_missing_value_tracks_true=[1, 0, 1, 0, 0, 0, 0] * 3,
    )  # fmt: skip
PIPELINES["hand_modes_mixed"] = lambda: by_hand(
    "TreeEnsembleRegressor", {"X": points()}, SCORES, n_targets=2, **stump(MODES[:4], 2), base_values=[0.5, -1.0]
)
PIPELINES["hand_doubles"] = lambda: by_hand(
    "TreeEnsembleRegressor", {"X": points(np.float64)}, SCORES, n_targets=1, **{
        **stump(MODES[:2]), "nodes_values": None, "target_weights": None,
        "nodes_values_as_tensor": helper.make_tensor("v", TensorProto.DOUBLE, [14], stump(MODES[:2])["nodes_values"]),
        "target_weights_as_tensor": helper.make_tensor("w", TensorProto.DOUBLE, [8], stump(MODES[:2])["target_weights"]),
    }  # fmt: skip
)
for function in ["AVERAGE", "MIN", "MAX"]:
    PIPELINES[f"hand_{function.lower()}"] = lambda function=function: by_hand(
        "TreeEnsembleRegressor", {"X": points()}, SCORES, n_targets=1, **stump(MODES[:3]), aggregate_function=function,
        base_values=[0.25],
    )  # fmt: skip
    PIPELINES[f"hand_{function.lower()}_two"] = lambda function=function: by_hand(
        "TreeEnsembleRegressor", {"X": points()}, SCORES, n_targets=2, **stump(MODES[:3], 2), aggregate_function=function,
    )  # fmt: skip
for transform in ["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]:
    PIPELINES[f"hand_{transform.lower()}"] = lambda transform=transform: by_hand(
        "TreeEnsembleRegressor", {"X": points()}, SCORES, n_targets=3, **stump(MODES[:4], 3), post_transform=transform,
        base_values=[0.5, 0.5, 0.4],
    )  # fmt: skip
    PIPELINES[f"hand_{transform.lower()}_one"] = lambda transform=transform: by_hand(
        "TreeEnsembleRegressor", {"X": points()}, SCORES, n_targets=1, **stump(MODES[:2], 1), post_transform=transform,
        base_values=[0.5],
    )  # fmt: skip
    for classes in (2, 3):
        PIPELINES[f"hand_{transform.lower()}_of_{classes}"] = lambda transform=transform, classes=classes: by_hand(
            "TreeEnsembleClassifier", {"X": points()}, CLASSES, **stump(MODES[:4], classes, "class"),
            classlabels_int64s=[7, 8, 9][:classes], post_transform=transform,
        )  # fmt: skip
for base in ([], [0.125], [0.25, -0.25]):
    for positive in (False, True):
        def one_score(base=base, positive=positive):
            trees = stump(MODES[:3], 1, "class")
            if positive:
                trees["class_weights"] = [abs(w) / 2 for w in trees["class_weights"]]
            extra = {"base_values": base} if base else {}
            return by_hand("TreeEnsembleClassifier", {"X": points()}, CLASSES, **trees, **extra, classlabels_int64s=[3, 4])
        PIPELINES[f"hand_one_score_{len(base)}{'_positive' if positive else ''}"] = one_score
PIPELINES["hand_base_of_three"] = lambda: by_hand(
    "TreeEnsembleClassifier", {"X": points()}, CLASSES, **stump(MODES[:2], 2, "class"), base_values=[-5.0, -5.0, -4.9],
    classlabels_int64s=[1, 2, 3],
)  # fmt: skip


@case
def hand_trees_of_opset_5():
    """Branches and leaves in lists of their own, and a branch that asks for membership of a set."""
    floats = lambda name, values: helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values)
    return by_hand(
        "TreeEnsemble", {"X": points()[:30]}, SCORES, opset=5, standard=21, n_targets=2, aggregate_function=1, post_transform=0,
        tree_roots=[0, 2], nodes_featureids=[0, 1, 1], nodes_modes=helper.make_tensor("m", TensorProto.UINT8, [3], [0, 6, 4]),
        nodes_splits=floats("s", [0.0, 0.0, 0.5]), nodes_truenodeids=[1, 0, 3], nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 0], nodes_falseleafs=[1, 1, 1], leaf_targetids=[0, 1, 0, 1],
        leaf_weights=floats("w", [1.0, 10.0, 100.0, 1000.0]), membership_values=floats("v", [0.5, 1.0, float("nan")]),
    )  # fmt: skip


@case
def hand_labels_with_gaps():
    x = np.array([[1.5, np.nan, 2.5, 0.0, -0.0, 7.0]], np.float32).T
    return by_hand(
        "LabelEncoder", {"X": x}, [("Y", TensorProto.STRING, 2)], opset=4, keys_floats=[1.5, float("nan"), 0.0],
        values_strings=["a", "gap", "zero"], default_string="none",
    )  # fmt: skip


@case
def hand_labels_of_tensors():
    x = np.array([["a"], ["b"], ["c"]], object)
    return by_hand(
        "LabelEncoder", {"X": x}, [("Y", TensorProto.DOUBLE, 2)], opset=4,
        keys_tensor=helper.make_tensor("k", TensorProto.STRING, [2], ["a", "b"]),
        values_tensor=helper.make_tensor("v", TensorProto.DOUBLE, [2], [1.5, 2.5]),
        default_tensor=helper.make_tensor("d", TensorProto.DOUBLE, [1], [9.5]),
    )  # fmt: skip


@case
def hand_categories():
    x = np.array([["a", "x"], ["b", "a"]], object)
    return by_hand(
        "CategoryMapper", {"X": x}, [("Y", TensorProto.INT64, 2)], cats_strings=["a", "b"], cats_int64s=[5, 6], default_int64=-3,
    )  # fmt: skip


@case
def hand_features_joined():
    feeds = {"a": np.arange(6, dtype=np.int64).reshape(3, 2), "b": np.ones((3, 1), np.int64)}
    return by_hand("FeatureVectorizer", feeds, SCORES, opset=1, inputdimensions=[2, 1])


@case
def hand_grams_of_ints():
    x = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8], [6, 7, 8, 6, 7, 8]], np.int64)
    return by_hand(
        "TfIdfVectorizer", {"X": x}, SCORES, domain="", mode="TFIDF", min_gram_length=1, max_gram_length=2, max_skip_count=2,
        ngram_counts=[0, 4], ngram_indexes=[6, 5, 4, 3, 2, 1, 0], pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    )  # fmt: skip


#: What tests/models/pipelines holds: one of each family, small.
FEW = [
    "tree_zipmap_texts", "boosting_two", "logistic_texts", "svc_rbf", "svr_rbf", "titanic_logistic", "titanic_strict", "ordinal",
    "words_weighed", "xgboost_two", "lightgbm_regression", "lightgbm_categories", "catboost_three_texts", "isolation_forest",
    "hand_modes_mixed", "hand_trees_of_opset_5", "hand_labels_of_tensors",
]  # fmt: skip


def plain(output, model):
    """An output as an array; a sequence of maps as a column for each class, in the order of the classes."""
    if not isinstance(output, list):
        return output
    for node in model.graph.node:
        if node.op_type == "ZipMap":
            labels = [helper.get_attribute_value(a) for a in node.attribute if a.name.startswith("classlabels")][0]
            labels = [label.decode() if isinstance(label, bytes) else label for label in labels]
            return np.array([[row[label] for label in labels] for row in output], np.float32)
    raise TypeError("an output that is no tensor")


NAMES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "bool": "BOOL", "object": "BYTES"}


def tensor(name, array):
    """A tensor as in a request; floats in their shortest exact decimal form."""
    array = np.asarray(array)
    array = array.astype(object) if array.dtype.kind in "US" else array

    def element(value):
        if array.dtype.kind == "f":
            return float(str(value)) if np.isfinite(value) else None if np.isnan(value) else str(value)
        return bool(value) if array.dtype.kind == "b" else str(value) if array.dtype.kind == "O" else int(value)

    data = [element(value) for value in array.ravel()]
    return {"name": name, "datatype": NAMES[array.dtype.name], "shape": list(array.shape), "data": data}


def write(name, folder):
    model, feeds = PIPELINES[name]()
    for node in model.graph.node:
        if node.op_type == "StringNormalizer":
            # onnxruntime asks for a locale that a small machine lacks; letters are turned alike in this one.
            node.attribute.append(helper.make_attribute("locale", "C.UTF-8"))
    del model.metadata_props[:]
    model.doc_string = ""
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
    answers = zip(session.get_outputs(), session.run(None, feeds))
    request = [tensor(n, array) for n, array in feeds.items()]
    answer = [tensor(o.name, plain(array, model)) for o, array in answers]
    (folder / f"{name}.json").write_text(json.dumps({"inputs": request, "outputs": answer}) + "\n")


def main(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or PIPELINES:
        try:
            write(name, folder)
        except Exception as error:
            failed += 1
            (folder / f"{name}.onnx").unlink(missing_ok=True)
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    count = len(names or PIPELINES)
    print(f"{count - failed} of {count} pipelines in {folder}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    words = sys.argv[1:]
    few = "--few" in words
    words = [word for word in words if word != "--few"]
    if not words:
        sys.exit(__doc__)
    main(pathlib.Path(words[0]), words[1:] or (FEW if few else []))
