"""Models in Python behind the real program, as a stranger uses them: python3 tests/python/served.py target/release/uncork

Needs NumPy beside Python's standard library.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

BINARY = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "uncork"
SECONDS = 60

GOOD = """
import os
class Model:
    def __call__(self, rows):
        return [os.getpid() if row == "pid" else row * 2 for row in rows]
"""


class Server:
    """`uncork serve app.py:TARGET` of this code; `log` is what it has written."""

    def __init__(self, code, target="Model", *flags, others="", files=()):
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        for name, text in [("app.py", code), *dict(files).items()]:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        (folder / "good.py").write_text(GOOD)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            command = [BINARY, "serve", *([f"app.py:{target}"] if target else []), "--http", "127.0.0.1:0", *flags]
            if others:
                (folder / "uncork.toml").write_text(others)
            # The Python that runs this is the first on the PATH, as in a virtual environment that is active.
            environment = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
            self._place = {"cwd": folder, "env": environment, "text": True}
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, **self._place)
        self.ready = self.process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", self.ready)
        self.url = found and found[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
            self._folder.cleanup()

    @property
    def log(self):
        return self._log.read_text()

    def logged(self, words):
        """The log, once it has these words: a thread of its own writes it, after the answer maybe."""
        ends = time.monotonic() + SECONDS
        while not re.search(words, self.log):
            assert time.monotonic() < ends, f"{words!r} is not in the log: {self.log}"
            time.sleep(0.01)
        return self.log

    def metrics(self):
        """What /metrics says."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=SECONDS) as answer:
            return answer.read().decode()

    def validate(self, target="Model"):
        """What `uncork validate` says of the code."""
        return subprocess.run([BINARY, "validate", f"app.py:{target}"], capture_output=True, timeout=SECONDS, **self._place)

    def ask(self, row, model="model"):
        """Status and answer of one row."""
        status, _, body = self.post(f"/models/{model}", row if isinstance(row, bytes) else json.dumps(row).encode())
        told = json.loads(body)
        return status, told["error"] if status >= 400 else told

    def post(self, path, body):
        """Status, content type and body."""
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body), timeout=SECONDS) as answer:
                return answer.status, answer.headers["content-type"], answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read()

    def ask_all(self, rows, model="model"):
        """Many callers at once."""
        with concurrent.futures.ThreadPoolExecutor(len(rows)) as callers:
            return list(callers.map(lambda row: self.ask(row, model), rows))

    def ask_until_answered(self, row, model="model"):
        """A caller who comes again while it is told to."""
        while True:
            told = self.ask(row, model)
            if told[0] != 503:
                return told


class Starting(unittest.TestCase):
    """What cannot be served ends the start, with a sentence."""

    def fails(self, words, code, target="Model"):
        with Server(code, target) as server:
            self.assertEqual(server.ready, "")
            self.assertNotEqual(server.process.wait(SECONDS), 0)
            self.assertRegex(server.log, words)

    def test_a_wrong_class_name(self):
        self.fails("app.py has no Modle; did you mean Model\\?", GOOD, "Modle")

    def test_a_missing_file(self):
        told = subprocess.run([BINARY, "serve", "gone.py:Model", "--http", "127.0.0.1:0"], capture_output=True, text=True)
        self.assertEqual(told.returncode, 3)
        self.assertRegex(told.stderr, "no file .*gone.py")

    def test_a_missing_module(self):
        self.fails("No module named 'xgbost'; install it for /", "import xgbost\n" + GOOD)

    def test_an_error_of_the_import(self):
        self.fails("importing .*app.py failed: ZeroDivisionError: division by zero", "1 / 0")

    def test_exit_while_loading(self):
        self.fails(
            "the model called exit\\(4\\) while loading",
            "import sys\nclass Model:\n    def load(self): sys.exit(4)\n    def __call__(self, rows): pass",
        )

    def test_the_end_of_the_process_while_loading(self):
        self.fails("exited with code 7", "import os\nclass Model:\n    def load(self): os._exit(7)\n    def __call__(self, rows): pass")


