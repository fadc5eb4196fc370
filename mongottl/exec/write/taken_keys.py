"""Which of many documents are refused because others have their unique keys, for engines whose calls are round trips.

An engine in this process refuses a document in microseconds. Elsewhere each refused unit of work is some round trips,
and a batch that fails would be inserted one by one: here two reads for each unique index say of all at once.
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.exec.write.writes import duplicate_key_error
from mongottl.storage.stores import RecordStore
from mongottl.ttl.policy import is_expired

# Records that are read at once, in bytes.
_MOST_BYTES: Final = 4 << 20
# By position among the documents: the error of its insert; or None if it is to be inserted alone, after those before.
Taken = dict[int, CommandError | None]


def may_be_divided(op: OperationContext, collection: Collection) -> bool:
    """Whether a failed batch is worth a look at its keys: plain documents, whose inserts fail for nothing else."""
    return (
        op.service.engine.suspends
        and not op.session.in_transaction
        and op.cost.meter is None
        and collection.validator is None
        and collection.time_series is None
        and collection.clustering is None
        and collection.shard_key is None
        and not collection.options.capped
        and not any(index.descriptor.prepare_unique for index in collection.writable_indexes)
    )


def taken(op: OperationContext, collection: Collection, documents: list[bytes]) -> Taken:
    """Of prepared documents, those that have a unique key of an earlier one, or of a record that is not expired."""
    with KeysAhead() as ahead:
        for document in documents:
            ahead.make(collection.writable_indexes, document)
        return _taken(op, collection, documents)


def _taken(op: OperationContext, collection: Collection, documents: list[bytes]) -> Taken:
    found: Taken = {}
    now_s = op.service.now_s()
    records = op.recovery_unit.records(collection)
    for index in collection.writable_indexes:
        if not index.has_keys or not index.ready:
            continue
        data = op.recovery_unit.index(index)
        if not data.unique:
            continue
        positions = _by_key(index, documents, found)
        held = dict(data.find_exact(list(positions)))
        if not held:
            continue
        unexpired = _unexpired(records, collection, sorted(held.values()), now_s)
        for key, record_id in held.items():
            for position in positions[key]:
                if record_id in unexpired and found.get(position) is None:
                    found[position] = duplicate_key_error(op.service, collection, index, documents[position], key)
    return found


def _by_key(index: CollectionIndex, documents: list[bytes], found: Taken) -> dict[bytes, list[int]]:
    """The positions of the documents that have each key of an index. Which have one of an earlier document is noted."""
    positions: dict[bytes, list[int]] = {}
    for position, document in enumerate(documents):
        try:
            keys = index.keys_of(document)
        except CommandError:
            found.setdefault(position)  # its insert says why
            continue
        for key in set(keys):
            having = positions.setdefault(key, [])
            if having:
                found.setdefault(position)
            having.append(position)
    return positions


def _unexpired(records: RecordStore, collection: Collection, record_ids: list[int], now_s: int) -> set[int]:
    """Those of some records that are there and not expired."""
    unexpired: set[int] = set()
    while record_ids:
        read, done = records.find_records(record_ids, _MOST_BYTES)
        unexpired.update([row[0] for row in read if not is_expired(row[2], row[3], collection.default_ttl_s, now_s)])
        record_ids = record_ids[done:]
    return unexpired
