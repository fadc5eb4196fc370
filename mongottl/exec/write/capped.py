"""Capped collections: they keep the newest documents that fit, in the order of insertion.

A write that takes a collection beyond its `size` or `max` deletes the oldest documents in its own unit of work, but
never the newest one: a document that is larger than `size` displaces all others and stays until the next insert. If the
collection has a TTL, expired documents are deleted first, so that what readers see does not depend on the purge.
Source: MongoDB's "Capped Collections" pages; for larger documents the behaviour of MongoDB 8.2.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.unit.write_unit import WriteUnit
from mongottl.exec.write.expiry import PURGE_BYTES, due_by_policy
from mongottl.storage.stores import Record
from mongottl.ttl.policy import NO_TTL

# Records that are read and deleted at once.
_EVICTED_AT_ONCE: Final = 256


def make_room(unit: WriteUnit) -> None:
    """Deletes the oldest documents beyond the limits, after an insert and inside its unit of work."""
    collection = unit.collection
    store = unit.records
    max_bytes = collection.options.capped_size_bytes
    max_documents = collection.options.capped_max_documents
    last = 0
    while True:
        surplus_bytes = store.size_bytes() - max_bytes
        surplus_documents = store.count() - max_documents if max_documents else 0
        displaceable = store.count() - 1
        if displaceable <= 0 or (surplus_bytes <= 0 and surplus_documents <= 0):
            break
        expired: list[Record] = []
        if collection.default_ttl_s != NO_TTL:
            expired = due_by_policy(unit.records, collection, unit.now_s)
        if expired:
            unit.delete(expired, expired=True)
            continue
        oldest = _surplus(
            store.scan(0, min(displaceable, _EVICTED_AT_ONCE), True, PURGE_BYTES)[0], surplus_bytes, surplus_documents
        )
        unit.delete(oldest)
        last = oldest[-1][0]
    if last:
        unit.on_commit(_Evicted(collection, last).note)


def empty(op: OperationContext, collection: Collection) -> None:
    """Deletes all documents, a batch at a time."""
    while not collection.dropped:
        records, _ = op.recovery_unit.records(collection).scan(0, _EVICTED_AT_ONCE, True, PURGE_BYTES)
        if not records:
            break
        unit = op.recovery_unit.write(collection)
        with unit:
            unit.delete(records)
            unit.on_commit(_Evicted(collection, records[-1][0]).note)
            unit.commit()
        op.check_interrupt()
        op.give_way()


class _Evicted:
    """Sets `Collection.evicted_through` to the last deleted record when the unit of work commits."""

    def __init__(self, collection: Collection, last: int) -> None:
        self._collection = collection
        self._last = last

    def note(self) -> None:
        self._collection.evicted_through = max(self._collection.evicted_through, self._last)


def _surplus(oldest: list[Record], surplus_bytes: int, surplus_documents: int) -> list[Record]:
    """The first of the records, oldest first, whose deletion removes the surplus."""
    count = 0
    for record in oldest:
        if surplus_bytes <= 0 and surplus_documents <= 0:
            break
        surplus_bytes -= len(record[1])
        surplus_documents -= 1
        count += 1
    return oldest[:count]
