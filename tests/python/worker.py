"""The worker in Python, from outside, by a stand-in for uncork: python3 tests/python/worker.py

Needs NumPy beside the standard library, for models that declare inputs.
"""

import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from fake import PACKAGE, Fake, element

DOUBLE = """
class Model:
    def load(self):
        self.by = 2

    def __call__(self, rows):
        return [row * self.by for row in rows]
"""


class Answers(unittest.TestCase):
    def test_a_class_answers_rows_of_json(self):
        with Fake(DOUBLE) as worker:
            told = worker.ready()
            self.assertEqual(told["protocol"], 1)
            self.assertEqual(told["inputs"], [{"name": "request", "datatype": "BYTES", "shape": [-1]}])
            self.assertEqual(told["outputs"], [{"name": "answer", "datatype": "BYTES", "shape": [-1]}])
            self.assertEqual(worker.answers(1, 2.5, "ab", [0]), [2, 5.0, "abab", [0, 0]])

    def test_a_function_is_a_model_too_and_the_only_one_of_a_file_needs_no_name(self):
        code = "def count(rows):\n    return (len(row) for row in rows)\n"
        for target in ("app.py:count", "app.py", "app:count", "app"):
            with Fake(code, target) as worker:
                worker.ready()
                self.assertEqual(worker.answers([], "abc"), [0, 3])

    def test_answers_are_what_json_can_say_of_them_or_bytes_or_an_answer(self):
        code = """
import dataclasses, datetime, uncork
import numpy as np

@dataclasses.dataclass
class Point:
    x: int

def model(rows):
    return [np.float32(0.5), np.arange(3), Point(1), {2}, datetime.date(2026, 1, 2), b"\\x00\\xff",
            uncork.Answer(b"GIF", "image/gif"), uncork.Answer("no", status=418), None, True,
            uncork.Answer({"a": 1}, status=404), uncork.Answer({"a": 1}, status=202)]
"""
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            told = worker.ask(*[b"0"] * 12)
        plain = [body for head, body in told if not head]
        self.assertEqual(plain, [b"0.5", b"[0,1,2]", b'{"x":1}', b"[2]", b'"2026-01-02"', b"null", b"true"])
        self.assertEqual(told[5], ({"content_type": "application/octet-stream"}, b"\x00\xff"))
        self.assertEqual(told[6], ({"content_type": "image/gif"}, b"GIF"))
        self.assertEqual(told[7], ({"status": 418, "content_type": "text/plain; charset=utf-8"}, b"no"))
        self.assertEqual(told[10], ({"status": 404, "content_type": "application/json"}, b'{"a":1}'))
        self.assertEqual(told[11], ({"status": 202}, b'{"a":1}'))

    def test_an_answer_that_http_cannot_have_says_why_where_it_is_made(self):
        code = """
import http, uncork
def model(rows):
    return [uncork.Answer("x", *eval(row)) for row in rows]
"""
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            for given, words in [
                ("None, 301", "status is a whole number from 200 to 299 or from 400 to 599, and not 301"),
                ("None, 100", "and not 100"),
                ("None, 600", "and not 600"),
                ("None, True", "and not True"),
                ("None, '404'", "and not '404'"),
                ("'a/b\\r\\nx: y'", "content_type is a text of printable ASCII, such as 'image/png', and not 'a/b\\r\\nx: y'"),
                ("'\u00fc'", "and not '\u00fc'"),
                ("b'a/b'", "and not b'a/b'"),
            ]:
                ((head, told),) = worker.ask(json.dumps(f"({given},)").encode())
                self.assertEqual(head, {"status": 500})
                self.assertIn(f"ValueError: an Answer's {words}" if "is a" in words else words, told.decode())
            self.assertEqual(worker.ask(b'"(None, http.HTTPStatus.NOT_FOUND)"')[0][0]["status"], 404)

    def test_a_list_of_floats_is_sent_as_they_are_and_nothing_else_is(self):
        floats = [0.1, -0.0, 1e16, 5e-324, *range(4)]
        code = "def model(rows):\n    return [[float(one) for one in row] if row[-1] == 3 else row for row in rows]\n"
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            rows = [floats, [*floats, 4], [1.5] * 7, [[1.5]] * 8, [True] * 8, [1e308] * 8]
            told = worker.ask(*(json.dumps(row).encode() for row in rows))
            self.assertEqual([head for head, _ in told], [{"numbers": True}, {}, {}, {}, {}, {}])
            self.assertEqual(worker.answers(*rows), rows)
            self.assertEqual(told[0][1], struct.pack("<8d", *floats))

    def test_an_array_of_answers_is_one_answer_a_row(self):
        with Fake("import numpy as np\ndef model(rows):\n    return np.array(rows) + 1\n", "app.py:model") as worker:
            worker.ready()
            self.assertEqual(worker.answers([1, 2], [3, 4]), [[2, 3], [4, 5]])

    def test_an_example_is_a_request(self):
        with Fake(DOUBLE + "    example = [1, 2]\n") as worker:
            told = worker.ready()["example"]
            self.assertEqual(told, [{"name": "request", "datatype": "BYTES", "shape": [1], "bytes": len(worker.example)}])
            self.assertEqual(worker.example[4:], element(b"[1,2]"))
        with Fake(DOUBLE + "    def example(self):\n        return b'7' * self.by\n") as worker:
            worker.ready()
            self.assertEqual(worker.example[4:], element(b"77"))


