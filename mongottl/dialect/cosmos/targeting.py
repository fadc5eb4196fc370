"""Which writes Cosmos DB takes in a sharded collection: those of one document name a value of the shard key.

Source: Microsoft's error table for the service (61) and its page on partitioning; the text is reported by users.
"""

from typing import Final

from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.document.types import MISSING
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AndExpression

_UNTARGETED_WRITE: Final = "untargeted-write"


def check_targets_shard_key(account: Account, path: list[str], match: MatchExpression) -> None:
    """ShardKeyNotFound (61) for a write whose filter does not name one value of the shard key. path: of the key."""
    if account.refuses(_UNTARGETED_WRITE) and not _names(match, path):
        raise CommandError(
            ErrorCode.ShardKeyNotFound,
            "query in command must target a single shard key",
            advice=advice(
                f"The filter names no value of the shard key at {'.'.join(path)}", "add one", allow(_UNTARGETED_WRITE)
            ),
        )


def _names(match: MatchExpression, path: list[str]) -> bool:
    """Whether the filter fixes the path to one value, by an equality on it or on a parent document."""
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
