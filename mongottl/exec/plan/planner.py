"""From a filter and a sort to a plan: an access path, and the stages above it.

The access paths, and when they are candidates:

    EOF                 there is no collection, or the filter is always false
    an index            its leading path has a predicate (`bounds`), or it provides the sort
    OR of indexes       no single index serves, but each branch of an $or has one; merged if all provide the sort
    the collection      no other path is possible, or a hint or sort by $natural requires it

If several point intervals at the beginning of an index prevent it from providing the sort, it is read in several scans
that are merged (`merge_scan`). If its keys contain all that is projected, documents are not read (`covered_scan`). For
`distinct` equal keys are skipped (`distinct_scan`); if only a number is needed, entries are counted (`counting`).

Indexes that are hidden, unfinished or without keys (the TTL setting on `_ts`) are never used. A sparse index is used
only if a predicate proves that it contains all documents that match, a partial one only if the filter implies its own.

The plan ranker chooses among several indexes by these rules, in order:

 1. One whose bounds contain at most one key.
 2. An index is removed if another one bounds the same paths and more, and provides the sort if the first does.
    Between equals: more leading components with one point, then more with points only, then providing the sort, then
    fewer paths, then the older one.
 3. If several are left and the collection is not small, each is tried on its first entries. One that reached its end
    costs the entries it examined. Others cost the entries expected for the first batch at the observed match rate, if
    they need no sort and the batch is bounded; else the entries in their ranges, counted up to a limit, or estimated
    from their shape. The cheapest wins; between equals the order of rule 2 decides.

A trial reads a fixed number of entries, so the choice depends only on the stored data, not on time. The winner is
cached for the query's shape, and the next such query tries it alone (`plan_cache`), until the indexes change.

Index filters and query settings restrict a query to some of the indexes; hints are then ignored.
"""

from collections.abc import Callable
from typing import TypeVar

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import ID_INDEX_NAME
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import saturated_sum
from mongottl.document.types import MISSING, Value, is_number
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.access_path import AccessPath, CollectionPath, IndexPath, OrPath
from mongottl.exec.plan.covered_path import covered_path, path_over_keys
from mongottl.exec.plan.distinct_path import DistinctPath, DistinctQuery, distinct_path, whole_distinct_path
from mongottl.exec.plan.express import EXPRESS, has_id_plan
from mongottl.exec.plan.implication import implies
from mongottl.exec.plan.index_access import INDEX_ACCESS, access_of
from mongottl.exec.plan.key_lookup import key_lookup
from mongottl.exec.plan.min_max import path_between
from mongottl.exec.plan.plan_cache import NO_SHAPE, QueryShape, allowed_indexes
from mongottl.exec.plan.plan_ranker import (
    TRIAL_ENTRIES,
    PlanRanker,
    candidates_of,
    is_trivial,
    is_usable,
    or_path,
    rank,
)
from mongottl.exec.plan.predicates import Filter, conjuncts_of, parts_beside
from mongottl.exec.stages.annotate import ANNOTATED, AnnotateStage
from mongottl.exec.stages.stage import (
    BackupStage,
    EofStage,
    LimitStage,
    PlanNode,
    PlanStage,
    SkipStage,
    SortStage,
    check_alive,
)
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AlwaysFalse, AndExpression, OrExpression
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.projection import Projection
from mongottl.query.sort import SortPattern
from mongottl.query.spill import SpillSpace

T = TypeVar("T")


