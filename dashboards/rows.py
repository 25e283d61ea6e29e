"""What the dashboard shows, from top to bottom: each panel, its queries, and what to do when it looks wrong."""

from panel import (
    COUNTED,
    GOOD,
    GREEN,
    IS_UNCORK,
    MODEL,
    ORANGE,
    OUTCOMES,
    PROCESS,
    REASONS,
    RED,
    REFUSALS,
    STAGES,
    VERSION,
    YELLOW,
    bound,
    burn,
    colored,
    gauge,
    heatmap,
    increase,
    lines,
    mean,
    override,
    quantile,
    rate,
    share,
    stat,
    steps,
    target,
)

SLO = [
    stat(
        "On time",
        "Share of the requests in the chosen time that were answered within max_latency_ms. Refusals and failures count"
        " as bad; bad input, callers who left and requests during a shutdown do not count. Below the SLO: look at"
        " 'Requests by how they ended' for what went wrong.",
        [
            target(
                share(
                    increase("uncork_requests_total", f"{MODEL}, {GOOD}", "$__range"),
                    increase("uncork_requests_total", f"{MODEL}, {COUNTED}", "$__range"),
                ),
                "{{model}}",
                instant=True,
            )
        ],
        "percentunit",
        width=5,
        decimals=2,
        spark=False,
        max=1,
        thresholds=steps((None, RED), (0.9, ORANGE), (0.99, GREEN)),
    ),
    stat(
        "Error budget left (30 days)",
        "What is left of the requests that may be bad in 30 days under the SLO chosen above. Below 0 % "
        "the SLO is missed: hold back risky changes and find what burns it in 'Burn rate'.",
        [target(f"1 - {burn('30d')}", "{{model}}", instant=True)],
        "percentunit",
        width=5,
        decimals=1,
        spark=False,
        thresholds=steps((None, RED), (0, ORANGE), (0.25, GREEN)),
    ),
    stat(
        "Burn rate (last hour)",
        "How fast the error budget is being spent: at 1 it lasts exactly 30 days, at 14.4 two days. Above 14.4 "
        "the alert UncorkBudgetBurnsFast pages.",
        [target(burn("1h"), "{{model}}", instant=True)],
        "none",
        width=5,
        decimals=2,
        spark=False,
        thresholds=steps((None, GREEN), (1, YELLOW), (6, ORANGE), (14.4, RED)),
    ),
    stat(
        "Goodput",
        "Requests answered on time, a second. The number to compare with the rate that 'uncork loadtest"
        " --find-max-rate' found.",
        [target(rate("uncork_requests_total", f"{MODEL}, {GOOD}"), "{{model}}")],
        "reqps",
        width=5,
    ),
    stat(
        "Servers",
        "uncork processes that are scraped, by version. Two versions for longer than a rollout takes: the rollout is"
        " stuck.",
        [target(f"count by (version) (uncork_build_info{{{PROCESS}}})", "{{version}}")],
        "short",
        width=2,
        text_mode="value_and_name",
        spark=False,
    ),
    stat(
        "Up for",
        "Time since the youngest process started. Short again and again: it restarts; read its log.",
        [target(f"min(time() - process_start_time_seconds{{{PROCESS}}} {IS_UNCORK})", "youngest")],
        "s",
        width=2,
        spark=False,
        thresholds=steps((None, ORANGE), (300, GREEN)),
    ),
    lines(
        "On time, share of requests",
        "The same share over time, by model; the dashed line is the SLO chosen above. Where it dips, compare "
        "the panels below at the same instant.",
        [
            target(
                share(
                    rate("uncork_requests_total", f"{MODEL}, {GOOD}"),
                    rate("uncork_requests_total", f"{MODEL}, {COUNTED}"),
                ),
                "{{model}}",
            ),
            target("vector($slo)", "SLO"),
        ],
        "percentunit",
        width=8,
        max=1,
        overrides=[bound("SLO")],
    ),
    lines(
        "Burn rate",
        "Bad share divided by what the SLO allows. The alerts compare pairs of windows: above 14.4 over 1 h and 5 min,"
        " above 6 over 6 h and 30 min, above 1 over 3 days and 6 h. A short window alone that is high is a spike that"
        " has passed or has just begun.",
        [target(burn(window), f"{{{{model}}}} {window}") for window in ("5m", "1h", "6h")],
        "none",
        width=8,
        line_at=True,
        thresholds=steps((None, "transparent"), (1, YELLOW), (6, ORANGE), (14.4, RED)),
    ),
    lines(
        "Requests by how they ended",
        "late and failed: the server broke its promise. shed and full: refused at once with 503, see 'Refusals by "
        "reason'. invalid: the caller's fault (4xx). departed: the caller hung up first. own_deadline: less time than an "
        "idle server needs.",
        [target(rate("uncork_requests_total", by="outcome"), "{{outcome}}")],
        "reqps",
        width=8,
        stacked=True,
        overrides=colored(OUTCOMES),
    ),
]

