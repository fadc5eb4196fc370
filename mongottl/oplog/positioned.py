"""The oplog of an engine that keeps it itself, such as PostgreSQL, where other servers may write to it as well.

Numbers are positions of the engine's log (`storage.log`), and so cluster times. Nothing of it is in memory, but the
entries that were read last: a stream that waits reads what the others read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from mongottl.catalog.catalog import Catalog, new_uuid
from mongottl.document.build import encode
from mongottl.document.types import BinData, Timestamp
from mongottl.document.walk import get_value
from mongottl.oplog.entry import OplogEntry, loaded_form, stored_statements
from mongottl.oplog.log import Oplog, history_lost
from mongottl.oplog.statements import Statements
from mongottl.storage.log import StoreLog, position_of, time_of

# Forms that are read at once, and their bytes; the last one may exceed them.
_READ_FORMS: Final = 256
_READ_BYTES: Final = 4 << 20
_READ_BACK: Final = 16
# How many rows are dropped at once: the count of all, shifted by this number of bits, and at least the other number.
_DROPPED_SHIFT: Final = 6
_LEAST_DROPPED: Final = 4
_ENTRY: Final = "oplog"


class PositionedOplog(Oplog):
    """log: of the engine. max_bytes: bound on the forms, which are kept all the same while they are younger than
    `retention_ms`. is_shared: whether other servers write to it. before_trim: called before some are dropped."""

    def __init__(self, log: StoreLog, max_bytes: int, retention_ms: int, is_shared: bool = False) -> None:
        self.log: Final = log
        self._is_shared: Final = is_shared
        self.before_trim: Callable[[], None] | None = None
        self._max_bytes: Final = max_bytes
        self._retention_ms: Final = retention_ms
        self._is_trimming = False
        # The positions that were read last and their entries: all from `_from` to before `_to`.
        self._from: int = 0
        self._to: int = 0
        self._positions: list[int] = []
        self._entries: list[OplogEntry] = []

    @property
    def first(self) -> int:
        floor = self.log.floor
        return floor + 1 if floor else 0

    @property
    def end(self) -> int:
        return self.log.horizon + 1

    @property
    def must_look(self) -> bool:
        return True

    @property
    def is_full(self) -> bool:
        """Whether `trim` has something to do."""
        return self.log.size_bytes > self._max_bytes

    @property
    def following(self) -> int:
        return self.log.position + 1

    def latest_write(self, own: Timestamp) -> tuple[int, int]:
        # Others may write at a time that this server has passed while it did not.
        return time_of(self.log.position) if self._is_shared else (own.time, own.inc)

    def time_of_snapshot(self, own: Timestamp) -> tuple[int, int]:
        # Others may have written since this server has, or have taken a snapshot.
        return time_of(self.log.take_position()) if self._is_shared else (own.time, own.inc)

    @property
    def floor(self) -> tuple[int, int]:
        return time_of(self.log.floor)

    @property
    def latest(self) -> tuple[int, int]:
        return time_of(self.log.horizon)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def count(self) -> int:
        return self.log.count

    def measure(self) -> None:
        if self._is_shared:
            self.log.measure()

    @property
    def span_s(self) -> tuple[int, int]:
        if not self.log.count:
            return 0, 0
        return time_of(self.log.first_position)[0], time_of(self.log.position)[0]

    def refresh(self) -> None:
        self.log.refresh()

    def seek(self, number: int) -> int:
        while number < self.end:  # which others may move on while this one reads
            if not self._from <= number < self._to:
                self._read(number, self.end)
            place = bisect_left(self._positions, number)
            if place < len(self._positions):
                return self._positions[place]
            number = self._to
        return number

    def _read(self, number: int, end: int) -> tuple[list[int], list[OplogEntry]]:
        """Reads the entries from a number on, those that are not too long together: their numbers, and they. Others may
        read elsewhere meanwhile, so that what is kept are theirs."""
        rows = self.log.read(number, end - 1, _READ_FORMS, _READ_BYTES)
        size = sum([len(row[1]) for row in rows])
        entries = [loaded_form(row[1], time_of(row[0])) for row in rows]
        positions = [row[0] for row in rows]
        self._positions = positions
        self._entries = entries
        self._from = number
        self._to = end
        if rows and (len(rows) >= _READ_FORMS or size >= _READ_BYTES):
            self._to = rows[-1][0] + 1
        return positions, entries

    def entry(self, number: int) -> OplogEntry:
        place = bisect_left(self._positions, number)
        if place < len(self._positions) and self._positions[place] == number:
            return self._entries[place]
        positions, entries = self._read(number, self.end)
        if not positions or positions[0] != number:
            raise history_lost()  # others have dropped it since it was sought
        return entries[0]

    def described(self, number: int) -> OplogEntry:
        return self.entry(number)  # as it is stored

    def record_before(self, at: tuple[int, int]) -> int:
        self.refresh()
        last = min(position_of(*at), self.end) - 1
        rows = self.log.read(self.first, last, 1, 1, forward=False)
        return rows[0][0] - 1 if rows else self.first - 1

    def record_after(self, at: tuple[int, int], last: tuple[int, int]) -> int:
        return position_of(*at)

    def number_at(self, at: tuple[int, int]) -> int:
        number = position_of(*at)
        # Those of a transaction are before its commit, whose time they have.
        while rows := self.log.read(self.first, number - 1, _READ_BACK, _READ_BYTES, forward=False):
            for position, form in rows:
                if position + loaded_form(form, time_of(position)).following < number:
                    return number
                number = position
        return number

    def statements_from(self, number: int) -> Iterator[tuple[Statements, int, Timestamp]]:
        """What the forms from this number on say of retryable writes, with their wall time and cluster time."""
        while rows := self.log.read_statements(number, _READ_FORMS):
            for position, form in rows:
                number = position + 1
                found = stored_statements(form)
                if found is not None:
                    yield found[0], found[1], Timestamp(*time_of(position))

    def statements_of(self, lsid: bytes, txn_number: int) -> list[tuple[Statements, int, Timestamp]]:
        """What was executed of one retryable write, or of the session's latest one if that has a higher number, by
        whatever server: as `statements_from`."""
        found: list[tuple[Statements, int, Timestamp]] = []
        for position, form in self.log.find_statements(lsid, txn_number):
            stored = stored_statements(form)
            if stored is not None:
                found.append((stored[0], stored[1], Timestamp(*time_of(position))))
        return found

    def trim(self, now_ms: int) -> None:
        """Drops the oldest forms beyond the bound, but never those of the latest unit. now_ms: wall time."""
        log = self.log
        if not self.is_full or self._is_trimming:
            return
        self._is_trimming = True
        try:
            if self.before_trim is not None:
                self.before_trim()
            log.refresh()
            limit = max(_LEAST_DROPPED, log.count >> _DROPPED_SHIFT)
            while self.is_full:
                latest = log.read(self.first, log.horizon, 1, 1, forward=False)
                through = latest[0][0] - 1 if latest else log.horizon
                if self._retention_ms:
                    through = min(through, position_of((now_ms - self._retention_ms) // 1000 + 1, 0) - 1)
                if log.trim(through, limit):
                    continue
                if limit > log.count:
                    break
                limit *= 2  # one unit has more
        finally:
            self._is_trimming = False


def log_uuid(catalog: Catalog) -> bytes:
    """The UUID of `local.oplog.rs`, which the catalog keeps."""
    known = catalog.server_entry(_ENTRY)
    if known is not None:
        uuid = get_value(known, "uuid")
        assert isinstance(uuid, BinData)
        return uuid.data
    made = new_uuid()
    catalog.save_server_entry(_ENTRY, encode({"uuid": BinData(made, 4)}))
    return made
