"""Frames of the workers' protocol, docs/workers.md: how they are read and written, and no word on what they mean."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

SETUP, RUN, PREPARE, FINISH, CANCEL, PING, DRAIN, SEGMENT, FORGET = range(1, 10)
READY, DONE, FAILED, PONG = range(65, 69)

HEADER = struct.Struct("<B3xIQQ")
LENGTH = struct.Struct("<I")
MOST_META = 16 << 20
MOST_DATA = 4 << 30
# Bytes that are asked for at a time: small frames come whole.
ROOM = 64 << 10

written = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

Buffer = Union[bytes, bytearray, memoryview]


class Tensor(NamedTuple):
    """A tensor as it is on the wire: row-major, little-endian."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: Buffer


class Frame(NamedTuple):
    """A frame, its JSON parsed, its tensors not yet cut out."""

    kind: int
    id: int
    meta: dict[str, Any]
    data: memoryview


class Wire:
    """One end of the socket. One thread reads; any may write."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._writing = threading.Lock()
        self._segments: dict[int, mmap.mmap] = {}
        # What has come and is not read yet lies between these two of the room, and the descriptors that came with it.
        self._room = memoryview(bytearray(ROOM))
        self._begin = self._end = 0
        self._descriptors: list[int] = []

    def read(self) -> Frame:
        """The next frame; `EOFError` when the other end is gone, `ValueError` for what the protocol does not allow."""
        while self._end - self._begin < HEADER.size:
            self._receive()
        kind, meta_bytes, data_bytes, call = HEADER.unpack_from(self._room, self._begin)
        if meta_bytes > MOST_META or data_bytes > MOST_DATA:
            raise ValueError(f"a frame of {meta_bytes} and {data_bytes} bytes")
        self._begin += HEADER.size
        rest = memoryview(bytearray(meta_bytes + data_bytes))
        come = min(len(rest), self._end - self._begin)
        rest[:come] = self._room[self._begin : self._begin + come]
        self._begin += come
        self._fill(rest[come:])
        meta = json.loads(str(rest[:meta_bytes], "utf-8")) if meta_bytes else {}
        if kind == SEGMENT:
            self._map(meta)
        elif kind == FORGET:
            # It is unmapped when no tensor lies there any more.
            self._segments.pop(int(meta["segment"]), None)
        return Frame(kind, call, meta, rest[meta_bytes:])

    def _receive(self) -> None:
        """More of what the socket has, behind the begin of a header."""
        begun = self._room[self._begin : self._end]
        self._room[: len(begun)] = begun
        self._begin, self._end = 0, len(begun)
        got, control, _, _ = self._connection.recvmsg_into([self._room[self._end :]], socket.CMSG_SPACE(4))
        self._descriptors += [
            LENGTH.unpack_from(data)[0] for level, kind, data in control if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        ]
        if got == 0:
            raise EOFError
        self._end += got

    def _fill(self, room: memoryview) -> None:
        while room:
            got = self._connection.recv_into(room)
            if got == 0:
                raise EOFError
            room = room[got:]

    def _map(self, meta: dict[str, Any]) -> None:
        if not self._descriptors:
            raise ValueError("a segment without its descriptor")
        descriptor = self._descriptors.pop(0)
        try:
            self._segments[int(meta["segment"])] = mmap.mmap(descriptor, int(meta["bytes"]))
        finally:
            os.close(descriptor)

    def tensors(self, frame: Frame) -> dict[str, Tensor]:
        """A frame's inputs by their names."""
        tensors, at = {}, 0
        for told in frame.meta.get("inputs", ()):
            length = int(told["bytes"])
            if "segment" in told:
                offset = int(told["offset"])
                data = memoryview(self._segments[told["segment"]])[offset : offset + length]
            else:
                data = frame.data[at : at + length]
                at += length
            if len(data) != length:
                raise ValueError(f"{told['name']} is longer than its frame")
            tensors[told["name"]] = Tensor(told["name"], told["datatype"], told["shape"], data)
        return tensors

    def frame(
        self, kind: int, call: int, meta: dict[str, Any], tensors: Sequence[Tensor] = (), key: str = "outputs", segment: int | None = None
    ) -> list[Buffer]:
        """A frame in pieces; its tensors are told under `key`, and lie in `segment` where they fit."""
        data: list[Buffer] = []
        if tensors:
            room = memoryview(self._segments[segment]) if segment is not None else memoryview(b"")
            told, at = [], 0
            for name, datatype, shape, content in tensors:
                content = memoryview(content).cast("B") if len(content) else b""
                entry = {"name": name, "datatype": datatype, "shape": list(shape), "bytes": len(content)}
                if content and at + len(content) <= len(room):
                    room[at : at + len(content)] = content
                    entry["segment"], entry["offset"] = segment, at
                    at += len(content) + -len(content) % 64
                else:
                    data.append(content)
                told.append(entry)
            meta = {**meta, key: told}
        # Half a surrogate pair, as in names of files that are no UTF-8, is no JSON to uncork.
        text = written(meta).encode("utf-8", "replace") if meta else b""
        return [HEADER.pack(kind, len(text), sum(map(len, data)), call) + text, *data]

    def send(self, pieces: list[Buffer]) -> None:
        """Sends a frame."""
        with self._writing:
            self._write(pieces)

    def _write(self, pieces: list[Buffer]) -> None:
        views = [memoryview(piece) for piece in pieces]
        while views:
            sent = self._connection.sendmsg(views[:64])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]


def elements(data: Buffer, count: int) -> list[memoryview]:
    """The elements of a BYTES tensor."""
    view, at, found = memoryview(data), 0, []
    unpack = LENGTH.unpack_from
    for _ in range(count):
        end = at + 4 + unpack(view, at)[0]
        found.append(view[at + 4 : end])
        at = end
    if at != len(view):
        raise ValueError(f"{count} elements fill {at} of {len(view)} bytes")
    return found


def joined(parts: Sequence[Buffer]) -> bytes:
    """A BYTES tensor of these elements."""
    pack = LENGTH.pack
    pieces: list[Buffer] = []
    for part in parts:
        pieces.append(pack(len(part)))
        pieces.append(part)
    return b"".join(pieces)
