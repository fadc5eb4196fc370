"""Waits for the sockets of all idle connections at once, and has those that are readable answered.

    idle connections   registered in one epoll object, for which a single task waits
    readable           the poller calls the connection, which answers all that can be answered at once
    all else           a command that is long or has to wait, a reply for which the socket has no room: the connection's
                       own task is woken for it, and the socket is not registered until that task waits again
    waits for data     a getMore at the end of a stream, for example, pauses: its connection stays registered, and when
                       its signal is notified the poller resumes it, without the connection's task
    other sockets      such as those of a store over a network (`store_waits`): what is ready there is passed on

A long operation has the readable ones answered between two of its steps, without a switch of tasks. So a short request
costs neither such a switch nor a registration of its own (measured: a find by `_id` takes 40 % less CPU than with
`trio.lowlevel.wait_readable` for each message). The readable ones are also answered between the tasks of many
connections that were woken at once, by one event for a thousand change streams: trio asks for readable sockets only
after all of these have run. Where the system has no epoll, each connection waits by that function, and its task does
everything.
"""

import itertools
import select
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, TypeAlias

import trio
from trio.abc import Instrument

from mongottl.clock import Clock
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks, Steps

# Seconds after which other tasks run before the next connection is answered.
SLICE_S: Final = 0.001
# Sockets asked for at once.
_MAX_EVENTS: Final = 256
# Tasks that may take long together, if they are woken before the poller has its turn again.
_MANY_TASKS: Final = 8
# From this length on, the list of times is cleared of pauses that have ended, when they are the most of it.
_MANY_TIMES: Final = 1024
# Connections whose clients have left that are ended before others are answered: a millisecond's work.
_ENDED_AT_ONCE: Final = 8


if sys.platform == "linux":
    _EVENTS: Final = select.EPOLLIN | select.EPOLLRDHUP
    _LEFT_EVENTS: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Pause:
    """A command that waits for a signal while its connection is registered as an idle one.

    resume: called once, when the signal is notified or the time is over; it answers as the `answer` of `Poller.wait`.
    ended: whether that was done, or was ended for another reason.
    """

    def __init__(self, poller: "Poller", number: int, signal: Signal, resume: Callable[[], bool]) -> None:
        self._poller = poller
        self.number = number
        self._signal = signal
        self.resume = resume
        self.ended = False
        signal.wake = self._wake

    def _wake(self) -> None:
        self._signal.wake = None
        self._poller.resume_soon(self)

    def end(self) -> None:
        """Makes the poller forget it."""
        if not self.ended:
            self.ended = True
            self._signal.wake = None
            self._poller.pauses -= 1


class _LooksBetweenTasks(Instrument):
    """Has clients answered before the step of a task, if others have run for SLICE_S since that was done, or since trio
    has looked which sockets are ready. For the tasks that were woken before it begins, which run after trio looks next.
    """

    def __init__(self, poller: "Poller", monotonic_s: Callable[[], float]) -> None:
        self._poller = poller
        self._monotonic_s = monotonic_s
        self._look_at = inf

    def after_io_wait(self, timeout: float) -> None:
        woken = self._poller.take_woken()
        if self._look_at == inf or woken >= _MANY_TASKS:
            self._look_at = self._monotonic_s() + SLICE_S
        else:
            self._poller.end_looks()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._monotonic_s() >= self._look_at:
            self._poller.answer_ready()
            self._look_at = self._monotonic_s() + SLICE_S


def _give_up(steps: Steps[bytes]) -> bool:
    steps.close()
    return True


def _wait_on() -> bool:
    return True


# The task to wake, what to call first, what to call with a command that was left in it, and what to call instead of the
# first in the middle of a unit of work.
_Waiting: TypeAlias = tuple[trio.lowlevel.Task, Callable[[], bool], Callable[[Steps[bytes]], bool], Callable[[], bool]]


