"""Clients of gRPC that nobody here wrote, with their defaults first, against a running server: `grpc_clients.py PROGRAM`.

Each check compares answers with those of the files beside the models, not only statuses.
"""

import asyncio
import concurrent.futures
import pathlib
import queue
import subprocess
import sys
import tempfile
import urllib.request

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from answers import ROOT, TEXTS, case, close
from grpc_server import DTYPES, HALF, Server


def triton_inputs(arrays):
    inputs = []
    for name, values in arrays.items():
        inputs.append(triton.InferInput(name, list(values.shape), DTYPES[values.dtype]))
        inputs[-1].set_data_from_numpy(values)
    return inputs


def right(answer, outputs):
    return all(close(answer.as_numpy(name), want) for name, want in outputs.items())


def refused(call, status, words):
    """That a call fails so; what it was told."""
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == f"StatusCode.{status}" and words in error.message(), error
        return error.message()
    except grpc.RpcError as error:
        assert error.code().name == status and words in error.details(), error
        return error.details()
    raise AssertionError(f"it was answered, not {status}")


def check_triton(url, model, inputs, outputs):
    """tritonclient: its defaults, parameters, gzip and deflate, callbacks, 8 threads, statistics."""
    client = triton.InferenceServerClient(url)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    assert client.get_server_metadata().name == "uncork"
    metadata = client.get_model_metadata(model)
    assert {i.name for i in metadata.inputs} == set(inputs) and list(metadata.versions) == ["1"], metadata
    config = client.get_model_config(model).config
    assert config.max_batch_size > 0 and [i.name for i in config.input] == [i.name for i in metadata.inputs]
    assert config.dynamic_batching.priority_levels > 1
    assert any((m.name, m.state) == (model, "READY") for m in client.get_model_repository_index().models)

    default = client.infer(model, triton_inputs(inputs), request_id="seven")
    assert right(default, outputs) and default.get_response().id == "seven", default.get_response()
    first = next(iter(outputs))
    one = client.infer(model, triton_inputs(inputs), outputs=[triton.InferRequestedOutput(first)])
    assert right(one, {first: outputs[first]}) and len(one.get_response().outputs) == 1
    for coding in ["gzip", "deflate"]:
        assert right(client.infer(model, triton_inputs(inputs), compression_algorithm=coding), outputs), coding
    assert right(client.infer(model, triton_inputs(inputs), priority=1, timeout=1_000_000, client_timeout=5), outputs)
    assert right(client.infer(model, triton_inputs(inputs), priority=4_000_000_000), outputs)
    assert right(client.infer(model, triton_inputs(inputs), model_version="1", parameters={"mine": "x", "n": 3}), outputs)
    unknown = [triton.InferRequestedOutput("nothing")]
    refused(lambda: client.infer(model, triton_inputs(inputs), outputs=unknown), "INVALID_ARGUMENT", "unknown output 'nothing'")
    refused(lambda: client.infer("nobody", triton_inputs(inputs)), "NOT_FOUND", "unknown model 'nobody'")
    refused(lambda: client.get_system_shared_memory_status(), "UNIMPLEMENTED", "no method")

    answers = queue.Queue()
    for _ in range(32):
        client.async_infer(model, triton_inputs(inputs), callback=lambda result, error: answers.put((result, error)))
    assert all(error is None and right(result, outputs) for result, error in (answers.get(timeout=20) for _ in range(32)))

    def from_a_thread(_):
        return all(right(client.infer(model, triton_inputs(inputs)), outputs) for _ in range(20))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(from_a_thread, range(8)))
    rows = len(next(iter(inputs.values())))
    stats = client.get_inference_statistics(model).model_stats[0]
    assert stats.inference_stats.success.count >= 190 and stats.inference_count >= 190 * rows, stats
    assert stats.execution_count == sum(batch.compute_infer.count for batch in stats.batch_stats)