class Faults(unittest.TestCase):
    """One bad row harms nobody else."""

    def test_a_body_that_is_not_json_is_that_callers_fault_alone(self):
        with Fake(DOUBLE) as worker:
            worker.ready()
            good, bad, nan, empty, deep = worker.ask(b"1", b"{", b"[NaN]", b"", b"[" * 100_000)
            self.assertEqual(good, ({}, b"2"))
            self.assertEqual(bad[0], {"status": 400})
            self.assertEqual(bad[1], b"the body is not JSON: see line 1, column 2")
            self.assertEqual(nan, ({"status": 400}, b"the body is not JSON: NaN is no JSON"))
            self.assertEqual(empty, ({"status": 400}, b"the body is empty; this model takes JSON"))
            self.assertEqual(deep, ({"status": 400}, b"the body is JSON that nests too deeply"))
            bytes_, long = worker.ask(b'"\xff"', b"1" * 5000)
            self.assertEqual(bytes_, ({"status": 400}, b"the body is not JSON: it is not UTF-8 at byte 1"))
            self.assertEqual(long, ({"status": 400}, b"the body is JSON with a number of more digits than are read"))

    def test_bad_input_of_a_batch_is_the_callers_and_names_its_row_where_it_can(self):
        code = """
from uncork import BadInput
def model(rows):
    for row in rows:
        if row == "some":
            raise BadInput("a row is too old")
        if row == "this":
            raise BadInput("it is too old", row=rows.index("this"))
    return rows
"""
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            self.assertEqual(worker.ask(b"1", b'"some"'), {"kind": "input", "message": "a row is too old", "rows": []})
            told = worker.ask(b"{", b"1", b'"this"')
            self.assertEqual((told["kind"], told["rows"]), ("input", [[2, "it is too old"]]))
            self.assertEqual(worker.ask(b'"some"'), [({"status": 400}, b"a row is too old")])

    def test_an_exception_as_an_answer_is_that_rows_alone(self):
        code = """
from uncork import BadInput
def model(rows):
    return [BadInput("odd") if row % 2 else 1 / row for row in rows if row or 1] if 0 not in rows else [
        ZeroDivisionError("zero"), BadInput("odd"), 5]
"""
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            zero, odd, five = worker.ask(b"0", b"1", b"2")
            self.assertEqual(zero, ({"status": 500}, b"ZeroDivisionError: zero"))
            self.assertEqual(odd, ({"status": 400}, b"odd"))
            self.assertEqual(five, ({}, b"5"))

    def test_any_other_exception_is_some_rows_and_its_traceback_is_for_the_log(self):
        with Fake("def model(rows):\n    return [1 / row for row in rows]\n", "app.py:model") as worker:
            worker.ready()
            told = worker.ask(b"1", b"0")
            self.assertEqual((told["kind"], told["rows"]), ("row", []))
            self.assertRegex(told["message"], r"(?s)^Traceback.*app.py\", line 2.*ZeroDivisionError: division by zero$")
            self.assertNotIn("model.py", told["message"])
            head, body = worker.ask(b"0")[0]
            self.assertEqual(head, {"status": 500})
            self.assertIn(b"ZeroDivisionError", body)
            self.assertEqual(worker.answers(1, 2), [1.0, 0.5])

    def test_an_answer_that_json_cannot_say_harms_its_row_alone(self):
        code = "def model(rows):\n    return [float('nan') if row else object() if row is None else row for row in rows]\n"
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            good, nan, thing = worker.ask(b"0", b"1", b"null")
            self.assertEqual(good, ({}, b"0"))
            self.assertEqual(nan[0], {"status": 500})
            self.assertIn(b"Out of range float", nan[1])
            self.assertIn(b"JSON cannot say an object; return plain values", thing[1])

    def test_too_few_answers_and_what_is_no_list_are_said(self):
        code = "def model(rows):\n    return rows[0] if rows[0] != 9 else rows[1:]\n"
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            self.assertIn("model returned 1 answers for 2 rows", worker.ask(b"9", b"9")["message"])
            self.assertIn("model returned a dict for 2 rows; it has to return a list", worker.ask(b"{}", b"9")["message"])
            self.assertEqual(worker.ask(b"{}", b"9")["kind"], "row")
            self.assertIn("model returned an int for 2 rows", worker.ask(b"1", b"9")["message"])

    def test_a_model_that_exits_in_a_batch_fails_it_and_lives_on(self):
        with Fake("import sys\ndef model(rows):\n    return [sys.exit(3) if row else 0 for row in rows]\n", "app.py:model") as worker:
            worker.ready()
            self.assertEqual(worker.ask(b"1", b"0")["kind"], "row")
            self.assertIn(b"SystemExit: 3", worker.ask(b"1")[0][1])
            self.assertEqual(worker.answers(0), [0])


