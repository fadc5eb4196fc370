"""Which partition of a sharded collection a filter names, where the engine keeps them apart.

    {region: "north", n: {$gt: 5}}      one partition, if the shard key is `region`
    {n: {$gt: 5}}                       none, so that all are read

By whatever index the plan reads, it reads this partition only.
"""

from mongottl.catalog.collection import Collection
from mongottl.document.key_split import component_end
from mongottl.document.keystring import encode_value
from mongottl.document.types import RawArray, Regex, Undefined
from mongottl.exec.plan.predicates import conjuncts_of
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression


def named_partition(collection: Collection, match: MatchExpression | None) -> bytes | None:
    """The KeyString of the shard key value that all documents have which match; None if the filter names none, or the
    engine does not ask for it.

    Null, and what matches elements of arrays, names no partition: what has no value is in that of null.
    """
    shard_key = collection.shard_key
    if match is None or shard_key is None or not collection.is_partitioned:
        return None
    index = collection.partition_index
    if index is not None and index.arrays.found:
        return None
    for part in conjuncts_of(match):
        if (
            isinstance(part, ComparisonExpression)
            and part.operator == EQ
            and part.path.dotted == shard_key.path.dotted
            and part.collation is None
        ):
            value = part.value
            if value is None or isinstance(value, (list, RawArray, Regex, Undefined)):
                return None
            return encode_value(value)
    return None


def partition_of_key(collection: Collection, key: bytes) -> bytes | None:
    """The partition of a key of the index that says which `_id` there are, on shard key and `_id` or `_id` alone; None
    if it is not known, or the engine does not ask for it."""
    index = collection.partition_index
    if not collection.is_partitioned or (index is not None and index.arrays.found):
        return None
    return key[: int(component_end(key, 0, False))]
