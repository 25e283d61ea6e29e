"""Classes written for other servers, run by the worker: python3 tests/python/shapes.py

Needs what tests/python/peers.txt says.
"""

import json
import os
import tempfile
import unittest

from fake import Fake, element


class LitServe(unittest.TestCase):
    BATCHED = """
import litserve as ls
from fastapi import HTTPException
import numpy as np

class Api(ls.LitAPI):
    def setup(self, device):
        assert device == "cpu" == self.device
        self.by = 2

    def decode_request(self, request, context):
        if request["input"] < 0:
            raise HTTPException(422, "less than nothing")
        context["word"] = request.get("word", "none")
        return np.asarray(request["input"])

    def predict(self, x, context):
        assert x.ndim == 1 and len(context) == len(x)
        return x * self.by

    def encode_response(self, output, context):
        return {"output": output, "word": context["word"], "of": len(context)}

if __name__ == "__main__":
    ls.LitServer(Api(max_batch_size=8), accelerator="cpu").run(port=8000)
"""

    def test_a_batch_with_contexts_and_a_bad_request(self):
        with Fake(self.BATCHED, "app.py:Api") as worker:
            worker.ready()
            one, bad, wrong, two = worker.ask(b'{"input": 1, "word": "w"}', b'{"input": -1}', b"{}", b'{"input": 2}')
            self.assertEqual(json.loads(one[1]), {"output": 2, "word": "w", "of": 1})
            self.assertEqual(bad, ({"status": 422}, b"less than nothing"))
            self.assertEqual(wrong[0], {"status": 500})
            self.assertIn(b"KeyError: 'input'", wrong[1])
            self.assertEqual(json.loads(two[1])["output"], 4)

    def test_one_that_is_made_already_and_its_server(self):
        code = self.BATCHED.replace(
            'if __name__ == "__main__":\n    ls.LitServer(', "api = Api(max_batch_size=4)\nserver = ls.LitServer(api); ("
        )
        code = code.replace(', accelerator="cpu").run(port=8000)', ")")
        for target in ("app.py:api", "app.py:server"):
            with Fake(code, target) as worker:
                worker.ready()
                self.assertEqual(worker.answers({"input": 3})[0]["output"], 6)

    def test_row_by_row_and_pydantic(self):
        code = """
import litserve as ls
from pydantic import BaseModel
class Request(BaseModel):
    x: float
class Response(BaseModel):
    y: float
class Api(ls.LitAPI):
    def __init__(self): super().__init__(enable_async=True)
    def setup(self, device): pass
    async def decode_request(self, request: Request) -> float: return request.x
    async def predict(self, x): return 1 / x
    async def encode_response(self, y) -> Response: return Response(y=y)
"""
        with Fake(code, "app.py:Api") as worker:
            worker.ready()
            two, zero, word = worker.ask(b'{"x": 2}', b'{"x": 0}', b'{"x": "a"}')
            self.assertEqual(two, ({}, b'{"y":0.5}'))
            self.assertEqual(zero[0], {"status": 500})
            self.assertEqual(word[0], {"status": 422}, "as FastAPI has it")
            self.assertIn(b"valid number", word[1])

    def test_a_response_keeps_its_type_and_status(self):
        code = """
import litserve as ls
from starlette.responses import Response
class Api(ls.LitAPI):
    def setup(self, device): pass
    def predict(self, request): return request
    def encode_response(self, output): return Response(b"GIF", 201, media_type="image/gif")
"""
        with Fake(code, "app.py:Api") as worker:
            worker.ready()
            self.assertEqual(worker.ask(b"1"), [({"status": 201, "content_type": "image/gif"}, b"GIF")])

    def test_streams_are_refused_in_words(self):
        stream = """
import litserve as ls
class Api(ls.LitAPI):
    def setup(self, device): pass
    def predict(self, x):
        yield x
"""
        said = stream.replace("yield", "return") + 'if __name__ == "__main__":\n    ls.LitServer(Api(), stream=True)\n'
        for code, words in ((stream, "predict of Api streams its answer"), (said, "Api streams its answers \\(stream=True\\)")):
            with Fake(code, "app.py:Api") as worker, self.assertRaisesRegex(RuntimeError, words):
                worker.ready()

    def test_requests_that_are_no_json_are_refused_in_words(self):
        code = """
import litserve as ls
from typing import Annotated
from fastapi import File, Form, Request, UploadFile
class Api(ls.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request%s): return %s
    def predict(self, x): return x
"""
        for taken, read, words in (
            (": UploadFile", "request.file.read()", "a file or a field of a form"),
            (": UploadFile = File(...)", "request.file.read()", "a file or a field of a form"),
            (": str = Form()", "request", "a file or a field of a form"),
            (": str", "request", "a parameter of the query"),
            (": Request", "dict(request.headers)", "the request's headers"),
            ("", "request.query_params['x']", "the request's query_params"),
        ):
            words = f"decode_request of Api takes {words}; uncork gives it the body's JSON alone. .* preprocess"
            with self.subTest(taken), Fake(code % (taken, read), "app.py:Api") as worker, self.assertRaisesRegex(RuntimeError, words):
                worker.ready()
        code = code.replace("class Api", "@dataclasses.dataclass\nclass Row:\n    x: int\n    url: str = ''\nclass Api")
        code = "import dataclasses\n" + code
        read = "request.x if request.url == '' else None"
        for taken, read in ((": Row", read), (": Request", "request['x']"), (": dict", "request.get('x')"), ("", "request['x']")):
            with self.subTest(taken), Fake(code % (taken, read), "app.py:Api") as worker:
                worker.ready()
                self.assertEqual(worker.answers({"x": 3}), [3])

    def test_what_guards_it_there_is_refused_in_words_and_never_left_out(self):
        code = """
import os
import litserve as ls
class Api(ls.LitAPI):
    def setup(self, device): pass
    def predict(self, x): return x
"""
        for more, words in (
            ("    def authorize(self, auth): raise ValueError\n", "Api has authorize\\(\\), which uncork .* tokens_file"),
            ("    def health(self): return False\n", "Api has health\\(\\), which uncork does not ask"),
            ("os.environ['LIT_SERVER_API_KEY'] = 'secret'\n", "LIT_SERVER_API_KEY is set, .* tokens_file"),
            ("if __name__ == '__main__': ls.LitServer(Api(), middlewares=[Guard])\n", "Api is served with middlewares, .* tokens_file"),
        ):
            with self.subTest(words), Fake(code + more, "app.py:Api") as worker, self.assertRaisesRegex(RuntimeError, words):
                worker.ready()


