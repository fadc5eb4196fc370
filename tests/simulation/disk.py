"""A disk whose flushes take as long as the simulation chooses; a power cut loses what was not flushed.

    flush begins                       flush ends                          power cut
        │ what the files hold is copied    │ the copy is what is on disk       │ the copy is what is left
        ▼                                  ▼                                   ▼
    ────┴────── others run, and write ─────┴────── others run, and write ──────┴

An engine's call that waits for the disk runs in a thread of its own, but never at the same time as anything else: it
is run until it waits for the disk, and again when the simulation lets the disk answer.
"""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import trio

from mongottl.storage.data_folder import DATABASE_NAME

WAL_NAME = DATABASE_NAME + "-wal"


class BlockingCall:
    """A call in a thread, which stops wherever it waits for the disk. result: what it raised, when it has ended."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.ended = trio.Event()
        self.error: Exception | None = None
        self.disk_error: OSError | None = None
        self._function = function
        self._has_ended = False
        self._may_run = threading.Semaphore(0)
        self._has_stopped = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self, disk_error: OSError | None = None) -> None:
        """Runs it until it waits for the disk again or ends. disk_error: what its wait for the disk ends with."""
        self.disk_error = disk_error
        self._may_run.release()
        self._has_stopped.acquire()
        if self._has_ended:
            self.ended.set()

    def stop(self) -> None:
        """Called in its thread: gives the simulation its turn. Raises what the disk fails with."""
        self._has_stopped.release()
        self._may_run.acquire()
        if self.disk_error is not None:
            raise self.disk_error

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            self._function()
        except Exception as error:
            self.error = error
        self._has_ended = True
        self._has_stopped.release()


class Disk:
    """What is on disk of an engine's files, wherever their directory lies now.

    durable: the files as a power cut leaves them. durable_turn: the turn in which they were so.
    """

    def __init__(self, generator: random.Random) -> None:
        self.durable: dict[str, bytes] = {}
        self.durable_turn = 0
        self.turn = 0
        self.waits = 0
        self.waiting: list[BlockingCall] = []
        self._random = generator
        self._running: BlockingCall | None = None
        self._home = Path()

    def open(self, home: Path) -> None:
        """The files lie in `home` from now on."""
        self._home = home

    async def run_blocking(self, function: Callable[[], None]) -> None:
        """What the server does in a worker thread."""
        call = BlockingCall(function)
        self.waiting.append(call)
        self._resume(call, None)
        await call.ended.wait()
        if call.error is not None:
            raise call.error

    def answer(self, error: OSError | None = None) -> None:
        """Ends one of the waits for the disk that are under way."""
        if self.waiting:
            self._resume(self._random.choice(self.waiting), error)

    def abandon(self) -> None:
        """Ends all calls under way, by an error: their process is gone."""
        while self.waiting:
            self._resume(self.waiting[0], OSError(5, "the simulated process has ended"))

    def _resume(self, call: BlockingCall, error: OSError | None) -> None:
        self._running = call
        call.resume(error)
        self._running = None
        if call.ended.is_set():
            self.waiting.remove(call)

    def sync(self, descriptor: int) -> None:
        """Stands for fdatasync: what a file holds when it is called is on disk when it returns."""
        self.waits += 1
        files = self.files()
        turn = self.turn
        if self._running is not None:
            self._running.stop()
        log = self._home / WAL_NAME
        if log.exists() and os.path.samestat(os.fstat(descriptor), log.stat()) and turn >= self.durable_turn:
            self.durable = files
            self.durable_turn = turn

    def note_durable(self) -> None:
        """Everything that the files hold now is on disk."""
        self.durable = self.files()
        self.durable_turn = self.turn

    def files(self) -> dict[str, bytes]:
        """What the files hold now, as every process sees them."""
        return {name: _content(self._home / name) for name in (DATABASE_NAME, WAL_NAME) if (self._home / name).exists()}

    def cut_power(self, home: Path) -> None:
        """Leaves in the new directory `home` what a power cut leaves.

        That is what was waited for, and of what was appended to the log since, any part that begins at its front.
        """
        left = dict(self.durable)
        now = self.files()
        log, durable_log = now.get(WAL_NAME, b""), left.get(WAL_NAME, b"")
        # A database that a checkpoint has changed since goes with a log of which more was waited for.
        if now.get(DATABASE_NAME) == left.get(DATABASE_NAME) and self._random.random() < 0.5:
            end = self._random.randrange(len(log) + 1)
            left[WAL_NAME] = log[:end] + durable_log[end:]
        home.mkdir()
        for name, content in left.items():
            (home / name).write_bytes(content)


def _content(path: Path) -> bytes:
    return path.read_bytes()
