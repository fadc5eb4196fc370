"""The memory of running sorts, groups and joins: one budget for all operations of the server.

    MemoryBudget ─── OperationMemory (a command, then its cursor) ─┬─ MemoryShare (a sort)
                └─── OperationMemory                               └─ MemoryShare (a group)

Each sort, group or join has a limit of its own besides (`config.MemoryLimits`). Before it holds more, a stage asks its
share; where that is refused it moves data to a temporary file earlier than its own limit asks for, or fails. Stages ask
once for each batch of documents, and the budget is used in steps of STEP_BYTES, so that this costs nothing.

When a command ends, `settle` gives back whatever its operation holds: with or without an error, and whether or not all
stages were closed. What its cursor keeps then counts as memory of idle cursors (`exec.results.cursor_memory`); the next
getMore takes from this budget only what comes in addition.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.errors import CommandError, ErrorCode

# Memory of an operation that does not count, so that short operations do not even ask.
UNCOUNTED_BYTES: Final = 256 << 10
# What a stage gets in any case, so that an operation gets on where the budget is used up, as long as all stages of the
# operation hold no more than MODEST_BYTES.
LEAST_BYTES: Final = 1 << 20
MODEST_BYTES: Final = 4 << 20
STEP_BYTES: Final = 64 << 10
# A share gives memory back when it needs this much less, or nothing.
GIVEN_BACK_BYTES: Final = 1 << 20
# The operations of one user may use one part of this number of the budget, so that others find some.
PARTS: Final = 2


class MemoryBudget:
    """What all running operations together may hold, in bytes, and a user at most 1/PARTS of it."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes: Final = budget_bytes
        self.held_bytes = 0
        self.most_bytes = 0  # that were held at once
        # How often an operation was refused more.
        self.refused_total = 0
        self._by_owner: Final[dict[str, int]] = {}

    def take(self, owner: str, size: int) -> bool:
        """Takes `size` bytes for an operation of a user; False if there are not as many left."""
        held = self._by_owner.get(owner, 0) + size
        if self.held_bytes + size > self.budget_bytes or held > self.budget_bytes // PARTS:
            self.refused_total += 1
            return False
        self.add(owner, size)
        return True

    def add(self, owner: str, size: int) -> None:
        """Counts memory that is used even beyond the budget; with a negative size, gives some back."""
        self.held_bytes += size
        self.most_bytes = max(self.most_bytes, self.held_bytes)
        held = self._by_owner.get(owner, 0) + size
        if held:
            self._by_owner[owner] = held
        else:
            self._by_owner.pop(owner, None)


class OperationMemory:
    """What the stages of one operation hold. budget: None for no limit. owner: the user, or where clients do not log
    in, the client's machine."""

    def __init__(self, budget: MemoryBudget | None = None, owner: str = "") -> None:
        self._budget: Final = budget
        self._owner: Final = owner
        self._held: i64 = 0
        self._counted: i64 = 0  # in the budget
        # How many commands it has served; what shares have taken for an earlier one was given back.
        self.generation: i64 = 0

    def share(self) -> "MemoryShare":
        """A new share, for one stage."""
        return MemoryShare(self)

    def take(self, size: i64, forced: bool) -> bool:
        """Takes memory for a share; False if the budget has none left and it is not forced."""
        held: i64 = self._held + size
        budget = self._budget
        more: i64 = held - UNCOUNTED_BYTES - self._counted
        if budget is not None and more > 0:
            if forced:
                budget.add(self._owner, int(more))
            elif not budget.take(self._owner, int(more)):
                return False
            self._counted += more
        self._held = held
        return True

    def give_back(self, size: i64) -> None:
        self._held -= size
        less: i64 = self._counted
        if self._held > UNCOUNTED_BYTES:
            less -= self._held - UNCOUNTED_BYTES
        if less > 0 and self._budget is not None:
            self._budget.add(self._owner, -int(less))
            self._counted -= less

    def is_modest(self) -> bool:
        return self._held <= MODEST_BYTES

    def settle(self) -> None:
        """Gives everything back, because the command has ended."""
        self.generation += 1
        self.give_back(self._held)

    def exceeded(self, name: str, code: int = ErrorCode.ExceededMemoryLimit) -> CommandError:
        """The error of a stage that was refused memory and cannot do without. name: of the stage."""
        limit = 0 if self._budget is None else self._budget.budget_bytes
        return CommandError(
            code,
            f"{name} exceeded the memory that is left for all running operations together, {limit} bytes, of which one"
            f" user has at most 1/{PARTS}",
        )


class MemoryShare:
    """What one stage of an operation holds."""

    def __init__(self, memory: OperationMemory) -> None:
        self.memory: Final = memory
        self.granted: i64 = 0  # how much the stage may hold
        self._taken: i64 = 0  # of it, what counts for the operation's present command
        self._generation: i64 = memory.generation

    def hold(self, size: i64, forced: bool = False) -> bool:
        """Asks for `size` bytes in all, and gives back what is not needed any more. False if there is no memory left;
        the stage then may hold what it was granted before. forced: take it in any case."""
        memory = self.memory
        if self._generation != memory.generation:
            self._generation = memory.generation
            self._taken = 0
        granted = self.granted
        if size > granted:
            more: i64 = (size - granted + STEP_BYTES - 1) // STEP_BYTES * STEP_BYTES
            if not memory.take(more, forced):
                return False
            self.granted = granted + more
            self._taken += more
        elif granted and (size == 0 or granted - size >= GIVEN_BACK_BYTES):
            less: i64 = self._taken
            if less > granted - size:
                less = granted - size
            self.granted = size
            self._taken -= less
            memory.give_back(less)
        return True

    def need(self, size: i64, least: i64 = LEAST_BYTES) -> bool:
        """`hold` for a stage that cannot do with less than `least` bytes."""
        return self.hold(size, size <= least and self.memory.is_modest())

    def release(self) -> None:
        """Gives everything back. May be called more than once."""
        self.hold(0)
