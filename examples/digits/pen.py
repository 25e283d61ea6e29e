"""Digits drawn by a program, for training: forms that people draw with a mouse and that the data set hardly holds.

Most of its writers cross their 7 and give a 1 no foot; a model trained on them alone takes a plain 7 for a 1 or a 3. Each form
here is a few pen strokes. A drawing deforms a form at random and turns it into 64 pixels in the way the page at `/`
does: fitted to the full height of a 32x32 bitmap, as broad a pen as gives the ink of a typical image, counted in blocks
of 4x4. Only training rows are made so: the held-out rows are all scans.
"""

import math

import numpy as np

SIDE = 32  # of the bitmap, in pixels
WIDEST = 26  # of a digit, in pixels
INK = 313  # inked pixels of an image: the data set's mean
BREADTH = (1.5, 12.0)  # of a stroke, in pixels: thinnest, broadest


def arc(x, y, width, height, start, end):
    """Points on an ellipse around (x, y); angles in degrees, 0 to the right, 90 down."""
    angles = np.radians(np.linspace(start, end, max(4, abs(end - start) // 20)))
    return [(x + width / 2 * math.cos(a), y + height / 2 * math.sin(a)) for a in angles]


# (digit, strokes); points with both coordinates from 0 to 1, x to the right, y down.
FORMS = [
    (0, [arc(0.5, 0.5, 0.6, 1.0, -90, 270)]),
    (0, [arc(0.5, 0.5, 0.85, 1.0, -60, 290)]),
    (1, [[(0.5, 0.0), (0.5, 1.0)]]),
    (1, [[(0.25, 0.25), (0.5, 0.0), (0.5, 1.0)]]),
    (1, [[(0.28, 0.22), (0.5, 0.0), (0.5, 1.0)], [(0.25, 1.0), (0.75, 1.0)]]),
    (1, [[(0.3, 0.15), (0.5, 0.0), (0.5, 1.0)], [(0.3, 1.0), (0.7, 1.0)]]),
    (2, [arc(0.48, 0.27, 0.6, 0.54, 195, 400) + [(0.2, 1.0), (0.85, 1.0)]]),
    (2, [[(0.2, 0.2), (0.4, 0.0), (0.7, 0.08), (0.72, 0.35), (0.15, 0.98), (0.85, 0.95)]]),
    (3, [arc(0.45, 0.25, 0.55, 0.5, 205, 440) + arc(0.45, 0.73, 0.65, 0.54, 280, 510)]),
    (3, [[(0.2, 0.0), (0.75, 0.0), (0.45, 0.4)] + arc(0.45, 0.7, 0.6, 0.6, 280, 510)]),
    (4, [[(0.25, 0.0), (0.15, 0.55), (0.85, 0.55)], [(0.65, 0.1), (0.62, 1.0)]]),
    (4, [[(0.6, 1.0), (0.62, 0.0), (0.12, 0.65), (0.88, 0.65)]]),
    (5, [[(0.78, 0.0), (0.28, 0.0), (0.25, 0.42)] + arc(0.45, 0.68, 0.62, 0.62, 240, 500)]),
    (5, [[(0.28, 0.02), (0.25, 0.45)] + arc(0.45, 0.7, 0.6, 0.58, 235, 490), [(0.28, 0.0), (0.8, 0.0)]]),
    (6, [[(0.68, 0.0), (0.4, 0.25), (0.25, 0.6)] + arc(0.5, 0.72, 0.5, 0.54, 180, -180)]),
    (6, [[(0.55, 0.0), (0.3, 0.45)] + arc(0.48, 0.72, 0.42, 0.52, 190, -120)]),
    (7, [[(0.15, 0.02), (0.82, 0.02), (0.42, 1.0)]]),
    (7, [[(0.15, 0.15), (0.15, 0.02), (0.85, 0.0), (0.55, 0.45), (0.45, 1.0)]]),
    (7, [[(0.2, 0.02), (0.7, 0.02), (0.55, 1.0)]]),
    (8, [arc(0.5, 0.25, 0.5, 0.48, 90, 450), arc(0.5, 0.74, 0.6, 0.52, -90, 270)]),
    (8, [[(0.75, 0.12), (0.5, 0.0), (0.25, 0.15), (0.35, 0.4), (0.7, 0.62), (0.78, 0.82), (0.5, 1.0), (0.22, 0.82),
          (0.32, 0.6), (0.68, 0.36), (0.75, 0.12)]]),
    (9, [arc(0.47, 0.27, 0.5, 0.52, 0, -360) + [(0.72, 0.27), (0.66, 1.0)]]),
    (9, [arc(0.47, 0.27, 0.5, 0.5, 0, -360) + [(0.72, 0.27), (0.74, 0.65), (0.6, 0.95), (0.3, 1.0)]]),
]  # fmt: skip


def deform(strokes, random):
    """The form by another hand: turned, slanted, stretched, and every corner moved a little."""
    turn, slant, stretch = random.uniform(-0.2, 0.2), random.uniform(-0.2, 0.2), random.uniform(0.75, 1.25)
    hand = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    hand = hand @ np.array([[stretch, slant], [0.0, 1.0]])
    return [np.array(stroke) @ hand.T + random.normal(0, 0.02, (len(stroke), 2)) for stroke in strokes]


def inked(starts, ends, radius):
    """The bitmap [32, 32], true where a pixel's centre lies within `radius` of a segment."""
    centres = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), axis=-1).reshape(-1, 1, 2) + 0.5
    lengths = ends - starts
    along = ((centres - starts) * lengths).sum(-1) / np.maximum((lengths**2).sum(-1), 1e-9)
    nearest = starts + along.clip(0, 1)[..., None] * lengths
    return (((centres - nearest) ** 2).sum(-1).min(axis=1) <= radius**2).reshape(SIDE, SIDE)


def pixels_of(strokes):
    """The 64 pixels, 0 to 16, of a drawing."""
    starts = np.concatenate([stroke[:-1] for stroke in strokes])
    ends = np.concatenate([stroke[1:] for stroke in strokes])
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    middle, (width, height) = (low + high) / 2, high - low
    thin, broad = BREADTH
    for _ in range(6):
        breadth = (thin + broad) / 2
        tall = (SIDE - breadth) / height
        scale = np.array([min(tall, (WIDEST - breadth) / width), tall])
        bitmap = inked((starts - middle) * scale + SIDE / 2, (ends - middle) * scale + SIDE / 2, breadth / 2)
        thin, broad = (breadth, broad) if bitmap.sum() < INK else (thin, breadth)
    return bitmap.reshape(8, 4, 8, 4).sum(axis=(1, 3)).reshape(64)


def drawings(rows_per_digit, seed):
    """(pixels float32 [10 * rows_per_digit, 64], digits int64), the forms of a digit in turn."""
    random = np.random.default_rng(seed)
    pixels, digits = [], []
    for digit in range(10):
        forms = [strokes for form_digit, strokes in FORMS if form_digit == digit]
        for row in range(rows_per_digit):
            pixels.append(pixels_of(deform(forms[row % len(forms)], random)))
            digits.append(digit)
    return np.array(pixels, dtype=np.float32), np.array(digits, dtype=np.int64)
