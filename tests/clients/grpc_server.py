"""A server with a port for gRPC."""

import re
import subprocess
import tempfile

import numpy as np

HALF = "resnet_half"
DTYPES = {np.dtype(np.float16): "FP16", np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64", np.dtype(object): "BYTES"}


class Server:
    """`uncork serve` on free ports, one of them for gRPC, until the end of a `with`."""

    def __init__(self, program, *arguments):
        addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self.command = [program, "serve", *addresses, *map(str, arguments)]

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://([0-9.]+:[0-9]+) and grpc://([0-9.]+:[0-9]+)", line)
        if not found:
            self.log.seek(0)
            raise SystemExit(f"the server did not start: {line}{self.log.read().decode()}")
        return found[1], found[2]

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(20) == 0, "the server drains"
