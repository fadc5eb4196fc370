"""The failed statements of a batch of writes, as its reply, the log and the page of the server name them."""

from typing import Final

from mongottl.document.types import Value


class StatementErrors:
    """Of one operation. NO_ERRORS is that of operations without a batch; nobody adds to it."""

    def __init__(self) -> None:
        # As `writeErrors` has them.
        self.entries: Final[list[Value]] = []
        # The `advice` of those that have one, by their place in that list.
        self.advice: Final[dict[int, str]] = {}


NO_ERRORS: Final = StatementErrors()
