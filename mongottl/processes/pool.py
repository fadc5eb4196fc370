"""Processes that work for a server, and the pool of them that it has for each program."""

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# Processes that a pool keeps although no operation uses them. Each takes about 5 MB.
MAX_IDLE: Final = 2
# They may use one part of this number of the machine's memory. Where that is too little there are fewer of them, but
# LEAST_PROCESSES.
MEMORY_SHARE: Final = 8
LEAST_PROCESSES: Final = 4
# Seconds after which processes that nobody uses end.
IDLE_S: Final = 5.0

# No reply is longer. It bounds what the server reads from a process.
_MAX_REPLY_BYTES: Final = 64 << 20
_HEADER_BYTES: Final = 5
# What is received at once, and how much of that in one step of the server.
_READ_BYTES: Final = 256 << 10
_STEP_BYTES: Final = 1 << 20
# What the operating system keeps of a request that the process has not read yet, if it allows as much.
_SEND_BUFFER_BYTES: Final = 1 << 20
# How long the processes may take to end when the server stops.
_END_S: Final = 1.0
# Shorter parts of a request are sent together.
_LARGE_PART_BYTES: Final = 64 << 10


class Program:
    """What the processes of a pool run.

    module: has `prepare` (`spawner`). arguments: for that. imported: top-level modules that it imports besides the
    standard library. memory_bytes: what one of them may take. most: how many there are at most; one user may have half
    of them at once, or one machine where clients do not log in, so that others find some free.
    """

    def __init__(
        self, module: str, arguments: tuple[str, ...], imported: tuple[str, ...], memory_bytes: int, most: int
    ) -> None:
        self.module: Final = module
        self.arguments: Final = arguments
        self.imported: Final = imported
        self.memory_bytes: Final = memory_bytes
        self.most = most

    def command(self) -> list[str]:
        """The arguments of `spawner`, its path first."""
        folders = _folders(self.imported)
        spawner = str(Path(__file__).parent / "spawner.py")
        return [spawner, self.module, str(len(folders)), *folders, *self.arguments]