class Loading(unittest.TestCase):
    """What cannot be loaded is said in a sentence, with the traceback in the log."""

    def fails(self, words, code, target="app.py:Model", log=""):
        with Fake(code, target) as worker:
            with self.assertRaisesRegex(RuntimeError, words):
                worker.ready()
            self.assertEqual(worker.process.wait(30), 1)
            self.assertIn(log, worker.log)

    def test_a_wrong_name(self):
        self.fails("^app.py has no Modle; did you mean Model\\?$", DOUBLE, "app.py:Modle")
        self.fails("^app.py has no Churn; it has Model$", DOUBLE, "app.py:Churn")
        self.fails("^app has no Churn; it has no class and no function of its own$", "import json", "app:Churn")
        self.fails("say which class of app.py is the model: app.py:a; it has a, b", "def a(r): pass\ndef b(r): pass", "app.py")

    def test_a_missing_file_or_module(self):
        self.fails("^there is no file /.*/gone.py$", None, "gone.py:Model")
        self.fails("^there is no module gone in /.*, nor in /.*python", None, "gone:Model")

    def test_an_error_of_the_import(self):
        self.fails(
            "^importing app.py failed: ModuleNotFoundError: No module named 'xgbost'; install it for /", "import xgbost", log="line 1"
        )
        self.fails("^importing app failed: ModuleNotFoundError: No module named 'xgbost'", "import xgbost", "app:Model")
        self.fails("^importing app.py failed: (?s:.*)SyntaxError", "def model(:", log="line 1")
        self.fails("calls exit\\(2\\) when it is imported; put that under", "import sys; sys.exit(2)")

    def test_an_error_of_load(self):
        code = "class Model:\n    def load(self):\n        self.a['b']\n    def __call__(self, rows): return rows"
        self.fails("^loading the model failed: AttributeError: 'Model' object has no attribute 'a'", code, log="in load")
        self.fails(
            "the model called exit\\(1\\) while loading",
            "class Model:\n    def __init__(self): exit(1)\n    def __call__(self, rows): return rows",
        )

    def test_a_class_that_is_no_model(self):
        self.fails("^Model has no __call__\\(self, rows\\)", "class Model: pass")
        self.fails("^Model needs path to be made", "class Model:\n    def __init__(self, path): pass\n    def __call__(self, rows): pass")
        self.fails("one argument, the rows of a batch; it takes a, b$", "class Model:\n    def __call__(self, a, b): pass")
        self.fails("^Model is async", "class Model:\n    async def __call__(self, rows): pass")
        self.fails("^Model yields its answers", "class Model:\n    def __call__(self, rows): yield 1")
        self.fails("^Model is an int, which cannot be called", "Model = 3")
        self.fails("^no model was named", "", None)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "json.py")
            open(path, "w").close()
            self.fails("^/.*/json.py has the name of a module that is loaded already; call it something else", "", f"{path}:Model")

    def test_declared_inputs_that_are_none(self):
        self.fails(
            'has to be like {"x": \\("FP32", \\[64\\]\\)}.*it is 3', "class Model:\n    inputs = 3\n    def __call__(self, rows): pass"
        )
        taken = "class Model:\n    inputs = {'request': ('BYTES', [])}\n    outputs = {'answer': ('BYTES', [])}\n    def __call__(self, rows): pass"
        self.fails("^Model takes BYTES `request` and gives BYTES `answer`, as a model does that takes any body", taken)
        texts = "class Model:\n    inputs = {'x': ('BYTES', [])}\n    example = [None]\n    def __call__(self, rows): pass"
        self.fails("^the example of Model has x with a NoneType among its elements", texts)
        self.fails("'FLOAT' is none: BOOL", "class Model:\n    inputs = {'x': ('FLOAT', [1])}\n    def __call__(self, rows): pass")


