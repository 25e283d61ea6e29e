"""The examples of examples/python, trained, served, and asked as their README asks: python3 tests/python/examples.py target/release/uncork

The Python that runs this needs what their requirements say. PyTorch may be the system's: python3-torch and python3-sklearn of Debian, without
the gigabytes that its package on PyPI has for GPUs.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "python"
SYSTEM = "/usr/bin/python3"
NEAR = 0.05  # of probabilities: training differs a little from machine to machine


def is_near(have, want):
    """The same, but for a little in numbers."""
    if isinstance(want, float):
        return abs(have - want) <= NEAR
    if isinstance(want, dict):
        return have.keys() == want.keys() and all(is_near(have[key], value) for key, value in want.items())
    if isinstance(want, list):
        return len(have) == len(want) and all(map(is_near, have, want))
    return have == want


def python_of(name):
    """The Python that has what the example needs."""
    if name != "digit":
        return sys.executable
    for python in (sys.executable, SYSTEM):
        if subprocess.run([python, "-c", "import sklearn, torch"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    sys.exit(f"neither {sys.executable} nor {SYSTEM} has PyTorch and scikit-learn: apt-get install python3-torch python3-sklearn")


def main():
    readme = (FOLDER / "README.md").read_text()
    asked = re.findall(r"^```sh\n(curl .*?)```\n```json\n(.*?)```", readme, re.M | re.S)
    assert len(asked) == 4, len(asked)
    for curl, want in asked:
        name = re.search(r"/models/(\w+)", curl)[1]
        python = python_of(name)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(FOLDER / f"{name}.py", folder)
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT / "python"),
                "PATH": f"{pathlib.Path(python).parent}:{os.environ['PATH']}",
            }
            trained = subprocess.run(
                [python, f"{name}.py"], cwd=folder, env=environment, check=True, capture_output=True, text=True
            )
            command = [BINARY, "serve", f"{name}.py:{name.capitalize()}", "--http", "127.0.0.1:0", "--max-latency-ms", "5000"]
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
            try:
                url = re.search(r"http://\S+", server.stdout.readline())[0]
                command = curl.replace("http://127.0.0.1:8080", url)
                answer = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True).stdout
                have = json.loads(answer)
                assert is_near(have, json.loads(want)), answer
                print(f"  {name}: {trained.stdout.strip()}; {answer.strip()}")
            finally:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
