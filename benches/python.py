"""Models in Python behind uncork, MOSEC, LitServe and BentoML, side by side: one table.

    cargo build --release
    python3 -m venv target/peers-venv && target/peers-venv/bin/pip install -r tests/python/peers.txt
    python3 benches/python.py                            some six minutes
    python3 benches/python.py --seconds 2 --only uncork,mosec

Two models, each one worker, each server with settings that serve it best, cap 50 ms. *Echo* answers a row of 64 numbers with itself, in JSON: the
highest rate of Poisson arrivals with 99 % on time, by `uncork loadtest`, which shares the machine; and the time of a lone request.
*Slow* takes 2 ms a row, so that nobody can answer more than 500 a second: what is answered within 50 ms at 1,000 and 2,500 a second.

    python3 benches/python.py --way                      ten seconds

What the way to the worker and back costs beside the model: a batch's time as the server takes it, less what the model says that it took. For 32
rows of 64 numbers and for 32 images of 3 x 224 x 224 (19 MB), each in one request of binary tensors.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = pathlib.Path(os.environ.get("UNCORK", HERE.parent / "target" / "release" / "uncork"))
PEERS = HERE.parent / "target" / "peers-venv" / "bin" / "python"
CAP_MS = 50
START_S = 60

# The same two models, as each server wants them. PORT and MODEL are put in.
UNCORK = """
import time
class Echo:
    example = [0.5] * 64
    def __call__(self, rows):
        return rows
class Slow(Echo):
    def __call__(self, rows):
        time.sleep(0.002 * len(rows))
        return rows
"""
ARRAYS = """
import time
class Echo:
    inputs = outputs = {"x": ("FP32", [64])}
    def __call__(self, x):
        return x
class Slow(Echo):
    def __call__(self, x):
        time.sleep(0.002 * len(x))
        return x
"""
WAY = """
import time
class Model:
    inputs = {"x": ("FP32", SHAPE)}
    outputs = {"ms": ("FP32", [1])}
    def __call__(self, x):
        begun = time.perf_counter()
        ms = x.reshape(len(x), -1)[:, :1].copy()
        ms[:] = (time.perf_counter() - begun) * 1e3
        return ms
"""
MOSEC = """
import json, sys, time
from mosec import Server, Worker
class Echo(Worker):
    def serialize(self, data):  # MOSEC's own indents, which is slow
        return json.dumps(data).encode()
    def forward(self, data):
        return data
class Slow(Echo):
    def forward(self, data):
        time.sleep(0.002 * len(data))
        return data
if __name__ == "__main__":
    server = Server()
    server.append_worker(MODEL, max_batch_size=128, max_wait_time=1)
    server.run()
"""
LITSERVE = """
import time
import litserve as ls
class Echo(ls.LitAPI):
    def setup(self, device):
        pass
    def batch(self, inputs):
        return inputs
    def unbatch(self, outputs):
        return outputs
    def predict(self, rows):
        return rows
class Slow(Echo):
    def predict(self, rows):
        time.sleep(0.002 * len(rows))
        return rows
if __name__ == "__main__":
    server = ls.LitServer(MODEL(max_batch_size=128, batch_timeout=0.001), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=PORT, generate_client_file=False, log_level="error")
"""
BENTOML = """
import time
import bentoml
from typing import List
@bentoml.service(workers=1)
class Model:
    @bentoml.api(batchable=True, max_batch_size=128, max_latency_ms=50)
    def ask(self, rows: List[List[float]]) -> List[List[float]]:
        if "MODEL" == "Slow":
            time.sleep(0.002 * len(rows))
        return rows
