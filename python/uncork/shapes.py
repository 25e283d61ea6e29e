"""Classes written for other servers, run as they are: LitServe, MOSEC, BentoML, KServe and TorchServe.

A class is known by the names of its bases, so none of those packages is imported here; each is there where its class is. What
cannot be answered in one piece, such as a stream, is refused in words. Batches are uncork's, and so is what one bad request
does to the others: nothing.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import os
import sys
import textwrap
import typing
from collections.abc import Callable
from typing import Any

from . import Answer, BadInput, Request, __version__, parse
from .model import Failed, Opaque, Refused, encoded
from .wire import LENGTH, Buffer


def recognised(found: Any, name: str, setup: dict[str, Any]) -> Opaque | None:
    """The model where it is one of another server's, loaded; `None` where it is not."""
    if inspect.isclass(found):
        bases = names(found)
        if "mosec:Worker" in bases:
            return Mosec(found, name, setup)
        if "litserve:LitAPI" in bases:
            return LitServe(found, name, setup)
        if "kserve:Model" in bases:
            return KServe(found, name, setup)
        if callable(getattr(found, "initialize", None)) and callable(getattr(found, "handle", None)):
            return TorchServe(found, name, setup)
        if name == "TritonPythonModel":
            raise Failed("TritonPythonModel needs Triton's own module and config.pbtxt; move what execute() does to __call__(self, rows)")
        return None
    if inspect.isfunction(found) and takes_context(found):
        return TorchServe(found, name, setup)
    bases = names(type(found))
    if "litserve:LitAPI" in bases:
        return LitServe(found, name, setup)
    if "litserve:LitServer" in bases:
        return LitServe(found.lit_api, name, setup)
    if "_bentoml_sdk:Service" in bases:
        service, _, method = name.rpartition(".")
        return BentoML(found, method, service, setup) if method in found.apis else BentoML(found, None, name, setup)
    return None


def names(found: type) -> set[str]:
    """A class and its bases, each as the root of its module and its name."""
    return {f"{base.__module__.partition('.')[0]}:{base.__qualname__}" for base in found.__mro__}


class Foreign(Opaque):
    """What these have in common: bodies that they read themselves, and exceptions that carry a status."""

    takes_whole = True

    def refusal(self, error: BaseException) -> BaseException:
        """An exception of the other server's, as one of ours."""
        status = getattr(error, "status_code", getattr(error, "error_code", None))
        if isinstance(status, int) and 400 <= status < 500:
            return Refused(str(getattr(error, "detail", error)), int(status))
        if "pydantic_core:ValidationError" in names(type(error)):
            return Refused(str(error), 400)
        return error

    def decode(self, item: memoryview) -> Any:
        """A request, by the class's own method."""
        end = 4 + LENGTH.unpack_from(item)[0]
        try:
            return self.decoded(item[end:], item[4:end])
        except Exception as error:
            raise self.refusal(error) from error

    def decoded(self, body: memoryview, head: memoryview) -> Any:
        """A request as the other server would hand it over, of its body and of the JSON object that comes before."""
        return parse(body)

    def call(self, rows: list[Any]) -> Any:
        """The batch, by the class's own methods."""
        try:
            return self.called(rows)
        except Exception as error:
            raise self.refusal(error) from error

    def called(self, rows: list[Any]) -> Any:
        """As many answers as rows."""
        raise NotImplementedError

    def each(self, function: Callable[[Any], Any], rows: list[Any]) -> list[Any]:
        """One after the other, for what takes one request; an exception is that request's answer."""
        answers = []
        for row in rows:
            try:
                answers.append(function(row))
            except BaseException as error:
                answers.append(self.refusal(error))
        return answers

    def encode(self, answer: Any) -> Buffer:
        """An answer; a response of Starlette's keeps its type and status."""
        if not isinstance(answer, BaseException):
            try:
                answer = self.finished(answer)
            except Exception as error:
                answer = self.refusal(error)
            if hasattr(answer, "media_type") and isinstance(getattr(answer, "body", None), bytes):
                answer = Answer(answer.body, answer.media_type, answer.status_code)
            if inspect.isgenerator(answer) or hasattr(answer, "body_iterator"):
                raise TypeError(f"{self.name} streams its answer; uncork serves answers in one piece")
        return encoded(answer)

    def finished(self, answer: Any) -> Any:
        """An answer, by the class's own method."""
        return answer


