"""Sorts that an index must serve: Cosmos DB does not sort in memory what its storage reads.

    {a: 1}           an index on `a` alone, in either direction, or a wildcard index that covers the path
    {a: 1, b: -1}    a compound index on `a` and `b` in this order, with these directions or with all of them reversed;
                     the beginning of a longer index does not serve
    {a: 1, b: -1}    beside an equality on `t`: also a compound index on `t`, `a` and `b`; its end serves where the
                     filter compares all paths before it for equality. So do one field and the end of a compound index.
    {_id: 1}         always, and so does `$natural`, which is no sort here

An index serves once it is built. In a pipeline the rule holds for the `$sort` stages that only `$match`, `$sort`,
`$limit` and `$skip` precede; others are sorted in the gateway.

Source: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB" (index types); the texts and the pipeline rule from
users' reports. That the end of a compound index serves is from "GridFS" in Microsoft's articles on the features, which
say that any GridFS driver works: they sort chunks by `n` under `files_id`, and files by `uploadDate` under `filename`,
with the indexes that they make; and from the core API (MicrosoftDocs/azure-docs#112818,
AzureCosmosDB/cosmosdb-agent-kit#101). There, and in Azure/cosmos-explorer#1343, an index does not serve a sort by
several fields beside an equality on a path that it does not have: `filtered-compound-sort` of `VARIANTS`.

Assumed: an empty collection refuses as a full one does, a missing one does not; a sort by metadata
(`{$meta: …}`) is not refused, because the indexes that would give it are not in Cosmos DB.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds import BTREE
from mongottl.catalog.index_kinds.kind import is_wildcard
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow, capability, create_index
from mongottl.dialect.cosmos.limits import MAX_COMPOUND_FIELDS, MAX_PATH_NAMES
from mongottl.dialect.cosmos.wording import storage_failure
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.predicates import conjuncts_of
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.pipeline import StageSpec
from mongottl.query.pipeline.basic import LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.sort import SortPattern

SORT_WITHOUT_INDEX: Final = "sort-without-index"
FILTERED_COMPOUND_SORT: Final = "filtered-compound-sort"
NO_INDEX: Final = "The index path corresponding to the specified order-by item is excluded."
NO_COMPOUND_INDEX: Final = (
    "The order by query does not have a corresponding composite index that it can be served from."
)
# The capability for compound indexes on nested paths.
NESTED_INDEXES: Final = "EnableUniqueCompoundNestedDocs"
_WILDCARD: Final = "$**"


class _FilteredSort(NamedTuple):
    """A sort, and the filters of the documents that it sorts."""

    sort: SortPattern
    filters: list[MatchExpression]


def check_sort_is_served(
    account: Account, collection: Collection | None, sort: SortPattern, match: MatchExpression
) -> None:
    """BadValue (2) if no index of the collection serves the sort. match: the filter of the documents that are
    sorted."""
    _check(account, collection, [_FilteredSort(sort, [match])])


def check_pipeline_sorts(account: Account, collection: Collection | None, specs: list[StageSpec]) -> None:
    """`check_sort_is_served` for the `$sort` stages of a pipeline that the storage executes."""
    sorts: list[_FilteredSort] = []
    filters: list[MatchExpression] = []
    for spec in specs:
        if isinstance(spec, SortSpec):
            sorts.append(_FilteredSort(spec.pattern, [*filters]))
        elif isinstance(spec, MatchSpec):
            filters.append(spec.expression)
        elif not isinstance(spec, (LimitSpec, SkipSpec)):
            break
    _check(account, collection, sorts)


def _check(account: Account, collection: Collection | None, sorts: Iterable[_FilteredSort]) -> None:
    if collection is None or not account.refuses(SORT_WITHOUT_INDEX):
        return
    indexes = collection.listed_indexes
    ready = [index.descriptor for index in indexes if index.ready]
    is_strict = account.refuses(FILTERED_COMPOUND_SORT)
    for sort, filters in sorts:
        if sort.metadata or sort.is_empty():
            continue
        equal = _equal_paths(filters)
        if not any(serves(index, sort, equal, is_strict) for index in ready):
            built = any(serves(index.descriptor, sort, equal, is_strict) for index in indexes)
            raise CommandError(
                ErrorCode.BadValue,
                storage_failure(NO_INDEX if len(sort.paths) == 1 else NO_COMPOUND_INDEX),
                advice=_advice(account, sort, equal if is_strict else frozenset(), built),
            )


def _advice(account: Account, sort: SortPattern, beside: frozenset[str], is_built: bool) -> str:
    """The advice for a sort that no index serves. beside: paths that the index must have, too, if the sort has several.
    is_built: whether the index that would serve it is being built."""
    if is_built:
        return advice("The index that serves this sort is not built yet", "wait for it", allow(SORT_WITHOUT_INDEX))
    key: list[tuple[str, Value]] = list(sort.describe().items())
    if len(key) > 1:
        wanted = {path for path, _ in key}
        key = [(path, 1) for path in sorted(beside - wanted)] + key
    names = [path.split(".") for path, _ in key]
    possible = len(key) <= MAX_COMPOUND_FIELDS and all(len(path) <= MAX_PATH_NAMES for path in names)
    if not possible or any(name.startswith("$") for path in names for name in path):
        return advice("No index can serve this sort", allow(SORT_WITHOUT_INDEX))
    way = create_index(key)
    if len(key) > 1 and not account.can(NESTED_INDEXES) and any(len(path) > 1 for path in names):
        way = f"{capability(account, NESTED_INDEXES)} and {way}"
    return advice("No index serves this sort", way, allow(SORT_WITHOUT_INDEX))


def _equal_paths(filters: list[MatchExpression]) -> frozenset[str]:
    """The paths that filters compare for equality."""
    equal: set[str] = set()
    for match in filters:
        for part in conjuncts_of(match):
            if isinstance(part, ComparisonExpression) and part.operator == EQ:
                equal.add(part.path.dotted)
    return frozenset(equal)


def serves(
    index: IndexDescriptor, sort: SortPattern, equal: frozenset[str] = frozenset(), is_strict: bool = False
) -> bool:
    """Whether Cosmos DB can read documents in this order from an index.

    equal: the paths that the filter compares for equality. is_strict: whether a sort by several fields needs an index
    with all of them.
    """
    wanted = [path.dotted for path in sort.paths]
    indexed = [path.dotted for path in index.paths]
    if len(indexed) == 1 and is_wildcard(indexed[0]):
        return len(wanted) == 1 and _covers(indexed[0], wanted[0])
    before = len(indexed) - len(wanted)
    if index.kind is not BTREE or before < 0 or indexed[before:] != wanted or not equal.issuperset(indexed[:before]):
        return False
    if is_strict and len(wanted) > 1 and not equal.issubset(indexed):
        return False
    reversed_paths = [a != b for a, b in zip(sort.descending, index.descending[before:], strict=True)]
    return all(reversed_paths) or not any(reversed_paths)


def indexes_path(index: IndexDescriptor, path: str) -> bool:
    """Whether an index has the values at a path, alone or with those at others."""
    indexed = [path.dotted for path in index.paths]
    return path in indexed or any(is_wildcard(wildcard) and _covers(wildcard, path) for wildcard in indexed)


def _covers(wildcard: str, path: str) -> bool:
    """Whether a path is below that of a wildcard index: `a.$**` has `a.b` and `a`."""
    parent = wildcard[: -len(_WILDCARD)]
    return f"{path}.".startswith(parent)
