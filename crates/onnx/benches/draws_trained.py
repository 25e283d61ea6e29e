"""Trains small models by chance, with what exporters make of them, beside onnxruntime's answers: python3 crates/onnx/benches/draws_trained.py FOLDER COUNT [SEED]

Boosted trees of XGBoost, LightGBM and CatBoost, and scikit-learn's models, with classes of any name, tables with gaps and any objective. What an exporter refuses is
left out. Run them by cargo bench --bench onnx -- pipelines FOLDER.
"""

import os
import pathlib
import random
import signal
import sys
import tempfile

import catboost
import lightgbm
import numpy as np
import onnx
import onnxmltools
import pipelines
import xgboost
from chances import apart
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm, tree, discriminant_analysis, cluster, decomposition, gaussian_process, calibration, multiclass


def classes_of(dice, count):
    return np.array(dice.choice([list(range(count)), [3 * i + 2 for i in range(count)], [i - 1 for i in range(count)], [f"class {i}" for i in range(count)], ["no", "yes", "perhaps", "never"][:count]]))


def table(dice, gaps):
    source = np.random.default_rng(dice.getrandbits(32))
    x = source.normal(size=(120, dice.randint(2, 5))).astype(np.float32)
    if dice.random() < 0.3:
        x[:, 0] = np.round(x[:, 0])
    score = x[:, 0] + 0.5 * x[:, 1] ** 2 + 0.1 * source.normal(size=len(x))
    if gaps:
        x[source.random(x.shape) < 0.1] = np.nan
    return x, score, source


def boosted(dice):
    x, score, source = table(dice, dice.random() < 0.5)
    count = dice.choice([0, 2, 2, 2, 3, 4])
    if count:
        # At times one class is rare, and all leaves vote for the other.
        cuts = np.quantile(score, np.linspace(0, 1, count + 1)[1:-1] * dice.choice([1, 1, 0.4]))
        y = np.digitize(score, cuts)
    else:
        y = score
    names = classes_of(dice, count) if count else None
    rounds, deep = dice.choice([1, 2, 5]), dice.choice([1, 2, 3])
    kind = dice.choice(["xgboost", "lightgbm", "catboost"])
    types = [("X", FloatTensorType([None, x.shape[1]]))]
    if kind == "xgboost":
        more = dice.choice([{}, {}, {"base_score": 0.3}, {"scale_pos_weight": 3.0}, {"booster": "dart"}, {"num_parallel_tree": 2}])
        if count:
            model = xgboost.XGBClassifier(n_estimators=rounds, max_depth=deep, **more).fit(x, y)
        else:
            objective = dice.choice(["reg:squarederror", "count:poisson", "reg:tweedie", "reg:logistic", "reg:absoluteerror", "reg:gamma", "reg:pseudohubererror"])
            y = np.abs(y) / 9 + 0.01 if objective != "reg:squarederror" else y
            model = (xgboost.XGBRFRegressor if dice.random() < 0.2 else xgboost.XGBRegressor)(n_estimators=rounds, max_depth=deep, objective=objective, **{k: v for k, v in more.items() if k != "scale_pos_weight"}).fit(x, y)
        return onnxmltools.convert_xgboost(model, initial_types=types, target_opset=15), {"X": x[:12]}
    if kind == "lightgbm":
        more = {"n_estimators": rounds, "max_depth": deep, "verbose": -1, "boosting_type": dice.choice(["gbdt", "gbdt", "dart", "rf"])}
        if more["boosting_type"] == "rf":
            more |= {"bagging_freq": 1, "bagging_fraction": 0.7}
        if dice.random() < 0.3:
            more["zero_as_missing"] = True
        if count:
            model = lightgbm.LGBMClassifier(**more, objective=dice.choice(["multiclass", "multiclassova"]) if count > 2 else "binary").fit(x, names[y])
        else:
            objective = dice.choice(["regression", "poisson", "tweedie", "gamma", "quantile", "cross_entropy"])
            y = y if objective in ("regression", "quantile") else np.abs(y) / 9 + 0.01
            model = lightgbm.LGBMRegressor(**more, objective=objective).fit(x, np.clip(y, None, 1) if objective == "cross_entropy" else y)
        return onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=bool(dice.random() < 0.3), target_opset=15), {"X": x[:12]}
    more = {"iterations": rounds, "depth": deep, "verbose": 0, "allow_writing_files": False}
    if count:
        model = catboost.CatBoostClassifier(**more, loss_function=None if count == 2 else dice.choice(["MultiClass", "MultiClassOneVsAll"])).fit(x, names[y])
    else:
        model = catboost.CatBoostRegressor(**more, loss_function=dice.choice(["RMSE", "MAE", "Poisson"])).fit(x, np.abs(y))
    to = pathlib.Path(tempfile.gettempdir()) / f"catboost.{os.getpid()}.onnx"
    model.save_model(str(to), format="onnx")
    try:
        return onnx.load(str(to)), {"features": x[:12]}
    finally:
        to.unlink()


