"""From a filter and a sort to a plan: which way into the collection, and what comes on top.

Ways into a collection, and when they come into question:

    EOF                 there is no collection, or the filter cannot be true
    an index            its leading path has a predicate (`bounds`), or its order is the sort's
    several, by OR      no single index serves, but each branch of an $or has one; merged if all have the sort's order
    the collection      nothing else does, or a hint or sort by $natural demands it

An index is read in several scans that are merged where its leading points keep one from the sort's order (`merging`).
Documents are left alone where its keys tell all that is projected (`covered`); it is leapt through for `distinct`
(`distinct_scan`), and counted where nothing but the number is wanted (`counting`).

Indexes that are hidden, still being built or without keys (the TTL setting on `_ts`) are never used. A sparse index is
used only where a predicate proves that what matches is in it, a partial one only where the filter implies its own.

Of several indexes the choice is this, in order:

 1. One whose bounds hold at most one key.
 2. An index falls out if another one binds the same paths and more, and gives the sort's order if the first does.
    Between equals: more leading points with one value, then more leading points, then the sort's order, then fewer
    paths, then the older one.
 3. If several are left and the collection is not small, each is tried on its first entries. One that came to its end
    costs what it examined. Others cost what the first page will take at the rate seen, if they need not be sorted and
    the page is bounded; else what is in their ranges, counted up to a bound, or guessed from their shape. The cheapest
    is taken; between equals rule 2's order decides.

The trial reads a fixed number of entries, so the choice depends on the stored data alone, and on no clock. Its winner
is remembered for the query's shape, and the next such query tries it alone (`plan_cache`), until the indexes change.

Index filters and query settings confine a query to some of the indexes; hints then count for nothing.
"""

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.types import MISSING, Value, is_number
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.access_path import AccessPath, CollectionPath, IndexPath, OrPath
from mongottl.exec.plan.express import EXPRESS, has_id_plan
from mongottl.exec.plan.implication import implies
from mongottl.exec.plan.index_access import INDEX_ACCESS, access_of
from mongottl.exec.plan.min_max import path_between
from mongottl.exec.plan.plan_cache import NO_SHAPE, QueryShape, confinement
from mongottl.exec.plan.plan_ranker import TRIAL_ENTRIES, Choice, candidates_of, is_trivial, is_usable, or_path, rank
from mongottl.exec.plan.predicates import Filter, conjuncts_of, parts_beside
from mongottl.exec.stages.annotate import ANNOTATED, AnnotateStage
from mongottl.exec.stages.covered_scan import covered_path
from mongottl.exec.stages.distinct_scan import distinct_path, whole_distinct_path
from mongottl.exec.stages.stage import BackupStage, EofStage, LimitStage, PlanNode, PlanStage, SkipStage, SortStage
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AlwaysFalse, AndExpression, OrExpression
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.projection import Projection
from mongottl.query.sort import SortPattern
from mongottl.query.spill import SpillSpace


