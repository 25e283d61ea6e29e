"""Measures the server under open-loop load: one table of what was offered, answered in time, refused, and how fast.

    cargo build --release
    python3 benches/serving.py                  all cases, about a minute
    python3 benches/serving.py overload-2 idle  some of them
    python3 benches/serving.py --seconds 30     longer

Needs h2load (Debian: nghttp2-client) and Python 3.11's standard library. The generator runs on the same machine and shares
its cores with the server. It is open loop: each of its connections sends at its own fixed times, 100 ms apart, whatever
the server does; connections are opened evenly over a second, so that together they send at an even rate. The first two
seconds are not counted.
"""

import argparse
import json
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parent / "target" / "release" / "uncork"
PERIOD_S = 0.1
LONE_REQUESTS = 1000
RAMP_S = 1.0
SKIPPED_S = 2.0
SLO_S = 0.050

# Name: model ("" asks for /v2/health/live), requests a second (None: one client that asks again once it is answered), and
# the most that any policy could answer in time (None: not known beforehand).
CASES = {
    "health": ("", 10, None),
    "lone": ("stand-in", None, None),
    "idle": ("stand-in", 10, None),
    "half": ("stand-in", 7_619, 7_619),
    "stand-in": ("stand-in", 14_500, 14_500),
    "15k": ("stand-in", 15_000, 15_000),
    "mlp": ("mlp", 30_000, None),
    "mlp-35k": ("mlp", 35_000, None),
    "mlp-40k": ("mlp", 40_000, None),
    "overload-2": ("slow", 1_000, 500),
    "overload-5": ("slow", 2_500, 500),
}


def body(model):
    """One row for `model`, as JSON."""
    random.seed(1)
    width, name = (64, "x") if model == "mlp" else (1, "x")
    data = [round(random.uniform(-1, 1), 4) for _ in range(width)]
    tensor = {"name": name, "shape": [1, width], "datatype": "FP32", "data": data}
    return json.dumps({"inputs": [tensor]})


def start():
    """The server on a free port, and its address."""
    server = subprocess.Popen(
        [BINARY, "serve", "--config", HERE / "uncork.toml", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    ready = server.stdout.readline()
    address = re.search(r"http://\S+", ready)
    if not address:
        sys.exit(f"the server did not start: {ready!r}; run `{BINARY} serve --config {HERE}/uncork.toml` to see why")
    return server, address.group()


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def load(address, model, rate, seconds, scratch):
    """Runs the generator. (start, status, duration) of each counted request in seconds; how many ran; the seconds counted."""
    clients = max(1, round((rate or 1) * PERIOD_S))
    each = round((seconds + SKIPPED_S) / PERIOD_S) if rate else LONE_REQUESTS
    payload, log = scratch / "body.json", scratch / "log.tsv"
    payload.write_text(body(model))
    log.unlink(missing_ok=True)
    command = [
        "h2load", "--h1", "-t", "1", "-c", clients, "-n", clients * each, "--log-file", log,
        *(["--rps", round(1 / PERIOD_S)] if rate else []),
        *(["-d", payload, f"{address}/v2/models/{model}/infer"] if model else [f"{address}/v2/health/live"]),
    ]
    if clients > 1:
        command[1:1] = ["-r", max(1, round(clients / (RAMP_S * 1000))), "--rate-period", "1ms"]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"h2load failed:\n{run.stdout}{run.stderr}")
    rows = [tuple(map(int, line.split("\t"))) for line in log.read_text().splitlines()]
    begin = min(row[0] for row in rows)
    rows = [((at - begin) / 1e6, status, took / 1e6) for at, status, took in rows]
    if rate is None:
        return rows, len(rows), rows[-1][0]
    end = SKIPPED_S + seconds - RAMP_S  # after it, the connections opened first are done
    return [row for row in rows if SKIPPED_S <= row[0] < end], len(rows), end - SKIPPED_S


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] * 1e3 if values else float("nan")


def measure(name, server, address, seconds, scratch):
    model, rate, best = CASES[name]
    before = cpu_seconds(server.pid)
    rows, requests, window = load(address, model, rate, seconds, scratch)
    cost = (cpu_seconds(server.pid) - before) / requests * 1e6
    answered = [took for _, status, took in rows if status == 200]
    refused = [took for _, status, took in rows if status == 503]
    failed = len(rows) - len(answered) - len(refused)
    on_time = sum(took <= SLO_S for took in answered)
    share = f"{100 * on_time / (best * window):6.1f}" if best else f"{100 * on_time / max(1, len(rows)):6.1f}"
    print(
        f"{name:<11}{len(rows) / window:>9.0f}{on_time / window:>9.0f}{share:>8}"
        f"{quantile(answered, .5):>8.2f}{quantile(answered, .99):>8.2f}{quantile(answered, 1):>8.2f}"
        f"{len(refused) / window:>9.0f}{quantile(refused, .5):>9.2f}{failed:>7}{cost:>9.1f}", flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="which cases; all if none is named")
    parser.add_argument("--seconds", type=float, default=8, help="measured time of each case (default 8)")
    arguments = parser.parse_args()
    if not BINARY.exists():
        sys.exit("build first: cargo build --release")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server, address = start()
    try:
        print(f"{'':<11}{'offered':>9}{'on time':>9}{'':>8}{'answers, ms':>24}{'refused':>9}{'median':>9}{'':>7}{'server':>9}")
        print(f"{'case':<11}{'/s':>9}{'/s':>9}{'%':>8}{'p50':>8}{'p99':>8}{'max':>8}{'/s':>9}{'ms':>9}{'failed':>7}{'us/req':>9}")
        with tempfile.TemporaryDirectory() as scratch:
            for name in arguments.cases or CASES:
                measure(name, server, address, arguments.seconds, pathlib.Path(scratch))
        print("%: on time of the most that any policy could answer where that is known, else of all offered")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
