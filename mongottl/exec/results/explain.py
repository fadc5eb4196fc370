"""The reply of `explain`, in the format of mongod 8 with its classic engine. Verbosities:

    queryPlanner        the winning plan and the rejected plans
    executionStats      also executes the winning plan to its end, with the statistics of each stage
    allPlansExecution   also the statistics of each candidate's trial

Stages above a plan (a projection, a count, an update, a delete) belong to the commands, which pass them as wrappers.
"""

from collections.abc import Callable
from typing import Final

from mongottl.document.build import encode
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import saturated_sum
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.plan.bounds_text import single_interval_details
from mongottl.exec.plan.plan_ranker import TRIAL_ENTRIES, is_trivial
from mongottl.exec.plan.planner import QueryPlan
from mongottl.exec.results.counting import count_scans_of
from mongottl.exec.results.plan_summary import total
from mongottl.exec.stages.stage import PlanNode, PlanStage, StageCounters

QUERY_PLANNER: Final = "queryPlanner"
EXECUTION_STATS: Final = "executionStats"
ALL_PLANS_EXECUTION: Final = "allPlansExecution"
VERBOSITIES: Final = (QUERY_PLANNER, EXECUTION_STATS, ALL_PLANS_EXECUTION)

_MS_PER_S: Final = 1000
# Fields of an IXSCAN that a COUNT_SCAN does not have.
_NOT_IN_COUNT_SCAN: Final = ("direction", "indexBounds", "warning")


class Wrapper:
    """A stage above a plan.

    details: its plan fields. passes: whether it returns its input records (a projection). counters: the names of
    statistics that are the number of its input records. max_inputs: 0 for all. below_limit: whether it is below a
    LIMIT. returns: whether it returns the records that it writes, as that of findAndModify does. skip: how many of its
    input records a COUNT does not count. express_stage: its name above an EXPRESS scan; empty if it has no other name.
    within_express: whether an EXPRESS scan does its work, so that it is no stage of its own.
    """

    def __init__(
        self,
        stage: str,
        details: dict[str, Value],
        *,
        passes: bool = False,
        counters: tuple[str, ...] = (),
        max_inputs: int = 0,
        below_limit: bool = False,
        returns: bool = False,
        skip: int = 0,
        express_stage: str = "",
        within_express: bool = False,
    ) -> None:
        self.stage = stage
        self.express_stage = express_stage
        self.within_express = within_express
        self.details = details
        self.passes = passes
        self.counters = counters
        self.max_inputs = max_inputs
        self.below_limit = below_limit
        self.returns = returns
        self.skip = skip


def projection_wrapper(simple: bool, covered: bool, description: Value) -> Wrapper:
    """PROJECTION_SIMPLE for whole root fields (simple), PROJECTION_COVERED if covered too; else PROJECTION_DEFAULT.

    description: the projection, for `transformBy`.
    """
    stage = "PROJECTION_DEFAULT" if not simple else "PROJECTION_COVERED" if covered else "PROJECTION_SIMPLE"
    return Wrapper(stage, {"transformBy": description}, passes=True, below_limit=True, within_express=True)


def covered_wrapper(paths: list[str]) -> Wrapper:
    """The projection of the paths that are read from the keys of an index."""
    included: dict[str, Value] = {} if "_id" in paths else {"_id": 0}
    for path in sorted(paths):
        included[path] = 1
    return projection_wrapper(not any("." in path for path in paths), True, encode(included))


def return_key_wrapper() -> Wrapper:
    """RETURN_KEY: returns index keys instead of documents."""
    return Wrapper("RETURN_KEY", {}, passes=True, below_limit=True)


def count_wrapper(skip: int = 0, limit: int = 0) -> Wrapper:
    """COUNT. If documents are not read (`counting`), the stage below it is another one. limit: 0 for none."""
    most = saturated_sum(skip, limit) if limit else 0
    return Wrapper("COUNT", {}, counters=("nCounted",), max_inputs=most, skip=skip)


def update_wrapper(multi: bool, returns: bool = False) -> Wrapper:
    """UPDATE, or EXPRESS_UPDATE above an EXPRESS scan.

    `nWouldModify` also counts documents that the update would leave unchanged: explain does not apply it.
    """
    counters = ("nMatched", "nWouldModify")
    limit = 0 if multi else 1
    return Wrapper("UPDATE", {}, counters=counters, max_inputs=limit, returns=returns, express_stage="EXPRESS_UPDATE")


