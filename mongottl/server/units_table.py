"""What requests have cost in request units as a table of text, for `mongottl report` and for the pytest plugin.

command   namespace     requests   request units   throttled
insert    shop.orders         12           66.76           2
find      shop.orders          3               3           0
total                         15           69.76           2
"""

from collections.abc import Iterable
from typing import Final

from mongottl.exec.state.request_units import UnitsReport

_HEADINGS: Final = ("command", "namespace", "requests", "request units", "throttled")
# The columns of text; the others have numbers.
_TEXTS: Final = 2
_BETWEEN: Final = "   "


def units_table(report: UnitsReport) -> list[str]:
    """The lines of the table, the most expensive first, with the sum at the end."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for row in report.rows:
        rows.append((row.command, row.namespace, *_numbers(row.requests, row.charge, row.throttled)))
    rows.append(("total", "", *_numbers(report.requests, report.total, report.throttled)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return [_BETWEEN.join(_padded(row, widths)).rstrip() for row in rows]


def _numbers(requests: int, charge: float, throttled: int) -> tuple[str, str, str]:
    return str(requests), f"{charge:.2f}".rstrip("0").rstrip("."), str(throttled)


def _padded(row: tuple[str, ...], widths: list[int]) -> Iterable[str]:
    for column, width in enumerate(widths):
        yield row[column].ljust(width) if column < _TEXTS else row[column].rjust(width)
