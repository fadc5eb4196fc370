"""Signals that wake waiting commands."""

from collections.abc import Callable


class Signal:
    """Ends a `Wait` early. The waiting command clears it before it waits; other operations notify it.

    wake: set by the driver of the waiting command (the server's connection) while it waits, None otherwise.
    """

    def __init__(self) -> None:
        self.notified = False
        self.wake: Callable[[], None] | None = None

    def notify(self) -> None:
        self.notified = True
        if self.wake is not None:
            self.wake()

    def clear(self) -> None:
        self.notified = False
