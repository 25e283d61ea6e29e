"""uncork in front of servers that nobody here wrote, and of itself: `upstream.py PROGRAM itself mlserver kserve`.

Every answer is compared with what scikit-learn says itself.
"""

import concurrent.futures
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

READY = 90

KSERVE = """
import joblib, numpy, sys
from kserve import Model, ModelServer

class Digits(Model):
    def load(self):
        self.model, self.ready = joblib.load(sys.argv[1]), True

    def predict(self, payload, headers=None):
        rows = payload["instances"]
        if any(len(row) != 64 for row in rows):
            raise ValueError("a row has 64 numbers")
        return {"predictions": self.model.predict(numpy.array(rows, "float32")).tolist()}

model = Digits("digits")
model.load()
ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, workers=1).start([model])
"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Process:
    """A program with its log, until the end of a `with`."""

    def __init__(self, command, folder=None):
        self.command, self.folder = list(map(str, command)), folder

    def __enter__(self):
        self.log = tempfile.NamedTemporaryFile("w+")
        environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        self.process = subprocess.Popen(
            self.command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def said(self):
        return Path(self.log.name).read_text()


class Uncork(Process):
    def __init__(self, program, *arguments):
        super().__init__([program, "serve", "--http", "127.0.0.1:0", "--max-latency-ms", "2000", *arguments])

    def __enter__(self):
        super().__enter__()
        line = self.process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", line)
        assert found, f"the server did not start: {line}{self.said()}"
        self.url = found[0]
        return self


class MlServer(Process):
    """MLServer with the model of a folder, on a port that stays its own when it is started again."""

    def __init__(self, model, port):
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.home = tempfile.TemporaryDirectory()
        settings = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "host": "127.0.0.1"}
        described = {
            "name": "digits",
            "implementation": "mlserver_sklearn.SKLearnModel",
            "parameters": {"uri": str(model), "version": "1"},
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}],
            "outputs": [{"name": "predict", "datatype": "INT64", "shape": [-1]}],
        }
        Path(self.home.name, "settings.json").write_text(json.dumps(settings | {"parallel_workers": 0, "debug": False}))
        Path(self.home.name, "model-settings.json").write_text(json.dumps(described))
        super().__init__(["mlserver", "start", "."], self.home.name)

    def __enter__(self):
        super().__enter__()
        # Nobody reads what it prints.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        wait_for(f"{self.url}/v2/models/digits/ready", self)
        return self


def wait_for(url, process):
    until = time.monotonic() + READY
    while time.monotonic() < until:
        try:
            return urllib.request.urlopen(url, timeout=2).read()
        except OSError:
            assert process.process.poll() is None, process.said()
            time.sleep(0.1)
    raise AssertionError(f"{url} is not ready: {process.said()}")


def post(url, document):
    """Status and answer."""
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def v2(url, row, model="digits", name="x"):
    inputs = [{"name": name, "datatype": "FP32", "shape": [1, len(row)], "data": [float(x) for x in row]}]
    status, answer = post(f"{url}/v2/models/{model}/infer", {"inputs": inputs})
    return status, answer["outputs"][0]["data"] if status == 200 else answer


def check_mlserver(program, model, rows, labels):
    """Batches in JSON, split again; a server that is killed loses what it had, and comes back."""
    ports = free_port(), free_port()
    with MlServer(model, ports[0]) as stays, tempfile.TemporaryDirectory() as home:
        with MlServer(model, ports[1]) as goes:
            configuration = Path(home, "uncork.toml")
            configuration.write_text(
                f'[[model]]\nname = "digits"\nupstream = ["{stays.url}", "{goes.url}"]\nrunners = 2\nmax_latency_ms = 2000\n'
            )
            with Uncork(program, "--config", configuration) as uncork:
                ask = lambda i: v2(uncork.url, rows[i])
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    answers = list(pool.map(ask, range(400)))
                    wrong = [(i, a) for i, (a, label) in enumerate(zip(answers, labels)) if a != (200, [label])]
                    assert not wrong, (wrong, uncork.said())
                    told = json.loads(urllib.request.urlopen(f"{uncork.url}/v2/models/digits/stats").read())["model_stats"][0]
                    print(f"  MLServer: {told['inference_count']} rows in {told['execution_count']} batches")
                    assert told["execution_count"] < told["inference_count"]
                    status, error = v2(uncork.url, rows[0][:10])
                    assert status == 400 and "[-1, 64]" in error["error"], error
                    goes.process.send_signal(signal.SIGKILL)
                    answers = list(pool.map(ask, range(400)))
                    lost = [answer for answer in answers if answer[0] != 200]
                    assert all(status == 500 for status, _ in lost) and len(lost) <= 16, lost
                    assert all(a in ((200, [label]), a if a[0] == 500 else None) for a, label in zip(answers, labels))
                    print(f"  MLServer killed: {len(lost)} of 400 lost")
                    assert "left out until it answers again" in uncork.said(), uncork.said()
                    with MlServer(model, ports[1]) as again:
                        deadline = time.monotonic() + READY
                        while "it answers again" not in uncork.said():
                            assert time.monotonic() < deadline, uncork.said()
                            time.sleep(0.1)
                        assert list(pool.map(ask, range(50))) == [(200, [label]) for label in labels[:50]]
                        assert again.process.poll() is None


def check_kserve(program, model, rows, labels):
    """`{"instances": […]}` to a server of KServe: documents in, documents out, and one bad document harms nobody."""
    port = free_port()
    with Process([sys.executable, "-c", KSERVE, model, port]) as kserve:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/v1/models/digits", kserve)
        with Uncork(program, f"{url}/v1/models/digits") as uncork:
            bad = {7, 99}
            ask = lambda i: post(f"{uncork.url}/models/digits", rows[i].tolist()[: 3 if i in bad else 64])
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(ask, range(200)))
            wrong = {i for i, (status, _) in enumerate(answers) if status != 200}
            print(f"  KServe v1: {200 - len(wrong)} answered, {len(wrong)} refused")
            # KServe answers 500 to what its handler raises, and cannot say whose row it was: halves are asked again.
            right = [answer == (200, label) for i, (answer, label) in enumerate(zip(answers, labels)) if i not in wrong]
            assert all(right) and wrong == bad, (sorted(wrong)[:9], answers[6:12], uncork.said())


def check_itself(program):
    """The embedded model behind a second uncork: the same answers, tensors in binary."""
    row = load_digits().data[:50].astype("float32") / 16
    with Uncork(program) as model, Uncork(program, f"{model.url}/v2/models/digits") as front:
        # The embedded model's own input.
        described = json.loads(urllib.request.urlopen(f"{front.url}/v2/models/digits").read())["inputs"][0]
        name = described["name"]
        assert [v2(front.url, x, name=name) for x in row] == [v2(model.url, x, name=name) for x in row]
        took = {}
        for which in (model, front):
            times = []
            for x in np.repeat(row, 4, axis=0):
                begin = time.perf_counter()
                v2(which.url, x, name=name)
                times.append(time.perf_counter() - begin)
            took[which] = statistics.median(times)
        print(f"  uncork behind uncork: {(took[front] - took[model]) * 1e3:.2f} ms more at the median")


def main():
    program, *wanted = sys.argv[1:]
    program = str(Path(program).absolute())
    data, labels = load_digits(return_X_y=True)
    rows = (data / 16).astype("float32")
    fitted = LogisticRegression(max_iter=300).fit(rows, labels)
    predicted = [int(label) for label in fitted.predict(rows)]
    with tempfile.TemporaryDirectory() as home:
        model = Path(home, "model.joblib")
        joblib.dump(fitted, model)
        if "itself" in wanted:
            check_itself(program)
        if "mlserver" in wanted:
            check_mlserver(program, model, rows, predicted)
        if "kserve" in wanted:
            check_kserve(program, model, rows, predicted)


if __name__ == "__main__":
    main()
