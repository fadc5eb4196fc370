"""What a command costs, in dialects whose requests cost something (`dialect.cosmos.gateway`): set by the dialect's
gateway, before the command's function is called and after it has returned."""

from typing import Final

from mongottl.exec.running.gate import Gate
from mongottl.exec.state.meter import Meter


class OperationCost:
    """It is never changed: what becomes known later makes another one. FREE is that of other dialects."""

    def __init__(self, meter: Meter | None = None, gate: Gate | None = None, charge: int = 0) -> None:
        # Counts its request units, or None.
        self.meter: Final = meter
        # What a batch of writes asks before each statement, or None.
        self.gate: Final = gate
        # What it has cost at its end, in hundredths of units.
        self.charge: Final[int] = charge

    def with_gate(self, gate: Gate) -> "OperationCost":
        return OperationCost(self.meter, gate, self.charge)

    def with_charge(self, charge: int) -> "OperationCost":
        return OperationCost(self.meter, self.gate, charge)


FREE: Final = OperationCost()
