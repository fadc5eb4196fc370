"""Ids of new records: ascending, and never given twice, also by several servers.

A server leases ids of a record store in blocks, which get longer with their number: each by a transaction of its own,
so that no unit of work holds others up. What it has not given when it ends is given back, unless it was killed.

So ids of several servers do not ascend in the order of the inserts, and natural order is none, as in a collection of
several shards. Where it is promised, in capped collections, who inserts holds other servers off and takes ids that
follow all others (`PostgresUnit.take_ids`).
"""

from collections.abc import Callable
from typing import Final

# How many ids the first block has, and the longest.
FIRST_BLOCK: Final = 64
_LONGEST_BLOCK: Final = 8192
# The first id that nobody can get.
NO_END: Final = 1 << 62


class RecordIds:
    """The ids of one store. following: the next one; end: the first that is not leased.

    lease: leases a number of further ids, and returns the first of them. It may wait.
    """

    def __init__(self, following: int, end: int, lease: Callable[[int], int]) -> None:
        self.following = following
        self.end = end
        self._lease: Final = lease
        self._block = FIRST_BLOCK

    def settle(self) -> int:
        """Called before the unit that makes the store commits, until when nobody else gives ids: the first of those
        that are not leased after that."""
        self.end = self.following + FIRST_BLOCK
        return self.end

    def take(self, count: int) -> list[int]:
        """New ids, ascending."""
        while self.end - self.following < count:
            self._block = min(2 * self._block, _LONGEST_BLOCK)
            length = max(self._block, count)
            first = self._lease(length)
            # Others may have leased meanwhile. Ids that follow the present ones are added to them.
            if first == self.end:
                self.end = first + length
            elif first > self.end:
                self.following, self.end = first, first + length
        first = self.following
        self.following += count
        return list(range(first, first + count))

    def forget(self) -> None:
        """Gives nothing more of what is leased: a standby that was promoted may not know of it."""
        self.following = self.end = 0

    def give_back(self, first: int, count: int) -> None:
        """Called for ids from `take` of a unit that is rolled back: they are given again if none was given since."""
        if self.following == first + count:
            self.following = first
