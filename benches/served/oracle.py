"""What a file answers by itself: onnxruntime, in a process of its own, because some nodes end it."""

import multiprocessing
import pathlib
import random
import sys

import numpy
import onnx.reference
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "corpus"))
from corpus import exact  # noqa: E402

ORACLE_S = 60
# A few units in the last place of a float32.
LAST_BITS = 5e-7
CONTEXT = multiprocessing.get_context("spawn")


def rounded_otherwise(path, seed):
    """The bytes of a file whose numbers are moved by the last bits of a float before each step that makes integers of them."""
    model = onnx.load(path)
    nodes, dice = [], random.Random(seed)
    for at, node in enumerate(model.graph.node):
        if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
            noise, moved = f"served_noise_{at}", f"served_moved_{at}"
            ends = {"low": 1 - LAST_BITS, "high": 1 + LAST_BITS, "dtype": onnx.TensorProto.FLOAT, "seed": float(dice.randrange(1 << 20))}
            nodes.append(onnx.helper.make_node("RandomUniformLike", [node.input[0]], [noise], **ends))
            nodes.append(onnx.helper.make_node("Mul", [node.input[0], noise], [moved]))
            node.input[0] = moved
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def oracle(pipe):
    """Answers (path, requests, how) with a list of ("answered", arrays), ("reference", arrays), ("rejected", why) or ("unknown", why).

    `how` is "file", or "reference" for ONNX's reference implementation alone, or a number: the file is then rounded otherwise by it.
    """
    levels = onnxruntime.GraphOptimizationLevel
    while True:
        path, requests, how = pipe.recv()
        sessions = {}

        def session(level):
            if level not in sessions:
                options = onnxruntime.SessionOptions()
                options.log_severity_level, options.intra_op_num_threads, options.graph_optimization_level = 4, 1, level
                file = exact(path) if how == "file" else rounded_otherwise(path, how)
                sessions[level] = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            return sessions[level]

        def answer(request):
            why = ""
            for level in () if how == "reference" else (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
                try:
                    loaded = session(level)
                except Exception as error:
                    why = str(error)
                    continue
                try:
                    return "answered", loaded.run(None, dict(request))
                except Exception as error:
                    why = str(error)
                    if "NOT_IMPLEMENTED" not in why:
                        return "rejected", why
            # For types and versions of operators that onnxruntime lacks.
            try:
                with numpy.errstate(all="ignore"):
                    return "reference", onnx.reference.ReferenceEvaluator(path).run(None, dict(request))
            except Exception:
                return "unknown", why

        pipe.send([answer(request) for request in requests])


class Oracle:
    def __init__(self):
        self.process = None

    def ask(self, path, requests, how="file"):
        if not requests:
            return []
        if self.process is None:
            self.pipe, theirs = CONTEXT.Pipe()
            self.process = CONTEXT.Process(target=oracle, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        try:
            self.pipe.send((str(path), requests, how))
            if self.pipe.poll(ORACLE_S * len(requests)):
                return self.pipe.recv()
            why = "onnxruntime takes too long"
        except (EOFError, OSError):
            why = "onnxruntime ended"
        self.stop()
        # One request may be what ends it.
        return [("unknown", why)] if len(requests) == 1 else [self.ask(path, [request], how)[0] for request in requests]

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None
