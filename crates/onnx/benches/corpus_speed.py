"""Times of every model of the corpus beside onnxruntime's: python3 crates/onnx/benches/corpus_speed.py FOLDER [NAME ...]

FOLDER is what corpus.py has made. The two processes take turns for a number of short rounds; a round gives the processor time of a
run, by the clock where there are several threads, and the figure is the median of the rounds. With --rows a batch is made of the
models' rows along axis 0, of those that take it. --networks adds networks with random weights, written to FOLDER unless they are
there (large.py, kinds.py and networks.py). With --write tables go into docs/performance.md. Build first:
cargo build --release --bench onnx

All tables: corpus_speed.py FOLDER --rows 1,8 --threads 1,2 --networks FOLDER --write
"""

import argparse
import importlib
import pathlib
import statistics
import subprocess
import sys
import time
import tomllib

import speed
from speed import ROOT, Side, binary

PAGE = ROOT / "docs/performance.md"
GIVEN = 4  # rows of each model
NETWORKS = "mlp lenet resnet18 resnet50 vgg16 mobilenet bert bert-fp16 bert-qdq cnn cnn-fp16 cnn-qdq lstm bilstm gru"


def peer(folder, threads):
    """onnxruntime on the same rows, driven as speed.rs is."""
    import numpy
    import onnx
    import onnx.numpy_helper
    import onnxruntime

    begin = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    print(f"loaded {time.perf_counter() - begin:.4f}", flush=True)
    for line in sys.stdin:
        count, seconds, times = int(line.split()[1]), float(line.split()[2]), []
        given = {}
        for i, spec in enumerate(session.get_inputs()):
            rows = [onnx.numpy_helper.to_array(onnx.load_tensor(folder / f"{row % GIVEN}/input_{i}.pb")) for row in range(count)]
            given[spec.name] = numpy.concatenate(rows) if rows[0].shape else rows[0]
        try:
            session.run(None, given)
        except Exception:
            print("failed", flush=True)
            continue
        begin, used = time.perf_counter(), time.thread_time()
        while len(times) < 3 or time.perf_counter() - begin < seconds:
            start = time.perf_counter()
            session.run(None, given)
            times.append(time.perf_counter() - start)
        processor = (time.thread_time() - used) / len(times)
        print(f"{statistics.median(times) * 1e3:.5f} {processor * 1e3:.5f}", flush=True)


def sides(name, given, threads):
    """Our process and onnxruntime's, for a model of the corpus or else a network; none if it is not there."""
    folder, threads = given.folder / name, str(threads)
    if name in NETWORKS.split():
        path = given.networks / f"{name}.onnx"
        if not path.exists():
            importlib.import_module(speed.maker(name)).write(name, given.networks)
        return [Side([binary(), "speed", path, threads]), Side([sys.executable, speed.__file__, "--peer", path, threads])]
    if not folder.exists():
        return []
    return [Side([binary(), "speed-case", folder, threads]), Side([sys.executable, __file__, "--peer", folder, threads])]


def measure(names, given, count, threads):
    """Times of batches of `count` rows on both sides, by name."""
    rows, column = {}, 1 if threads == 1 else 0
    for name in names:
        both, rounds = sides(name, given, threads), []
        for _ in range(given.rounds if both else 0):
            words = [side.ask("run", count, given.seconds).split() for side in both]
            if any(not answer or answer[0] == "failed" for answer in words):
                break
            rounds.append([float(answer[column]) for answer in words])
        for side in both:
            side.close()
        if not rounds:
            print(f"{name:28}   does not take {count} rows", flush=True)
            continue
        ours, theirs = (statistics.median(times) for times in zip(*rounds))
        rows[name] = (ours, theirs)
        print(f"{name:28}{ours:10.3f}{theirs:10.3f}{ours / theirs:7.2f}", flush=True)
    return rows


def report(rows, kind, write):
    """Prints what the times come to; puts them into the page."""
    ratios = {name: ours / theirs for name, (ours, theirs) in rows.items()}
    summary = f"Of {len(ratios)} models the geometric mean is {statistics.geometric_mean(ratios.values()):.2f}, "
    summary += f"the median {statistics.median(ratios.values()):.2f}, the largest {max(ratios.values()):.2f}; "
    summary += f"{sum(ratio <= 1 for ratio in ratios.values())} take no longer than with onnxruntime.\n"
    print(f"{kind}: {summary}")
    if write:
        table = ["| model | ms | onnxruntime, ms | ratio |\n| --- | ---: | ---: | ---: |\n"]
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
            table.append(f"| {name} | {rows[name][0]:.3f} | {rows[name][1]:.3f} | {ratio:.2f} |\n")
        begin, end = f"<!-- corpus, {kind}: begin -->\n", f"<!-- corpus, {kind}: end -->\n"
        before, _, rest = PAGE.read_text().partition(begin)
        _, _, behind = rest.partition(end)
        PAGE.write_text(before + begin + summary + "\n" + "".join(table) + end + behind)


def main():
    numbers = lambda text: [int(word) for word in text.split(",")]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("names", nargs="*", help="models; all by default")
    options.add_argument("--networks", type=pathlib.Path, metavar="FOLDER", help="measure those with random weights, too")
    options.add_argument("--rows", type=numbers, default=[1], metavar="N,…")
    options.add_argument("--threads", type=numbers, default=[1], metavar="N,…")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0.15, help="time of a round and side, at least three runs")
    options.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    given = options.parse_args()
    listed = tomllib.loads((ROOT / "benches/corpus/corpus.toml").read_text())["model"]
    names = given.names or [model["name"] for model in listed if model["state"] in ("right", "alone")]
    names += NETWORKS.split() if given.networks and not given.names else []
    for threads in given.threads:
        for rows in given.rows:
            report(measure(names, given, rows, threads), f"{rows} rows, {threads} threads", given.write)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--peer":
        peer(pathlib.Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