def refuse_streams(name: str, **methods: Any) -> None:
    """Refuses what yields."""
    for word, method in methods.items():
        if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            raise Failed(f"{word} of {name} streams its answer; uncork serves answers in one piece")


def source_of(function: Any) -> ast.AST | None:
    """What a function's source says; `None` where there is no source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def attributes(function: Any, name: str) -> set[str]:
    """Which attributes of the argument of this name a function reads, as far as its source shows."""
    tree = source_of(function)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)] if tree else []
    return {node.attr for node in found if isinstance(node.value, ast.Name) and node.value.id == name}


def reads(function: Any, place: int) -> bool:
    """Whether a function reads its argument at this place; it may where there is no source."""
    named, tree = list(inspect.signature(function).parameters)[place : place + 1], source_of(function)
    if tree is None or not named:
        return bool(named)
    return any(isinstance(node, ast.Name) and node.id == named[0] and isinstance(node.ctx, ast.Load) for node in ast.walk(tree))


def awaited(value: Any) -> Any:
    """What comes of a method that may be async: batches come one by one, so that it is waited for."""
    global _loop
    if not inspect.isawaitable(value):
        return value
    if _loop is None:
        import asyncio  # takes 30 ms

        _loop = asyncio.new_event_loop()
    return _loop.run_until_complete(value)


_loop: Any = None


def device() -> str:
    """Where a class that asks for a device should go."""
    torch = sys.modules.get("torch")
    return "cuda:0" if torch is not None and torch.cuda.is_available() else "cpu"


# --- What a class says of its caps, and what holds -------------------------------------------------------------------


def most_rows(setup: dict[str, Any]) -> int:
    """The rows that a call of the model may get."""
    return int(setup.get("max_batch_size", 1))


def within(most: int, counts: list[int]) -> list[slice]:
    """Which requests go together, in their order: so many rows at most, and one that has more by itself."""
    runs, begin, rows = [], 0, 0
    for at, count in enumerate(counts):
        if at > begin and rows + count > most:
            runs.append(slice(begin, at))
            begin, rows = at, 0
        rows += count
    return [*runs, slice(begin, len(counts))]


def remind(name: str, setup: dict[str, Any], *said: tuple[str, str, Any]) -> None:
    """Says in the log which of a class's own caps do not hold: its word, uncork's key, and the value in uncork's unit.

    A worker hears the caps that hold and not who said them: one that has its default is taken for one that nobody has said.
    """
    defaults = {"max_batch_size": 128, "max_latency_ms": 100, "runners": 1}
    defaults["stuck_after_ms"] = max(10_000, 10 * setup.get("max_latency_ms", 0))
    words, keys = [], []
    for word, key, value in said:
        is_known = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_other = is_known and value > 0 and value != setup.get(key)
        if (is_other or value is UNKNOWN) and setup.get(key) == defaults[key]:
            words.append(word)
            keys.append(f"{key} = {f'{value:.15g}' if is_known else '...'}")
    if words:
        told = f"{name} says {listing(words)} of its own, which uncork does not go by; write {listing(keys)} for this model"
        print(f"warning: {told}", file=sys.stderr)


def listing(words: list[str]) -> str:
    """Words with an "and" before the last."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def first(calls: list[dict[str, Any]], word: str) -> Any:
    """What the first call that has this word says."""
    return next((call[word] for call in calls if word in call), None)


def thousand(seconds: Any) -> Any:
    """Seconds in milliseconds, where they are known and are a limit."""
    return seconds * 1e3 if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else seconds


# --- LitServe --------------------------------------------------------------------------------------------------------


