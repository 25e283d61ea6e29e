"""All models and all instances on one screen, from top to bottom: whom to look at, and in which dashboard further."""

from panel import (
    COUNTED,
    GOOD,
    GREEN,
    IS_UNCORK,
    MODEL,
    ORANGE,
    PROCESS,
    RED,
    VERSION,
    YELLOW,
    gauge,
    increase,
    lines,
    most,
    quantile,
    ranking,
    rate,
    share,
    stat,
    steps,
    target,
)

ON_TIME = steps((None, RED), (0.9, ORANGE), (0.99, GREEN))
ROOM = steps((None, GREEN), (0.8, YELLOW), (0.95, RED))


def on_time(by, window="$__range"):
    return share(
        increase("uncork_requests_total", f"{MODEL}, {GOOD}", window, by),
        increase("uncork_requests_total", f"{MODEL}, {COUNTED}", window, by),
    )


ALL = [
    stat(
        "On time, all models",
        "Share of all requests in the chosen time that were answered within their latency caps. Below the SLO: the model in"
        " 'On time by model' that is lowest comes first.",
        [target(on_time("job"), "{{job}}", instant=True)],
        "percentunit",
        width=5,
        decimals=2,
        spark=False,
        max=1,
        thresholds=ON_TIME,
    ),
    stat(
        "Goodput, all models",
        "Requests answered in time, a second, of all models and instances together. A step down while the load is the same: look"
        " at 'Requests by instance' for one that is gone.",
        [target(rate("uncork_requests_total", f"{MODEL}, {GOOD}", "job"), "{{job}}")],
        "reqps",
        width=5,
    ),
    stat(
        "Refused, all models",
        "Requests refused a second, as late or for a full queue. More than a few: 'Runners busy by model' says which model has no"
        " room.",
        [target(rate("uncork_requests_total", f'{MODEL}, outcome=~"shed|full"', "job"), "{{job}}")],
        "reqps",
        width=5,
        thresholds=steps((None, GREEN), (1, ORANGE)),
    ),
    stat(
        "Instances by version",
        "uncork processes that are scraped, by the program's version. Two versions for longer than a rollout takes: the rollout is"
        " stuck.",
        [target(f"count by (version) (uncork_build_info{{{PROCESS}}})", "{{version}}")],
        "none",
        width=5,
        spark=False,
    ),
    stat(
        "Instances down",
        "Instances that Prometheus knows as uncork and cannot scrape. Above 0: the alert UncorkDown says which; is the process there,"
        " and can it be reached?",
        [
            target(
                f"count(up{{{PROCESS}}} == 0 and on (job, instance) last_over_time(uncork_build_info{{{PROCESS}}}[1d])) or vector(0)",
                "down",
            )
        ],
        "none",
        width=4,
        spark=False,
        thresholds=steps((None, GREEN), (1, RED)),
    ),
]

MODELS = [
    ranking(
        "On time by model",
        "Share of each model's requests in the chosen time that were answered within its cap. Take the lowest, choose it in the"
        " dashboard uncork, and read from the top.",
        [target(on_time("model"), "{{model}}", instant=True)],
        "percentunit",
        decimals=2,
        max=1,
        thresholds=ON_TIME,
    ),
    ranking(
        "Latency at p99, share of the cap",
        "99 % of a model's answers came within this part of its latency cap, those of its slowest version. Near 1 the model is at"
        " its limit; far below it the cap could be lower.",
        [
            target(
                most(
                    share(
                        quantile(0.99, "uncork_request_duration_seconds", VERSION),
                        gauge("uncork_max_latency_seconds", VERSION),
                    )
                ),
                "{{model}}",
                instant=True,
            )
        ],
        "percentunit",
        decimals=0,
        thresholds=steps((None, GREEN), (0.9, YELLOW), (1, RED)),
    ),
    ranking(
        "Runners busy by model",
        "Part of the runners' time that batches of a model's busiest version take, over all instances. Above 95 % any more load is"
        " refused: add instances, or see what profile says of larger batches.",
        [
            target(
                most(
                    share(
                        rate("uncork_runner_busy_seconds_total", by=VERSION),
                        gauge("uncork_runners", VERSION, how="sum"),
                    )
                ),
                "{{model}}",
                instant=True,
            )
        ],
        "percentunit",
        decimals=0,
        max=1,
        thresholds=ROOM,
    ),
]

INSTANCES = [
    ranking(
        "Requests by instance",
        "Answers and refusals a second of each instance. They should be alike: one with none gets no load, one with twice as many has"
        " the others' share.",
        [target(rate("uncork_requests_total", by="instance"), "{{instance}}", instant=True)],
        "reqps",
        decimals=0,
    ),
    ranking(
        "On time by instance",
        "Share of each instance's requests in the chosen time that were answered within the cap. One that is low while the others are"
        " not: its machine, not the model.",
        [target(on_time("instance"), "{{instance}}", instant=True)],
        "percentunit",
        decimals=2,
        max=1,
        thresholds=ON_TIME,
    ),
    ranking(
        "Busiest runners by instance",
        "The busiest version, or pool of models, of each instance: part of its runners' time that batches take. Instances that differ"
        " are loaded unevenly, or some machines are slower.",
        [
            target(
                most(
                    share(
                        rate("uncork_runner_busy_seconds_total", f'{MODEL}, pool=""', f"instance, {VERSION}"),
                        gauge("uncork_runners", f"instance, {VERSION}", f'{MODEL}, pool=""'),
                    )
                    + "\nor\n"
                    + share(
                        rate("uncork_runner_busy_seconds_total", f'{MODEL}, pool!=""', "instance, pool"),
                        gauge("uncork_runners", "instance, pool", f'{MODEL}, pool!=""'),
                    ),
                    "instance",
                ),
                "{{instance}}",
                instant=True,
            )
        ],
        "percentunit",
        decimals=0,
        max=1,
        thresholds=ROOM,
    ),
]

TIME = [
    lines(
        "Bad requests by model",
        "Late, refused and failed requests a second. The marks are deploys, new versions of models and reloads: trouble that begins at"
        " one has its cause there.",
        [target(rate("uncork_requests_total", f'{MODEL}, outcome=~"late|shed|full|failed"'), "{{model}}")],
        "reqps",
        width=8,
    ),
    lines(
        "Goodput by model",
        "Requests of each model that were answered in time, a second, over all instances. What falls without a fall of the load is lost"
        " to refusals.",
        [target(rate("uncork_requests_total", f"{MODEL}, {GOOD}"), "{{model}}")],
        "reqps",
        width=8,
    ),
    lines(
        "Processor and memory by instance",
        "Cores that each process uses, and its memory (right axis). Cores at those of the machine: requests wait before a model sees"
        " them.",
        [
            target(
                f"sum by (instance) (rate(process_cpu_seconds_total{{{PROCESS}}}[$__rate_interval]) {IS_UNCORK})",
                "cores {{instance}}",
            ),
            target(
                f"sum by (instance) (process_resident_memory_bytes{{{PROCESS}}} {IS_UNCORK})", "memory {{instance}}"
            ),
        ],
        "none",
        width=8,
        overrides=[
            {
                "matcher": {"id": "byRegexp", "options": "memory .*"},
                "properties": [{"id": "unit", "value": "bytes"}, {"id": "custom.axisPlacement", "value": "right"}],
            }
        ],
    ),
]

# Titles, None for rows that are not repeated, panels.
ROWS = [
    ("The fleet", None, ALL),
    ("Models", None, MODELS),
    ("Instances", None, INSTANCES),
    ("Over time", None, TIME),
]
