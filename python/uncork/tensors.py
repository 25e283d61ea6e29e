"""Models that declare `inputs`: their rows come and go as NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .model import Failed, Model, article
from .wire import Tensor, elements, joined

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
        self.outputs = declared(outputs, "outputs", name) if outputs is not None else self._found()

    def _found(self) -> list[dict[str, Any]]:
        """The outputs as a batch of one row shows them."""
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
            found.append({"name": name, "datatype": datatype, "shape": [-1, *array.shape[1:]]})
        return found

    def run(self, tensors: dict[str, Tensor], rehearsal: bool) -> list[Tensor]:
        """Answers a batch; its arrays are views of what was received."""
        arrays = {name: array_of(tensor) for name, tensor in tensors.items()}
        rows = len(next(iter(arrays.values())))
        answer = self._call(alone(arrays))
        if not isinstance(answer, Mapping):
            if len(self.outputs) > 1:
                wanted = ", ".join(one["name"] for one in self.outputs)
                raise Failed(
                    f"{self._name} returned {article(type(answer).__name__)}; it declares several outputs: return a dict with {wanted}"
                )
            answer = {self.outputs[0]["name"]: answer}
        return [self._output(told, answer, rows) for told in self.outputs]

    def _output(self, told: dict[str, Any], answer: Mapping[str, Any], rows: int) -> Tensor:
        name, datatype = told["name"], told["datatype"]
        if name not in answer:
            raise Failed(f"{self._name} returned no {name}, but {', '.join(map(str, answer)) or 'nothing'}")
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
            raise Failed(f"{self._name} returned {name} of shape {shape}; it declares {told['shape']}", "row")
        if datatype == "BYTES":
            return Tensor(name, datatype, shape, joined([as_bytes(one) for one in array.ravel().tolist()]))
        wanted = np.dtype(TYPES[datatype])
        if array.dtype != wanted:
            if not np.can_cast(array.dtype, wanted, "same_kind"):
                raise Failed(f"{self._name} returned {name} as {array.dtype}; it declares {datatype}", "row")
            array = array.astype(wanted)
        return Tensor(name, datatype, shape, np.ascontiguousarray(array).data.cast("B") if array.size else b"")

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
            data = joined([as_bytes(one) for one in array.ravel().tolist()]) if kind is object else np.ascontiguousarray(array).tobytes()
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


def as_bytes(value: Any) -> bytes:
    """An element of a BYTES tensor."""
    return value if isinstance(value, bytes) else str(value).encode()
