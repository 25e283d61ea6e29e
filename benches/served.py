"""Holds the server to one rule: each answer over HTTP equals the file's own, or is a rejection in words, and never a 500.

    cargo build --release
    python3 benches/served.py target/onnx-cases target/draws tests/models/zoo    three folders, all of their models
    python3 benches/served.py target/corpus --sample 10 --seed 7                 ten models of the folder
    python3 benches/served.py target/draws --seed 7 --only NAME                  one model again, with each of its requests

Needs onnx, onnxruntime and numpy (crates/onnx/benches/requirements.txt). A path is an .onnx file, a model's folder, or a folder
of either. A model's folder has model.onnx and, as cases.py and corpus.py write them, SET/input_N.pb and SET/output_N.pb; an
.onnx file may have a .json of that name with a request and its answer. These are the model's recorded requests.

The real program serves many models at a time. Each model is asked for its recorded requests and for random ones of one to five
rows that follow the file's own declaration. Several clients ask at the same time, so that requests share batches. onnxruntime
answers each random request alone, without optimisations, and its answer is the expected one. Where onnxruntime has no kernel, ONNX's
reference implementation may confirm an answer. A request is then

    equal        the names, types, shapes and values are the expected ones
    rejected     a status of 4xx, or 503, with {"error": "..."}; apart are those that onnxruntime rejects as well
    beyond       answered although onnxruntime rejects it; listed, and wrong if the rows differ from those of single-row requests
    unchecked    answered, and neither onnxruntime nor ONNX's reference implementation confirms it
    disputed     answered as ONNX's reference implementation answers, and not as onnxruntime does; or each row as onnxruntime
                 answers it alone, where onnxruntime's answer to several depends on its number of threads; or with integers that
                 onnxruntime gives as well if the last bits of the numbers that are quantised differ
    WRONG        answered otherwise
    FAILED       a 500, no words, no answer

The exit status is 1 if a request is WRONG or FAILED or a model is rejected without words, and else 0.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import re
import sys
import threading
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches" / "served"))
from answers import columns, difference, shown, tolerance_of  # noqa: E402
from models import MOST_ROWS, Draw, Model, lengths  # noqa: E402
from oracle import Oracle  # noqa: E402
from server import Gone, Server  # noqa: E402

CHUNK_MODELS, CHUNK_BYTES = 60, 300_000_000
CLIENTS = 3
RANDOM_REQUESTS = 6
ROUNDINGS = 12
JSON_ELEMENTS = 64
OUTCOMES = ["equal", "rejected", "rejected by both", "beyond", "unchecked", "disputed", "WRONG", "FAILED"]


class Report:
    """What became of models and requests."""

    def __init__(self, seed):
        self.seed, self.lock, self.begin = seed, threading.Lock(), time.monotonic()
        self.requests, self.models = collections.Counter(), collections.Counter()
        # Label, request, outcome and words of each that is to be read.
        self.findings = []
        # What became of the recorded requests of each model, and why models and requests are rejected.
        self.recorded, self.reasons = {}, collections.Counter()

    def model(self, model, outcome, words):
        with self.lock:
            self.models[outcome] += 1
            if outcome == "FAILED":
                self.findings.append((model.label, "", "FAILED", words))
            if outcome != "served":
                self.recorded[model.label] = f"{outcome}: {words}"
                if outcome != "FAILED":
                    self.reasons[outcome, plain(words)] += 1

    def request(self, model, name, request, outcome, words):
        with self.lock:
            self.requests[outcome] += 1
            if outcome not in ("equal", "rejected by both"):
                self.findings.append((model.label, f"{name}: {shown(request)}", outcome, words))
            if outcome == "rejected":
                self.reasons[outcome, plain(words)] += 1

    def recorded_one(self, model, outcome, words):
        with self.lock:
            before = self.recorded.get(model.label, "served")
            self.recorded[model.label] = before if outcome == "equal" or before != "served" else f"{outcome}: {words}"

    def progress(self, done, all_models):
        with self.lock:
            counts = ", ".join(f"{outcome} {self.requests[outcome]}" for outcome in OUTCOMES if self.requests[outcome])
            print(f"{time.monotonic() - self.begin:6.0f} s  {done}/{all_models} models; requests: {counts}", file=sys.stderr, flush=True)

    def finish(self, arguments, left_out):
        """Prints the result; the exit status."""
        if arguments.findings:
            arguments.findings.write_text("".join(f"{line}\n" for line in self.grouped(OUTCOMES[1:])))
        if arguments.write:
            tests = {label.rsplit("/", 1)[1]: words for label, words in sorted(self.recorded.items())}
            arguments.write.write_text(json.dumps(tests, indent=0) + "\n")
        wrong = self.grouped(["WRONG", "FAILED"])
        print("\n".join(wrong))
        for (outcome, words), count in self.reasons.most_common(12):
            print(f"{count} {outcome}: {words}")
        for kind, counts in [("models", self.models), ("requests", self.requests)]:
            print(f"{sum(counts.values())} {kind}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
        if left_out:
            print(f"{left_out} models left out after {arguments.most_seconds:.0f} s")
        if wrong:
            print(f"again: python3 benches/served.py PATH --seed {self.seed} --only NAME")
        if not self.requests["equal"]:
            print("no answer is the file's: nothing is shown by this run")
        return 1 if wrong or not self.requests["equal"] else 0

    def grouped(self, outcomes):
        """Lines with the findings of these outcomes: for each model and outcome how many there are, and the first of them."""
        groups = {}
        for label, request, outcome, words in self.findings:
            if outcome in outcomes:
                groups.setdefault((outcomes.index(outcome), label), []).append((request, words))
        lines = []
        for (at, label), found in sorted(groups.items()):
            request, words = min(found, key=lambda one: (len(one[0]), one))
            lines += [f"{outcomes[at]} {label}, {len(found)} requests, as {request}", f"    {words}"]
        return lines


def plain(words):
    """Words without names, shapes and numbers, by which they are counted."""
    return re.sub(r"(?<!\w)'[^']*'|\[[^\]]*\]|\d+", "…", words)[:160]


def judge(model, answer, expected, tolerance):
    """Outcome and words of a request. Its expected answer is ("answered" or "reference", [(name, array)]), ("rejected" or "unknown", why), or
    ("rows", {name: the arrays that rows may be joined to}).
    """
    state, found = answer
    kind, right = expected
    if kind == "rows" and state == "answered":
        shapes = {name: array.shape for name, _, array in found}
        kind, right = "answered", [(name, next((x for x in ways if x.shape == shapes.get(name)), ways[0])) for name, ways in right.items()]
    if state == "failed":
        return "FAILED", found
    if state == "rejected":
        return ("rejected by both" if kind == "rejected" else "rejected"), found
    if kind == "answered":
        words = difference(model, found, right, tolerance)
        return ("WRONG", words) if words else ("equal", "")
    if kind == "rejected":
        return "beyond", f"onnxruntime: {right[:200]}"
    if kind == "reference":
        # ONNX's reference implementation has faults of its own: it confirms an answer, and proves none wrong.
        words = difference(model, found, right, tolerance)
        return ("unchecked", f"onnx.reference: {words}") if words else ("equal", "")
    return "unchecked", right[:200]


def expectation(model, answer):
    """An answer of the oracle by the names of the file's outputs."""
    kind, values = answer
    if kind not in ("answered", "reference"):
        return kind, values
    return kind, [(name, columns(model, name, value)) for name, value in zip(model.outputs, values)]


