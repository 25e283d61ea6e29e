"""Asks a server for a long time, with clients that come, go and break off, and watches its memory.

    cargo build --release
    python3 benches/soak.py                      10^7 requests, about twenty minutes
    python3 benches/soak.py --requests 2e5       a short one

Two models at once, requests of one row and of several, Poisson arrivals by `uncork loadtest`. Each round has new connections;
beside them others open that send half a head, half a body, nothing, or a request whose answer they do not read. Fails if a
request goes wrong, or if memory grows by more than --most-mb in the last half (the slope of a line through its samples, times that
half's length). Needs Python 3.11's standard library alone.
"""

import argparse
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parent / "target" / "release" / "uncork"
MODELS = {"digits": ("examples/digits/digits.onnx", 1), "mlp": ("tests/models/mlp.onnx", 3)}
RATE = 6000  # of each model
ROUND_S = 10


def resident_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def slope(samples):
    """Of a line through (x, y)."""
    n = len(samples)
    x, y = (sum(s[i] for s in samples) / n for i in (0, 1))
    return sum((a - x) * (b - y) for a, b in samples) / (sum((a - x) ** 2 for a, _ in samples) or 1)


def break_off(address, until):
    """Connections that end in the middle, until then."""
    chance = random.Random(1)
    body = json.dumps({"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}]}).encode()
    whole = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    while time.monotonic() < until:
        try:
            with socket.create_connection(address, timeout=5) as connection:
                connection.sendall(whole[: chance.randrange(len(whole) + 1)])
                if chance.random() < 0.3:
                    connection.recv(chance.choice([1, 4096]))
        except OSError:
            pass
        time.sleep(0.005)


def one_round(url, address, number):
    """Requests that were answered well, and those that went wrong."""
    ended = time.monotonic() + ROUND_S
    breaking = threading.Thread(target=break_off, args=(address, ended))
    breaking.start()
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for model, (_, rows) in MODELS.items():
            report = pathlib.Path(folder) / f"{model}.json"
            command = [BINARY, "loadtest", url, "--model", model, "--rate", str(RATE), "--for", f"{ROUND_S}s", "--warm-up", "0s"]
            command += ["--rows", str(rows), "--connections", "200", "--seed", str(number), "--json", report]
            running.append((subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), report))
        for process, _ in running:
            process.wait()
        breaking.join()
        tallies = [json.loads(report.read_text()) for _, report in running]
    return tallies


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=float, default=1e7, help="how many at least (default 1e7)")
    parser.add_argument("--most-mb", type=float, default=1.0, help="growth that passes (default 1); a short run needs more")
    arguments = parser.parse_args()
    files = [str(HERE.parent / file) for file, _ in MODELS.values()]
    command = [BINARY, "serve", *files, "--http", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = re.search(r"http://([0-9.]+):([0-9]+)", server.stdout.readline())
        address, samples, asked, answered, broken = (url[1], int(url[2])), [], 0, 0, 0
        while asked < arguments.requests:
            for tally in one_round(url[0], address, len(samples) + 1):
                errors = tally["errors"]
                asked += tally["requests"]
                answered += tally["good"]
                broken += errors["wrong"] + errors["failed"] + errors["connection_broke"]
            samples.append((asked, resident_mb(server.pid)))
            print(f"{asked:12,} asked  {answered:12,} answered  {broken} wrong  {samples[-1][1]:7.1f} MB", flush=True)
        half = samples[len(samples) // 2 :]
        growth = slope(half) * (half[-1][0] - half[0][0])
    finally:
        server.terminate()
    code = server.wait(60)
    print(f"memory in the last half: {growth:+.2f} MB over {half[-1][0] - half[0][0]:,} requests; {broken} wrong; exit code {code}")
    if growth > arguments.most_mb or broken or code or answered < 0.5 * asked:
        sys.exit("FAIL")


if __name__ == "__main__":
    main()
