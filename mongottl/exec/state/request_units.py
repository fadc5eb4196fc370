"""What a server's requests have cost in request units, in a dialect that charges them."""

from typing import Final, NamedTuple

HUNDREDTHS: Final = 100
# Pairs of command and namespace with their own sum; pairs that come later are summed up without a namespace.
_MAX_ROWS: Final = 10_000


class UnitsRow(NamedTuple):
    """charge: in request units. throttled: how many of the requests, and of the statements of batches, were refused
    because the throughput was used up."""

    command: str
    namespace: str
    requests: int
    charge: float
    throttled: int


class UnitsReport(NamedTuple):
    """What the requests since the start, or since the last reset, have cost. rows: by command and namespace."""

    total: float
    requests: int
    throttled: int
    rows: list[UnitsRow]


class _Sum:
    def __init__(self) -> None:
        self.requests = 0
        self.hundredths = 0
        self.throttled = 0

    def row(self, command: str, namespace: str) -> UnitsRow:
        return UnitsRow(command, namespace, self.requests, self.hundredths / HUNDREDTHS, self.throttled)


class RequestUnits:
    """The sums of all charges."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sum] = {}

    def record(self, command: str, namespace: str, hundredths: int, throttled: int = 0) -> None:
        """Adds the charge of a request. throttled: see `UnitsRow`."""
        self._add(command, namespace, 1, hundredths, throttled)

    def add(self, report: UnitsReport) -> None:
        """Adds what another server has counted."""
        for row in report.rows:
            self._add(row.command, row.namespace, row.requests, round(row.charge * HUNDREDTHS), row.throttled)

    def _add(self, command: str, namespace: str, requests: int, hundredths: int, throttled: int) -> None:
        key = (command, namespace)
        total = self._sums.get(key)
        if total is None:
            if len(self._sums) >= _MAX_ROWS:
                key = (command, "")
            total = self._sums.setdefault(key, _Sum())
        total.requests += requests
        total.hundredths += hundredths
        total.throttled += throttled

    def report(self) -> UnitsReport:
        """The sums, the most expensive first."""
        ordered = sorted(self._sums.items(), key=_by_charge)
        rows = [found.row(command, namespace) for (command, namespace), found in ordered]
        hundredths = sum([found.hundredths for found in self._sums.values()])
        requests = sum([row.requests for row in rows])
        return UnitsReport(hundredths / HUNDREDTHS, requests, sum([row.throttled for row in rows]), rows)

    def reset(self) -> None:
        """Starts the sums from zero."""
        self._sums = {}


def _by_charge(item: tuple[tuple[str, str], _Sum]) -> tuple[int, tuple[str, str]]:
    return -item[1].hundredths, item[0]