def several_rows(model, metadata, draw, oracle):
    """A request of several rows for a file that declares one, and the answer that its rows have alone; None if the file isn't such.

    The metadata say along which axis uncork takes rows: the first free one of an input, and one of the free ones of an output.
    """
    free = free_axes(metadata)
    axes = {name: places[0] for name, places in free["inputs"].items() if places}
    stacked = [name for name, _, shape in draw.declared if shape and name in axes and shape[axes[name]] == 1]
    others = [name for name, _, _ in draw.declared if name in axes and name not in stacked]
    first = draw.request()
    if not stacked or others or first is None:
        return None
    rows = [first, *(draw.alike(first) for _ in range(int(draw.dice.integers(1, MOST_ROWS))))]
    # Inputs that have no rows are given once.
    shared = {name: array for name, array in rows[0] if name not in stacked}
    rows = [[(name, shared.get(name, array)) for name, array in row] for row in rows]
    answers = [expectation(model, answer) for answer in oracle.ask(model.path, rows)]

    request = [
        (name, shared[name] if name in shared else numpy.concatenate([dict(row)[name] for row in rows], axes[name]))
        for name, _, _ in draw.declared
    ]
    return request, joined(model, free["outputs"], answers)


def row_by_row(model, metadata, request, oracle):
    """The answer to a request that its rows have alone, each along the first free axis of its inputs."""
    free = free_axes(metadata)
    axes = {name: places[0] for name, places in free["inputs"].items() if places}
    count = max(array.shape[axes[name]] for name, array in request if name in axes)
    rows = [[(name, array.take([row], axes[name]) if name in axes else array) for name, array in request] for row in range(count)]
    return joined(model, free["outputs"], [expectation(model, answer) for answer in oracle.ask(model.path, rows)])