"""
ROW = [round(random.Random(1).uniform(-1, 1), 4) for _ in range(64)]
V2 = {"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": ROW}]}

# Name: the code, the command, the path, the body.
SERVERS = {
    "uncork": (UNCORK, "UNCORK serve app.py:MODEL --http 127.0.0.1:PORT --max-latency-ms 50 --max-batch-size 128", "/models/NAME", ROW),
    "uncork with arrays": (
        ARRAYS,
        "UNCORK serve app.py:MODEL --http 127.0.0.1:PORT --max-latency-ms 50 --max-batch-size 128",
        "/v2/models/NAME/infer",
        V2,
    ),
    "mosec": (MOSEC, "PYTHON app.py --port PORT --timeout 1000", "/inference", ROW),
    "mosec as it comes": (
        MOSEC.replace(
            "    def serialize(self, data):  # MOSEC's own indents, which is slow\n        return json.dumps(data).encode()\n", ""
        ),
        "PYTHON app.py --port PORT --timeout 1000",
        "/inference",
        ROW,
    ),
    "litserve": (LITSERVE, "PYTHON app.py", "/predict", ROW),
    "bentoml": (BENTOML, "PYTHON -m bentoml serve app:Model -p PORT", "/ask", {"rows": [ROW]}),
}


# Where the search for the highest rate begins, a second; others at 2,000.
STARTS = {"litserve": 200, "bentoml": 100}


@contextlib.contextmanager
def serving(name, model, peers, server=None):
    """One of the servers with one of the models: where it is asked."""
    code, command, path, body = server or SERVERS[name]
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        pathlib.Path(folder, "app.py").write_text(code.replace("MODEL", model).replace("PORT", str(port)))
        pathlib.Path(folder, "body.json").write_text(json.dumps(body))
        words = {"UNCORK": str(BINARY), "PYTHON": str(peers)}
        command = [words.get(word, word.replace("PORT", str(port)).replace("MODEL", model)) for word in command.split()]
        environment = {**os.environ, "PATH": f"{pathlib.Path(peers).parent}:{os.environ['PATH']}", "BENTOML_DO_NOT_TRACK": "true"}
        with open(os.path.join(folder, "log"), "wb") as log:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        url = f"http://127.0.0.1:{port}{path.replace('NAME', model.lower())}"
        try:
            until = time.monotonic() + START_S
            while not answered(url, json.dumps(body).encode()):
                if server.poll() is not None or time.monotonic() > until:
                    sys.exit(f"{name} did not start:\n{pathlib.Path(folder, 'log').read_text()[-3000:]}")
                time.sleep(0.1)
            yield url, os.path.join(folder, "body.json")
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                pass
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answered(url, body):
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(request, timeout=5) as answer:
            answer.read()
            return True
    return False


def load(url, body, seconds, *more):
    """`uncork loadtest`'s report."""
    command = [BINARY, "loadtest", url, "--body", body, "--header", "content-type: application/json", "--for", f"{seconds}s"]
    command += ["--deadline", f"{CAP_MS}ms", "--slo", "on-time>=99%", "--timeout", "2s", "--json", "-", *more]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        sys.exit(f"no report: {ran.stdout[-500:]}{ran.stderr[-500:]}")


def highest(url, body, seconds, start):
    """The highest rate with 99 % on time in one of two trials, to 8 %; and the median of a caller alone."""
    lone = load(url, body, seconds, "--closed-loop", "1")

    def is_met(rate):
        for _ in range(2):
            report = load(url, body, seconds, "--rate", f"{rate:.0f}")
            if report["objectives"][0]["measured"] >= 0.99:
                return True
            time.sleep(1)  # some need it to recover
        return False

    rate, least = start, 0
    while least == 0 and rate > 10:
        if is_met(rate):
            least = rate
        else:
            rate /= 2
    for step in (1.5, 1.08):
        while least and is_met(least * step):
            least *= step
    return {"max_rate": least, "lone_p50_ms": lone["good_latency_from_sending_ms"]["p50"]}


