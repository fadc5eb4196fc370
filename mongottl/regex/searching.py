"""Searches in processes, for the operations of one server."""

from array import array
from collections.abc import Sequence
from typing import Final

from mongottl.document.interrupt import check_interrupt
from mongottl.errors import CommandError, ErrorCode
from mongottl.processes.conversation import Conversation
from mongottl.processes.pool import Program
from mongottl.regex.worker import NUMBERS, SEARCH

# What the processes run.
PROGRAM: Final = Program(
    "mongottl.regex.worker",
    arguments=(),
    imported=("mongottl", "pcre2", "librt", "mypy_extensions"),
    memory_bytes=128 << 20,
    most=8,
)


class NoProcessError(Exception):
    """No process can be had: none can be started, or others have them all and cannot be waited for here."""


class Search(Conversation):
    """One search of an operation, which gives its process back at its end."""

    def found(self, pattern: bytes, options: str, subject: bytes, start: int, most: int) -> Sequence[int]:
        """What `worker` replies. NoProcessError; OperationFailed (96) if the process ends; ExceededTimeLimit (262) if
        it takes long while others wait; the errors of `check_interrupt`."""
        self.check = check_interrupt
        try:
            process = self._acquire()
            head = SEARCH.pack(start, most, len(pattern), len(options)) + pattern + options.encode("ascii")
            reply = self._exchange(process, b"S", [head, subject], 0)
        finally:
            self.release()
        numbers = array(NUMBERS)
        numbers.frombytes(reply)
        return numbers

    def _none(self, reason: str) -> Exception:
        return NoProcessError(reason)

    def _failed(self, reason: str) -> CommandError:
        return CommandError(ErrorCode.OperationFailed, f"the search for a regular expression failed: {reason}")

    def _too_long(self, limit_ms: int, when: str = "") -> CommandError:
        return CommandError(
            ErrorCode.ExceededTimeLimit,
            f"the search for a regular expression exceeded the time limit of {limit_ms} ms{when}",
        )
