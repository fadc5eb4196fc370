"""The check for interruption of a server's operations (`document.interrupt`)."""

from collections.abc import Callable

from mongottl.exec.running.stack import Stacks


def interruption_check(stacks: Stacks) -> Callable[[], None]:
    """What evaluations call every millisecond. Interpreted, unlike what calls it and what it calls: so Python handles
    signals there, and other threads get their turn."""

    def check() -> None:
        stacks.check_present()

    return check
