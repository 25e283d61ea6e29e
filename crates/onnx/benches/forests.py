"""Ensembles of a hundred trees for speed.py, by packages of pipelines.txt: on 4,000 made up rows of 20 features."""

import pathlib

import numpy
from sklearn import datasets, ensemble
from skl2onnx import to_onnx

TREES = 100
OPSET = {"": 17, "ai.onnx.ml": 3}


def rows(classes=0):
    if classes:
        x, y = datasets.make_classification(4000, 20, n_informative=10, n_classes=classes, random_state=1)
    else:
        x, y = datasets.make_regression(4000, 20, noise=5, random_state=1)
    return (x / 3).astype(numpy.float32), y


def boosted(converter, model, x, y):
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = getattr(onnxmltools, f"convert_{converter}")
    return convert(model.fit(x, y), initial_types=[("X", FloatTensorType([None, x.shape[1]]))], target_opset=15)


def model(name):
    kind = name.removeprefix("trees_")
    if kind == "lightgbm":
        import lightgbm

        return boosted("lightgbm", lightgbm.LGBMRegressor(n_estimators=TREES, num_leaves=63, verbose=-1), *rows())
    if kind == "xgboost":
        import xgboost

        x, y = rows(8)
        return boosted("xgboost", xgboost.XGBClassifier(n_estimators=TREES, max_depth=6), x, y % 2)
    if kind == "classes":
        x, y = rows(8)
        forest = ensemble.RandomForestClassifier(TREES, max_depth=8, random_state=1).fit(x, y)
        return to_onnx(forest, x[:1], target_opset=OPSET, options={"zipmap": False})
    x, y = rows()
    forest = ensemble.RandomForestRegressor(TREES, max_depth=int(kind.removeprefix("depth")), random_state=1).fit(x, y)
    return to_onnx(forest, x[:1], target_opset=OPSET)


def write(name, folder):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(folder) / f"{name}.onnx").write_bytes(model(name).SerializeToString())
