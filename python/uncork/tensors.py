"""Models that declare `inputs`: their rows come and go as NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .model import Failed, Model, article
from .wire import Buffer, Tensor, elements, joined

try:
    import numpy as np
except ImportError as missing:
    raise Failed(f"a class with `inputs` gets NumPy arrays, and NumPy is not installed for {sys.executable}: {missing}") from missing

TYPES = {
    "BOOL": "?",
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}


class Tensors(Model):
    """A class or a function of the user's, arrays in and out: alone where there is one, else by name in a dict."""

    def __init__(self, call: Callable[[Any], Any], instance: Any, name: str) -> None:
        self._call = call
        self._name = name
        self._example = getattr(instance, "example", None)
        for hook in ("preprocess", "postprocess"):
            if hasattr(instance, hook):
                raise Failed(f"{name} declares inputs and has {hook}: a class has one or the other, since tensors come as they are")
        self.inputs = declared(instance.inputs, "inputs", name)
        outputs = getattr(instance, "outputs", None)
        self._is_found = outputs is None
        self.outputs = self._found() if outputs is None else declared(outputs, "outputs", name)
        if fields(self.inputs) == fields(Model.inputs) and fields(self.outputs) == fields(Model.outputs):
            raise Failed(f"{name} takes BYTES `request` and gives BYTES `answer`, as a model does that takes any body: rename one of them")

    def _found(self) -> list[dict[str, Any]]:
        """The outputs as a batch of one row shows them; where an input has a free length, so has each of them along all axes."""
        arrays = {one["name"]: zeros(one) for one in self.inputs}
        given = self.example()
        if given:
            arrays = {tensor.name: array_of(tensor) for tensor in given}
        answer = self._call(alone(arrays))
        named = answer if isinstance(answer, Mapping) else {"output": answer}
        found = []
        for name, value in named.items():
            array = np.asarray(value)
            datatype = (
                "BYTES" if array.dtype.kind in "OSU" else next((key for key, code in TYPES.items() if np.dtype(code) == array.dtype), None)
            )
            if datatype is None or array.ndim == 0:
                raise Failed(
                    f"{self._name} answers {name} as {article(str(array.dtype))} array of shape {list(array.shape)}; declare `outputs`"
                )
            # One run cannot tell which lengths follow those of the inputs.
            is_free = any(-1 in one["shape"][1:] for one in self.inputs)
            found.append({"name": name, "datatype": datatype, "shape": [-1, *(-1 if is_free else length for length in array.shape[1:])]})
        return found

    def run(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """Answers a batch; its arrays are views of what was received."""
        arrays = {name: array_of(tensor) for name, tensor in tensors.items()}
        rows = len(next(iter(arrays.values())))
        answer = self._call(alone(arrays))
        if not isinstance(answer, Mapping):
            if len(self.outputs) > 1:
                wanted = ", ".join(one["name"] for one in self.outputs)
                told = "has several outputs, which were found by a run" if self._is_found else "declares several outputs"
                raise Failed(f"{self._name} returned {article(type(answer).__name__)}; it {told}: return a dict with {wanted}", "row")
            answer = {self.outputs[0]["name"]: answer}
        return [self._output(told, answer, rows) for told in self.outputs]

    def _output(self, told: dict[str, Any], answer: Mapping[str, Any], rows: int) -> Tensor:
        name, datatype = told["name"], told["datatype"]
        if name not in answer:
            raise Failed(f"{self._name} returned no {name}, but {', '.join(map(str, answer)) or 'nothing'}", "row")
        try:
            # NumPy's own strings would lose zero bytes at their ends.
            array = np.asarray(answer[name], dtype=object if datatype == "BYTES" else None)
        except ValueError as error:
            raise Failed(f"{self._name} returned {name} with rows of different shapes", "row") from error
        shape = list(array.shape)
        if not shape or shape[0] != rows:
            got = f"{shape[0]} rows" if shape else "no rows"
            raise Failed(f"{self._name} returned {got} of {name} for {rows}; the first axis has to have one for each", "row")
        if len(shape) != len(told["shape"]) or any(want not in (-1, have) for want, have in zip(told["shape"][1:], shape[1:])):
            raise self._other(f"{name} of shape {shape}", told["shape"])
        if datatype == "BYTES":
            return Tensor(name, datatype, shape, joined(strings(array, f"{self._name} returned {name}")))
        wanted = np.dtype(TYPES[datatype])
        if array.dtype != wanted:
            if not np.can_cast(array.dtype, wanted, "same_kind"):
                raise self._other(f"{name} as {array.dtype}", datatype)
            array = self._cast(name, array, wanted, datatype)
        return Tensor(name, datatype, shape, np.ascontiguousarray(array).data.cast("B") if array.size else b"")

    def _other(self, got: str, wanted: Any) -> Failed:
        """What says that an output is not as it should be, and who said how that is."""
        whose = f"a run found {wanted}: declare `outputs` if that varies" if self._is_found else f"it declares {wanted}"
        return Failed(f"{self._name} returned {got}; {whose}", "row")

    def _cast(self, name: str, array: Any, wanted: Any, datatype: str) -> Any:
        """The same numbers in the output's type; one that it has no room for is an error, and not another number."""
        if np.can_cast(array.dtype, wanted, "safe") or not array.size:
            return array.astype(wanted)
        if wanted.kind in "iu":
            # Python compares whole numbers of any size.
            least, most = int(array.min()), int(array.max())
            room = np.iinfo(wanted)
            lost = [one for one in (least, most) if not room.min <= one <= room.max]
            if not lost:
                return array.astype(wanted)
            raise Failed(f"{self._name} returned {lost[0]} in {name}, for which {datatype} has no room", "row")
        with np.errstate(over="ignore", under="ignore"):
            cast = array.astype(wanted)
        lost = np.isfinite(array) & ~np.isfinite(cast)
        if lost.any():
            raise Failed(f"{self._name} returned {array[lost].flat[0]} in {name}, for which {datatype} has no room", "row")
        return cast

    def example(self) -> list[Tensor]:
        """The example: an array alone, or arrays by name, with rows or one row without."""
        given = self._example() if callable(self._example) else self._example
        if given is None:
            return []
        named = given if isinstance(given, Mapping) else {self.inputs[0]["name"]: given}
        tensors = []
        for told in self.inputs:
            if told["name"] not in named:
                raise Failed(f"the example of {self._name} has no {told['name']}")
            kind = object if told["datatype"] == "BYTES" else TYPES[told["datatype"]]
            array = np.asarray(named[told["name"]], dtype=kind)
            if array.ndim == len(told["shape"]) - 1:
                array = array[None]
            where = f"the example of {self._name} has {told['name']}"
            data = joined(strings(array, where)) if kind is object else np.ascontiguousarray(array).tobytes()
            tensors.append(Tensor(told["name"], told["datatype"], list(array.shape), data))
        return tensors


def declared(given: Any, what: str, name: str) -> list[dict[str, Any]]:
    """`{"x": ("FP32", [64])}` as the protocol has it: shapes are those of a row."""
    advice = f'{name}.{what} has to be like {{"x": ("FP32", [64])}}: a type of the Open Inference Protocol, and the shape of one row'
    if not isinstance(given, Mapping) or not given:
        raise Failed(f"{advice}; it is {given!r}"[:500])
    told = []
    for key, value in given.items():
        try:
            datatype, shape = value
            lengths = [int(length) for length in shape]
        except (TypeError, ValueError) as error:
            raise Failed(f"{advice}; {key} is {value!r}"[:500]) from error
        if datatype not in TYPES and datatype != "BYTES":
            raise Failed(f"{advice}; {datatype!r} is none: {', '.join([*TYPES, 'BYTES'])}")
        told.append({"name": str(key), "datatype": datatype, "shape": [-1, *lengths]})
    return told


def zeros(told: dict[str, Any]) -> Any:
    """One made-up row."""
    shape = [max(1, length) if length < 0 else length for length in told["shape"]]
    if told["datatype"] == "BYTES":
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, TYPES[told["datatype"]])


