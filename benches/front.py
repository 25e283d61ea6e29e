"""Measures the promise from the socket on: what is on time when reading requests is the bottleneck, and how the rest is refused.

    cargo build --release
    python3 benches/front.py                    some four minutes
    python3 benches/front.py --seconds 3 --only sweep,back
    python3 benches/front.py --only apart       server and generator on a processor each
    python3 benches/front.py --only noise       a stand-in beside other work of the machine
    python3 benches/front.py --only sweep,floor what the kernel alone takes, and what that leaves to any server
    python3 benches/front.py --only asked       what is left of the S that was asked for, where up to three times as much comes
    python3 benches/front.py --only pieces      one client that asks again and again, and sends head and body apart as Python's do
    python3 benches/front.py --only shares      two holders of tokens who ask for more than a model can
    python3 benches/front.py --only asking      inference on new connections, and probes, beside 40 connections that ask for /status without end
    python3 benches/front.py --only turns --builds PATH,PATH  builds of the server take turns in overload, before the same generator
    python3 benches/front.py --stranger         beside another process that takes half of a core
    python3 benches/front.py --mosec PYTHON     MOSEC beside it, in the same run; PYTHON has mosec and numpy

Server and generator (`uncork loadtest`, Poisson arrivals) share the machine. Needs Python 3.11's standard library alone.
What is printed of each rate: requests sent (a generator that cannot offer a rate says so here), answers with 200 within
the cap, from when they were due and from when they were sent, 200s later than the cap + 5 % after their sending, and how
long refusals took, from when they were due and from when they were sent. An answer is there when the generator's kernel has it. The last column is the
server's own count of answers in time.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parent / "target" / "release" / "uncork"
CAP_MS = 50
CONNECTIONS = 4000  # the server's own bound is 4096: some are left for the probes

MOSEC = """
import numpy as np, json
from mosec import Server, Worker
rng = np.random.default_rng(1)
A, B, C = (rng.standard_normal(s).astype(np.float32) * 0.1 for s in [(64, 256), (256, 256), (256, 10)])
class M(Worker):
    def deserialize(self, data): return np.array(json.loads(data)["inputs"][0]["data"], np.float32)
    def serialize(self, data): return json.dumps({"outputs": [{"name": "y", "data": data.tolist()}]}).encode()
    def forward(self, xs):
        x = np.maximum(np.maximum(np.stack(xs) @ A, 0) @ B, 0) @ C
        return list(x)
server = Server()
server.append_worker(M, max_batch_size=128, max_wait_time=1)
server.run()
"""


def pinned(processors):
    """What a command begins with that may use these processors only."""
    return ["taskset", "--cpu-list", processors] if processors else []


@contextlib.contextmanager
def serving(*args, processors=None):
    """The server on a free port: its address, and that for operators if it has one."""
    server = subprocess.Popen(
        [*pinned(processors), BINARY, "serve", *args, "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    try:
        ready = server.stdout.readline()
        addresses = re.findall(r"http://\S+", ready)
        if not addresses:
            sys.exit(f"the server did not start: {ready!r}")
        yield addresses if "--admin" in args else addresses[0]
    finally:
        server.terminate()
        server.wait()


def load(address, rate, seconds, *more, connections=CONNECTIONS, model="digits", warm_up=1.5, cap_ms=CAP_MS, processors=None):
    """Runs the generator; its report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [
            *pinned(processors), BINARY, "loadtest", address, "--rate", str(rate), "--for", f"{seconds}s", "--warm-up", f"{warm_up}s",
            "--connections", str(connections), "--timeout", "1s", "--json", report.name,
            "--slo", f"on-time:{cap_ms}ms>=99%", "--deadline", f"{cap_ms}ms", *(["--model", model] if model else []), *more,
        ]
        ran = subprocess.run(command, capture_output=True, text=True)
        try:
            return json.load(open(report.name))
        except ValueError:
            sys.exit(f"no report: {ran.stdout[-500:]}{ran.stderr[-500:]}")


