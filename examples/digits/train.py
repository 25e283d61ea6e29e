"""Trains the digits model and writes digits.onnx beside this file. Seeded: the same versions give the same file.

    python train.py                train on 80 % of digits.csv and some drawn digits (pen.py), export digits.onnx
    python train.py --dump-data    write digits.csv anew from scikit-learn, train nothing

`check.py` measures the exported file on the other 20 %, which this script never looks at.
"""

import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import dataset
import pen

SEED = 20
EPOCHS = 150
DRAWN_ROWS_PER_DIGIT = 40
BATCH_ROWS = 64
PEAK_LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-2


class Digits(nn.Module):
    """Three small convolutions and two linear layers: pixels [n, 64] from 0 to 16 to logits [n, 10]."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.conv3 = nn.Conv2d(16, 32, 3, padding=1)
        self.linear1 = nn.Linear(32 * 2 * 2, 64)
        self.linear2 = nn.Linear(64, 10)

    def forward(self, pixels):
        x = (pixels / 16.0).reshape(-1, 1, 8, 8)
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        x = F.relu(self.linear1(torch.flatten(x, 1)))
        return self.linear2(x)


class Served(nn.Module):
    """What is exported: the trained model with softmax, so that the output is probabilities."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixels):
        return torch.softmax(self.model(pixels), dim=1)


def augment(pixels):
    """Other hands: turns, slants, stretches and shifts each image a little, and makes its stroke lighter or darker."""
    n = len(pixels)

    def between(low, high):
        return torch.empty(n).uniform_(low, high)

    turn, slant = between(-0.2, 0.2), between(-0.2, 0.2)  # radians, and columns per row
    wide, tall = between(0.85, 1.2), between(0.95, 1.15)
    cos, sin = torch.cos(turn), torch.sin(turn)
    # Where each output pixel is read from, in coordinates from -1 to 1; a pixel is 0.25 wide.
    affine = torch.stack(
        [
            torch.stack([wide * cos, wide * (slant - sin), between(-0.2, 0.2)], dim=1),
            torch.stack([tall * sin, tall * cos, between(-0.1, 0.1)], dim=1),
        ],
        dim=1,
    )
    images = pixels.reshape(n, 1, 8, 8)
    grid = F.affine_grid(affine, images.shape, align_corners=False)
    images = F.grid_sample(images, grid, align_corners=False)
    ink = between(0.8, 1.4).reshape(n, 1, 1, 1)
    return (images * ink).clamp(0, 16).reshape(n, 64)


def train(pixels, digits):
    """Trains on the given rows only; the learning rate rises for a tenth of the steps and then falls to zero."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    pixels, digits = torch.from_numpy(pixels), torch.from_numpy(digits)
    model = Digits()
    steps = EPOCHS * math.ceil(len(digits) / BATCH_ROWS)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, total_steps=steps, pct_start=0.1
    )
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(digits)).split(BATCH_ROWS):
            loss = F.cross_entropy(model(augment(pixels[rows])), digits[rows], label_smoothing=0.02)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1:3}: training loss {total / len(digits):.4f}")
    return model.eval()


def export(model):
    """Writes digits.onnx: input pixels [batch, 64], output probabilities [batch, 10]."""
    torch.onnx.export(
        Served(model).eval(),
        (torch.zeros(2, 64),),
        str(dataset.MODEL),
        input_names=["pixels"],
        output_names=["probabilities"],
        dynamic_axes={"pixels": {0: "batch"}, "probabilities": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dump-data", action="store_true", help="write digits.csv from scikit-learn, train nothing")
    if parser.parse_args().dump_data:
        dataset.dump()
        return
    pixels, digits, _, _ = dataset.split()
    drawn_pixels, drawn_digits = pen.drawings(DRAWN_ROWS_PER_DIGIT, SEED)
    print(f"training rows: {len(digits)} scanned, {len(drawn_digits)} drawn")
    pixels, digits = np.concatenate([pixels, drawn_pixels]), np.concatenate([digits, drawn_digits])
    export(train(pixels, digits))
    print(f"wrote {dataset.MODEL.name}, {dataset.MODEL.stat().st_size} bytes")


if __name__ == "__main__":
    main()