def array_of(tensor: Tensor) -> Any:
    """A tensor as an array, which may be written to."""
    if tensor.datatype == "BYTES":
        array: Any = np.empty(tensor.shape, dtype=object)
        array.ravel()[:] = [bytes(one) for one in elements(tensor.data, array.size)]
        return array
    if tensor.datatype not in TYPES:
        raise Failed(f"{tensor.name} is {tensor.datatype}, which NumPy lacks")
    return np.frombuffer(tensor.data, TYPES[tensor.datatype]).reshape(tensor.shape)


def alone(arrays: dict[str, Any]) -> Any:
    """The only array itself; else all by name."""
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


def fields(specs: list[dict[str, Any]]) -> list[tuple[str, str, list[int]]]:
    """Names, types and shapes."""
    return [(one["name"], one["datatype"], one["shape"]) for one in specs]


def strings(array: Any, where: str) -> list[Buffer]:
    """The elements of a BYTES tensor. What is neither bytes nor text is no element: its words for people say nothing to a program."""
    found: list[Buffer] = []
    for value in array.ravel().tolist():
        if isinstance(value, str):
            try:
                found.append(value.encode())
            except UnicodeEncodeError as error:
                raise Failed(f"{where} with a text that UTF-8 cannot say: {error}", "row") from error
        elif isinstance(value, (bytes, bytearray)):
            found.append(value)
        elif isinstance(value, memoryview):
            found.append(value.tobytes())
        else:
            raise Failed(f"{where} with {article(type(value).__name__)} among its elements; an element of BYTES is bytes or str", "row")
    return found
