"""Script processes, and the pool of them that a server has."""

import os
import select
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mongottl.errors import CommandError, ErrorCode

# Processes that a server keeps although no operation uses them, and that it has at most. Each takes about 12 MB.
MAX_IDLE: Final = 2
MAX_PROCESSES: Final = 32

_READ_BYTES: Final = 1 << 20
# No reply is longer: 16 MiB of BSON, as JSON. It bounds what the server reads from a process.
_MAX_REPLY_BYTES: Final = 64 << 20


class ScriptProcess:
    """A process that runs scripts, one call at a time."""

    def __init__(self, quickjs_folder: str) -> None:
        folder = Path(__file__).parent
        program = [str(folder / "worker.py"), quickjs_folder, str(folder / "environment.js")]
        zone = os.environ.get("TZ")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={} if zone is None else {"TZ": zone},
            cwd="/",
            start_new_session=True,  # signals of a terminal are for the server
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: Final = self._process.stdin.fileno()
        self._replies: Final = self._process.stdout.fileno()
        os.set_blocking(self._replies, False)
        self._poll: Final = select.poll()
        self._poll.register(self._replies, select.POLLIN)
        self._received = bytearray()

    def send(self, kind: bytes, body: str) -> None:
        """Sends a request (`worker`). BrokenPipeError if the process has ended."""
        encoded = body.encode("ascii")
        rest = memoryview(kind + len(encoded).to_bytes(4, "little") + encoded)
        while rest:
            rest = rest[os.write(self._requests, rest) :]

    def receive(self, timeout_ms: int) -> bool:
        """Waits for the reply to the latest request. Whether it has come as a whole; see `reply`.

        EOFError if the process has ended, ValueError for a reply that is too long.
        """
        received = self._received
        while True:
            if len(received) >= 5:
                size = int.from_bytes(received[1:5], "little")
                if size > _MAX_REPLY_BYTES:
                    raise ValueError("the reply is too long")
                if len(received) >= 5 + size:
                    return True
            if not self._poll.poll(timeout_ms):
                return False
            chunk = os.read(self._replies, _READ_BYTES)
            if not chunk:
                raise EOFError
            received += chunk

    def reply(self) -> tuple[bytes, str]:
        """The kind and the text of the reply that `receive` has found."""
        received = bytes(self._received)
        self._received.clear()
        return received[:1], received[5:].decode("utf-8")

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class ScriptProcesses:
    """The script processes of a server; they are started when they are needed."""

    def __init__(self) -> None:
        self._idle: list[ScriptProcess] = []
        self._used: set[ScriptProcess] = set()

    def acquire(self) -> ScriptProcess | None:
        """A process for one operation; None if there are too many already. JSInterpreterFailure (139) if it cannot be
        started."""
        process = None
        while process is None and self._idle:
            process = self._idle.pop()
            if not process.is_alive():
                process.kill()
                process = None
        if process is None:
            if len(self._used) >= MAX_PROCESSES:
                return None
            found = find_spec("quickjs")
            assert found is not None
            assert found.origin is not None
            try:
                process = ScriptProcess(str(Path(found.origin).parent.parent))
            except OSError as error:
                raise CommandError(
                    ErrorCode.JSInterpreterFailure, f"the JavaScript engine cannot be started: {error}"
                ) from error
        self._used.add(process)
        return process

    def release(self, process: ScriptProcess) -> None:
        """Takes back a process that waits for a request."""
        if process not in self._used:
            return
        self._used.discard(process)
        if len(self._idle) < MAX_IDLE:
            self._idle.append(process)
        else:
            process.kill()

    def kill(self, process: ScriptProcess) -> None:
        """Ends a process, whatever it does."""
        if process in self._used:
            self._used.discard(process)
            process.kill()

    def close(self) -> None:
        """Ends all processes."""
        for process in [*self._idle, *self._used]:
            process.kill()
        self._idle.clear()
        self._used.clear()
