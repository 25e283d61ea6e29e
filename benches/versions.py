"""Changes models under load, and loads and unloads one many times, from outside.

    cargo build --release
    python3 benches/versions.py                          some two minutes
    python3 benches/versions.py --cycles 100 --swaps 4   a short one
    python3 benches/versions.py --busy                   on a machine that has other work

First: a server follows a folder; `uncork loadtest` sends --rate requests a second while version after version is put there, each
of which adds another number to its input. Beside the load, a caller holds each answer against the version that the answer names.
Fails if a request is lost, refused or wrong, or if p99 is beyond the latency cap; with --busy one in twenty may be refused or late, as
a machine that stands still for a while lets no server keep its cap. Then: a model is unloaded and loaded --cycles times.
Fails if memory grows by more than --most-mb in the second half, or if the metrics have more series than before. Needs
Python 3.11's standard library alone.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parent / "target" / "release" / "uncork"
MODELS = HERE.parent / "tests" / "models"
CAP_MS = 50


def put(folder, version):
    """Puts a version into the folder, whole: it adds 1 or 2."""
    partial = folder / "m" / "partial"
    partial.mkdir(parents=True)
    shutil.copy(MODELS / f"plus_{added(version)}.onnx", partial / "model.onnx")
    partial.rename(folder / "m" / str(version))


def added(version):
    return 2 - version % 2


def ask(url, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(url + path, data), timeout=30) as answer:
        return answer.read()


def answer(url, busy):
    """Version and sums; on a busy machine a refusal is asked again."""
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0, 0]}]}
    while True:
        try:
            told = json.loads(ask(url, "/v2/models/m/infer", body))
            return int(told["model_version"]), told["outputs"][0]["data"]
        except urllib.error.HTTPError as error:
            if not busy or error.code != 503:
                raise
            time.sleep(0.01)


def series(url):
    lines = ask(url, "/metrics").decode().splitlines()
    return sum(not line.startswith("#") for line in lines if line)


def resident_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def swaps(url, folder, asked):
    """Version after version under load; what went wrong."""
    wrong, checked, is_over = [], {}, threading.Event()

    def hold_against_versions():
        while not is_over.is_set():
            try:
                version, sums = answer(url, asked.busy)
            except OSError as error:
                wrong.append(f"a request was lost: {error}")
                continue
            checked[version] = checked.get(version, 0) + 1
            if sums != [added(version)] * 2:
                wrong.append(f"version {version} answered {sums}")

    seconds = 4 + 2 * asked.swaps
    command = [BINARY, "loadtest", url, "--model", "m", "--rate", str(asked.rate), "--for", f"{seconds}s", "--json", "-"]
    command += ["--slo", "on-time>=95%"] if asked.busy else ["--slo", f"p99<={CAP_MS}ms", "--slo", "refused<=0%"]
    load = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    caller = threading.Thread(target=hold_against_versions)
    caller.start()
    time.sleep(2)
    for version in range(2, 2 + asked.swaps):
        put(folder, version)
        until = time.monotonic() + 20
        while answer(url, asked.busy)[0] != version and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(1)
    out = load.communicate()[0]
    is_over.set()
    caller.join()
    report = json.loads(out)
    print(f"  {sum(checked.values())} answers held against their versions: {checked}")
    print(f"  load: {json.dumps(report['counts'] if 'counts' in report else report.get('requests'))}")
    for verdict in report.get("objectives", report.get("slos", [])):
        print(f"  {json.dumps(verdict)}")
    # On a machine with other work the generator may come to some too late to send them, and say that it cannot tell: the server lost none.
    unsent = report["generator"]["came_too_late_for"] if asked.busy else 0
    if report["errors"]["all"] != unsent:
        wrong.append(f"not answered: {report['errors']}")
    if load.returncode not in ((0, 2) if asked.busy else (0,)):
        wrong.append(f"the load test ended with {load.returncode}")
    if len(checked) < 1 + asked.swaps:
        wrong.append(f"only these versions answered: {sorted(checked)}")
    return wrong


def cycles(url, pid, asked):
    """Unloads and loads; what went wrong."""
    before, memory, begin = series(url), [], time.monotonic()
    for _ in range(asked.cycles):
        ask(url, "/v2/repository/models/m/unload", {})
        ask(url, "/v2/repository/models/m/load", {})
        answer(url, asked.busy)
        memory.append(resident_mb(pid))
    half = memory[len(memory) // 2 :]
    quarter = max(1, len(half) // 2)
    # What is kept for ever raises the least as well; what an allocator gives back later does not.
    growth = min(half[-quarter:]) - min(half[:quarter])
    each = (time.monotonic() - begin) / asked.cycles * 1e3
    print(f"  {asked.cycles} cycles, {each:.0f} ms each: {memory[0]:.1f} MB, then {half[0]:.1f}, at the end {half[-1]:.1f};")
    after = series(url)
    print(f"  {growth:+.2f} MB within the second half; {before} series, then {after}")
    wrong = [f"memory grew by {growth:.1f} MB"] if growth > asked.most_mb else []
    return wrong + ([f"{before} series became {after}"] if after != before else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=int, default=4000, help="requests a second")
    parser.add_argument("--swaps", type=int, default=10, help="versions that take each other's place")
    parser.add_argument("--cycles", type=int, default=1000, help="times that a model is unloaded and loaded")
    parser.add_argument("--most-mb", type=float, default=2, help="growth of memory in the second half of the cycles")
    parser.add_argument("--busy", action="store_true", help="let one request in twenty be refused or late")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "models"
        put(folder, 1)
        (folder / "m" / "model.toml").write_text(f"max_latency_ms = {CAP_MS}\nmax_batch_size = 64\n")
        settings = pathlib.Path(scratch) / "uncork.toml"
        settings.write_text(f"[server]\nhttp = '127.0.0.1:0'\nmodels = {str(folder)!r}\nmodels_poll_ms = 200\n")
        command = [BINARY, "serve", "--config", settings]
        with open(pathlib.Path(scratch) / "log", "w+") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                found = re.search(r"http://[0-9.:]+", server.stdout.readline())
                if not found:
                    log.seek(0)
                    sys.exit(log.read())
                print(f"- {asked.swaps} versions take each other's place under {asked.rate} requests a second")
                wrong = swaps(found[0], folder, asked)
                print(f"- a model is unloaded and loaded {asked.cycles} times")
                wrong += cycles(found[0], server.pid, asked)
            finally:
                server.terminate()
                server.wait(20)
    for what in wrong[:10]:
        print(f"wrong: {what}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
