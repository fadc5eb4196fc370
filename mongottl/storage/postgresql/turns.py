"""Who may have a unit of work open: several at once, or one alone; in the order of asking.

    begin(alone=False)   units of many operations are open at once: PostgreSQL keeps them apart, row by row
    begin(alone=True)    units that change what is in memory, too: no other unit is open meanwhile
    hold                 undivided blocks: no unit but the caller's own is open, and nobody else holds

Who asks for what cannot be had waits, and nobody overtakes it. It is given its place by the one whose end makes it
free, before it runs again.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.waiting import Turn, Waiter

# How long a wait lasts at most before it is begun anew, in seconds.
_TURN_S: Final = 60.0


@final
class _Request:
    """One who waits. is_granted: whether it has its place now."""

    def __init__(self, who: object, alone: bool, turn: Turn) -> None:
        self.who: Final = who
        self.alone: Final = alone
        self.turn: Final = turn
        self.is_granted = False


@final
class Turns:
    """waiter: waits. present: who runs now, None outside of operations."""

    def __init__(self, waiter: Waiter, present: Callable[[], object]) -> None:
        self._waiter: Final = waiter
        self.present: Final = present
        # How many units each has open beside others.
        self._sharing: dict[object, int] = {}
        # Who is alone, and how often it has asked for that.
        self._holder: object = None
        self._holds = 0
        self._waiting: deque[_Request] = deque()
        # Called before an operation waits that has a place already.
        self.on_wait: Callable[[], None] | None = None

    @property
    def is_alone(self) -> bool:
        """Whether who asks holds others off."""
        return self._holds > 0 and self._holder is self.present()

    def _may_have(self, who: object, alone: bool) -> bool:
        if self._holds and self._holder is not who:
            return False
        if not alone:
            return True
        return not self._sharing or (len(self._sharing) == 1 and who in self._sharing)

    def _take(self, who: object, alone: bool) -> None:
        if alone:
            self._holder = who
            self._holds += 1
        else:
            self._sharing[who] = self._sharing.get(who, 0) + 1

    def begin(self, alone: bool) -> None:
        """Waits until the caller may have a unit open, which `end` must follow.

        EngineUnavailable outside of operations, where nobody else could end. WriteConflict if the caller has a unit
        open beside others, and asks to be alone as one of those does already: both would wait for ever.
        """
        who = self.present()
        has_place = who in self._sharing or (self._holds > 0 and self._holder is who)
        if self._may_have(who, alone) and (has_place or not self._waiting):
            self._take(who, alone)
            return
        if has_place and self.on_wait is not None:
            # A unit that was asked for and not begun keeps nobody waiting.
            self.on_wait()
            if self.try_begin(alone):
                return
            has_place = who in self._sharing or (self._holds > 0 and self._holder is who)
        if who is None:
            raise EngineUnavailable("another unit of work is open, and cannot be waited for outside of operations")
        if has_place and any(request.alone and request.who in self._sharing for request in self._waiting):
            raise WriteConflict("two units of work wait for each other")
        request = _Request(who, alone, self._waiter.new_turn())
        if has_place:  # others wait for its end
            self._waiting.appendleft(request)
        else:
            self._waiting.append(request)
        try:
            while not request.is_granted:
                self._waiter.wait_turn(request.turn, self._waiter.monotonic_s() + _TURN_S)
        except BaseException:
            if request.is_granted:
                self.end(who, alone)
            else:
                self._waiting.remove(request)
                self._grant()
            raise

    def try_begin(self, alone: bool) -> bool:
        """`begin` if nothing has to be waited for; whether it was."""
        who = self.present()
        if not self._may_have(who, alone):
            return False
        self._take(who, alone)
        return True

    def end(self, who: object, alone: bool) -> None:
        """Gives back what `begin` has given to `who`."""
        if alone:
            self._holds -= 1
            if not self._holds:
                self._holder = None
        else:
            left = self._sharing[who] - 1
            if left:
                self._sharing[who] = left
            else:
                del self._sharing[who]
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Gives places to those who have waited longest, until one of them cannot have it."""
        waiting = self._waiting
        while waiting and self._may_have(waiting[0].who, waiting[0].alone):
            request = waiting.popleft()
            self._take(request.who, request.alone)
            request.is_granted = True
            request.turn.notify()

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        self._waiter.at_end_of_step(action)

    def hold(self) -> None:
        """Has no unit but the caller's own open, and nobody else hold, until `let_go` was called as often."""
        self.begin(alone=True)

    def let_go(self) -> None:
        self.end(self._holder, alone=True)