def overloaded(url, body, seconds):
    """What is answered in time of 1,000 and of 2,500 a second, as a share of the 500 that are possible."""
    told = {}
    for rate in (1000, 2500):
        report = load(url, body, seconds, "--rate", str(rate))
        told[rate] = report["objectives"][0]["measured"] * report["offered_per_second"] / 500
        time.sleep(2)
    return told


def way(shape, peers):
    """Milliseconds of a batch of 32 rows beside the model: the quartiles."""
    command, path = SERVERS["uncork with arrays"][1].replace("-ms 50", "-ms 5000"), SERVERS["uncork with arrays"][2]
    elements = math.prod(shape)
    row = {"inputs": [{"name": "x", "shape": [1, *shape], "datatype": "FP32", "data": [0.5] * elements}]}
    code = WAY.replace("SHAPE", str(shape))
    told = []
    with serving("uncork", "Model", peers, (code, command, path, row)) as (url, _):
        raw = struct.pack(f"<{32 * elements}f", *[0.5] * (32 * elements))
        tensor = {"name": "x", "shape": [32, *shape], "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}}
        head = json.dumps({"inputs": [tensor]}).encode()
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
        place = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        for _ in range(2000 if elements < 1000 else 100):
            connection.request("POST", place.path, head + raw, headers)
            answer = connection.getresponse()
            batch = float(re.search(r"batch;dur=([\d.]+)", answer.headers["server-timing"]).group(1))
            took = json.loads(answer.read())["outputs"][0]["data"][0]
            told.append(batch - took)
    return statistics.quantiles(told[10:], n=4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=4, help="of each trial")
    parser.add_argument("--turns", type=int, default=1, help="how often each is measured, in turns; the median is told")
    parser.add_argument("--only", default=",".join(SERVERS).replace(", ", " "), help="which servers, with commas between them")
    parser.add_argument("--models", default="echo,slow", help="which models")
    parser.add_argument("--peers", default=PEERS, help="a Python that has what tests/python/peers.txt says")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--way", action="store_true", help="what the way to the worker and back costs, and nothing else")
    args = parser.parse_args()
    if args.way:
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n\n| 32 rows of | ms beside the model: quartiles |\n| --- | --- |")
        for shape in ([64], [3, 224, 224]):
            print(f"| {' x '.join(map(str, shape))} | {', '.join(f'{ms:.2f}' for ms in way(shape, args.peers))} |", flush=True)
        return
    only = [name for name in SERVERS if name.replace(", ", " ") in args.only.split(",")]
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before", flush=True)
    figures = {name: {"max_rate": [], "lone_p50_ms": [], 1000: [], 2500: []} for name in only}
    for _ in range(args.turns):
        for name in only:
            if "echo" in args.models:
                with serving(name, "Echo", args.peers) as place:
                    told = highest(*place, args.seconds, STARTS.get(name, 2000))
                    print(f"  {name}: {told['max_rate']:,.0f} a second, alone {told['lone_p50_ms']:.2f} ms", flush=True)
                    for key, value in told.items():
                        figures[name][key].append(value)
            if "slow" in args.models:
                with serving(name, "Slow", args.peers) as place:
                    for key, value in overloaded(*place, args.seconds).items():
                        figures[name][key].append(value)
    best = {name: {key: statistics.median(values) for key, values in told.items() if values} for name, told in figures.items()}
    print(f"load average {os.getloadavg()[0]:.1f} after\n")
    print(
        "| | echo, a second | of MOSEC's | lone, ms at p50 | slow at 1,000/s, of 500 | at 2,500/s |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name, told in best.items():
        mosec = best.get("mosec", {}).get("max_rate")
        share = f"{told['max_rate'] / mosec:.2f}" if mosec and "max_rate" in told else "–"
        print(
            f"| {name} | {told.get('max_rate', 0):,.0f} | {share} | {told.get('lone_p50_ms', 0):.2f}"
            f" | {100 * told.get(1000, 0):.0f} % | {100 * told.get(2500, 0):.0f} % |"
        )
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
