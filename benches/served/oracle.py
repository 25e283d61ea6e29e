"""What a file answers by itself: onnxruntime, in a process of its own, because some nodes end it."""

import multiprocessing
import pathlib
import sys

import numpy
import onnx.reference
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "corpus"))
from corpus import exact  # noqa: E402

ORACLE_S = 60
CONTEXT = multiprocessing.get_context("spawn")


def oracle(pipe):
    """Answers (path, requests, whether ONNX's reference implementation alone is asked) with a list of ("answered", arrays),
    ("reference", arrays), ("rejected", why) or ("unknown", why).
    """
    levels = onnxruntime.GraphOptimizationLevel
    while True:
        path, requests, is_reference = pipe.recv()
        sessions = {}

        def session(level):
            if level not in sessions:
                options = onnxruntime.SessionOptions()
                options.log_severity_level, options.intra_op_num_threads, options.graph_optimization_level = 4, 1, level
                sessions[level] = onnxruntime.InferenceSession(exact(path), options, providers=["CPUExecutionProvider"])
            return sessions[level]

        def answer(request):
            why = ""
            for level in () if is_reference else (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
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

    def ask(self, path, requests, is_reference=False):
        if not requests:
            return []
        if self.process is None:
            self.pipe, theirs = CONTEXT.Pipe()
            self.process = CONTEXT.Process(target=oracle, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        try:
            self.pipe.send((str(path), requests, is_reference))
            if self.pipe.poll(ORACLE_S * len(requests)):
                return self.pipe.recv()
            why = "onnxruntime takes too long"
        except (EOFError, OSError):
            why = "onnxruntime ended"
        self.stop()
        # One request may be what ends it.
        return [("unknown", why)] if len(requests) == 1 else [self.ask(path, [request], is_reference)[0] for request in requests]

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None
