"""Stands in for uncork: starts a worker on a socket and speaks docs/workers.md to it, written anew from that page."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
SECONDS = 30


def bytes_tensor(parts):
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def parts_of(data):
    parts, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        parts.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return parts


def element(body, head=None):
    """A request or an answer: the length of its JSON, the JSON, the body."""
    text = json.dumps(head or {}).encode()
    return struct.pack("<I", len(text)) + text + body


def split(part):
    (length,) = struct.unpack_from("<I", part)
    return json.loads(part[4 : 4 + length]), part[4 + length :]


class Fake:
    """A worker with a model of this code in a file app.py; `with` ends it."""

    def __init__(self, code, target="app.py:Model", folder=None, **setup):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(folder or self._folder.name)
        if code is not None:
            (self.folder / "app.py").write_text(code)
        ours, theirs = socket.socketpair()
        ours.settimeout(SECONDS)
        self.socket = ours
        self._log = tempfile.TemporaryFile()
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "UNCORK_WORKER": "1", "UNCORK_MODEL": "model"}
        command = [os.environ.get("PYTHON_OF_WORKERS", sys.executable), "-m", "uncork.worker"]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=theirs, stdout=self._log, stderr=self._log, process_group=0
        )
        theirs.close()
        told = {"version": 1, "model": "model", "max_batch_size": 32, "max_latency_ms": 50, "runners": 1, "target": target}
        self.send(1, 0, {**told, **setup})
        self.ids = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._log.close()
            self._folder.cleanup()

    @property
    def log(self):
        self._log.seek(0)
        return self._log.read().decode()

    def send(self, kind, call, meta=None, data=b"", descriptors=()):
        text = json.dumps(meta).encode() if meta is not None else b""
        frame = struct.pack("<B3xIQQ", kind, len(text), len(data), call) + text + data
        if descriptors:
            assert socket.send_fds(self.socket, [frame], descriptors) == len(frame)
        else:
            self.socket.sendall(frame)

    def receive(self):
        """The next frame: kind, id, meta, data; EOFError when the worker is gone."""
        kind, meta, data, call = struct.unpack("<B3xIQQ", self._exactly(24))
        told = json.loads(self._exactly(meta)) if meta else {}
        return kind, call, told, self._exactly(data)

    def _exactly(self, length):
        got = bytearray()
        while len(got) < length:
            try:
                more = self.socket.recv(length - len(got))
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError(f"the worker ended: {self.log}")
            got += more
        return bytes(got)

    def ready(self):
        """What *ready* said; the worker's words where it said *failed*."""
        kind, call, meta, data = self.receive()
        assert call == 0
        if kind == 67:
            assert meta["kind"] == "failed", meta
            raise RuntimeError(meta["message"])
        assert kind == 65, kind
        self.told, self.example = meta, data
        return meta

    def start(self, tensors, kind=2, **meta):
        """Sends *run* of (name, datatype, shape, bytes); its id."""
        self.ids += 1
        told = [{"name": n, "datatype": t, "shape": s, "bytes": len(d)} for n, t, s, d in tensors]
        self.send(kind, self.ids, {"inputs": told, **meta}, b"".join(d for *_, d in tensors))
        return self.ids

    def outcome(self, call):
        """What became of a call: its outputs, {name: (datatype, shape, bytes)}, or the meta of *failed*."""
        kind, got, meta, data = self.receive()
        assert got == call, (got, call)
        if kind == 67:
            return meta
        assert kind == 66, kind
        outputs, at = {}, 0
        for one in meta["outputs"]:
            if "segment" in one:
                outputs[one["name"]] = (one["datatype"], one["shape"], one["offset"])
                continue
            outputs[one["name"]] = (one["datatype"], one["shape"], data[at : at + one["bytes"]])
            at += one["bytes"]
        assert at == len(data)
        return outputs

    def ask(self, *bodies, heads=None, kind=2):
        """Runs a batch of these bodies: (head, body) of each answer, or the meta of *failed*."""
        requests = [element(body, head) for body, head in zip(bodies, heads or [None] * len(bodies))]
        return self.run_parts("request", requests, kind)

    def run_parts(self, name, parts, kind=2, raw=False):
        outcome = self.outcome(self.start([(name, "BYTES", [len(parts)], bytes_tensor(parts))], kind))
        if "kind" in outcome:
            return outcome
        ((datatype, shape, data),) = outcome.values()
        found = parts_of(data)
        assert datatype == "BYTES" and shape == [len(found)], (datatype, shape)
        return found if raw else [split(part) for part in found]

    def answers(self, *rows):
        """Runs a batch of JSON rows; the answers, parsed. All have to be good."""
        told = self.ask(*(json.dumps(row).encode() for row in rows))
        assert isinstance(told, list), told
        assert all("status" not in head for head, _ in told), told
        return [list(struct.unpack(f"<{len(body) // 8}d", body)) if head.get("numbers") else json.loads(body) for head, body in told]
