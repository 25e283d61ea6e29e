"""Times of one row of every model of the corpus beside onnxruntime's, one thread each: python3 crates/onnx/benches/corpus_speed.py FOLDER

FOLDER is what corpus.py has made. The two processes take turns for a number of short rounds; a round gives the processor time of a
run, and the figure is the median of the rounds. With --write the table goes into docs/performance.md. Build first:
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
BEGIN, END = "<!-- corpus: begin -->\n", "<!-- corpus: end -->\n"


def peer(folder):
    """onnxruntime on the first row, driven as speed.rs is."""
    import onnx
    import onnx.numpy_helper
    import onnxruntime

    begin = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    print(f"loaded {time.perf_counter() - begin:.4f}", flush=True)
    given = {}
    for i, spec in enumerate(session.get_inputs()):
        given[spec.name] = onnx.numpy_helper.to_array(onnx.load_tensor(folder / f"0/input_{i}.pb"))
    for line in sys.stdin:
        seconds, times = float(line.split()[2]), []
        session.run(None, given)
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
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0.15, help="time of a round and side, at least three runs")
    options.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    given = options.parse_args()
    listed = tomllib.loads((ROOT / "benches/corpus/corpus.toml").read_text())["model"]
    names = [model["name"] for model in listed if model["state"] in ("right", "alone")]
    rows = {}
    for name in names:
        folder = given.folder / name
        if not folder.exists():
            continue
        sides = [Side([binary(), "speed-case", folder]), Side([sys.executable, __file__, "--peer", folder])]
        rounds = [[side.times(1, given.seconds)[1] for side in sides] for _ in range(given.rounds)]
        ours, theirs = (statistics.median(times) for times in zip(*rounds))
        rows[name] = (ours, theirs)
        print(f"{name:28}{ours:10.3f}{theirs:10.3f}{ours / theirs:7.2f}", flush=True)
        for side in sides:
            side.close()
    ratios = {name: ours / theirs for name, (ours, theirs) in rows.items()}
    summary = f"Of {len(ratios)} models the geometric mean is {statistics.geometric_mean(ratios.values()):.2f}, "
    summary += f"the median {statistics.median(ratios.values()):.2f}, the largest {max(ratios.values()):.2f}; "
    summary += f"{sum(ratio <= 1 for ratio in ratios.values())} take no longer than with onnxruntime.\n"
    print(summary)
    if given.write:
        table = ["| model | ms | onnxruntime, ms | ratio |\n| --- | ---: | ---: | ---: |\n"]
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
            table.append(f"| {name} | {rows[name][0]:.3f} | {rows[name][1]:.3f} | {ratio:.2f} |\n")
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, behind = rest.partition(END)
        PAGE.write_text(before + BEGIN + summary + "\n" + "".join(table) + END + behind)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--peer":
        peer(pathlib.Path(sys.argv[2]))
    else:
        main()