class Spawner:
    """The process that starts those of a program (`spawner`), and ends them when it, or the server, ends."""

    def __init__(self, program: Program) -> None:
        zone = os.environ.get("TZ")
        self._socket, theirs = socket.socketpair()
        try:
            self._process: Final = subprocess.Popen(
                [sys.executable, "-I", "-S", *program.command()],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={} if zone is None else {"TZ": zone},
                cwd="/",
                # Signals of a terminal are for the server. A session of its own would have the same effect, but Linux
                # then gives the processes as much time as the server, whatever their priority (sched_autogroup).
                process_group=0,
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._socket.setblocking(False)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start(self, requests: int, pipe: int) -> None:
        """Starts a process. requests: its end of a socket. pipe: when it ends, the process is killed."""
        socket.send_fds(self._socket, [b"S"], [requests, pipe])

    def close(self) -> None:
        """Ends it and all its processes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class WorkerProcess:
    """A process that answers one request at a time. No method waits longer than its argument allows."""

    def __init__(self, spawner: Spawner) -> None:
        self._socket, theirs = socket.socketpair()
        pipe, self._life = os.pipe()
        try:
            spawner.start(theirs.fileno(), pipe)
        except OSError:
            self.kill()
            raise
        finally:
            theirs.close()
            os.close(pipe)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self.file: Final = self._socket.fileno()
        self._poll: Final = select.poll()
        self._unsent: list[memoryview] = []
        self._received: list[bytes] = []
        self._received_bytes = 0
        # Of the reply, header included; 0 until it is known.
        self._reply_bytes = 0
        # Whether it was given a lower priority, which cannot be taken back.
        self.is_slow = False

    @property
    def is_sending(self) -> bool:
        """Whether `file` must become writable for the request to go on; else readable, for the reply."""
        return bool(self._unsent)

    def begin_request(self, kind: bytes, parts: list[bytes]) -> None:
        """Sets the next request (`spawner`); `proceed` sends it."""
        buffer = bytearray(kind + sum(map(len, parts)).to_bytes(4, "little"))
        unsent: list[memoryview] = []
        for part in parts:
            if len(part) < _LARGE_PART_BYTES:
                buffer += part
            else:
                if buffer:
                    unsent.append(memoryview(buffer))
                    buffer = bytearray()
                unsent.append(memoryview(part))
        if buffer:
            unsent.append(memoryview(buffer))
        self._unsent = unsent

    def proceed(self, timeout_s: float) -> bool:
        """Sends what is left of the request, and receives its reply. Whether it has come as a whole; see `reply`.

        timeout_s: how long to wait where that needs waiting. OSError or EOFError if the process has ended, ValueError
        for a reply that is too long.
        """
        room = _STEP_BYTES
        while room > 0:
            try:
                room -= self._send() if self._unsent else self._receive()
            except BlockingIOError:
                self._poll.register(self.file, select.POLLOUT if self._unsent else select.POLLIN)
                if not timeout_s or not self._poll.poll(timeout_s * 1000):
                    return False
                timeout_s = 0
            if self._received_bytes == self._reply_bytes > 0:
                return True
        return False

    def _send(self) -> int:
        rest = self._unsent[0]
        sent = self._socket.send(rest)
        if sent < len(rest):
            self._unsent[0] = rest[sent:]
        else:
            del self._unsent[0]
        return sent

    def _receive(self) -> int:
        missing = (self._reply_bytes or _HEADER_BYTES) - self._received_bytes
        chunk = self._socket.recv(min(missing, _READ_BYTES))
        if not chunk:
            raise EOFError
        self._received.append(chunk)
        self._received_bytes += len(chunk)
        if not self._reply_bytes and self._received_bytes == _HEADER_BYTES:
            header = b"".join(self._received)
            self._received = [header]
            size = int.from_bytes(header[1:], "little")
            if size > _MAX_REPLY_BYTES:
                raise ValueError("the reply is too long")
            self._reply_bytes = _HEADER_BYTES + size
        return len(chunk)

    def reply(self) -> tuple[bytes, bytes]:
        """The kind and the rest of the reply that `proceed` has received."""
        header, *rest = self._received
        kind = header[:1]
        body = rest[0] if len(rest) == 1 else b"".join(rest)
        self._received = []
        self._received_bytes = 0
        self._reply_bytes = 0
        return kind, body

    def is_waiting(self) -> bool:
        """Whether it waits for a request; else it has ended."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def slow_down(self) -> None:
        """Gives the process a lower priority than the server's, for the request that it has."""
        if not self.is_slow:
            self.is_slow = True
            with contextlib.suppress(OSError):
                os.write(self._life, b"N")

    def kill(self) -> None:
        """Ends the process, whatever it does. Does not wait for its end."""
        self._socket.close()
        # The end of the pipe does not suffice: a process that the user's program has forked may have it open.
        with contextlib.suppress(OSError):
            os.write(self._life, b"K")
        os.close(self._life)


class Turn:
    """The place in line of an operation that needs a process. has_come: whether a process is kept for it. owner: its
    user, or its machine where clients do not log in. wake: called when its turn comes."""

    def __init__(self, owner: str) -> None:
        self.owner: Final = owner
        self.has_come = False
        self.wake: Callable[[], None] = _nothing


def _nothing() -> None:
    pass


class WorkerProcesses:
    """The processes of a program that a server has, started when they are needed, and the operations that wait for one.

    Operations of one owner get processes in the order in which they came, and owners by turns:

        ann: op op op        ann's first, bob's first, ann's second, bob's second, ann's third, …
        bob: op op

    A call that takes long gives its process up while others wait (`is_wanted`).
    monotonic_s: elapsed time. memory_bytes: of the machine.
    """

    def __init__(self, program: Program, monotonic_s: Callable[[], float], memory_bytes: int = 1 << 62) -> None:
        self._program: Final = program
        self._monotonic_s: Final = monotonic_s
        self._fitting: Final = max(memory_bytes // MEMORY_SHARE // program.memory_bytes, LEAST_PROCESSES)
        # Those that nobody uses, and since when.
        self._idle: dict[WorkerProcess, float] = {}
        # By process, who has it.
        self._used: dict[WorkerProcess, str] = {}
        # Who waits, by owner; the owner whose turn is next comes first.
        self._lines: dict[str, list[Turn]] = {}
        # Those whose turn has come, and who have not taken a process yet.
        self._called: list[Turn] = []
        self._spawner: Spawner | None = None

    @property
    def _most(self) -> int:
        return min(self._program.most, self._fitting)

    @property
    def waiting_count(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def counts(self) -> tuple[int, int, int]:
        """How many processes run or are about to, how many nobody uses, and how many operations wait for one."""
        return len(self._used) + len(self._called), len(self._idle), self.waiting_count

    def line_up(self, owner: str) -> Turn:
        """The place of an operation, whose turn may have come already. `take` or `leave` must be called for it."""
        turn = Turn(owner)
        self._lines.setdefault(owner, []).append(turn)
        self._call()
        return turn

    def leave(self, turn: Turn) -> None:
        """Gives a place up. May be called more than once, and after `take`."""
        line = self._lines.get(turn.owner, [])
        if turn in self._called:
            self._called.remove(turn)
            self._call()
        elif turn in line:
            line.remove(turn)
            if not line:
                del self._lines[turn.owner]

    def is_wanted(self, process: WorkerProcess) -> bool:
        """Whether somebody waits who could have this process."""
        owner = self._used.get(process, "")
        if owner in self._lines:
            return True
        counts = [self._count(other) for other in self._lines]
        return bool(counts) and min(counts) < min(self._count(owner), self._most_of_one())

    def _most_of_one(self) -> int:
        return max(self._most // 2, 1)

    def _count(self, owner: str) -> int:
        """How many processes an owner has, or is about to take."""
        return list(self._used.values()).count(owner) + sum(turn.owner == owner for turn in self._called)

    def _call(self) -> None:
        """Calls those who wait, an owner after the other, while there are processes for them."""
        while len(self._used) + len(self._called) < self._most:
            owner = next((owner for owner in self._lines if self._count(owner) < self._most_of_one()), None)
            if owner is None:
                return
            line = self._lines.pop(owner)
            turn = line.pop(0)
            if line:  # the owner's next turn comes after all others'
                self._lines[owner] = line
            self._called.append(turn)
            turn.has_come = True
            turn.wake()

    def take(self, turn: Turn) -> WorkerProcess:
        """A process for an operation whose turn has come. OSError if it cannot be started."""
        process = None
        while process is None and self._idle:
            process, _ = self._idle.popitem()
            if not process.is_waiting():
                process.kill()
                process = None
        if process is None:
            process = self._start()
        self._called.remove(turn)
        self._used[process] = turn.owner
        return process

    def _start(self) -> WorkerProcess:
        spawner = self._spawner
        if spawner is not None and not spawner.is_alive():
            spawner.close()
            spawner = None
        if spawner is None:
            spawner = Spawner(self._program)
            self._spawner = spawner
        return WorkerProcess(spawner)

    def release(self, process: WorkerProcess) -> None:
        """Takes back a process that waits for a request."""
        if process not in self._used:
            return
        del self._used[process]
        if len(self._idle) < max(MAX_IDLE, self.waiting_count) and not process.is_slow:
            self._idle[process] = self._monotonic_s()
        else:
            process.kill()
        self._call()

    def end_idle(self) -> None:
        """Ends the processes that nobody has used for IDLE_S; called every now and then."""
        before_s = self._monotonic_s() - IDLE_S
        for process in [process for process, since_s in self._idle.items() if since_s <= before_s]:
            del self._idle[process]
            process.kill()

    def kill(self, process: WorkerProcess) -> None:
        """Ends a process, whatever it does."""
        if process in self._used:
            del self._used[process]
            process.kill()
            self._call()

    def close(self) -> None:
        """Ends all processes. May be called more than once."""
        for process in [*self._idle, *self._used]:
            process.kill()
        self._idle.clear()
        self._used.clear()
        if self._spawner is not None:
            self._spawner.close()
            self._spawner = None


def _folders(imported: tuple[str, ...]) -> list[str]:
    """Where modules are."""
    folders: list[str] = []
    for name in imported:
        found = find_spec(name)
        assert found is not None
        places = found.submodule_search_locations or [found.origin or ""]
        folder = str(Path(places[0]).parent)
        if folder not in folders:
            folders.append(folder)
    return folders
