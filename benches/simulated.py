"""The simulator beside the server, on the same traces: what is on time, and the mean latency.

    cargo build --release
    python3 benches/simulated.py [--seconds S] [--rounds N]

A stand-in sleeps as long as the simulated runner takes. Both get the same file of arrivals, and the simulator what `uncork simulate`
supposes of a server. Server and generator share the machine. Needs Python 3.11's standard library alone.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

import front

BASE_MS, PER_ROW_MS, CAP_MS, BATCH = 4, 0.1, 40, 64
MODEL = f"""
[[model]]
name = "stand-in"
synthetic = {{ base_ms = {BASE_MS}, per_row_ms = {PER_ROW_MS} }}
max_latency_ms = {CAP_MS}
max_batch_size = {BATCH}
"""


def poisson(rate, seconds, rng, at=0.0):
    while (at := at + rng.expovariate(rate)) < seconds:
        yield at


def clumps(rate, seconds, rng, cv=4, at=0.0):
    """Gaps of a gamma distribution, whose standard deviation is so many times their mean."""
    while (at := at + rng.gammavariate(cv**-2, cv**2 / rate)) < seconds:
        yield at


def jumps(low, high, seconds, rng, dwell=0.25):
    """A rate that jumps between two."""
    begin, rate = 0.0, low
    while begin < seconds:
        end = min(seconds, begin + rng.expovariate(1 / dwell))
        yield from poisson(rate, end, rng, begin)
        begin, rate = end, low + high - rate


def traces(seconds):
    """At most 6,154 rows a second can be answered: 64 every 10.4 ms."""
    rng = random.Random(1)
    return {
        "Poisson, 1,500/s": poisson(1500, seconds, rng),
        "Poisson, 4,900/s": poisson(4900, seconds, rng),
        "Poisson, 9,000/s": poisson(9000, seconds, rng),
        "clumps, 3,000/s": clumps(3000, seconds, rng),
        "1,000 or 8,000/s": jumps(1000, 8000, seconds, rng),
    }


def simulated(trace):
    flags = {"base-ms": BASE_MS, "per-row-ms": PER_ROW_MS, "max-latency-ms": CAP_MS, "max-batch-size": BATCH}
    command = [front.BINARY, "simulate", "--json", "--arrivals", trace, *(word for k, v in flags.items() for word in (f"--{k}", str(v)))]
    (outcome,) = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return 100 * outcome["on_time"] / outcome["offered"], outcome["mean_ms"]


def served(address, trace):
    how = ["--arrivals", trace, "--connections", "2048", "--timeout", "1s", "--warm-up", "0s", "--deadline", f"{CAP_MS}ms"]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [front.BINARY, "loadtest", address, *how, "--slo", f"on-time:{CAP_MS}ms>=0%", "--json", file.name]
        subprocess.run(command, check=True, capture_output=True)
        report = json.load(open(file.name))
    return 100 * report["objectives"][0]["measured"], report["good_latency_ms"]["mean"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"{BASE_MS} + {PER_ROW_MS}·n ms, caps {CAP_MS} ms and {BATCH} rows; the server's figures are medians of {given.rounds} rounds")
    print(f"{'':>18} {'on time %':>20} {'mean ms':>20}")
    print(f"{'':>18} {'server':>10}{'simulator':>10} {'server':>10}{'simulator':>10}")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "uncork.toml")
        config.write_text(MODEL)
        for name, arrivals in traces(given.seconds).items():
            trace = pathlib.Path(folder, "trace.csv")
            trace.write_text("".join(f"{at:.6f}\n" for at in arrivals))
            rounds = []
            for _ in range(given.rounds):
                with front.serving("--config", str(config)) as address:
                    rounds.append(served(address, trace))
            on_time, mean = (statistics.median(column) for column in zip(*rounds))
            expected, expected_mean = simulated(trace)
            print(f"{name:>18} {on_time:>10.2f}{expected:>10.2f} {mean:>10.2f}{expected_mean:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