class Poller:
    """The readiness of the sockets of one server's connections. pauses: how many commands pause."""

    def __init__(self, clock: Clock, stacks: Stacks) -> None:
        self._clock = clock
        self._epoll = select.epoll() if sys.platform == "linux" else None
        self._stacks = stacks
        # By file descriptor.
        self._waiting: dict[int, _Waiting] = {}
        # Sockets of others, by file descriptor, with what to call when one is ready.
        self._watched: dict[int, Callable[[int], None]] = {}
        # What epoll has said and is not answered yet; when to let other tasks run; which connection is answered now.
        self._events: deque[tuple[int, int]] = deque()
        self._slice_end = 0.0
        self._number = -1
        self.pauses: int = 0
        # Of them, those whose clients have closed their side, which are not registered: others go before them.
        self._left: dict[int, None] = {}
        # Those to resume; all by the time at which they end without a signal, with a number that makes times differ.
        self._woken: deque[Pause] = deque()
        self._times: list[tuple[float, int, Pause]] = []
        self._begun: int = 0
        # Whether `run` answers now, and will resume what is woken. Else `resume_due` does, which sleeps in a scope.
        self._answering = False
        self._tasks_woken: int = 0
        # How many since `run` has had its turn, and what has clients answered between them if they are many.
        self._woken_together: int = 0
        self._looks: _LooksBetweenTasks | None = None
        self._wakes_at = inf
        self._sleep: trio.CancelScope | None = None

    async def wait(
        self,
        sock: socket.socket,
        answer: Callable[[], bool],
        go_on: Callable[[Steps[bytes]], bool] = _give_up,
        answer_apart: Callable[[], bool] = _wait_on,
    ) -> None:
        """Waits until `sock` is readable and there is something to do for the calling task.

        answer: called whenever the socket is readable, for as long as it answers True; must not raise. go_on: called
        with the steps of a command that was left within `answer`; answers as that. answer_apart: called instead in the
        middle of a unit of work, and answers as that, too.
        """
        if self._epoll is None:
            await trio.lowlevel.wait_readable(sock)
            return
        number = sock.fileno()
        self._epoll.register(number, _EVENTS)
        self._waiting[number] = (trio.lowlevel.current_task(), answer, go_on, answer_apart)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._forget(number)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    @property
    def can_watch(self) -> bool:
        return self._epoll is not None

    def watch(self, number: int, events: int, ready: Callable[[int], None]) -> None:
        """Has `ready` called with what a socket is, for as long as it is ready for one of epoll's `events`.

        number: its file descriptor, which no connection has, and which `unwatch` is called for before it is closed.
        """
        assert self._epoll is not None
        if number in self._watched:
            self._epoll.modify(number, events)
        else:
            self._epoll.register(number, events)
        self._watched[number] = ready

    def unwatch(self, number: int) -> None:
        """Ends `watch`; also right after the socket was closed, before its number is given to another."""
        assert self._epoll is not None
        if self._watched.pop(number, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(number)

    @property
    def known_times(self) -> int:
        """How many times of pauses it remembers, those that have ended included."""
        return len(self._times)

    @property
    def takes_pauses(self) -> bool:
        return self._epoll is not None

    def pause(self, sock: socket.socket, seconds: float, signal: Signal, resume: Callable[[], bool]) -> Pause:
        """Has `resume` called when the signal is notified or the time is over.

        sock: one for which `wait` waits, or will before any other task runs.
        """
        pause = Pause(self, sock.fileno(), signal, resume)
        self.pauses += 1
        if signal.notified:
            self.resume_soon(pause)
            return pause
        due_at = self._clock.monotonic_s() + seconds
        if len(self._times) > _MANY_TIMES and len(self._times) > 2 * self.pauses:
            self._times = [entry for entry in self._times if not entry[2].ended]
            heapify(self._times)
        self._begun += 1
        heappush(self._times, (due_at, self._begun, pause))
        if self._sleep is not None and due_at < self._wakes_at:
            self._sleep.cancel()
        return pause

    def resume_soon(self, pause: Pause) -> None:
        """Has a pause end, because its signal was notified."""
        self._woken.append(pause)
        if not self._answering and self._sleep is not None:
            self._sleep.cancel()

    async def resume_due(self) -> None:
        """Resumes what pauses when its time is over, or when a task has notified its signal; as long as the server
        runs."""
        while True:
            times = self._times
            now = self._clock.monotonic_s()
            while times and (times[0][2].ended or times[0][0] <= now):
                self._woken.append(heappop(times)[2])
            if self._woken:
                await self._resume_all()
                continue
            self._wakes_at = times[0][0] if times else inf
            with trio.move_on_after(self._wakes_at - now) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None

    async def _resume_all(self) -> None:
        """Resumes what is woken; other tasks run every SLICE_S."""
        while self._resume_woken(self._clock.monotonic_s() + SLICE_S):
            await trio.lowlevel.checkpoint()

    def _resume_woken(self, slice_end: float) -> bool:
        """Resumes what is woken until the end of a slice; whether there is more."""
        woken = self._woken
        while woken:
            pause = woken.popleft()
            if pause.ended or pause.number not in self._waiting:
                continue
            pause.end()
            self._settle(pause.number, pause.resume())
            if self._clock.monotonic_s() >= slice_end:
                break
        return bool(woken)

    def answer_ready(self) -> bool:
        """Answers the clients that wait, for about SLICE_S; whether a connection's task has to run.

        For a long operation, which calls it between two steps and then lets others run earlier if it is True.
        """
        epoll = self._epoll
        if epoll is None:
            return False
        events = epoll.poll(0, _MAX_EVENTS)
        if not events:
            return False
        woken = False
        slice_end = self._clock.monotonic_s() + SLICE_S
        left = self._events  # of `run`, if that lets others run now
        self._events = deque()
        try:
            for ready, mask in events:
                if mask & _LEFT_EVENTS and ready not in self._watched:
                    # It stays registered, so that `run` wakes for it: nothing else may come that would wake it.
                    woken = True
                else:
                    self._events.append((ready, mask))
            while self._events:
                woken |= self._answer_events(slice_end)
                if self._clock.monotonic_s() >= slice_end:
                    return True
        finally:
            self._events = left
        return woken or bool(self._woken)

    def answer_apart(self) -> None:
        """Answers the clients that wait whose requests touch no data. All others wait on, and no task runs: for an
        operation in the middle of its unit of work. None is left once it is closed."""
        if self._epoll is None or self._epoll.closed:
            return
        for number, mask in self._epoll.poll(0, _MAX_EVENTS):
            entry = self._waiting.get(number)
            if entry is not None and not mask & _LEFT_EVENTS:
                self._settle(number, entry[3]())

    def _answer_events(self, slice_end: float) -> bool:
        """Answers clients until one has a command that is left, or to the end of a slice; whether a task was woken."""
        woken = self._tasks_woken
        self._slice_end = slice_end
        steps: Steps[bytes] | None = None
        if len(self._events) == 1:
            self._answer_events_here()  # its command may need no stack
        else:
            steps = self._stacks.host(self._answer_events_here)
        if steps is not None:
            number = self._number
            if number in self._waiting:
                self._settle(number, self._waiting[number][2](steps))
            else:
                steps.close()
        return self._tasks_woken != woken

    def _answer_events_here(self) -> None:
        events = self._events
        monotonic_s = self._clock.monotonic_s
        while events:
            number, mask = events.popleft()
            if mask & _LEFT_EVENTS:
                self._put_last(number, mask)
            else:
                self._number = number
                self._answer(number, mask)
            if monotonic_s() >= self._slice_end:
                return

    def _look_between_tasks(self) -> None:
        """Has clients answered between the tasks that were woken, which are many. Each look costs a microsecond, so it
        is not done always."""
        if self._looks is None and self._epoll is not None:
            self._looks = _LooksBetweenTasks(self, self._clock.monotonic_s)
            trio.lowlevel.add_instrument(self._looks)

    def take_woken(self) -> int:
        """How many tasks were woken since it was asked for last."""
        woken = self._woken_together
        self._woken_together = 0
        return woken

    def end_looks(self) -> None:
        if self._looks is not None:
            trio.lowlevel.remove_instrument(self._looks)
            self._looks = None

    async def run(self) -> None:
        """Answers for as long as the server runs."""
        epoll = self._epoll
        if epoll is None:
            return
        monotonic_s = self._clock.monotonic_s
        number = epoll.fileno()
        while True:
            if self._left:
                self._end_some()
                await trio.lowlevel.checkpoint()
            elif self._woken:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(number)
            if self._looks is None:
                self._woken_together = 0
            self._answering = True
            slice_end = monotonic_s() + SLICE_S
            self._events.extend(epoll.poll(0, _MAX_EVENTS))
            while self._events:
                self._answer_events(slice_end)
                if monotonic_s() >= slice_end:
                    await trio.lowlevel.checkpoint()
                    slice_end = monotonic_s() + SLICE_S
            # The rest after those who ask meanwhile: of a hundred operations that a store has answered each may go on
            # for longer than a slice.
            self._resume_woken(monotonic_s() + SLICE_S)
            self._answering = False

    def close(self) -> None:
        if self._epoll is not None:
            self._watched.clear()
            self._epoll.close()

    def _answer(self, number: int, mask: int) -> bool:
        """Has a connection answered; False if its task was woken to go on."""
        entry = self._waiting.get(number)
        if entry is None:
            if number in self._watched:
                self._watched[number](mask)
            return True  # else it ended while others ran
        return self._settle(number, entry[1]())

    def _settle(self, number: int, done: bool) -> bool:
        """Wakes the task of a connection unless it is `done`; returns that."""
        if not done:
            task = self._waiting[number][0]
            self._tasks_woken += 1
            self._woken_together += 1
            if self._woken_together >= _MANY_TASKS:
                self._look_between_tasks()
            self._forget(number)
            trio.lowlevel.reschedule(task)
        return done

    def _put_last(self, number: int, mask: int) -> None:
        """Has a connection whose client has left be answered, which ends it, after those whose clients wait."""
        assert self._epoll is not None
        if number in self._watched:
            self._watched[number](mask)
        elif number in self._waiting and number not in self._left:
            self._epoll.unregister(number)
            self._left[number] = None

    def _end_some(self) -> None:
        """Answers some of the connections whose clients have left."""
        assert self._epoll is not None
        for number in list(itertools.islice(self._left, _ENDED_AT_ONCE)):
            del self._left[number]
            self._epoll.register(number, _EVENTS)
            self._answer(number, _EVENTS)

    def _forget(self, number: int) -> None:
        assert self._epoll is not None
        del self._waiting[number]
        if number in self._left:
            del self._left[number]
        else:
            self._epoll.unregister(number)
