"""Whether a tumour is benign, by thirty measures of its cells: trees of XGBoost, which take one array.

python tumour.py                  trains it
uncork serve tumour.py:Tumour     serves it
"""

import pathlib

import xgboost

FILE = pathlib.Path(__file__).with_suffix(".ubj")


class Tumour:
    inputs = {"cells": ("FP32", [30])}
    outputs = {"benign": ("FP32", [])}

    def load(self):
        self.trees = xgboost.Booster({"nthread": 1}, model_file=FILE)  # threads cost more than they gain on so few trees

    def __call__(self, cells):
        return self.trees.inplace_predict(cells)


def train():
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    table, benign = load_breast_cancer(return_X_y=True)
    known, unseen, of_known, of_unseen = train_test_split(table, benign, random_state=0, stratify=benign)
    options = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.2}
    trees = xgboost.train(options, xgboost.DMatrix(known, of_known), 60)
    right = ((trees.inplace_predict(unseen) > 0.5) == of_unseen).mean()
    print(f"right, of {len(unseen)} unseen: {right:.1%}")
    trees.save_model(FILE)


if __name__ == "__main__":
    train()
