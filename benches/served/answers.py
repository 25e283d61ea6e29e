"""Whether an answer is the expected one."""

import numpy
from protocol import NAMES


def columns(model, name, value):
    """An output of onnxruntime as an array: of a sequence of maps, a column for each label. None for what is no tensor."""
    if isinstance(value, list):
        if not value or not isinstance(value[0], dict):
            return None
        labels = model.labels.get(name) or list(value[0])
        return numpy.array([[row[label] for label in labels] for row in value], numpy.float32)
    return numpy.asarray(value, object if isinstance(value, str) or numpy.asarray(value).dtype.kind in "UO" else None)


def text(x):
    return x.decode(errors="replace") if isinstance(x, bytes) else str(x)


def difference(model, found, expected, tolerance):
    """How an answer differs from the expected one, a list of (name, array); None if it does not."""
    names = [name for name, _, _ in found]
    if names != [name for name, _ in expected]:
        return f"outputs {names}, not {[name for name, _ in expected]}"
    for (name, datatype, array), (_, right) in zip(found, expected):
        if right is None:
            continue
        wanted = NAMES["object" if right.dtype.kind in "SUO" else right.dtype.name]
        if datatype != wanted:
            return f"'{name}' is {datatype}, not {wanted}"
        if list(array.shape) != list(right.shape):
            return f"'{name}' has the shape {list(array.shape)}, not {list(right.shape)}"
        if wanted == "BYTES":
            unequal = [(text(a), text(b)) for a, b in zip(array.ravel(), right.ravel()) if text(a) != text(b)]
            if unequal:
                return f"'{name}' has {unequal[0][0]!r}, not {unequal[0][1]!r}"
            continue
        with numpy.errstate(all="ignore"):
            array, right = numpy.atleast_1d(array), numpy.atleast_1d(right)
            a, b = (array, right) if wanted in ("INT64", "UINT64") else (array.astype(numpy.float64), right.astype(numpy.float64))
            if numpy.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
                continue
            finite = numpy.abs(b[numpy.isfinite(b)].astype(numpy.float64))
            scale = float(finite.max()) if finite.size else 1.0
            relative, absolute = tolerance(datatype, scale)
            off = numpy.abs(a.astype(numpy.float64) - b.astype(numpy.float64))
            if datatype.startswith(("FP", "BF")):
                # onnxruntime masks with the lowest number, ONNX with minus infinity.
                lowest = float(numpy.finfo(right.dtype).min) if right.dtype.name != "bfloat16" else -numpy.inf
                off[numpy.isneginf(a) & (b == lowest)] = 0
            bad = ~((a == b) | (numpy.isnan(a.astype(float)) & numpy.isnan(b.astype(float))) | (off <= absolute + relative * numpy.abs(b.astype(float))))
        if bad.any():
            where = int(numpy.argmax(bad.ravel()))
            return f"'{name}' {list(right.shape)} has {a.ravel()[where]}, not {b.ravel()[where]}, at {where}; {int(bad.sum())} of {bad.size} differ"
    return None


def tolerance_of(model, is_recorded):
    """Relative and absolute tolerance by type, and by the largest of the expected numbers.

    A recorded test brings its own. The sums of other numbers are rounded in another order, which is relative to the largest; integers of
    eight bits and what is computed from them may be one step away.
    """
    relative, absolute = model.tolerance

    def of(datatype, scale):
        if is_recorded and model.is_test:
            return relative, absolute
        if datatype in ("INT8", "UINT8"):
            return 0, 1 if model.is_quantised else 0
        if datatype.startswith(("INT", "UINT", "BOOL")):
            return 0, 0
        if model.of_largest is not None:
            return model.of_largest, model.of_largest * max(scale, 1e-4)
        coarse = {"FP16": 1e-2, "BF16": 3e-2}.get(datatype, 2e-2 if model.is_quantised else 1e-3)
        return max(relative, coarse), max(absolute, coarse / 10) * max(scale, 1e-3)

    return of


def shown(request):
    """A request in words: names, types and shapes, and values if they are few."""
    parts = []
    for name, array in request:
        few = f" {array.ravel().tolist()}" if array.size <= 6 else ""
        parts.append(f"{name} {NAMES[array.dtype.name]} {list(array.shape)}{few}")
    return "; ".join(parts)


