"""From a filter and a sort to a plan: which way into the collection, and what comes on top.

Ways into a collection, and when they come into question:

    EOF                 there is no collection, or the filter cannot be true
    an index            its leading path has a predicate (`bounds`), or its order is the sort's
    several, by OR      no single index serves, but each branch of an $or has one
    the collection      nothing else does, or a hint or sort by $natural demands it

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

from typing import Final

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.types import MISSING, Value, is_number
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.access import AccessPath, CollectionPath, IndexPath, OrPath
from mongottl.exec.annotate import ANNOTATED, AnnotateStage
from mongottl.exec.between import path_between
from mongottl.exec.bounds import Filter, conjuncts_of
from mongottl.exec.context import OperationContext
from mongottl.exec.covered import covered_path
from mongottl.exec.distinct_scan import distinct_path, whole_distinct_path
from mongottl.exec.implication import implies
from mongottl.exec.index_access import INDEX_ACCESS, access_of
from mongottl.exec.merging import MergedOrPath
from mongottl.exec.plan_cache import NO_SHAPE, REPLAN_RATIO, QueryShape, confinement, is_allowed, new_plan
from mongottl.exec.stages import EofStage, LimitStage, PlanNode, PlanStage, SkipStage, SortStage
from mongottl.query.match import MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AlwaysFalse, AlwaysTrue, AndExpression, OrExpression
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.projection import Projection
from mongottl.query.sort import SortPattern
from mongottl.query.spill import SpillSpace

# Entries that each candidate may read in a trial; collections that are not larger are not worth one.
TRIAL_ENTRIES: Final = 128
# Entries counted in a candidate's ranges where the trial did not come to their end.
COUNTED_ENTRIES: Final = 2048
# Levels of `$or` within `$or` that are taken apart; with each the branches multiply.
MAX_OR_DEPTH: Final = 1
# Guesses for ranges too large to be counted: the part of a collection that an equality, and a range, leaves.
EQUALITY_SHARE: Final = 0.05
RANGE_SHARE: Final = 0.3


def is_trivial(match: MatchExpression) -> bool:
    """Whether the filter is true for every document: {}."""
    return isinstance(match, AlwaysTrue) or (isinstance(match, AndExpression) and not match.children)


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
        if INDEX_KEY in self.metadata:
            stage.set_keyed()
        asked = self.metadata & ANNOTATED
        return AnnotateStage(stage, asked, self.sort) if asked else stage

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
            choice = _Choice(op, collection, match, sort, limit or wanted, skip, allowed, shape, remember)
            path, others = choice.best_path()
        if isinstance(path, IndexPath):
            if path.bounds.void:
                path = None
            elif path.bounds.index.descriptor.is_id and hint is MISSING and skip == 0 and is_express(match):
                path.express = True
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
    rest = [other for other in conjuncts_of(match) if other is not part]
    paths: list[AccessPath] = []
    for branch in part.children:
        whole = AndExpression([*conjuncts_of(branch), *rest])
        bound = _bound_to_index(whole)
        if bound is not None:
            paths.append(_answering_path(collection, None, bound, whole, None))
            continue
        filter = Filter(whole.children)
        candidates = _candidates(collection, whole, filter, None, None)
        if candidates:
            best = min(candidates, key=_rank)
            if not best.bounds.void:
                paths.append(best)
            continue
        nested = _or_path(collection, filter, 0, None)
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


def is_usable(index: IndexEntry) -> bool:
    """Whether plans may use the index at all."""
    return index.ready and index.data is not None and not index.descriptor.hidden


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


class _Choice:
    """The choice among the ways into a collection for one query. page: records that the first page needs, 0 for all."""

    def __init__(
        self,
        op: OperationContext,
        collection: Collection,
        match: MatchExpression,
        sort: SortPattern | None,
        page: int,
        skip: int,
        allowed: list[Value] | None,
        shape: QueryShape,
        remember: bool,
    ) -> None:
        self.op = op
        self.collection = collection
        self.match = match
        self.sort = sort
        self.page = page + skip if page else 0
        self.allowed = allowed
        self.shape = shape
        self.remember = remember

    def best_path(self) -> tuple[AccessPath, list[AccessPath]]:
        """The best way, and the others that came into question."""
        collection = self.collection
        match = self.match
        filter = Filter(conjuncts_of(match))
        candidates = _candidates(collection, match, filter, self.sort, self.allowed)
        if not candidates:
            by_or = self._by_or(filter)
            if by_or is not None:
                return by_or, []
            return CollectionPath(collection, None if is_trivial(match) else match, True), []
        if len(candidates) == 1:
            only = candidates[0]
            if not only.bounds.bounded and self.sort is not None:
                by_or = self._by_or(filter)
                if by_or is not None:
                    return self._contest([only, by_or], [])
            return only, []
        candidates.sort(key=_rank)
        first = candidates[0]
        if first.bounds.at_most_one or first.bounds.void:
            return first, list(candidates[1:])
        kept: list[AccessPath] = []
        dominated: list[AccessPath] = []
        for place in range(len(candidates)):
            (dominated if _is_dominated(candidates, place) else kept).append(candidates[place])
        return self._contest(kept, dominated)

    def _by_or(self, filter: Filter) -> AccessPath | None:
        """A way over several indexes, in the order of the sort if that is possible."""
        if self.sort is not None:
            merged = _merged_or_path(self.collection, filter, self.sort, self.allowed)
            if merged is not None:
                return merged
        return _or_path(self.collection, filter, 0, self.allowed)

    def _contest(self, kept: list[AccessPath], dominated: list[AccessPath]) -> tuple[AccessPath, list[AccessPath]]:
        """The best of several candidates, by memory or trial, and the others. dominated: those that cannot win."""
        memory = self.collection.plan_memory
        key = self.shape.quick_key(self.match)
        known = memory.plan_of(key, self.collection.generation) if self.remember else None
        total = self.collection.store.count()
        tried = total > TRIAL_ENTRIES and len(kept) > 1
        best: AccessPath | None = None
        if not tried:
            best = kept[0]
            if known is not None and known.index == best.label:
                known.active = True
                return best, [*kept[1:], *dominated]
            if not self.remember:
                return best, [*kept[1:], *dominated]
        elif known is not None and known.active:
            for path in kept:
                if path.label == known.index and self._cost(path, total)[0] <= REPLAN_RATIO * max(known.works, 1):
                    return path, [other for other in kept if other is not path] + dominated
        best_cost = (0.0, 0.0)
        for path in kept if tried else kept[:1]:
            cost = self._cost(path, total)
            if best is None or not tried or cost < best_cost:
                best = path
                best_cost = cost
        assert best is not None
        others = [path for path in kept if path is not best] + dominated
        if self.remember:
            works = int(best_cost[0])
            plan = new_plan(self.shape, self.match, self.collection, best, works, self.op.now_ms, len(others))
            plan.filtered = self.allowed is not None
            plan.active = known is not None and known.index == best.label and works <= known.works
            memory.remember(key, plan)
        return best, others

    def _cost(self, path: AccessPath, total: int) -> tuple[float, float]:
        """What a way costs; of two that cost the same, the one whose entries match more often has fewer of them."""
        trial = _Trial(path)
        trial.run(self.op)
        blocking = self.sort is not None and path.sorted == 0
        return trial.cost(total, blocking, self.page), -trial.matched / max(trial.examined, 1)


def _candidates(
    collection: Collection,
    match: MatchExpression,
    filter: Filter,
    sort: SortPattern | None,
    allowed: list[Value] | None,
) -> list[IndexPath]:
    """The indexes that the filter bounds, or that give the sort's order."""
    found: list[IndexPath] = []
    for index in collection.indexes:
        if not is_usable(index) or not is_allowed(index, allowed):
            continue
        access = access_of(index)
        if not access.may_serve(index, filter, sort):
            continue
        partial = index.descriptor.partial_match
        if partial is not None and not implies(match, partial):
            continue
        for path in access.candidates(collection, index, match, filter, sort):
            if path.bounds.void:
                return [path]
            found.append(path)
    return found


