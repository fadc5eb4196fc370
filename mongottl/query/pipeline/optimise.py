"""Rewriting a pipeline into one that does less: same documents, same order.

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
from mongottl.query.pipeline.stage import StageSpec


def optimise(specs: list[StageSpec], ctx: ParseContext) -> list[StageSpec]:
    """The rewritten pipeline. The specs themselves are not changed."""
    rewritten: list[StageSpec] = []
    for spec in specs:
        previous = rewritten[-1] if rewritten else None
        merged = None if previous is None else _merge(previous, spec, ctx)
        if merged is None:
            rewritten.append(spec)
        else:
            rewritten[-1] = merged
    _limit_sorts(rewritten)
    return rewritten


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
