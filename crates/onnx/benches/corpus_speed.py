"""Times of every model of the corpus beside onnxruntime's: python3 crates/onnx/benches/corpus_speed.py FOLDER [NAME ...]

FOLDER is what corpus.py has made. The two processes take turns for a number of short rounds; a round gives the processor time of a
run, by the clock where there are several threads, and the figure is the median of the rounds. With --rows a batch is made of the
models' rows along axis 0, of those that take it. With --write the table goes into docs/performance.md. Build first:
cargo build --release --bench onnx
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time
import tomllib

from speed import ROOT, Side, binary

PAGE = ROOT / "docs/performance.md"
GIVEN = 4  # rows of each model


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


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("names", nargs="*", help="models; all by default")
    options.add_argument("--rows", type=int, default=1)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0.15, help="time of a round and side, at least three runs")
    options.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    given = options.parse_args()
    listed = tomllib.loads((ROOT / "benches/corpus/corpus.toml").read_text())["model"]
    names = [model["name"] for model in listed if model["state"] in ("right", "alone")]
    rows, column = {}, 1 if given.threads == 1 else 0
    for name in given.names or names:
        folder = given.folder / name
        if not folder.exists():
            continue
        threads = str(given.threads)
        sides = [Side([binary(), "speed-case", folder, threads]), Side([sys.executable, __file__, "--peer", folder, threads])]
        rounds = []
        for _ in range(given.rounds):
            words = [side.ask("run", given.rows, given.seconds).split() for side in sides]
            if any(answer[0] == "failed" for answer in words):
                break
            rounds.append([float(answer[column]) for answer in words])
        for side in sides:
            side.close()
        if not rounds:
            print(f"{name:28}   does not take {given.rows} rows", flush=True)
            continue
        ours, theirs = (statistics.median(times) for times in zip(*rounds))
        rows[name] = (ours, theirs)
        print(f"{name:28}{ours:10.3f}{theirs:10.3f}{ours / theirs:7.2f}", flush=True)
    ratios = {name: ours / theirs for name, (ours, theirs) in rows.items()}
    summary = f"Of {len(ratios)} models the geometric mean is {statistics.geometric_mean(ratios.values()):.2f}, "
    summary += f"the median {statistics.median(ratios.values()):.2f}, the largest {max(ratios.values()):.2f}; "
    summary += f"{sum(ratio <= 1 for ratio in ratios.values())} take no longer than with onnxruntime.\n"
    print(summary)
    if given.write:
        table = ["| model | ms | onnxruntime, ms | ratio |\n| --- | ---: | ---: | ---: |\n"]
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
            table.append(f"| {name} | {rows[name][0]:.3f} | {rows[name][1]:.3f} | {ratio:.2f} |\n")
        kind = f"corpus, {given.rows} rows, {given.threads} threads"
        begin, end = f"<!-- {kind}: begin -->\n", f"<!-- {kind}: end -->\n"
        before, _, rest = PAGE.read_text().partition(begin)
        _, _, behind = rest.partition(end)
        PAGE.write_text(before + begin + summary + "\n" + "".join(table) + end + behind)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--peer":
        peer(pathlib.Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
