"""What is noted of an operation while it runs, for those who describe it at its end: the profiler, the log, `top`,
`$queryStats`, the page of the server.

    dispatch, `OperationContext.uses`   when it began
    express reads, plans                what it has read
    batches of writes                   when statements began, which have failed
    replies, at the end                 how long it took
"""

from typing import Final

from mongottl.document.types import Value
from mongottl.exec.state.query_stats import RunningQuery

MICROS_PER_S: Final = 1_000_000
# Plans of one command that the profiler sums up.
MAX_NOTED_PLANS: Final = 8
_NO_PLANS: Final[list[object]] = []
_NO_ERRORS: Final[list[Value]] = []
_NO_ADVICE: Final[dict[int, str]] = {}
_NO_RUNS: Final[list[tuple[int, int, int]]] = []


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
        # The statements of a batch, as the places of the first and after the last of those that are executed together,
        # and when they began, in microseconds of the operation's work.
        self.statement_runs: list[tuple[int, int, int]] = _NO_RUNS
        # The failed statements of a batch of writes, as `writeErrors` has them; and the `advice` of those that have
        # one, by their place in that list.
        self.statement_errors: list[Value] = _NO_ERRORS
        self.statement_advice: dict[int, str] = _NO_ADVICE

    def note_plan(self, plan: object) -> None:
        """Remembers a plan. Of very many, those of the statements of a batch, one too many is kept."""
        if not self.plans:
            self.plans = [plan]
        elif len(self.plans) <= MAX_NOTED_PLANS:
            self.plans.append(plan)

    def note_statements(self, first: int, end: int, now_s: float) -> None:
        """Notes that these statements of a batch begin."""
        if not self.statement_runs:
            self.statement_runs = []
        self.statement_runs.append((first, end, self.working_micros(now_s)))

    def elapsed_micros(self, now_s: float) -> int:
        """Microseconds since the command began, or since it began to use its collection if that is all that is
        known."""
        since_s = self.began_s or self.used_since_s
        return int((now_s - since_s) * MICROS_PER_S) if since_s else 0

    def working_micros(self, now_s: float) -> int:
        """`elapsed_micros` without what it has waited for new data."""
        return self.elapsed_micros(now_s) - int(self.waited_s * MICROS_PER_S)
