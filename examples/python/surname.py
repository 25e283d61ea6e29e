"""Where a surname is at home: a tokenizer that was trained on surnames, and a linear model on its tokens.

python surname.py                   trains both
uncork serve surname.py:Surname     serves them
"""

import importlib
import pathlib
import pickle

import numpy as np
import tokenizers
import uncork

FOLDER = pathlib.Path(__file__).with_suffix("")
COUNTRIES = ["de_DE", "en_GB", "es_ES", "fi_FI", "fr_FR", "it_IT", "nl_NL", "pl_PL", "tr_TR"]


class Surname:
    example = "Lindholm"

    def load(self):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        self.model = pickle.loads((FOLDER / "model.pickle").read_bytes())

    def preprocess(self, request):
        name = request.json()
        if not isinstance(name, str):
            raise uncork.BadInput('a surname is a text, such as "Lindholm"')
        return counted(self.tokenizer, name)

    def __call__(self, counts):
        shares = self.model.predict_proba(np.stack(counts))
        return [{"country": COUNTRIES[best], "probability": round(float(row[best]), 3)} for row, best in zip(shares, shares.argmax(1))]


def counted(tokenizer, name):
    """How often each token is in a name."""
    return np.bincount(tokenizer.encode(f"^{name.lower()}$").ids, minlength=tokenizer.get_vocab_size()).astype(np.float32)


def train():
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    known = {}
    for country in COUNTRIES:
        for name in importlib.import_module(f"faker.providers.person.{country}").Provider.last_names:
            known.setdefault(name, COUNTRIES.index(country))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
    tokenizer.train_from_iterator(
        (f"^{name.lower()}$" for name in known), tokenizers.trainers.BpeTrainer(vocab_size=800, special_tokens=["?"])
    )
    table = np.stack([counted(tokenizer, name) for name in known])
    learned, unseen, of_learned, of_unseen = train_test_split(table, list(known.values()), random_state=0)
    model = LogisticRegression(max_iter=300, class_weight="balanced").fit(learned, of_learned)
    print(f"right, of {len(unseen)} unseen: {model.score(unseen, of_unseen):.1%}")
    FOLDER.mkdir(exist_ok=True)
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    (FOLDER / "model.pickle").write_bytes(pickle.dumps(model))


if __name__ == "__main__":
    train()
