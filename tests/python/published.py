"""Examples that LitServe, MOSEC and BentoML have published, unedited, run by the worker: python3 tests/python/published.py FOLDER

They come from pinned wheels of the package index, which FOLDER keeps: from the READMEs that lie in them, and from modules that they hold. Where
an example loads weights from a hub, a stand-in takes the place of the library that would load them. Needs what tests/python/peers.txt says.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import msgpack
from fake import Fake

# Stand-ins for libraries that would fetch weights.
SUMMARIES = """
def pipeline(task, device=None):
    assert task == "summarization"
    def summarize(texts):
        return [{"summary_text": text[:5]} for text in ([texts] if isinstance(texts, str) else texts)]
    return summarize
"""
NO_TORCH = """
float16 = "float16"
class cuda:
    is_available = staticmethod(lambda: False)
"""
IMAGES = """
class Image:
    def __init__(self, prompt):
        self.prompt = prompt
    def save(self, file, format):
        file.write(f"{format} of {self.prompt}".encode())
class StableDiffusionPipeline:
    @classmethod
    def from_pretrained(cls, name, torch_dtype):
        return cls()
    def to(self, device):
        return self
    def enable_model_cpu_offload(self):
        pass
    def __call__(self, prompts):
        assert isinstance(prompts, list), prompts
        return [Image(prompt) for prompt in prompts], [False] * len(prompts)
"""
TRANSFORMERS = {"transformers.py": SUMMARIES, "torch.py": NO_TORCH}
DIFFUSERS = {"diffusers.py": IMAGES, "torch.py": NO_TORCH}
CAT = msgpack.packb("a cat"), b"JPEG of a cat"

# Package, version, what its README's example holds or the module it is in, the class; bodies and their answers; stand-ins.
EXAMPLES = [
    ("litserve", "0.2.19", "class InferenceEngine", "InferenceEngine", [(b'{"input": 4.0}', b'{"output":80.0}')], {}),
    ("litserve", "0.2.0", "class SimpleLitAPI", "SimpleLitAPI", [(b'{"input": 4.0}', b'{"output":16.0}')], {}),
    ("litserve", None, "litserve.test_examples.simple_example", "SimpleBatchedAPI", [(b'{"input": 4}', b'{"output":16}')], {}),
    ("litserve", None, "litserve.test_examples.simple_example", "SimpleStreamAPI", "streams its answer; uncork serves", {}),
    ("mosec", "0.2.1", "class CalculateExp", "CalculateExp", [(b'{"x": 0}', b'{\n  "y": 1.0\n}'), (b"{}", 422), (b"{", 400)], {}),
    ("mosec", "0.8.0", "class StableDiffusion", "StableDiffusion", [CAT, (b"\xc1", 400)], DIFFUSERS),
    ("mosec", "0.9.8", "class StableDiffusion", "StableDiffusion", [CAT, CAT], DIFFUSERS),
    ("bentoml", "1.2.0", "class Summarization", "Summarization", [(b'{"text": "abcdefg"}', b"abcde"), (b"{}", 400)], TRANSFORMERS),
    ("bentoml", "1.3.0", "class Summarization", "Summarization", [(b'{"texts": ["abcdefg", "b"]}', b'["abcde","b"]')], TRANSFORMERS),
    ("bentoml", "1.4.40", "class Summarization", "Summarization", [(b'{"texts": ["abcdefg", "b"]}', b'["abcde","b"]')], TRANSFORMERS),
]


def readme(folder, package, version):
    """The README that is in the wheel; of some older ones there are wheels for older Pythons only."""
    if not list(folder.glob(f"{package}-{version}-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        for tag in ("manylinux1", "manylinux2014", "manylinux_2_17", "manylinux_2_28"):
            command += ["--platform", f"{tag}_x86_64"]
        wanted = f"{package}=={version}"
        if subprocess.run([*command, "--python-version", "3.11", wanted], capture_output=True).returncode != 0:
            subprocess.run([*command, "--python-version", "3.9", wanted], check=True)
    (wheel,) = folder.glob(f"{package}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()


def code_of(text, package, words):
    """The example of a README that holds these words: one block, or all from the one that imports to the one that runs a server."""
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    place = next(place for place, block in enumerate(blocks) if words in block)
    first = place
    while not re.search(rf"^(import|from) {package}", blocks[first], re.M):
        first -= 1
    last = place
    while first < place and "__main__" not in blocks[last]:
        last += 1
    return "".join(blocks[first : last + 1])


def main():
    """Runs all; returns how many went wrong."""
    wheels = pathlib.Path(sys.argv[1])
    wheels.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for package, version, place, name, asked, stand_ins in EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            for file, text in stand_ins.items():
                pathlib.Path(folder, file).write_text(text)
            if version is not None:
                pathlib.Path(folder, "server.py").write_text(code_of(readme(wheels, package, version), package, place))
            target = f"{place if version is None else 'server.py'}:{name}"
            with Fake(None, target, folder=folder) as worker:
                told = check(worker, asked)
        wrong += told is not None
        print(f"  {package} {version or ''} {name}: {told or ('is refused in words' if isinstance(asked, str) else 'runs')}")
    return wrong


def check(worker, asked):
    """What differs from what was asked; `None` where nothing does."""
    try:
        worker.ready()
    except RuntimeError as error:
        return None if isinstance(asked, str) and asked in str(error) else f"{error}\n{worker.log}"
    if isinstance(asked, str):
        return "is served"
    told = worker.ask(*(body for body, _ in asked))
    if not isinstance(told, list):
        return json.dumps(told)
    for (head, body), (_, wanted) in zip(told, asked):
        if isinstance(wanted, int):
            is_as_wanted = head.get("status") == wanted
        else:
            is_as_wanted = body in (wanted, msgpack.packb(wanted)) or body.startswith(b"[") and json.loads(body) == json.loads(wanted)
        if not is_as_wanted:
            return f"{head} {body!r} instead of {wanted!r}"
    return None


if __name__ == "__main__":
    sys.exit(main())