class Mosec(unittest.TestCase):
    CODE = """
import mosec
class Double(mosec.Worker):
    def __init__(self):
        self.example = [1, 2]
    def forward(self, data):
        if 0 in data:
            raise mosec.errors.ValidationError("no zeros")
        return [2 * one for one in data]
if __name__ == "__main__":
    server = mosec.Server()
    server.append_worker(Double, num=2, max_batch_size=8)
    server.run()
"""

    def test_a_batch(self):
        with Fake(self.CODE, "app.py:Double") as worker:
            worker.ready()
            one, bad, two = worker.ask(b"1", b"{", b"2")
            self.assertEqual([json.loads(one[1]), json.loads(two[1])], [2, 4])
            self.assertEqual(bad[0], {"status": 400})
            told = worker.ask(b"1", b"0")
            self.assertEqual(told["kind"], "input")
            self.assertEqual(worker.ask(b"0"), [({"status": 422}, b"request validation error: no zeros")])

    def test_a_size_that_is_a_name_is_that_of_batches(self):
        for said, elsewhere in (("SIZE", "SIZE = 8\n"), ("Settings.size", "class Settings:\n    size = 8\n"), ("int('8')", "")):
            code = elsewhere + self.CODE.replace("max_batch_size=8", f"max_batch_size={said}")
            with self.subTest(said), Fake(code, "app.py:Double") as worker:
                worker.ready()
                self.assertEqual([json.loads(answer[1]) for answer in worker.ask(b"1", b"2")], [2, 4])
        for said in ("max_batch_size=ONE", "ONE, ONE"):
            code = "ONE = 1\n" + self.CODE.replace("num=2, max_batch_size=8", said).replace("0 in data", "data == 0")
            code = code.replace("[2 * one for one in data]", "data + 1").replace("[1, 2]", "1")
            with self.subTest(said), Fake(code, "app.py:Double") as worker:
                worker.ready()
                self.assertEqual(worker.ask(b"1")[0][1], b"2")

    def test_its_example_is_one_of_a_request(self):
        with Fake(self.CODE, "app.py:Double") as worker:
            self.assertIn("example", worker.ready())
            self.assertEqual(worker.example[4:], element(b"1"))
        several = self.CODE.replace("self.example = [1, 2]", "self.multi_examples = [[3], [4, 5]]")
        packed = several.replace("mosec.Worker", "mosec.mixin.MsgpackMixin, mosec.Worker").replace("import mosec", "import mosec.mixin")
        for code, body in ((several, b"3"), (packed, b"\x03")):
            with Fake(code, "app.py:Double") as worker:
                worker.ready()
                self.assertEqual(worker.example[4:], element(body))
        one = "    def deserialize(self, data): return int(data) + 1\n    def forward(self, data):"
        with Fake(self.CODE.replace("    def forward(self, data):", one), "app.py:Double") as worker:
            self.assertNotIn("example", {key for key, value in worker.ready().items() if value})
            self.assertIn("Double ran its example, of which no request can be made", worker.log)

    def test_one_by_one(self):
        code = (
            self.CODE.replace(", max_batch_size=8", "").replace("0 in data", "data == 0").replace("[2 * one for one in data]", "data + 1")
        )
        with Fake(code.replace("[1, 2]", "1"), "app.py:Double") as worker:
            worker.ready()
            one, bad, two = worker.ask(b"1", b"0", b"2")
            self.assertEqual([one[1], bad[0], two[1]], [b"2", {"status": 422}, b"3"])

    def test_what_cannot_be_served_is_refused_in_words(self):
        events = "import mosec\nclass Double(mosec.SSEWorker):\n    def forward(self, data): pass\n"
        stages = self.CODE + "    server.append_worker(Other)\n"
        for code, words in ((events, "Double streams its answers \\(SSEWorker\\)"), (stages, "one of several stages \\(Double, Other\\)")):
            with Fake(code, "app.py:Double") as worker, self.assertRaisesRegex(RuntimeError, words):
                worker.ready()


