"""Sorted data in memory: ordered blocks of entries and, where keys are unique, a hash map from key to record id.

Most operations ask whether a key exists and for which record; the map answers that several times faster than a search
in the ordered blocks. A large map consists of many small dicts, because one large dict blocks the event loop for a
tenth of a second each time that it grows.
"""

from typing import Final, cast

from mypy_extensions import i64

from mongottl.storage.interface import (
    NO_BYTE_LIMIT,
    DuplicateKey,
    FetchedEntry,
    IndexEntry,
    Record,
    RecordStore,
    SortedDataInterface,
)
from mongottl.storage.memory.blocks import SortedBlocks
from mongottl.storage.memory.records import MemoryRecordStore, document_length
from mongottl.storage.memory.units import MemoryUnits, Undo

# The number of keys from which on the map consists of several dicts, and the number of these: a power of two.
_SPREAD_FROM: Final = 8192
_SPREAD: Final = 256

# What an entry takes: the key as an object, its place, the record id; in the map, where there is one, as much again.
_ENTRY_BYTES: Final = 70
_MAP_BYTES: Final = 75


class KeyMap:
    """key → record id; 0 stands for none."""

    def __init__(self) -> None:
        self._dicts: list[dict[bytes, object]] = [{}]
        self._mask: i64 = 0

    def get(self, key: bytes) -> int:
        found = self._dict_of(key).get(key)
        return 0 if found is None else cast(int, found)

    def add(self, key: bytes, rid: object) -> int:
        """Adds a key, unless it exists; its existing record id, 0 if it is new."""
        part = self._dict_of(key)
        before = len(part)
        held = part.setdefault(key, rid)
        after = len(part)
        if after == before:
            return cast(int, held)
        if after > _SPREAD_FROM and self._mask == 0:
            self._spread()
        return 0

    def remove(self, key: bytes) -> None:
        del self._dict_of(key)[key]

    def drop(self, limit: int) -> bool:
        """Frees `limit` keys or a few more; whether any are left."""
        while self._dicts:
            limit -= len(self._dicts.pop())
            if limit <= 0:
                break
        return bool(self._dicts)

    def _dict_of(self, key: bytes) -> dict[bytes, object]:
        if self._mask == 0:
            return self._dicts[0]
        spread: i64 = hash(key)
        return self._dicts[spread & self._mask]

    def _spread(self) -> None:
        whole = self._dicts[0]
        self._dicts = [{} for _ in range(_SPREAD)]
        self._mask = _SPREAD - 1
        for key, rid in whole.items():
            self._dict_of(key)[key] = rid


