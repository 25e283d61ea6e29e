"""Asks every network of tests/models on another device, and compares with what onnxruntime answered.

    cargo build --release --features wgpu --target-dir target/wgpu
    python3 benches/device.py target/wgpu/release/uncork --device wgpu

Without a graphics processor Mesa's lavapipe stands in for one (Debian: mesa-vulkan-drivers libvulkan1 libegl1 libgl1 libgles2 libglvnd0
libglx0 libopengl0), with CUBECL_WGPU_DEFAULT_DEVICE=Cpu in the environment: slowly, but with the same kernels. Some ten minutes
there. Each line is a network: the largest difference as a share of the largest value, or why it is refused. The exit code is 1 if one
answered wrongly. Needs Python 3.11's standard library alone.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

MODELS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "models"
WRONG = 1e-3  # what half precision is off by is a third of that


def flat(values):
    """Elements of nested lists; what is no number counts as zero."""
    for value in values:
        if isinstance(value, list):
            yield from flat(value)
        else:
            yield 0 if value is None else value


def off(have, want):
    """The largest difference of two tensors, as a share of the largest value."""
    have, want = list(flat(have["data"])), list(flat(want["data"]))
    if len(have) != len(want):
        return float("inf")
    if any(isinstance(value, str) for value in want):
        return 0.0 if have == want else float("inf")
    return max((abs(a - b) for a, b in zip(have, want)), default=0) / max([abs(b) for b in want] + [1e-9])


def tried(binary, device, model):
    """What came of a network: how far it is off, or why it is refused."""
    case = json.loads(model.with_suffix(".json").read_text())
    serve = [binary, "serve", f"m={model}", "--device", device, "--http", "127.0.0.1:0", "--max-batch-size", "4", "--max-latency-ms", "60000"]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "UNCORK_LOG": "error"})
        try:
            found = re.search(r"http://[\w.:]+", server.stdout.readline())
            if not found:
                server.wait()
                log.seek(0)
                said = [line.strip() for line in log if "m':" in line or "error" in line.lower()]
                return "refused: " + (said[-1] if said else "it says nothing")[-160:]
            request = urllib.request.Request(
                found[0] + "/v2/models/m/infer",
                json.dumps({"inputs": case["inputs"]}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=120) as answer:
                outputs = json.load(answer)["outputs"]
        except urllib.error.HTTPError as error:
            return f"refused: {error.read().decode()[:160]}"
        finally:
            server.terminate()
            server.wait()
    wanted = {output["name"]: output for output in case["outputs"]}
    return max(off(output, wanted[output["name"]]) for output in outputs if output["name"] in wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", help="a program with that device built in")
    parser.add_argument("--device", default="wgpu")
    args = parser.parse_args()
    right, refused, wrong = 0, 0, 0
    for model in sorted(MODELS.rglob("*.onnx")):
        if not model.with_suffix(".json").exists():
            continue
        came = tried(args.binary, args.device, model)
        if isinstance(came, str):
            refused += 1
        elif came < WRONG:
            right, came = right + 1, f"{came:.1e}"
        else:
            wrong, came = wrong + 1, f"WRONG, off by {came:.1e}"
        print(f"{model.relative_to(MODELS)}: {came}", flush=True)
    print(f"{right} right, {refused} refused, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