class BentoML(unittest.TestCase):
    CODE = """
import bentoml
import numpy as np

@bentoml.service(traffic={"timeout": 10})
class Service:
    def __init__(self):
        self.by = 2

    @bentoml.api(batchable=True, batch_dim=(0, 0), max_batch_size=32)
    def double(self, rows: np.ndarray) -> np.ndarray:
        assert rows.ndim == 2
        return rows * self.by

    @bentoml.api
    def greet(self, name: str, times: int = 1) -> str:
        if name == "nobody":
            raise bentoml.exceptions.InvalidArgument("say who")
        return f"hello {name}" * times

    @bentoml.api
    def count(self, n: int):
        yield n
"""

    def test_a_batchable_method_joins_requests_of_several_rows(self):
        for target in ("app.py:Service", "app.py:Service.double"):
            with Fake(self.CODE, target) as worker:
                worker.ready()
                told = worker.ask(b'{"rows": [[1, 2]]}', b'{"lines": 1}', b'{"rows": [[3, 4], [5, 6]]}')
                self.assertIsInstance(told, list, told)
                self.assertEqual(json.loads(told[0][1]), [[2, 4]])
                self.assertEqual(told[1][0], {"status": 400})
                self.assertEqual(json.loads(told[2][1]), [[6, 8], [10, 12]])

    def test_no_call_gets_more_rows_than_the_cap_but_of_one_request_alone(self):
        code = self.CODE.replace("return rows * self.by", "return np.full(rows.shape, len(rows))")
        with Fake(code, "app.py:Service.double", max_batch_size=4) as worker:
            worker.ready()
            bodies = [json.dumps({"rows": [[1]] * rows}).encode() for rows in (3, 1, 2, 9, 1, 1, 1, 1, 1)]
            told = worker.ask(*bodies, b'{"rows": 7}')
            self.assertEqual([json.loads(body)[0][0] for _, body in told[:-1]], [4, 4, 2, 9, 4, 4, 4, 4, 1])
            self.assertEqual([len(json.loads(body)) for _, body in told[:-1]], [3, 1, 2, 9, 1, 1, 1, 1, 1])
            self.assertEqual(told[-1][0], {"status": 500}, "what has no rows is its own caller's alone")

    def test_another_method_runs_row_by_row(self):
        with Fake(self.CODE, "app.py:Service.greet") as worker:
            worker.ready()
            you, twice, nobody, wrong = worker.ask(b'{"name": "you"}', b'{"name": "a", "times": 2}', b'{"name": "nobody"}', b"{}")
            self.assertEqual(you, ({"content_type": "text/plain"}, b"hello you"))
            self.assertEqual(twice[1], b"hello ahello a")
            self.assertEqual(nobody, ({"status": 400}, b"say who"))
            self.assertEqual(wrong[0], {"status": 400})
            self.assertIn(b"Field required", wrong[1])

    def test_what_cannot_be_served_is_refused_in_words(self):
        with Fake(self.CODE, "app.py:Service.count") as worker, self.assertRaisesRegex(RuntimeError, "Service.count streams its answer"):
            worker.ready()
        with Fake(self.CODE, "app.py:Service.cout") as worker, self.assertRaisesRegex(RuntimeError, "has no Service.cout"):
            worker.ready()
        guarded = self.CODE + "\nService.add_asgi_middleware(type('Guard', (), {}))\n"
        with Fake(guarded, "app.py:Service.double") as worker, self.assertRaisesRegex(RuntimeError, "has middlewares, .* tokens_file"):
            worker.ready()


