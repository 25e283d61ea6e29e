#!/usr/bin/env python3
"""How soon a large model answers: `ready.py [--starts N] [--program PATH ...] [gpt2 resnet50 vgg16]`.

Starts `uncork serve` with each network of `large.py`, and says when `/v2/health/ready` did, how long the first request took then, and
the processor time and highest memory until the model was ready. Programs take turns, so that a build can be held against the one
before. Files are written to `target/large` once. A first start of each is left out: fresh memory is slow. Needs onnx and Linux.
"""

import argparse
import http.client
import json
import math
import pathlib
import re
import statistics
import subprocess
import time
import urllib.parse

import large

ROOT = pathlib.Path(__file__).resolve().parents[3]
REQUESTS = {"gpt2": ("ids", "INT64", [1, 16]), "resnet50": ("x", "FP32", [1, 3, 224, 224]), "vgg16": ("x", "FP32", [1, 3, 224, 224])}
PATIENCE = 120.0


def spent(pid):
    """Seconds of the processor so far, and MiB of memory at most."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return (int(fields[11]) + int(fields[12])) / 100, int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def start(program, name, file):
    """Seconds until ready, until the first answer behind that, and of the processor; MiB."""
    begun = time.monotonic()
    command = [program, "serve", "--http", "127.0.0.1:0", "--max-latency-ms", "20000", file]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = next((found[0] for line in server.stdout if (found := re.search(r"http://\S+", line))), None)
        if url is None:
            raise SystemExit(f"{program} did not start: try `{' '.join(map(str, command))}`")
        client = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)

        def asks(method, path, body=None):
            client.request(method, path, body, {"Content-Type": "application/json"})
            answer = client.getresponse()
            answer.read()
            return answer.status

        while asks("GET", "/v2/health/ready") != 200:
            if time.monotonic() - begun > PATIENCE:
                raise SystemExit(f"{name} was not ready after {PATIENCE:.0f} s")
            time.sleep(0.002)
        ready = time.monotonic() - begun
        cpu, memory = spent(server.pid)
        tensor, datatype, shape = REQUESTS[name]
        body = {"inputs": [{"name": tensor, "datatype": datatype, "shape": shape, "data": [1] * math.prod(shape)}]}
        text, begun = json.dumps(body), time.monotonic()
        if (status := asks("POST", f"/v2/models/{name}/infer", text)) != 200:
            raise SystemExit(f"{name} answered {status}")
        return ready, time.monotonic() - begun, cpu, memory
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="some of gpt2, resnet50 and vgg16 (default: all)")
    parser.add_argument("--program", nargs="+", default=[str(ROOT / "target/release/uncork")], metavar="PATH")
    parser.add_argument("--starts", type=int, default=5, help="of each program and network (default: 5)")
    given = parser.parse_args()
    if missing := [program for program in given.program if not pathlib.Path(program).is_file()]:
        parser.error(f"there is no {missing[0]}: cargo build --release makes target/release/uncork")
    names = given.networks or list(large.NETWORKS)
    if unknown := set(names) - set(large.NETWORKS):
        parser.error(f"there is no network {', '.join(unknown)}: choose from {', '.join(large.NETWORKS)}")
    print("                 ready, s: median, least, most   first request, s   processor, s   peak, MiB")
    for name in names:
        file = large.write(name, ROOT / "target/large")
        runs = {program: [] for program in given.program}
        for turn in range(given.starts + 1):
            for program, seen in runs.items():
                run = start(program, name, file)
                if turn > 0:
                    seen.append(run)
        for program, seen in runs.items():
            ready, first, cpu, memory = zip(*seen)
            middle = statistics.median
            print(f"{name:<16} {middle(ready):17.2f} {min(ready):6.2f} {max(ready):5.2f} {middle(first):18.2f} "
                  f"{middle(cpu):14.2f} {max(memory):11.0f}" + (f"   {program}" if len(runs) > 1 else ""), flush=True)


if __name__ == "__main__":
    main()
