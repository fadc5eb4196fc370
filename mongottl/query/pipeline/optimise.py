"""Rewriting a pipeline into one that does less: same documents, same order.

$match behind other stages       before those that leave alone what it looks at (`pushdown`), one with other filters
$skip, $limit                    before stages that make one document of each
$sort, [$skip n,] $limit m       the sort keeps n + m documents
$limit a, $limit b               the smaller;  $skip a, $skip b: their sum;  $skip 0, $match {}: nothing
$lookup, $unwind of its result   documents are joined one by one; a filter on them goes to where they come from

Where a filter comes before a stage that would have failed for what it leaves out, the failure is gone, as in mongod.
"""

from mongottl.document.types import INT64_MAX
from mongottl.query.context import ParseContext
from mongottl.query.match.tree import always_true
from mongottl.query.pipeline.basic import LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.pushdown import finish_matches, sink
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.pipeline.stage import StageSpec, requested_by


def optimise(specs: list[StageSpec], ctx: ParseContext) -> list[StageSpec]:
    """The rewritten pipeline; it requests the same metadata as a whole. The specs themselves are not changed else."""
    requested = requested_by(specs)
    rewritten: list[StageSpec] = []
    for spec in specs:
        place = len(rewritten)
        if isinstance(spec, MatchSpec):
            if spec.requested:
                rewritten.append(spec)
            elif not always_true(spec.expression):
                sink(rewritten, spec, ctx)
            continue
        if isinstance(spec, (SkipSpec, LimitSpec)):
            if isinstance(spec, SkipSpec) and spec.count == 0:
                continue
            while place > 0 and rewritten[place - 1].one_to_one:
                place -= 1
        merged = rewritten[place - 1].coalesced(spec) if place > 0 else None
        if merged is None:
            rewritten.insert(place, spec)
        else:
            rewritten[place - 1] = merged
    finish_matches(rewritten, ctx)
    _limit_sorts(rewritten)
    if requested and rewritten:
        rewritten[0].requested = frozenset(requested)
    return rewritten


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