class KServe(unittest.TestCase):
    """By a stand-in for the package, which may be installed or not."""

    BASE = """
class InferRequest: pass
class Model:
    def __init__(self, name): self.name, self.ready = name, False
    def load(self): self.ready = True
    async def preprocess(self, payload, headers=None): return payload
    def postprocess(self, result, headers=None): return result
"""
    CODE = """
import kserve
calls = []
class Double(kserve.Model):
    def load(self):
        self.by = 2
        self.ready = True
    def predict(self, payload, headers=None):
        if "calls" in payload:
            return {"calls": calls}
        calls.append(len(payload["instances"]))
        return %s
if __name__ == "__main__":
    kserve.ModelServer().start([Double("double")])
"""

    def start(self, answer, code=CODE, **setup):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.mkdir(os.path.join(folder.name, "kserve"))
        with open(os.path.join(folder.name, "kserve", "__init__.py"), "w") as file:
            file.write(self.BASE)
        return Fake(code % answer, "app.py:Double", folder=folder.name, **setup)

    def test_no_call_gets_more_rows_than_the_cap_but_of_one_request_alone(self):
        with self.start('{"predictions": payload["instances"]}', max_batch_size=8) as worker:
            worker.ready()
            rows = [{"instances": list(range(many))} for many in (3, 5, 4, 32, 0, 4, 5)]
            self.assertEqual(worker.answers(*rows), [{"predictions": row["instances"]} for row in rows])
            self.assertEqual(worker.answers({"calls": 1}), [{"calls": [8, 4, 32, 4, 5]}])

    def test_headers_are_those_of_the_request_where_they_are_read_and_then_each_runs_by_itself(self):
        with self.start('{"team": headers.get("x-team"), "of": len(payload["instances"])}') as worker:
            worker.ready()
            heads = [{"headers": [["x-team", "a"]]}, {"headers": [["x-team", "b"], ["x-team", "c"]]}, None]
            told = [json.loads(body) for _, body in worker.ask(*[b'{"instances": [1]}'] * 3, heads=heads)]
            self.assertEqual(told, [{"team": "a", "of": 1}, {"team": "b, c", "of": 1}, {"team": None, "of": 1}])

    def test_a_request_that_is_no_dict_is_refused_in_words(self):
        for kind in ("InferRequest", "kserve.InferRequest", "'InferRequest'"):
            code = "from kserve import InferRequest\n" + self.CODE.replace("payload, headers", f"payload: {kind}, headers")
            code = "import kserve\n" + code
            with self.start("{}", code=code) as worker, self.assertRaisesRegex(RuntimeError, "predict of Double takes an InferRequest"):
                worker.ready()
        code = "from kserve import InferRequest\nfrom typing import Dict, Union\n" + self.CODE
        with self.start("{}", code=code.replace("payload, headers", "payload: Union[Dict, InferRequest], headers")) as worker:
            worker.ready()

    def test_instances_run_together_where_predictions_are_all_of_the_answer(self):
        with self.start('{"predictions": [self.by * one for one in payload["instances"]]}') as worker:
            self.assertIs(worker.ready()["whole"], True)
            self.assertEqual(worker.answers({"instances": [1, 2]}, {"instances": [3]}), [{"predictions": [2, 4]}, {"predictions": [6]}])
            one, other = worker.ask(b'{"instances": [1]}', b'{"instances": [1], "parameters": {}}')
            self.assertEqual(one, other)
            self.assertEqual(worker.answers({"calls": 1}), [{"calls": [3, 1, 1]}])

    def test_an_answer_depends_on_no_other_request_of_its_batch(self):
        for answer in (
            '{"predictions": [self.by * one for one in payload["instances"]], "of": len(payload["instances"])}',
            '{"predictions": [sum(payload["instances"])]}',
            'payload["instances"]',
        ):
            with self.start(answer) as worker:
                worker.ready()
                alone = [worker.answers({"instances": rows})[0] for rows in ([1, 2], [3])]
                self.assertEqual(worker.answers({"instances": [1, 2]}, {"instances": [3]}), alone)
                self.assertEqual(worker.answers({"instances": [1, 2]}, {"instances": [3]}), alone)
                # They were tried together once.
                self.assertEqual(worker.answers({"calls": 1}), [{"calls": [2, 1, 3, 2, 1, 2, 1]}])


