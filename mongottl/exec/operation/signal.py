"""How a command that waits learns that what it waits for has come."""

from collections.abc import Callable


class Signal:
    """Ends a `Wait` before its time. Whoever waits clears it first; whoever knows notifies.

    wake: set by whatever drives the waiting command while it waits, None otherwise.
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
