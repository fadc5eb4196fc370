"""Whether a record is expired: when it is read, and again when it is returned from a buffer.

    find, first batch   256 records are read, 101 are returned, 155 stay buffered
    (a client updates some of the buffered ones, the clock advances, the default TTL changes)
    getMore             buffered records are checked by the `_ts` and `ttl` that are stored now, by record id

A buffered record keeps the content with which it was read, as documents in a blocking sort of mongod do. Records that
are no longer stored are left out: mongod would not have read them yet, and whether one was deleted or has
expired is not known.

The check needs no storage access unless the collection was written to since the records were read. It costs nothing
then without a TTL, and with one as long as neither the second nor the collection's indexes have changed.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.exec.operation.context import OperationContext
from mongottl.storage.stores import Record
from mongottl.ttl.policy import NO_TTL, is_expired

# Bytes of documents that one lookup reads; the last document may exceed it.
_BYTES_AT_ONCE: Final = 4 << 20


def unexpired(collection: Collection, records: list[Record], now_s: int) -> list[Record]:
    """The records that are not expired at `now_s`, by the `_ts` and `ttl` that they contain."""
    default = collection.default_ttl_s
    if default == NO_TTL:
        return records
    return [record for record in records if not is_expired(record[2], record[3], default, now_s)]


class ReadMark:
    """The state of a collection when records were read that are buffered since then.

    Where they were read in several batches, it is the state at the first batch: storage may be read more often than
    needed, never too rarely.

    just_read: whether the records were read from storage now (`PlanStage.gives_current_records`). Those that a sort or
    a merge kept before contain the `_ts` and `ttl` of an earlier time.
    """

    def __init__(self, collection: Collection, op: OperationContext, just_read: bool) -> None:
        self.collection = collection
        self._now_s: int = op.now_s
        self._writes: int = collection.writes
        self._generation: int = collection.generation
        # Of writes of other servers nothing is known here.
        is_known = just_read and not op.service.settings.is_shared
        self._has_stored_ttl: bool = is_known and collection.default_ttl_s != NO_TTL

    def is_current(self, op: OperationContext) -> bool:
        """Whether records that were stored and not expired when they were read are so now for certain."""
        collection = self.collection
        if collection.writes != self._writes:
            return False
        return collection.default_ttl_s == NO_TTL or (
            op.now_s == self._now_s and collection.generation == self._generation
        )

    def is_unchanged(self) -> bool:
        """Whether the `_ts` and `ttl` with which the records were read are those that are stored.

        While TTL is off, covered plans build records from index keys, which contain neither.
        """
        collection = self.collection
        return self._has_stored_ttl and collection.writes == self._writes and collection.generation == self._generation

    def unexpired(self, op: OperationContext, records: list[Record]) -> list[Record]:
        """Those of the buffered records that are not expired at the operation's time."""
        if self.is_current(op):
            return records
        collection = self.collection
        if self.is_unchanged():
            return unexpired(collection, records, op.now_s)
        alive = living_ids(op, collection, [record[0] for record in records])
        return [record for record in records if record[0] in alive]


def living_ids(op: OperationContext, collection: Collection, record_ids: list[int]) -> set[int]:
    """Those of the record ids under which a record is stored now that is not expired."""
    alive: set[int] = set()
    start = 0
    while start < len(record_ids) and not collection.dropped:
        records, taken = op.recovery_unit.known_records(collection).find_records(record_ids[start:], _BYTES_AT_ONCE)
        start += taken
        alive.update([record[0] for record in unexpired(collection, records, op.now_s)])
    return alive