class TorchServe(unittest.TestCase):
    def test_a_handler(self):
        code = """
class Handler:
    def initialize(self, context):
        self.folder = context.system_properties["model_dir"]
    def handle(self, data, context):
        return [{"got": one["body"]} if isinstance(one["body"], dict) else one["body"] for one in data]
"""
        with Fake(code, "app.py:Handler") as worker:
            worker.ready()
            self.assertEqual(
                worker.ask(b'{"a":1}', b"\xff"), [({}, b'{"got":{"a":1}}'), ({"content_type": "application/octet-stream"}, b"\xff")]
            )


    def test_the_context_is_what_handlers_of_theirs_ask(self):
        code = """
import json, os
class Handler:
    def initialize(self, context):
        self.context = context
        properties = context.system_properties
        assert self.context.get_request_header(0, "explain") is None
        self.weights = os.path.join(properties["model_dir"], context.manifest["model"]["serializedFile"])
        self.said = [properties[key] for key in ("gpu_id", "batch_size", "server_name")]
        self.said += [context.model_name, context.model_yaml_config]
    def handle(self, data, context):
        metrics = context.metrics
        metrics.add_time("HandlerTime", 1.5, None, "ms")
        metrics.add_counter("Asked", 1, dimensions=[])
        metrics.add_metric("Size", unit="MB", value=2)
        metrics.get_metric("Size", "GAUGE").add_or_update(1, ["all"])
        answers = []
        for place, one in enumerate(data):
            if one["body"] == "teapot":
                context.set_response_status(code=418, phrase="teapot", idx=place)
            if one["body"] == "text":
                context.set_response_content_type(place, "text/plain")
                context.set_response_header(place, "X-Other", "1")
            kind = type(one["body"]).__name__
            answers.append([kind, context.get_request_id(place), context.get_request_header(place, "X-Team")] if "t" != kind[0] else "")
        answers[-1] = self.said + [open(self.weights).read()] if data[-1]["body"] == 0 else answers[-1]
        return [json.dumps(answer) if data[place]["body"] == "text" else answer for place, answer in enumerate(answers)]
"""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "model.pt"), "w") as file:
                file.write("weights")
            with Fake(code, "app.py:Handler", folder=folder, max_batch_size=7) as worker:
                worker.ready()
                head = {"content_type": "application/octet-stream", "request_id": "r1", "headers": [["x-team", "a"]]}
                heads = [head, {"content_type": "application/json; charset=utf-8"}, {"content_type": "application/x-www-form-urlencoded"}]
                told = worker.ask(b"12", b'"teapot"', b'"text"', b"{", b"0", heads=[*heads, {"content_type": "application/json"}, None])
                self.assertEqual(told[0], ({}, b'["bytearray","r1","a"]'))
                self.assertEqual(told[1], ({"status": 418, "content_type": "application/json"}, b'["str","",null]'))
                self.assertEqual(told[2], ({"content_type": "text/plain"}, b'["str", "", null]'))
                self.assertEqual(told[3][0], {"status": 400})
                self.assertEqual(json.loads(told[4][1]), [None, 7, "uncork", "model", {}, "weights"])
                form = worker.ask(b"--x", heads=[{"content_type": "multipart/form-data; boundary=x"}])
                self.assertEqual(form[0][0], {"status": 415})
                self.assertEqual(worker.log.count("sets the header X-Other"), 1)

    def test_an_archive_says_what_its_manifest_says(self):
        code = """
class Handler:
    def initialize(self, context):
        self.model = context.manifest["model"]
        assert context.model_yaml_config["handler"]["top"] == 5
    def handle(self, data, context): return [self.model for _ in data]
"""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "MAR-INF"))
            with open(os.path.join(folder, "MAR-INF", "MANIFEST.json"), "w") as file:
                json.dump({"model": {"modelName": "m", "serializedFile": "a.pt", "modelFile": "model.py"}}, file)
            with open(os.path.join(folder, "model-config.yaml"), "w") as file:
                file.write("batchSize: 4\nhandler:\n  top: 5\n")
            with Fake(code, "app.py:Handler", folder=folder) as worker:
                worker.ready()
                self.assertEqual(worker.answers(1), [{"modelName": "m", "serializedFile": "a.pt", "modelFile": "model.py"}])

    def test_what_a_context_has_not_fails_at_load_in_words(self):
        code = "class Handler:\n    def initialize(self, context): context.cache['a'] = 1\n    def handle(self, data, context): pass\n"
        with Fake(code, "app.py:Handler") as worker, self.assertRaisesRegex(RuntimeError, "the context has no cache: uncork has what"):
            worker.ready()

    def test_a_function_is_a_handler_too(self):
        code = """
times = None
def %s(data, context):
    global times
    if data is None:
        times = context.system_properties["batch_size"]
        return None
    return [times * one["body"] for one in data]
"""
        for name in ("handle", "entry"):
            with Fake(code % name, f"app.py:{name}", max_batch_size=3) as worker:
                worker.ready()
                self.assertEqual(worker.answers(1, 2), [3, 6])