BATCHING = [
    heatmap(
        "Batch size",
        "Batches by their rows; the brighter, the more. A bright line at the bottom: there is no company to be had,"
        " batching has nothing to do. At the top: batches are full, the model is near what it can do. A band that moves"
        " with the load is the policy at work. docs/operating.md reads several such pictures.",
        "uncork_adaptive_batch_size",
        "short",
        width=12,
        height=9,
        scheme="Oranges",
    ),
    lines(
        "Rows in a batch",
        "Mean rows of a batch beside the cap, by version. Small while 'Runner busy share' is low: nothing to gain from larger ones."
        " Small while requests are refused: the latency cap is too tight for larger ones, see 'Batch time: expected and"
        " measured'.",
        [
            target(mean("uncork_adaptive_batch_size", "version"), "mean, v{{version}}"),
            target(gauge("uncork_max_batch_rows", "version"), "cap, v{{version}}"),
        ],
        "short",
        height=9,
        overrides=[bound("cap, .*")],
    ),
    lines(
        "Fill",
        "Mean rows over max_batch_size, by version. At 100 % for long with refusals: raise max_batch_size if 'uncork profile' shows"
        " that larger batches are still more efficient, or add runners.",
        [
            target(
                share(mean("uncork_adaptive_batch_size", "version"), gauge("uncork_max_batch_rows", "version")), "v{{version}}"
            )
        ],
        "percentunit",
        height=9,
        max=1,
    ),
    lines(
        "Why batches were released",
        "ripe: waiting longer would not have paid. full: at max_batch_size. deadline: it was the last instant for its"
        " first request. probe: one request let through to learn whether a bad estimate still holds; many of them mean"
        " that the estimate is off.",
        [target(rate("uncork_releases_total", by="reason"), "{{reason}}")],
        "ops",
        stacked=True,
        overrides=colored(REASONS),
    ),
    lines(
        "Batch time: expected and measured",
        "Mean time of a batch beside what the estimator expected when it was released, and the latency cap, by version. If they"
        " part for minutes, something that the size of a batch does not explain is slowing the model down: a neighbour"
        " on the machine, throttling, inputs that differ.",
        [
            target(mean("uncork_batch_duration_seconds", "version"), "measured, v{{version}}"),
            target(mean("uncork_predicted_batch_duration_seconds", "version"), "expected, v{{version}}"),
            target(gauge("uncork_max_latency_seconds", "version"), "cap, v{{version}}"),
        ],
        "s",
        overrides=[bound("cap, .*")],
    ),
    lines(
        "Measured over expected",
        "Quantiles of the measured time of a batch over the expected one. p50 near 1 is a good estimate. A p90 far"
        " above the noise margin means late answers. Outside of 0.77 to 1.3 for long the alert UncorkEstimateOff"
        " fires.",
        [target(quantile(q, "uncork_batch_time_ratio"), f"p{int(q * 100)}") for q in (0.1, 0.5, 0.9)],
        "none",
        line_at=True,
        decimals=2,
        thresholds=steps((None, "transparent"), (1, GREEN)),
    ),
    lines(
        "Estimate",
        "The fitted line: a batch of n rows takes base + n * per row. base is what batching saves for each request that"
        " shares a batch. Right axis: per row. While all recent batches had one size, and just after the speed changed,"
        " the two cannot be told apart: then per row is 0 and base is the time of a whole batch. Jumps all the time:"
        " the machine is unsteady.",
        [
            target(gauge("uncork_estimate_base_seconds", "instance, version"), "base {{instance}} v{{version}}"),
            target(gauge("uncork_estimate_per_row_seconds", "instance, version"), "per row {{instance}} v{{version}}"),
        ],
        "s",
        overrides=[override("byRegexp", "per row.*", custom__axisPlacement="right")],
    ),
    lines(
        "Noise margin",
        "What the policy promises of a batch over what it takes on average: room for noise, learned from late answers."
        " Near 1: a steady machine. Above 2: half of the latency cap pays for noise; look for what else runs there.",
        [target(gauge("uncork_estimate_noise_factor", "instance, version"), "{{instance}} v{{version}}")],
        "none",
        width=5,
        decimals=2,
    ),
    lines(
        "Age of the estimate",
        "Time since the last batch that was learned from. It grows while there is no load, which is fine. Growing under"
        " load: batches fail or hang; read the log.",
        [
            target(
                f"time() - {gauge('uncork_estimate_updated_timestamp_seconds', 'instance, version')}",
                "{{instance}} v{{version}}",
            )
        ],
        "s",
        width=5,
    ),
    lines(
        "Held batches",
        "Share of the batches that were held back although a runner was free, in the hope of company. High with a good"
        " mean latency: arrivals come in clumps and holding pays. It is decided by the policy; nothing is to be set.",
        [target(share(rate("uncork_hold_seconds_count"), rate("uncork_adaptive_batch_size_count")), "held")],
        "percentunit",
        width=5,
    ),
    lines(
        "Time held",
        "How long held batches were held. It should be small beside the base of the estimate: no hold costs more than"
        " it can save.",
        [target(mean("uncork_hold_seconds"), "mean"), target(quantile(0.9, "uncork_hold_seconds"), "p90")],
        "s",
        width=5,
    ),
    lines(
        "Padding waste",
        'Share of the elements computed that were padding, for models with allowed_batch_sizes or lengths = "pad".'
        " Above a third: allow more sizes, or group by length.",
        [
            target(
                share(
                    rate("uncork_input_elements_total", MODEL + ', kind="padding"'), rate("uncork_input_elements_total")
                ),
                "padding",
            )
        ],
        "percentunit",
        width=4,
        max=1,
    ),
]

