"""How operations wait for a store over a network: their greenlet is left, and others run until its socket is ready.

    operation ── wait_socket ── left with a `Wait` for the socket's signal ── others run ──► goes on
                                                   ▲
    poller ── a socket is readable ── `_Socket.ready` notifies it

Each socket of the store is registered in the poller's epoll once, at its first wait, so that a wait costs no system
call of its own. One that becomes readable while nobody waits for it, mostly because the other side has closed it, is
taken out again, and `has_input` says so.

Some calls cannot be left: those of no operation, as at the start and the end, and those that an operation which was
given up has to bring to their end. They block the thread, and are counted by their number (`blocked`).
"""

import select
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from mongottl.clock import Clock
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stack, Stacks
from mongottl.exec.running.state import OperationState
from mongottl.exec.running.steps import InThread, Wait
from mongottl.server.driving import drive
from mongottl.server.durability import Durability
from mongottl.server.poller import Poller
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.waiting import READABLE, WRITABLE, Turn, Waiter, poll_nothing, poll_socket

T = TypeVar("T")

# How long an operation that may be interrupted waits before it looks whether its time limit is over.
_LOOK_EVERY_S: Final = 0.025
# epoll's own numbers, which `select` lacks on other systems: EPOLLIN, EPOLLOUT, EPOLLERR | EPOLLHUP.
_IN: Final = getattr(select, "EPOLLIN", 1)
_OUT: Final = getattr(select, "EPOLLOUT", 4)
_BROKEN: Final = getattr(select, "EPOLLERR", 8) | getattr(select, "EPOLLHUP", 16)


class _Turn(Turn):
    def __init__(self) -> None:
        self.signal = Signal()

    def notify(self) -> None:
        self.signal.notify()


class _Socket:
    """A socket of the store. watched: what it is registered for, 0 if it is not; found: what it was since the wait."""

    def __init__(self, fd: int, poller: Poller) -> None:
        self.fd = fd
        self._poller = poller
        self.signal = Signal()
        self.watched = 0
        self.found = 0
        self.is_awaited = False
        self.has_input = False

    def watch(self, events: int) -> None:
        if self.watched != events:
            self.watched = events
            mask = (_IN if events & READABLE else 0) | (_OUT if events & WRITABLE else 0)
            self._poller.watch(self.fd, mask, self.ready)

    def unwatch(self) -> None:
        if self.watched:
            self.watched = 0
            self._poller.unwatch(self.fd)

    def ready(self, mask: int) -> None:
        """Called by the poller."""
        if mask & (_IN | _BROKEN):
            self.found |= READABLE
        if mask & _OUT:
            self.found |= WRITABLE
        if self.is_awaited:
            self.signal.notify()
        else:
            # Nobody reads it, so that it would be ready for ever.
            self.has_input = True
            self.unwatch()


class StackWaiter(Waiter):
    """The waits of one server's operations. blocked: how many waits have blocked the thread."""

    def __init__(self, clock: Clock, stacks: Stacks, poller: Poller, durability: Durability) -> None:
        self._clock = clock
        self._stacks = stacks
        self._poller = poller
        self._durability = durability
        self._sockets: dict[int, _Socket] = {}
        self._nursery: trio.Nursery | None = None
        self.blocked = 0

    def present(self) -> object:
        """The stack of the operation that runs now; None outside of operations."""
        return self._stacks.present

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        self._stacks.at_end_of_step(action)

    async def run(self) -> None:
        """Runs what is to be done aside, as long as the server runs."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
        stack = self._left_stack(must_end)
        if stack is None:
            return poll_socket(fd, events, until_s - self._clock.monotonic_s())
        if not self._poller.can_watch:
            seconds = self._seconds(stack, until_s, must_end)
            self._leave(stack, Wait(seconds, None, fd, not events & READABLE), must_end)
            return poll_socket(fd, events, 0.0)
        awaited = self._sockets.get(fd)
        if awaited is None:
            awaited = self._sockets[fd] = _Socket(fd, self._poller)
        if awaited.has_input:
            awaited.has_input = False
            return READABLE
        awaited.watch(events)
        awaited.found = 0
        awaited.signal.clear()
        awaited.is_awaited = True
        try:
            seconds = self._seconds(stack, until_s, must_end)
            self._leave(stack, Wait(seconds, awaited.signal, for_storage=True), must_end)
        finally:
            awaited.is_awaited = False
        return awaited.found

    def has_input(self, fd: int) -> bool:
        known = self._sockets.get(fd)
        if known is None or not known.watched:
            return poll_socket(fd, READABLE, 0.0) != 0
        return known.has_input

    def forget_socket(self, fd: int) -> None:
        known = self._sockets.pop(fd, None)
        if known is not None:
            known.unwatch()

    def new_turn(self) -> Turn:
        return _Turn()

    def wait_turn(self, turn: Turn, until_s: float, must_end: bool = False) -> bool:
        assert isinstance(turn, _Turn)
        signal = turn.signal
        if not signal.notified:
            stack = self._left_stack(False)
            if stack is None:
                poll_nothing(until_s - self._clock.monotonic_s())
            elif must_end and stack.is_abandoned:
                raise EngineUnavailable("the operation was given up while it waited for others")
            else:
                self._leave(stack, Wait(self._seconds(stack, until_s, must_end), signal, for_storage=True), must_end)
        return signal.notified

    def run_aside(self, function: Callable[[], None]) -> None:
        if self._nursery is None:
            function()
        else:
            self._nursery.start_soon(self._run_one, function)

    async def _run_one(self, function: Callable[[], None]) -> None:
        await drive(self._stacks.begin(function), self._clock, self._durability, writes=False)

    def let_others_run(self) -> None:
        stack = self._stacks.present
        if stack is not None and not stack.is_abandoned:
            stack.leave_for_storage_if_due()

    def call_in_thread(self, function: Callable[[], T]) -> T:
        stack = self._left_stack(False)
        if stack is None:
            return function()
        step = InThread(function)
        stack.leave_for_storage(step)
        result: T = step.result()  # type: ignore[assignment]
        return result

    def _left_stack(self, must_end: bool) -> Stack | None:
        """The stack that can be left now, None if the thread has to wait."""
        stack = self._stacks.present
        if stack is None:
            self._stacks.require()
        if stack is None or (must_end and stack.is_abandoned):
            self.blocked += 1
            return None
        return stack

    def _seconds(self, stack: Stack, until_s: float, must_end: bool) -> float:
        """How long a wait lasts before it is looked whether the operation has to end, if it is one that may."""
        seconds = until_s - self._clock.monotonic_s()
        return max(0.0, seconds if must_end or stack.operation is None else min(seconds, _LOOK_EVERY_S))

    def _leave(self, stack: Stack, step: Wait, must_end: bool) -> None:
        """Lets others run until the wait is over. Raises what ends the operation, unless it `must_end`."""
        operation = stack.operation
        state = operation if isinstance(operation, OperationState) and not must_end else None
        awaited = None if state is None else state.waits_for
        if state is not None:
            state.waits_for = step.signal
        try:
            stack.leave_for_storage(step)
        except BaseException:
            if not must_end:
                raise  # else the thread waits for the end
        finally:
            if state is not None:
                state.waits_for = awaited  # of a getMore that reads, and then waits for documents again
        if operation is not None and not must_end and not operation.was_ended:
            operation.check_interrupt()
