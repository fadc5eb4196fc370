"""What is noted of an operation while it runs, for those who describe it at its end: the profiler, the log, `top`,
`$queryStats`, the page of the server.

    dispatch, `OperationContext.uses`   when it began
    express reads, plans                what it has read
    updates, units of work              how many documents they have matched and changed
    batches of writes                   the same of each statement, and which have failed
    replies, at the end                 how long it took
"""

from typing import Final

from mongottl.exec.operation.statement_errors import NO_ERRORS, StatementErrors
from mongottl.exec.state.query_stats import RunningQuery
from mongottl.exec.unit.written import WrittenCounts

MICROS_PER_S: Final = 1_000_000
# Plans of one command, or of the statements of a batch that are executed together, that the profiler sums up.
MAX_NOTED_PLANS: Final = 8
_NO_PLANS: Final[list[object]] = []


class StatementRun:
    """Statements of a batch that are executed together: one, or inserts into one collection.

    first, end: the places of the first and after the last. began_micros: when they began, in microseconds of the
    operation's work; micros: how long they have taken. summary, keys, documents: as in `PlanSummary`; no keys and
    documents, -1, where these are not known.
    """

    def __init__(self, first: int, end: int, began_micros: int) -> None:
        self.first: Final[int] = first
        self.end: Final[int] = end
        self.began_micros: Final[int] = began_micros
        self.micros: int = 0
        self.summary = ""
        self.keys: int = -1
        self.documents: int = -1
        self.written = WrittenCounts()


_NO_RUNS: Final[list[StatementRun]] = []


class OperationProfile:
    """The notes on one operation. Times are monotonic (`clock.monotonic_s`)."""

    def __init__(self) -> None:
        # When the command began, 0.0 if nothing is profiled; and when it began to use its collection.
        self.began_s = 0.0
        self.used_since_s = 0.0
        # How long it has used its collection, at its end.
        self.used_micros: int = 0
        # Seconds for which it has waited to be woken, as a getMore does for new data.
        self.waited_s = 0.0
        # Reads by `_id` without a plan, and how many of them found a document.
        self.lookups_by_id: int = 0
        self.found_by_id: int = 0
        # The first plans that it has executed (`exec.stages` has their type), and the keys and documents that they had
        # examined before, None if that is not known.
        self.plans: list[object] = _NO_PLANS
        self.examined_before: tuple[int, int] | None = (0, 0)
        # The query that a getMore continues, if queries are recorded for `$queryStats`.
        self.running_query: RunningQuery | None = None
        # What it has written, None if nothing is profiled.
        self.written: WrittenCounts | None = None
        # The statements of a batch. While they are executed, what is noted here of reads and writes is theirs.
        self.statement_runs: list[StatementRun] = _NO_RUNS
        self.statement_errors: StatementErrors = NO_ERRORS

    def note_plan(self, plan: object) -> None:
        """Remembers a plan. Of very many, those of the statements of a batch, one too many is kept."""
        if not self.plans:
            self.plans = [plan]
        elif len(self.plans) <= MAX_NOTED_PLANS:
            self.plans.append(plan)

    def note_run(self, run: StatementRun) -> None:
        """Notes that these statements of a batch begin."""
        if not self.statement_runs:
            self.statement_runs = []
        self.statement_runs.append(run)

    def forget_reads(self) -> None:
        """Called at the end of statements of a batch, for the next ones."""
        self.plans = _NO_PLANS
        self.lookups_by_id = self.found_by_id = 0

    def elapsed_micros(self, now_s: float) -> int:
        """Microseconds since the command began, or since it began to use its collection if that is all that is
        known."""
        since_s = self.began_s or self.used_since_s
        return int((now_s - since_s) * MICROS_PER_S) if since_s else 0

    def working_micros(self, now_s: float) -> int:
        """`elapsed_micros` without what it has waited for new data."""
        return self.elapsed_micros(now_s) - int(self.waited_s * MICROS_PER_S)
