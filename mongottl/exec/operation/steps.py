"""Steps: how long operations let others run, and wait.

A command runs to its end without suspending unless it is long or has to wait. Then it is a generator of steps: it
yields None where others may run in between, or a `Wait` or `Flush`; whatever drives it (the trio shell, or `run_to_end`
in tests) resumes it. Between two steps anything may have changed: collections dropped, documents expired, the clock
moved.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from mongottl.exec.operation.signal import Signal

T = TypeVar("T")


class Wait:
    """A step that lets time pass: resume after `seconds` of elapsed time, when `signal` is notified, or at shutdown."""

    def __init__(self, seconds: float, signal: Signal | None = None) -> None:
        self.seconds = seconds
        self.signal = signal


class Flush:
    """A step after which all that was committed so far is on disk: `j: true` waits for it."""


Steps: TypeAlias = Generator[Wait | Flush | None, None, T]


def run_to_end(steps: Steps[T]) -> T:
    """Drives a generator of steps without ever letting others run: for tests and for start-up."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
