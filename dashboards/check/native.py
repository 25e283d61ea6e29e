"""Has a real Prometheus keep uncork's native histograms, and compares a quantile with what the answers themselves say.

    python dashboards/check/native.py FOLDER [--binary target/release/uncork]

A Prometheus that does not ask for them must still get classic ones.
"""

import argparse
import pathlib
import re
import statistics
import sys
import time
import urllib.request

import stack

REQUESTS = 20
OFF_BY = 0.1  # a bucket is 9 % wide


def ask(address):
    """Milliseconds of the batch that a request rode in."""
    url = f"http://{address}/v2/models/dry-run/infer"
    with urllib.request.urlopen(url, data=stack.body("dry-run").encode(), timeout=30) as answer:
        return float(re.search(r"batch;dur=([0-9.]+)", answer.headers["Server-Timing"])[1])


def value(api, expr):
    """The only value of a query, or None."""
    found = api.instant(expr, time.time())
    return found[0][1] if len(found) == 1 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="takes logs and Prometheus' data")
    parser.add_argument("--binary", default=stack.BINARY)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    config = pathlib.Path(__file__).with_name("native.toml")
    with stack.uncork(arguments.folder, arguments.binary, config) as (_, address):
        seconds = statistics.median(ask(address) for _ in range(REQUESTS)) / 1e3
        with stack.prometheus(arguments.folder, [address], "--enable-feature=native-histograms") as api:
            stack.wait_until(
                lambda: value(api, "histogram_count(uncork_batch_duration_seconds)") == REQUESTS, "all batches counted"
            )
            native = value(api, "histogram_quantile(0.5, uncork_batch_duration_seconds)")
            classic = value(api, "uncork_batch_duration_seconds_count")
            counted = value(api, 'uncork_requests_total{outcome="on_time"}')
        with stack.prometheus(arguments.folder, [address]) as api:
            stack.wait_until(lambda: value(api, "uncork_batch_duration_seconds_count") == REQUESTS, "classic buckets")
            rough = value(api, "histogram_quantile(0.5, uncork_batch_duration_seconds_bucket)")
    print(f"  the median of {REQUESTS} batches: {seconds:.4f} s; native {native:.4f} s, classic {rough:.4f} s")
    if abs(native / seconds - 1) > OFF_BY:
        sys.exit("the native histogram's median is off")
    if abs(rough / seconds - 1) <= OFF_BY:
        sys.exit("the classic histogram's median is as good: nothing is shown")
    if classic is not None:
        sys.exit("the histogram is a classic one")
    if counted != REQUESTS:
        sys.exit(f"{counted} requests are counted, not {REQUESTS}")


if __name__ == "__main__":
    main()
