import importlib.abc, importlib.util, json, os, sys

def read(count):
    parts = []
    while count:
        part = os.read(0, min(count, 1 << 16))
        if not part:
            sys.exit("uncork closed the socket before it had sent the worker")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)

sources = json.loads(read(int.from_bytes(read(4), "little")))

class Embedded(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """The package that is part of uncork's program."""
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            origin = "<uncork>/" + name.replace(".", "/") + ".py"
            return importlib.util.spec_from_loader(name, self, origin=origin, is_package=name == "uncork")
    def is_package(self, name):
        return name == "uncork"
    def get_source(self, name):
        return sources[name]

def share():
    """A file that ends with this process, from which those that it starts can import the package: they have another finder than this."""
    import zipfile
    memory = os.memfd_create("uncork.zip")
    with open(memory, "wb", closefd=False) as file, zipfile.ZipFile(file, "w") as archive:
        for name, source in sources.items():
            path = name.replace(".", "/") + ("/__init__.py" if name == "uncork" else ".py")
            archive.writestr(zipfile.ZipInfo(path), source)
    place = f"/proc/{os.getpid()}/fd/{memory}"
    # multiprocessing hands on the path, behind all else that is there, and other programs read the variable.
    sys.path.append(place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), place]))

sys.meta_path.insert(0, Embedded())
if "" not in sys.path:
    sys.path.insert(0, "")
try:
    share()
except (AttributeError, OSError):
    pass  # no such memory there: what is spawned needs the package to be installed
from uncork.worker import main
sys.exit(main())
