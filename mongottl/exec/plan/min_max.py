"""find's `min` and `max`: a part of one index, told by its first key and by the key behind its last.

    find({…}).min({a: 1, b: 5}).max({a: 3, b: 0}).hint({a: 1, b: 1})      keys from (1, 5) to before (3, 0)

The keys stand in the order of the index, so where it is descending the greater value comes first.
Source: MongoDB's pages on `cursor.min()` and `cursor.max()`.
"""

from typing import Final

from mongottl.catalog.collection import Collection, IndexEntry
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

NO_HINT: Final = 51173
NOT_COMPATIBLE: Final = 51174
NOT_BEFORE: Final = 51175


def path_between(
    collection: Collection,
    index: IndexEntry | None,
    least: bytes,
    bound: bytes,
    match: MatchExpression,
    sort: SortPattern | None,
    collation: Collation | None,
) -> AccessPath:
    """The part of the hinted index between two keys; an empty document stands for no limit.

    51173 without hint of an index, 51174 for keys that are not the index's, or that have text in them where its
    collation is not the query's, 51175 where the first is not before the second.
    """
    if index is None:
        raise CommandError(NO_HINT, "When using min()/max() a hint of which index to use must be provided")
    low = LOWEST_KEY if is_empty(least) else _key(index, least, collation)
    high = HIGHEST_KEY if is_empty(bound) else _key(index, bound, collation)
    if low >= high:
        raise CommandError(
            NOT_BEFORE, "The value provided for min() does not come before the value provided for max() in the index"
        )
    bounds = IndexBounds(index, components_of(index))
    bounds.ranges = [(low, high)]
    bounds.limits = (_shown(index, least, True), _shown(index, bound, False))
    # A document of several keys sorts by all of them, also by those outside the limits.
    direction = 0 if sort is None or index.arrays.found else sort_direction(bounds, sort)
    return IndexPath(collection, bounds, match, conjuncts_of(match), direction)


def _key(index: IndexEntry, limit: bytes, collation: Collation | None) -> bytes:
    descriptor = index.descriptor
    given = fields(limit)
    names = [name for name, _ in given]
    if descriptor.kind.name != "btree" or names != [path.dotted for path in descriptor.paths]:
        raise CommandError(NOT_COMPATIBLE, "The index chosen is not compatible with min/max")
    if any(may_hold_text(value) for _, value in given) and not same_collation(descriptor.collation, collation):
        raise CommandError(NOT_COMPATIBLE, "The collation of the index chosen is not that of min/max")
    return encode_key([with_keys(value, descriptor.collation) for _, value in given], descriptor.descending)


def _shown(index: IndexEntry, limit: bytes, first: bool) -> bytes:
    """A limit as explain shows it: with the lowest or highest values where there is none."""
    if not is_empty(limit):
        return limit
    descriptor = index.descriptor
    ends: list[tuple[str, Value]] = []
    for i in range(len(descriptor.paths)):
        lowest = first != descriptor.descending[i]
        ends.append((descriptor.paths[i].dotted, MinKey() if lowest else MaxKey()))
    return encode_fields(ends)
