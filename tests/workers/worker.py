"""A worker in the standard library alone, that does what its arguments say: well, or badly.

Takes x FP32 [-1, 2] and gives y FP32 [-1, 1]: the sum, or with `opaque` any body, and gives `pid:body`.
"""

import array
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time

how = sys.argv[1:]
sock = socket.socket(fileno=os.dup(0))
writing = threading.Lock()
descriptors, segments = [], {}


def exactly(count):
    parts = []
    while count:
        part, new, _, _ = socket.recv_fds(sock, min(count, 1 << 20), 4)
        descriptors.extend(new)
        if not part:
            os._exit(0 if "lingers" not in how else linger())
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def linger():
    while True:
        time.sleep(1)


def receive():
    kind, meta, data, ident = struct.unpack("<B3xIQQ", exactly(24))
    return kind, ident, json.loads(exactly(meta) or b"{}"), exactly(data)


def send(kind, ident, meta=None, data=b""):
    meta = json.dumps(meta or {}).encode()
    with writing:
        sock.sendall(struct.pack("<B3xIQQ", kind, len(meta), len(data), ident) + meta + data)


def strings(data):
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def joined(texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def once(name):
    """Whether this is the first worker that gets here."""
    try:
        os.close(os.open(os.path.join(os.environ["MARKS"], name), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def answer(element):
    (length,) = struct.unpack_from("<I", element)
    head, body = json.loads(element[4 : 4 + length] or b"{}"), element[4 + length :]
    said = {"content_type": "text/plain"}
    if body.startswith(b"status "):
        said["status"], body = int(body[7:10]), b"in the worker's words"
    elif body.startswith(b"words "):
        said, body = {"status": int(body[6:9])}, b"in the worker's words"
    elif body == b"head":
        body = json.dumps(head).encode()
    elif body == b"json":
        said, body = {}, b'{"a": 1}'
    elif body == b'"numbers"':
        said, body = {"numbers": True}, struct.pack("<3d", 0.1, 1, -1e-7)
    elif body == b'"no numbers"':
        said, body = {"numbers": True}, struct.pack("<2d", 1, float("nan"))
    elif body == b"7" or body == b"[8]":
        said, body = {}, b"[%s]" % body
    else:
        body = b"%d:%s" % (os.getpid(), body)
    return struct.pack("<I", len(json.dumps(said))) + json.dumps(said).encode() + body


def run(ident, meta, data):
    if "opaque" in how:
        rows = strings(data)
        bodies = [row[4 + struct.unpack_from("<I", row)[0] :] for row in rows]
        if any(body == b"exit" for body in bodies):
            sys.stderr.write("good \x1b[31mbye\n")
            sys.stderr.flush()
            os._exit(7)
        if any(body == b"bye" for body in bodies):
            send(66, ident, *opaque(rows))
            os._exit(0)
        if any(body == b"hang" for body in bodies):
            linger()
        if any(body == b"grow apart" for body in bodies) and os.fork() == 0:
            kept.append(bytearray(os.urandom(1 << 20) * 256))
            linger()
        if any(body == b"grow apart" for body in bodies):
            linger()
        if any(body == b"grow" for body in bodies):
            bytearray(256 << 20)[:: 4096] = b"x" * (256 << 8)
            kept.append(bytearray(os.urandom(1 << 20) * 256))
            linger()
        if any(body == b"short" for body in bodies):
            return send(66, ident, *opaque(rows[1:]))
        return send(66, ident, *opaque(rows))
    if "never-answers" in how and meta.get("rehearsal"):
        linger()
    told = meta["inputs"][0]
    if "segment" in told:
        data = segments[told["segment"]][told["offset"] : told["offset"] + told["bytes"]]
    x = array.array("f", data)
    rows = [(x[i], x[i + 1]) for i in range(0, len(x), 2)]
    bad = [i for i, row in enumerate(rows) if row[0] < 0]
    if bad and "names" in how:
        return send(67, ident, {"kind": "input", "rows": [[i, "it is negative"] for i in bad]})
    if bad and "failed-rows" in how:
        return send(67, ident, {"kind": "row", "rows": [[i, "secret"] for i in bad]})
    if bad and "row" in how:
        return send(67, ident, {"kind": "row", "message": "secret"})
    if bad:
        return send(67, ident, {"kind": "input", "message": "some row is negative"})
    y = array.array("f", [a + b for a, b in rows]).tobytes()
    if "shares" in how and "answer_segment" in meta:
        where = {"segment": meta["answer_segment"], "offset": 64 if "beyond" not in how else 1 << 40}
        segments[where["segment"]][64 : 64 + len(y)] = y
        told = {"name": "y", "datatype": "FP32", "shape": [len(rows), 1], "bytes": len(y), **where}
        return send(66, ident, {"outputs": [told]})
    send(66, ident, {"outputs": [{"name": "y", "datatype": "FP32", "shape": [len(rows), 1], "bytes": len(y)}]}, y)


def hook(kind, ident, meta, data):
    """In front, refuses what begins with `bad` and doubles the rest; behind, ends it with `!`."""
    name, elements = ("request", strings(data)) if kind == 3 else ("answer", strings(data))
    made = []
    for element in elements:
        at = 4 + struct.unpack_from("<I", element)[0]
        body = element[at:]
        if kind == 3 and body.startswith(b"bad"):
            return send(67, ident, {"kind": "input", "rows": [[0, "it is bad"]]})
        if kind == 3 and body.startswith(b"slow"):
            return None
        made.append(element[:at] + (body * 2 if kind == 3 else body + b"!"))
    data = joined(made)
    send(66, ident, {"outputs": [{"name": name, "datatype": "BYTES", "shape": [len(made)], "bytes": len(data)}]}, data)


def opaque(rows):
    data = joined([answer(row) for row in rows])
    return {"outputs": [{"name": "answer", "datatype": "BYTES", "shape": [len(rows)], "bytes": len(data)}]}, data


kept = []
if "deaf" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "prints" in how:
    print("one line on stdout")
    print("x" * 100_000)
    for i in range(100_000):
        print("and another line", i)
if "forks" in how and os.fork() == 0:
    sock.close()
    os.close(0)
    linger()
kind, _, setup, _ = receive()
assert kind == 1 and setup["version"] == 1, setup
if "refuses" in how:
    send(67, 0, {"message": "there is no such class"})
if "exits" in how:
    sys.exit("ModuleNotFoundError: No module named 'sklearn'")
if "never" in how:
    linger()
if "nonsense" in how:
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nthis is no frame at all")
if "too-long" in how:
    sock.sendall(struct.pack("<B3xIQQ", 65, 0xFFFFFFFF, 0, 0))
if "later-version" in how:
    send(65, 0, {"protocol": 2})
if "dies-later" in how and not once("first"):
    sys.exit("it does not come back")
if "other-later" in how and not once("first"):
    send(65, 0, {"protocol": 1, "inputs": [{"name": "z", "datatype": "FP32", "shape": [-1]}], "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]})
if "opaque" in how:
    spec = {"datatype": "BYTES", "shape": [-1]}
    has_hooks = "hooks" in how or ("hooks-later" in how and not once("first"))
    hooks = ["prepare", "finish"] if has_hooks and setup.get("hooks") else []
    send(65, 0, {"protocol": 1, "inputs": [{"name": "request", **spec}], "outputs": [{"name": "answer", **spec}], "hooks": hooks, "whole": "whole" in how})
else:
    x, y = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}, {"name": "y", "datatype": "FP32", "shape": [-1, 1]}
    send(65, 0, {"protocol": 1, "inputs": [x], "outputs": [y], "unknown": {}, "shared_memory": "shares" in how})
send(200, 0, {"a later version": "says this"})
while True:
    kind, ident, meta, data = receive()
    if kind == 2:
        if "breaks" in how and data[:4] == struct.pack("<f", 13.0):
            send(66, ident, {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1 << 40], "bytes": 4}]}, b"1234")
        else:
            run(ident, meta, data)
    elif kind in (3, 4):
        hook(kind, ident, meta, data)
    elif kind == 5:
        send(200, ident)
    elif kind == 8:
        segments[meta["segment"]] = mmap.mmap(descriptors.pop(0), meta["bytes"])
    elif kind == 9:
        del segments[meta["segment"]]
    elif kind == 6:
        send(68, ident)
    elif kind == 7 and "deaf" not in how:
        sys.exit(0)
