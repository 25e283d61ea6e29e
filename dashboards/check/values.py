"""Holds what panels say of made-up series against what they should say, by promtool.

    python dashboards/check/values.py

Here is what no run under load shows: versions, pools and instances of which one has much to do and another little.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import queries

MINUTES = 20
ALL = {"job": ".+", "instance": ".+", "model": ".+", "slo": "0.99", "__rate_interval": "5m", "__range": "10m"}


def series(metric, growth=None, value=None, **labels):
    """A counter that grows by so much in a minute, or a gauge."""
    labels = {"job": "uncork", "instance": "a:1", **labels}
    named = ", ".join(f'{name}="{label}"' for name, label in labels.items())
    values = f"{value}x{MINUTES}" if growth is None else f"0+{growth}x{MINUTES}"
    return {"series": f"{metric}{{{named}}}", "values": values}


def runners(busy, many=1, **labels):
    """Runners that are busy for a part of their time."""
    return [
        series("uncork_runner_busy_seconds_total", growth=60 * busy * many, **labels),
        series("uncork_runners", value=many, **labels),
    ]


def batches(rows, cap, took=0.01, **labels):
    """A hundred batches a minute."""
    return [
        series("uncork_adaptive_batch_size_sum", growth=100 * rows, **labels),
        series("uncork_adaptive_batch_size_count", growth=100, **labels),
        series("uncork_max_batch_rows", value=cap, **labels),
        series("uncork_batch_duration_seconds_sum", growth=100 * took, **labels),
        series("uncork_batch_duration_seconds_count", growth=100, **labels),
    ]


def answers(below, cap, growth, **labels):
    """Answers that all took just less than `below` seconds, which is one of two edges."""
    return [
        series("uncork_max_latency_seconds", value=cap, **labels),
        *(
            series("uncork_request_duration_seconds_bucket", growth=growth if edge >= below else 0, le=edge, **labels)
            for edge in (0.01, 0.05, 0.1)
        ),
        series("uncork_request_duration_seconds_bucket", growth=growth, le="+Inf", **labels),
    ]


IDLE_AND_BUSY = [
    *runners(0, model="m", version="1"),
    *runners(0.9, model="m", version="2"),
    *runners(0.5, 2, instance="b:1", model="m", version="2"),
]
HALF_EACH = [*runners(0.5, model="m", version="1"), *runners(0.6, model="m", version="2")]
POOL = [
    *runners(0.3, model="one", version="1", pool="cpu"),
    *runners(0.4, model="two", version="1", pool="cpu"),
    *runners(0.6, instance="b:1", model="three", version="1"),
]
FULL_AND_SMALL = [
    *batches(16, 16, 0.01, model="m", version="1"),
    *batches(16, 128, 0.03, model="m", version="2"),
]

# A panel's title, which of its queries, the series, and the answer: a number for each set of labels.
CASES = [
    ("Runners busy by model", 0, IDLE_AND_BUSY, {'{model="m"}': 1.9 / 3}),
    ("Busiest runners by instance", 0, IDLE_AND_BUSY, {'{instance="a:1"}': 0.9, '{instance="b:1"}': 0.5}),
    ("Busiest runners by instance", 0, HALF_EACH, {'{instance="a:1"}': 0.6}),
    ("Busiest runners by instance", 0, POOL, {'{instance="a:1"}': 0.7, '{instance="b:1"}': 0.6}),
    (
        "Latency at p99, share of the cap",
        0,
        [
            *answers(0.05, 0.05, 100, model="m", version="1"),
            *answers(0.01, 0.1, 10000, model="m", version="2"),
            *answers(0.05, 0.1, 0, model="m", version="3"),
        ],
        {'{model="m"}': (0.01 + 0.99 * 0.04) / 0.05},
    ),
    (
        "Runner busy share",
        0,
        IDLE_AND_BUSY,
        {'{model="m", version="1"}': 0, '{model="m", version="2"}': 1.9 / 3},
    ),
    (
        "Batches in flight",
        1,
        IDLE_AND_BUSY,
        {'{model="m", version="1"}': 1, '{model="m", version="2"}': 3},
    ),
    ("Fill", 0, FULL_AND_SMALL, {'{version="1"}': 1, '{version="2"}': 0.125}),
    ("Batch time: expected and measured", 0, FULL_AND_SMALL, {'{version="1"}': 0.01, '{version="2"}': 0.03}),
    (
        "Age of the estimate",
        0,
        [
            series("uncork_estimate_updated_timestamp_seconds", value=60, model="m", version="1"),
            series("uncork_estimate_updated_timestamp_seconds", value=60 * MINUTES, model="m", version="2"),
        ],
        {'{instance="a:1", version="1"}': 60 * (MINUTES - 1), '{instance="a:1", version="2"}': 0},
    ),
]


def test(panels, title, query, given, wanted):
    expr = queries.replaced(panels[title]["targets"][query]["expr"], ALL)
    samples = [{"labels": labels, "value": round(value, 6)} for labels, value in wanted.items()]
    return {
        "name": f"panel '{title}'",
        "interval": "1m",
        "input_series": given,
        "promql_expr_test": [
            {"expr": f"round({expr}, 0.000001)", "eval_time": f"{MINUTES}m", "exp_samples": samples}
        ],
    }


def main():
    panels = {panel["title"]: panel for board in queries.dashboards() for panel in queries.panels(board)}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "panels.json"  # JSON is YAML
        path.write_text(json.dumps({"rule_files": [], "tests": [test(panels, *case) for case in CASES]}))
        done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    print(f"  {len(CASES)} queries of panels say of made-up series what they should")


if __name__ == "__main__":
    main()