class Hooks(unittest.TestCase):
    CODE = """
import uncork
class Model:
    def preprocess(self, request):
        if request.query.get("no"):
            raise uncork.BadInput("not you")
        return {"n": request.json() + int(request.headers.get("x-add", 0)), "kind": request.content_type}
    def __call__(self, rows):
        return [(row["n"] * 2, row["kind"]) if row["n"] else uncork.BadInput("zero") for row in rows]
    def postprocess(self, answer):
        if answer[0] == 14:
            raise ValueError("seven")
        return {"double": answer[0], "kind": answer[1]}
"""

    def test_they_run_with_the_batch_where_uncork_does_not_call_them(self):
        with Fake(self.CODE) as worker:
            self.assertNotIn("hooks", worker.ready())
            one, refused, seven = worker.ask(b"1", b"1", b"7", heads=[{"headers": [["x-add", "4"]]}, {"query": "no=1"}, None])
            self.assertEqual(one, ({}, b'{"double":10,"kind":""}'))
            self.assertEqual(refused, ({"status": 400}, b"not you"))
            self.assertEqual(seven[0], {"status": 500})

    def test_a_request_says_all_that_its_query_gives_and_its_name(self):
        code = """
class Model:
    def preprocess(self, request):
        return [request.query, request.query_all, request.request_id]
    def __call__(self, rows):
        return rows
"""
        with Fake(code) as worker:
            worker.ready()
            told = worker.ask(b"1", b"1", heads=[{"query": "ids=1&ids=2&a=", "request_id": "r1"}, None])
            self.assertEqual(json.loads(told[0][1]), [{"ids": "2", "a": ""}, {"ids": ["1", "2"], "a": [""]}, "r1"])
            self.assertEqual(json.loads(told[1][1]), [{}, {}, ""])

    def test_hooks_see_the_request_and_the_answer(self):
        with Fake(self.CODE, hooks=True) as worker:
            self.assertEqual(worker.ready()["hooks"], ["prepare", "finish"])
            head = {"content_type": "text/x", "query": "a=1&b=%20", "headers": [["x-add", "4"]]}
            prepared = [worker.run_parts("request", [element(b"1", head)], 3, raw=True)[0] for head in (head, None)]
            prepared += worker.run_parts("request", [element(b"0")], 3, raw=True)
            prepared += worker.run_parts("request", [element(b"7")], 3, raw=True)
            made = worker.run_parts("request", prepared, raw=True)
            # A row that no hook has seen is the caller's own: nothing of it is unpickled.
            ((head, words),) = worker.ask(b"1")
            self.assertEqual(head, {"status": 500})
            self.assertIn(b"preprocess has not seen", words)
            told = worker.run_parts("answer", made, 4)
        self.assertEqual(told[0], ({}, b'{"double":10,"kind":"text/x"}'))
        self.assertEqual(told[1], ({}, b'{"double":2,"kind":""}'))
        self.assertEqual(told[2], ({"status": 400}, b"zero"))
        self.assertEqual(told[3][0], {"status": 500})
        self.assertIn(b"ValueError: seven", told[3][1])

    def test_a_hook_that_refuses(self):
        with Fake(self.CODE, hooks=True) as worker:
            worker.ready()
            told = worker.ask(b"1", heads=[{"query": "no=1"}], kind=3)
            self.assertEqual(told, {"kind": "input", "message": "not you", "rows": [[0, "not you"]]})
            told = worker.ask(b"{", kind=3)
            self.assertEqual(told["kind"], "input")
            told = worker.ask(b'"a"', kind=3)
            self.assertEqual(told["kind"], "row")
            self.assertIn("TypeError", told["message"])
            # The row's words are those that uncork logs: the traceback, which names the exception.
            ((row, words),) = told["rows"]
            self.assertEqual(row, 0)
            self.assertRegex(words, r"(?s)^Traceback.*app.py\", line 7, in preprocess.*TypeError: ")

    def test_hooks_run_beside_a_batch(self):
        code = """
import os
class Model:
    def preprocess(self, request):
        return request.body
    def __call__(self, rows):
        open("started", "w").close()
        open(rows[0]).read()  # a pipe: waits for the test
        return rows
"""
        with Fake(code, hooks=True) as worker:
            worker.ready()
            os.mkfifo(worker.folder / "gate")
            (prepared,) = worker.run_parts("request", [element(b"gate")], 3, raw=True)
            call = worker.start([("request", "BYTES", [1], struct.pack("<I", len(prepared)) + prepared)])
            self.assertIsInstance(worker.run_parts("request", [element(b"x")], 3, raw=True), list)
            worker.send(6, 77)
            self.assertEqual(worker.receive()[:2], (68, 77))
            (worker.folder / "gate").write_text("")
            self.assertIn("answer", worker.outcome(call))

    def test_a_worker_ends_where_all_its_hooks_hang(self):
        code = """
class Model:
    def preprocess(self, request):
        with open("begun", "wb", 0) as begun:
            begun.write(b"x")
        open("gate").read()  # a pipe that nobody writes to
    def __call__(self, rows):
        return rows
"""
        with Fake(code, hooks=True, stuck_after_ms=0) as worker:
            worker.ready()
            os.mkfifo(worker.folder / "gate")
            os.mkfifo(worker.folder / "begun")
            begun = os.open(worker.folder / "begun", os.O_RDWR)
            one = element(b"a")
            ask = lambda: worker.start([("request", "BYTES", [1], struct.pack("<I", len(one)) + one)], 3)
            calls = [ask() for _ in range(5)]
            for _ in range(4):
                os.read(begun, 1)
            for call in calls[:3] + calls[4:]:
                worker.send(5, call)
            # One is still waited for, and the fifth never began.
            calls.append(ask())
            worker.send(6, 77)
            self.assertEqual(worker.receive()[:2], (68, 77))
            worker.send(5, calls[3])
            ask()
            worker.process.wait(60)
            self.assertIn("4 hooks hang", worker.log)

    def test_what_cannot_be_sent_is_said(self):
        with Fake(
            "class Model:\n    def preprocess(self, r): return lambda: 1\n    def __call__(self, rows): return rows", hooks=True
        ) as worker:
            worker.ready()
            self.assertIn("what preprocess returned cannot be sent to another process", worker.ask(b"1", kind=3)["message"])

    def test_an_example_is_prepared(self):
        with Fake(
            "class Model:\n    example = 3\n    def preprocess(self, r): return r.json() + 1\n    def __call__(self, rows): return rows"
        ) as worker:
            worker.ready()
            (answer,) = worker.run_parts("request", [worker.example[4:]])
            self.assertEqual(answer, ({}, b"4"))