LATENCY = [
    lines(
        "Latency against the cap",
        "Quantiles of the time from a request's arrival to its answer, refusals left out, and the cap. They are"
        " estimated within a bucket; the share below the cap, which is an edge of the buckets, is exact: 'On time'. p99"
        " at the cap under overload is how it should be: what would be later is refused.",
        [
            *(target(quantile(q, "uncork_request_duration_seconds"), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)),
            target(gauge("uncork_max_latency_seconds"), "cap"),
        ],
        "s",
        width=6,
        height=9,
        overrides=[bound("cap")],
    ),
    lines(
        "Where the time goes",
        "Mean time of an answered request by stage, stacked; the line is the mean of the whole. queue grows with the"
        " load. execute is the model. receive large: clients send slowly. decode and encode large: smaller requests, or"
        " binary tensors. handover large: threads wait for a processor, see 'Processor'.",
        [
            target(mean("uncork_stage_duration_seconds", "stage"), "{{stage}}"),
            target(mean("uncork_request_duration_seconds"), "all of it"),
        ],
        "s",
        width=6,
        height=9,
        stacked=True,
        overrides=[
            *colored(STAGES),
            override(
                "byName",
                "all of it",
                color={"mode": "fixed", "fixedColor": "text"},
                custom__fillOpacity=0,
                custom__lineWidth=2,
                custom__stacking={"mode": "none", "group": "A"},
            ),
        ],
    ),
    lines(
        "Wait in the queue",
        "Quantiles of the time from a request's arrival to the release of its batch, and the latency cap. What is left"
        " below the cap must be enough for a batch. Long while 'Runner busy share' is low: batches are held, see 'Held"
        " batches'.",
        [
            *(target(quantile(q, "uncork_queue_wait_seconds"), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)),
            target(gauge("uncork_max_latency_seconds"), "cap"),
        ],
        "s",
        width=6,
        height=9,
        overrides=[bound("cap")],
    ),
    heatmap(
        "Latency",
        "Answered requests by latency. Two bands: two kinds of requests, or batches of two sizes. A band that climbs to"
        " the cap: the queue grows.",
        "uncork_request_duration_seconds",
        "s",
        width=6,
        height=9,
        scheme="Blues",
    ),
]

