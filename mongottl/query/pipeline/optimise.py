"""Rewrites a pipeline into a cheaper one with the same result.

$match after other stages        moved before stages that do not change its paths, merged with others (`pushdown`)
$skip, $limit                    moved before stages that output one document for each input document
$sort, [$skip n,] $limit m       the sort keeps n + m documents
$limit a, $limit b               the smaller limit;  $skip a, $skip b: the sum;  $skip 0, $match {}: removed
$lookup, $unwind of its result   joined without an array; filters on the joined documents are applied to the collection

If a filter is moved before a stage that would have failed on a removed document, the error disappears, as in mongod.
"""

from mongottl.document.types import INT64_MAX
from mongottl.query.context import ParseContext
from mongottl.query.match.tree import always_true
from mongottl.query.pipeline.basic import LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.pushdown import finish_matches, push_down
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.pipeline.stage import StageSpec, requested_by


def optimise(specs: list[StageSpec], ctx: ParseContext) -> list[StageSpec]:
    """The rewritten pipeline, which requests the same metadata. Apart from that the specs are not changed."""
    requested = requested_by(specs)
    rewritten: list[StageSpec] = []
    for spec in specs:
        index = len(rewritten)
        if isinstance(spec, MatchSpec):
            if spec.requested:
                rewritten.append(spec)
            elif not always_true(spec.expression):
                push_down(rewritten, spec, ctx)
            continue
        if isinstance(spec, (SkipSpec, LimitSpec)):
            if isinstance(spec, SkipSpec) and spec.count == 0:
                continue
            while index > 0 and rewritten[index - 1].one_to_one:
                index -= 1
        merged = rewritten[index - 1].coalesced(spec) if index > 0 else None
        if merged is None:
            rewritten.insert(index, spec)
        else:
            rewritten[index - 1] = merged
    finish_matches(rewritten, ctx)
    _limit_sorts(rewritten)
    if requested and rewritten:
        rewritten[0].requested = frozenset(requested)
    return rewritten


def _limit_sorts(specs: list[StageSpec]) -> None:
    """Sets the limit of each $sort from the stages after it, and drops a $limit that becomes redundant."""
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