def delete_wrapper(multi: bool, returns: bool = False) -> Wrapper:
    """DELETE, or EXPRESS_DELETE above an EXPRESS scan."""
    counters = ("nWouldDelete",)
    limit = 0 if multi else 1
    return Wrapper("DELETE", {}, counters=counters, max_inputs=limit, returns=returns, express_stage="EXPRESS_DELETE")


def explain_plan(
    op: OperationContext,
    plan: QueryPlan,
    namespace: str,
    filter_description: Value,
    verbosity: str,
    command: Value,
    wrappers: tuple[Wrapper, ...] = (),
    drain: Callable[[OperationContext, PlanStage], None] | None = None,
) -> dict[str, Value]:
    """The reply of `explain`, without `serverInfo` and `ok`.

    filter_description: `MatchExpression.describe()`. command: the explained command, returned unchanged. wrappers: from
    the innermost to the outermost. drain: executes the plan to its end, if something else reads from it (a pipeline).
    BadValue (2) for an unknown verbosity. As in mongod, an error of the execution is part of the reply
    (`executionSuccess` is false), unless explain itself was interrupted.
    """
    if verbosity not in VERBOSITIES:
        raise CommandError(ErrorCode.BadValue, f"verbosity string must be one of {', '.join(VERBOSITIES)}")
    stage = plan.open()
    winning: dict[str, Value] = {"isCached": False}
    winning.update(_wrapped(_plan_root(plan, stage, wrappers), wrappers).planned())
    rejected: list[Value] = [_rejected(_wrapped(node, wrappers)) for node in plan.rejected]
    reply: dict[str, Value] = {
        "explainVersion": "1",
        "queryPlanner": {
            "namespace": namespace,
            "parsedQuery": filter_description,
            "indexFilterSet": plan.index_filter_set,
            "optimizationTimeMillis": 0,
            "maxIndexedOrSolutionsReached": False,
            "maxIndexedAndSolutionsReached": False,
            "maxScansToExplodeReached": False,
            "prunedSimilarIndexes": False,
            "winningPlan": winning,
            "rejectedPlans": rejected,
        },
    }
    if verbosity != QUERY_PLANNER:
        stage.set_timed()
        max_inputs = 0
        for wrapper in wrappers:
            max_inputs = max(max_inputs, wrapper.max_inputs)
        clock = op.service.clock
        start_s = clock.monotonic_s()
        try:
            failure: CommandError | None = None
            try:
                if drain is not None:
                    drain(op, stage)
                while drain is None and stage.next_batch(op) is not None:
                    if max_inputs and stage.returned >= max_inputs:
                        break
                    op.check_interrupt()
                    op.give_way()
            except CommandError as error:
                if is_interruption(error):  # it interrupts explain itself; other errors are part of the reply
                    raise
                failure = error
            elapsed_s = clock.monotonic_s() - start_s
            stats = _execution_stats(_wrapped(_plan_root(plan, stage, wrappers), wrappers), elapsed_s, failure)
            if verbosity == ALL_PLANS_EXECUTION:
                stats["allPlansExecution"] = [_trial_stats(op, candidate) for candidate in plan.candidates()]
            reply["executionStats"] = stats
        finally:
            stage.close()
    reply["command"] = command
    return reply


def _plan_root(plan: QueryPlan, stage: PlanStage, wrappers: tuple[Wrapper, ...]) -> PlanNode:
    """The plan's stages; for a count that does not execute them, RECORD_STORE_FAST_COUNT or COUNT_SCAN.

    explain executes the stages in any case. Below another stage, an IXSCAN counts entries, as mongod shows it.
    """
    node = stage.node()
    counts = plan.counted or (bool(wrappers) and wrappers[0].stage == "COUNT")
    if not counts or plan.collection is None:
        return node
    if plan.path is not None and is_trivial(plan.match) and node.stage == "COLLSCAN":
        counters = StageCounters()
        counters.returned = stage.returned
        return PlanNode("RECORD_STORE_FAST_COUNT", {}, [], counters)
    scans = count_scans_of(plan)
    if not scans:
        return node
    top = PlanNode("", {}, [node])
    above = top
    while above.inputs and above.inputs[0].stage in ("SKIP", "LIMIT", "OR"):
        above = above.inputs[0]
    alone = above is top
    for i in range(len(above.inputs)):
        fetch = above.inputs[i]
        if fetch.stage == "FETCH" and fetch.inputs[0].stage == "IXSCAN":
            scan = fetch.inputs[0]
            above.inputs[i] = _counted(scan, scans[0].bounds) if alone else scan
    return top.inputs[0]


