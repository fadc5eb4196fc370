"""The oplog: what commits have changed, in order, for change streams. In memory, and bounded.

    a unit of work commits ──► OplogEntry(cluster time, kind, documents before and after) ──► Oplog
                                                                                             └─► change streams read it

An entry holds the documents of its unit of work as they are stored, and shares their bytes; events are made of it when
a stream reads it. Operations of one entry share a cluster time, as those of an `applyOps` entry do in mongod, and are
told apart by their index in it. Beyond the bound the oldest entries are dropped, and streams that still need them fail
(ChangeStreamHistoryLost). What was written before the server started is not in it.
"""

from bisect import bisect_left
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.types import Timestamp, Value

INSERT: Final = 0
UPDATE: Final = 1
DELETE: Final = 2
# Above these are the kinds of `catalog.change_kinds`; `detail` says more of them.

# By this number getMores that wait for the oplog are woken; no collection has it.
OPLOG_NUMBER: Final = 0
MAX_OPLOG_BYTES: Final = 64 * 1024 * 1024
# Memory of an entry, and of each of its documents, in addition to the documents.
_ENTRY_BYTES: Final = 400
_DOCUMENT_BYTES: Final = 100
# How many dropped entries are kept in the list before it is shortened.
_DROPPED_AT_ONCE: Final = 1024


class OplogEntry:
    """The operations of one unit of work on one collection.

    at_s, at_i: cluster time. first_index: index of the first operation in its transaction. wall_ms: wall time.
    before, after: the documents of each operation; empty where a kind has none. replaced: whether an update replaced
    the documents, else touched: the paths that its modifiers name, or None for a pipeline. images: whether the
    collection keeps images. detail: of a change of collections or indexes. lsid, txn_number: of its transaction.
    """

    def __init__(
        self,
        kind: int,
        database: str,
        collection: str,
        uuid: Value,
        before: list[bytes],
        after: list[bytes],
        images: bool = False,
        detail: Value = None,
    ) -> None:
        self.kind = kind
        self.database = database
        self.collection = collection
        self.uuid = uuid
        # Tuples, because Python's collector of cycles need not visit those of bytes and strings.
        self.before: tuple[bytes, ...] = tuple(before)
        self.after: tuple[bytes, ...] = tuple(after)
        self.replaced = False
        self.touched: tuple[str, ...] | None = None
        self.images = images
        self.detail = detail
        self.at_s: int = 0
        self.at_i: int = 0
        self.wall_ms: int = 0
        self.first_index: int = 0
        self.lsid: bytes | None = None
        self.txn_number: int = 0

    @property
    def count(self) -> int:
        """How many operations it has."""
        return max(len(self.before), len(self.after), 1)

    @property
    def at(self) -> Timestamp:
        return Timestamp(self.at_s, self.at_i)

    def size_bytes(self) -> int:
        size = _ENTRY_BYTES
        for document in self.before:
            size += len(document) + _DOCUMENT_BYTES
        for document in self.after:
            size += len(document) + _DOCUMENT_BYTES
        return size


def is_logged(collection: Collection) -> bool:
    """Whether the writes of a collection are in the oplog: not the server's own, nor those of `$out` before its end."""
    if collection.database in ("local", "config") or collection.options.temporary:
        return False
    return not collection.name.startswith("system.") or collection.name in ("system.views", "system.js")


def _time_of(entry: OplogEntry) -> tuple[int, int]:
    return entry.at_s, entry.at_i


class Oplog:
    """The latest entries, numbered from 0 since the server started.

    floor: nothing at or before this cluster time can be read any more. size_bytes: of the entries that are kept.
    """

    def __init__(self, floor: tuple[int, int], max_bytes: int = MAX_OPLOG_BYTES) -> None:
        self.floor = floor
        self.size_bytes: int = 0
        self.max_bytes = max_bytes
        self._entries: list[OplogEntry] = []
        # How many entries of the list are dropped, and the number of the first of the list.
        self._dropped: int = 0
        self._base: int = 0

    @property
    def first(self) -> int:
        """The number of the oldest entry that is kept."""
        return self._base + self._dropped

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._base + len(self._entries)

    def append(self, entry: OplogEntry, at: Timestamp, wall_ms: int) -> None:
        """Adds an entry, whose cluster time is not before that of the latest."""
        entry.at_s = at.time
        entry.at_i = at.inc
        entry.wall_ms = wall_ms
        self._entries.append(entry)
        self.size_bytes += entry.size_bytes()
        while self.size_bytes > self.max_bytes and self._dropped < len(self._entries) - 1:
            oldest = self._entries[self._dropped]
            self.size_bytes -= oldest.size_bytes()
            self.floor = (oldest.at_s, oldest.at_i)
            oldest.before = oldest.after = ()
            self._dropped += 1
        if self._dropped >= _DROPPED_AT_ONCE:
            del self._entries[: self._dropped]
            self._base += self._dropped
            self._dropped = 0

    def entry(self, number: int) -> OplogEntry:
        """The entry of a number from `first` to before `end`."""
        return self._entries[number - self._base]

    def number_at(self, at: tuple[int, int]) -> int:
        """The number of the first entry at or after a cluster time."""
        return self._base + bisect_left(self._entries, at, lo=self._dropped, key=_time_of)