def own_count(address):
    """Answers in time by the server's own count: from the kernel's receipt to the answer."""
    with urllib.request.urlopen(address + "/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^uncork_requests_total\{.*outcome="on_time".*\} (\d+)', text, re.M)
    return sum(map(int, found))


def measured(address, rate, seconds, **how):
    """One rate's figures, with the server's own."""
    before, begin = own_count(address), time.monotonic()
    f = figures(load(address, rate, seconds, **how), seconds)
    return {**f, "own": (own_count(address) - before) / (time.monotonic() - begin)}


def figures(report, seconds):
    """What matters of a report, a second."""
    offered, halves = report["offered_per_second"], report["good_from_sending_per_half_ms"]
    return {
        "offered": offered,
        "sent": (report["requests"] - report["errors"]["never_sent"]) / seconds,
        "on_time": report["objectives"][0]["measured"] * offered,
        "from_sending": sum(halves[: 2 * CAP_MS]) / seconds,
        "late": 1 - sum(halves[: int(2.1 * CAP_MS)]) / max(1, report["good"]),
        "refused": report["refused"] / seconds,
        "refusal_p50": (report["refusal_latency_ms"] or {}).get("p50"),
        "refusal_p99": (report["refusal_latency_ms"] or {}).get("p99"),
        "refusal_p50_sent": (report["refusal_latency_from_sending_ms"] or {}).get("p50"),
        "refusal_p99_sent": (report["refusal_latency_from_sending_ms"] or {}).get("p99"),
    }


def row(name, f):
    ms = lambda x: "–" if x is None else f"{x:.1f}"
    print(
        f"{name:>14} {f['offered']:>8.0f} {f['sent']:>8.0f} {f['on_time']:>8.0f} {f['from_sending']:>8.0f}"
        f" {100 * f['late']:>7.2f} {f['refused']:>8.0f} {ms(f['refusal_p50']):>7} {ms(f['refusal_p99']):>7}"
        f" {ms(f['refusal_p50_sent']):>8} {ms(f['refusal_p99_sent']):>8} {ms(f.get('own')):>9}",
        flush=True,
    )


def header(what):
    print(f"\n{what}\n{'':>14} {'offered':>8} {'sent':>8} {'on time':>8} {'of sent':>8} {'late %':>7} {'refused':>8} {'p50 ms':>7} {'p99 ms':>7} {'p50 sent':>8} {'p99 sent':>8} {'own count':>9}")


def sweep(seconds, rates=(15000, 20000, 25000, *range(28000, 66000, 2000)), server=None, generator=None):
    """digits, from half of what it can to what the generator cannot offer any more. The search for S ends at the second rate beyond it."""
    header(f"digits, {CONNECTIONS} connections, cap {CAP_MS} ms, a second")
    highest, seen = 0, []
    with serving("--max-latency-ms", str(CAP_MS), processors=server) as address:
        for rate in rates:
            f = measured(address, rate, seconds, processors=generator)
            row(rate, f)
            seen.append(f)
            if f["on_time"] >= 0.99 * f["offered"]:
                highest = rate
            elif highest and rates.index(rate) - rates.index(highest) >= 2:
                break
        print(f"S = {highest}")
        for factor in (1.5, 2, 3) if highest else ():
            f = measured(address, int(factor * highest), seconds, processors=generator)
            row(f"{factor} S", f)
            seen.append(f)
            print(f"{'':>14} {100 * f['from_sending'] / highest:.0f} % of S; by the server's own count {100 * f['own'] / highest:.0f} %")
    return highest, seen


ASKED = 28000  # the S that was asked for when the figures were set


def asked(seconds):
    """What is left of the S that was asked for, where so many times as much comes."""
    header(f"digits, {CONNECTIONS} connections, cap {CAP_MS} ms, a second; beside the {ASKED} that were asked of S")
    with serving("--max-latency-ms", str(CAP_MS)) as address:
        for factor in (1, 1.5, 2, 3):
            f = measured(address, int(factor * ASKED), seconds)
            row(f"{factor} x {ASKED}", f)
            print(f"{'':>14} {100 * f['from_sending'] / ASKED:.0f} %; by the server's own count {100 * f['own'] / ASKED:.0f} %")


def apart(seconds):
    """The same where the generator takes nothing of the server's processor: the first two are theirs."""
    print("\nthe server on one processor, the generator on another")
    sweep(seconds, tuple(range(8000, 40000, 2000)), server="0", generator="1")


REQUEST_BYTES, ANSWER_BYTES = 700, 300


def floor(highest, seen):
    """What the kernel alone takes of a request and its answer, and how much of S that leaves at most to this server."""
    with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as listener:
        clients, servers = [], []
        for _ in range(CONNECTIONS):
            clients.append(socket.create_connection(listener.getsockname()))
            servers.append(listener.accept()[0])
    for end in clients + servers:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rounds, together = 24, 512  # so many requests are under way at a time
    request, answer = bytes(REQUEST_BYTES), bytes(ANSWER_BYTES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
    for _ in range(rounds):
        for first in range(0, CONNECTIONS, together):
            some = slice(first, first + together)
            for client in clients[some]:
                client.send(request)
            for server in servers[some]:
                server.recv(4096)
                server.send(answer)
            for client in clients[some]:
                client.recv(4096)
    kernel = 1e6 * (resource.getrusage(resource.RUSAGE_SELF).ru_stime - before) / rounds / CONNECTIONS
    for end in clients + servers:
        end.close()
    print(f"\nthe kernel takes {kernel:.1f} us of a processor for a request and its answer, both ends")
    whole = 1e6 * os.cpu_count()
    # What is not answered costs the kernel's part at least. By the run that leaves the least for the others, an answer costs:
    costs = [(whole - kernel * (f["sent"] - f["from_sending"])) / f["from_sending"] for f in seen if f["from_sending"]]
    if highest and costs:
        each = min(costs)
        print(f"an answer takes {each:.1f} us at most, both ends and the model. If a refusal took no more than the kernel's part:")
        for factor in (1.5, 2, 3):
            most = (whole - factor * highest * kernel) / (each - kernel) / highest
            print(f"{factor:>12} S: {100 * max(0, most):.0f} % of S")


def pieces(seconds):
    """What a request costs by how it is sent: in a piece, head and body apart, and so that it takes the long way."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}).encode()
    path = "/v2/models/idle/infer"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def whole(client):
        client.sock.sendall(head + body)
        return http.client.HTTPResponse(client.sock)

    def apart(client, **headers):
        client.request("POST", path, body, headers)
        return client.getresponse()

    ways = {"in a piece": whole, "head and body apart": apart, "apart, by hyper": lambda c: apart(c, **{"X-Request-Id": "a"})}
    print(f"\none client of a model that takes no time, {seconds} s of each in three turns, us a request")
    print(f"{'':>20} {'time':>8} {'processors':>11}")
    took = {name: [] for name in ways}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write('[[model]]\nname = "idle"\nsynthetic = { base_ms = 0.0, per_row_ms = 0.0 }\nmax_latency_ms = 50\nmax_batch_size = 8\n')
        config.flush()
        with serving("--config", config.name) as address:
            for _ in range(3):
                for name, way in ways.items():
                    client = http.client.HTTPConnection(address.removeprefix("http://"))
                    client.connect()
                    count, used, begin = 0, processor_seconds(address), time.monotonic()
                    while time.monotonic() - begin < seconds / 3:
                        answer = way(client)
                        if way is whole:
                            answer.begin()
                        answer.read()
                        assert answer.status == 200, answer.status
                        count += 1
                    elapsed = time.monotonic() - begin
                    took[name].append((1e6 * elapsed / count, 1e6 * (processor_seconds(address) - used) / count))
                    client.close()
    for name, figures in took.items():
        time_us, processors_us = map(statistics.median, zip(*figures))
        print(f"{name:>20} {time_us:>8.0f} {processors_us:>11.0f}")


def processor_seconds(address):
    """What the server has used of the processors."""
    with urllib.request.urlopen(address + "/metrics") as answer:
        return float(re.search(r"^process_cpu_seconds_total (\S+)", answer.read().decode(), re.M)[1])


def back(seconds, highest):
    """Twice what it can, then 0.8 of it: how many are on time one second later."""
    header("2 S for 3 s, then 0.8 S; counted from one second after the change")
    with serving("--max-latency-ms", str(CAP_MS)) as address:
        load(address, 2 * highest, 3)
        row("0.8 S", figures(load(address, int(0.8 * highest), seconds, warm_up=1), seconds))


def mlp(seconds):
    header("mlp 64-256-256-10, 512 connections, a second")
    with serving("--config", str(HERE / "uncork.toml")) as address:
        for rate in (5000, 10000, 15000, 20000, 25000, 30000, 36000):
            row(rate, measured(address, rate, seconds, connections=512, model="mlp"))


def stand_in(seconds):
    """A stand-in that can do 15,238 rows a second under any policy: what is lost between two batches shows here."""
    header("stand-in 2 + 0.05·n ms, at most 128 rows, 1000 connections, a second")
    with serving("--config", str(HERE / "uncork.toml")) as address:
        for rate in (10000, 14000, 14500, 14900):
            row(rate, measured(address, rate, seconds, connections=1000, model="stand-in"))


def probes(seconds, highest):
    """How long health and metrics take while four times as much comes as can be answered, at each of two addresses."""
    print("\nms at p50 and p99 beside inference at 4 S")
    with serving("--max-latency-ms", str(CAP_MS), "--admin", "127.0.0.1:0") as (address, admin):
        loading = threading.Thread(target=load, args=(address, 4 * highest, seconds + 1))
        loading.start()
        time.sleep(1.5)
        paths = ("/v2/health/live", "/metrics", "/status")
        failed, times = 0, {(at, path): [] for at in ("main", "admin") for path in paths}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for (at, path), taken in times.items():
                begin = time.monotonic()
                try:
                    with urllib.request.urlopen((admin if at == "admin" else address) + path) as answer:
                        answer.read()
                except (urllib.error.HTTPError, ConnectionError):
                    failed += 1  # all connections are taken: 503, or none is left to say so
                taken.append(1e3 * (time.monotonic() - begin))
                time.sleep(0.01)
        loading.join()
        print(f"{failed} of {sum(map(len, times.values()))} were refused")
        for (at, path), taken in times.items():
            print(f"{at:>6} {path:>16} {statistics.median(taken):7.1f} {statistics.quantiles(taken, n=100)[98]:7.1f}")


ASKING_CAP_MS = 100
ASKING_TOKEN = "the-token-of-somebody"
ASKING = f'''
[server]
tokens_file = "tokens"
[[model]]
name = "m"
synthetic = {{ base_ms = 1.0, per_row_ms = 0.05 }}
max_latency_ms = {ASKING_CAP_MS}
'''
FLOOD = '''
import socket, sys, threading
host, port, path, connections = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
request = f"GET {path} HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".encode() * 4
def ask():
    stream = socket.create_connection((host, port))
    while True:
        stream.sendall(request)
        stream.recv(1 << 20)
for _ in range(connections):
    threading.Thread(target=ask).start()
'''


def asking(seconds):
    """Inference on new connections, twenty a second, and probes at the main address: alone, and beside a stranger without a token who asks
    without end there, or at another server."""
    print(f"\nnew connections, 20 a second, cap {ASKING_CAP_MS} ms; a probe's p50 and p99 in ms; beside 40 connections that ask without end")
    print(f"{'path':>17} {'asked at':>9} {'on time %':>9} {'p50':>7} {'p99':>7}")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "tokens").write_text(f"somebody {ASKING_TOKEN} inference\n")
        config = pathlib.Path(folder, "uncork.toml")
        config.write_text(ASKING)
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]})
        for path, at in [("-", "-"), ("/status", "another"), ("/status", "it"), ("/nothing", "it"), ("/v2/models/stats", "it")]:
            with serving("--config", str(config)) as address, serving("--config", str(config)) as other:
                host, port = (other if at == "another" else address).removeprefix("http://").split(":")
                flood = subprocess.Popen([sys.executable, "-c", FLOOD, host, port, path, "40"]) if path != "-" else None
                try:
                    time.sleep(1)
                    on_time, probed = [], []

                    def once(address, method, path, body=None):
                        begin, (host, port) = time.monotonic(), address.removeprefix("http://").split(":")
                        connection = http.client.HTTPConnection(host, int(port), timeout=10)
                        connection.request(method, path, body, {"Authorization": f"Bearer {ASKING_TOKEN}"} if body else {})
                        status = connection.getresponse().status
                        connection.close()
                        return status, 1e3 * (time.monotonic() - begin)

                    def infer():
                        on_time.append(once(address, "POST", "/v2/models/m/infer", body)[0] == 200)

                    threads, end = [], time.monotonic() + seconds
                    while time.monotonic() < end:
                        threads.append(threading.Thread(target=infer))
                        threads[-1].start()
                        probed.append(once(address, "GET", "/v2/health/ready")[1])
                        time.sleep(0.05)
                    for thread in threads:
                        thread.join()
                finally:
                    if flood:
                        flood.kill()
                        flood.wait()
            p99 = statistics.quantiles(probed, n=100)[98]
            print(f"{path:>17} {at:>9} {100 * statistics.mean(on_time):>9.1f} {statistics.median(probed):>7.1f} {p99:>7.1f}", flush=True)


NOISE_CAP_MS = 30
NOISE_RATE = 700
STAND_IN = """
[[model]]
name = "stand-in"
synthetic = { base_ms = 8.0, per_row_ms = 0.2 }
max_latency_ms = 30
"""


def noise(seconds):
    """A stand-in that needs little of the processor, alone and beside loops that take all they get: what is on time, and how steadily."""
    print(f"\nstand-in 8 + 0.2·n ms, cap {NOISE_CAP_MS} ms, Poisson {NOISE_RATE}/s for {seconds} s; seconds by the server's own count")
    print(f"{'busy loops':>14} {'on time %':>9} {'refused %':>9} {'late %':>7} {'p50 ms':>7} {'p99 ms':>7} {'worst second %':>14} {'seconds < 50 %':>14}")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "uncork.toml")
        config.write_text(STAND_IN)
        for loops in (0, 3, 3):
            with serving("--config", str(config)) as address, busy(loops):
                reports = []
                loading = threading.Thread(
                    target=lambda: reports.append(
                        load(address, NOISE_RATE, seconds, connections=256, model="stand-in", cap_ms=NOISE_CAP_MS)
                    )
                )
                loading.start()
                time.sleep(2.5)  # the generator's warm-up, and its start
                shares, before = [], outcomes(address)
                while loading.is_alive():
                    time.sleep(1)
                    now = outcomes(address)
                    if now["all"] - before["all"] > NOISE_RATE / 4:
                        shares.append((now["on_time"] - before["on_time"]) / (now["all"] - before["all"]))
                    before = now
                loading.join()
                (report,) = reports
                latency, all_of_them = report["latency_ms"] or {}, max(1, report["requests"])
                on_time = report["objectives"][0]["measured"]
                refused = report["refused"] / all_of_them
                ms = lambda x: "–" if x is None else f"{x:.1f}"
                print(
                    f"{loops:>14} {100 * on_time:>9.1f} {100 * refused:>9.1f} {100 * (1 - on_time - refused):>7.1f}"
                    f" {ms(latency.get('p50')):>7} {ms(latency.get('p99')):>7} {100 * min(shares, default=0):>14.0f}"
                    f" {sum(share < 0.5 for share in shares):>14}",
                    flush=True,
                )


SHARED_CAP_MS = 100
SHARED = """
[server]
tokens_file = "tokens"

[[model]]
name = "shared"
synthetic = { base_ms = 4.0, per_row_ms = 0.8 }
max_latency_ms = 100
max_batch_size = 20
"""


def shares(seconds):
    """Two holders of tokens, each with a generator and its rate: what of it is on time."""
    print(f"\nstand-in 4 + 0.8·n ms, 20 rows (1,000 a second), cap {SHARED_CAP_MS} ms, Poisson, a second; first one holder, then the other")
    print(f"{'shares':>8} {'offered':>8} {'on time':>8} {'%':>6} {'refused':>8} {'late %':>7}   {'offered':>8} {'on time':>8} {'%':>6} {'refused':>8} {'late %':>7}")
    tokens = ("the-token-of-one", "the-token-of-two")
    for weights, rates in [
        ((1, 1), (100, 700)), ((1, 1), (100, 950)), ((1, 1), (100, 3000)), ((1, 1), (100, 10000)), ((1, 1), (1500, 6000)), ((3, 1), (2000, 2000)), ((1, 4), (2000, 2000)),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tokens").write_text("".join(f"{token} {token} share={weight}\n" for token, weight in zip(tokens, weights)))
            config = pathlib.Path(folder, "uncork.toml")
            config.write_text(SHARED)
            with serving("--config", str(config)) as address:
                reports = [None, None]

                def ask(i):
                    token = ("--header", f"Authorization: Bearer {tokens[i]}")
                    reports[i] = load(address, rates[i], seconds, *token, connections=min(rates[i], 1000), model="shared", cap_ms=SHARED_CAP_MS)

                asking = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
                for thread in asking:
                    thread.start()
                for thread in asking:
                    thread.join()
        line = f"{weights[0]:>6}:{weights[1]}"
        for report in reports:
            share, offered = report["objectives"][0]["measured"], report["offered_per_second"]
            late = 1 - share - (report["refused"] + report["errors"]["never_sent"]) / max(1, report["requests"])
            line += f" {offered:>8.0f} {share * offered:>8.0f} {100 * share:>6.1f} {report['refused'] / seconds:>8.0f} {100 * late:>7.2f}  "
        print(line, flush=True)


ALL_OF_A_CORE = "while True: pass"
HALF_OF_A_CORE = """
import time
while True:
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass
    time.sleep(0.005)
"""


@contextlib.contextmanager
def busy(loops, loop=ALL_OF_A_CORE):
    """So many processes that take all of a core, or as much as their loop does."""
    running = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def outcomes(address):
    """Requests to models so far: all of them, and those answered in time."""
    with urllib.request.urlopen(address + "/metrics") as answer:
        found = re.findall(r'^uncork_requests_total\{.*outcome="(\w+)".*\} (\d+)', answer.read().decode(), re.M)
    return {"all": sum(int(n) for _, n in found), "on_time": sum(int(n) for outcome, n in found if outcome == "on_time")}


def turns(builds, rounds, seconds, rates=(84000, 110000, 160000)):
    """Builds of the server that take turns: one run differs from the next by more than two builds often do."""
    global BINARY
    generator, rows = BINARY, {}
    print(f"\ndigits, {CONNECTIONS} connections, cap {CAP_MS} ms, {rounds} rounds: answers in time from their sending, a second, at the mean;")
    print("then the median of the rounds' p50 and p99 of refusals from their sending, ms")
    for _ in range(rounds):
        for rate in rates:
            for build in builds:
                BINARY = build
                with serving("--max-latency-ms", str(CAP_MS)) as address:
                    BINARY = generator
                    rows.setdefault((rate, build), []).append(measured(address, rate, seconds))
    for (rate, build), found in rows.items():
        of = lambda key: [f[key] for f in found if f[key] is not None] or [0]
        p50, p99 = (statistics.median(of(key)) for key in ("refusal_p50_sent", "refusal_p99_sent"))
        each = " ".join(f"{f['from_sending'] / 1000:.0f}" for f in found)
        print(f"{rate:>8} {statistics.mean(of('from_sending')):>8.0f} {p50:>6.1f} {p99:>6.1f}  {build}  ({each} thousand)")


def mosec(python, seconds):
    header("the same network in MOSEC (numpy), 512 connections, a second")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "program.py")
        program.write_text(MOSEC)
        server = subprocess.Popen(
            [python, program, "--port", "18471", "--timeout", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        request = pathlib.Path(folder, "request.txt")
        data = ", ".join(f"{(i * 37 % 200 - 100) / 100}" for i in range(64))
        request.write_text(f'POST /inference\ncontent-type: application/json\n\n{{"inputs": [{{"data": [{data}]}}]}}\n')
        try:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen("http://127.0.0.1:18471/").read()
                    break
                time.sleep(0.1)
            for rate in (5000, 10000, 15000, 20000, 25000, 30000):
                row(rate, figures(load("http://127.0.0.1:18471", rate, seconds, "--request", str(request), connections=512, model=None), seconds))
        finally:
            server.terminate()
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=5, help="of each rate")
    parser.add_argument("--only", default="sweep,asked,back,probes,mlp,stand-in", help="which parts, with commas between them; apart, noise, shares, asking, floor, pieces and turns are not among those by default")
    parser.add_argument("--highest", type=int, default=28000, help="S, where it is not measured")
    parser.add_argument("--stranger", action="store_true", help="another process takes half of a core all the while")
    parser.add_argument("--builds", type=lambda text: text.split(","), default=[BINARY], help="for turns: servers, with commas between them")
    parser.add_argument("--rounds", type=int, default=5, help="for turns")
    parser.add_argument("--mosec", metavar="PYTHON", help="a Python that has mosec and numpy")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000) if hard > 0 else 20000, hard))
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with busy(int(args.stranger), HALF_OF_A_CORE):
        measure(args)


def measure(args):
    """The parts that are asked for, one after the other."""
    parts = args.only.split(",")
    highest, seen = sweep(args.seconds) if "sweep" in parts else (args.highest, [])
    highest = highest or args.highest
    if "floor" in parts:
        floor(highest, seen)
    if "asked" in parts:
        asked(args.seconds)
    if "pieces" in parts:
        pieces(args.seconds)
    if "back" in parts:
        back(args.seconds, highest)
    if "probes" in parts:
        probes(args.seconds, highest)
    if "mlp" in parts:
        mlp(args.seconds)
    if "stand-in" in parts:
        stand_in(args.seconds)
    if "apart" in parts:
        apart(args.seconds)
    if "noise" in parts:
        noise(max(args.seconds, 10))
    if "asking" in parts:
        asking(args.seconds)
    if "shares" in parts:
        shares(args.seconds)
    if "turns" in parts:
        turns(args.builds, args.rounds, args.seconds)
    if args.mosec:
        mosec(args.mosec, args.seconds)


if __name__ == "__main__":
    main()
