"""The plan ranker: chooses among the candidate access paths of a query, by rules, then by cached plans, then by trial.

The rules are listed in `planner`.
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import saturated_sum
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.access_path import AccessPath, CollectionPath, IndexPath, OrPath
from mongottl.exec.plan.implication import implies
from mongottl.exec.plan.index_access import access_of
from mongottl.exec.plan.merged_path import MergedOrPath
from mongottl.exec.plan.plan_cache import REPLAN_RATIO, QueryShape, is_allowed, new_plan
from mongottl.exec.plan.predicates import Filter, conjuncts_of, parts_beside
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AlwaysTrue, AndExpression, OrExpression
from mongottl.query.sort import SortPattern

# Entries that each candidate reads in a trial; smaller collections need no trial.
TRIAL_ENTRIES: Final = 128
# Entries counted in a candidate's ranges if its trial did not reach their end.
COUNTED_ENTRIES: Final = 2048
# Nested levels of `$or` that are planned branch by branch; with each level the branches multiply.
MAX_OR_DEPTH: Final = 1
# `$or`s of one conjunction for which an OR over several indexes is tried.
MAX_ORS: Final = 16
# Estimated selectivity of an equality and of a range, for ranges too large to be counted.
EQUALITY_SHARE: Final = 0.05
RANGE_SHARE: Final = 0.3


def is_trivial(match: MatchExpression) -> bool:
    """Whether the filter is empty: {} or an equivalent."""
    return isinstance(match, AlwaysTrue) or (isinstance(match, AndExpression) and not match.children)


def is_usable(index: CollectionIndex) -> bool:
    """Whether plans may use the index: it is complete, has keys and is not hidden."""
    return index.ready and index.has_keys and not index.descriptor.hidden


class PlanRanker:
    """Chooses the access path for one query.

    page: records that the first batch of its cursor needs, 0 for all. allowed: the indexes that an index filter or
    query settings allow, None for all. remember: whether to store the winner in the plan cache.
    """

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
        self.first_batch = saturated_sum(page, skip) if page else 0
        self.allowed = allowed
        self.shape = shape
        # What a metered operation costs must not depend on those before it.
        self.remember = remember and op.cost.meter is None

    def best_path(self) -> tuple[AccessPath, list[AccessPath]]:
        """The best access path, and the other candidates."""
        filter = Filter(conjuncts_of(self.match))
        try:
            return self._best_path(filter)
        finally:
            filter.let_go()

    def _best_path(self, filter: Filter) -> tuple[AccessPath, list[AccessPath]]:
        collection = self.collection
        match = self.match
        candidates = candidates_of(collection, match, filter, self.sort, self.allowed)
        if not candidates:
            or_plan = self._or_path(filter)
            if or_plan is not None:
                return or_plan, []
            return CollectionPath(collection, None if is_trivial(match) else match, True), []
        if len(candidates) == 1:
            only = candidates[0]
            if not only.bounds.bounded and self.sort is not None:
                or_plan = self._or_path(filter)
                if or_plan is not None:
                    return self._cheapest([only, or_plan], [])
            return only, []
        candidates.sort(key=rank)
        first = candidates[0]
        if first.bounds.at_most_one or first.bounds.void:
            return first, list(candidates[1:])
        kept: list[AccessPath] = []
        dominated: list[AccessPath] = []
        for number in range(len(candidates)):
            (dominated if _is_dominated(candidates, number) else kept).append(candidates[number])
        return self._cheapest(kept, dominated)

    def _or_path(self, filter: Filter) -> AccessPath | None:
        """An OR over several indexes, merged in the order of the sort if possible; None if there is none."""
        if self.sort is not None:
            merged = _merged_or_path(self.collection, filter, self.sort, self.allowed)
            if merged is not None:
                return merged
        return or_path(self.collection, filter.conjuncts, 0, self.allowed, [])

    def _cheapest(self, kept: list[AccessPath], dominated: list[AccessPath]) -> tuple[AccessPath, list[AccessPath]]:
        """The cheapest candidate, by the plan cache or by trial, and the others. dominated: those that cannot win."""
        memory = self.collection.plan_memory
        key = self.shape.quick_key(self.match)
        known = memory.plan_of(key, self.collection.generation) if self.remember else None
        total = self.op.recovery_unit.records(self.collection).count()
        with_trial = total > TRIAL_ENTRIES and len(kept) > 1
        best: AccessPath | None = None
        if not with_trial:
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
        for path in kept if with_trial else kept[:1]:
            cost = self._cost(path, total)
            if best is None or not with_trial or cost < best_cost:
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
        """A candidate's cost as a sort key: estimated entries to examine, then minus the share of them that match."""
        trial = _Trial(path)
        trial.run(self.op)
        blocking = self.sort is not None and path.sorted == 0
        return trial.cost(self.op, total, blocking, self.first_batch), -trial.matched / max(trial.examined, 1)


