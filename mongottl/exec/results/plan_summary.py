"""What the profiler and the log of slow operations say about the plans of an operation.

Source: MongoDB's manual, "Database Profiler Output".
"""

from mongottl.document.render import render_document
from mongottl.exec.stages.stage import PlanNode, PlanStage


def summarise(plans: list[object]) -> str:
    """The scans of the plans, as `planSummary` names them: "COLLSCAN", "IXSCAN { a: 1 }", each once."""
    scans: list[str] = []
    for plan in plans:
        if isinstance(plan, PlanStage):
            _add_scans(plan.node(), scans)
    return ", ".join(dict.fromkeys(scans))


def _add_scans(node: PlanNode, scans: list[str]) -> None:
    for child in node.inputs:
        _add_scans(child, scans)
    if not node.inputs:
        pattern = node.key_pattern()
        scans.append(node.stage if pattern is None else f"{node.stage} {render_document(pattern)}")


def examined_by(plans: list[object]) -> tuple[int, int]:
    """The index keys and the documents that the plans have examined so far."""
    nodes = [plan.node() for plan in plans if isinstance(plan, PlanStage)]
    return sum(total(node, "keysExamined") for node in nodes), sum(total(node, "docsExamined") for node in nodes)


def has_sort_stage(plans: list[object]) -> bool:
    """Whether one of the plans sorts what it has read, instead of reading it in order."""
    return any(_sorts(plan.node()) for plan in plans if isinstance(plan, PlanStage))


def _sorts(node: PlanNode) -> bool:
    return node.stage == "SORT" or any(_sorts(child) for child in node.inputs)


def total(node: PlanNode, counter: str) -> int:
    """The sum of a counter of a plan's stages."""
    own = node.counters.extra.get(counter, 0)
    return (int(own) if isinstance(own, int) else 0) + sum(total(child, counter) for child in node.inputs)
