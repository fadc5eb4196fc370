"""Histories of a register that many clients read and change, and whether they fit one order of its operations.

An operation takes effect at one moment between its beginning and its end (it is linearizable: Herlihy and Wing, 1990).
The search is that of Wing and Gong (1993), which forgets what leads to a state that it has seen, as Lowe does (2017).
"""

import threading
from itertools import count
from typing import Final, NamedTuple

READ: Final = "read"
WRITE: Final = "write"
# Changes the register from one value to another, if it has the first.
CHANGE: Final = "change"


class Operation(NamedTuple):
    """One operation, with its moments of beginning and end.

    value: what was read, or written. expected: of a change, the value that it is from; done: whether it was done.
    """

    kind: str
    begun: int
    ended: int
    value: int
    expected: int = 0
    done: bool = True

    def after(self, state: int) -> int | None:
        """The state that the operation leaves; None if its answer cannot be given in this state."""
        if self.kind == READ:
            return state if state == self.value else None
        if self.kind == WRITE:
            return self.value
        if self.done:
            return self.value if state == self.expected else None
        return state if state != self.expected else None


class Moments:
    """Numbers of moments, in the order in which threads ask for them."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._lock = threading.Lock()

    def now(self) -> int:
        with self._lock:
            return next(self._numbers)


def fits_one_order(operations: list[Operation], state: int) -> bool:
    """Whether operations that have all ended can have taken effect one after the other, from this state on."""
    history = sorted(operations, key=lambda operation: operation.begun)
    everything = (1 << len(history)) - 1
    # What was done, by its bits, and the state that it has left.
    seen = {(0, state)}
    left = [(0, state)]
    while left:
        done, state = left.pop()
        if done == everything:
            return True
        for place in _possible(history, done):
            after = history[place].after(state)
            if after is not None and (done | 1 << place, after) not in seen:
                seen.add((done | 1 << place, after))
                left.append((done | 1 << place, after))
    return False


def _possible(history: list[Operation], done: int) -> list[int]:
    """The places of operations that can be the next: those that begin before any other that is left has ended."""
    places = []
    first_end = 0
    for place in range((~done & (done + 1)).bit_length() - 1, len(history)):
        operation = history[place]
        if first_end and operation.begun > first_end:
            break
        if not done >> place & 1:
            places.append(place)
            first_end = min(first_end or operation.ended, operation.ended)
    return [place for place in places if history[place].begun < first_end]
