"""Which of three growers a wine is from: a pipeline of scikit-learn.

python wine.py                 trains it
uncork serve wine.py:Wine      serves it
"""

import pathlib
import pickle

import uncork

FILE = pathlib.Path(__file__).with_suffix(".pickle")
MEASURED = ["alcohol", "color_intensity", "hue", "proline"]


class Wine:
    example = {"alcohol": 13.2, "color_intensity": 4.38, "hue": 1.05, "proline": 1050}

    def load(self):
        self.pipeline = pickle.loads(FILE.read_bytes())

    def preprocess(self, request):  # what is wrong with one wine is refused here
        wine = request.json()
        try:
            return [float(wine[key]) for key in MEASURED]
        except (KeyError, TypeError, ValueError) as error:
            raise uncork.BadInput(f"a wine has the numbers {', '.join(MEASURED)}: {error}") from error

    def __call__(self, wines):
        return self.pipeline.predict_proba(wines)

    def postprocess(self, shares):
        return {"grower": int(max(range(3), key=shares.__getitem__)) + 1, "probability": round(float(max(shares)), 3)}


def train():
    from sklearn.datasets import load_wine
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    wines = load_wine()
    table = wines.data[:, [wines.feature_names.index(key) for key in MEASURED]]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    print(f"right, ten-fold: {cross_val_score(pipeline, table, wines.target, cv=10).mean():.1%}")
    FILE.write_bytes(pickle.dumps(pipeline.fit(table, wines.target)))


if __name__ == "__main__":
    train()
