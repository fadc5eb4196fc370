"""What the shard key of a collection of Cosmos DB asks of writes.

Source: Microsoft's error table for the service (61, 66) and its page on partitioning; the texts are reported by users,
but that of ImmutableField, which is assumed.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.shard_key import ShardKey
from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.dialect.cosmos.defects import MISSING_SHARD_KEY, missing_shard_key
from mongottl.dialect.cosmos.limits import shard_key_too_long
from mongottl.document.types import MISSING
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode, WriteError
from mongottl.exec.operation.context import OperationContext
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AndExpression

# Bytes of a string's KeyString around the string itself: its type and its end.
_AROUND_STRING: Final = 2
_SHARD_KEY_CHANGE: Final = "shard-key-change"
_UNTARGETED_WRITE: Final = "untargeted-write"


def check_has_shard_key(op: OperationContext, shard_key: ShardKey, document: bytes) -> None:
    """ShardKeyNotFound (61) for a document that is to be stored without a value of the shard key. If that is allowed,
    it is stored among those whose value is null, of which it must differ by `_id`. BadValue (2) for a value that is too
    long."""
    value = shard_key.value_of(document)
    if value is None:
        if _refuses(op, MISSING_SHARD_KEY):
            raise missing_shard_key(op.service.dialect.account, shard_key.path.dotted)
    elif 0 < op.service.max_shard_key_bytes < len(value) - _AROUND_STRING:
        raise shard_key_too_long()


def check_keeps_shard_key(
    op: OperationContext, shard_key: ShardKey, before: bytes, after: bytes, replaces: bool
) -> None:
    """ImmutableField (66) for an update that changes or removes the value of the shard key; ShardKeyNotFound (61) for a
    replacement without it."""
    value = shard_key.value_of(after)
    if value is None and replaces:
        check_has_shard_key(op, shard_key, after)
    if value != shard_key.value_of(before) and _refuses(op, _SHARD_KEY_CHANGE):
        path = shard_key.path.dotted
        raise WriteError(
            ErrorCode.ImmutableField,
            f"Performing an update on the path '{path}' would modify the immutable field '{path}'",
            advice=advice(
                f"The update changes the value of the shard key at {path}",
                "delete the document and insert it anew",
                allow(_SHARD_KEY_CHANGE),
            ),
        )


def _refuses(op: OperationContext, refusal: str) -> bool:
    """Whether a refusal is in force; in a data directory of the dialect `cosmos` that another dialect opens, it is."""
    account = op.service.dialect.account
    return account is None or account.refuses(refusal)


def check_targets_shard_key(op: OperationContext, collection: Collection, match: MatchExpression, many: bool) -> None:
    """ShardKeyNotFound (61) for a write whose filter does not name one value of the shard key.

    many: whether it writes all documents that match; it is refused only for an account with retryable writes.
    """
    shard_key = collection.shard_key
    account = op.service.dialect.account
    if shard_key is None or account is None or not account.refuses(_UNTARGETED_WRITE):
        return
    if many and not op.service.dialect.account_retries_writes():
        return
    if not _names(match, shard_key.path.parts):
        raise CommandError(
            ErrorCode.ShardKeyNotFound,
            "query in command must target a single shard key",
            advice=advice(
                f"The filter names no value of the shard key at {shard_key.path.dotted}",
                "add one",
                allow(_UNTARGETED_WRITE),
            ),
        )


def _names(match: MatchExpression, path: list[str]) -> bool:
    """Whether all that matches has one value at the path, which the filter names: there, or within a document that it
    names for the beginning of the path."""
    if isinstance(match, AndExpression):
        return any(_names(child, path) for child in match.children)
    if not isinstance(match, ComparisonExpression) or match.operator != EQ:
        return False
    named = match.path.parts
    if named != path[: len(named)]:
        return False
    value = match.value
    for part in path[len(named) :]:
        value = get_value(value, part) if isinstance(value, bytes) else MISSING
    return value is not MISSING