class LitServe(Foreign):
    """A `LitAPI`, a class or one that is made already; batched where it says so."""

    def __init__(self, found: Any, name: str, setup: dict[str, Any]) -> None:
        self.name = name
        api: Any = found() if inspect.isclass(found) else found
        kind = type(api)
        self._api = api
        calls = settings(kind, ("LitServer", kind.__name__))
        if getattr(api, "stream", False) or any(call.get("stream") for call in calls):
            raise Failed(f"{name} streams its answers (stream=True); uncork serves answers in one piece")
        if getattr(api, "spec", None) is not None or any(call.get("spec") for call in calls):
            raise Failed(f"{name} has a spec of LitServe's, such as OpenAI's; uncork serves its own protocols")
        refuse_streams(name, predict=api.predict, decode_request=api.decode_request, encode_response=api.encode_response)
        self._refuse_guards(api, calls)
        own_batches = any(
            method in vars(base) for base in kind.__mro__[: kind.__mro__.index(lit_api(kind))] for method in ("batch", "unbatch")
        )
        self._is_batched = (
            own_batches or getattr(api, "max_batch_size", 1) > 1 or any(takes_batches(call) for call in calls)
        )
        sizes = [getattr(api, "max_batch_size", 1), *(call.get("max_batch_size") for call in calls)]
        remind(
            name,
            setup,
            ("max_batch_size", "max_batch_size", next((size for size in sizes if size not in (None, 1) or size is UNKNOWN), None)),
            ("timeout", "max_latency_ms", thousand(first(calls, "timeout"))),
            ("workers_per_device", "runners", first(calls, "workers_per_device")),
        )
        # A model of pydantic's is what FastAPI makes of the JSON.
        request = list(inspect.signature(api.decode_request).parameters.values())[:1]
        annotation = typing.get_type_hints(api.decode_request).get(request[0].name) if request else None
        if request:
            self._refuse_forms(request[0], annotation)
        self._validated: Any = getattr(annotation, "model_validate", None)
        if inspect.isclass(annotation) and hasattr(annotation, "__dataclass_fields__"):
            from pydantic import TypeAdapter  # type: ignore[import-not-found, unused-ignore]

            self._validated = TypeAdapter(annotation).validate_python
        self._wants = {
            method: "context" in inspect.signature(getattr(api, method)).parameters
            for method in ("decode_request", "batch", "predict", "unbatch", "encode_response")
        }
        api.device = device()
        api.pre_setup(spec=None)
        api.setup(api.device)

    def _refuse_guards(self, api: Any, calls: list[dict[str, Any]]) -> None:
        """Refuses what decides who may ask, or whether it is well: left out silently, it would leave the model open."""
        if callable(getattr(api, "authorize", None)):
            said = f"{self.name} has authorize()"
        elif any(call.get("middlewares") for call in calls):
            said = f"{self.name} is served with middlewares"
        elif os.environ.get("LIT_SERVER_API_KEY"):
            said = "LIT_SERVER_API_KEY is set"
        elif type(api).health is not lit_api(type(api)).health:
            raise Failed(f"{self.name} has health(), which uncork does not ask: take it out, and let predict() raise where it is not well")
        else:
            return
        raise Failed(f"{said}, which uncork does not run: take it out, and say in tokens_file who may ask")

    def _refuse_forms(self, request: inspect.Parameter, annotation: Any) -> None:
        """Refuses what is no JSON, by what FastAPI makes of the annotation; headers are read there by nobody but FastAPI either."""
        kinds = names(annotation) if inspect.isclass(annotation) else set()
        default = type(request.default)
        is_field = default.__module__ == "fastapi.params" and default.__name__ != "Body"
        if is_field or kinds & {"fastapi:UploadFile", "starlette:UploadFile"}:
            asked = "a file or a field of a form"
        elif kinds & {"builtins:str", "builtins:int", "builtins:float", "builtins:bytes"}:
            asked = "a parameter of the query"
        elif (annotation is None or "starlette:Request" in kinds) and (
            read := attributes(self._api.decode_request, request.name) & {"headers", "query_params", "cookies", "url", "client"}
        ):
            asked = f"the request's {min(read)}"
        else:
            return
        raise Failed(
            f"decode_request of {self.name} takes {asked}; uncork gives it the body's JSON alone. A class of your own can read "
            "the rest: preprocess(request) has .body, .headers and .query"
        )

    def _own(self, method: str, value: Any, context: Any) -> Any:
        function = getattr(self._api, method)
        return awaited(function(value, context=context) if self._wants[method] else function(value))

    def decoded(self, body: memoryview, head: memoryview) -> Any:
        """What `decode_request` makes of the JSON; with the context that goes along."""
        context: dict[str, Any] = {}
        request = parse(body)
        if self._validated:
            try:
                request = self._validated(request)
            except ValueError as error:  # as of pydantic, which FastAPI answers so
                raise Refused(str(error), 422) from error
        return self._own("decode_request", request, context), context

    def called(self, rows: list[Any]) -> Any:
        """All at once where the class takes batches, else one by one."""
        contexts = [context for _, context in rows]
        if self._is_batched:
            batch = self._own("batch", [value for value, _ in rows], contexts)
            answers = self._own("unbatch", self._own("predict", batch, contexts), contexts)
        else:
            answers = self.each(lambda row: self._own("predict", *row), rows)
        if len(answers) != len(contexts):
            return answers
        return [answer if isinstance(answer, BaseException) else (answer, context) for answer, context in zip(answers, contexts)]

    def finished(self, answer: Any) -> Any:
        """What `encode_response` makes of it."""
        return self._own("encode_response", *answer)