def candidates_of(
    collection: Collection,
    match: MatchExpression,
    filter: Filter,
    sort: SortPattern | None,
    allowed: list[Value] | None,
) -> list[IndexPath]:
    """The scans of indexes that the filter bounds, or that provide the sort. A void one is returned alone."""
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


def rank(path: IndexPath) -> tuple[bool, int, int, int, bool, int]:
    """A sort key for rule 2; the sort is stable, so of equals the older index stays first."""
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


def _is_dominated(candidates: list[IndexPath], number: int) -> bool:
    """Whether another candidate covers the one with this number; of two that cover each other the first stays."""
    candidate = candidates[number]
    for i in range(len(candidates)):
        if i == number or not _covers(candidates[i], candidate):
            continue
        if i < number or not _covers(candidate, candidates[i]):
            return True
    return False


def _covers(better: IndexPath, other: IndexPath) -> bool:
    if better.sorted == 0 and other.sorted != 0:
        return False
    if other.bounds.bounded and not better.bounds.bounded:
        return False
    return better.bound_paths() >= other.bound_paths()


def or_path(
    collection: Collection,
    conjuncts: list[MatchExpression],
    depth: int,
    allowed: list[Value] | None,
    around: list[MatchExpression],
) -> AccessPath | None:
    """An OR over indexes for the first `$or` of a conjunction of which each branch has an index; None if there is none.

    depth: how many `$or`s contain this one. around: conjuncts outside them that hold as well.
    """
    if depth > MAX_OR_DEPTH:
        return None
    for conjunct in _first_ors(conjuncts):
        rest = [*parts_beside(conjuncts, conjunct), *around]
        paths: list[AccessPath] = list_for(len(conjunct.children))
        for branch in conjunct.children:
            own = conjuncts_of(branch)
            part = AndExpression([*own, *rest])
            candidates = candidates_of(collection, part, Filter(part.children), None, allowed)
            if not candidates:
                nested = or_path(collection, own, depth + 1, allowed, rest)
                if nested is None:
                    break
                paths.append(nested)
                continue
            best = min(candidates, key=rank)
            if not best.bounds.void:
                paths.append(best)
        else:
            return OrPath(collection, paths)
    return None


def _first_ors(conjuncts: list[MatchExpression]) -> list[OrExpression]:
    found: list[OrExpression] = []
    for conjunct in conjuncts:
        give_way()
        if isinstance(conjunct, OrExpression):
            found.append(conjunct)
            if len(found) == MAX_ORS:
                break
    return found


def _merged_or_path(
    collection: Collection, filter: Filter, sort: SortPattern, allowed: list[Value] | None
) -> AccessPath | None:
    """A SORT_MERGE for the first `$or` of which each branch has an index that provides the sort; None without."""
    for conjunct in _first_ors(filter.conjuncts):
        rest = parts_beside(filter.conjuncts, conjunct)
        paths: list[IndexPath] = list_for(len(conjunct.children))
        for branch in conjunct.children:
            give_way()
            part = AndExpression([*conjuncts_of(branch), *rest])
            candidates = candidates_of(collection, part, Filter(part.children), sort, allowed)
            ordered = [path for path in candidates if path.bounds.void or (path.sorted and path.bounds.bounded)]
            if not ordered:
                break
            best = min(ordered, key=rank)
            if not best.bounds.void:
                paths.append(best)
        else:
            return MergedOrPath(collection, paths, sort)
    return None


class _Trial:
    """A trial of a candidate: what it found in its first entries."""

    def __init__(self, path: AccessPath) -> None:
        self.path = path
        self.examined = 0
        self.matched = 0
        self.ended = False

    def run(self, op: OperationContext) -> None:
        if op.cost.meter is not None:
            op.cost.meter.paused = True
        try:
            self._run(op)
        finally:
            if op.cost.meter is not None:
                op.cost.meter.paused = False

    def _run(self, op: OperationContext) -> None:
        stage = self.path.open(TRIAL_ENTRIES, trial=True)
        while self.examined < TRIAL_ENTRIES:
            batch = stage.next_batch(op)
            if batch is None:
                self.ended = True
                break
            self.matched += len(batch)
            self.examined = stage.examined_below()
            give_way(TRIAL_ENTRIES)
        stage.close()

    def cost(self, op: OperationContext, total: int, blocking: bool, page: int) -> float:
        """Estimated entries to examine for the first batch. blocking: whether the result must be sorted."""
        if self.ended:
            return float(self.examined)
        if page and not blocking:
            # No match counts as half a match.
            rate = max(self.matched, 0.5) / max(self.examined, 1)
            return min(page / rate, float(total))
        if op.cost.meter is not None:
            op.cost.meter.paused = True
        try:
            counted = self.path.count_entries(op.recovery_unit, COUNTED_ENTRIES)
        finally:
            if op.cost.meter is not None:
                op.cost.meter.paused = False
        if counted < COUNTED_ENTRIES:
            return float(counted)
        return max(float(COUNTED_ENTRIES), total * self.path.share(EQUALITY_SHARE, RANGE_SHARE))
