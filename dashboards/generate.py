"""Writes the Grafana dashboards from their panels (rows.py, fleet.py): layout, variables, and the files.

    python3 dashboards/generate.py            writes dashboards/uncork.json and dashboards/fleet.json
    python3 dashboards/generate.py --check    exit code 1 if one is not what this program writes

Standard library only. The metrics are described in docs/metrics.md, the alerts in dashboards/rules/uncork.yml. What
checks the result is .ci/dashboards.
"""

import argparse
import json
import pathlib
import sys

import fleet
import rows
from panel import BLUE, DATASOURCE, MODEL, ORANGE, PROCESS, PURPLE, annotation

FOLDER = pathlib.Path(__file__).parent
COLUMNS = 24  # of Grafana's grid


# What changed: a version of the program, a version of a model, a configuration that was read again.
ANNOTATIONS = [
    annotation(
        "Deploys",
        f"count by (job, version) (uncork_build_info{{{PROCESS}}})"
        f" unless count by (job, version) (uncork_build_info{{{PROCESS}}} offset 1m)",
        "uncork {{version}}",
        BLUE,
    ),
    annotation(
        "Models",
        f"count by (model, version) (uncork_max_latency_seconds{{{MODEL}}})"
        f" unless count by (model, version) (uncork_max_latency_seconds{{{MODEL}}} offset 1m)",
        "{{model}} {{version}} is served",
        PURPLE,
    ),
    annotation(
        "Reloads",
        f"sum by (instance) (increase(uncork_repository_reloads_total{{{PROCESS}}}[1m])) > 0",
        "{{instance}} read its configuration again",
        ORANGE,
    ),
]


def laid_out(rows):
    """All panels with their places: from left to right, a new line where the next panel no longer fits."""
    panels, y, number = [], 0, 1
    for title, repeat, contents in rows:
        row = {
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "id": number,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        }
        panels.append({**row, "repeat": repeat} if repeat else row)
        x, y, number, tallest = 0, y + 1, number + 1, 0
        for one in contents:
            place = one["gridPos"]
            if x + place["w"] > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            place.update(x=x, y=y)
            panels.append({**one, "id": number})
            x, number, tallest = x + place["w"], number + 1, max(tallest, place["h"])
        y += tallest
    return panels


def variable(name, label, query):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": query,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "refresh": 2,
        "sort": 1,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def dashboard(uid, title, description, panels):
    slos = ["0.9", "0.95", "0.99", "0.995", "0.999"]
    return {
        "uid": uid,
        "title": title,
        "tags": ["uncork"],
        "editable": False,
        "schemaVersion": 41,
        "version": 1,
        "description": description,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": ANNOTATIONS},
        "links": [],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {"selected": True, "text": "default", "value": "default"},
                    "options": [],
                    "refresh": 1,
                    "regex": "",
                    "multi": False,
                    "includeAll": False,
                },
                variable("job", "Job", "label_values(uncork_build_info, job)"),
                variable("instance", "Instance", 'label_values(uncork_build_info{job=~"$job"}, instance)'),
                variable("model", "Model", f"label_values(uncork_max_latency_seconds{{{PROCESS}}}, model)"),
                {
                    "name": "slo",
                    "label": "SLO",
                    "type": "custom",
                    "query": ", ".join(slos),
                    "multi": False,
                    "includeAll": False,
                    "description": "Share of the requests that are to be answered on time.",
                    "current": {"selected": True, "text": "0.99", "value": "0.99"},
                    "options": [{"selected": slo == "0.99", "text": slo, "value": slo} for slo in slos],
                },
            ]
        },
        "panels": laid_out(panels),
    }


BOARDS = {
    "uncork.json": dashboard(
        "uncork",
        "uncork",
        "Adaptive batching: whether the latency promise holds, what the batches look like and why, and how much room is"
        " left.",
        rows.ROWS,
    ),
    "fleet.json": dashboard(
        "uncork-fleet",
        "uncork: the fleet",
        "All models and all instances on one screen: who is in trouble, and where there is room.",
        fleet.ROWS,
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the file is up to date")
    arguments = parser.parse_args()
    for name, board in BOARDS.items():
        text, target = json.dumps(board, indent=1, ensure_ascii=False) + "\n", FOLDER / name
        if not arguments.check:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            sys.exit(f"{target} is not what generate.py writes: run python3 dashboards/generate.py")


if __name__ == "__main__":
    main()
