"""What the profiler notes of each statement of a batch: how long it took, what it has read and written.

begin_statements(op, 0, 1) ─► … ─► begin_statements(op, 1, 2) ─► … ─► end_statements(op)
                                   ends the ones before
"""

from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.profile import MAX_NOTED_PLANS, StatementRun
from mongottl.exec.results.plan_summary import summarise


def begin_statements(op: OperationContext, first: int, end: int) -> None:
    """Notes for the profiler that these statements of a batch begin, which are executed together. Others may run."""
    if op.profile.written is not None:
        end_statements(op)
        op.profile.note_run(StatementRun(first, end, op.working_micros()))


def end_statements(op: OperationContext) -> None:
    """Notes what the statements that were begun last have read and written, if there are any. Others may run."""
    profile = op.profile
    if not profile.statement_runs or profile.written is None:
        return
    run = profile.statement_runs[-1]
    run.micros = op.working_micros() - run.began_micros
    run.written = profile.written.taken()
    run.summary, run.keys, run.documents = summarise_reads(op, "EXPRESS_IXSCAN { _id: 1 }")
    profile.forget_reads()


def summarise_reads(op: OperationContext, by_id: str) -> tuple[str, int, int]:
    """The plans of the operation, or of the statements that it executes, and the keys and documents that they have
    examined: -1 if these are not known; without those of `$lookup` and other joins. by_id: the name of reads by `_id`
    without a plan."""
    profile = op.profile
    keys = documents = 0
    if profile.plans:
        summary, keys, documents = summarise(op, profile.plans)
    elif profile.lookups_by_id:
        summary = by_id
    else:
        return "", -1, -1
    before = profile.examined_before
    if before is None or len(profile.plans) > MAX_NOTED_PLANS:
        return summary, -1, -1
    return summary, keys - before[0] + profile.found_by_id, documents - before[1] + profile.found_by_id
