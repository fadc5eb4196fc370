"""What the profiler and the log of slow operations say about the plans of an operation.

An `$or` may be executed as a hundred thousand scans: others run while they are looked at, and none of them is described
as explain would.

Source: MongoDB's manual, "Database Profiler Output".
"""

from collections.abc import Iterator
from typing import NamedTuple

from mongottl.document.interrupt import give_way
from mongottl.document.render import render_document
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.stage import PlanNode, PlanStage, SortStage


class PlanSummary(NamedTuple):
    """summary: the scans, as `planSummary` names them: "COLLSCAN", "IXSCAN { a: 1 }", each once. keys, documents: how
    many they have examined so far."""

    summary: str
    keys: int
    documents: int


def summarise(op: OperationContext, plans: list[object]) -> PlanSummary:
    """The scans of the plans, and what they have examined, by one walk over their stages."""
    scans: dict[tuple[str, Value], None] = {}
    keys = documents = 0
    for node in _scans(op, plans):
        keys += total(node, "keysExamined")
        documents += total(node, "docsExamined")
        while node.inputs:
            node = node.inputs[0]
        scans[node.stage, node.key_pattern()] = None
    names = [_named(name, pattern) for name, pattern in scans]
    return PlanSummary(", ".join(names), keys, documents)


def _named(stage: str, pattern: Value) -> str:
    """A scan with its key pattern, which for an express stage is a text already."""
    if isinstance(pattern, bytes):
        return f"{stage} {render_document(pattern)}"
    return f"{stage} {pattern}" if isinstance(pattern, str) else stage


def examined_by(op: OperationContext, plans: list[object]) -> tuple[int, int]:
    """The index keys and the documents that the plans have examined so far."""
    keys = documents = 0
    for node in _scans(op, plans):
        keys += total(node, "keysExamined")
        documents += total(node, "docsExamined")
    return keys, documents


def has_sort_stage(op: OperationContext, plans: list[object]) -> bool:
    """Whether one of the plans sorts what it has read, instead of reading it in order."""
    return any(isinstance(stage, SortStage) for stage in _stages(op, plans))


def total(node: PlanNode, counter: str) -> int:
    """The sum of a counter of a plan's stages."""
    give_way()
    own = node.counters.extra.get(counter, 0)
    return (int(own) if isinstance(own, int) else 0) + sum(total(child, counter) for child in node.inputs)


def _scans(op: OperationContext, plans: list[object]) -> Iterator[PlanNode]:
    """The nodes of the stages that read the collection: an IXSCAN with the FETCH above it, a COLLSCAN."""
    for stage in _stages(op, plans):
        if not stage.executed_inputs():
            yield stage.node()


def _stages(op: OperationContext, plans: list[object]) -> Iterator[PlanStage]:
    """The stages that are executed, from the top down, the first input first."""
    waiting = [plan for plan in reversed(plans) if isinstance(plan, PlanStage)]
    while waiting:
        stage = waiting.pop()
        yield stage
        waiting.extend(reversed(stage.executed_inputs()))
        op.give_way()