def check_stream(url, model, inputs, outputs):
    """tritonclient: a stream, in its order, with an error in the middle, and with final answers marked."""
    answers = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for i in range(40):
            name = "nobody" if i == 20 else model
            client.async_stream_infer(name, triton_inputs(inputs), request_id=str(i), enable_empty_final_response=i == 39)
        for i in range(40):
            result, error = answers.get(timeout=20)
            if i == 20:
                assert result is None and "unknown model 'nobody'" in error.message(), error
                continue
            assert error is None and result.get_response().id == str(i) and right(result, outputs), (i, error)
            is_final = result.get_response().parameters["triton_final_response"].bool_param
            assert is_final == (i == 39), i
        client.stop_stream()


def check_classes(url, model, inputs, output, want):
    """tritonclient: the likeliest classes."""
    client = triton.InferenceServerClient(url)
    wanted = [triton.InferRequestedOutput(output, class_count=3)]
    top = client.infer(model, triton_inputs(inputs), outputs=wanted).as_numpy(output)
    best = [int(text.decode().split(":")[1]) for text in top[:, 0]]
    assert top.shape == (len(want), 3) and best == list(want.argmax(axis=1)), top


def check_contents(url, model, inputs, outputs):
    """Triton's own stubs: elements as contents, and the answers too."""
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(url))
    request = service_pb2.ModelInferRequest(model_name=model)
    fields = {"FP32": "fp32_contents", "INT64": "int64_contents", "BYTES": "bytes_contents"}
    for name, values in inputs.items():
        tensor = request.inputs.add(name=name, datatype=DTYPES[values.dtype], shape=values.shape)
        getattr(tensor.contents, fields[tensor.datatype]).extend(values.flatten().tolist())
    answer = stub.ModelInfer(request)
    assert not answer.raw_output_contents
    for output in answer.outputs:
        want = outputs[output.name]
        have = np.array(list(getattr(output.contents, fields[output.datatype])), dtype=want.dtype).reshape(output.shape)
        assert close(have, want), (output.name, have)


async def check_triton_aio(url, model, inputs, outputs):
    """tritonclient's asyncio client."""
    async with triton_aio.InferenceServerClient(url) as client:
        answers = await asyncio.gather(*(client.infer(model, triton_inputs(inputs)) for _ in range(16)))
        assert all(right(answer, outputs) for answer in answers)


def check_health(url, model):
    """grpcio-health-checking: check and watch."""
    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(url))
    for service in ["", "inference.GRPCInferenceService", model]:
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
    refused(lambda: stub.Check(health_pb2.HealthCheckRequest(service="nobody")), "NOT_FOUND", "called so")
    watching = stub.Watch(health_pb2.HealthCheckRequest())
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    watching.cancel()
    unknown = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    unknown.cancel()


