"""The meter of one operation's request units, in the dialect `cosmos`: what it loads, and what it changes.

What that costs is said by `dialect.cosmos.charges`.
"""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.dialect.cosmos import charges
from mongottl.exec.state.meter import Meter
from mongottl.storage.stores import Record
from mongottl.ttl.policy import NO_TTL, is_expired


class RequestMeter(Meter):
    """now_s: the time of the operation; expired documents that it meets cost nothing, purged or not. is_continued:
    whether it goes on with a cursor, so that its search has begun earlier.

    by_key: then it is a point read. refused: how many statements were refused by the gateway.
    throttled: how many of them because the throughput was used up.
    """

    def __init__(self, now_s: int, is_continued: bool = False) -> None:
        super().__init__()
        self.refused = 0
        self.throttled = 0
        self._now_s: int = now_s
        self._is_continued = is_continued
        self._point_reads = 0
        self._point_bytes = 0
        self._loaded_bytes = 0
        self._changes = 0
        # Searches by other paths than the key; whether one begins with the next read; the indexes that it has read.
        self._queries = 0
        self._begins = True
        self._lookups = 0
        self._looked_up: set[str] = set()

    def point_read(self, collection: Collection, record: Record) -> None:
        """Counts the read of a document by its key."""
        if not self.paused and not self._is_expired(collection, record):
            self._point_reads += charges.point_read(len(record[1]))
            self._point_bytes += len(record[1])

    def begin_search(self) -> None:
        """Called when the plan of a statement is opened: if it reads, the search is a query of its own."""
        self._begins = True

    def search(self, index: str = "") -> None:
        """Counts a read that is no point read. index: the ident of the index that is read; "" for the documents."""
        if self.paused or self.by_key:
            return
        if self._begins:
            self._begins = False
            self._queries += 1
            self._looked_up.clear()
        if index and index not in self._looked_up:
            self._looked_up.add(index)
            self._lookups += 1

    def load(self, collection: Collection, records: list[Record]) -> None:
        """Counts documents that are read by a scan, by an index or by record id."""
        if self.paused:
            return
        if self.by_key:
            for record in records:
                self.point_read(collection, record)
            return
        if collection.default_ttl_s != NO_TTL:
            records = [record for record in records if not self._is_expired(collection, record)]
        self._loaded_bytes += sum([len(record[1]) for record in records])

    @property
    def loaded_bytes(self) -> int:
        """The bytes of the documents that were loaded."""
        return self._loaded_bytes + self._point_bytes

    def load_bytes(self, size_bytes: int) -> None:
        """Counts documents that an operation answers for without reading them."""
        self.search()
        self._loaded_bytes += size_bytes

    def _is_expired(self, collection: Collection, record: Record) -> bool:
        return is_expired(record[2], record[3], collection.default_ttl_s, self._now_s)

    def insert(self, collection: Collection, documents: list[bytes]) -> None:
        """Counts inserted documents."""
        for document in documents:
            self._changes += charges.insert(len(document), _entries_of(collection, document))

    def update(self, collection: Collection, before: list[bytes], after: list[bytes]) -> None:
        """Counts updates; those that change nothing cost only their reads."""
        for old, new in zip(before, after, strict=True):
            if old != new:
                self._changes += charges.replace(len(new), _changed_entries(collection, old, new))
                self._forget_read(old)

    def delete(self, collection: Collection, documents: list[bytes]) -> None:
        """Counts deleted documents."""
        for document in documents:
            self._changes += charges.delete(len(document), _entries_of(collection, document))
            self._forget_read(document)

    def _forget_read(self, document: bytes) -> None:
        """The read of a document that is changed is part of the change."""
        if self._point_reads:
            self._point_reads = max(0, self._point_reads - charges.point_read(len(document)))
        else:
            self._loaded_bytes = max(0, self._loaded_bytes - len(document))

    def refuse(self, is_throttled: bool) -> None:
        """Counts a request or statement that the gateway refuses."""
        self.refused += 1
        if is_throttled:
            self.throttled += 1

    def cost(self, returned_bytes: int = 0) -> int:
        """Hundredths of request units so far. returned_bytes: results, which are part of a point read."""
        if self._point_reads and not self._loaded_bytes:
            returned_bytes = 0
        queries, lookups = (0, 0) if self._is_continued else (self._queries, self._lookups)
        reads = self._point_reads + charges.query(queries, lookups, self._loaded_bytes, returned_bytes)
        return reads + self._changes + self.refused * charges.THROTTLED.hundredths

    def total(self, returned_bytes: int) -> int:
        """What the operation has cost at its end."""
        cost = self.cost(returned_bytes)
        return cost if self._is_continued or self.refused else max(cost, charges.REQUEST.hundredths)


def _priced_indexes(collection: Collection) -> list[CollectionIndex]:
    return [index for index in collection.writable_indexes if not index.descriptor.is_id]


def _entries_of(collection: Collection, document: bytes) -> int:
    return sum([len(index.keys_of(document)) for index in _priced_indexes(collection)])


def _changed_entries(collection: Collection, old: bytes, new: bytes) -> int:
    changed = 0
    for index in _priced_indexes(collection):
        if not index.has_same_keys(old, new):
            changed += len(set(index.keys_of(old)) ^ set(index.keys_of(new)))
    return changed
