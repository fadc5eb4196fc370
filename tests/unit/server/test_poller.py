"""The poller: what it calls for readable sockets, and when it wakes the task that waits."""

import socket
import sys
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mongottl.clock import SystemClock
from mongottl.server.poller import Poller

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")


Pair = tuple[socket.socket, socket.socket]


class Side:
    """One end of a connection: takes what has come, and wants its task woken at an "x"."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.taken: list[bytes] = []
        self.woken = 0

    def answer(self) -> bool:
        data = self.sock.recv(64)
        self.taken.append(data)
        return data != b"" and b"x" not in data


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller(SystemClock())
    yield poller
    poller.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def _answers(poller: Poller, pair: Pair) -> None:
    side = Side(pair[0])

    async def serve() -> None:
        await poller.wait(side.sock, side.answer)
        side.woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        nursery.start_soon(serve)
        for data in (b"a", b"b"):
            pair[1].send(data)
            await wait_all_tasks_blocked(0.01)
        assert (side.taken, side.woken) == ([b"a", b"b"], 0)
        pair[1].send(b"x")
        await wait_all_tasks_blocked(0.01)
        assert (side.taken, side.woken) == ([b"a", b"b", b"x"], 1)
        pair[1].send(b"c")  # nobody waits for it
        await wait_all_tasks_blocked(0.01)
        assert side.taken == [b"a", b"b", b"x"]
        assert not poller.answer_ready()
        nursery.start_soon(serve)
        await wait_all_tasks_blocked(0.01)
        assert side.taken[3:] == [b"c"]
        pair[1].close()
        await wait_all_tasks_blocked(0.01)
        assert (side.taken[4:], side.woken) == ([b""], 2)
        nursery.cancel_scope.cancel()


async def _is_cancelled(poller: Poller, pair: Pair) -> None:
    side = Side(pair[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.move_on_after(0.01):
            await poller.wait(side.sock, side.answer)
        pair[1].send(b"a")
        await wait_all_tasks_blocked(0.01)
        assert side.taken == []
        nursery.cancel_scope.cancel()


async def _answers_for_an_operation(poller: Poller, pair: Pair) -> None:
    side = Side(pair[0])

    async def serve() -> None:
        await poller.wait(side.sock, side.answer)
        side.woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await wait_all_tasks_blocked()
        assert not poller.answer_ready()
        pair[1].send(b"a")
        assert not poller.answer_ready()
        assert side.taken == [b"a"]
        pair[1].send(b"x")
        assert poller.answer_ready()
        assert (side.taken, side.woken) == ([b"a", b"x"], 0)
        pair[1].send(b"b")
        assert not poller.answer_ready()  # nobody waits for it
        await wait_all_tasks_blocked()
        assert (side.taken, side.woken) == ([b"a", b"x"], 1)


def test_answers_without_waking_the_task(poller: Poller, pair: Pair) -> None:
    trio.run(_answers, poller, pair)


def test_who_waits_may_be_cancelled(poller: Poller, pair: Pair) -> None:
    trio.run(_is_cancelled, poller, pair)


def test_a_long_operation_has_clients_answered(poller: Poller, pair: Pair) -> None:
    trio.run(_answers_for_an_operation, poller, pair)
