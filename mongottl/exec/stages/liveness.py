"""Whether a record lives: when it is read, and again when it is handed out after it has waited.

    find, first page    256 records are read, 101 are handed out, 155 wait
    (a client updates some of those that wait, the clock moves, the default is changed)
    getMore             those that wait are judged by the `_ts` and `ttl` that are stored now, by record id

What waits keeps the content with which it was read, as documents do that wait in a sort of mongod. Records that are no
longer stored are left out where the collection has a TTL, because nothing tells a deleted one from one that expired.

Judging costs nothing as long as neither the second nor the collection's indexes have changed since the records were
read, and no look into storage unless the collection was written as well.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.exec.operation.context import OperationContext
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NO_TTL, is_expired

# What the documents take that are looked up at once, before the last one.
_BYTES_AT_ONCE: Final = 4 << 20


def living(collection: Collection, records: list[Record], now_s: int) -> list[Record]:
    """The records that are not expired at `now_s`, by the facts that they come with."""
    default = collection.default_ttl_s
    if default == NO_TTL:
        return records
    return [record for record in records if not is_expired(record[2], record[3], default, now_s)]


class ReadMark:
    """The state of a collection in which records were read that wait since then.

    Where they are read bit by bit, the mark is that of the first ones; then it may only ask storage more often.
    """

    def __init__(self, collection: Collection, op: OperationContext) -> None:
        self.collection = collection
        self._now_s: int = op.now_s
        self._writes: int = collection.writes
        self._generation: int = collection.generation
        self._had_ttl: bool = collection.default_ttl_s != NO_TTL

    def is_current(self, op: OperationContext) -> bool:
        """Whether records that lived when they were read live now, whatever was written to them since.

        A write within the same second leaves a document at least until the next one.
        """
        collection = self.collection
        if collection.default_ttl_s == NO_TTL:
            return True
        return op.now_s == self._now_s and collection.generation == self._generation

    def is_unchanged(self) -> bool:
        """Whether the facts with which the records were read are those that are stored.

        While TTL is off, plans may make records of index keys, which do not tell these facts.
        """
        collection = self.collection
        return self._had_ttl and collection.writes == self._writes and collection.generation == self._generation

    def living(self, op: OperationContext, records: list[Record]) -> list[Record]:
        """Those of the records that have waited which live at the operation's instant."""
        if self.is_current(op):
            return records
        collection = self.collection
        if self.is_unchanged():
            return living(collection, records, op.now_s)
        alive = living_ids(op, collection, [record[0] for record in records])
        return [record for record in records if record[0] in alive]


def living_ids(op: OperationContext, collection: Collection, record_ids: list[int]) -> set[int]:
    """Of these record ids those under which a living record is stored now."""
    alive: set[int] = set()
    place = 0
    while place < len(record_ids) and not collection.dropped:
        records, taken = op.recovery_unit.records(collection).find_records(record_ids[place:], _BYTES_AT_ONCE)
        place += taken
        alive.update([record[0] for record in living(collection, records, op.now_s)])
    return alive
