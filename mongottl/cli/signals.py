"""Signals that end a command which must clean up: a partial copy is removed, a private PostgreSQL stopped."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Windows has no SIGHUP, the signal for a terminal that is gone.
_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def ending_by_exception() -> Iterator[None]:
    """A block that these signals end by SystemExit, as Ctrl-C does by KeyboardInterrupt, unless they are ignored."""
    previous = {number: signal.signal(number, _end) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)
