"""Who may begin a unit of work, or hold others off: those who wait are woken one after the other."""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mongottl.storage.interface import EngineUnavailable
from mongottl.storage.waiting import Turn, Waiter

# How long a wait lasts at most before it is begun anew, in seconds.
_TURN_S: Final = 60.0


def _never(joins: bool) -> bool:
    return False


def _not_own() -> bool:
    return False


@final
class Turns:
    """waiter: waits. present: who runs now, None outside of operations.

    is_busy: whether nobody can begin a unit now; with True for one who may join the units that are to be committed.
    is_own: whether the unit that is open is that of who runs now, who then waits for nobody.
    """

    def __init__(self, waiter: Waiter, present: Callable[[], object]) -> None:
        self._waiter: Final = waiter
        self.present: Final = present
        self.is_busy: Callable[[bool], bool] = _never
        self.is_own: Callable[[], bool] = _not_own
        # Who may begin a unit, and has not yet done so.
        self._granted: object = None
        # Those that wait to begin, and whether each may join the units that are to be committed.
        self._waiting: deque[tuple[Turn, bool]] = deque()
        # How many were woken and have not gone on yet.
        self._woken = 0
        # Who holds others off, how often, and whether until the end of its step.
        self._holder: object = None
        self._holds = 0
        self._holds_still = False
        # The turns of those that wait for something else than to begin.
        self._own: dict[object, Turn] = {}

    def monotonic_s(self) -> float:
        return self._waiter.monotonic_s()

    @property
    def has_joining(self) -> bool:
        """Whether the next one who begins joins the units that are to be committed."""
        return self._woken > 0 or (bool(self._waiting) and self._waiting[0][1])

    @property
    def is_held(self) -> bool:
        return self._holder is not None

    def _is_taken(self, joins: bool) -> bool:
        if self._holder is not None and self._holder is not self.present():
            return True
        return self.is_busy(joins)

    def wait(self, joins: bool) -> None:
        """Waits until the caller may begin, in the order of asking. EngineUnavailable outside of operations, where
        nobody else could end."""
        is_first = True
        present = self.present()
        if present is None:
            # Who joins waits for others, too.
            if self._is_taken(False):
                raise EngineUnavailable("another unit of work is open, and cannot be waited for outside of operations")
            return
        others_first = self._woken > 0 and self._holder is not present and not self.is_own()
        while others_first or self._is_taken(joins):
            others_first = False
            turn = self._waiter.new_turn()
            entry = (turn, joins)
            if is_first:
                self._waiting.append(entry)
            else:  # somebody was faster
                self._waiting.appendleft(entry)
            is_first = False
            try:
                while not self._waiter.wait_turn(turn, self._waiter.monotonic_s() + _TURN_S):
                    pass
            except BaseException:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                else:
                    self._woken -= 1
                    self.wake_next()
                raise
            self._woken -= 1
        self._granted = present
        self._waiter.at_end_of_step(self._forget)
        if not is_first and self._waiting:
            # Who was woken may end without having begun anything.
            self._waiter.at_end_of_step(self._wake_if_free)

    def _forget(self) -> None:
        """A turn is lost with the step in which it was got."""
        if self._granted is self.present():
            self._granted = None

    def use(self) -> None:
        """Called when a unit is begun, or others are committed: nobody may begin one by a turn that it had before."""
        self._granted = None

    def _wake_if_free(self) -> None:
        if not self._is_taken(True):
            self.wake_next()

    def wake_next(self) -> None:
        """Wakes the one who has waited longest, unless one that was woken has not gone on yet: of several it would be
        chance who goes first."""
        if self._waiting and not self._woken:
            self._woken += 1
            turn, _ = self._waiting.popleft()
            turn.notify()

    def wait_for(self, who: object, condition: Callable[[], bool], until_s: float = 0.0) -> None:
        """Waits until `notify` was called for `who` and the condition is true. EngineUnavailable if the operation was
        given up; nothing else ends it before.

        until_s: when the condition is looked at again, too; 0.0 for never.
        """
        waiter = self._waiter
        while not condition():
            turn = waiter.new_turn()
            self._own[who] = turn
            now_s = waiter.monotonic_s()
            waiter.wait_turn(turn, until_s if until_s > now_s else now_s + _TURN_S, must_end=True)
        self._own.pop(who, None)

    def notify(self, who: object) -> None:
        """Has who is in `wait_for` look at its condition."""
        turn = self._own.get(who)
        if turn is not None:
            turn.notify()

    def sleep(self, seconds: float) -> None:
        """Waits for a time, which nothing ends."""
        waiter = self._waiter
        waiter.wait_turn(waiter.new_turn(), waiter.monotonic_s() + seconds, must_end=True)

    def hold(self) -> None:
        """Has no unit but the caller's own begin, and nobody else hold, until `let_go` was called as often.

        Who is about to begin a unit does not wait here: what it has found out since it has its turn would not hold.
        """
        present = self.present()
        if present is None or self._granted is not present:
            self.wait(joins=False)
        self._holder = present
        self._holds += 1

    def let_go(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._holder = None
            self.wake_next()

    def hold_still(self) -> None:
        """`hold` until the operation lets others run by itself."""
        present = self.present()
        if present is not None and not (self._holder is present and self._holds_still):
            self.hold()
            self._holds_still = True
            self._waiter.at_end_of_step(self._move)

    def _move(self) -> None:
        self._holds_still = False
        self.let_go()
