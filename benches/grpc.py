#!/usr/bin/env python3
"""Requests over gRPC on time, with h2load on the same machine: `grpc.py [--program P] [--seconds S] [STREAMS ...]`.

A closed loop of 8 connections with so many calls open on each. On time is what the server counts so, in the time measured.
Needs h2load (Debian: nghttp2-client) and Python 3.11's standard library.
"""

import argparse
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


def call():
    """A call for a row of `mlp`, as the body of a request."""
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, bytes([1, 64]))
    row = struct.pack("<64f", *(i / 63 for i in range(64)))
    message = field(1, b"mlp") + field(5, tensor) + field(7, row)
    return b"\0" + struct.pack(">I", len(message)) + message


def outcomes(url):
    """How requests for `mlp` ended until now, and the processor time of the server."""
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    found = re.findall(r'^uncork_requests_total\{model="mlp",version="1",outcome="(\w+)"\} (\d+)$', text, re.M)
    seconds = re.search(r"^process_cpu_seconds_total ([0-9.]+)$", text, re.M)
    return {outcome: int(n) for outcome, n in found}, float(seconds[1])


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--program", default=HERE.parent / "target/release/uncork")
    arguments.add_argument("--seconds", type=int, default=8)
    arguments.add_argument("streams", type=int, nargs="*", default=[8, 32, 128])
    chosen = arguments.parse_args()
    with tempfile.NamedTemporaryFile() as body:
        body.write(call())
        body.flush()
        print("calls open   answers/s   on time/s   on time, %   server us/call")
        for streams in chosen.streams:
            command = [chosen.program, "serve", "--config", HERE / "uncork.toml", "--http", "127.0.0.1:0"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            url = re.search(r"http://[0-9.:]+", server.stdout.readline())[0]
            load = ["h2load", "-t", "1", "-c", str(CONNECTIONS), "-m", str(streams), "-d", body.name]
            load += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
            load += [f"{url}/inference.GRPCInferenceService/ModelInfer"]
            subprocess.run([*load, "-D", "2"], check=True, capture_output=True)
            before, spent_before = outcomes(url)
            run = subprocess.run([*load, "-D", str(chosen.seconds)], check=True, capture_output=True, text=True)
            after, spent = outcomes(url)
            server.terminate()
            server.wait(20)
            succeeded = re.search(r"requests: .* (\d+) succeeded, 0 failed, 0 errored", run.stdout)
            assert succeeded, run.stdout
            ended = {outcome: after[outcome] - before.get(outcome, 0) for outcome in after}
            asked, on_time = sum(ended.values()), ended["on_time"]
            micros = (spent - spent_before) / asked * 1e6
            rate, good = asked / chosen.seconds, on_time / chosen.seconds
            print(f"{CONNECTIONS * streams:10} {rate:11,.0f} {good:11,.0f} {100 * on_time / asked:12.1f} {micros:16.1f}")


if __name__ == "__main__":
    main()
