"""Which digit 8×8 pixels show: a network of PyTorch.

python digit.py                 trains it
uncork serve digit.py:Digit     serves it
"""

import pathlib

import torch

FILE = pathlib.Path(__file__).with_suffix(".pt")


def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


class Digit:
    inputs = {"pixels": ("FP32", [64])}
    outputs = {"digit": ("INT64", []), "probability": ("FP32", [])}

    def load(self):
        self.network = network().eval()
        self.network.load_state_dict(torch.load(FILE))

    @torch.inference_mode()
    def __call__(self, pixels):
        best = self.network(torch.from_numpy(pixels)).softmax(1).max(1)
        return {"digit": best.indices, "probability": best.values}


def train():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    torch.manual_seed(0)
    table, digits = load_digits(return_X_y=True)
    known, unseen, of_known, of_unseen = (torch.from_numpy(part) for part in train_test_split(table, digits, random_state=0))
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(known.float()), of_known).backward()
        optimizer.step()
    right = (model(unseen.float()).argmax(1) == of_unseen).float().mean().item()
    print(f"right, of {len(unseen)} unseen: {right:.1%}")
    torch.save(model.state_dict(), FILE)


if __name__ == "__main__":
    train()