class QueryPlan:
    """A query's plan. Each call of `open` starts a new execution.

    path: the access path, None for EOF. others: the rejected candidates.
    index_filter_set: whether an index filter or query settings restricted the candidate indexes.
    metadata: keywords of `{$meta: …}` to attach to the documents.
    """

    def __init__(
        self,
        collection: Collection | None,
        match: MatchExpression,
        path: AccessPath | None,
        others: list[AccessPath],
        sort: SortPattern | None,
        skip: int,
        limit: int,
        wanted: int,
        sort_memory_bytes: int,
        space: SpillSpace | None,
        metadata: set[str],
        index_filter_set: bool = False,
    ) -> None:
        self.collection = collection
        self.match = match
        self.index_filter_set = index_filter_set
        self.path = path
        self.others = others
        self.sort = sort
        self.skip = skip
        self.limit = limit
        self.wanted = wanted
        self.sort_memory_bytes = sort_memory_bytes
        self.space = space
        self.metadata = metadata
        self.covered = False
        # Whether only the number of documents is needed.
        self.counted = False
        if path is not None:
            path.metadata = metadata
            path.space = space

    def cover(self, projection: Projection) -> None:
        """Makes it a covered plan if the index keys contain all that the projection includes.

        The caller still applies the projection.
        """
        path = self.path
        if path is not None and type(path) is IndexPath:
            covered = covered_path(path, projection, self.sort, self.metadata)
            if covered is not None:
                self.path = covered
                self.covered = True

    def read_only(self, read: set[str]) -> bool:
        """Makes it a covered plan, for a caller that reads only these paths, if the index keys contain them."""
        path = self.path
        if path is None or type(path) is not IndexPath or self.metadata:
            return False
        covered = path_over_keys(path, [], read, self.sort)
        if covered is None:
            return False
        self.path = covered
        self.covered = True
        return True

    def count_only(self) -> None:
        """Plans for a caller that needs the number of documents alone.

        A filter that the bounds leave open is tested on the keys if they contain all that it reads.
        """
        self.counted = True
        path = self.path
        if self.metadata:
            return
        if isinstance(path, OrPath):
            for branch in path.paths:
                if type(branch) is IndexPath:
                    branch.leave_nulls_to_keys()
        elif type(path) is IndexPath:
            path.leave_nulls_to_keys()
            if path.residual is not None:
                self.read_only(set())

    def show_id_plan(self, id_plan: int) -> None:
        """Sets the name of a plan by `_id` in explain, instead of EXPRESS (`express.find_id_plan`)."""
        path = self.path
        if isinstance(path, IndexPath) and path.id_plan:
            path.id_plan = id_plan

    def skip_repeated(self, query: DistinctQuery, hinted: bool) -> bool:
        """Makes it a DISTINCT_SCAN, which skips documents with equal values at a path, if an index allows it."""
        path = self.path
        found: DistinctPath | None = None
        if isinstance(path, CollectionPath) and path.match is None:
            if hinted or self.index_filter_set or query.ordered:
                return False
            found = whole_distinct_path(path.collection, query)
        elif path is not None:
            # A rejected index may allow it where the winner does not. But documents must come in the winner's order.
            for candidate in [path] if query.ordered or self.sort is not None else [path, *self.others]:
                if type(candidate) is IndexPath:
                    found = distinct_path(candidate, query)
                    if found is not None:
                        self.others = [other for other in [path, *self.others] if other is not candidate]
                        break
        if found is None:
            return False
        self.path = found
        self.covered = found.type_bits >= 0
        return True

    def open(self) -> PlanStage:
        """A new execution of the plan."""
        stage = self._opened(self.path)
        backup = self._backup_path()
        if backup is not None:
            backup.metadata = self.metadata
            stage = BackupStage(stage, self._opened(backup))
        if INDEX_KEY in self.metadata:
            stage.set_keyed()
        requested = self.metadata & ANNOTATED
        return AnnotateStage(stage, requested, self.sort) if requested else stage

    def _backup_path(self) -> AccessPath | None:
        """A rejected path that provides the sort, for a blocking sort that must not use the disk and may fail."""
        path = self.path
        if path is None or self.sort is None or path.sorted != 0 or self.space is not None:
            return None
        for other in self.others:
            if other.sorted != 0:
                return other
        return None

    def _opened(self, path: AccessPath | None, entries: int = 0) -> PlanStage:
        """A new execution over `path`. entries: the first batch size, 0 for `wanted`."""
        if path is None:
            reason = "nonExistentNamespace" if self.collection is None else "predicateEvalsToFalse"
            return EofStage(reason)
        skip = self.skip
        limit = self.limit
        sort = self.sort
        if sort is not None and path.sorted == 0:
            blocking = SortStage(
                path.open(0),
                path.collection,
                sort,
                saturated_sum(skip, limit) if limit else 0,
                self.sort_memory_bytes,
                self.space,
            )
            return SkipStage(blocking, skip) if skip else blocking
        wanted = entries or self.wanted
        if limit and (wanted == 0 or wanted > limit):
            wanted = limit
        stage = path.open(saturated_sum(wanted, skip) if wanted else 0)
        if skip:
            stage = SkipStage(stage, skip)
        return LimitStage(stage, limit) if limit else stage

    def candidates(self) -> list[PlanStage]:
        """New executions of the winner and the rejected candidates; empty if there was only one candidate."""
        if not self.others:
            return []
        return [self._opened(path, TRIAL_ENTRIES) for path in (self.path, *self.others)]

    @property
    def winning(self) -> PlanNode:
        """The plan as explain shows it."""
        return self.open().node()

    @property
    def rejected(self) -> list[PlanNode]:
        """The rejected plans as explain shows them."""
        return [self._opened(path).node() for path in self.others]


