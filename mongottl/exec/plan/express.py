"""Plans by `_id`: they find one record by one key of the index on `_id`, without comparing candidates.

When a query has such a plan, and its name in explain, as in mongod 8:

    filter        exactly {_id: value} or {_id: {$eq: value}}; no null, array, regular expression or undefined
    collation     the collection's own
    EXPRESS       find and aggregate, with no projection or one of whole root fields, which is no stage of its own; no
                  batchSize, no returnKey;
                  updates and deletes of one document, without upsert, sort and projection
    ID_HACK       the others: dotted and computed projections, batchSize, returnKey; counts; other writes
    NO_ID_PLAN    hint, skip, min and max, showRecordId, another collation: an ordinary plan, through any index

For both plans, commands call `express_key` and `express_record` without parsing the filter. They do so only without
options that forbid it (sort, collation, hint, positional operators).
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.collation import same_collation
from mongottl.document.keystring import encode_raw
from mongottl.document.types import NULL
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.partition import partition_of_key
from mongottl.query.match import MatchExpression, simple_id_filter
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.projection import Projection
from mongottl.query.projection.plan import RootProjection
from mongottl.storage.stores import Record
from mongottl.ttl.policy import NO_TTL, is_expired

NO_ID_PLAN: Final = 0
ID_HACK: Final = 1
EXPRESS: Final = 2


def express_key(collection: Collection, filter: bytes) -> bytes | None:
    """The key of the index on `_id` that a filter selects; None if it selects others, or the collection has no index.

    Encoded under the collection's collation, as in the index: for operations without their own collation.
    """
    if collection.id_index is None:
        return None
    type_code, pos = simple_id_filter(filter)
    if type_code == 0 or type_code == NULL:
        return None
    return encode_raw(filter, type_code, pos, False, collection.collation)


def has_id_plan(collection: Collection, match: MatchExpression) -> bool:
    """Whether a parsed filter, with its collation, selects one key of the index on `_id`."""
    return (
        collection.id_index is not None
        and isinstance(match, ComparisonExpression)
        and match.operator == EQ
        and match.path.dotted == "_id"
        and match.value is not None
        and same_collation(match.collation, collection.collation)
    )


def find_id_plan(projection: Projection | None, batch_size: int, return_key: bool, show_record_id: bool) -> int:
    """The plan by `_id` that explain shows for a find whose filter has one. batch_size: -1 if not given."""
    if show_record_id:
        return NO_ID_PLAN
    if batch_size >= 0 or return_key:
        return ID_HACK
    return EXPRESS if projection is None or isinstance(projection, RootProjection) else ID_HACK


def partition_key(collection: Collection, document: bytes) -> bytes | None:
    """The key of a document in the index on shard key and `_id`; None if `_id` is unique without the shard key."""
    index = collection.partition_index
    return None if index is None else index.keys_of(document)[0]


def express_record(op: OperationContext, collection: Collection, key: bytes) -> Record | None:
    """The record with a key of the index on `_id` (`express_key`), or where `_id` is not unique with its
    `partition_key`; None if there is none or it is expired."""
    index = collection.id_index
    if index is None:
        index = collection.partition_index
    assert index is not None
    unit = op.recovery_unit
    op.profile.lookups_by_id += 1
    data = unit.index(index)
    if collection.is_partitioned:
        partition = partition_of_key(collection, key)
        if partition is not None:
            data = data.of_partition(partition)
    record = data.fetch_exact(unit.records(collection), key)
    if (
        record is not None
        and collection.default_ttl_s != NO_TTL
        and is_expired(record[2], record[3], collection.default_ttl_s, op.now_s)
    ):
        return None
    if record is not None:
        op.profile.found_by_id += 1
    return record
