"""Times of a batch beside onnxruntime's, as many threads each, in turns: python3 crates/onnx/benches/speed.py FOLDER

Networks are written to FOLDER unless they are there: five by default, others of large.py, kinds.py and forests.py by name. For
each network and batch size the two processes take turns for a number of short rounds; a round gives the median time of its
batches, and the figure is the median of the rounds. The outputs are compared as well. Build first: cargo build --release --bench onnx
"""

import argparse
import importlib
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOKENS = 128


def inputs(session, rows):
    """The same rows as `batch` in speed.rs makes."""
    given = {}
    for spec in session.get_inputs():
        shape = [rows, *(d if isinstance(d, int) else TOKENS for d in spec.shape[1:])]
        i = numpy.arange(math.prod(shape), dtype=numpy.int64).reshape(shape)
        if spec.type == "tensor(float)":
            given[spec.name] = ((i * 7919) % 1009).astype(numpy.float32) / numpy.float32(504) - numpy.float32(1)
        elif spec.name == "ids":
            given[spec.name] = (i * 7919) % 20011
        else:
            given[spec.name] = numpy.full(shape, int(spec.name == "mask"), numpy.int64)
    return given


def peer(path, threads):
    """onnxruntime, driven as speed.rs is."""
    import onnxruntime

    begin = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    print(f"loaded {time.perf_counter() - begin:.4f}", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["run", rows, seconds]:
                given, times = inputs(session, int(rows)), []
                session.run(None, given)
                begin, used = time.perf_counter(), time.thread_time()
                while len(times) < 3 or time.perf_counter() - begin < float(seconds):
                    start = time.perf_counter()
                    session.run(None, given)
                    times.append(time.perf_counter() - start)
                processor = (time.thread_time() - used) / len(times)
                print(f"{statistics.median(times) * 1e3:.5f} {processor * 1e3:.5f}", flush=True)
            case ["write", rows, file]:
                outputs = session.run(None, inputs(session, int(rows)))
                pathlib.Path(file).write_bytes(b"".join(output.tobytes() for output in outputs if output.dtype == numpy.float32))
                print("written", flush=True)
            case ["memory"]:
                status = pathlib.Path("/proc/self/status").read_text()
                print(status.split("VmHWM:")[1].split()[0], flush=True)


class Side:
    """A process that runs one model."""

    def __init__(self, command):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.load = float(self.process.stdout.readline().split()[1])

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def times(self, rows, seconds):
        return [float(word) for word in self.ask("run", rows, seconds).split()]

    def outputs(self, rows):
        with tempfile.NamedTemporaryFile() as file:
            self.ask("write", rows, file.name)
            return numpy.fromfile(file.name, "<f4")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def binary():
    found = list((ROOT / "target/release/deps").glob("onnx-*"))
    found = [path for path in found if path.suffix == "" and (path.stat().st_mode & 0o111)]
    speaks = [path for path in found if b"is neither run, write nor memory" in path.read_bytes()]
    if not speaks:
        sys.exit("build first: cargo build --release --bench onnx")
    return max(speaks, key=lambda path: path.stat().st_mtime)


def maker(name):
    """The module that writes a network; torch is needed for those of `networks` alone."""
    import kinds
    import large

    if name.startswith("trees_"):
        return "forests"
    return next((module.__name__ for module in (large, kinds) if name in module.NETWORKS), "networks")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--models", default="mlp,lenet,resnet18,mobilenet,minilm")
    options.add_argument("--batches", default="1,8,32")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--threads", type=int, default=1, help="of each side; with more than one, compare by the clock")
    options.add_argument("--seconds", type=float, default=0.3, help="time of a round and side, at least three batches")
    given = options.parse_args()
    ratios = []
    print(f"{'':12}{'rows':>5}{'ms':>11}{'peer, ms':>11}{'ratio':>7}{'by clock':>10}{'difference':>12}")
    for name in given.models.split(","):
        path = given.folder / f"{name}.onnx"
        if not path.exists():
            importlib.import_module(maker(name)).write(name, given.folder)
        sides = [
            Side([binary(), "speed", path, str(given.threads)]),
            Side([sys.executable, __file__, "--peer", path, str(given.threads)]),
        ]
        for rows in map(int, given.batches.split(",")):
            ours, theirs = (side.outputs(rows) for side in sides)
            difference = numpy.max(numpy.abs(ours - theirs) / (1 + numpy.abs(theirs)))
            rounds = [[side.times(rows, given.seconds) for side in sides] for _ in range(given.rounds)]
            (clock, ours), (peer_clock, theirs) = numpy.median(numpy.array(rounds), axis=0)
            ratios.append(ours / theirs)
            print(f"{name:12}{rows:5}{ours:11.3f}{theirs:11.3f}{ours / theirs:7.2f}{clock / peer_clock:10.2f}", end="")
            print(f"{difference:12.1e}", flush=True)
        loads = " / ".join(f"{side.load:.2f}" for side in sides)
        memory = [int(side.ask("memory")) / 1024 for side in sides]
        print(f"{name:12} load {loads} s, peak memory {memory[0]:.0f} / {memory[1]:.0f} MiB", flush=True)
        for side in sides:
            side.close()
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--peer":
        peer(sys.argv[2], int(sys.argv[3]))
    else:
        main()