def plan_query(
    op: OperationContext,
    collection: Collection | None,
    match: MatchExpression,
    *,
    sort: SortPattern | None = None,
    natural: int = 0,
    skip: int = 0,
    limit: int = 0,
    hint: Value = MISSING,
    wanted: int = 0,
    allow_disk_use: bool | None = None,
    shape: QueryShape = NO_SHAPE,
    remember: bool = True,
    metadata: set[str] | None = None,
    min_key: bytes = EMPTY_DOCUMENT,
    max_key: bytes = EMPTY_DOCUMENT,
    collation: Collation | None = None,
) -> QueryPlan:
    """The plan for a query. collection: None if it does not exist; the result is then empty.

    natural: 1 or -1 for a sort or hint {$natural: ±1}. limit: 0 for none. hint: an index's name or key pattern, or
    {$natural: ±1}. wanted: how many records the first batch needs, 0 for all. allow_disk_use: None for the server's
    default. shape: the other parts of the query's shape, for index filters and the plan cache. remember: whether to
    store the winner in the plan cache. metadata: keywords of `{$meta: …}` that are read from the documents, besides
    those of the sort. min_key, max_key: the range of the hinted index (find's `min` and `max`), the second exclusive;
    empty for no limit. collation: of these two; filter and sort have their own.
    BadValue (2) for a hint that names no usable index, FailedToParse (9) for a hint of another type.
    """
    by_key = collection is not None and collection.shard_key is not None and key_lookup(collection, match) is not None
    if op.cost.meter is not None:
        op.cost.meter.by_key = by_key
    if sort is not None and sort.is_empty():
        sort = None
    requested = set() if metadata is None else metadata
    if sort is not None:
        requested = requested.union(sort.metadata)
    path: AccessPath | None = None
    others: list[AccessPath] = []
    allowed: list[Value] | None = None
    index_only_part = None if isinstance(match, AlwaysFalse) else _part_that_needs_index(match)
    if index_only_part is not None:
        named = hint is not MISSING and not (isinstance(hint, bytes) and is_empty(hint))
        by_position = natural != 0 or (named and natural_direction(hint) != 0)
        INDEX_ACCESS[index_only_part.index_kinds()[0]].check_query(collection, named, by_position)
    if collection is not None and not isinstance(match, AlwaysFalse):
        hinted: CollectionIndex | None = None
        allowed = allowed_indexes(collection, shape, match)
        if hint is not MISSING and allowed is None:
            natural_hint = natural_direction(hint)
            if natural_hint != 0:
                natural = natural_hint
            else:
                hinted = _hinted_index(collection, hint)
        elif by_key and allowed is None and natural == 0 and collection.is_partitioned:
            # In one partition there is hardly more than one entry of this `_id`: trials would only cost.
            hinted = collection.index_named(ID_INDEX_NAME)
        trivial = is_trivial(match)
        if not is_empty(min_key) or not is_empty(max_key):
            path = path_between(collection, hinted, min_key, max_key, match, sort, collation)
        elif index_only_part is not None:
            path = _answering_path(collection, hinted, index_only_part, match, sort)
        elif hinted is not None:
            path = _hinted_path(collection, hinted, match, sort)
        elif natural != 0 or (trivial and sort is None):
            path = CollectionPath(collection, None if trivial else match, natural >= 0)
        else:
            ranker = PlanRanker(op, collection, match, sort, limit or wanted, skip, allowed, shape, remember)
            path, others = ranker.best_path()
        if isinstance(path, IndexPath):
            if path.bounds.void:
                path = None
            elif (
                path.bounds.index is collection.id_index
                and hint is MISSING
                and skip == 0
                and has_id_plan(collection, match)
            ):
                path.id_plan = EXPRESS
                if not requested:
                    # There is at most one record.
                    sort = None
                    limit = 0
    sort_bytes = op.service.limits.sort_bytes
    space = spill_space(op, allow_disk_use)
    index_filter_set = allowed is not None
    return QueryPlan(
        collection, match, path, others, sort, skip, limit, wanted, sort_bytes, space, requested, index_filter_set
    )


