"""Clients that nobody here wrote, with their defaults first, against a running server: `clients.py PROGRAM`.

Each check compares answers with those of the files beside the models, not only statuses.
"""

import asyncio
import base64
import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import httpx
import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from kserve import InferInput, InferRequest, InferenceRESTClient, RESTConfig
from tritonclient.utils import InferenceServerException

from answers import DTYPES, ROOT, TEXTS, case, close


class Server:
    """`uncork serve` on a free port, until the end of a `with`."""

    def __init__(self, program, *arguments):
        self.command = [program, "serve", "--http", "127.0.0.1:0", "--max-latency-ms", "2000", *map(str, arguments)]

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://([0-9.]+:[0-9]+)", line)
        if not found:
            self.log.seek(0)
            raise SystemExit(f"the server did not start: {line}{self.log.read().decode()}")
        return found[1]

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


def triton_inputs(arrays, **how):
    inputs = []
    for name, values in arrays.items():
        datatype = {v: k for k, v in DTYPES.items()}[values.dtype.type]
        inputs.append(triton.InferInput(name, list(values.shape), datatype))
        inputs[-1].set_data_from_numpy(values, **how)
    return inputs


def check_triton(url, model, inputs, outputs):
    """tritonclient: its defaults (binary both ways), JSON, gzip and deflate both ways, timeouts, priorities, threads."""
    client = triton.InferenceServerClient(url, concurrency=8)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata(model)
    assert {i["name"] for i in metadata["inputs"]} == set(inputs), metadata
    assert client.get_model_config(model)["max_batch_size"] > 0
    assert any(entry["name"] == model for entry in client.get_model_repository_index())

    def right(answer, names=outputs):
        return all(close(answer.as_numpy(name), outputs[name]) for name in names)

    default = client.infer(model, triton_inputs(inputs))
    assert right(default), default.get_response()
    as_json = client.infer(
        model,
        triton_inputs(inputs, binary_data=False),
        outputs=[triton.InferRequestedOutput(name, binary_data=False) for name in outputs],
        request_id="seven",
    )
    assert right(as_json) and as_json.get_response()["id"] == "seven"
    first = next(iter(outputs))
    mixed = client.infer(model, triton_inputs(inputs), outputs=[triton.InferRequestedOutput(first, binary_data=False)])
    assert right(mixed, [first]) and len(mixed.get_response()["outputs"]) == 1
    for coding in ["gzip", "deflate"]:
        packed = client.infer(model, triton_inputs(inputs), request_compression_algorithm=coding, response_compression_algorithm=coding)
        assert right(packed), coding
    assert right(client.infer(model, triton_inputs(inputs), priority=1, timeout=1_000_000))
    assert right(client.infer(model, triton_inputs(inputs), priority=4_000_000_000))
    try:
        client.infer(model, triton_inputs(inputs), outputs=[triton.InferRequestedOutput("nothing")])
        raise AssertionError("an unknown output was answered")
    except InferenceServerException as error:
        assert "unknown output 'nothing'" in str(error), error
    asynchronous = [client.async_infer(model, triton_inputs(inputs)) for _ in range(32)]
    assert all(right(answer.get_result()) for answer in asynchronous)

    def from_a_thread(_):
        own = triton.InferenceServerClient(url)
        return all(right(own.infer(model, triton_inputs(inputs))) for _ in range(20))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(from_a_thread, range(8)))
    stats = client.get_inference_statistics(model)["model_stats"][0]
    rows = len(next(iter(inputs.values())))
    assert stats["inference_stats"]["success"]["count"] >= 198 and stats["inference_count"] >= 198 * rows, stats


def check_repository(client, model, inputs):
    """tritonclient: a model is unloaded and loaded."""
    index = lambda: {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    client.unload_model(model)
    assert index()[model] == "UNAVAILABLE" and not client.is_model_ready(model), index()
    client.load_model(model)
    assert index()[model] == "READY" and client.infer(model, triton_inputs(inputs))
    for refused in [lambda: client.load_model("nobody"), lambda: client.load_model(model, config="{}")]:
        try:
            refused()
            raise AssertionError("it was loaded")
        except InferenceServerException as error:
            assert "there is no such model" in str(error) or "'config' is not served" in str(error), error


def check_classes(url, model, inputs, output, want):
    """tritonclient: the likeliest classes."""
    client = triton.InferenceServerClient(url)
    for is_binary in [True, False]:
        wanted = [triton.InferRequestedOutput(output, binary_data=is_binary, class_count=3)]
        top = client.infer(model, triton_inputs(inputs), outputs=wanted).as_numpy(output)
        best = [int((text if isinstance(text, str) else text.decode()).split(":")[1]) for text in top[:, 0]]
        assert top.shape == (len(want), 3) and best == list(want.argmax(axis=1)), top


async def check_triton_aio(url, model, inputs, outputs):
    """tritonclient's asyncio client."""
    async with triton_aio.InferenceServerClient(url) as client:
        answers = await asyncio.gather(*(client.infer(model, triton_inputs(inputs)) for _ in range(16)))
        assert all(close(a.as_numpy(name), want) for a in answers for name, want in outputs.items())


async def check_kserve(url, model, inputs, outputs):
    """kserve's REST client, protocol v2: probes, binary and JSON."""
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=1))
    base = f"http://{url}"
    assert await client.is_server_live(base) and await client.is_server_ready(base)
    assert await client.is_model_ready(base, model)
    for is_binary in [True, False]:
        tensors = []
        for name, values in inputs.items():
            datatype = {v: k for k, v in DTYPES.items()}[values.dtype.type]
            tensors.append(InferInput(name, list(values.shape), datatype))
            tensors[-1].set_data_from_numpy(values, binary_data=is_binary)
        parameters = {"binary_data_output": True} if is_binary else None
        request = InferRequest(model_name=model, infer_inputs=tensors, parameters=parameters)
        answer = await client.infer(base, request, model_name=model)
        have = {output.name: output.as_numpy() for output in answer.outputs}
        for name, want in outputs.items():
            if want.dtype == np.object_:
                have[name] = np.array([t if isinstance(t, bytes) else t.encode() for t in have[name].flatten()], dtype=object).reshape(
                    want.shape
                )
            assert close(have[name], want), (name, have[name])
    await client.close()