class MemorySortedData(SortedDataInterface):
    def __init__(self, units: MemoryUnits, ident: str, unique: bool) -> None:
        self.ident = ident
        self.unique = unique
        self._units = units
        self._blocks = SortedBlocks()
        self._map = KeyMap()

    def insert(self, entries: list[IndexEntry]) -> None:
        self._units.require_unit()
        keys: list[bytes] = []
        rids: list[int] = []
        if not self.unique:
            for key, rid in entries:
                keys.append(key)
                rids.append(rid)
            present = self._blocks.insert(keys, rids)
            for place in reversed(present):
                del keys[place]
                del rids[place]
        else:
            position = 0
            for key, rid in entries:
                held = self._map.add(key, self._units.id_object(rid))
                if held == 0:
                    keys.append(key)
                    rids.append(rid)
                elif held != rid:
                    for key_before in keys:
                        self._map.remove(key_before)
                    raise DuplicateKey(key, held, position)
                position += 1
            self._blocks.insert(keys, rids)
        if keys:
            self._units.log(_UndoEntries(self, keys, rids, True))

    def insert_one(self, key: bytes, record_id: int) -> None:
        self._units.require_unit()
        if self.unique:
            held = self._map.add(key, self._units.id_object(record_id))
            if held == record_id:
                return
            if held != 0:
                raise DuplicateKey(key, held, 0)
        keys = [key]
        rids = [record_id]
        if not self._blocks.insert(keys, rids):
            self._units.log(_UndoEntries(self, keys, rids, True))

    def remove(self, entries: list[IndexEntry]) -> None:
        self._units.require_unit()
        keys: list[bytes] = []
        rids: list[int] = []
        for key, rid in entries:
            keys.append(key)
            rids.append(rid)
        self._remove(keys, rids)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self._units.require_unit()
        self._remove([key], [record_id])

    def scan(
        self,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[IndexEntry], bool]:
        self._units.require_open()
        keys, rids = self._blocks.slice(low, high, after, limit, forward)
        more = len(keys) >= limit
        if max_bytes != NO_BYTE_LIMIT:
            left: i64 = max_bytes
            place: i64 = 0
            for key in keys:
                left -= len(key)
                place += 1
                if left <= 0:
                    more = more or place < len(keys)
                    return list(zip(keys[:place], rids[:place], strict=True)), more
        return list(zip(keys, rids, strict=True)), more

    def scan_fetch(
        self,
        records: RecordStore,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        self._units.require_open()
        assert isinstance(records, MemoryRecordStore)
        found: list[object] = []
        left: i64 = max_bytes
        fits = records.fits_repeated(limit, max_bytes)
        more = True
        while more and not found:
            keys, rids = self._blocks.slice(low, high, after, limit, forward)
            more = len(keys) >= limit
            place: i64 = 0
            for rid in rids:
                record = records.get(rid)
                if record is not None:
                    row = cast("tuple[object, ...]", record)
                    found.append((keys[place], row[0], row[1], row[2], row[3]))
                    if not fits:
                        left -= document_length(record)
                        if left <= 0:
                            more = more or place + 1 < len(rids)
                            break
                place += 1
            if more and not found:
                after = (keys[-1], rids[-1])
        return cast("list[FetchedEntry]", found), more

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        self._units.require_open()
        assert isinstance(records, MemoryRecordStore)
        rid = self._map.get(key)
        if rid == 0:
            return None
        return cast("Record | None", records.get(rid))

    def find_exact(self, keys: list[bytes]) -> list[IndexEntry]:
        self._units.require_open()
        found: list[IndexEntry] = []
        for key in keys:
            if self.unique:
                held = self._map.get(key)
                if held != 0:
                    found.append((key, held))
            else:
                for rid in self._blocks.find(key):
                    found.append((key, rid))
        return found

    def count_range(self, low: bytes, high: bytes) -> int:
        self._units.require_open()
        return self._blocks.count(low, high)

    def entry_behind(self, low: bytes, high: bytes, after: IndexEntry | None, entries: int) -> IndexEntry | None:
        self._units.require_open()
        if after is None:
            return self._blocks.entry_behind(low, 0, high, entries)
        return self._blocks.entry_behind(after[0], after[1] + 1, high, entries)

    def estimated_bytes(self) -> int:
        return self._blocks.length * (_ENTRY_BYTES + _MAP_BYTES if self.unique else _ENTRY_BYTES)

    def is_small(self, rows: int) -> bool:
        """Whether there are at most `rows` entries, so that freeing them is fast."""
        return self._blocks.length <= rows

    def drop(self, limit: int) -> bool:
        """Frees about `limit` entries; whether there are more. For dropped data."""
        return self._blocks.drop(limit) or (self.unique and self._map.drop(limit))

    def undo_insert(self, keys: list[bytes], rids: list[int]) -> None:
        self._blocks.remove(keys, rids)
        if self.unique:
            for key in keys:
                self._map.remove(key)

    def undo_remove(self, keys: list[bytes], rids: list[int]) -> None:
        self._blocks.insert(keys, rids)
        if self.unique:
            for place in range(len(keys)):
                self._map.add(keys[place], self._units.id_object(rids[place]))

    def _remove(self, keys: list[bytes], rids: list[int]) -> None:
        for place in reversed(self._blocks.remove(keys, rids)):
            del keys[place]
            del rids[place]
        if self.unique:
            for key in keys:
                self._map.remove(key)
        if keys:
            self._units.log(_UndoEntries(self, keys, rids, False))


class _UndoEntries(Undo):
    """Undoes an insertion or removal of entries. inserted: which of the two it undoes."""

    def __init__(self, data: MemorySortedData, keys: list[bytes], rids: list[int], inserted: bool) -> None:
        self._data = data
        self._keys = keys
        self._rids = rids
        self._inserted = inserted

    def undo(self) -> None:
        if self._inserted:
            self._data.undo_insert(self._keys, self._rids)
        else:
            self._data.undo_remove(self._keys, self._rids)