def check_reflection(url, model, inputs, outputs):
    """grpcio-reflection: a call made of nothing but what the server says; and what it says is what Triton's own files say."""
    channel = grpc.insecure_channel(url)
    database = ProtoReflectionDescriptorDatabase(channel)
    assert "inference.GRPCInferenceService" in database.get_services()
    pool = DescriptorPool(database)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    method = service.methods_by_name["ModelReady"]
    call = channel.unary_unary(
        f"/{service.full_name}/{method.name}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    assert call(GetMessageClass(method.input_type)(name=model)).ready

    def same(ours, theirs):
        for field in ours.fields:
            other = theirs.fields_by_name.get(field.name)
            # Newer than their files: a double as a parameter's value.
            if other is None:
                assert ours.name == "InferParameter", (ours.full_name, field.name)
                continue
            have, want = ((f.number, f.type, f.is_repeated) for f in (field, other))
            assert have == want, (ours.full_name, field.name, have, want)
            if field.message_type:
                same(field.message_type, other.message_type)
            if field.enum_type:
                assert {v.name: v.number for v in field.enum_type.values}.items() <= {
                    v.name: v.number for v in other.enum_type.values
                }.items(), field.enum_type.full_name

    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    for method in service.methods:
        other = theirs.methods_by_name[method.name]
        assert (method.client_streaming, method.server_streaming) == (other.client_streaming, other.server_streaming)
        same(method.input_type, other.input_type)
        same(method.output_type, other.output_type)
    assert model_config_pb2.DESCRIPTOR.package == "inference"


def check_lateness(url):
    """What is shed says why and when to ask again; a deadline of the caller's own is its own."""
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(url))
    request = service_pb2.ModelInferRequest(model_name="slow", raw_input_contents=[np.float32(1).tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    refused(lambda: stub.ModelInfer(request, timeout=0.03), "DEADLINE_EXCEEDED", "")
    calls = [stub.ModelInfer.future(request) for _ in range(64)]
    shed = [call for call in calls if call.exception() is not None]
    assert 0 < len(shed) < 64, len(shed)
    for call in shed:
        told = dict(call.trailing_metadata())
        assert call.code() == grpc.StatusCode.UNAVAILABLE and "refused" in call.details(), call
        assert int(told["grpc-retry-pushback-ms"]) > 0 and b"google.rpc.RetryInfo" in told["grpc-status-details-bin"]
    assert all(np.frombuffer(call.result().raw_output_contents[0], np.float32) == [3] for call in calls if call not in shed)


def check_curl(http):
    """curl, by prior knowledge of HTTP/2."""
    ask = ["curl", "-s", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}"]
    ready = subprocess.run([*ask, f"http://{http}/v2/health/ready"], capture_output=True, text=True, check=True).stdout
    assert '"ready":true' in ready and ready.endswith(" 2 200"), ready
    body = '{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}'
    answer = subprocess.run([*ask, "-d", body, f"http://{http}/v2/models/slow/infer"], capture_output=True, text=True, check=True)
    assert '"data":[3.0]' in answer.stdout and answer.stdout.endswith(" 2 200"), answer.stdout


def check_repository(url, model, inputs):
    """tritonclient: a model is unloaded and loaded."""
    client = triton.InferenceServerClient(url)
    index = lambda: {entry.name: entry.state for entry in client.get_model_repository_index().models}
    client.unload_model(model)
    assert index()[model] == "UNAVAILABLE", index()
    client.load_model(model)
    assert index()[model] == "READY" and client.infer(model, triton_inputs(inputs))
    for name, how in [("nobody", {}), (model, {"config": "{}"})]:
        try:
            client.load_model(name, **how)
            raise AssertionError("it was loaded")
        except InferenceServerException as error:
            assert "there is no such model" in str(error) or "'config' is not served" in str(error), error


def main(program):
    caps = ["--max-latency-ms", "2000"]
    models = [ROOT / "examples/digits/digits.onnx", ROOT / f"tests/models/pipelines/{TEXTS}.onnx", ROOT / f"tests/models/zoo/{HALF}.onnx"]
    with Server(program, *caps, *models) as (http, own):
        digits, texts = case("digits"), case(f"pipelines/{TEXTS}")
        for model, (inputs, outputs) in {"digits": digits, TEXTS: texts}.items():
            for url in [own, http]:
                check_triton(url, model, inputs, outputs)
            check_stream(own, model, inputs, outputs)
            check_contents(own, model, inputs, outputs)
            asyncio.run(check_triton_aio(own, model, inputs, outputs))
            print(f"  {model}: tritonclient, its streams and its asyncio client are answered rightly over gRPC")
        check_triton(own, HALF, *case(f"zoo/{HALF}"))
        name, want = next(iter(digits[1].items()))
        check_classes(own, "digits", digits[0], name, want)
        check_repository(own, "digits", digits[0])
        check_health(own, "digits")
        check_reflection(own, "digits", *digits)
        metrics = urllib.request.urlopen(f"http://{own}/metrics").read().decode()
        assert 'uncork_requests_total{model="digits",version="1",outcome="on_time"}' in metrics
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "uncork.toml"
        config.write_text(
            '[[model]]\nname = "slow"\nmax_latency_ms = 250\nmax_batch_size = 8\nsynthetic = { base_ms = 100, per_row_ms = 0 }\n'
        )
        with Server(program, "--config", config) as (http, own):
            check_lateness(own)
            check_curl(http)
    print("  health, reflection, classes, lateness, deadlines, curl over HTTP/2")


if __name__ == "__main__":
    main(sys.argv[1])
