"""How much of the throughput of collections and databases is left in this second, and who waits for the next.

The budget of a collection, or of a database whose collections share it, is counted by whole seconds of the server's
clock, and starts afresh with each: Microsoft's "Diagnose and troubleshoot request rate too large". How much of it one
request may overdraw is not documented; here a request is served as long as anything is left (assumed).
"""

from typing import Final

from mongottl.exec.running.signal import Signal
from mongottl.exec.state.request_units import HUNDREDTHS

_MS_PER_S: Final = 1000
_MAX_HOLDERS: Final = 10_000


class Budgets:
    """The budgets of the present second, and the requests that wait for one."""

    def __init__(self) -> None:
        # By holder (`throughput.Budget`), the second and the hundredths of units that were spent in it.
        self._spent: dict[str, tuple[int, int]] = {}
        # Of the requests that wait until there is something left of their budgets, in the order in which they began.
        self._waiting: list[Signal] = []

    def spent(self) -> dict[str, tuple[int, int]]:
        """What was taken out of budgets, for `restore_spent`: by holder, the second and the hundredths of units."""
        return dict(self._spent)

    def restore_spent(self, spent: dict[str, tuple[int, int]]) -> None:
        """Makes what was taken out of budgets what it was."""
        self._spent = dict(spent)

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

    def wait_ms(self, holder: str, units_per_s: int, now_ms: int, shares: int = 1) -> int:
        """Milliseconds until there is something left of a budget: 0 for now. shares: among how many servers it is
        divided, of which this is one; 0 for none that has anything of it (`StoreNodes.shares`)."""
        if shares:
            known = self._spent.get(holder)
            if known is None or known[0] != now_ms // _MS_PER_S or known[1] * shares < units_per_s * HUNDREDTHS:
                return 0
        return _MS_PER_S - now_ms % _MS_PER_S
