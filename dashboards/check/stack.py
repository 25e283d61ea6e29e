"""Starts what the checks and the picture look at: a real uncork, a real Prometheus that scrapes it, and load on both.

Everything listens on 127.0.0.1 at free ports and ends with the block that started it.
"""

import contextlib
import json
import math
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

import queries

BINARY = queries.FOLDER.parent / "target" / "release" / "uncork"
CONFIG = pathlib.Path(__file__).with_name("live.toml")
WIDTHS = {"digits": ("pixels", 64), "dry-run": ("x", 1)}
START_S = 60
SCRAPE = "1s"
PERIOD_S = 0.25  # between two requests of one connection


def wait_until(true, what, seconds=START_S):
    """Waits for `true()`; a connection that is refused is a no."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if true():
                return
        time.sleep(0.2)
    sys.exit(f"{what} did not happen within {seconds} s")


@contextlib.contextmanager
def ended(process):
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def uncork(folder, binary=BINARY, config=CONFIG):
    """A server on a free port, which follows the folder `models` in this one: (process, address)."""
    if not pathlib.Path(binary).exists():
        sys.exit(f"{binary} is missing: cargo build --release")
    shutil.rmtree(folder / "models", ignore_errors=True)
    (folder / "models").mkdir()
    with open(folder / "uncork.log", "w") as log:
        process = subprocess.Popen(
            [binary, "serve", "--config", config, "--http", "127.0.0.1:0", "--models", folder / "models"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with ended(process):
        ready = process.stdout.readline()
        address = re.search(r"127\.0\.0\.1:\d+", ready)
        if not address:
            sys.exit(f"uncork did not start: {ready}{(folder / 'uncork.log').read_text()}")
        yield process, address.group()


def broken_version(folder):
    """Puts a version that cannot be loaded into the folder of models."""
    version = folder / "models" / "broken" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(b"no model")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Prometheus:
    """Asks a Prometheus over its HTTP interface."""

    def __init__(self, address):
        self.address = address

    def ready(self):
        """Whether it answers queries; an error, which is an OSError, while it starts."""
        with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=10):
            return True

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from error

    def instant(self, expr, at):
        """[(labels, value)]"""
        return [(one["metric"], float(one["value"][1])) for one in self.get("query", query=expr, time=at)["result"]]

    def range(self, expr, start, end, step=1):
        """[(labels, [(time, value)])]"""
        data = self.get("query_range", query=expr, start=start, end=end, step=step)["result"]
        return [(one["metric"], [(t, float(v)) for t, v in one["values"]]) for one in data]


@contextlib.contextmanager
def prometheus(folder, targets, *flags):
    """Prometheus with this project's configuration and rules, but for the targets and an interval of a second."""
    config = yaml.safe_load((queries.FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE}
    config["rule_files"] = [str(queries.RULES)]
    [scrape] = config["scrape_configs"]
    scrape["static_configs"] = [{"targets": targets}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    data = folder / "prometheus"
    shutil.rmtree(data, ignore_errors=True)
    # Its log does not tell the port it was given for 0, so a free one is chosen; somebody else may be faster.
    for _ in range(3):
        address = f"127.0.0.1:{free_port()}"
        with open(folder / "prometheus.log", "w") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={path}",
                    f"--storage.tsdb.path={data}",
                    f"--web.listen-address={address}",
                    *flags,
                ],
                stdout=log,
                stderr=log,
            )
        with ended(process):
            api = Prometheus(address)
            wait_until(lambda: process.poll() is not None or api.ready(), "Prometheus answering")
            if process.poll() is not None:
                continue
            # A target counts as healthy once it was scraped.
            wait_until(
                lambda: [t["health"] for t in api.get("targets")["activeTargets"]] == ["up"] * len(targets),
                "the first scrapes",
            )
            yield api
            return
    sys.exit(f"Prometheus did not start:\n{(folder / 'prometheus.log').read_text()}")


def body(model):
    name, width = WIDTHS[model]
    chance = random.Random(1)
    data = [round(chance.uniform(0, 16), 1) for _ in range(width)]
    return json.dumps({"inputs": [{"name": name, "shape": [1, width], "datatype": "FP32", "data": data}]})


def pressed(folder, address, model, seconds, rate=None, clients=None):
    """Runs h2load: `rate` requests a second in all, or `clients` that ask again as soon as they are answered.

    For a rate, each connection sends at its own fixed times, far enough apart for any answer within a cap, and the
    connections are opened over a second: so the rate is even, and kept whatever the server does.
    """
    payload = folder / f"{model}.json"
    payload.write_text(body(model))
    if rate:
        clients = math.ceil(rate * PERIOD_S)
        each = [
            "--rps",
            str(round(1 / PERIOD_S)),
            "-n",
            str(math.ceil(rate * seconds)),
            "-r",
            str(math.ceil(clients / 1000)),
            "--rate-period",
            "1ms",
        ]
    else:
        each = ["-D", str(seconds)]
    command = [
        "h2load",
        "--h1",
        "-t",
        "1",
        "-c",
        str(clients),
        *each,
        "-d",
        str(payload),
        f"http://{address}/v2/models/{model}/infer",
    ]
    # A time limit: h2load waits for ever for answers that do not come.
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{run.stdout}{run.stderr}")


# (model, share of the whole time, what `pressed` takes)
PHASES = [
    ("digits", 1.0, {"rate": 400}),
    ("dry-run", 0.25, {"clients": 6}),  # all answers of a batch come at once, and so do the next requests: holding pays
    ("dry-run", 0.25, {"rate": 250}),
    ("dry-run", 0.25, {"rate": 1200}),  # three times what it can do
    ("dry-run", 0.25, {"rate": 300}),
]


@contextlib.contextmanager
def load(folder, address, seconds, phases=PHASES):
    """Load on all models for so many seconds; the block runs beside it and is told of what failed at its end."""
    failures = []

    def one_after_another(model):
        try:
            for name, part, how in phases:
                if name == model:
                    pressed(folder, address, model, max(1, round(part * seconds)), **how)
        except Exception as error:  # noqa: BLE001 - a thread's failure is raised below
            failures.append(error)

    threads = [
        threading.Thread(target=one_after_another, args=(model,)) for model in dict.fromkeys(p[0] for p in phases)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
