#!/usr/bin/env python3
"""Requests on time in a closed loop, by protocol, with h2load on the same machine:
`closed.py [--program P] [--seconds S] [--rounds N] [--ways WAY ...] [OPEN ...]`.

So many requests for a row of `mlp` are open all the time: over gRPC and HTTP/2 on 8 connections, over HTTP/1.1 on one each.
On time is what the server counts so, in the time measured. Each line has a server of its own.
Needs h2load (Debian: nghttp2-client) and Python 3.11's standard library.
"""

import argparse
import json
import pathlib
import re
import struct
import subprocess
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CONNECTIONS = 8


def field(number, value):
    """A field of protobuf whose value has a length."""
    assert len(value) < 1 << 14
    length = bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])
    return bytes([number << 3 | 2]) + length + value


ROW = [i / 63 for i in range(64)]


def call():
    """A call for a row of `mlp`, as the body of a request."""
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, bytes([1, 64]))
    message = field(1, b"mlp") + field(5, tensor) + field(7, struct.pack("<64f", *ROW))
    return b"\0" + struct.pack(">I", len(message)) + message


def json_row():
    data = [round(x, 4) for x in ROW]
    return json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": data}]}).encode()


def binary_row():
    """A request in binary, and the length of its JSON."""
    tensor = {"name": "x", "shape": [1, 64], "datatype": "FP32", "parameters": {"binary_data_size": 256}}
    head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [tensor]}).encode()
    return head + struct.pack("<64f", *ROW), len(head)


def ways():
    """Name: body, headers, path, and whether HTTP/2 carries it."""
    binary, length = binary_row()
    infer, header = "/v2/models/mlp/infer", [f"inference-header-content-length: {length}"]
    grpc = ["content-type: application/grpc", "te: trailers"]
    return {
        "JSON": (json_row(), [], infer, False),
        "binary": (binary, header, infer, False),
        "JSON-2": (json_row(), [], infer, True),
        "binary-2": (binary, header, infer, True),
        "gRPC": (call(), grpc, "/inference.GRPCInferenceService/ModelInfer", True),
    }


def outcomes(url):
    """How requests for `mlp` ended until now, and the processor time of the server."""
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    found = re.findall(r'^uncork_requests_total\{model="mlp",version="1",outcome="(\w+)"\} (\d+)$', text, re.M)
    seconds = re.search(r"^process_cpu_seconds_total ([0-9.]+)$", text, re.M)
    return {outcome: int(n) for outcome, n in found}, float(seconds[1])


def measure(program, seconds, way, opened):
    """Requests a second, those on time, and the server's processor time of each in microseconds."""
    body, headers, path, is_http2 = way
    command = [program, "serve", "--config", HERE / "uncork.toml", "--http", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = re.search(r"http://[0-9.:]+", server.stdout.readline())[0]
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            many = ["-c", CONNECTIONS, "-m", opened // CONNECTIONS] if is_http2 else ["--h1", "-c", opened]
            load = ["h2load", "-t", 1, *many, "-d", file.name, *(part for line in headers for part in ("-H", line))]
            load = [str(part) for part in [*load, url + path]]
            subprocess.run([*load, "-D", "2"], check=True, capture_output=True)
            before, spent_before = outcomes(url)
            run = subprocess.run([*load, "-D", str(seconds)], check=True, capture_output=True, text=True)
            after, spent = outcomes(url)
    finally:
        server.terminate()
        server.wait(20)
    assert re.search(r"requests: .* 0 errored", run.stdout), run.stdout
    ended = {outcome: after[outcome] - before.get(outcome, 0) for outcome in after}
    asked = sum(ended.values())
    return asked / seconds, ended["on_time"] / seconds, (spent - spent_before) / asked * 1e6


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default=HERE.parent / "target/release/uncork")
    arguments.add_argument("--seconds", type=int, default=5)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--ways", nargs="+", choices=ways(), default=list(ways()), help="-2: over HTTP/2")
    arguments.add_argument("opened", type=int, nargs="*", default=[64, 256, 1024], metavar="OPEN")
    chosen = arguments.parse_args()
    print(f"{'way':<10}{'open':>6}{'answers/s':>11}{'on time/s':>11}{'on time, %':>12}{'server us each':>16}")
    for _ in range(chosen.rounds):
        for opened in chosen.opened:
            for name in chosen.ways:
                rate, good, micros = measure(chosen.program, chosen.seconds, ways()[name], opened)
                print(f"{name:<10}{opened:>6}{rate:>11,.0f}{good:>11,.0f}{100 * good / rate:>12.1f}{micros:>16.1f}", flush=True)


if __name__ == "__main__":
    main()
