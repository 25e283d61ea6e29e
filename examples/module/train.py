"""Trains the network of this example: which of three spirals is a point on? Seeded: the same versions give the same files.

    pip install -r examples/module/requirements.txt
    python examples/module/train.py

Writes spirals.safetensors, the weights under PyTorch's names and in its layout, and answers.json: some points and what
PyTorch answers to them.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 20
STEPS = 3000
BATCH_ROWS = 512
LEARNING_RATE = 1e-2
ANSWERS = 12


class Spirals(nn.Module):
    """Points [n, 2] to logits [n, 3]."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 32)
        self.second = nn.Linear(32, 32)
        self.last = nn.Linear(32, 3)

    def forward(self, points):
        x = torch.tanh(self.first(points))
        x = torch.tanh(self.second(x))
        return self.last(x)


def points(count):
    """Points near the spirals, and their spirals. Spiral k turns once on its way out to radius 1, a third of a turn ahead
    of spiral k - 1; a point is off by a little."""
    spiral = torch.randint(0, 3, (count,))
    radius = 0.1 + 0.9 * torch.rand(count)
    angle = 2 * torch.pi * (radius + spiral / 3)
    on = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
    return on + 0.02 * torch.randn(count, 2), spiral


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Spirals()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=STEPS)
    for step in range(STEPS):
        x, spiral = points(BATCH_ROWS)
        loss = nn.functional.cross_entropy(model(x), spiral)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 500 == 0:
            print(f"step {step + 1:4}: loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        x, spiral = points(10_000)
        right = (model(x).argmax(dim=1) == spiral).float().mean().item()
        print(f"of 10,000 new points {100 * right:.2f} % right")
        save_file(model.state_dict(), HERE / "spirals.safetensors")
        x = x[:ANSWERS]
        probabilities = torch.softmax(model(x), dim=1)
    answers = {"points": x.tolist(), "spirals": spiral[:ANSWERS].tolist(), "probabilities": probabilities.tolist()}
    (HERE / "answers.json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
