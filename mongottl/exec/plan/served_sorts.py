"""Sorts that an index must serve: Cosmos DB does not sort in memory what its storage reads.

    {a: 1}           an index on `a` alone, in either direction, or a wildcard index that covers the path
    {a: 1, b: -1}    a compound index on `a` and `b` in this order, with these directions or with all of them reversed;
                     the beginning of a longer index does not serve
    {_id: 1}         always, and so does `$natural`, which is no sort here

An index serves once it is built. In a pipeline the rule holds for the `$sort` stages that only `$match`, `$sort`,
`$limit` and `$skip` precede; others are sorted in the gateway.

Source: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB" (index types); the texts and the pipeline rule from
users' reports. Assumed: an empty collection refuses as a full one does, a missing one does not; a sort by metadata
(`{$meta: …}`) is not refused, because the indexes that would give it are not in Cosmos DB.
"""

from collections.abc import Iterable
from typing import Final

from mongottl.account import Account
from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds import BTREE
from mongottl.catalog.index_kinds.kind import is_wildcard
from mongottl.dialect.cosmos.wording import query_failure
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.query.pipeline import StageSpec
from mongottl.query.pipeline.basic import LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.sort import SortPattern

SORT_WITHOUT_INDEX: Final = "sort-without-index"
NO_INDEX: Final = "The index path corresponding to the specified order-by item is excluded."
NO_COMPOUND_INDEX: Final = (
    "The order by query does not have a corresponding composite index that it can be served from."
)
_WILDCARD: Final = "$**"


def check_sort_is_served(op: OperationContext, collection: Collection | None, sort: SortPattern | None) -> None:
    """BadValue (2) if the server stands for an account of Cosmos DB and no index of the collection serves the sort."""
    if sort is None:
        return
    account = op.service.dialect.account
    if account is not None:
        _check(account, collection, [sort])


def check_pipeline_sorts(op: OperationContext, collection: Collection | None, specs: list[StageSpec]) -> None:
    """`check_sort_is_served` for the `$sort` stages of a pipeline that the storage executes."""
    account = op.service.dialect.account
    if account is None:
        return
    sorts: list[SortPattern] = []
    for spec in specs:
        if isinstance(spec, SortSpec):
            sorts.append(spec.pattern)
        elif not isinstance(spec, (MatchSpec, LimitSpec, SkipSpec)):
            break
    _check(account, collection, sorts)


def _check(account: Account, collection: Collection | None, sorts: Iterable[SortPattern]) -> None:
    if collection is None or not account.refuses(SORT_WITHOUT_INDEX):
        return
    ready = [index.descriptor for index in collection.listed_indexes if index.ready]
    for sort in sorts:
        if not sort.metadata and not sort.is_empty() and not any(serves(index, sort) for index in ready):
            raise CommandError(
                ErrorCode.BadValue, query_failure(NO_INDEX if len(sort.paths) == 1 else NO_COMPOUND_INDEX)
            )


def serves(index: IndexDescriptor, sort: SortPattern) -> bool:
    """Whether Cosmos DB can read documents in this order from an index."""
    wanted = [path.dotted for path in sort.paths]
    indexed = [path.dotted for path in index.paths]
    if len(indexed) == 1 and is_wildcard(indexed[0]):
        return len(wanted) == 1 and _covers(indexed[0], wanted[0])
    if index.kind is not BTREE or indexed != wanted:
        return False
    reversed_paths = [a != b for a, b in zip(sort.descending, index.descending, strict=True)]
    return all(reversed_paths) or not any(reversed_paths)


def indexes_path(index: IndexDescriptor, path: str) -> bool:
    """Whether an index has the values at a path, alone or with those at others."""
    indexed = [path.dotted for path in index.paths]
    return path in indexed or any(is_wildcard(wildcard) and _covers(wildcard, path) for wildcard in indexed)


def _covers(wildcard: str, path: str) -> bool:
    """Whether a path is below that of a wildcard index: `a.$**` has `a.b` and `a`."""
    parent = wildcard[: -len(_WILDCARD)]
    return f"{path}.".startswith(parent)