def _rank(path: IndexPath) -> tuple[bool, int, int, int, bool, int]:
    """The order of rule 2; Python's sort keeps the older first."""
    bounds = path.bounds
    unnamed = bounds.unnamed
    return (
        not (bounds.at_most_one or bounds.void),
        min(0, unnamed - bounds.single_points),
        min(0, unnamed - bounds.points),
        unnamed - len(bounds.intervals),
        path.sorted == 0,
        len(bounds.components),
    )


def _is_dominated(candidates: list[IndexPath], place: int) -> bool:
    """Whether another candidate can do all that this one can; of equals the first stays."""
    candidate = candidates[place]
    for i in range(len(candidates)):
        if i == place or not _covers(candidates[i], candidate):
            continue
        if i < place or not _covers(candidate, candidates[i]):
            return True
    return False


def _covers(better: IndexPath, other: IndexPath) -> bool:
    if better.sorted == 0 and other.sorted != 0:
        return False
    if other.bounds.bounded and not better.bounds.bounded:
        return False
    return better.bound_paths() >= other.bound_paths()


def _or_path(collection: Collection, filter: Filter, depth: int, allowed: list[Value] | None) -> AccessPath | None:
    """An OR over indexes for the first `$or` whose branches all have one. depth: of `$or` within `$or`."""
    if depth > MAX_OR_DEPTH:
        return None
    for conjunct in filter.conjuncts:
        if not isinstance(conjunct, OrExpression):
            continue
        rest = [other for other in filter.conjuncts if other is not conjunct]
        paths: list[AccessPath] = []
        for branch in conjunct.children:
            part = AndExpression([*conjuncts_of(branch), *rest])
            branch_filter = Filter(part.children)
            candidates = _candidates(collection, part, branch_filter, None, allowed)
            if not candidates:
                nested = _or_path(collection, branch_filter, depth + 1, allowed)
                if nested is None:
                    break
                paths.append(nested)
                continue
            best = min(candidates, key=_rank)
            if not best.bounds.void:
                paths.append(best)
        else:
            return OrPath(collection, paths)
    return None


