"""find's `min` and `max`: the range of one index from an inclusive first key to an exclusive last key.

    find({…}).min({a: 1, b: 5}).max({a: 3, b: 0}).hint({a: 1, b: 1})      keys from (1, 5) to before (3, 0)

The limits are in the order of the index: in a descending index the first key has the greater value.
Source: MongoDB's pages on `cursor.min()` and `cursor.max()`.
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.build import encode_fields
from mongottl.document.collation import Collation, may_hold_text, same_collation, with_keys
from mongottl.document.keystring import HIGHEST_KEY, LOWEST_KEY, encode_key
from mongottl.document.types import MaxKey, MinKey, Value
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError
from mongottl.exec.plan.access_path import AccessPath, IndexPath
from mongottl.exec.plan.bounds import IndexBounds, components_of, sort_direction
from mongottl.exec.plan.predicates import conjuncts_of
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern
from mongottl.storage.stores import KeyRange

NO_HINT: Final = 51173
NOT_COMPATIBLE: Final = 51174
NOT_BEFORE: Final = 51175


def path_between(
    collection: Collection,
    index: CollectionIndex | None,
    min_key: bytes,
    max_key: bytes,
    match: MatchExpression,
    sort: SortPattern | None,
    collation: Collation | None,
) -> AccessPath:
    """The scan of the hinted index between two keys; an empty document means no limit.

    51173 without a hint of an index, 51174 for keys that do not fit the index, or contain strings while its collation
    differs from the query's, 51175 if the first is not before the second.
    """
    if index is None:
        raise CommandError(NO_HINT, "When using min()/max() a hint of which index to use must be provided")
    low = LOWEST_KEY if is_empty(min_key) else _key(index, min_key, collation)
    high = HIGHEST_KEY if is_empty(max_key) else _key(index, max_key, collation)
    if low >= high:
        raise CommandError(
            NOT_BEFORE, "The value provided for min() does not come before the value provided for max() in the index"
        )
    bounds = IndexBounds(index, components_of(index))
    bounds.ranges = [KeyRange(low, high)]
    bounds.limits = (_explained(index, min_key, True), _explained(index, max_key, False))
    # A document with several keys sorts by all of them, also by those outside the limits.
    direction = 0 if sort is None or index.arrays.found else sort_direction(bounds, sort)
    return IndexPath(collection, bounds, match, conjuncts_of(match), direction)


def _key(index: CollectionIndex, limit: bytes, collation: Collation | None) -> bytes:
    descriptor = index.descriptor
    given = fields(limit)
    names = [name for name, _ in given]
    if descriptor.kind.name != "btree" or names != [path.dotted for path in descriptor.paths]:
        raise CommandError(NOT_COMPATIBLE, "The index chosen is not compatible with min/max")
    if any(may_hold_text(value) for _, value in given) and not same_collation(descriptor.collation, collation):
        raise CommandError(NOT_COMPATIBLE, "The collation of the index chosen is not that of min/max")
    return encode_key([with_keys(value, descriptor.collation) for _, value in given], descriptor.descending)


def _explained(index: CollectionIndex, limit: bytes, first: bool) -> bytes:
    """A limit for explain's bounds; a missing one with MinKey or MaxKey values."""
    if not is_empty(limit):
        return limit
    descriptor = index.descriptor
    ends: list[tuple[str, Value]] = []
    for i in range(len(descriptor.paths)):
        lowest = first != descriptor.descending[i]
        ends.append((descriptor.paths[i].dotted, MinKey() if lowest else MaxKey()))
    return encode_fields(ends)