async def check_kserve_v1(url, model, inputs, outputs):
    """kserve's REST client with its default protocol, v1: probes and rows."""
    client = InferenceRESTClient(RESTConfig(retries=1))
    base = f"http://{url}"
    assert await client.is_server_live(base) and await client.is_model_ready(base, model)
    plain = {name: [t.decode() for t in v.flatten()] if v.dtype == np.object_ else v.tolist() for name, v in inputs.items()}
    columns = {name: np.reshape(plain[name], v.shape).tolist() if v.dtype == np.object_ else plain[name] for name, v in inputs.items()}
    rows = len(next(iter(inputs.values())))
    instances = [{name: column[row] for name, column in columns.items()} for row in range(rows)]
    answer = await client.infer(base, {"instances": instances}, model_name=model)
    assert agree({name: [row[name] if len(outputs) > 1 else row for row in answer["predictions"]] for name in outputs}, outputs)
    try:
        await client.infer(base, {"instances": [{"nothing": 1}]}, model_name=model)
        raise AssertionError("an unknown input was answered")
    except httpx.HTTPStatusError as error:
        assert "unknown input 'nothing'" in str(error), error
    await client.close()
    return columns


def check_tensorflow_serving(url, model, columns, outputs):
    """The requests of TensorFlow Serving's own documents and tutorials, as `requests` and `json` make them."""

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://{url}/v1/models/{model}{path}", data)) as answer:
            return json.load(answer)

    status = ask("")["model_version_status"]
    assert [(s["version"], s["state"], s["status"]["error_code"]) for s in status] == [("1", "AVAILABLE", "OK")], status
    signature = ask("/metadata")["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert set(signature["inputs"]) == set(columns) and set(signature["outputs"]) == set(outputs), signature
    answer = ask(":predict", {"signature_name": "serving_default", "inputs": columns})["outputs"]
    assert agree(answer if len(outputs) > 1 else {name: answer for name in outputs}, outputs)
    if len(columns) == 1:
        (only,) = columns.values()
        for path in [":predict", "/versions/1:predict"]:
            assert agree({name: ask(path, {"instances": only})["predictions"] for name in outputs}, outputs)
            assert agree({name: ask(path, {"inputs": only})["outputs"] for name in outputs}, outputs)
    else:
        in_base64 = {
            name: [[{"b64": base64.b64encode(t.encode()).decode()} for t in row] for row in column]
            if isinstance(column[0][0], str)
            else column
            for name, column in columns.items()
        }
        assert agree(ask(":predict", {"inputs": in_base64})["outputs"], outputs)
    try:
        ask("/versions/7:predict", {"inputs": columns})
        raise AssertionError("an unknown version was answered")
    except urllib.error.HTTPError as error:
        message = json.load(error)["error"]
        assert error.code == 404 and message.startswith(f"Servable not found for request: Specific({model}, 7)"), message


def agree(have, outputs):
    """Whether lists by name are these outputs."""

    def same(values, want):
        if want.dtype == np.object_:
            values = np.array(values, dtype=object)
            return values.shape == want.shape and all(a.encode() == b for a, b in zip(values.flatten(), want.flatten()))
        return close(np.array(values, dtype=want.dtype), want)

    return all(same(have[name], want) for name, want in outputs.items())


def main(program):
    with Server(program, ROOT / "examples/digits/digits.onnx", ROOT / f"tests/models/pipelines/{TEXTS}.onnx") as url:
        digits, texts = case("digits"), case(f"pipelines/{TEXTS}")
        for model, (inputs, outputs) in {"digits": digits, TEXTS: texts}.items():
            check_triton(url, model, inputs, outputs)
            asyncio.run(check_triton_aio(url, model, inputs, outputs))
            asyncio.run(check_kserve(url, model, inputs, outputs))
            columns = asyncio.run(check_kserve_v1(url, model, inputs, outputs))
            check_tensorflow_serving(url, model, columns, outputs)
            print(f"  {model}: tritonclient, its asyncio client, kserve and TensorFlow Serving's requests are answered rightly")
        check_repository(triton.InferenceServerClient(url), "digits", digits[0])
        name, want = next(iter(digits[1].items()))
        check_classes(url, "digits", digits[0], name, want)


if __name__ == "__main__":
    main(sys.argv[1])