class QueryPlan:
    """How a query will be carried out. `open` may be called several times; each time it begins anew.

    path: the way into the collection, None for none (EOF). others: the ways that were considered and not taken.
    confined: whether an index filter or query settings had a word.
    metadata: what the documents are to carry, by keyword of `{$meta: …}`.
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
        confined: bool = False,
    ) -> None:
        self.collection = collection
        self.match = match
        self.confined = confined
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
        # Whether nothing is wanted of the documents but their number.
        self.counted = False
        if path is not None:
            path.metadata = metadata

    def cover(self, projection: Projection) -> None:
        """Has the plan leave documents alone if an index has all that a projection takes; it is applied later on."""
        path = self.path
        if path is not None and type(path) is IndexPath:
            covered = covered_path(path, projection, self.sort, self.metadata)
            if covered is not None:
                self.path = covered
                self.covered = True

    def show_id_plan(self, id_plan: int) -> None:
        """Has explain show a plan by `_id` under another name than EXPRESS (`express.find_id_plan`)."""
        path = self.path
        if isinstance(path, IndexPath) and path.id_plan:
            path.id_plan = id_plan

    def skip_repeated(self, key: str, collation: Collation | None, hinted: bool) -> None:
        """Has the plan leap over documents that have the same value at a path, if an index allows it."""
        path = self.path
        found: AccessPath | None = None
        if path is not None and type(path) is IndexPath:
            found = distinct_path(path, key, collation)
        elif isinstance(path, CollectionPath) and path.match is None and not hinted and not self.confined:
            found = whole_distinct_path(path.collection, key, collation)
        if found is not None:
            self.path = found

    def open(self) -> PlanStage:
        """A new run of the plan."""
        stage = self._opened(self.path)
        backup = self._backup_path()
        if backup is not None:
            backup.metadata = self.metadata
            stage = BackupStage(stage, self._opened(backup))
        if INDEX_KEY in self.metadata:
            stage.set_keyed()
        asked = self.metadata & ANNOTATED
        return AnnotateStage(stage, asked, self.sort) if asked else stage

    def _backup_path(self) -> AccessPath | None:
        """For a sort that may fail because it must not use the disk: a way that gives the order without one."""
        path = self.path
        if path is None or self.sort is None or path.sorted != 0 or self.space is not None:
            return None
        for other in self.others:
            if other.sorted != 0:
                return other
        return None

    def _opened(self, path: AccessPath | None, entries: int = 0) -> PlanStage:
        """entries: how many are read at first, 0 for what the page needs."""
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
                skip + limit if limit else 0,
                self.sort_memory_bytes,
                self.space,
            )
            return SkipStage(blocking, skip) if skip else blocking
        wanted = entries or self.wanted
        if limit and (wanted == 0 or wanted > limit):
            wanted = limit
        stage = path.open(wanted + skip if wanted else 0)
        if skip:
            stage = SkipStage(stage, skip)
        return LimitStage(stage, limit) if limit else stage

    def candidates(self) -> list[PlanStage]:
        """New runs of the plan and of those that were considered besides; none where there was nothing to choose."""
        if not self.others:
            return []
        return [self._opened(path, TRIAL_ENTRIES) for path in (self.path, *self.others)]

    @property
    def winning(self) -> PlanNode:
        """The plan as explain shows it."""
        return self.open().node()

    @property
    def rejected(self) -> list[PlanNode]:
        """The plans that were considered and not taken."""
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
    least: bytes = EMPTY_DOCUMENT,
    bound: bytes = EMPTY_DOCUMENT,
    collation: Collation | None = None,
) -> QueryPlan:
    """The plan for a query. None as collection: there is none of that name, and the result is empty.

    natural: 1 or -1 for a sort or hint {$natural: ±1}. limit: 0 for none. hint: an index's name or key pattern, or
    {$natural: ±1}. wanted: how many records the first page needs, 0 for as many as there are. allow_disk_use: None for
    the server's default. shape: the rest of the query, by which index filters and cached plans know it. remember:
    whether a plan that wins is kept in mind. metadata: keywords of what `{$meta: …}` reads of the documents, besides
    what the sort itself needs. least, bound: the keys of the hinted index between which to stay, the second exclusive;
    empty for none. collation: of these two; filter and sort have their own.
    BadValue (2) for a hint that names no usable index, FailedToParse (9) for a hint of another type.
    """
    if sort is not None and sort.is_empty():
        sort = None
    asked = set() if metadata is None else metadata
    if sort is not None:
        asked = asked.union(sort.metadata)
    path: AccessPath | None = None
    others: list[AccessPath] = []
    allowed: list[Value] | None = None
    special = None if isinstance(match, AlwaysFalse) else _bound_to_index(match)
    if special is not None:
        named = hint is not MISSING and not (isinstance(hint, bytes) and is_empty(hint))
        INDEX_ACCESS[special.index_kinds()[0]].check_query(collection, named, natural != 0)
    if collection is not None and not isinstance(match, AlwaysFalse):
        hinted: IndexEntry | None = None
        allowed = confinement(collection, shape, match)
        if hint is not MISSING and allowed is None:
            natural_hint = natural_direction(hint)
            if natural_hint != 0:
                natural = natural_hint
            else:
                hinted = _hinted_index(collection, hint)
        trivial = is_trivial(match)
        if not is_empty(least) or not is_empty(bound):
            path = path_between(collection, hinted, least, bound, match, sort, collation)
        elif special is not None:
            path = _answering_path(collection, hinted, special, match, sort)
        elif hinted is not None:
            path = _hinted_path(collection, hinted, match, sort)
        elif natural != 0 or (trivial and sort is None):
            path = CollectionPath(collection, None if trivial else match, natural >= 0)
        else:
            choice = Choice(op, collection, match, sort, limit or wanted, skip, allowed, shape, remember)
            path, others = choice.best_path()
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
                if not asked:
                    # There is one record at most.
                    sort = None
                    limit = 0
    sort_bytes = op.service.limits.sort_bytes
    space = spill_space(op, allow_disk_use)
    confined = allowed is not None
    return QueryPlan(collection, match, path, others, sort, skip, limit, wanted, sort_bytes, space, asked, confined)


def spill_space(op: OperationContext, allow_disk_use: bool | None) -> SpillSpace | None:
    """Where the operation may put what does not fit into memory; None if it may not. None: it does not say."""
    allowed = op.service.limits.allow_disk_use if allow_disk_use is None else allow_disk_use
    return op.service.spill_space if allowed else None


def _bound_to_index(match: MatchExpression) -> MatchExpression | None:
    """The part of a filter that only an index of some kind can answer, if there is one."""
    for part in conjuncts_of(match):
        if part.index_kinds():
            return part
    return None


def _answering_path(
    collection: Collection,
    hinted: IndexEntry | None,
    part: MatchExpression,
    match: MatchExpression,
    sort: SortPattern | None,
) -> AccessPath:
    """The way through an index that answers such a part: the hinted one, or the first that can."""
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
    raise INDEX_ACCESS[kinds[0]].lacking(collection)


def _answering_or(collection: Collection, part: OrExpression, match: MatchExpression) -> AccessPath:
    """The same for an `$or` of which a branch needs such an index; then each of the others needs one as well."""
    rest = parts_beside(conjuncts_of(match), part)
    paths: list[AccessPath] = []
    for branch in part.children:
        whole = AndExpression([*conjuncts_of(branch), *rest])
        bound = _bound_to_index(whole)
        if bound is not None:
            paths.append(_answering_path(collection, None, bound, whole, None))
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
    """1 or -1 for {$natural: ±1}, else 0."""
    if isinstance(hint, bytes):
        pairs = fields(hint)
        if len(pairs) == 1 and pairs[0][0] == "$natural":
            direction = pairs[0][1]
            for way in (1, -1):
                if is_number(direction) and compare_values(direction, way) == 0:
                    return way
            raise CommandError(ErrorCode.BadValue, "$natural hint must be 1 or -1")
    return 0


def _hinted_index(collection: Collection, hint: Value) -> IndexEntry | None:
    """The index that a hint names; None for the empty hint {}.

    IndexNotFound (27) for a key pattern that several indexes have: they differ in their collation, or in other options.
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
    collection: Collection, index: IndexEntry, match: MatchExpression, sort: SortPattern | None
) -> AccessPath:
    """A scan of that index, whole if it must be. A sparse or partial one then gives what it holds, as documented."""
    return access_of(index).hinted(collection, index, match, Filter(conjuncts_of(match)), sort)
