"""Sizes of collections and their indexes: for collStats, dbStats and listDatabases.

Counts and sizes of documents are exact and cheap, since storage maintains them. Sizes of indexes are not maintained;
they are estimated from a few entries.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.document.bson_field import NUMBERS, wrong_type
from mongottl.document.interrupt import Undivided
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import Decimal128, Value, integer, is_number
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.write.expiry import count_living

T = TypeVar("T")

_MAX_INT32: Final = 2**31 - 1
# Entries of an index that its size is estimated from.
_SAMPLE: Final = 32
_SAMPLE_BYTES: Final = 1 << 20
# Bytes of an entry besides its key: the record id.
_RECORD_ID_BYTES: Final = 8


class CollectionSize:
    """Sizes in bytes. records, data: all records, expired ones included. indexes: by name, estimated."""

    def __init__(self, unit: RecoveryUnit, collection: Collection) -> None:
        self._unit = unit
        self._collection = collection
        records = unit.records(collection)
        self.records = records.count()
        self.data = records.size_bytes()
        self.indexes: dict[str, int] = {}
        self.indexes_total = 0
        for index in [*collection.listed_indexes]:
            if index.dropped:  # while others were measured
                continue
            size = _index_size(unit, index, self.records)
            self.indexes[index.name] = size
            self.indexes_total += size
        self.total = self.data + self.indexes_total

    def unexpired_count(self, now_s: int) -> int:
        """How many documents are not expired at `now_s`; the cost grows with the expired ones not purged yet."""
        with Undivided():
            records = self._unit.records(self._collection)
            return count_living(records, self._collection, now_s)


def collection_size(unit: RecoveryUnit, collection: Collection) -> CollectionSize:
    return CollectionSize(unit, collection)


def measured(op: OperationContext, collections: list[Collection], measure: Callable[[Collection], T]) -> Iterator[T]:
    """What `measure` returns for each collection. Others run between two of them; those that are dropped meanwhile, or
    while `measure` waits for the engine, are left out."""
    for collection in collections:
        op.give_way()
        if _is_dropped(collection):
            continue
        try:
            size = measure(collection)
        except CommandError as error:
            if error.code == ErrorCode.QueryPlanKilled and _is_dropped(collection):
                continue
            raise
        yield size


def _is_dropped(collection: Collection) -> bool:
    """Whether it is now: others run in between."""
    return collection.dropped


def describe_size(unit: RecoveryUnit, collection: Collection | None, now_s: int, scale: int) -> dict[str, Value]:
    """The sizes in collStats and `$collStats`, in units of `scale` bytes; zeros for a missing collection."""
    if collection is None:
        return {
            "size": 0,
            "count": 0,
            "numOrphanDocs": 0,
            "storageSize": 0,
            "totalSize": 0,
            "nindexes": 0,
            "totalIndexSize": 0,
            "indexDetails": {},
            "indexSizes": {},
            "scaleFactor": integer(scale),
        }
    reply: dict[str, Value] = {}
    size = collection_size(unit, collection)
    reply["size"] = integer(size.data // scale)
    reply["count"] = integer(size.unexpired_count(now_s))
    if size.records:
        reply["avgObjSize"] = integer(size.data // size.records)
    reply["numOrphanDocs"] = 0
    reply["storageSize"] = integer(size.data // scale)
    reply["freeStorageSize"] = 0
    options = collection.options
    reply["capped"] = options.capped
    if options.capped:
        reply["max"] = integer(options.capped_max_documents)
        reply["maxSize"] = integer(options.capped_size_bytes // scale)
    if collection.clustering is not None:
        reply["clustered"] = True
    reply["nindexes"] = len(collection.listed_indexes)
    reply["indexDetails"] = {index.name: {} for index in collection.listed_indexes}
    reply["indexBuilds"] = [index.name for index in collection.indexes if not index.ready]
    reply["totalIndexSize"] = integer(size.indexes_total // scale)
    reply["totalSize"] = integer(size.total // scale)
    reply["indexSizes"] = {name: integer(used // scale) for name, used in size.indexes.items()}
    reply["scaleFactor"] = integer(scale)
    return reply


def _index_size(unit: RecoveryUnit, index: CollectionIndex, records: int) -> int:
    if not index.has_keys or records == 0:
        return 0
    sample, more = unit.index(index).scan(ALL_KEYS, None, _SAMPLE, _SAMPLE_BYTES)
    if not sample:
        return 0
    used = sum(len(key) + _RECORD_ID_BYTES for key, _ in sample)
    if not more:
        return used
    return used * records // len(sample)


def parse_scale(command: str, value: Value) -> int:
    """The unit of sizes in bytes, an int32; 1 if absent. BadValue (2) below 1, TypeMismatch (14) if it is no number.

    Doubles are truncated, decimals are rounded half to even, larger values become the largest int32.
    """
    if value is None:
        return 1
    if not is_number(value):
        raise wrong_type(f"{command}.scale", value, NUMBERS)
    assert isinstance(value, (int, float, Decimal128))
    scale = min(clamp_to_long(value), _MAX_INT32)
    if scale < 1:
        raise CommandError(ErrorCode.BadValue, f"BSON field 'scale' value must be >= 1, actual value '{scale}'")
    return scale