def lit_api(kind: type) -> Any:
    """LitServe's own base of a class."""
    return next(base for base in kind.__mro__ if base.__module__.partition(".")[0] == "litserve")


# --- MOSEC -----------------------------------------------------------------------------------------------------------


class Mosec(Foreign):
    """A `Worker`; it gets lists where the module appends it with a `max_batch_size`."""

    def __init__(self, found: Any, name: str, setup: dict[str, Any]) -> None:
        self.name = name
        if "mosec:SSEWorker" in names(found):
            raise Failed(f"{name} streams its answers (SSEWorker); uncork serves answers in one piece")
        appended = settings(found, ("append_worker", "Runtime"))
        stages = list(dict.fromkeys(call["0"] for call in appended if "0" in call))
        if len(stages) > 1:
            raise Failed(f"{name} is one of several stages ({', '.join(stages)}); uncork serves one class: join them in one forward()")
        refuse_streams(name, forward=found.forward, deserialize=found.deserialize, serialize=found.serialize)
        self._is_batched = any(takes_batches(call) for call in appended)
        remind(
            name,
            setup,
            ("max_batch_size", "max_batch_size", first(appended, "max_batch_size")),
            ("num", "runners", first(appended, "num")),
            ("timeout", "stuck_after_ms", thousand(first(appended, "timeout"))),
        )
        self._worker = worker = found()
        worker.worker_id = 1
        worker.max_batch_size = setup.get("max_batch_size", 1) if self._is_batched else 1
        worker.stage = found.__name__
        examples = list(worker.multi_examples) or ([worker.example] if worker.example else [])
        for example in examples:
            worker.forward(example)
        if examples:
            self.example_of = self._requested(examples[0])

    def _requested(self, example: Any) -> bytes | None:
        """The request that `deserialize` makes this example of, where `serialize` turns it back: MOSEC's examples are what comes after."""
        try:
            one = example[0] if self._is_batched else example
            body: bytes = self._worker.serialize(one)
            if isinstance(body, bytes) and bool(self._worker.deserialize(body) == one):
                return body
        except Exception:
            pass
        print(f"{self.name} ran its example, of which no request can be made: uncork learns no times of it", file=sys.stderr)
        return None

    def refusal(self, error: BaseException) -> BaseException:
        """A `ClientError` or a `ValidationError`, with MOSEC's words."""
        kinds = names(type(error))
        if "mosec:ClientError" in kinds or "mosec:ValidationError" in kinds:
            return Refused(f"{getattr(error, 'msg', '')}: {error}", 422 if "mosec:ValidationError" in kinds else 400)
        return super().refusal(error)

    def decoded(self, body: memoryview, head: memoryview) -> Any:
        """What `deserialize` makes of the bytes."""
        return self._worker.deserialize(bytes(body))

    def called(self, rows: list[Any]) -> Any:
        """`forward`, on all or on each."""
        return self._worker.forward(rows) if self._is_batched else self.each(self._worker.forward, rows)

    def finished(self, answer: Any) -> Any:
        """What `serialize` makes of it."""
        return Answer(self._worker.serialize(answer), self._worker.resp_mime_type)