def is_a_matter_of_rounding(model, found, request, tolerance, oracle):
    """Whether each number of an answer is among those that onnxruntime gives if the last bits of numbers that are quantised differ: such a
    number may lie just between two integers, and the sums of pools and products are added in another order.
    """
    answers = [expectation(model, oracle.ask(model.path, [request], seed)[0]) for seed in range(ROUNDINGS)]
    answers = [dict(values) for kind, values in answers if kind == "answered"]
    if not answers:
        return False
    nearest = []
    for name, _, array in found:
        ways = [values[name] for values in answers]
        if any(way is None or way.shape != array.shape or way.dtype.kind not in "fiu" for way in ways):
            return False
        clipped = numpy.clip(array.astype(numpy.float64), numpy.min(ways, 0).astype(numpy.float64), numpy.max(ways, 0).astype(numpy.float64))
        nearest.append((name, clipped.astype(ways[0].dtype)))
    return difference(model, found, nearest, tolerance) is None


def free_axes(metadata):
    """The free axes of inputs and outputs by their names, as the server's metadata have them."""
    return {kind: {one["name"]: [at for at, n in enumerate(one["shape"]) if n == -1] for one in metadata.get(kind, [])} for kind in ("inputs", "outputs")}


def joined(model, free, answers):
    """The answers to rows as one, by the free axes of outputs."""
    others = [kind for kind, _ in answers if kind != "answered"]
    if others:
        return others[0] if others[0] == "rejected" else "unknown", "a row of it alone has no answer"
    outputs = [(name, [dict(values)[name] for _, values in answers]) for name in model.outputs]
    if any(part is None for _, parts in outputs for part in parts):
        return "unknown", "an output is no tensor"
    try:
        return "rows", {name: [numpy.concatenate(parts, axis) for axis in free.get(name, [])] or parts[:1] for name, parts in outputs}
    except ValueError:
        return "unknown", "the answers of the rows have different lengths"


def check(model, server, oracle, report, clients):
    """Asks for a model's recorded requests, random ones, and one of several rows if its file declares one row."""
    asked, sample = [], None
    for at, (inputs, outputs) in enumerate(model.recorded()):
        if inputs is None or (outputs is None and not model.is_refused):
            report.model(model, "not servable", "a recorded value has a type that the protocol lacks")
            return
        expected = ("rejected", "the record") if outputs is None else ("answered", outputs)
        asked.append((f"recorded {at}", inputs, expected, tolerance_of(model, True)))
        sample = sample or inputs
    if model.declared() is not None:
        draw = Draw(model, sample, report.seed)
        requests = [request for request in (draw.request() for _ in range(RANDOM_REQUESTS)) if request is not None]
        answers = oracle.ask(model.path, requests)
        tolerance = tolerance_of(model, False)
        for at, (request, answer) in enumerate(zip(requests, answers)):
            asked.append((f"random {at}", request, expectation(model, answer), tolerance))
        several = several_rows(model, server.metadata(model), draw, oracle)
        if several is not None:
            asked.append(("rows of a file of one row", *several, tolerance))
    forms = [is_large(request) or draw_form(report.seed, model.label, name) for name, request, _, _ in asked]
    answers = clients.map(lambda one: server.infer(model, one[0][1], one[1]), zip(asked, forms))
    for (name, request, expected, tolerance), form, answer in zip(asked, forms, list(answers)):
        outcome, words = judge(model, answer, expected, tolerance)
        if name.startswith("recorded"):
            report.recorded_one(model, outcome, words)
            if outcome == "WRONG" and model.is_test:
                # The record has a tolerance of its own, and at times other numbers than onnxruntime.
                own = expectation(model, oracle.ask(model.path, [request])[0])
                expected = own if own[0] == "answered" else expected
                tolerance = tolerance_of(model, False)
                outcome, words = judge(model, answer, expected, tolerance)
        if outcome == "WRONG" and model.goes_by_row:
            by_row = row_by_row(model, server.metadata(model), request, oracle)
            outcome = "disputed" if judge(model, answer, by_row, tolerance)[0] == "equal" else outcome
        if outcome == "WRONG" and model.is_quantised and answer[0] == "answered":
            outcome = "disputed" if is_a_matter_of_rounding(model, answer[1], request, tolerance, oracle) else outcome
        if outcome == "WRONG" and expected[0] == "answered":
            reference = expectation(model, oracle.ask(model.path, [request], "reference")[0])
            if reference[0] == "reference" and judge(model, answer, reference, tolerance)[0] == "equal":
                outcome = "disputed"
        if outcome == "WRONG" and judge(model, server.infer(model, request, form), expected, tolerance)[0] != "WRONG":
            words += " (equal when asked alone)"
        if outcome == "FAILED":
            words += f"; in the log: {server.logged(model)}"
        report.request(model, name, request, outcome, words)
    report.model(model, "served", "")