def _counted(scan: PlanNode, bounds: IndexBounds) -> PlanNode:
    """A scan of an index whose entries are counted: a COUNT_SCAN over one range; over several, an IXSCAN alone."""
    interval = single_interval_details(bounds)
    if interval is None:
        return scan
    details = {name: value for name, value in scan.described().items() if name not in _NOT_IN_COUNT_SCAN}
    details.update(interval)
    scan.counters.extra = {"keysExamined": scan.counters.extra["keysExamined"]}
    return PlanNode("COUNT_SCAN", details, [], scan.counters)


def _rejected(node: PlanNode) -> Value:
    described: dict[str, Value] = {"isCached": False}
    described.update(node.planned())
    return described


def _wrapped(node: PlanNode, wrappers: tuple[Wrapper, ...]) -> PlanNode:
    for wrapper in wrappers:
        if wrapper.max_inputs and node.stage == "LIMIT":
            node = node.inputs[0]  # the wrapper limits its input itself
        if wrapper.below_limit and node.stage == "LIMIT":
            node = PlanNode(
                node.stage, node.described(), [_wrap_one(node.inputs[0], wrapper)], node.counters, node.filter
            )
        else:
            node = _wrap_one(node, wrapper)
    return node


def _wrap_one(node: PlanNode, wrapper: Wrapper) -> PlanNode:
    express = node.stage.startswith("EXPRESS_")
    if express and wrapper.within_express:
        return node
    inner = node.counters
    taken = min(inner.returned, wrapper.max_inputs) if wrapper.max_inputs else inner.returned
    counters = StageCounters()
    counters.examined = taken
    counters.returned = inner.returned if wrapper.passes else taken if wrapper.returns else 0
    counters.exhausted = inner.exhausted
    counters.elapsed_s = inner.elapsed_s
    for name in wrapper.counters:
        counters.extra[name] = max(0, taken - wrapper.skip)
    if wrapper.stage == "COUNT":
        counters.extra["nSkipped"] = min(taken, wrapper.skip)
    stage = wrapper.express_stage if express and wrapper.express_stage else wrapper.stage
    return PlanNode(stage, wrapper.details, [node], counters)


def _executed(node: PlanNode) -> dict[str, Value]:
    """A stage of `executionStages`. `works` counts records or keys examined, and 1 for reaching the end."""
    give_way()
    counters = node.counters
    works = max(counters.examined, counters.returned) + int(counters.exhausted)
    described: dict[str, Value] = {"stage": node.stage}
    described.update(node.described_filter())
    described["nReturned"] = counters.returned
    described["executionTimeMillisEstimate"] = int(counters.elapsed_s * _MS_PER_S)
    described["works"] = works
    described["advanced"] = counters.returned
    described["needTime"] = max(0, works - counters.returned - int(counters.exhausted))
    described["needYield"] = 0
    described["saveState"] = 0
    described["restoreState"] = 0
    described["isEOF"] = int(counters.exhausted)
    described.update(node.described())
    described.update(counters.extra)
    if len(node.inputs) == 1 and node.stage not in ("OR", "SORT_MERGE"):
        described["inputStage"] = _executed(node.inputs[0])
    elif node.inputs:
        inputs: list[Value] = list_for(len(node.inputs))
        for child in node.inputs:
            inputs.append(_executed(child))
        described["inputStages"] = inputs
    return described


def _execution_stats(root: PlanNode, elapsed_s: float, failure: CommandError | None = None) -> dict[str, Value]:
    stages: dict[str, Value] = {"isCached": False}
    stages.update(_executed(root))
    success: dict[str, Value] = {"executionSuccess": failure is None}
    if failure is not None:
        success["errorMessage"] = failure.message
        success["errorCode"] = int(failure.code)
    return {
        **success,
        "nReturned": root.counters.returned,
        "executionTimeMillis": int(elapsed_s * _MS_PER_S),
        "totalKeysExamined": total(root, "keysExamined"),
        "totalDocsExamined": total(root, "docsExamined"),
        "executionStages": stages,
    }


def _trial_stats(op: OperationContext, stage: PlanStage) -> Value:
    """Executes a candidate on as many entries as a trial reads; its statistics for `allPlansExecution`."""
    stage.set_timed()
    try:
        while stage.examined_below() < TRIAL_ENTRIES and stage.next_batch(op) is not None:
            pass
    except CommandError as error:
        if is_interruption(error):
            raise
    root = stage.node()
    stage.close()
    return {
        "nReturned": root.counters.returned,
        "executionTimeMillisEstimate": int(root.counters.elapsed_s * _MS_PER_S),
        "totalKeysExamined": total(root, "keysExamined"),
        "totalDocsExamined": total(root, "docsExamined"),
        "executionStages": _executed(root),
    }