def learned(dice):
    x, score, source = table(dice, False)
    count = dice.choice([2, 2, 3])
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, count + 1)[1:-1]))
    names = classes_of(dice, count)
    two = lambda *models: dice.choice(models)
    model = dice.choice([
        lambda: linear_model.LogisticRegression(C=two(0.1, 10.0)), lambda: linear_model.SGDClassifier(loss=two("hinge", "log_loss", "modified_huber"), random_state=1), lambda: linear_model.Perceptron(), lambda: linear_model.RidgeClassifier(),
        lambda: svm.SVC(kernel=two("linear", "rbf", "poly", "sigmoid"), probability=two(True, False), decision_function_shape=two("ovo", "ovr")), lambda: svm.NuSVC(nu=0.2), lambda: svm.LinearSVC(),
        lambda: tree.DecisionTreeClassifier(max_depth=3), lambda: ensemble.RandomForestClassifier(3, max_depth=3), lambda: ensemble.AdaBoostClassifier(n_estimators=3), lambda: ensemble.BaggingClassifier(n_estimators=3),
        lambda: ensemble.GradientBoostingClassifier(n_estimators=3), lambda: naive_bayes.GaussianNB(), lambda: neighbors.KNeighborsClassifier(3, weights=two("uniform", "distance")), lambda: neural_network.MLPClassifier((5,), max_iter=50, activation=two("relu", "tanh", "logistic")),
        lambda: discriminant_analysis.LinearDiscriminantAnalysis(), lambda: discriminant_analysis.QuadraticDiscriminantAnalysis(), lambda: calibration.CalibratedClassifierCV(tree.DecisionTreeClassifier(max_depth=2), method=two("sigmoid", "isotonic"), cv=2),
        lambda: multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), lambda: ensemble.VotingClassifier([("a", tree.DecisionTreeClassifier(max_depth=2)), ("b", naive_bayes.GaussianNB())], voting=two("hard", "soft")),
        lambda: ensemble.HistGradientBoostingClassifier(max_iter=3), lambda: ensemble.ExtraTreesClassifier(3, max_depth=3),
        lambda: ensemble.StackingClassifier([("a", tree.DecisionTreeClassifier(max_depth=2)), ("b", naive_bayes.GaussianNB())], cv=2),
    ])()
    if dice.random() < 0.4:
        model = pipeline.make_pipeline(dice.choice([preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.RobustScaler(), preprocessing.PolynomialFeatures(2), preprocessing.KBinsDiscretizer(3, encode="ordinal"),
                                                    preprocessing.Normalizer(), preprocessing.MaxAbsScaler(), preprocessing.PowerTransformer(), preprocessing.QuantileTransformer(n_quantiles=9), decomposition.PCA(2), preprocessing.SplineTransformer() if 0 else preprocessing.Binarizer()]), model)
    model.fit(x, names[y])
    options = {"zipmap": dice.choice([False, True])}
    last = model if not isinstance(model, pipeline.Pipeline) else model[-1]
    if dice.random() < 0.3:
        options = {"zipmap": False, "raw_scores": True}
    try:
        found = to_onnx(model, x[:1], target_opset=pipelines.OPSET, options={id(model): options})
    except Exception:
        found = to_onnx(model, x[:1], target_opset=pipelines.OPSET)
    return found, {"X": x[:12]}


def main(folder, count, seed):
    folder.mkdir(parents=True, exist_ok=True)
    made, reasons = 0, {}
    for number in range(count):
        dice = random.Random(f"{seed}/{number}")
        name = f"{'boosted' if number % 2 else 'learned'}_{seed}_{number}"
        pipelines.PIPELINES[name] = lambda: (boosted if number % 2 else learned)(dice)

        def work():
            signal.alarm(20)
            pipelines.write(name, folder)

        why = apart(work)
        if why is None:
            made += 1
        else:
            (folder / f"{name}.onnx").unlink(missing_ok=True)
            reasons[why[:90]] = reasons.get(why[:90], 0) + 1
    print(f"{made} of {count} pipelines in {folder}")
    if os.environ.get("REASONS"):
        for why, times in reasons.items():
            print("   ", times, why)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1")