class Caps(unittest.TestCase):
    """What a class says of its own caps does not hold here, and that is said."""

    UNSAID = {"max_batch_size": 128, "max_latency_ms": 100, "stuck_after_ms": 10_000, "runners": 1}
    LIT = """
import litserve as ls
class Api(ls.LitAPI):
    def setup(self, device): pass
    def predict(self, xs): return xs
if __name__ == "__main__":
    ls.LitServer(Api(max_batch_size=4, batch_timeout=0.01), workers_per_device=2, timeout=5).run()
"""
    MOSEC = """
import mosec
class Api(mosec.Worker):
    def forward(self, xs): return xs
if __name__ == "__main__":
    mosec.Server().append_worker(Api, 2, 4, max_wait_time=10, timeout=5)
"""
    BENTO = """
import bentoml
@bentoml.service(workers=2, traffic={"timeout": 5})
class Api:
    @bentoml.api(batchable=True, max_batch_size=4, max_latency_ms=500)
    def predict(self, x: list[float]) -> list[float]: return x
    @bentoml.api
    def other(self, x: float) -> float: return x
"""

    def warnings(self, code, target="app.py:Api", **setup):
        with Fake(code, target, **setup) as worker:
            worker.ready()
            return [line for line in worker.log.splitlines() if line.startswith("warning: ")]

    def test_what_holds_instead_is_said_with_the_key_to_write(self):
        end = ", which uncork does not go by; write max_batch_size = 4, "
        for code, target, words in (
            (
                self.LIT,
                "app.py:Api",
                "max_batch_size, timeout and workers_per_device of its own" + end + "max_latency_ms = 5000 and runners = 2",
            ),
            (self.MOSEC, "app.py:Api", "max_batch_size, num and timeout of its own" + end + "runners = 2 and stuck_after_ms = 5000"),
            (
                self.BENTO,
                "app.py:Api.predict",
                "max_batch_size, max_latency_ms and workers of its own" + end + "max_latency_ms = 500 and runners = 2",
            ),
            (
                self.BENTO,
                "app.py:Api.other",
                "timeout and workers of its own, which uncork does not go by; write max_latency_ms = 5000 and runners = 2",
            ),
            (
                self.MOSEC.replace("2, 4, max_wait_time=10, timeout=5", "max_batch_size=int('4')"),
                "app.py:Api",
                "max_batch_size of its own, which uncork does not go by; write max_batch_size = ...",
            ),
        ):
            with self.subTest(words):
                name = target.partition(":")[2]
                self.assertEqual(self.warnings(code, target, **self.UNSAID), [f"warning: {name} says {words} for this model"])

    def test_nothing_is_said_where_the_class_or_the_configuration_says_the_same_or_more(self):
        said = {"max_batch_size": 16, "max_latency_ms": 50, "stuck_after_ms": 5_000, "runners": 2}
        for code, target in ((self.LIT, "app.py:Api"), (self.MOSEC, "app.py:Api"), (self.BENTO, "app.py:Api.predict")):
            self.assertEqual(self.warnings(code, target, **said), [])
        plain = self.LIT.replace("max_batch_size=4, batch_timeout=0.01", "").replace("workers_per_device=2, timeout=5", "timeout=False")
        self.assertEqual(self.warnings(plain, **self.UNSAID), [])
        plain = self.BENTO.replace('(workers=2, traffic={"timeout": 5})', "").replace(", max_batch_size=4, max_latency_ms=500", "")
        self.assertEqual(self.warnings(plain, "app.py:Api.predict", **self.UNSAID), [])


class Triton(unittest.TestCase):
    def test_it_is_refused_in_words(self):
        with Fake("class TritonPythonModel:\n    def execute(self, requests): pass", "app.py") as worker:
            with self.assertRaisesRegex(RuntimeError, "TritonPythonModel needs Triton's own module"):
                worker.ready()


if __name__ == "__main__":
    unittest.main()
