"""How an engine over a network waits: for a socket, for its turn, for another thread. It knows no event loop.

    engine            asks a `Waiter`, and goes on when its call returns
    in the server     the greenlet of the operation is left meanwhile, and others run (`server.store_waits`)
    in tests of it,   `BlockingWaiter` blocks the thread: enough for one client at a time
    at the start

An event loop registers a socket at the first wait, and forgets it by `forget_socket`, which is called before the socket
is closed. Waits may return early: who waits looks again at what it waits for.
"""

import select
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from mypy_extensions import mypyc_attr

from mongottl.clock import SystemClock

T = TypeVar("T")

# What a socket is waited for, and what it then is; they can be added up.
READABLE: Final = 1
WRITABLE: Final = 2
# A wait without an end lasts at most this many seconds, and is then begun again.
_LONGEST_WAIT_S: Final = 3600.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Turn(ABC):
    """Lets one that waits go on: notified by another."""

    @abstractmethod
    def notify(self) -> None:
        """Ends `Waiter.wait_turn`, at once if it has not begun."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter(ABC):
    """What an engine needs of those who run it.

    Waits raise what ends the operation that waits: that its time limit is over or its client has left (any
    BaseException). They do not if `must_end`: what was sent is going to be carried out, and its answer is needed.
    """

    @abstractmethod
    def monotonic_s(self) -> float:
        """Elapsed time in seconds, by which deadlines are given."""
        raise NotImplementedError

    @abstractmethod
    def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
        """Waits until a socket is READABLE or WRITABLE, those of `events`, or until the deadline: what it is now, 0 if
        that is not known."""
        raise NotImplementedError

    @abstractmethod
    def has_input(self, fd: int) -> bool:
        """Whether a socket that nobody waits for has become readable, as when the other side has closed it."""
        raise NotImplementedError

    @abstractmethod
    def forget_socket(self, fd: int) -> None:
        """Called before a socket is closed that was waited for."""
        raise NotImplementedError

    @abstractmethod
    def new_turn(self) -> Turn:
        raise NotImplementedError

    @abstractmethod
    def wait_turn(self, turn: Turn, until_s: float, must_end: bool = False) -> bool:
        """Waits until a turn is notified: True; False at the deadline, or when it returns early.

        must_end: whether nothing else ends it, but that the operation is given up (EngineUnavailable).
        """
        raise NotImplementedError

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        """Has `action` called when the operation lets others run by itself, or has ended; at once outside of
        operations."""
        action()

    @abstractmethod
    def run_aside(self, function: Callable[[], None]) -> None:
        """Has a function called, now or soon, that may wait, though the caller may not."""
        raise NotImplementedError

    def let_others_run(self) -> None:  # noqa: B027  # nobody waits in tests of an engine
        """Called between two parts of what takes long, where the caller has just waited: others run, if it has gone on
        long enough."""

    def call_in_thread(self, function: Callable[[], T]) -> T:
        """What a function returns that blocks and touches nothing of the engine's, such as a look-up of a host."""
        return function()

    def sleep(self, seconds: float) -> None:
        """Waits for a time, or less."""
        self.wait_turn(self.new_turn(), self.monotonic_s() + seconds)


class _Flag(Turn):
    def __init__(self) -> None:
        self.notified = False

    def notify(self) -> None:
        self.notified = True


class BlockingWaiter(Waiter):
    """Blocks the thread. Nobody else runs meanwhile, so that a turn comes at once or never."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
        return poll_socket(fd, events, until_s - self._clock.monotonic_s())

    def has_input(self, fd: int) -> bool:
        return poll_socket(fd, READABLE, 0.0) != 0

    def forget_socket(self, fd: int) -> None:
        pass

    def new_turn(self) -> Turn:
        return _Flag()

    def wait_turn(self, turn: Turn, until_s: float, must_end: bool = False) -> bool:
        assert isinstance(turn, _Flag)
        if not turn.notified:
            poll_nothing(until_s - self._clock.monotonic_s())
        return turn.notified

    def run_aside(self, function: Callable[[], None]) -> None:
        function()


class ReplaceableWaiter(Waiter):
    """Waits as `inner` does, which may be replaced."""

    def __init__(self, inner: Waiter) -> None:
        self.inner = inner

    def monotonic_s(self) -> float:
        return self.inner.monotonic_s()

    def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
        return self.inner.wait_socket(fd, events, until_s, must_end)

    def has_input(self, fd: int) -> bool:
        return self.inner.has_input(fd)

    def forget_socket(self, fd: int) -> None:
        self.inner.forget_socket(fd)

    def new_turn(self) -> Turn:
        return self.inner.new_turn()

    def wait_turn(self, turn: Turn, until_s: float, must_end: bool = False) -> bool:
        return self.inner.wait_turn(turn, until_s, must_end)

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        self.inner.at_end_of_step(action)

    def run_aside(self, function: Callable[[], None]) -> None:
        self.inner.run_aside(function)

    def let_others_run(self) -> None:
        self.inner.let_others_run()

    def call_in_thread(self, function: Callable[[], T]) -> T:
        return self.inner.call_in_thread(function)


def poll_socket(fd: int, events: int, seconds: float) -> int:
    """Blocks until a socket is READABLE or WRITABLE, those of `events`, or the seconds are over: what it is."""
    poll = select.poll()
    mask = 0
    if events & READABLE:
        mask |= select.POLLIN
    if events & WRITABLE:
        mask |= select.POLLOUT
    poll.register(fd, mask)
    found = 0
    for _, ready in poll.poll(max(0.0, min(seconds, _LONGEST_WAIT_S)) * 1000):
        if ready & (select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL):
            found |= READABLE
        if ready & (select.POLLOUT | select.POLLERR):
            found |= WRITABLE
    return found


def poll_nothing(seconds: float) -> None:
    """Blocks for a time."""
    select.select([], [], [], max(0.0, min(seconds, _LONGEST_WAIT_S)))
