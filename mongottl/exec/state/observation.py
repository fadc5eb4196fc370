"""What is recorded of each command for those who look inside a server; only while its page is served.

A command costs two readings of the clock and one more count in a histogram.
"""

import re
from typing import Final, NamedTuple

from mongottl.exec.state.usage import Latency

# Error codes with their own count: fail points can answer any number.
_MAX_CODES: Final = 1000
_OTHER_CODES: Final = -1
# How many kinds of slow commands are kept.
KEPT_SLOW: Final = 50
# How many kinds of failures are kept, and characters of their texts.
KEPT_FAILURES: Final = 100
_MAX_TEXT: Final = 1000
# What makes no difference between errors of one kind, besides documents: UUIDs, what is quoted, and numbers.
_UUID: Final = "-".join([f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)])
_VALUE: Final = re.compile(rf"""{_UUID}|"[^"]*"|'[^']*'|\d+""")


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


class SlowKind(NamedTuple):
    """Slow commands that differ in values alone. last: the latest of them. times: how many. micros: of the slowest."""

    last: SlowCommand
    times: int
    micros: int


class Failure(NamedTuple):
    """Commands, or statements of batches, that failed with errors which differ in values alone. text: of the last one.
    namespace: "" where the command names none. advice: see `CommandError`."""

    command: str
    namespace: str
    code: int
    text: str
    times: int
    advice: str


class Spent(NamedTuple):
    """What operations took out of a budget: hundredths of request units, and how many statements were refused because
    it was used up."""

    hundredths: int
    throttled: int


class Observation:
    """times: of all commands that have begun to run, by name, those that failed included. errors: how many commands
    failed, and statement_errors how many statements of batches, by code."""

    def __init__(self) -> None:
        self.times: dict[str, Latency] = {}
        self.errors: dict[int, int] = {}
        self.statement_errors: dict[int, int] = {}
        # In the dialect `cosmos`, by the holder of a budget (`throughput.Budget`): what was spent since it was taken.
        self._spent: dict[str, Spent] = {}
        # Both by their kind, the one that was slow last at the end.
        self._slow: dict[tuple[str, ...], SlowKind] = {}
        self._failures: dict[tuple[str, str, int, str, str], Failure] = {}

    def record(self, command: str, micros: int) -> None:
        """Records a command that has ended."""
        times = self.times.get(command)
        if times is None:
            times = Latency()
            self.times[command] = times
        times.add(micros)

    def spend(self, holder: str, hundredths: int, throttled: int) -> None:
        """Records what was spent of a budget, and how many statements were refused, see `Spent`."""
        before = self._spent.get(holder)
        if before is not None:
            hundredths += before.hundredths
            throttled += before.throttled
        self._spent[holder] = Spent(hundredths, throttled)

    def take_spent(self) -> dict[str, Spent]:
        """What was spent since this was called before, by the holder of a budget."""
        spent = self._spent
        self._spent = {}
        return spent

    def record_slow(self, slow: SlowCommand, shape: str) -> None:
        """shape: of its command, the same for those that differ in values alone."""
        kind = (slow.operation, slow.namespace, slow.plan, slow.app_name, slow.error, shape)
        earlier = self._slow.pop(kind, None)
        if earlier is None:
            self._slow[kind] = SlowKind(slow, 1, slow.micros)
            if len(self._slow) > KEPT_SLOW:
                del self._slow[next(iter(self._slow))]
        else:
            self._slow[kind] = SlowKind(slow, earlier.times + 1, max(earlier.micros, slow.micros))

    def slow_kinds(self) -> list[SlowKind]:
        """The kinds of slow commands, the one that was slow last first."""
        return list(reversed(self._slow.values()))

    def record_error(self, command: str, namespace: str, code: int, text: str, advice: str = "") -> None:
        """Records that a command failed."""
        _count(self.errors, code)
        self._record_failure(command, namespace, code, text[:_MAX_TEXT], advice)

    def record_statement_error(self, command: str, namespace: str, code: int, text: str, advice: str = "") -> None:
        """Records that a statement of a batch failed."""
        _count(self.statement_errors, code)
        self._record_failure(command, namespace, code, text[:_MAX_TEXT], advice)

    def _record_failure(self, command: str, namespace: str, code: int, text: str, advice: str) -> None:
        # One text may have several advices: Cosmos DB names neither the index nor the field.
        kind = (command, namespace, code, _shape(text), advice)
        earlier = self._failures.pop(kind, None)
        times = 1 if earlier is None else earlier.times + 1
        self._failures[kind] = Failure(command, namespace, code, text, times, advice)
        if len(self._failures) > KEPT_FAILURES:
            del self._failures[next(iter(self._failures))]

    def failures(self) -> list[Failure]:
        """The kinds of failures, the one that was last first."""
        return list(reversed(self._failures.values()))


def _shape(text: str) -> str:
    """The text of an error without what makes no difference: documents, what is quoted, UUIDs and numbers."""
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        text = f"{text[:start]}?{text[end + 1 :]}"
    return _VALUE.sub("?", text)


def _count(counts: dict[int, int], code: int) -> None:
    if code not in counts and len(counts) >= _MAX_CODES:
        code = _OTHER_CODES
    counts[code] = counts.get(code, 0) + 1
