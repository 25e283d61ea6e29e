"""Draws docs/policy-*.svg from what `cargo bench --bench policy -- curves --json FILE` wrote: plot.py FILE.

Needs matplotlib: pip install -r crates/sim/benches/policy/requirements.txt
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

DOCS = pathlib.Path(__file__).resolve().parents[4] / "docs"
# Readable on white and on black.
INK = "#7d7d7d"
COLOURS = {
    "cork": "#d1495b",
    "cork-2020 told": "#3d8fd1",
    "cork-2020": "#9b6fd0",
    "aimd": "#c98a1b",
    "eager": "#8a8a8a",
    "best fixed": "#2f9e6e",
}
plt.rcParams.update({
    "svg.hashsalt": "uncork",  # the same bytes for the same numbers
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
})


def draw(name: str, curves: dict) -> None:
    figure, (share, latency) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    loads = curves["loads"]
    share.plot(loads, curves["optimum"], color=INK, linestyle=":", label="clairvoyant optimum")
    for policy in curves["policies"]:
        # Cork last, on top of those that it coincides with.
        front = policy["name"] == "cork"
        style = {"color": COLOURS[policy["name"]], "linewidth": 2.2 if front else 1.2, "zorder": 3 if front else 2}
        share.plot(loads, policy["on_time"], label=policy["name"], **style)
        latency.plot(loads, policy["mean_ms"], **style)
    share.set_ylabel("on time, % of requests")
    share.set_ylim(0, 102)
    latency.set_ylabel("mean latency of the answers, ms")
    latency.set_ylim(bottom=0)
    for axes in (share, latency):
        axes.set_xlabel("load, as a share of the capacity")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=INK, alpha=0.2)
    figure.suptitle(curves["title"])
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(DOCS / f"policy-{name}.svg", transparent=True, metadata={"Date": None})


def main() -> None:
    curves = json.loads(pathlib.Path(sys.argv[1]).read_text())["sections"]["curves"]
    for name in ("easy", "hard"):
        draw(name, curves[name])


main()
