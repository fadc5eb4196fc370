"""Admits the statements of a batch one by one, in the dialect `cosmos`: each of them may be refused as throttled."""

from mongottl.errors import CommandError


class StatementGate:
    """What a batch of writes asks before each of its statements.

    refusals: by the position of a statement, the error with which it fails.
    """

    def __init__(self, refusals: dict[int, CommandError]) -> None:
        self._refusals = refusals

    def admit(self, index: int) -> None:
        """CommandError if the statement at this position is refused."""
        error = self._refusals.get(index)
        if error is not None:
            raise error
