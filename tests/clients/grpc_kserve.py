"""kserve's client of gRPC: `grpc_kserve.py PROGRAM`. It is alone: its messages and tritonclient's cannot be in one process."""

import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

from answers import ROOT, TEXTS, case, close
from grpc_server import DTYPES, Server


async def check_kserve(url, model, inputs, outputs):
    """kserve's gRPC client: probes, raw and contents."""
    client = InferenceGRPCClient(url)
    assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready(model)
    for is_raw in [True, False]:
        tensors = []
        for name, values in inputs.items():
            tensors.append(InferInput(name, list(values.shape), DTYPES[values.dtype]))
            tensors[-1].set_data_from_numpy(values, binary_data=is_raw)
        answer = await client.infer(InferRequest(model_name=model, infer_inputs=tensors))
        for output in answer.outputs:
            want, have = outputs[output.name], output.as_numpy()
            if want.dtype == np.object_:
                have = np.array([t if isinstance(t, bytes) else t.encode() for t in have.flatten()], dtype=object)
            assert close(have.reshape(want.shape), want), (output.name, have)


def main(program):
    caps = ["--max-latency-ms", "2000"]
    with Server(program, *caps, ROOT / "examples/digits/digits.onnx", ROOT / f"tests/models/pipelines/{TEXTS}.onnx") as (_, url):
        for model, name in {"digits": "digits", TEXTS: f"pipelines/{TEXTS}"}.items():
            asyncio.run(check_kserve(url, model, *case(name)))
    print("  kserve is answered rightly over gRPC, raw and in contents")


if __name__ == "__main__":
    main(sys.argv[1])
