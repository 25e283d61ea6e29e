"""Replicas behind haproxy, on one machine: what they answer together, and what is lost when one is killed or all are restarted.

    cargo build --release && apt-get install haproxy
    python3 benches/replicas.py                          some two minutes
    python3 benches/replicas.py --replicas 2 --seconds 4 a short one
    python3 benches/replicas.py --busy                   on a machine that has other work

The servers run a model that sleeps (20 ms + 0.5 ms a row, at most 16 rows: 571 rows a second), so that two cores bear several. haproxy
is set up by deploy/haproxy/haproxy.cfg, with ports of this run's own. Poisson arrivals, by `uncork loadtest`.

Fails if N replicas answer in time less than 95 % of N times what one behind the same haproxy does, each at 1.2 times its capacity;
if the kill of one loses more than it had at hand; or if a restart of all, one behind the other, loses any. Both at three quarters of
what all but one can do: half of what three can. With --busy 80 % must do, and one request in twenty may be refused, as a machine that
stands still for a while lets no server keep its cap; nothing more may get an error.
Needs Python 3.9's standard library and haproxy.
"""

import argparse
import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = HERE.parent / "target" / "release" / "uncork"
HAPROXY = HERE.parent / "deploy" / "haproxy" / "haproxy.cfg"
CAP_MS, BATCH = 200, 16
CAPACITY = BATCH / (0.020 + 0.0005 * BATCH)
# Of what all but one can do. At all of it, those that are left refuse by chance.
BEARABLE = 0.75
SETTINGS = f"""
[server]
drain_delay_ms = 1000
[[model]]
name = "m"
synthetic = {{ base_ms = 20, per_row_ms = 0.5 }}
max_latency_ms = {CAP_MS}
max_batch_size = {BATCH}
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until(what, is_so, seconds=30):
    """Waits until something is so, which it may not be able to tell yet."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if is_so():
                return
        time.sleep(0.02)
    sys.exit(f"{what} did not come in {seconds} s")


def is_ready(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as answer:
        return answer.status == 200


class Replica:
    """One server, which keeps its port when it is started again."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.start()

    def start(self):
        log = open(self.folder / f"{self.port}.log", "ab")
        command = [BINARY, "serve", "--config", self.folder / "uncork.toml", "--http", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until("a replica", lambda: is_ready(self.port))

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(30)


@contextlib.contextmanager
def behind_haproxy(count):
    """So many replicas behind one port: that port, and the replicas."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "uncork.toml").write_text(SETTINGS)
        replicas = [Replica(folder) for _ in range(count)]
        port = free_port()
        settings = re.sub(r"bind 127.0.0.1:\d+", f"bind 127.0.0.1:{port}", HAPROXY.read_text())
        servers = "".join(f"    server {one.port} 127.0.0.1:{one.port}\n" for one in replicas)
        (folder / "haproxy.cfg").write_text(re.sub(r"( +server \w+ [\d.:]+\n)+", servers, settings))
        haproxy = subprocess.Popen(["haproxy", "-db", "-q", "-f", folder / "haproxy.cfg"])
        try:
            until("haproxy", lambda: is_ready(port))
            yield port, replicas
        finally:
            haproxy.kill()
            haproxy.wait()
            for one in replicas:
                one.process.kill()
                one.process.wait()


def load(port, rate, seconds, meanwhile=lambda: None):
    """A load test's counts, with what is done meanwhile from its first third on."""
    command = [BINARY, "loadtest", f"http://127.0.0.1:{port}", "--model", "m", "--rate", f"{rate:.0f}", "--for", f"{seconds}s"]
    command += ["--deadline", f"{CAP_MS}ms", "--slo", "on-time>=1%", "--json", "-"]
    timer = threading.Timer(seconds / 3, meanwhile)
    timer.start()
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    timer.join()
    try:
        return json.loads(ran.stdout)
    except ValueError:
        sys.exit(f"no report: {ran.stdout[-500:]}{ran.stderr[-2000:]}")


def in_time(count, asked):
    """Answers in time a second, of so many replicas at 1.2 times their capacity."""
    with behind_haproxy(count) as (port, _):
        load(port, 0.5 * count * CAPACITY, 2)  # each has seen some
        report = load(port, 1.2 * count * CAPACITY, asked.seconds)
        return report["objectives"][0]["measured"] * report["offered_per_second"]


def lost(report, busy):
    """What a caller did not get, in words; nothing of it is an answer that came late."""
    # On a machine with other work the generator may come to some too late to send them.
    unsent = report["generator"]["came_too_late_for"] if busy else 0
    errors = {**report["errors"], "never_sent": report["errors"]["never_sent"] - unsent}
    told = {name: count for name, count in errors.items() if count and name != "all"}
    is_borne = busy and report["refused"] <= 0.05 * report["requests"]
    return {**told, **({"refused": report["refused"]} if report["refused"] and not is_borne else {})}


def kill_one(replicas):
    replicas[0].end(signal.SIGKILL)
    time.sleep(0.5)  # as a supervisor waits; one that is back in 8 ms gets requests while it loads, as haproxy has not looked at it
    replicas[0].start()


def restart_all(replicas):
    for one in replicas:
        one.end(signal.SIGTERM)
        one.start()
        time.sleep(0.5)  # haproxy has looked at it


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicas", type=int, default=3, help="how many")
    parser.add_argument("--seconds", type=float, default=15, help="of each load")
    parser.add_argument("--busy", action="store_true", help="let one request in twenty be refused")
    asked = parser.parse_args()
    if asked.replicas < 2:
        parser.error("one is killed, so there must be two")
    count, wrong = asked.replicas, []
    one, many = in_time(1, asked), in_time(count, asked)
    share = many / (count * one)
    print(f"1 replica answers {one:.0f} a second in time, {count} answer {many:.0f}: {share:.3f} of {count} times as many", flush=True)
    if share < (0.8 if asked.busy else 0.95):
        wrong.append("the replicas do not add up")
    with behind_haproxy(count) as (port, replicas):
        rate = BEARABLE * (count - 1) * CAPACITY
        told = lost(load(port, rate, asked.seconds, lambda: kill_one(replicas)), asked.busy)
        at_hand = rate / count * CAP_MS / 1e3
        print(f"one killed at {rate:.0f} a second: {told or 'nothing'} lost; it had {at_hand:.0f} at hand at most", flush=True)
        if sum(told.values()) > at_hand:
            wrong.append("the kill cost others' requests")
        told = lost(load(port, rate, max(asked.seconds, 5 * count), lambda: restart_all(replicas)), asked.busy)
        print(f"all restarted, one behind the other, at {rate:.0f} a second: {told or 'nothing'} lost")
        if told:
            wrong.append("the restart lost requests")
    sys.exit("; ".join(wrong) or None)


if __name__ == "__main__":
    main()
