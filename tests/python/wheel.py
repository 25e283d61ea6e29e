"""What README promises of the wheel, in the environment that it was installed in: PYTHON tests/python/wheel.py

README's class, served by the program on the PATH and asked by README's curl; a load test that passes; a worker that is killed under load; a
second uncork in front of the first; the package, typed.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = pathlib.Path(sys.executable).parent


@contextlib.contextmanager
def serving(folder, *words):
    """`uncork serve …`: its address."""
    with open(folder / "log", "ab") as log:
        server = subprocess.Popen(
            ["uncork", "serve", *words, "--http", "127.0.0.1:0"], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        ready = re.search(r"http://\S+", server.stdout.readline())
        assert ready, (folder / "log").read_text()
        yield ready[0]
    finally:
        server.terminate()
        server.wait()


def load(url, folder, *words):
    """A load test of the example: its report."""
    command = ["uncork", "loadtest", f"{url}/models/churn", "--body", folder / "body.json", "--json", folder / "report.json", *words]
    told = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return told.returncode, told.stdout[-600:], json.loads((folder / "report.json").read_text())


def worker_of(folder):
    """The process that runs the model: the one that has our app.py's folder as its own, and is Python."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.joinpath("cwd").resolve() == folder.resolve() and b"uncork.worker" in path.joinpath("cmdline").read_bytes():
                return int(path.name)
    raise AssertionError("no worker")


def main():
    os.environ["PATH"] = f"{SCRIPTS}:{os.environ['PATH']}"
    import uncork

    package = pathlib.Path(uncork.__file__).parent
    assert ROOT not in package.parents or "site-packages" in package.parts, f"{package} is not the wheel's"
    assert (package / "py.typed").exists()
    version = subprocess.run([sys.executable, "-m", "uncork", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert version == uncork.__version__, version
    readme = (ROOT / "README.md").read_text()
    code = next(block for block in re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S) if "class Churn" in block)
    lines = [line for line in code.splitlines() if line.strip()]
    serve, curl = (
        next(block for block in re.findall(r"^```sh\n(.*?)^```", readme, re.M | re.S) if "app.py:Churn" in block).strip().splitlines()
    )
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "app.py").write_text(code)
        (folder / "body.json").write_text('{"months": 7, "tickets": 3}')
        with serving(folder, *serve.split()[2:]) as url:
            asked = curl.replace("http://127.0.0.1:8080", url)
            answer = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout
            assert answer == curl.split("#")[1].strip(), answer
            print(f"  README's {len(lines)} lines answer README's curl: {answer}")
            code, told, _ = load(url, folder, "--rate", "200", "--for", "3s", "--slo", "errors<=0%", "--slo", "p50<=50ms")
            assert code == 0, told
            print(f"  {told.strip().splitlines()[-1]}")
            killed = worker_of(folder)
            begin = subprocess.Popen(
                [
                    "uncork",
                    "loadtest",
                    f"{url}/models/churn",
                    "--body",
                    folder / "body.json",
                    "--rate",
                    "200",
                    "--for",
                    "4s",
                    "--json",
                    folder / "report.json",
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            # In the middle of it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                begin.wait(2.5)
            os.kill(killed, signal.SIGKILL)
            begin.communicate()
            report = json.loads((folder / "report.json").read_text())
            failed = report["statuses"].get("500", 0)
            assert failed <= 64, report["statuses"]
            assert report["good"] > 0.5 * report["requests"], report["statuses"]
            answer = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout
            assert answer == curl.split("#")[1].strip(), answer
            print(f"  a worker killed under load: {report['statuses']}, then it is answered again")
            with serving(folder, f"{url}/models/churn") as front:
                asked = curl.replace("http://127.0.0.1:8080", front)
                answer = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout
                assert answer == curl.split("#")[1].strip(), answer
                print("  a second uncork in front of it answers the same")


if __name__ == "__main__":
    main()
