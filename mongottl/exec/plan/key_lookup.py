"""Filters that name one document by its key: by `_id`, and in a sharded collection of Cosmos DB by the shard key too.

Cosmos DB charges such a find as a point read, and its explain shows `$pointLookup`.
"""

from typing import Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.document.types import MISSING, Value
from mongottl.exec.plan.predicates import conjuncts_of
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression

_ID: Final = "_id"


class Lookup(NamedTuple):
    """The document that a filter names by its `_id`, and by its shard key, which is MISSING in other collections."""

    id: Value
    shard_key: Value


def key_lookup(collection: Collection | None, match: MatchExpression) -> Lookup | None:
    """The key of the document that a filter names by equalities on it, and by nothing else; None for other filters."""
    named: dict[str, Value] = {}
    for part in conjuncts_of(match):
        if not isinstance(part, ComparisonExpression) or part.operator != EQ or part.path.dotted in named:
            return None
        named[part.path.dotted] = part.value
    wanted = {_ID} if collection is None or collection.shard_key is None else {_ID, collection.shard_key.path.dotted}
    if named.keys() != wanted:
        return None
    others = [value for path, value in named.items() if path != _ID]
    return Lookup(named[_ID], others[0] if others else MISSING)
