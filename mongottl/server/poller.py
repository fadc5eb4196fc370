"""Waits for the sockets of all idle connections at once, and has those that are readable answered.

    idle connections   registered in one epoll object, for which a single task waits
    readable           the poller calls the connection, which answers all that can be answered at once
    all else           a command that is long or has to wait, a reply for which the socket has no room: the connection's
                       own task is woken for it, and the socket is not registered until that task waits again

A long operation has the readable ones answered between two of its steps, without a switch of tasks. So a short request
costs neither such a switch nor a registration of its own (measured: a find by `_id` takes 40 % less CPU than with
`trio.lowlevel.wait_readable` for each message). Where the system has no epoll, each connection waits by that function,
and its task does everything.
"""

import select
import socket
import sys
from collections.abc import Callable
from typing import Final

import trio

from mongottl.clock import Clock

# After so long other tasks run before the next connection is answered.
SLICE_S: Final = 0.001
# Sockets asked for at once.
_MAX_EVENTS: Final = 256


class Poller:
    """The readiness of the sockets of one server's connections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoll = select.epoll() if sys.platform == "linux" else None
        # By file descriptor: the task to wake, and what to call first.
        self._waiting: dict[int, tuple[trio.lowlevel.Task, Callable[[], bool]]] = {}

    async def wait(self, sock: socket.socket, answer: Callable[[], bool]) -> None:
        """Waits until `sock` is readable and there is something to do for the calling task.

        answer: called whenever the socket is readable, for as long as it answers True; must not raise.
        """
        if self._epoll is None:
            await trio.lowlevel.wait_readable(sock)
            return
        number = sock.fileno()
        self._epoll.register(number, select.EPOLLIN)
        self._waiting[number] = (trio.lowlevel.current_task(), answer)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._forget(number)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

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
        for ready, _ in events:
            if not self._answer(ready):
                woken = True
            if self._clock.monotonic_s() >= slice_end:
                return True
        return woken

    async def run(self) -> None:
        """Answers for as long as the server runs."""
        epoll = self._epoll
        if epoll is None:
            return
        monotonic_s = self._clock.monotonic_s
        number = epoll.fileno()
        while True:
            await trio.lowlevel.wait_readable(number)
            slice_end = monotonic_s() + SLICE_S
            for ready, _ in epoll.poll(0, _MAX_EVENTS):
                self._answer(ready)
                if monotonic_s() >= slice_end:
                    await trio.lowlevel.checkpoint()
                    slice_end = monotonic_s() + SLICE_S

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()

    def _answer(self, number: int) -> bool:
        """Has a connection answered; False if its task was woken to go on."""
        entry = self._waiting.get(number)
        if entry is None:
            return True  # it ended while others ran
        task, answer = entry
        if answer():
            return True
        self._forget(number)
        trio.lowlevel.reschedule(task)
        return False

    def _forget(self, number: int) -> None:
        assert self._epoll is not None
        del self._waiting[number]
        self._epoll.unregister(number)