class Serving(unittest.TestCase):
    def test_forty_callers_one_bad_row(self):
        code = (
            "import uncork\ndef model(rows):\n    if 7 in rows: raise uncork.BadInput('no sevens')\n    return [row * 2 for row in rows]\n"
        )
        with Server(code, "model", "--max-latency-ms", "2000") as server:
            told = server.ask_all(list(range(40)))
            self.assertEqual(told[7][0], 400)
            self.assertIn("no sevens", told[7][1])
            self.assertEqual([one for row, one in enumerate(told) if row != 7], [(200, 2 * row) for row in range(40) if row != 7])

    def test_a_traceback_is_in_the_log_and_not_in_the_answer(self):
        code = "def model(rows):\n    return [1 / row for row in rows]\n"
        with Server(code, "model") as server:
            status, words = server.ask(0)
            self.assertEqual(status, 500)
            self.assertNotIn("Zero", words)
            server.logged(r"app.py.*line 2")
            server.logged(re.escape("ZeroDivisionError: division by zero"))
            self.assertEqual(server.ask(2), (200, 0.5))

    def test_too_few_answers_and_a_wrong_type(self):
        code = "def model(rows):\n    return rows[1:] if 0 in rows else 5 if 1 in rows else rows\n"
        with Server(code, "model") as server:
            self.assertEqual(server.ask(0)[0], 500)
            server.logged(re.escape("model returned 0 answers for 1 rows"))
            self.assertEqual(server.ask(1)[0], 500)
            server.logged(re.escape("model returned an int for 1 rows; it has to return a list"))
            self.assertEqual(server.ask(2), (200, 2))

    def test_prints_are_in_the_log(self):
        with Server("def model(rows):\n    print('printed', rows)\n    return rows\n", "model") as server:
            self.assertEqual(server.ask("a"), (200, "a"))
            server.process.terminate()
            server.process.wait(SECONDS)  # the log is whole then
            server.logged(re.escape("printed ['a']"))

    def test_exit_in_a_batch(self):
        code = "import os, sys\ndef model(rows):\n    if 0 in rows: sys.exit(3)\n    if 1 in rows: os._exit(3)\n    return rows\n"
        with Server(code, "model") as server:
            self.assertEqual(server.ask(0)[0], 500)
            server.logged(re.escape("SystemExit: 3"))
            self.assertEqual(server.ask(2), (200, 2))
            self.assertEqual(server.ask(1)[0], 500)
            self.assertEqual(server.ask_until_answered(2), (200, 2))
            server.logged(re.escape("exited with code 3"))

    def test_forks(self):
        code = "import os\ndef model(rows):\n    return [os.fork() > 0 for row in rows]\n"
        with Server(code, "model", "--max-batch-size", "2") as server:
            self.assertEqual([server.ask(0) for _ in range(5)], [(200, True)] * 5)

    def test_a_model_that_swallows_sigterm_ends(self):
        code = """
import signal, time
class Model:
    def load(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def __call__(self, rows):
        return rows
"""
        with Server(code) as server:
            self.assertEqual(server.ask(1), (200, 1))
            server.process.terminate()
            self.assertEqual(server.process.wait(SECONDS), 0)

    def test_a_worker_that_is_killed_loses_its_batch_alone(self):
        with Server(GOOD) as server:
            status, pid = server.ask("pid")
            self.assertEqual(status, 200)
            os.kill(pid, signal.SIGKILL)
            status, other = server.ask_until_answered("pid")
            if status == 500:  # the batch that it had
                status, other = server.ask_until_answered("pid")
            self.assertEqual(status, 200)
            self.assertNotEqual(other, pid)

    def test_no_worker_survives_the_server(self):
        with Server(GOOD) as server:
            _, pid = server.ask("pid")
            watch = os.pidfd_open(pid)
            server.process.kill()
            self.assertTrue(select.select([watch], [], [], SECONDS)[0], "the worker outlives its server")
            os.close(watch)

    def test_hooks_see_headers_and_the_query(self):
        code = """
import uncork
class Model:
    def preprocess(self, request):
        if "no" in request.query:
            raise uncork.BadInput("not you")
        return request.json(), request.headers.get("content-type")
    def __call__(self, rows):
        return [[value, kind] for value, kind in rows]
    def postprocess(self, answer):
        return {"answer": answer}
"""
        with Server(code) as server:
            self.assertEqual(server.ask([1]), (200, {"answer": [[1], "application/x-www-form-urlencoded"]}))
            status, words = server.ask([1], "model?no=1")
            self.assertEqual(status, 400)
            self.assertEqual(words, "not you")
            self.assertEqual(server.ask(b"{")[0], 400)

    KSERVE = """
class Model:
    def __init__(self, name): self.name, self.ready = name, False
    def load(self): self.ready = True
    def preprocess(self, payload, headers=None): return payload
    def postprocess(self, result, headers=None): return result
"""

    def test_a_class_of_kserve_s_gets_the_body_of_its_own_protocol_whole(self):
        code = """
import kserve
class Model(kserve.Model):
    def predict(self, payload, headers=None):
        return {"predictions": [2 * one for one in payload["instances"]], "keys": len(payload)}
"""
        with Server(code, files={"kserve/__init__.py": self.KSERVE}) as server:
            for path in ("/models/model", "/v1/models/model:predict", "/v1/models/model/versions/1:predict"):
                for body, keys in ((b'{"instances":[1,2]}', 1), (b'{"parameters":{},"instances":[1,2]}', 2)):
                    told = (200, "application/json", b'{"predictions":[2,4],"keys":%d}' % keys)
                    self.assertEqual(server.post(path, body), told)
            # What goes on as several rows says so.
            told = (200, "application/json", b'{"predictions":[{"predictions":[2],"keys":1},{"predictions":[],"keys":1}]}')
            self.assertEqual(server.post("/models/model?instances=rows", b'{"instances":[{"instances":[1]},{"instances":[]}]}'), told)
            # An uncork in front hands bodies on as they came.
            front = f'[[model]]\nname = "front"\nupstream = "{server.url}/v2/models/model"\nmax_latency_ms = 5000\nmax_batch_size = 8\n'
            with Server("", None, others=front) as before:
                told = (200, "application/json", b'{"predictions":[2,4],"keys":1}')
                self.assertEqual(before.post("/models/front", b'{"instances":[1,2]}'), told)
                self.assertEqual(before.post("/v1/models/front:predict", b'{"instances":[1,2]}'), told)

    def test_instances_with_anything_beside_them_are_one_row(self):
        with Server("def model(rows):\n    return rows\n", "model") as server:
            self.assertEqual(server.ask({"instances": [1, 2]}), (200, {"predictions": [1, 2]}))
            self.assertEqual(server.ask({"instances": [1, 2], "e": "5"}), (200, {"instances": [1, 2], "e": "5"}))
            self.assertEqual(server.post("/v1/models/model:predict", b'{"instances":[1]}')[0], 400)

    def test_an_answer_with_a_status_of_an_error_comes_as_it_is(self):
        code = """
import uncork
def model(rows):
    return [uncork.Answer(*row) for row in rows]
"""
        with Server(code, "model") as server:
            ask = lambda *row: server.post("/models/model", json.dumps(row).encode())
            self.assertEqual(ask({"a": 1}, None, 404), (404, "application/json", b'{"a":1}'))
            self.assertEqual(ask("<p>", "text/html", 422), (422, "text/html", b"<p>"))
            self.assertEqual(ask("later", None, 503), (503, "text/plain; charset=utf-8", b"later"))
            server.logged(re.escape("a request failed: later"))
            status, _, body = ask("x", None, 301)
            self.assertEqual(status, 500)
            self.assertNotIn(b"301", body)
            server.logged(re.escape("from 200 to 299 or from 400 to 599, and not 301"))
            # One of many rows is the answer to all.
            told = server.post("/models/model", b'{"instances": [[1], [{"a": 1}, null, 404]]}')
            self.assertEqual(told, (404, "application/json", b'{"a":1}'))
            metrics = server.metrics()
            self.assertIn('uncork_requests_total{model="model",version="1",outcome="invalid"} 3', metrics)

    def test_a_failing_hook_leaves_its_traceback_in_the_log(self):
        code = "class Model:\n    def preprocess(self, request):\n        return {}[request.json()]\n    def __call__(self, rows):\n        return rows\n"
        with Server(code) as server:
            self.assertEqual(server.ask("a")[0], 500)
            server.logged(r"(?s)Traceback.*app.py.*line 3, in preprocess.*KeyError: 'a'")

    def test_one_row_that_lacks_an_output_harms_no_other(self):
        code = """
import numpy as np
class Model:
    inputs = {'x': ('INT32', [1])}
    outputs = {'y': ('INT32', [1]), 'z': ('INT8', [1])}
    def __call__(self, x):
        return {'y': x} if 7 in x else {'y': x, 'z': x.astype(np.int64)}
"""
        with Server(code, "Model", "--max-latency-ms", "2000") as server:

            def ask(x):
                body = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT32", "data": [x]}]}
                return server.post("/v2/models/model/infer", json.dumps(body).encode())[0]

            rows = [1, 7, 2, 300, 3] * 8
            with concurrent.futures.ThreadPoolExecutor(len(rows)) as callers:
                self.assertEqual(list(callers.map(ask, rows)), [200, 500, 200, 500, 200] * 8)
            server.logged(re.escape("Model returned 300 in z, for which INT8 has no room"))

    def test_a_model_of_free_length_that_declares_no_outputs_takes_any_length(self):
        for example in ("", "    example = [1, 2, 3]\n"):
            with Server(f"class Model:\n    inputs = {{'x': ('FP32', [-1])}}\n{example}    def __call__(self, x):\n        return x * 2\n") as server:
                for length in (3, 1, 5):
                    body = {"inputs": [{"name": "x", "shape": [1, length], "datatype": "FP32", "data": [1] * length}]}
                    status, _, told = server.post("/v2/models/model/infer", json.dumps(body).encode())
                    self.assertEqual((status, json.loads(told)["outputs"][0]["shape"]), (200, [1, length]))

    def test_children_that_are_spawned_import_uncork(self):
        code = """
import multiprocessing, os, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
import uncork
def work(row):
    return uncork.Answer(row).body * 2
class Model:
    def load(self):
        self.pools = [ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(way)) for way in ("spawn", "forkserver", "fork")]
    def __call__(self, rows):
        told = [pool.map(work, rows) for pool in self.pools]
        script = "import uncork; print(uncork.Answer(7).body)"
        run = lambda row: int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout)
        return [list(one) for one in zip(*told, map(run, rows))]
"""
        with Server(code, "Model", "--max-latency-ms", "30000") as server:
            self.assertEqual(server.ask(3), (200, [6, 6, 6, 7]))

    def test_arrays_by_the_open_inference_protocol(self):
        code = "class Model:\n    inputs = {'x': ('FP32', [2])}\n    outputs = {'y': ('FP32', [])}\n    def __call__(self, x): return x.sum(axis=1)\n"
        with Server(code) as server:
            body = json.dumps({"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
            with urllib.request.urlopen(f"{server.url}/v2/models/model/infer", body) as answer:
                self.assertEqual(json.load(answer)["outputs"][0]["data"], [3, 7])

    def test_arrays_without_elements_come_and_go_and_validate_says_what_serve_does(self):
        row = "class Model:\n    inputs = {'x': (%r, [-1])}\n    outputs = {'y': (%r, [-1])}\n    def __call__(self, x): return x[:, :0]\n"
        for datatype, data in [("FP32", [1, 2]), ("BYTES", ["a", "b"])]:
            with Server(row % (datatype, datatype)) as server:
                for shape, data in [([1, 2], data), ([1, 0], []), ([2, 1], data)] * 2:
                    body = json.dumps({"inputs": [{"name": "x", "shape": shape, "datatype": datatype, "data": data}]}).encode()
                    with urllib.request.urlopen(f"{server.url}/v2/models/model/infer", body) as answer:
                        told = json.load(answer)["outputs"][0]
                        self.assertEqual((told["shape"], told["data"]), ([shape[0], 0], []))
                said = server.validate()
                self.assertEqual((said.returncode, said.stdout.splitlines()[-1]), (0, "  warmed up with a row of zeros"))


if __name__ == "__main__":
    unittest.main()