def _merged_or_path(
    collection: Collection, filter: Filter, sort: SortPattern, allowed: list[Value] | None
) -> AccessPath | None:
    """The same where each branch has an index that also gives the order of a sort."""
    for conjunct in filter.conjuncts:
        if not isinstance(conjunct, OrExpression):
            continue
        rest = [other for other in filter.conjuncts if other is not conjunct]
        paths: list[IndexPath] = []
        for branch in conjunct.children:
            part = AndExpression([*conjuncts_of(branch), *rest])
            candidates = _candidates(collection, part, Filter(part.children), sort, allowed)
            ordered = [path for path in candidates if path.bounds.void or (path.sorted and path.bounds.bounded)]
            if not ordered:
                break
            best = min(ordered, key=_rank)
            if not best.bounds.void:
                paths.append(best)
        else:
            return MergedOrPath(collection, paths, sort)
    return None


class _Trial:
    """What a candidate did on its first entries."""

    def __init__(self, path: AccessPath) -> None:
        self.path = path
        self.examined = 0
        self.matched = 0
        self.ended = False

    def run(self, op: OperationContext) -> None:
        stage = self.path.open(TRIAL_ENTRIES, trial=True)
        while self.examined < TRIAL_ENTRIES:
            batch = stage.next_batch(op)
            if batch is None:
                self.ended = True
                break
            self.matched += len(batch)
            self.examined = stage.examined_below()
        stage.close()

    def cost(self, total: int, blocking: bool, page: int) -> float:
        """Entries to be examined for the first page, as far as they can be told."""
        if self.ended:
            return float(self.examined)
        if page and not blocking:
            # Half a match stands for none.
            rate = max(self.matched, 0.5) / max(self.examined, 1)
            return min(page / rate, float(total))
        counted = self.path.count_entries(COUNTED_ENTRIES)
        if counted < COUNTED_ENTRIES:
            return float(counted)
        return max(float(COUNTED_ENTRIES), total * self.path.share(EQUALITY_SHARE, RANGE_SHARE))


def is_express(match: MatchExpression) -> bool:
    """Whether the filter is just {_id: value}, which mongod answers by its fast path."""
    return (
        isinstance(match, ComparisonExpression)
        and match.operator == EQ
        and match.path.dotted == "_id"
        and match.value is not None
    )
