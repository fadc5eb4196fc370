"""What the requests of a pytest run have cost in request units."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mongottl.exec.state.request_units import RequestUnits, UnitsReport
    from mongottl.server.thread import RunningServer


class SpentUnits:
    """What the requests of a run have cost in request units. limit: beyond which the run fails, None for none."""

    def __init__(self, config: pytest.Config) -> None:
        asked = config.getoption("mongottl_max_request_units")
        limit = asked if asked is not None else config.getini("mongottl_max_request_units")
        try:
            self.limit = float(limit) if limit else None
        except ValueError:
            raise pytest.UsageError(f"mongottl_max_request_units: a number is needed, not {limit!r}") from None
        self.shown = bool(config.getoption("mongottl_request_units") or config.getini("mongottl_request_units"))
        self._sums: RequestUnits | None = None

    @property
    def is_asked_for(self) -> bool:
        return self.shown or self.limit is not None

    def add(self, server: "RunningServer") -> None:
        """Adds what a server has counted, once, when its work is done."""
        self._add(server.request_units())

    def add_rows(self, rows: list[list[Any]]) -> None:
        """Adds what another process has counted: `rows()` there."""
        from mongottl.exec.state.request_units import UnitsReport, UnitsRow

        self._add(UnitsReport(0.0, 0, 0, [UnitsRow(*row) for row in rows]))

    def rows(self) -> list[list[Any]]:
        """The sums in a form that can be sent to another process."""
        report = self.report()
        return [] if report is None else [list(row) for row in report.rows]

    def _add(self, report: "UnitsReport") -> None:
        from mongottl.exec.state.request_units import RequestUnits

        if self._sums is None:
            self._sums = RequestUnits()
        self._sums.add(report)

    def report(self) -> "UnitsReport | None":
        """The sums; None if there are none."""
        return None if self._sums is None else self._sums.report()

    def excess(self) -> float:
        """By how much the limit is exceeded, else 0."""
        report = self.report()
        return 0.0 if report is None or self.limit is None else max(0.0, report.total - self.limit)
