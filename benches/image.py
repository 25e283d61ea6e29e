#!/usr/bin/env python3
"""What reading and writing an image costs: `image.py [--program P] [--requests N]`.

One client sends an image of 1 x 3 x 224 x 224 floats again and again, in binary and in JSON, to a model that gives it back.
The times are what the server itself adds to `uncork_stage_duration_seconds` for a request, in milliseconds: the medians, and
of decoding and encoding together the tenth percentile as well, which other work on the machine hides least. `cpu` is the mean
of all processor time of the server, scrapes included. Each answer must be the image. Needs Python 3.11's standard library.
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import statistics
import struct
import subprocess
import tempfile
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SHAPE = [1, 3, 224, 224]
COUNT = 3 * 224 * 224
STAGES = ["receive", "decode", "encode"]


def varint(number):
    rest = number >> 7
    return bytes([number & 127 | 128]) + varint(rest) if rest else bytes([number])


def field(number, value):
    """A field of protobuf: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model():
    """An ONNX file whose output is its input."""
    def tensor(name):
        dims = [field(2, b"n")] + [field(1, n) for n in SHAPE[1:]]
        shape = b"".join(field(1, dim) for dim in dims)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))
    node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
    graph = field(1, node) + field(2, b"image") + field(11, tensor(b"x")) + field(12, tensor(b"y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def body(image, elements):
    """A request, and the length of its JSON where binary follows: elements are written by this function, or in binary."""
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32"}
    if elements is None:
        tensor["parameters"] = {"binary_data_size": 4 * COUNT}
        head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [tensor]}).encode()
        return head + struct.pack(f"<{COUNT}f", *image), len(head)
    listed = ",".join(map(elements, image))
    return json.dumps({"inputs": [tensor | {"data": []}]}).replace("[]", f"[{listed}]").encode(), None


def answered(raw, length):
    """The elements of an answer, of which `length` bytes are JSON."""
    if length:
        return struct.unpack(f"<{COUNT}f", raw[int(length):])
    return struct.unpack(f"<{COUNT}f", struct.pack(f"<{COUNT}f", *json.loads(raw)["outputs"][0]["data"]))


def spent(url):
    """Milliseconds of each stage until now, of how many requests, and the server's processor time."""
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    stages = dict(re.findall(r'^uncork_stage_duration_seconds_sum\{.*stage="(\w+)"\} (\S+)$', text, re.M))
    count = re.search(r"^uncork_request_duration_seconds_count\{.*\} (\d+)$", text, re.M)
    cpu = re.search(r"^process_cpu_seconds_total (\S+)$", text, re.M)
    return [1e3 * float(stages[stage]) for stage in STAGES], int(count[1]), 1e3 * float(cpu[1])


def measure(url, image, elements, requests):
    """The length of a request, milliseconds of the stages of each, and of the processor."""
    request, length = body(image, elements)
    expected = struct.unpack(f"<{COUNT}f", struct.pack(f"<{COUNT}f", *image))
    if elements is not None:
        expected = struct.unpack(f"<{COUNT}f", struct.pack(f"<{COUNT}f", *(float(elements(x)) for x in image)))
    headers = {"Inference-Header-Content-Length": str(length)} if length else {}
    client = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)
    times, last = [], None
    for i in range(requests + 10):
        client.request("POST", "/v2/models/image/infer", request, headers)
        response = client.getresponse()
        raw = response.read()
        assert response.status == 200, raw
        if i == 0:
            assert answered(raw, response.headers["Inference-Header-Content-Length"]) == expected
        if i < 10:
            last = first = spent(url)
            continue
        before, last = last, spent(url)
        assert last[1] == before[1] + 1
        times.append([b - a for a, b in zip(before[0], last[0])])
    return len(request), times, (last[2] - first[2]) / requests


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default=HERE.parent / "target/release/uncork")
    arguments.add_argument("--requests", type=int, default=100)
    chosen = arguments.parse_args()
    random.seed(1)
    image = [random.uniform(-2, 2) for _ in range(COUNT)]
    cases = {
        "binary": None,
        "JSON, 4 decimals": lambda x: f"{x:.4f}",
        "JSON, as float32": lambda x: f"{struct.unpack('<f', struct.pack('<f', x))[0]:.9g}",
        "JSON, as float64": repr,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "image.onnx"
        path.write_bytes(model())
        command = [chosen.program, "serve", path, "--http", "127.0.0.1:0", "--max-latency-ms", "1000"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            url = re.search(r"http://[0-9.:]+", server.stdout.readline())[0]
            print(f"{'':<18}{'':>10}{'median ms':>30}{'p10':>20}{'mean':>10}")
            print(f"{'':<18}{'bytes':>10}" + "".join(f"{name:>10}" for name in [*STAGES, "de+en", "de+en", "cpu"]))
            for name, elements in cases.items():
                size, times, cpu = measure(url, image, elements, chosen.requests)
                both = [decode + encode for _, decode, encode in times]
                medians = [statistics.median(one) for one in [*zip(*times), both]]
                columns = [*medians, statistics.quantiles(both, n=10)[0], cpu]
                print(f"{name:<18}{size:>10}" + "".join(f"{x:>10.3f}" for x in columns), flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
