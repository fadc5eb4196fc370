"""Running pipelines: which leading stages the planner answers, and what the others read from."""

import random

from mongottl.catalog.collection import Collection
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Value
from mongottl.exec.context import OperationContext
from mongottl.exec.planner import QueryPlan, plan_query
from mongottl.exec.reading import PipelinePages, PlanDocuments
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.pipeline import DocumentSource, RunContext, StageSpec, open_pipeline
from mongottl.query.pipeline.basic import LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.sort import SortPattern


class OperationRun(RunContext):
    """A pipeline's view of the operation that runs it."""

    def __init__(self, op: OperationContext, allow_disk_use: bool) -> None:
        super().__init__(op.now_ms, allow_disk_use)
        self._op = op

    def open_collection(self, database: str, collection: str, match: bytes | None) -> DocumentSource:
        context = ParseContext(self._op.now_ms, None, f"{database}.{collection}")
        tree = parse_match(EMPTY_DOCUMENT if match is None else match, context)
        plan = plan_query(self._op, self._op.catalog.lookup(database, collection), tree)
        return PlanDocuments(plan.open(), self._op)

    def random(self) -> float:
        return random.random()


class AggregationPlan:
    """A pipeline ready to run: a plan for what the planner answers, and the stages left over."""

    def __init__(self, plan: QueryPlan, match: MatchExpression, rest: list[StageSpec]) -> None:
        self.plan = plan
        self.match = match
        self.rest = rest

    def open(self, op: OperationContext, allow_disk_use: bool) -> PipelinePages:
        head = PlanDocuments(self.plan.open(), op)
        return PipelinePages(open_pipeline(self.rest, head, OperationRun(op, allow_disk_use)), head)


def plan_aggregation(
    op: OperationContext, collection: Collection | None, specs: list[StageSpec], hint: Value = MISSING
) -> AggregationPlan:
    """Gives the leading `$match`, `$sort`, `$skip` and `$limit` to the planner."""
    match: MatchExpression = parse_match(EMPTY_DOCUMENT, ParseContext())
    sort: SortPattern | None = None
    skip = limit = 0
    taken = 0
    if taken < len(specs) and isinstance(spec := specs[taken], MatchSpec):
        match = spec.expression
        taken += 1
    if taken < len(specs) and isinstance(spec := specs[taken], SortSpec):
        sort = spec.pattern
        limit = spec.limit
        taken += 1
    if limit == 0:
        if taken < len(specs) and isinstance(spec := specs[taken], SkipSpec):
            skip = spec.count
            taken += 1
        if taken < len(specs) and isinstance(spec := specs[taken], LimitSpec):
            limit = spec.count
            taken += 1
    plan = plan_query(op, collection, match, sort=sort, skip=skip, limit=limit, hint=hint)
    return AggregationPlan(plan, match, specs[taken:])