# --- BentoML ---------------------------------------------------------------------------------------------------------


class BentoML(Foreign):
    """A service of one method; batches are joined and split by BentoML's own rules where the method is batchable."""

    def __init__(self, service: Any, method: str | None, name: str, setup: dict[str, Any]) -> None:
        apis = service.apis
        if method is None:
            able = [key for key, api in apis.items() if api.batchable] or list(apis)
            if len(able) != 1:
                raise Failed(f"{name} has {len(able)} methods: say which one is the model, {name}.{able[0] if able else 'method'}")
            method = able[0]
        self.name = f"{name}.{method}"
        self._api = api = apis[method]
        if api.is_stream:
            raise Failed(f"{self.name} streams its answer; uncork serves answers in one piece")
        if service.dependencies:
            raise Failed(f"{name} depends on other services; uncork serves one class: make them in its __init__")
        if getattr(api, "ctx_param", None):
            raise Failed(f"{self.name} asks for BentoML's context; uncork has none")
        if service.middlewares:
            raise Failed(f"{name} has middlewares, which uncork does not run: take them out; who may ask is said in tokens_file")
        refuse_streams(self.name, it=api.func)
        # Sizes and times are always there: those of BentoML's own defaults are what nobody said.
        latency = api.max_latency_ms if api.batchable and api.max_latency_ms != 60_000 else None
        timeout = service.config.get("traffic", {}).get("timeout")
        remind(
            self.name,
            setup,
            ("max_batch_size", "max_batch_size", api.max_batch_size if api.batchable and api.max_batch_size != 100 else None),
            ("max_latency_ms", "max_latency_ms", latency),
            ("timeout", "max_latency_ms", None if latency else thousand(timeout)),
            ("workers", "runners", service.config.get("workers")),
        )
        self._most_rows = most_rows(setup)
        from _bentoml_sdk.io_models import ARGS, KWARGS, IORootModel
        from bentoml._internal.runner.container import AutoContainer

        self._extra, self._root, self._container = (ARGS, KWARGS), IORootModel, AutoContainer
        self._service = service.inner()

    def decoded(self, body: memoryview, head: memoryview) -> Any:
        """The arguments, checked by the method's own annotations."""
        spec = self._api.input_spec
        given = spec.model_validate_json(bytes(body) or b"{}")
        if getattr(spec, "__root_input__", False):
            return [given.root if isinstance(given, self._root) else given], {}
        named = {key: getattr(given, key) for key in type(given).model_fields}
        args, kwargs = self._extra
        places = [named.pop(args)] if args in named else []
        named.update(named.pop(kwargs, {}))
        return places, named

    def called(self, rows: list[Any]) -> Any:
        """The method: once for all requests where it is batchable."""
        if not self._api.batchable:
            return self.each(lambda row: awaited(self._api.func(self._service, *row[0], **row[1])), rows)
        if any(len(places) + len(named) != 1 for places, named in rows):
            raise Failed(f"{self.name} is batchable and takes several arguments; BentoML batches one")
        values = [places[0] if places else next(iter(named.values())) for places, named in rows]
        answers: list[Any] = []
        for run in within(self._most_rows, list(map(self._rows_of, values))):
            try:
                answers += self._together(values[run], rows[run][0])
            except Exception as error:
                if run.stop - run.start > 1:
                    raise
                answers.append(self.refusal(error))
        return answers

    def _rows_of(self, value: Any) -> int:
        """How many rows a request has; one that BentoML cannot count runs alone, which shows what is wrong with it."""
        try:
            size = self._container.get_batch_size(value, self._api.batch_dim[0])
            return int(size[0] if isinstance(size, tuple) else size)
        except Exception:
            return self._most_rows

    def _together(self, values: list[Any], like: Any) -> Any:
        """One call for these requests, which name their argument as the first does."""
        into, out_of = self._api.batch_dim
        batch, indices = self._container.batches_to_batch(values, into)
        places, named = like
        result = awaited(self._api.func(self._service, *([batch] if places else []), **({} if places else {next(iter(named)): batch})))
        return self._container.batch_to_batches(result, indices, out_of)

    def finished(self, answer: Any) -> Any:
        """The answer, by the method's own annotation."""
        spec = self._api.output_spec
        if not issubclass(spec, self._root):
            return Answer(answer.model_dump_json().encode(), "application/json")
        made = answer if isinstance(answer, self._root) else spec(answer)
        plain = made.model_dump()
        if isinstance(plain, (str, bytes)):
            return Answer(plain, spec.mime_type())
        return Answer(made.model_dump_json().encode(), "application/json")


