"""Signals that end a command which must clean up: a partial copy is removed, a private PostgreSQL stopped.

SIGHUP, the signal for a terminal that is gone, is one of them, unless it is ignored, as `nohup` has it.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def _hangup() -> list[signal.Signals]:
    """The signal for a terminal that is gone, unless it is ignored."""
    number: signal.Signals | None = getattr(signal, "SIGHUP", None)  # which Windows lacks
    return [] if number is None or signal.getsignal(number) == signal.SIG_IGN else [number]


def stopping_signals() -> list[signal.Signals]:
    """Those that stop a server. SIGINT does although shells have it ignored by what they start in the background."""
    return [signal.SIGINT, signal.SIGTERM, *_hangup()]


def outlive_hangup() -> None:
    """Has the process go on after that signal where nothing else handles it: one that a shell sends beside that of the
    terminal may come when the server has stopped, and the process is about to end with status 0."""
    for number in _hangup():
        signal.signal(number, do_nothing)


@contextmanager
def ending_by_exception() -> Iterator[None]:
    """A block that these signals end by SystemExit, as Ctrl-C does by KeyboardInterrupt, unless they are ignored."""
    previous = {number: signal.signal(number, _end) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def do_nothing(number: int, frame: object) -> None:
    """The handler of a signal that is not to end the process."""


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)