class Arrays(unittest.TestCase):
    ONE = """
import numpy as np
class Model:
    inputs = {"x": ("FP32", [3])}
    outputs = {"y": ("FP64", []), "n": ("INT32", [1])}
    example = [1, 2, 3]
    def __call__(self, x):
        assert x.dtype == np.float32 and x.flags.writeable
        x += 1
        return {"y": x.sum(axis=1), "n": np.full((len(x), 1), len(x), np.int32)}
"""

    def test_arrays_in_and_out(self):
        with Fake(self.ONE) as worker:
            told = worker.ready()
            self.assertEqual(told["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}])
            self.assertEqual(told["outputs"][0], {"name": "y", "datatype": "FP64", "shape": [-1]})
            self.assertEqual((told["example"][0]["shape"], worker.example), ([1, 3], struct.pack("<3f", 1, 2, 3)))
            outputs = worker.outcome(worker.start([("x", "FP32", [2, 3], struct.pack("<6f", *range(6)))]))
            self.assertEqual(outputs["y"], ("FP64", [2], struct.pack("<2d", 6, 15)))
            self.assertEqual(outputs["n"], ("INT32", [2, 1], struct.pack("<2i", 2, 2)))

    def test_texts_and_several_inputs(self):
        code = """
class Model:
    inputs = {"text": ("BYTES", [2]), "upper": ("BOOL", [])}
    outputs = {"text": ("BYTES", [])}
    def __call__(self, rows):
        return [a.upper() + b if up else b for (a, b), up in zip(rows["text"], rows["upper"])]
"""
        with Fake(code) as worker:
            worker.ready()
            texts = b"".join(struct.pack("<I", len(part)) + part for part in (b"a\0", b"b", b"c", b"d\0\0"))
            outputs = worker.outcome(worker.start([("text", "BYTES", [2, 2], texts), ("upper", "BOOL", [2], b"\1\0")]))
            self.assertEqual(outputs["text"], ("BYTES", [2], struct.pack("<I", 3) + b"A\0b" + struct.pack("<I", 3) + b"d\0\0"))

    def test_outputs_are_found_by_a_row_of_zeros(self):
        with Fake("class Model:\n    inputs = {'x': ('INT64', [-1, 2])}\n    def __call__(self, x):\n        return x / 2\n") as worker:
            # No run tells which lengths follow that of the input.
            self.assertEqual(worker.ready()["outputs"], [{"name": "output", "datatype": "FP64", "shape": [-1, -1, -1]}])
            for length in (1, 3):
                told = worker.outcome(worker.start([("x", "INT64", [1, length, 2], bytes(16 * length))]))
                self.assertEqual(told, {"output": ("FP64", [1, length, 2], bytes(16 * length))})

    def test_outputs_that_were_found_are_not_said_to_be_declared(self):
        code = """
class Model:
    inputs = {'x': ('FP32', [2])}
    def __call__(self, x):
        return x[:, : 2 - int(x[0, 0])]
"""
        with Fake(code) as worker:
            self.assertEqual(worker.ready()["outputs"][0]["shape"], [-1, 2])
            told = worker.outcome(worker.start([("x", "FP32", [1, 2], struct.pack("<2f", 1, 0))]))
            words = "Model returned output of shape [1, 1]; a run found [-1, 2]: declare `outputs` if that varies"
            self.assertEqual((told["kind"], told["message"]), ("row", words))

    def test_what_is_wrong_with_outputs_is_said(self):
        for given, words in [
            ("x[1:]", "Model returned 1 rows of y for 2; the first axis"),
            ("x[0, 0]", "Model returned no rows of y for 2"),
            ("x[:, :2]", r"Model returned y of shape \[2, 2\]; it declares \[-1, 3\]"),
            ("x + 1j", "Model returned y as complex64; it declares FP32"),
            ("{'z': x}", "Model returned no y, but z"),
            ("[[1], [1, 2]]", "Model returned y with rows of different shapes"),
        ]:
            code = f"class Model:\n    inputs = {{'x': ('FP32', [3])}}\n    outputs = {{'y': ('FP32', [3])}}\n    def __call__(self, x): return {given}\n"
            with Fake(code) as worker:
                worker.ready()
                told = worker.outcome(worker.start([("x", "FP32", [2, 3], bytes(24))]))
                self.assertRegex(told["message"], words)
                # Some row's fault: the others run again without it.
                self.assertEqual(told["kind"], "row")

    def test_an_answer_that_lacks_an_output_is_some_rows_fault(self):
        code = """
class Model:
    inputs = {'x': ('INT32', [1])}
    outputs = {'y': ('INT32', [1]), 'z': ('INT32', [1])}
    def __call__(self, x):
        return x if 8 in x else {'y': x} if 7 in x else {'y': x, 'z': x}
"""
        with Fake(code) as worker:
            worker.ready()
            run = lambda *rows: worker.outcome(worker.start([("x", "INT32", [len(rows), 1], struct.pack(f"<{len(rows)}i", *rows))]))
            self.assertEqual(set(run(1, 2)), {"y", "z"})
            for rows, words in (((1, 7), "returned no z, but y"), ((1, 8), "returned a ndarray; it declares several outputs")):
                told = run(*rows)
                self.assertEqual(told["kind"], "row")
                self.assertIn(words, told["message"])

    def test_a_number_for_which_the_declared_type_has_no_room_is_an_error_and_not_another_number(self):
        code = """
import numpy as np
class Model:
    inputs = {'x': ('INT32', [])}
    outputs = {'y': (%r, [2])}
    def __call__(self, x):
        return np.array([%s] * len(x), dtype=%r)
"""
        for datatype, given, of, words in [
            ("INT8", "[300, -129]", "int64", "Model returned -129 in y, for which INT8 has no room"),
            ("INT8", "[127, 128]", "int64", "returned 128 in y"),
            ("UINT8", "[0, 256]", "uint64", "returned 256 in y"),
            ("INT64", "[0, 2**63]", "uint64", "returned 9223372036854775808 in y, for which INT64 has no room"),
            ("FP16", "[1e6, 1]", "float64", "returned 1000000.0 in y, for which FP16 has no room"),
            ("FP16", "[1, -70000]", "int64", "returned -70000 in y"),
            ("FP32", "[1e39, 1]", "float64", "returned 1e\\+39 in y"),
            ("INT64", "[1, 2]", "timedelta64[s]", "returned y as timedelta64\\[s\\]; it declares INT64"),
            ("INT8", "[127, -128]", "int64", struct.pack("<2b", 127, -128)),
            ("INT32", "[3, 1]", "int64", struct.pack("<2i", 3, 1)),
            ("FP32", "[float('inf'), float('nan')]", "float64", struct.pack("<2f", float("inf"), float("nan"))),
            ("FP16", "[1e-9, 65504]", "float64", struct.pack("<2e", 0, 65504)),
        ]:
            with self.subTest(datatype=datatype, given=given), Fake(code % (datatype, given, of)) as worker:
                worker.ready()
                told = worker.outcome(worker.start([("x", "INT32", [2], bytes(8))]))
                if isinstance(words, bytes):
                    self.assertEqual(told["y"], (datatype, [2, 2], 2 * words))
                else:
                    self.assertEqual(told["kind"], "row")
                    self.assertRegex(told["message"], words)

    def test_elements_of_bytes_are_bytes_and_texts_and_nothing_else(self):
        code = """
import numpy as np
class Model:
    inputs = {'x': ('INT32', [])}
    outputs = {'y': ('BYTES', [])}
    def __call__(self, x):
        made = np.empty(len(x), object)
        made[:] = [%s] * len(x)
        return made
"""
        for given, words in [
            ("bytearray(b'ab\\0')", b"ab\0"),
            ("memoryview(b'abcd')[::2]", b"ac"),
            ("np.str_('\u00fc')", "\u00fc".encode()),
            ("np.bytes_(b'ab')", b"ab"),
            ("None", "Model returned y with a NoneType among its elements; an element of BYTES is bytes or str"),
            ("float('nan')", "with a float among"),
            ("7", "with an int among"),
            ("'\\ud800'", "with a text that UTF-8 cannot say"),
        ]:
            with self.subTest(given=given), Fake(code % given) as worker:
                worker.ready()
                told = worker.outcome(worker.start([("x", "INT32", [1], bytes(4))]))
                if isinstance(words, bytes):
                    self.assertEqual(told["y"], ("BYTES", [1], struct.pack("<I", len(words)) + words))
                else:
                    self.assertEqual(told["kind"], "row")
                    self.assertIn(words, told["message"])

    def test_arrays_without_elements_come_and_go(self):
        code = """
class Model:
    inputs = {'x': (%r, [-1])}
    outputs = {'y': (%r, [-1])}
    example = %s
    def __call__(self, x):
        return x[:, :0]
"""
        for datatype, data, shown in [("FP32", struct.pack("<2f", 1, 2), "[]"), ("BYTES", b"\1\0\0\0a\1\0\0\0b", "['a']")]:
            with Fake(code % (datatype, datatype, shown)) as worker:
                self.assertEqual(worker.ready()["example"][0]["shape"], [1, len(shown) // 4])
                for shape, given in (([1, 2], data), ([2, 0], b""), ([1, 2], data)):
                    told = worker.outcome(worker.start([("x", datatype, shape, given)]))
                    self.assertEqual(told, {"y": (datatype, [shape[0], 0], b"")})

    def test_a_row_is_named_by_whatever_counts_and_an_exception_says_what_it_can(self):
        code = """
import numpy as np
from uncork import BadInput
class Mute(BadInput):
    def __str__(self):
        raise KeyError("words")
class Model:
    inputs = {'x': ('FP32', [1])}
    outputs = {'y': ('FP32', [1])}
    def __call__(self, x):
        raise [Mute("a"), BadInput("b", np.int64(1)), BadInput("c", "one"), BadInput("d", -1), BadInput("e\\udc80")][int(x[0, 0])]
"""
        with Fake(code) as worker:
            worker.ready()
            found = [worker.outcome(worker.start([("x", "FP32", [2, 1], struct.pack("<2f", turn, 0))])) for turn in range(5)]
        self.assertEqual([told["kind"] for told in found], ["input"] * 5)
        self.assertEqual([told["rows"] for told in found], [[], [[1, "b"]], [], [], []])
        words = ["the model does not take this, and does not say why", "b", "c", "d", "e?"]
        self.assertEqual([told["message"] for told in found], words)

    def test_what_cannot_be_written_fails_its_batch_alone(self):
        # Into a segment of which uncork never told.
        with Fake(DOUBLE) as worker:
            worker.ready()
            tensors = [("request", "BYTES", [1], struct.pack("<I", 7) + struct.pack("<I", 2) + b"{}7")]
            told = worker.outcome(worker.start(tensors, answer_segment=9))
            self.assertIn("KeyError: 9", told["message"])
            self.assertEqual(worker.answers(4), [8])

    def test_large_tensors_lie_in_shared_memory(self):
        with Fake("""
import mmap
class Model:
    inputs = {'x': ('FP32', [3])}
    outputs = {'y': ('FP32', [3])}
    def __call__(self, x):
        root = x
        while hasattr(root, "base"):
            root = root.base
        # A view of what the server wrote: nothing was copied on the way in. Small ones came in the frame.
        assert isinstance(root.obj, mmap.mmap) == (len(x) == 1), root.obj
        return x * 2
""") as worker:
            self.assertIs(worker.ready()["shared_memory"], True)
            memory = [os.memfd_create("segment") for _ in range(2)]
            for number, descriptor in enumerate(memory):
                os.ftruncate(descriptor, 4096)
                worker.send(8, 0, {"segment": number, "bytes": 4096}, descriptors=[descriptor])
            for turn in range(3):
                os.pwrite(memory[0], struct.pack("<3f", turn, 1, 2), 64)
                told = [{"name": "x", "datatype": "FP32", "shape": [1, 3], "bytes": 12, "segment": 0, "offset": 64}]
                worker.ids += 1
                worker.send(2, worker.ids, {"inputs": told, "answer_segment": 1})
                self.assertEqual(worker.outcome(worker.ids), {"y": ("FP32", [1, 3], 0)})
                self.assertEqual(os.pread(memory[1], 12, 0), struct.pack("<3f", 2 * turn, 2, 4))
            for descriptor in memory:
                os.close(descriptor)
            # What does not fit comes in the frame.
            told = [{"name": "x", "datatype": "FP32", "shape": [400, 3], "bytes": 4800}]
            worker.send(2, 9, {"inputs": told, "answer_segment": 1}, bytes(4800))
            self.assertEqual(worker.outcome(9)["y"], ("FP32", [400, 3], bytes(4800)))


class Life(unittest.TestCase):
    # Waits in a batch, and tells that it does by a file: a pipe that nobody writes to.
    WAITS = """
import os
def model(rows):
    os.mkfifo("gate")
    os.mkfifo("up")
    open("up", "w").close()
    open("gate").read()
    return rows
"""

    def test_what_is_printed_goes_to_the_log_and_input_is_empty(self):
        code = """
import os, subprocess, sys
def model(rows):
    print("by print")
    os.system("echo by a child")
    os.write(1, b"by descriptor\\n")
    return [sys.stdin.read()] * len(rows)
"""
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            self.assertEqual(worker.answers(1, 2), ["", ""])
            for words in ("by print\n", "by a child\n", "by descriptor\n"):
                self.assertIn(words, worker.log)

    def test_a_forked_child_neither_answers_nor_keeps_the_socket(self):
        code = """
import os
def model(rows):
    return [os.fork() > 0 for row in rows]
"""
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            self.assertEqual(worker.answers(1, 2), [True, True])
            self.assertEqual(worker.answers(1), [True])
            worker.send(7, 0)
            with self.assertRaises(EOFError):
                worker.receive()

    def test_children_end_with_it(self):
        code = "import subprocess\ndef model(rows):\n    return [subprocess.Popen(['sleep', '1000']).pid for row in rows]\n"
        with Fake(code, "app.py:model") as worker:
            worker.ready()
            (child,) = worker.answers(1)
            watch = os.pidfd_open(child)
        self.assertTrue(select.select([watch], [], [], 30)[0], "the child outlives its worker")
        os.close(watch)

    def test_it_ends_when_the_socket_does_even_while_a_batch_runs(self):
        with Fake(self.WAITS, "app.py:model") as worker:
            worker.ready()
            worker.start([("request", "BYTES", [1], b"\x07\0\0\0" + element(b"1"))])
            self.wait_for(worker)
            worker.socket.close()
            worker.process.wait(30)

    def wait_for(self, worker):
        path = worker.folder / "up"
        while not path.exists():
            os.sched_yield()
        path.read_text()

    def test_ping_is_answered_while_a_batch_runs_and_drain_waits_for_it(self):
        with Fake(self.WAITS, "app.py:model") as worker:
            worker.ready()
            call = worker.start([("request", "BYTES", [1], b"\x07\0\0\0" + element(b"1"))])
            self.wait_for(worker)
            worker.send(6, 5)
            self.assertEqual(worker.receive(), (68, 5, {}, b""))
            worker.send(7, 0)
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(worker.process.pid, number)
            worker.send(99, 0, {"unknown": 1})
            worker.send(6, 6)
            self.assertEqual(worker.receive()[:2], (68, 6))
            (worker.folder / "gate").write_text("")
            self.assertIn("answer", worker.outcome(call))
            self.assertEqual(worker.process.wait(30), 0)

    def test_a_cancelled_call_is_not_run(self):
        with Fake(self.WAITS, "app.py:model") as worker:
            worker.ready()
            first = worker.start([("request", "BYTES", [1], b"\x07\0\0\0" + element(b"1"))])
            self.wait_for(worker)
            second = worker.start([("request", "BYTES", [1], b"\x07\0\0\0" + element(b"1"))])
            worker.send(5, second)
            worker.send(6, 5)
            self.assertEqual(worker.receive()[:2], (68, 5))
            (worker.folder / "gate").write_text("")
            self.assertIn("answer", worker.outcome(first))
            worker.send(7, 0)
            self.assertEqual(worker.process.wait(30), 0)

    def test_what_the_protocol_does_not_allow_ends_it(self):
        for frame in (struct.pack("<B3xIQQ", 2, 1 << 30, 0, 1), struct.pack("<B3xIQQ", 2, 0, 1 << 40, 1)):
            with Fake(DOUBLE) as worker:
                worker.ready()
                worker.socket.sendall(frame)
                worker.process.wait(30)
                self.assertIn("ValueError: a frame of", worker.log)

    def test_started_by_hand_it_says_who_starts_it(self):
        told = subprocess.run(
            [sys.executable, "-m", "uncork.worker"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(PACKAGE)},
        )
        self.assertEqual(told.returncode, 2)
        self.assertIn("uncork serve app.py:Class", told.stderr)


if __name__ == "__main__":
    unittest.main()
