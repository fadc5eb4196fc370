"""Rewriting a pipeline into one that does less: same documents, same order.

$sort, $match                    the $match first
$match a, $match b               one $match of both
$sort, [$skip n,] $limit m       the sort keeps n + m documents
$limit a, $limit b               the smaller;  $skip a, $skip b: their sum
"""

from mongottl.document.build import encode
from mongottl.document.types import INT64_MAX
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline.basic import LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.pipeline.stage import StageSpec, requested_by


def optimise(specs: list[StageSpec], ctx: ParseContext) -> list[StageSpec]:
    """The rewritten pipeline; it requests the same metadata as a whole. The specs themselves are not changed else."""
    requested = requested_by(specs)
    rewritten: list[StageSpec] = []
    for spec in specs:
        place = len(rewritten)
        if isinstance(spec, MatchSpec) and not spec.requested:
            while place > 0 and _sorts_all(rewritten[place - 1]):
                place -= 1
        merged = _merge(rewritten[place - 1], spec, ctx) if place > 0 else None
        if merged is None:
            rewritten.insert(place, spec)
        else:
            rewritten[place - 1] = merged
    _limit_sorts(rewritten)
    if requested and rewritten:
        rewritten[0].requested = frozenset(requested)
    return rewritten


def _sorts_all(spec: StageSpec) -> bool:
    """Whether it is a `$sort` without a limit: what is filtered out behind it need not be sorted."""
    return isinstance(spec, SortSpec) and spec.limit == 0


def _merge(first: StageSpec, second: StageSpec, ctx: ParseContext) -> StageSpec | None:
    if isinstance(first, MatchSpec) and isinstance(second, MatchSpec):
        both = encode({"$and": [first.filter, second.filter]})
        return MatchSpec(both, parse_match(both, ctx))
    if isinstance(first, LimitSpec) and isinstance(second, LimitSpec):
        return first if first.count <= second.count else second
    if isinstance(first, SkipSpec) and isinstance(second, SkipSpec) and first.count + second.count <= INT64_MAX:
        return SkipSpec(first.count + second.count)
    return None


def _limit_sorts(specs: list[StageSpec]) -> None:
    """Tells each $sort how many documents the stages behind it want, and drops a $limit that this makes needless."""
    i = 0
    while i < len(specs):
        sort = specs[i]
        if isinstance(sort, SortSpec):
            skipped = 0
            j = i + 1
            while j < len(specs):
                following = specs[j]
                if not isinstance(following, SkipSpec):
                    break
                skipped += following.count
                j += 1
            limit = specs[j] if j < len(specs) else None
            if isinstance(limit, LimitSpec) and skipped + limit.count <= INT64_MAX:
                specs[i] = sort.with_limit(skipped + limit.count)
                if j == i + 1:
                    del specs[j]
        i += 1