class _CatalogChanged(Exception):
    """The indexes or options of a collection have changed since planning began."""


class _CatalogCheck:
    """Checks, after others have run, that the collection is as it was when planning began."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._generation = collection.generation

    def check(self) -> None:
        check_alive(self._collection)
        if self._collection.generation != self._generation:
            raise _CatalogChanged


def make_plan(op: OperationContext, collection: Collection | None, plan: Callable[[], T]) -> T:
    """The result of planning a query on the collection; others run while that takes long (`OperationContext.compute`).

    Planning starts again when indexes or options of the collection have changed. QueryPlanKilled (175) if the
    collection has been dropped since the request was parsed, and the errors of `plan`.
    """
    if collection is None:
        return plan()
    while True:
        catalog_check = _CatalogCheck(collection)
        check_alive(collection)
        try:
            return op.compute(plan, catalog_check.check)
        except _CatalogChanged:
            continue


def spill_space(op: OperationContext, allow_disk_use: bool | None) -> SpillSpace | None:
    """Temporary files for an operation that exceeds its memory; None if it must not use them.

    allow_disk_use: the operation's `allowDiskUse`, None if not given.
    """
    allowed = op.service.limits.allow_disk_use if allow_disk_use is None else allow_disk_use
    return op.resources.files if allowed else None


def _part_that_needs_index(match: MatchExpression) -> MatchExpression | None:
    """The conjunct that needs an index of a certain type (`$text`, `$near`), or None."""
    for part in conjuncts_of(match):
        if part.index_kinds():
            return part
    return None


def _answering_path(
    collection: Collection,
    hinted: CollectionIndex | None,
    part: MatchExpression,
    match: MatchExpression,
    sort: SortPattern | None,
) -> AccessPath:
    """The access path for a conjunct that needs an index of its type: the hinted index, or the first that serves it.

    NoQueryExecutionPlans (291) if it is hidden, the errors of `IndexAccess.lacking` if there is none.
    """
    if isinstance(part, OrExpression):
        return _answering_or(collection, part, match)
    kinds = part.index_kinds()
    filter = Filter(conjuncts_of(match))
    for index in collection.indexes if hinted is None else [hinted]:
        if index.descriptor.kind.name not in kinds or not is_usable(index):
            continue
        partial = index.descriptor.partial_match
        if partial is not None and not implies(match, partial):
            continue
        path = access_of(index).answering(collection, index, part, match, filter, sort)
        if path is not None:
            return path
    if any(index.descriptor.kind.name in kinds and index.descriptor.hidden for index in collection.indexes):
        raise CommandError(
            ErrorCode.NoQueryExecutionPlans,
            f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: the index that"
            " the query needs is hidden",
        )
    raise INDEX_ACCESS[kinds[0]].lacking(collection)


def _answering_or(collection: Collection, part: OrExpression, match: MatchExpression) -> AccessPath:
    """The access path for an `$or` with a branch that needs an index of a certain type (`$text`).

    Each other branch must have an index too: NoQueryExecutionPlans (291).
    """
    rest = parts_beside(conjuncts_of(match), part)
    paths: list[AccessPath] = list_for(len(part.children))
    for branch in part.children:
        give_way()
        whole = AndExpression([*conjuncts_of(branch), *rest])
        needing = _part_that_needs_index(whole)
        if needing is not None:
            paths.append(_answering_path(collection, None, needing, whole, None))
            continue
        filter = Filter(whole.children)
        candidates = candidates_of(collection, whole, filter, None, None)
        if candidates:
            best = min(candidates, key=rank)
            if not best.bounds.void:
                paths.append(best)
            continue
        nested = or_path(collection, whole.children, 0, None, [])
        if nested is None:
            raise CommandError(
                ErrorCode.NoQueryExecutionPlans,
                f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: Failed to"
                " produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be indexed as well.",
            )
        paths.append(nested)
    return OrPath(collection, paths)


def natural_direction(hint: Value) -> int:
    """1 or -1 for the hint {$natural: ±1}, 0 for other hints. BadValue (2) for another direction."""
    if isinstance(hint, bytes):
        pairs = fields(hint)
        if len(pairs) == 1 and pairs[0][0] == "$natural":
            direction = pairs[0][1]
            for candidate in (1, -1):
                if is_number(direction) and compare_values(direction, candidate) == 0:
                    return candidate
            raise CommandError(ErrorCode.BadValue, "$natural hint must be 1 or -1")
    return 0


def _hinted_index(collection: Collection, hint: Value) -> CollectionIndex | None:
    """The index that a hint names; None for the empty hint {}.

    IndexNotFound (27) if several indexes have the key pattern (they differ in collation or other options).
    """
    if isinstance(hint, str):
        named = collection.index_named(hint)
        if named is not None and is_usable(named):
            return named
    elif isinstance(hint, bytes):
        pattern = fields(hint)
        if not pattern:
            return None
        matched = [
            index
            for index in collection.indexes
            if is_usable(index) and _same_pattern(fields(index.descriptor.key), pattern)
        ]
        if len(matched) > 1:
            names = ", ".join(index.name for index in matched)
            raise CommandError(
                ErrorCode.IndexNotFound,
                f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: Hint"
                f" matched multiple indexes, must hint by index name. Matched: {names}",
            )
        if matched:
            return matched[0]
    else:
        raise CommandError(ErrorCode.FailedToParse, "Hint must be a string or an object")
    raise CommandError(
        ErrorCode.BadValue,
        f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: hint provided does"
        " not correspond to an existing index",
    )


def _same_pattern(key: list[tuple[str, Value]], hint: list[tuple[str, Value]]) -> bool:
    if len(key) != len(hint):
        return False
    for (path, direction), (hinted_path, hinted_direction) in zip(key, hint, strict=True):
        if path != hinted_path or is_number(direction) != is_number(hinted_direction):
            return False
        if compare_values(direction, hinted_direction) != 0:
            return False
    return True


def _hinted_path(
    collection: Collection, index: CollectionIndex, match: MatchExpression, sort: SortPattern | None
) -> AccessPath:
    """The access path for a hinted index; a full scan if the filter does not bound it.

    A sparse or partial index then returns only the documents in it, as documented.
    """
    return access_of(index).hinted(collection, index, match, Filter(conjuncts_of(match)), sort)
