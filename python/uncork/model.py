"""A user's model: found by the name that `python = "app:Class"` gives it, loaded, and run on batches.

What can go wrong with a model is said here, in a sentence for its author or for a caller.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import json
import math
import operator
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import Answer, BadInput, Request, parse
from .wire import LENGTH, Buffer, Tensor, elements, joined

if TYPE_CHECKING:
    from types import ModuleType

# What a caller is told, at most.
MOST_TOLD = 2_000


class Failed(Exception):
    """A call that failed: whose fault it is, as *failed* of the protocol has it, and what only the log gets."""

    def __init__(self, message: str, kind: str = "failed", rows: Sequence[tuple[int, str]] = (), log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.rows = list(rows)
        self.log = log

    @classmethod
    def of(cls, error: BaseException, doing: str) -> Failed:
        """What an exception of the model's own code comes to."""
        if isinstance(error, BadInput):
            return cls(words(error), "input", [(row, words(error)) for row in row_of(error)])
        if isinstance(error, SystemExit):
            return cls(f"the model called exit({error.code!r}) while {doing}", "row", log=trace(error))
        return cls(f"{doing} failed: {name_of(error)}", "row", log=trace(error))


class Refused(BadInput):
    """A refusal in words that has another status than 400."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def words(error: BaseException) -> str:
    """What an exception says to a caller."""
    try:
        said = str(error)[:MOST_TOLD]
    except Exception:
        said = ""
    return said or "the model does not take this, and does not say why"


def row_of(error: BadInput) -> list[int]:
    """The row that it names, if it names one: a NumPy integer is one too."""
    try:
        row = operator.index(error.row)  # type: ignore[arg-type]
    except TypeError:
        return []
    return [row] if row >= 0 else []


def name_of(error: BaseException) -> str:
    """An exception in a line, for the model's author."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def trace(error: BaseException) -> str:
    """The traceback, without the frames of this package in front."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


# --- What the worker runs --------------------------------------------------------------------------------------------


class Model:
    """What the worker runs: tensors in, tensors out."""

    platform = "python"
    inputs: list[dict[str, Any]] = [{"name": "request", "datatype": "BYTES", "shape": [-1]}]
    outputs: list[dict[str, Any]] = [{"name": "answer", "datatype": "BYTES", "shape": [-1]}]
    hooks: list[str] = []
    takes_whole = False
    """Whether `instances` of a body are the model's to read, and no list of rows to uncork."""

    def run(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """Answers a batch."""
        raise NotImplementedError

    def prepare(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """The hook in front."""
        raise NotImplementedError

    def finish(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """The hook behind."""
        raise NotImplementedError

    def example(self) -> list[Tensor]:
        """One request that the model takes; empty where there is none."""
        return []


class Opaque(Model):
    """A model that takes requests of any kind: each is decoded, all run together, each answer is encoded."""

    name: str
    example_of: Any = None

    def decode(self, item: memoryview) -> Any:
        """A row, from a request; an exception is that request's alone."""
        return parse(item[4 + LENGTH.unpack_from(item)[0] :])

    def call(self, rows: list[Any]) -> Any:
        """As many answers as rows; an exception is the batch's."""
        raise NotImplementedError

    def encode(self, answer: Any) -> Buffer:
        """An answer of the protocol; an exception is that request's alone."""
        return encoded(answer)

    def run(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """Answers a batch: what is wrong with one request stays its own."""
        request = tensors["request"]
        items = elements(request.data, request.shape[0])
        answers: list[Any] = [None] * len(items)
        rows, places = [], []
        for place, item in enumerate(items):
            try:
                rows.append(self.decode(item))
                places.append(place)
            except BaseException as error:
                answers[place] = encoded(error)
        if rows:
            try:
                results = counted(self.call(rows), len(rows), self.name)
            except BaseException as error:
                if len(items) > 1:
                    raise self.failed(error, places) from error
                results = [error]
            for place, result in zip(places, results):
                try:
                    answers[place] = self.encode(result)
                except BaseException as error:
                    answers[place] = encoded(error)
        return [Tensor("answer", "BYTES", [len(answers)], joined(answers))]

    def failed(self, error: BaseException, places: list[int]) -> Failed:
        """What an exception of the whole batch comes to; the row that it names is one of those that were decoded."""
        told = error if isinstance(error, Failed) else Failed.of(error, f"{self.name} on {len(places)} rows")
        told.rows = [(places[row], message) for row, message in told.rows if 0 <= row < len(places)]
        return told

    def example(self) -> list[Tensor]:
        """The example as a request: bytes as they are, anything else as JSON."""
        given = self.example_of() if callable(self.example_of) else self.example_of
        if given is None:
            return []
        body = given if isinstance(given, bytes) else _encode(given).encode()
        request = Tensor("request", "BYTES", [1], joined([NO_HEAD + body]))
        # What comes of it is what a batch gets.
        return self.prepare({"request": request}, True) if "prepare" in self.hooks else [request]


class Rows(Opaque):
    """A class or a function of the user's: JSON rows in, a list of answers out, with hooks or without.

    Where uncork sends hooks beside batches, `has_calls`, rows and answers are pickled in between; else they run with the batch.
    """

    def __init__(self, call: Callable[[list[Any]], Any], instance: Any, name: str, has_calls: bool) -> None:
        self._call = call
        self.name = name
        self.example_of = getattr(instance, "example", None)
        self._preprocess = getattr(instance, "preprocess", None)
        self._postprocess = getattr(instance, "postprocess", None)
        hooks = [hook for hook, has in (("prepare", self._preprocess), ("finish", self._postprocess)) if has]
        self.hooks = hooks if has_calls else []

    def decode(self, item: memoryview) -> Any:
        """JSON, or what `preprocess` makes or has made of the request."""
        if self._preprocess is None:
            return super().decode(item)
        if not self.hooks:
            return self._preprocess(requested(item))
        # What a caller sent is never unpickled, whatever uncork takes this worker for.
        if item[:4] != _KEPT:
            raise RuntimeError("a row came that preprocess has not seen")
        return pickle.loads(item[4:])

    def call(self, rows: list[Any]) -> Any:
        """The user's own code."""
        return self._call(rows)

    def encode(self, answer: Any) -> Buffer:
        """An answer, or what `postprocess` makes or will make one of."""
        if self._postprocess is None or isinstance(answer, BaseException):
            return encoded(answer)
        if not self.hooks:
            return encoded(self._postprocess(answer))
        return _KEPT + pickled(answer, "what the model answered")

    def prepare(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """`preprocess` on each request."""
        assert self._preprocess is not None
        parts = []
        request = tensors["request"]
        for row, item in enumerate(elements(request.data, request.shape[0])):
            try:
                parts.append(_KEPT + pickled(self._preprocess(requested(item)), "what preprocess returned"))
            except BaseException as error:
                told = Failed.of(error, f"preprocess of {self.name}")
                # The words are its caller's where the row is bad; else they are for the log.
                told.rows = [(row, str(told) if told.kind == "input" else told.log or str(told))]
                raise told from error
        return [Tensor("request", "BYTES", [len(parts)], joined(parts))]

    def finish(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """`postprocess` on each answer; refusals pass by."""
        assert self._postprocess is not None
        parts: list[Buffer] = []
        answer = tensors["answer"]
        for item in elements(answer.data, answer.shape[0]):
            if item[:4] != _KEPT:
                parts.append(item)
                continue
            try:
                parts.append(encoded(self._postprocess(pickle.loads(item[4:]))))
            except BaseException as error:
                parts.append(encoded(error))
        return [Tensor("answer", "BYTES", [len(parts)], joined(parts))]


def requested(item: memoryview) -> Request:
    """A request, of its element."""
    head = 4 + LENGTH.unpack_from(item)[0]
    return Request(bytes(item[head:]), json.loads(bytes(item[4:head]) or b"{}"))


# Marks an answer that is still an object: no length of an answer's JSON is so large.
_KEPT = b"\xff\xff\xff\xff"


def pickled(value: Any, what: str) -> bytes:
    """An object on its way to or from a hook."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(f"{what} cannot be sent to another process: {error}; return plain values or NumPy arrays") from error


def counted(results: Any, rows: int, name: str) -> Sequence[Any]:
    """The answers as a list, one for each row."""
    if hasattr(results, "tolist"):
        results = results.tolist()
    elif inspect.iscoroutine(results):
        results.close()
        raise Failed(f"{name} is async; uncork calls plain functions, several at once where `runners` says so")
    elif inspect.isgenerator(results):
        results = list(results)
    if not isinstance(results, (list, tuple)):
        kind = type(results).__name__
        raise Failed(f"{name} returned {article(kind)} for {rows} rows; it has to return a list with an answer for each", "row")
    if len(results) != rows:
        raise Failed(f"{name} returned {len(results)} answers for {rows} rows; it has to return one for each, in their order", "row")
    return results


def article(noun: str) -> str:
    """A noun with its article."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


# --- Answers ---------------------------------------------------------------------------------------------------------

NO_HEAD = LENGTH.pack(2) + b"{}"
NUMBERS_HEAD = LENGTH.pack(16) + b'{"numbers":true}'


def _plain(value: Any) -> Any:
    """What JSON can say of a value of a library's own."""
    for method in ("tolist", "model_dump", "to_dict", "_asdict", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "__dataclass_fields__"):
        import dataclasses

        return dataclasses.asdict(value)
    raise TypeError(f"JSON cannot say {article(type(value).__name__)}; return plain values, or an uncork.Answer with a body of your own")


# NaN is no JSON: ValueError.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode


# A list of as many floats is sent as they are: to write JSON takes twelve times as long.
_MANY = 8
_FLOATS = {float}


def encoded(answer: Any) -> bytes:
    """An answer, or an exception, as an element of `answer`."""
    if type(answer) is list and len(answer) >= _MANY and set(map(type, answer)) == _FLOATS and math.isfinite(sum(answer)):
        return NUMBERS_HEAD + struct.pack(f"<{len(answer)}d", *answer)
    if isinstance(answer, (dict, list, str, float, int)):
        return NO_HEAD + _encode(answer).encode()
    if isinstance(answer, BadInput):
        return _framed({"status": getattr(answer, "status", 400)}, words(answer).encode())
    if isinstance(answer, Failed):
        return _framed({"status": 500}, (answer.log or str(answer)).encode())
    if isinstance(answer, BaseException):
        return _framed({"status": 500}, trace(answer).encode())
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return _framed({"content_type": "application/octet-stream"}, bytes(answer))
    if isinstance(answer, Answer):
        return _of_its_kind(answer.body, answer.content_type, answer.status)
    return NO_HEAD + _encode(answer).encode()


def _of_its_kind(body: Any, content_type: str | None, status: int) -> bytes:
    if isinstance(body, str) and (content_type or status != 200):
        body, content_type = body.encode(), content_type or "text/plain; charset=utf-8"
    elif isinstance(body, (bytes, bytearray, memoryview)):
        body, content_type = bytes(body), content_type or "application/octet-stream"
    else:
        body = _encode(body).encode()
        # A status of an error without a type is one of our own, whose words are put into JSON or into the log.
        content_type = content_type or ("application/json" if status >= 400 else None)
    head: dict[str, Any] = {} if status == 200 else {"status": status}
    if content_type:
        head["content_type"] = content_type
    return _framed(head, body)


def _framed(head: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    return LENGTH.pack(len(text)) + text + body


# --- From a name to a model ------------------------------------------------------------------------------------------


def load(setup: dict[str, Any]) -> Model:
    """The model that `target` names, loaded."""
    target = setup.get("target")
    if not target:
        raise Failed('no model was named: python = "app:Class" or `uncork serve app.py:Class`')
    place, _, attribute = str(target).partition(":")
    module = imported(place)
    found, name = named(module, place, attribute)
    from . import shapes

    foreign = shapes.recognised(found, name, setup)
    if foreign is not None:
        return foreign
    return native(found, name, bool(setup.get("hooks")))


def imported(place: str) -> ModuleType:
    """The module, by its name or its file's."""
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(place)
        except BaseException as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name and f"{place}.".startswith(f"{error.name}.")
            if missing:
                raise Failed(f"there is no module {place} in {os.getcwd()}, nor in {sys.executable}") from error
            raise not_imported(place, error) from error
    path = os.path.abspath(place)
    if not os.path.isfile(path):
        raise Failed(f"there is no file {path}")
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "uncork" or name in sys.modules:
        raise Failed(f"{place} has the name of a module that is loaded already; call it something else than {name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise not_imported(place, error) from error
    return module


def not_imported(place: str, error: BaseException) -> Failed:
    """Why the user's module could not be imported."""
    if isinstance(error, SystemExit):
        return Failed(
            f'{place} calls exit({error.code!r}) when it is imported; put that under `if __name__ == "__main__":`', log=trace(error)
        )
    advice = ""
    if isinstance(error, ModuleNotFoundError):
        advice = f"; install it for {sys.executable}, or set python_path to the Python that has it"
    whole = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    return Failed(f"importing {place} failed: {name_of(error)}{advice}", log=whole)


def named(module: ModuleType, place: str, attribute: str) -> tuple[Any, str]:
    """What the module has under that name; without one, the only class or function of its own that could be meant."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    if not attribute:
        if len(own) == 1:
            return getattr(module, own[0]), own[0]
        raise Failed(f"say which class of {place} is the model: {place}:{own[0] if own else 'Class'}{listed(own)}")
    found: Any = module
    for part in attribute.split("."):
        if part in getattr(found, "apis", ()):
            return found, attribute  # a method of BentoML's: its service knows it
        try:
            found = getattr(found, part)
        except AttributeError as error:
            near = difflib.get_close_matches(attribute, own, 1)
            hint = f"; did you mean {near[0]}?" if near else listed(own)
            raise Failed(f"{place} has no {attribute}{hint}") from error
    return found, attribute


def listed(names: Iterable[str]) -> str:
    """What there is instead."""
    names = list(names)[:10]
    return f"; it has {', '.join(names)}" if names else "; it has no class and no function of its own"


def native(found: Any, name: str, has_calls: bool) -> Model:
    """A class of ours, loaded, or a function."""
    if inspect.isclass(found):
        if not any("__call__" in vars(base) for base in found.__mro__):
            raise Failed(f"{name} has no __call__(self, rows); it takes a list of rows and returns a list with an answer for each")
        required = [
            parameter.name
            for parameter in parameters(found)
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        if required:
            raise Failed(f"{name} needs {', '.join(required)} to be made; uncork makes it without arguments, and calls load()")
        instance = found()
        if hasattr(instance, "load"):
            instance.load()
    else:
        instance = found
    if not callable(instance):
        raise Failed(
            f"{name} is {article(type(instance).__name__)}, which cannot be called; name a class with __call__(self, rows), or a function"
        )
    call = instance if inspect.isroutine(instance) else instance.__call__
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise Failed(f"{name} is async; uncork calls plain functions, several at once where `runners` says so")
    if inspect.isgeneratorfunction(call):
        raise Failed(f"{name} yields its answers; uncork serves one answer for a request, so return a list")
    taken = parameters(call)
    positional = [one for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one.name for one in positional if one.default is one.empty]
    if len(needed) > 1 or not (positional or any(one.kind is one.VAR_POSITIONAL for one in taken)):
        raise Failed(f"{name} has to take one argument, the rows of a batch; it takes {', '.join(needed) or 'none'}")
    if getattr(instance, "inputs", None) is None:
        return Rows(call, instance, name, has_calls)
    from .tensors import Tensors

    return Tensors(call, instance, name)


def parameters(function: Any) -> list[inspect.Parameter]:
    """What a function takes; nothing where it cannot be asked, as some that are written in C."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("rows", inspect.Parameter.POSITIONAL_ONLY)]