def is_large(request):
    """Whether a request takes the binary form: it has many elements, or a type without a JSON form."""
    return any(array.size > JSON_ELEMENTS or array.dtype.name in ("float16", "bfloat16") for _, array in request)


def draw_form(seed, label, name):
    return random.Random(f"{seed}/{label}/{name}").random() < 0.5


def run(program, models, report):
    """Serves `models` together and checks each. If the server ends, goes on without the model that it ended with."""
    oracle, server = Oracle(), Server(program, models)
    at = None
    try:
        reasons = server.reasons()
        for model in models:
            # Files that fit some lengths only: what the rejection says to set is set.
            if "dims = {" in reasons.get(server.names[model.label], ""):
                model.dims = lengths(model)
                if model.dims:
                    server.add(model)
        reasons = server.reasons()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            for at, model in enumerate(models):
                name = server.names[model.label]
                if name not in reasons:
                    check(model, server, oracle, report, clients)
                elif len(reasons[name].split()) >= 3:
                    report.model(model, "rejected at load", reasons[name])
                else:
                    report.model(model, "FAILED", f"is not served, without words: {reasons[name]!r}")
        return
    except Gone:
        end = f"the server ended with {server.process.returncode}: {server.last_words()}"
    finally:
        oracle.stop()
        server.stop()
    if at is not None or len(models) == 1:
        report.model(models[at or 0], "FAILED", end)
        rest = [models[(at or 0) + 1 :]]
    else:
        # While models are loaded, any of them may be the one.
        rest = [models[: len(models) // 2], models[len(models) // 2 :]]
    for part in filter(None, rest):
        run(program, part, report)


def found(path):
    """The files of models of a path, each with its label."""
    if path.suffix == ".onnx":
        return [(path, f"{path.parent.name}/{path.stem}")]
    if (path / "model.onnx").exists():
        return [(path / "model.onnx", f"{path.parent.name}/{path.name}")]
    inner = sorted(path.iterdir()) if path.is_dir() else []
    return [one for each in inner if each.suffix == ".onnx" or (each / "model.onnx").exists() for one in found(each)]


def chunks(files, jobs):
    """Lists of files that are served together, bounded in their number and in bytes; four or more for each job."""
    chunk, size = [], 0
    most = min(CHUNK_MODELS, -(-len(files) // (4 * jobs)))
    for path, label in files:
        own = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file()) if path.name == "model.onnx" else path.stat().st_size
        if chunk and (len(chunk) == most or size + own > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((path, label))
        size += own
    if chunk:
        yield chunk


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help="folders of models, models' folders and .onnx files")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target" / "release" / "uncork", help="the program (default target/release/uncork)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample and of random requests (default 1)")
    parser.add_argument("--sample", type=int, help="this many models of each path, drawn by the seed")
    parser.add_argument("--only", action="append", help="models whose label contains this; may be given several times")
    parser.add_argument("--most-seconds", type=float, help="start no further models after this time")
    parser.add_argument("--jobs", type=int, default=2, help="servers that run at the same time (default 2)")
    parser.add_argument("--write", type=pathlib.Path, help="write what became of each model's recorded requests to this file, as JSON")
    parser.add_argument("--findings", type=pathlib.Path, help="write all findings to this file")
    arguments = parser.parse_args()
    if not arguments.program.exists():
        sys.exit(f"{arguments.program} does not exist; build first: cargo build --release")
    dice, files = random.Random(arguments.seed), []
    for path in arguments.paths:
        there = [one for one in found(path) if not arguments.only or any(part in one[1] for part in arguments.only)]
        if not there and not arguments.only:
            sys.exit(f"{path} has no models; generate them first, see crates/onnx/benches")
        files += dice.sample(there, arguments.sample) if arguments.sample and arguments.sample < len(there) else there
    report, done, parts = Report(arguments.seed), 0, list(chunks(files, arguments.jobs))
    print(f"{len(files)} models, {len(parts)} servers, seed {arguments.seed}", file=sys.stderr, flush=True)

    def work(part):
        if arguments.most_seconds and time.monotonic() - report.begin > arguments.most_seconds:
            return 0
        run(arguments.program, [Model(path, label) for path, label in part], report)
        return len(part)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as workers:
        for future in concurrent.futures.as_completed([workers.submit(work, part) for part in parts]):
            done += future.result()
            report.progress(done, len(files))
    sys.exit(report.finish(arguments, len(files) - done))


if __name__ == "__main__":
    main()
