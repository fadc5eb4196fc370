"""What the shard key of a collection asks of the documents that are stored, in the dialects that have such collections.

Source: Microsoft's error table for Cosmos DB (61, 66) and its page on partitioning; the texts are reported by users,
but that of ImmutableField, which is assumed.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.shard_key import ShardKey
from mongottl.errors import ErrorCode, WriteError
from mongottl.exec.operation.context import OperationContext

# Bytes of a string's KeyString around the string itself: its type and its end.
_AROUND_STRING: Final = 2


def check_has_shard_key(op: OperationContext, shard_key: ShardKey, document: bytes) -> None:
    """`Dialect.missing_shard_key` for a document that is to be stored without a value of the shard key. If that is
    allowed, it is stored among those whose value is null, of which it must differ by `_id`.
    `Dialect.shard_key_too_long` for a value that is too long."""
    value = shard_key.value_of(document)
    if value is None:
        missing = op.service.dialect.missing_shard_key(shard_key.path.dotted)
        if missing is not None:
            raise missing
    elif 0 < op.service.bounds.max_shard_key_bytes < len(value) - _AROUND_STRING:
        raise op.service.dialect.shard_key_too_long()


def check_keeps_shard_key(
    op: OperationContext, collection: Collection, shard_key: ShardKey, before: bytes, after: bytes, replaces: bool
) -> None:
    """`Dialect.changed_shard_key` for an update that changes or removes the value of the shard key, ImmutableField (66)
    if that is allowed and the record could not stay where it is; `Dialect.missing_shard_key` for a replacement without
    it."""
    value = shard_key.value_of(after)
    if value is None and replaces:
        check_has_shard_key(op, shard_key, after)
    if value != shard_key.value_of(before):
        changed = op.service.dialect.changed_shard_key(shard_key.path.dotted)
        if changed is not None:
            raise changed
        if collection.is_partitioned:
            raise WriteError(
                ErrorCode.ImmutableField,
                f"the value of the shard key at '{shard_key.path.dotted}' cannot be changed where the store is spread"
                " over several machines: delete the document and insert it anew",
            )
