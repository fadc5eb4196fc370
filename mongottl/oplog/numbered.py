"""The oplog of an engine that keeps none: its latest entries in memory, and with a data directory all of them as rows.

    number   0 ········ first ─────────────── base ─────────────── end
             dropped    rows, if there are    also in memory       the next entry

Beyond the bounds the oldest entries are dropped, unless they are younger than the retention time, and streams that
still need them fail (ChangeStreamHistoryLost). The entries of a transaction, which share a cluster time, are dropped
together, and never those of the latest one: MongoDB's oplog grows beyond its size, too, for what is still needed.
"""

from bisect import bisect_left
from typing import Final

from mongottl.document.types import Timestamp
from mongottl.oplog.change import no_operation
from mongottl.oplog.entry import OplogEntry
from mongottl.oplog.log import Oplog
from mongottl.oplog.rows import OplogRows
from mongottl.oplog.statements import Statements
from mongottl.storage.interface import WriteUnitOfWork

# Memory for the latest entries where all of them are stored as well.
_STORED_TOO_BYTES: Final = 8 << 20
# How many dropped entries are kept in the list before it is shortened.
_DROPPED_AT_ONCE: Final = 1024
# How many entries of a state that was left are freed with each new one.
_FREED_AT_ONCE: Final = 4


class NumberedOplog(Oplog):
    """The entries, numbered from 0 since the server was created, or without a data directory since it started.

    max_bytes: bound on the memory of entries. retention_ms: entries that are younger are kept all the same. rows: where
    they are stored, or None.
    """

    def __init__(self, max_bytes: int, retention_ms: int, rows: OplogRows | None = None) -> None:
        self._floor: tuple[int, int] = (0, 0)
        self._size_bytes: int = 0
        self.rows = rows
        self._memory_bytes: int = max_bytes
        self._retention_ms: int = retention_ms
        self._entries: list[OplogEntry] = []
        # What stands in the list for the entries that are dropped.
        self._no_entry = OplogEntry(no_operation(), 0, 0, 0)
        # How many these are, and the number of the first of the list.
        self._dropped: int = 0
        self._base: int = 0
        # Entries of a state that was left: freeing them all at once would take long.
        self._left: list[OplogEntry] = []
        if rows is not None:
            self._base = rows.end
            self._memory_bytes = min(max_bytes, _STORED_TOO_BYTES)
            self._retention_ms = 0  # the rows keep it

    @property
    def first(self) -> int:
        rows = self.rows
        return self._base + self._dropped if rows is None else rows.first

    @property
    def end(self) -> int:
        return self._base + len(self._entries)

    @property
    def floor(self) -> tuple[int, int]:
        rows = self.rows
        return self._floor if rows is None else rows.floor

    @property
    def size_bytes(self) -> int:
        rows = self.rows
        return self._size_bytes if rows is None else rows.size_bytes

    @property
    def count(self) -> int:
        return self.end - self.first

    @property
    def span_s(self) -> tuple[int, int]:
        if self.first >= self.end:
            return 0, 0
        return self.entry(self.first).at_s, self.entry(self.end - 1).at_s

    @property
    def latest(self) -> tuple[int, int]:
        return _time_of(self.entry(self.end - 1)) if self.first < self.end else self.floor

    def put(self, entry: OplogEntry, work: WriteUnitOfWork, statements: Statements | None = None) -> OplogEntry:
        """Stores the next entry in the unit of work whose operations it has. Its cluster time is not before that of the
        latest. Once the unit has committed, `append` must be called with the entry that is returned, which is as it was
        stored. statements: what the unit has executed of a retryable write."""
        rows = self.rows
        if rows is None:
            return entry
        entry = entry.described()
        rows.put(entry, work, statements)
        return entry

    def append(self, entry: OplogEntry) -> None:
        """Adds an entry that was put, after the commit."""
        if self._left:
            del self._left[-_FREED_AT_ONCE:]
        self._entries.append(entry)
        self._size_bytes += entry.size_bytes()
        latest = _time_of(entry)
        while self._size_bytes > self._memory_bytes or _time_of(self._entries[self._dropped]) == self._floor:
            oldest = self._entries[self._dropped]
            at = _time_of(oldest)
            if at == latest or (at != self._floor and entry.wall_ms - oldest.wall_ms < self._retention_ms):
                break
            self._size_bytes -= oldest.size_bytes()
            self._floor = at
            self._entries[self._dropped] = self._no_entry  # frees the oldest, unless a stream is within it
            self._dropped += 1
        if self._dropped >= _DROPPED_AT_ONCE:
            del self._entries[: self._dropped]
            self._base += self._dropped
            self._dropped = 0

    def begin_again(self, at: Timestamp) -> None:
        """Drops all entries, which are the history of another state than the one that was restored. Only where they
        are in memory alone. at: no earlier than any cluster time in a resume token."""
        assert self.rows is None
        self._base = self.end
        self._left.extend(self._entries)
        self._entries = []
        self._dropped = 0
        self._size_bytes = 0
        self._floor = (at.time, at.inc)

    def entry(self, number: int) -> OplogEntry:
        rows = self.rows
        if rows is not None and number < self._base + self._dropped:
            return rows.entry(number)
        return self._entries[number - self._base]

    def described(self, number: int) -> OplogEntry:
        """It is kept `described` from then on.

        Others may run meanwhile, who drop it or describe it, too.
        """
        entry = self.entry(number)
        described = entry.described()
        if described is not entry and number >= self._base + self._dropped:
            place = number - self._base
            if self._entries[place] is entry:
                self._entries[place] = described
                self._size_bytes += described.size_bytes() - entry.size_bytes()
        return described

    def record_before(self, at: tuple[int, int]) -> int:
        return max(self.number_at(at) - 1, self.first)

    def record_after(self, at: tuple[int, int], last: tuple[int, int]) -> int:
        number = self.number_at(at)
        # The documents of a transaction are before its commit, whose time its entries have.
        while number < self.end:
            entry = self.entry(number)
            if (entry.at_s, entry.at_i - entry.following) > last:
                break
            number += 1
        return number + 1

    def number_at(self, at: tuple[int, int]) -> int:
        rows = self.rows
        if rows is not None:
            oldest = self._entries[self._dropped] if self._entries else None
            if oldest is None or at <= (oldest.at_s, oldest.at_i):
                return rows.number_at(at)
        return self._base + bisect_left(self._entries, at, lo=self._dropped, key=_time_of)


def _time_of(entry: OplogEntry) -> tuple[int, int]:
    return entry.at_s, entry.at_i
