"""Sorted data in memory: ordered blocks of entries and, where keys are unique, a hash map from key to record id.

Most operations ask whether a key exists and for which record; the map answers that several times faster than a search
in the ordered blocks. A large map consists of many small dicts, because one large dict blocks the event loop for a
tenth of a second each time that it grows.
"""

from typing import Final, cast

from mypy_extensions import i64

from mongottl.storage.errors import DuplicateKey
from mongottl.storage.memory.blocks import SortedBlocks
from mongottl.storage.memory.contents import SMALL_ROWS, Contents, Lifetime
from mongottl.storage.memory.records import MemoryRecordStore, document_length
from mongottl.storage.memory.units import MemoryUnits, Undo
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)

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
        # For each dict whether it belongs to this object alone (1) or may be shared (0); None if all are its own.
        self._owned: bytearray | None = None

    def fork(self) -> "KeyMap":
        """Another object with the same keys; both copy a dict before they first change it."""
        fork = KeyMap()
        fork._dicts = self._dicts[:]
        fork._mask = self._mask
        fork._owned = bytearray(len(self._dicts))
        self._owned = bytearray(len(self._dicts))
        return fork

    def get(self, key: bytes) -> int:
        found = self._dict_of(key).get(key)
        return 0 if found is None else cast(int, found)

    def add(self, key: bytes, rid: object) -> int:
        """Adds a key, unless it exists; its existing record id, 0 if it is new."""
        part = self._dict_of(key) if self._owned is None else self._own_dict_of(key)
        before = len(part)
        held = part.setdefault(key, rid)
        after = len(part)
        if after == before:
            return cast(int, held)
        if after > _SPREAD_FROM and self._mask == 0:
            self._spread()
        return 0

    def remove(self, key: bytes) -> None:
        part = self._dict_of(key) if self._owned is None else self._own_dict_of(key)
        del part[key]

    def drop(self, limit: int) -> bool:
        """Frees `limit` keys or a few more; whether any are left."""
        while self._dicts:
            limit -= len(self._dicts.pop())
            if limit <= 0:
                break
        return bool(self._dicts)

    def leave_shared(self) -> None:
        """Keeps only the dicts that belong to this object alone, to be dropped."""
        owned = self._owned
        if owned is not None:
            self._dicts = [part for part, own in zip(self._dicts, owned, strict=True) if own]
            self._owned = None

    def length(self) -> int:
        return sum([len(part) for part in self._dicts])

    def _dict_of(self, key: bytes) -> dict[bytes, object]:
        if self._mask == 0:
            return self._dicts[0]
        spread: i64 = hash(key)
        return self._dicts[spread & self._mask]

    def _own_dict_of(self, key: bytes) -> dict[bytes, object]:
        """The dict of a key, copied if it may be shared: to change it."""
        spread: i64 = hash(key)
        place = int(spread & self._mask)
        owned = self._owned
        part = self._dicts[place]
        if owned is not None and not owned[place]:
            part = part.copy()
            self._dicts[place] = part
            owned[place] = 1
        return part

    def _spread(self) -> None:
        whole = self._dicts[0]
        self._owned = None
        self._dicts = [{} for _ in range(_SPREAD)]
        self._mask = _SPREAD - 1
        for key, rid in whole.items():
            self._dict_of(key)[key] = rid


class SortedContents(Contents):
    """The entries of a sorted data. They do not change while a saved state has them."""

    def __init__(self, unique: bool, blocks: SortedBlocks, key_map: KeyMap) -> None:
        super().__init__()
        self.unique = unique
        self.blocks = blocks
        self.map = key_map

    def rows(self) -> int:
        length = self.blocks.length
        return max(length, self.map.length()) if self.unique else length

    def size_bytes(self) -> int:
        return 0

    def drop(self, limit: int) -> bool:
        return self.blocks.drop(limit) or (self.unique and self.map.drop(limit))

    def leave_shared(self) -> None:
        self.blocks.leave_shared()
        self.map.leave_shared()


class MemorySortedData(SortedDataInterface):
    def __init__(self, units: MemoryUnits, ident: str, unique: bool) -> None:
        self.ident = ident
        self.unique = unique
        self._units = units
        self._blocks = SortedBlocks()
        self._map = KeyMap()
        # What a saved state has and the entries still are: the first change forks them.
        self._saved: SortedContents | None = None
        # Of what they were forked from, while nothing was forked from them.
        self._origin: Lifetime | None = None

    def save(self) -> SortedContents:
        """The entries as they are now, with one more holder."""
        saved = self._saved
        if saved is None:
            saved = self._contents()
            self._saved = saved
        saved.holders += 1
        return saved

    def restore(self, contents: SortedContents) -> bool:
        """Makes the entries those of a saved state; whether they may have changed."""
        if contents is self._saved:
            return False
        self._units.release(self._contents())
        self._blocks = contents.blocks
        self._map = contents.map
        contents.holders += 1
        self._saved = contents
        return True

    def _contents(self) -> SortedContents:
        saved = self._saved
        if saved is None:
            saved = SortedContents(self.unique, self._blocks, self._map)
            saved.origin = self._origin
            saved.holders = 1
        return saved

    def _fork(self, saved: SortedContents) -> None:
        """Before the first change after the entries were saved or restored."""
        self._saved = None
        self._origin = saved.become_origin()
        self._blocks = saved.blocks.fork()
        self._map = saved.map.fork()
        self._units.release(saved)

    def insert(self, entries: list[KeyEntry]) -> None:
        self._units.require_unit()
        if self._saved is not None:
            self._fork(self._saved)
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
        if self._saved is not None:
            self._fork(self._saved)
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

    def remove(self, entries: list[KeyEntry]) -> None:
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
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        self._units.require_open()
        keys, rids = self._blocks.slice(key_range.low, key_range.high, after, limit, key_range.forward)
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
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        self._units.require_open()
        assert isinstance(records, MemoryRecordStore)
        found: list[object] = []
        left: i64 = max_bytes
        fits = records.fits_repeated(limit, max_bytes)
        more = True
        while more and not found:
            keys, rids = self._blocks.slice(key_range.low, key_range.high, after, limit, key_range.forward)
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

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        self._units.require_open()
        found: list[KeyEntry] = []
        for key in keys:
            if self.unique:
                held = self._map.get(key)
                if held != 0:
                    found.append((key, held))
            else:
                for rid in self._blocks.find(key):
                    found.append((key, rid))
        return found

    def count_range(self, key_range: KeyRange) -> int:
        self._units.require_open()
        return self._blocks.count(key_range.low, key_range.high)

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        self._units.require_open()
        if after is None:
            return self._blocks.entry_behind(key_range.low, 0, key_range.high, offset)
        return self._blocks.entry_behind(after[0], after[1] + 1, key_range.high, offset)

    def estimated_bytes(self) -> int:
        return self._blocks.length * (_ENTRY_BYTES + _MAP_BYTES if self.unique else _ENTRY_BYTES)

    def is_small(self) -> bool:
        """Whether freeing it is fast."""
        return self._blocks.length <= SMALL_ROWS

    def clear(self) -> None:
        """Releases the entries. For dropped data."""
        self.restore(SortedContents(self.unique, SortedBlocks(), KeyMap()))

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
        if self._saved is not None:
            self._fork(self._saved)
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