SATURATION = [
    lines(
        "Queue, share of its bound",
        "Rows and bytes waiting over max_queue_rows and max_queue_bytes, the worst instance. At 100 % requests are"
        " refused as full. Long before it, requests are refused as too late: if this is high while nothing is shed, the"
        " latency cap is very loose.",
        [
            target(
                f"max by (model) (uncork_queue_rows{{{MODEL}}} / uncork_max_queue_rows{{{MODEL}}})", "{{model}} rows"
            ),
            target(
                f"max by (model) (uncork_queue_bytes{{{MODEL}}} / uncork_max_queue_bytes{{{MODEL}}})", "{{model}} bytes"
            ),
        ],
        "percentunit",
        line_at=True,
        thresholds=steps((None, "transparent"), (0.8, RED)),
    ),
    lines(
        "Queue",
        "Rows waiting, and their bytes (right axis). Sawteeth are batches leaving; a plateau is what the latency cap"
        " lets in.",
        [
            target(gauge("uncork_queue_rows", how="sum"), "{{model}} rows"),
            target(gauge("uncork_queue_bytes", how="sum"), "{{model}} bytes"),
        ],
        "short",
        overrides=[
            override(
                "byRegexp",
                ".* bytes",
                unit="bytes",
                custom__axisPlacement="right",
                custom__lineStyle={"fill": "dot", "dash": [2, 4]},
            )
        ],
    ),
    lines(
        "Runner busy share",
        "Part of the time in which the runners of a model's version run a batch. Near 100 %: all that the device can do; more needs"
        " runners, a faster model or a larger max_batch_size. Low while requests are refused: the latency cap is below"
        " what one batch takes. Models of a pool share its runners: add them up.",
        [
            target(
                share(
                    rate("uncork_runner_busy_seconds_total", by=VERSION), gauge("uncork_runners", VERSION, how="sum")
                ),
                "{{model}} v{{version}}",
            )
        ],
        "percentunit",
        max=1,
        line_at=True,
        thresholds=steps((None, "transparent"), (0.95, RED)),
    ),
    lines(
        "Batches in flight",
        "Batches that run, beside the runners there are. At the line most of the time: see 'Runner busy share'. More"
        " runners help only where the device has cores or memory to spare. Given up: those that did not come back within"
        " stuck_after_ms.",
        [
            target(gauge("uncork_in_flight_batches", VERSION, how="sum"), "{{model}} v{{version}}"),
            target(gauge("uncork_runners", VERSION, how="sum"), "{{model}} v{{version}} runners"),
            target(
                increase("uncork_stuck_batches_total", MODEL, "$__rate_interval", VERSION), "{{model}} v{{version}} given up"
            ),
        ],
        "short",
        overrides=[bound(".* runners")],
    ),
    lines(
        "Refusals by reason",
        "batch_too_late: the next batch would answer it late. queue_too_long: the batches ahead of it take too long."
        " queue_stands: in lasting overload, a longer queue would answer no more. over_share: its caller took the most, and made room for another. expired: its deadline passed while it waited. rows_bound, bytes_bound: the queue is full. docs/operating.md,"
        " 'Why 503?', says what to do about each.",
        [target(rate("uncork_sheds_total", by="reason"), "{{reason}}")],
        "reqps",
        stacked=True,
        overrides=colored(REFUSALS),
    ),
    lines(
        "Processor",
        "Cores used by each process. At the machine's cores: HTTP and the models compete; see http_threads and"
        " threads.",
        [target(f"rate(process_cpu_seconds_total{{{PROCESS}}}[$__rate_interval]) {IS_UNCORK}", "{{instance}}")],
        "none",
        decimals=2,
    ),
    lines(
        "Memory",
        "Resident memory. It is bounded by the models, max_queue_bytes of each and max_bodies_bytes. Growing for hours"
        " at a steady load: report it.",
        [target(f"process_resident_memory_bytes{{{PROCESS}}} {IS_UNCORK}", "{{instance}}")],
        "bytes",
    ),
    lines(
        "HTTP answers by status",
        "All answers over HTTP and gRPC, those included that no model saw, and those to probes: 503 is also the answer to whether a server is"
        " ready that is loading. Whom that keeps from an answer: 'Turned away by reason' and 'Refusals by reason'.",
        [
            target(
                f"sum by (code) (rate(uncork_http_requests_total{{{PROCESS}}}[$__rate_interval])) > 0",
                "{{code}}",
            )
        ],
        "reqps",
    ),
    lines(
        "Turned away by reason",
        "Connections, and requests for inference, that no model saw; probes are not among them. connections: max_connections are open."
        " bodies, own_bodies: they fill max_bodies_bytes, or a caller's part of it. loading: the model is on its way. docs/operating.md, 'Why 503?', has all.",
        [
            target(
                f"sum by (reason) (rate(uncork_turned_away_total{{{PROCESS}}}[$__rate_interval]))",
                "{{reason}}",
            )
        ],
        "reqps",
        stacked=True,
    ),
    lines(
        "Connections",
        "Connections that are open. At max_connections new ones are told 503.",
        [target(f"uncork_http_connections{{{PROCESS}}}", "{{instance}}")],
        "none",
    ),
    lines(
        "Versions of models",
        "Versions that came and went, and could not be loaded, while the server ran; broken: those that lie in the folder of"
        " models and cannot be loaded. /v2/repository/index says why.",
        [
            target(
                f"sum by (outcome) (increase(uncork_repository_loads_total{{{PROCESS}}}[$__rate_interval])) > 0",
                "{{outcome}}",
            ),
            target(f"sum(uncork_repository_broken_versions{{{PROCESS}}})", "broken"),
        ],
        "short",
    ),
    lines(
        "Memory of models",
        "Their weights, and the values of a full batch in each runner; the bound of all together, 0 where there is none (max_models_bytes).",
        [
            target(f"sum by (model) (uncork_model_memory_bytes{{{MODEL}}})", "{{model}}"),
            target(f"max(uncork_repository_max_models_bytes{{{PROCESS}}})", "bound"),
        ],
        "bytes",
    ),
    lines(
        "Worker processes",
        "Those that are ready, and ends that nobody asked for: each loses its batches. The log says why.",
        [
            target(f"sum by (model) (uncork_workers{{{MODEL}}})", "{{model}}"),
            target(f"sum by (model) (increase(uncork_worker_ends_total{{{MODEL}}}[$__rate_interval]))", "{{model}}: ends"),
        ],
        "short",
    ),
    lines(
        "Copies for shadows",
        "Copies of requests for versions that answer nobody, by what became of them. They are no requests elsewhere.",
        [target(f"sum by (outcome) (rate(uncork_shadow_copies_total{{{MODEL}}}[$__rate_interval]))", "{{outcome}}")],
        "reqps",
    ),
    lines(
        "Reloads of the configuration",
        "Times that SIGHUP had it read again. One that was refused changed nothing; the log says why.",
        [target(f"sum by (outcome) (increase(uncork_repository_reloads_total{{{PROCESS}}}[$__rate_interval]))", "{{outcome}}")],
        "short",
    ),
    lines(
        "Files that are out of date",
        "1 while a file that is followed cannot be used as it is now: what it said before holds, so a token that was taken out is"
        " still good. The log says why.",
        [target(f"max by (instance, file) (uncork_stale_files{{{PROCESS}}})", "{{instance}}: {{file}}")],
        "none",
    ),
    lines(
        "Time until the certificate expires",
        "Of the certificate of TLS. 0 where it has expired, and where there is no TLS. Clients refuse it then.",
        [target(f"clamp_min(max by (instance) (uncork_tls_certificate_expires_seconds{{{PROCESS}}}) - time(), 0)", "{{instance}}")],
        "s",
    ),
    lines(
        "Open files",
        "File descriptors, most of them connections, over the process's limit. Near 100 %: raise the limit (ulimit -n)"
        " or lower max_connections.",
        [target(f"process_open_fds{{{PROCESS}}} / process_max_fds{{{PROCESS}}} {IS_UNCORK}", "{{instance}}")],
        "percentunit",
        line_at=True,
        thresholds=steps((None, "transparent"), (0.8, RED)),
    ),
]

ROWS = [
    ("SLO", None, SLO),
    ("Batching: $model", "model", BATCHING),
    ("Latency: $model", "model", LATENCY),
    ("Saturation", None, SATURATION),
]
