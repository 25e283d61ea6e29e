"""The Open Inference Protocol: requests from arrays, and arrays from answers, in JSON and in binary."""

import json
import re

import numpy

# The protocol's names of types, and numpy's.
DATATYPES = {
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16", "BOOL": "bool", "BYTES": "object",
    **{f"{sign.upper()}INT{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
NAMES = {name: datatype for datatype, name in DATATYPES.items()}


def from_json(tensor):
    kind, data = DATATYPES[tensor["datatype"]], tensor["data"]
    if kind != "object":
        # NaN and the infinities are texts.
        data = [float(x) if isinstance(x, str) else x for x in data]
    return numpy.array(data, kind).reshape(tensor["shape"])


def error_words(data):
    """The text of {"error": "..."} if a person can act on it: several words, and nothing of the program's insides."""
    try:
        words = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    is_plain = isinstance(words, str) and len(words.split()) >= 3
    return words if is_plain and not re.search(r"panicked|\.rs:\d|unwrap|RUST_BACKTRACE", words) else None


def encode(request, is_binary):
    inputs, tail = [], b""
    for name, array in request:
        tensor = {"name": name, "datatype": NAMES[array.dtype.name], "shape": list(array.shape)}
        if array.dtype == object:
            texts = [x if isinstance(x, bytes) else str(x).encode() for x in array.ravel()]
            raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        else:
            raw = array.tobytes()
        if is_binary:
            tensor["parameters"] = {"binary_data_size": len(raw)}
            tail += raw
        else:
            tensor["data"] = [x.decode() for x in texts] if array.dtype == object else [number(x) for x in array.ravel().tolist()]
        inputs.append(tensor)
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": is_binary}}).encode()
    return (head + tail, {"Inference-Header-Content-Length": str(len(head))}) if is_binary else (head, {"Content-Type": "application/json"})


def number(x):
    if isinstance(x, float) and not numpy.isfinite(x):
        return "NaN" if x != x else "Infinity" if x > 0 else "-Infinity"
    return x


def decode(data, header):
    length = int(header) if header else len(data)
    at, outputs = length, []
    for tensor in json.loads(data[:length])["outputs"]:
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is None:
            array = from_json(tensor)
        else:
            raw, at = data[at : at + size], at + size
            if tensor["datatype"] == "BYTES":
                texts, place = [], 0
                while place < len(raw):
                    end = place + 4 + int.from_bytes(raw[place : place + 4], "little")
                    texts.append(raw[place + 4 : end])
                    place = end
                array = numpy.array(texts + [None], object)[:-1].reshape(tensor["shape"])
            else:
                array = numpy.frombuffer(raw, DATATYPES[tensor["datatype"]]).reshape(tensor["shape"])
        outputs.append((tensor["name"], tensor["datatype"], array))
    return outputs
