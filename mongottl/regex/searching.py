"""Searches in processes, for the operations of one server."""

from array import array
from collections.abc import Sequence
from typing import Final

from mongottl.document.interrupt import check_interrupt
from mongottl.errors import CommandError, ErrorCode
from mongottl.processes.conversation import Conversation
from mongottl.processes.pool import Program
from mongottl.regex.worker import NUMBERS, PATTERN, SEARCH

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
    """One request of an operation, which gives its process back at its end.

    Errors of its methods: NoProcessError; OperationFailed (96) if the process ends; ExceededTimeLimit (262) if it takes
    long while others wait; those of `check_interrupt`.
    """

    slow_after_s = 0.05

    def found(self, pattern: bytes, options: str, subject: bytes, start: int, most: int) -> Sequence[int]:
        """`SearchElsewhere.search`."""
        numbers = array(NUMBERS)
        numbers.frombytes(self._ask(b"S", [_head(pattern, options) + SEARCH.pack(start, most), subject]))
        return numbers

    def found_in_each(self, pattern: bytes, options: str, subjects: list[bytes]) -> bytes:
        """`SearchElsewhere.search_many`."""
        lengths = array(NUMBERS, [len(subject) for subject in subjects])
        head = _head(pattern, options) + len(subjects).to_bytes(4, "little") + lengths.tobytes()
        return self._ask(b"M", [head, *subjects])

    def _ask(self, kind: bytes, parts: list[bytes]) -> bytes:
        self.check = check_interrupt
        try:
            process = self._acquire()
            # Others run meanwhile where many are searched, so that this does not count as work of the operation, which
            # then asks about as many at once as it may.
            self._is_prompt = kind == b"S"
            return self._exchange(process, kind, parts, 0)
        finally:
            self.release()

    def _none(self, reason: str) -> Exception:
        return NoProcessError(reason)

    def _failed(self, reason: str) -> CommandError:
        return CommandError(ErrorCode.OperationFailed, f"the search for a regular expression failed: {reason}")

    def _too_long(self, limit_ms: int, when: str = "") -> CommandError:
        return CommandError(
            ErrorCode.ExceededTimeLimit,
            f"the search for a regular expression exceeded the time limit of {limit_ms} ms{when}",
        )


def _head(pattern: bytes, options: str) -> bytes:
    return PATTERN.pack(len(pattern), len(options)) + pattern + options.encode("ascii")
