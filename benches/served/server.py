"""The real program with a folder of models, and requests to it."""

import http.client
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from protocol import decode, encode, error_words

MAX_BATCH_ROWS = 32
MAX_LATENCY_MS = 1_800_000
# Far above what any answer here takes, so that no request is shed.
ANSWER_S, LOAD_S = 120, 900


class Gone(Exception):
    """The server has ended."""


class Server:
    """The program with a folder of models; each is there, or is rejected for a reason."""

    def __init__(self, program, models):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="served-"))
        (self.scratch / "models").mkdir()
        (self.scratch / "uncork.toml").write_text('[server]\nhttp = "127.0.0.1:0"\nmodels = "models"\nmodels_poll_ms = 100\n')
        self.log = open(self.scratch / "log", "w")
        command = [program, "serve", "--config", self.scratch / "uncork.toml"]
        command += ["--max-latency-ms", MAX_LATENCY_MS, "--max-batch-size", MAX_BATCH_ROWS]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = self.process.stdout.readline()
        address = re.search(r"http://(\S+)", ready)
        if not address:
            sys.exit(f"the server did not start: {ready!r}; see {self.scratch / 'log'}")
        self.address = address.group(1)
        self.local = threading.local()
        self.names = {}
        for model in models:
            self.add(model)

    def add(self, model):
        """Puts a model into the folder, under a name of its own."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", model.path.parent.name if model.folder else model.path.stem)
        while (self.scratch / "models" / name).exists():
            name += f"-{len(self.names)}"
        self.names[model.label] = name
        at = self.scratch / name
        at.mkdir()
        if model.dims:
            pairs = ", ".join(f"{json.dumps(key)} = {length}" for key, length in model.dims.items())
            (at / "model.toml").write_text(f"dims = {{ {pairs} }}\n")
        if model.folder:
            (at / "1").symlink_to(model.folder.resolve())
        else:
            (at / "1").mkdir()
            (at / "1" / "model.onnx").symlink_to(model.path.resolve())
        at.rename(self.scratch / "models" / name)

    def reasons(self):
        """Why models are not served, by name; waits until each is served or has a reason."""
        wanted = set(self.names.values())
        deadline = time.monotonic() + LOAD_S
        while time.monotonic() < deadline:
            status, body = self.call("POST", "/v2/repository/index", b"")
            listed = {entry["name"]: entry for entry in json.loads(body)}
            if wanted <= set(listed) and all(entry["state"] != "LOADING" for entry in listed.values()):
                return {name: listed[name].get("reason", "") for name in wanted if listed[name]["state"] != "READY"}
            time.sleep(0.1)
        return {name: "" for name in wanted if listed.get(name, {}).get("state") != "READY"}

    def call(self, method, path, body=None, headers={}):
        """Status and body of an answer; status 0 and a reason if none comes."""
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = http.client.HTTPConnection(self.address, timeout=ANSWER_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.local.header = answer.getheader("Inference-Header-Content-Length")
            return answer.status, data
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.local.connection = None
            if self.process.poll() is not None:
                raise Gone from error
            return 0, f"{type(error).__name__}: {error}".encode()

    def infer(self, model, request, is_binary):
        """("answered", [(name, datatype, array)]), ("rejected", words) or ("failed", what happened)."""
        body, headers = encode(request, is_binary)
        status, data = self.call("POST", f"/v2/models/{self.names[model.label]}/infer", body, headers)
        if status == 200:
            try:
                return "answered", decode(data, self.local.header)
            except (ValueError, KeyError, TypeError) as error:
                return "failed", f"200 with an answer that cannot be read: {type(error).__name__}: {error}"
        words = error_words(data)
        if words and (400 <= status < 500 or status == 503):
            return "rejected", words
        said = words or data[:300].decode(errors="replace")
        return "failed", f"{status} {said}"

    def logged(self, model):
        """The last error of a model in the server's log."""
        lines = [line for line in (self.scratch / "log").read_text().splitlines() if f'model="{self.names[model.label]}"' in line]
        return next((line.split("  ", 1)[-1] for line in reversed(lines) if "ERROR" in line), "nothing")

    def metadata(self, model):
        status, body = self.call("GET", f"/v2/models/{self.names[model.label]}")
        return json.loads(body) if status == 200 else {}

    def last_words(self):
        self.process.wait()
        return (self.scratch / "log").read_text()[-300:].strip()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
