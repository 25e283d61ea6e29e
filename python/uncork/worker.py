"""The worker: `python -m uncork.worker`, started by uncork, with its socket as descriptor 0. docs/workers.md has the protocol.

The main thread loads the model and runs batches, as some libraries want it, and between batches it reads the socket itself: a batch that
went from one thread to another would take twice as long to arrive. While one runs for longer than a moment, a second thread reads, so
that pings are answered and the end of uncork is seen. Where there are hooks the second thread always reads, and hooks run in a few more.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from . import wire
from .model import Failed, Model, load
from .wire import Frame, Tensor, Wire

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# A batch that runs for longer has the socket read beside it; twice as long goes by until the end of uncork is seen.
MOMENT_S = 0.05
# Hooks that run at once.
HOOKS = 4
# Of what a model says about itself, so much reaches the log.
MOST_WORDS = 16_384


class Worker:
    """One process that runs one model."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._wire = Wire(connection)
        # Frames that the second thread has read for the main one, `None` for the end; and who reads now, if anybody.
        self._inbox: deque[Frame | None] = deque()
        self._is_read = False
        self._change = threading.Condition(threading.Lock())
        # How often the main thread has begun and ended a batch: odd while one runs.
        self._turns = 0
        # Calls that somebody waits for.
        self._wanted: set[int] = set()
        self._hooks: ThreadPoolExecutor | None = None
        # Hooks that run or wait for a thread, and since when those are cancelled that run.
        self._calls: dict[int, Future[None]] = {}
        self._cancelled: dict[int, float] = {}
        self._stuck_after_s = float("inf")
        self._model: Model | None = None
        self._is_fork = False
        os.register_at_fork(after_in_child=self._be_a_fork)

    def _be_a_fork(self) -> None:
        """A child of the model's own making has no part in the protocol, and ends by the usual signals."""
        self._is_fork = True
        self._connection.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def work(self) -> int:
        """Loads, runs batches until it is told to stop, and returns the exit code."""
        setup = self._next()
        if setup is None:
            return 0
        self._turns += 1
        threading.Thread(target=self._read_beside, name="uncork-reader", daemon=True).start()
        self._stuck_after_s = setup.meta.get("stuck_after_ms", float("inf")) / 1e3
        try:
            self._model = model = load(setup.meta)
            meta: dict[str, Any] = {"protocol": 1, "platform": model.platform, "inputs": model.inputs, "outputs": model.outputs}
            meta["shared_memory"] = True
            if model.takes_whole:
                meta["whole"] = True
            if model.hooks:
                meta["hooks"] = model.hooks
                self._start_hooks()
            introduction = self._wire.frame(wire.READY, 0, meta, model.example(), "example")
        except BaseException as error:  # also SystemExit: a model that exits has failed to load
            self._die_if_fork()
            told = error if isinstance(error, Failed) else Failed.of(error, "loading the model")
            if told.log:
                print(told.log, file=sys.stderr, flush=True)
            self._say(wire.FAILED, 0, {"kind": "failed", "message": str(told)[:MOST_WORDS]})
            return 1
        self._die_if_fork()
        # What was loaded stays: collections need not look at it, and pauses stay short.
        gc.collect()
        gc.freeze()
        self._wire.send(introduction)
        while True:
            self._turns += 1
            frame = self._next()
            self._turns += 1
            if frame is None:
                if self._hooks:
                    self._hooks.shutdown()
                return 0
            self._answer(frame, model.run)

    def _start_hooks(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._hooks = ThreadPoolExecutor(max_workers=HOOKS, thread_name_prefix="uncork-hook")
        # A hook asks for its turn beside a batch sooner than after Python's 5 ms.
        sys.setswitchinterval(0.001)

    def _answer(self, frame: Frame, run: Callable[[dict[str, Tensor], bool], list[Tensor]]) -> None:
        if frame.id not in self._wanted:
            return
        try:
            outputs = run(self._wire.tensors(frame), bool(frame.meta.get("rehearsal")))
            answer = self._wire.frame(wire.DONE, frame.id, {}, outputs, segment=frame.meta.get("answer_segment"))
        except BaseException as error:  # also SystemExit: one call's failure is not the process's end
            self._die_if_fork()
            told = error if isinstance(error, Failed) else Failed.of(error, "running the batch")
            rows = [(row, said[-MOST_WORDS:]) for row, said in told.rows]
            meta = {"kind": told.kind, "message": (told.log or str(told))[-MOST_WORDS:], "rows": rows}
            answer = self._wire.frame(wire.FAILED, frame.id, meta)
        self._die_if_fork()
        self._wanted.discard(frame.id)
        self._wire.send(answer)

    def _call_hook(self, frame: Frame, hook: Callable[[dict[str, Tensor], bool], list[Tensor]]) -> None:
        """Runs a hook when there is a thread for it. Where all threads have been with cancelled calls for long, the process ends: none comes back."""
        assert self._hooks is not None
        hanging = [since for call, since in list(self._cancelled.items()) if call in self._calls]
        if len(hanging) >= HOOKS and time.monotonic() - max(hanging) > self._stuck_after_s:
            print(f"{HOOKS} hooks hang, and no other can run: this worker ends, and another takes its place", file=sys.stderr)
            self._end()
        self._wanted.add(frame.id)
        self._calls[frame.id] = call = self._hooks.submit(self._answer, frame, hook)
        call.add_done_callback(lambda _: self._forget(frame.id))

    def _forget(self, call: int) -> None:
        self._calls.pop(call, None)
        self._cancelled.pop(call, None)

    def _cancel(self, call: int) -> None:
        """Nobody waits for this call. One that has not begun does not, and what came for it is let go."""
        self._wanted.discard(call)
        hook = self._calls.get(call)
        if hook is not None and not hook.cancel():
            self._cancelled[call] = time.monotonic()

    def _say(self, kind: int, call: int, meta: dict[str, Any]) -> None:
        self._wire.send(self._wire.frame(kind, call, meta))

    def _die_if_fork(self) -> None:
        """A child that the model forked, and that came back from its code, is not to answer for its parent."""
        if self._is_fork:
            sys.stderr.flush()
            os._exit(0)

    def _next(self) -> Frame | None:
        """The next frame for the main thread: one that was read beside a batch, else from the socket."""
        with self._change:
            while not self._inbox and (self._is_read or self._hooks is not None):
                self._change.wait()
            if self._inbox:
                return self._inbox.popleft()
            self._is_read = True
        frame = self._read()
        with self._change:
            self._is_read = False
        return frame

    def _read_beside(self) -> None:
        """Reads while the main thread has no time to; ends with the process."""
        seen = 0
        while True:
            time.sleep(MOMENT_S)
            turns, before, seen = self._turns, seen, self._turns
            is_long = turns % 2 == 1 and turns == before
            with self._change:
                if self._is_read or not (is_long or self._hooks):
                    continue
                self._is_read = True
            # Whoever waits for a frame waits for this one: the turn to read is given back with it.
            while True:
                frame = self._read()
                with self._change:
                    self._inbox.append(frame)
                    self._is_read = self._hooks is not None
                    self._change.notify()
                if self._hooks is None:
                    break

    def _read(self) -> Frame | None:
        """The next frame that is the main thread's; others are seen to. Does not return when uncork is gone."""
        try:
            while True:
                frame = self._wire.read()
                if frame.kind == wire.PING:
                    self._say(wire.PONG, frame.id, {})
                elif frame.kind == wire.CANCEL:
                    self._cancel(frame.id)
                elif frame.kind in (wire.SETUP, wire.RUN):
                    self._wanted.add(frame.id)
                    return frame
                elif frame.kind in (wire.PREPARE, wire.FINISH):
                    assert self._hooks is not None and self._model is not None, "a hook that was not announced"
                    self._call_hook(frame, self._model.prepare if frame.kind == wire.PREPARE else self._model.finish)
                elif frame.kind == wire.DRAIN:
                    return None
        except (EOFError, OSError):
            pass
        except BaseException:
            traceback.print_exc()
        self._end()

    def _end(self) -> NoReturn:
        """Nobody is left to answer: no batch is worth finishing, and no child of the model's outlives it."""
        sys.stderr.flush()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def main() -> int:
    """Takes the socket, and keeps everything else away from it."""
    try:
        connection = socket.socket(fileno=os.dup(0))
    except OSError:
        print("uncork starts this program: `uncork serve app.py:Class`. Nothing else is its descriptor 0.", file=sys.stderr)
        return 2
    os.set_inheritable(connection.fileno(), False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # What is printed goes to the log.
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # A terminal and a service manager signal whole groups; when to stop is uncork's to say, once all is answered. A handler that
    # does nothing, and not SIG_IGN: the model's children would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    code = Worker(connection).work()
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