# --- KServe and TorchServe -------------------------------------------------------------------------------------------


class KServe(Foreign):
    """A `Model`: requests of nothing but `instances` run together where `predictions` are all of the answer, others each by itself."""

    def __init__(self, found: Any, name: str, setup: dict[str, Any]) -> None:
        self.name = name
        self._most_rows = most_rows(setup)
        refuse_streams(name, preprocess=found.preprocess, predict=found.predict, postprocess=found.postprocess)
        methods = (found.preprocess, found.predict, found.postprocess)
        own = [method for method in methods if getattr(method, "__module__", "").partition(".")[0] != "kserve"]
        for method in [method for method in own if method is not found.postprocess][:1]:
            asked = "".join(map(str, list(inspect.signature(method).parameters.values())[1:2]))
            if "InferRequest" in asked and "dict" not in asked.lower():
                told = f"{method.__name__} of {name} takes an InferRequest; uncork gives it the body's JSON"
                raise Failed(f"{told}, as KServe's v1 protocol does: let it take a dict")
        # Headers are one caller's: what reads them can be asked for one request only.
        self._reads_headers = any(reads(method, 2) for method in own)
        required = [
            one
            for one in inspect.signature(found).parameters.values()
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        self._model = found(*[name] * min(1, len(required)))
        self._model.load()
        # Whether an answer to several requests could be split so far.
        self._joins = True

    def decoded(self, body: memoryview, head: memoryview) -> Any:
        """The JSON; with the headers where the class reads them."""
        payload = parse(body)
        return (payload, Request(b"", json.loads(bytes(head) or b"{}")).headers) if self._reads_headers else payload

    def _one(self, payload: Any, headers: dict[str, str] | None = None) -> Any:
        model, headers = self._model, headers or {}
        return told(model.postprocess, told(model.predict, told(model.preprocess, payload, headers), headers), headers)

    def called(self, rows: list[Any]) -> Any:
        """One call for all where their instances can be joined, and the answer split; else each is answered as if it were alone."""
        if self._reads_headers:
            return self.each(lambda row: self._one(*row), rows)
        if len(rows) > 1 and self._joins and all(
            isinstance(row, dict) and list(row) == ["instances"] and isinstance(row["instances"], list) for row in rows
        ):
            answers: list[Any] = []
            for run in within(self._most_rows, [len(row["instances"]) for row in rows]):
                answers += self._together(rows[run])
            return answers
        return self.each(self._one, rows)

    def _together(self, rows: list[Any]) -> list[Any]:
        """One call for these, where an answer to several could be split so far."""
        if len(rows) > 1 and self._joins:
            lengths = [len(row["instances"]) for row in rows]
            predictions = predictions_of(self._one({"instances": [one for row in rows for one in row["instances"]]}), sum(lengths))
            if predictions is not None:
                ends = list(itertools.accumulate(lengths))
                return [{"predictions": predictions[end - length : end]} for length, end in zip(lengths, ends)]
            # What else it says is of all of them, and of nobody alone: no caller's answer may depend on the others.
            self._joins = False
        return self.each(self._one, rows)


def predictions_of(answer: Any, count: int) -> list[Any] | None:
    """The predictions of so many instances, where they are all that an answer has."""
    if not isinstance(answer, dict) or list(answer) != ["predictions"]:
        return None
    predictions = answer["predictions"]
    if hasattr(predictions, "tolist"):
        predictions = predictions.tolist()
    return predictions if isinstance(predictions, list) and len(predictions) == count else None


def told(function: Any, payload: Any, headers: dict[str, str]) -> Any:
    """Calls a method of KServe's, whose second argument is headers where it takes them."""
    return awaited(function(payload, headers) if len(inspect.signature(function).parameters) > 1 else function(payload))


class TorchServe(Foreign):
    """A handler of `initialize` and `handle`, or a function `handle(data, context)`: both take a list of `{"body": …}`."""

    def __init__(self, found: Any, name: str, setup: dict[str, Any]) -> None:
        self.name = name
        place = str(setup.get("target")).partition(":")[0]
        self._context = Context(setup, name, os.path.dirname(os.path.abspath(place)) if place.endswith(".py") else os.getcwd())
        if inspect.isfunction(found):
            self._handle = found
            # Without data it is asked to get ready.
            found(None, self._context)
        else:
            handler = found()
            self._handle = handler.handle
            handler.initialize(self._context)

    def decoded(self, body: memoryview, head: memoryview) -> Any:
        """The body parsed where it is JSON, bytes where its type is another; with what came before it.

        A type that many clients send without being told to says nothing: such a body is parsed where it can be.
        """
        request = Request(b"", json.loads(bytes(head) or b"{}"))
        kind = request.content_type.partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            raise Refused(f"{self.name} takes no forms here: send the file as the body, with its own content type", 415)
        if kind == "application/json" or kind.endswith("+json"):
            return {"body": parse(body)}, request
        if kind in ("", "application/x-www-form-urlencoded"):
            try:
                return {"body": parse(body)}, request
            except BadInput:
                pass
        return {"body": bytearray(body)}, request

    def called(self, rows: list[Any]) -> Any:
        """`handle`, on all; each answer with what was said of its status and type."""
        responses = self._context.take([request for _, request in rows])
        answers = self._handle([data for data, _ in rows], self._context)
        if hasattr(answers, "tolist"):
            answers = answers.tolist()
        if not isinstance(answers, (list, tuple)) or len(answers) != len(rows):
            return answers
        return [answer if isinstance(answer, BaseException) else (answer, response) for answer, response in zip(answers, responses)]

    def finished(self, answer: Any) -> Any:
        """An answer, with a type and a status where the handler has set them."""
        body, response = answer
        return Answer(body, response.content_type, response.status) if response.is_set else body


def takes_context(function: Any) -> bool:
    """Whether a function is a handler of TorchServe's, which has to be given the data and the context."""
    required = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    return required == ["data", "context"] or (function.__name__ == "handle" and len(required) == 2)


class Response:
    """What a handler has set of one answer."""

    content_type: str | None = None
    status = 200

    @property
    def is_set(self) -> bool:
        """Whether it is another than every answer has."""
        return self.content_type is not None or self.status != 200


class Context:
    """What a handler of TorchServe's is told of itself and of the requests of a batch."""

    def __init__(self, setup: dict[str, Any], name: str, folder: str) -> None:
        self.model_name = setup.get("model", name)
        self.manifest = manifest(self.model_name, folder)
        self._settings_path = os.path.join(folder, self.manifest["model"].get("configFile", "model-config.yaml"))
        self.system_properties = {
            "model_dir": folder,
            "gpu_id": 0 if device() != "cpu" else None,
            "batch_size": most_rows(setup),
            "server_name": "uncork",
            "server_version": __version__,
            "limit_max_image_pixels": True,
        }
        self.metrics = Metrics()
        self._requests: list[Request] = []
        self._responses: list[Response] = []
        self._has_complained = False

    @functools.cached_property
    def model_yaml_config(self) -> dict[str, Any]:
        """The model's own settings; read where the handler asks for them, since not every Python reads YAML."""
        return settings_of(self._settings_path)

    def take(self, requests: list[Request]) -> list[Response]:
        """Begins a batch."""
        self._requests, self._responses = requests, [Response() for _ in requests]
        return self._responses

    @property
    def request_ids(self) -> dict[int, str]:
        """The requests' names, by their place in the batch."""
        return {place: request.request_id for place, request in enumerate(self._requests)}

    def get_request_id(self, idx: int = 0) -> str | None:
        """A request's name."""
        return self.request_ids.get(idx)

    def get_request_header(self, idx: int, key: str) -> str | None:
        """A header, its name in any case; `None` where the request has none, or nobody asks for one yet."""
        return self.get_all_request_header(idx).get(key.lower())

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        """The headers, their names in lower case."""
        return self._requests[idx].headers if 0 <= idx < len(self._requests) else {}

    def set_response_content_type(self, idx: int, value: str) -> None:
        """The type of an answer."""
        self._responses[idx].content_type = value

    def get_response_content_type(self, idx: int) -> str | None:
        """What has been set."""
        return self._responses[idx].content_type

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """The status of an answer; HTTP/2 has no phrases."""
        self._responses[idx].status = code

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """The status of all answers of the batch."""
        for response in self._responses:
            response.status = code

    def get_response_status(self, idx: int) -> tuple[int, str]:
        """What has been set."""
        return self._responses[idx].status, ""

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """A header of an answer; of those there is only the type."""
        if key.lower() == "content-type":
            self.set_response_content_type(idx, value)
        elif not self._has_complained:
            self._has_complained = True
            print(f"warning: {self.model_name} sets the header {key}; answers of uncork have none but their content type", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the context has no {name}: uncork has what docs/python.md names of TorchServe's")


class Metrics:
    """Takes what a handler counts, and forgets it: uncork's own metrics are at /metrics."""

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Forgets a value."""

    add_counter = add_time = add_size = add_percent = add_error = add_metric = _nothing
    add_or_update = update = reset = _nothing

    def _one(self, *_: Any, **__: Any) -> Metrics:
        """One metric, which forgets as well."""
        return self

    add_metric_to_cache = get_metric = _one


# What the file with a model's weights is called.
WEIGHTS = (".pt", ".pth", ".pt2", ".bin", ".safetensors", ".onnx")


def manifest(name: str, folder: str) -> dict[str, Any]:
    """What an archive says of itself where one is unpacked in the folder; else the weights, where the folder has one file of them."""
    path = os.path.join(folder, "MAR-INF", "MANIFEST.json")
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
        return {**found, "model": found.get("model", {})}
    model = {"modelName": name, "modelVersion": "1.0"}
    weights = [one for one in sorted(os.listdir(folder)) if one.endswith(WEIGHTS)]
    if len(weights) == 1:
        model["serializedFile"] = weights[0]
    return {"model": model}


def settings_of(path: str) -> dict[str, Any]:
    """A model's own settings; none where there is no such file."""
    if not os.path.isfile(path):
        return {}
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise Failed(f"{path} holds the model's settings, and this Python cannot read YAML; install PyYAML for {sys.executable}") from error
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file) or {}


# --- What a module says when it is run -------------------------------------------------------------------------------


def settings(kind: type, callees: tuple[str, ...]) -> list[dict[str, Any]]:
    """Keywords of the calls of these names in a class's module, and the name of the first argument as "0".

    Both servers are told under `if __name__ == "__main__"` whether a class takes batches, which nobody runs here.
    """
    try:
        with open(inspect.getfile(kind), encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, TypeError, SyntaxError):
        return []
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if callee not in callees:
            continue
        given: dict[str, Any] = {word.arg: said(word.value, kind) for word in node.keywords if word.arg}
        if callee in ("append_worker", "Runtime"):
            given.update({word: said(value, kind) for word, value in zip(("num", "max_batch_size"), node.args[1:])})
        if node.args and isinstance(node.args[0], ast.Name):
            given["0"] = node.args[0].id
        found.append(given)
    return found


UNKNOWN: Any = True
"""Something is said, and only running the module would tell what."""


def said(value: ast.expr, kind: type) -> Any:
    """What an expression in a class's module stands for: a constant, or a name that the module has."""
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.Name):
        return getattr(sys.modules.get(kind.__module__), value.id, UNKNOWN)
    if isinstance(value, ast.Attribute):
        return getattr(said(value.value, kind), value.attr, UNKNOWN)
    return UNKNOWN


def takes_batches(call: dict[str, Any]) -> bool:
    """Whether the class is given more than one row at a time. A size that is not known is one of batches: nobody else says one."""
    size = call.get("max_batch_size")
    return (size or 1) > 1 if isinstance(size, (int, type(None))) and size is not UNKNOWN else True
