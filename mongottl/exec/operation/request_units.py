"""What a server's requests have cost in request units, in the dialect `cosmos`, and how much of their budgets is left.

The budget of a collection, or of a database whose collections share it, is counted by whole seconds of the server's
clock, and starts afresh with each: Microsoft's "Diagnose and troubleshoot request rate too large". How much of it one
request may overdraw is not documented; here a request is served as long as anything is left (assumed).
"""

from typing import Final, NamedTuple

from mongottl.exec.operation.signal import Signal

HUNDREDTHS: Final = 100
_MS_PER_S: Final = 1000
# Pairs of command and namespace that are told apart; what comes later is summed up without a namespace.
_MAX_ROWS: Final = 10_000
_MAX_HOLDERS: Final = 10_000


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
    """The sums of all charges, the budgets of the present second, and the requests that wait for one."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sum] = {}
        # By holder (`throughput.Budget`), the second and the hundredths of units that were spent in it.
        self._spent: dict[str, tuple[int, int]] = {}
        # Of the requests that wait until there is something left of their budgets, in the order in which they began.
        self._waiting: list[Signal] = []

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

    def spent(self) -> dict[str, tuple[int, int]]:
        """What was taken out of budgets, for `restore_spent`: by holder, the second and the hundredths of units."""
        return dict(self._spent)

    def restore_spent(self, spent: dict[str, tuple[int, int]]) -> None:
        """Makes what was taken out of budgets what it was; the sums go on."""
        self._spent = dict(spent)

    def reset(self) -> None:
        """Starts the sums from zero; budgets are as before."""
        self._sums = {}

    def add_waiting(self, signal: Signal) -> None:
        """Adds a request that waits for its budget."""
        self._waiting.append(signal)

    def remove_waiting(self, signal: Signal) -> None:
        """Removes a request that has waited."""
        self._waiting.remove(signal)

    def wake_waiting(self) -> None:
        """Makes the requests that wait look again: the clock, a throughput or the account has changed."""
        for signal in self._waiting:
            signal.notify()

    def spend(self, holder: str, hundredths: int, now_ms: int) -> None:
        """Takes units out of the budget of the present second."""
        second = now_ms // _MS_PER_S
        known = self._spent.get(holder)
        if known is None and len(self._spent) >= _MAX_HOLDERS:
            self._spent = {name: spent for name, spent in self._spent.items() if spent[0] == second}
        before = known[1] if known is not None and known[0] == second else 0
        self._spent[holder] = (second, before + hundredths)

    def wait_ms(self, holder: str, units_per_s: int, now_ms: int) -> int:
        """Milliseconds until there is something left of a budget: 0 for now."""
        known = self._spent.get(holder)
        if known is None or known[0] != now_ms // _MS_PER_S or known[1] < units_per_s * HUNDREDTHS:
            return 0
        return _MS_PER_S - now_ms % _MS_PER_S


def _by_charge(item: tuple[tuple[str, str], _Sum]) -> tuple[int, tuple[str, str]]:
    return -item[1].hundredths, item[0]
