"""What is recorded of each command for those who look inside a server; only while its page is served.

A command costs two readings of the clock and one more count in a histogram.
"""

from collections import deque
from typing import Final, NamedTuple

from mongottl.exec.operation.usage import Latency

# Codes of errors that are told apart: fail points can answer any number.
_MAX_CODES: Final = 1000
_OTHER_CODES: Final = -1
# How many slow commands are kept.
KEPT_SLOW: Final = 50


class SlowCommand(NamedTuple):
    """A command, or a statement of a batch, that took longer than the profiler's threshold.

    at_ms: wall time of its end. operation: the profiler's `op`. command: as text, cut off. plan: how it found its
    documents, or "". error: the name of its error, or "".
    """

    at_ms: int
    operation: str
    namespace: str
    micros: int
    plan: str
    command: str
    app_name: str
    error: str


class Observation:
    """times: of all commands that have begun to run, by name, those that failed included. errors: how many commands
    failed, and statement_errors how many statements of batches, by code."""

    def __init__(self) -> None:
        self.times: dict[str, Latency] = {}
        self.errors: dict[int, int] = {}
        self.statement_errors: dict[int, int] = {}
        self.slow: deque[SlowCommand] = deque(maxlen=KEPT_SLOW)

    def record(self, command: str, micros: int) -> None:
        """Records a command that has ended."""
        times = self.times.get(command)
        if times is None:
            times = Latency()
            self.times[command] = times
        times.add(micros)

    def record_error(self, code: int) -> None:
        _count(self.errors, code)

    def record_statement_error(self, code: int) -> None:
        _count(self.statement_errors, code)


def _count(counts: dict[int, int], code: int) -> None:
    if code not in counts and len(counts) >= _MAX_CODES:
        code = _OTHER_CODES
    counts[code] = counts.get(code, 0) + 1
