"""The poller: what it calls for readable sockets, and when it wakes the task that waits."""

import socket
import sys
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mongottl.clock import SystemClock
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks, StepTimes
from mongottl.server.poller import SLICE_S, Pause, Poller
from tests.running import HurriedClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")


_TASKS = 50
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
    poller = Poller(SystemClock(), Stacks(SystemClock().monotonic_s, StepTimes()))
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


def test_cancel_while_waiting_in_poller(poller: Poller, pair: Pair) -> None:
    trio.run(_is_cancelled, poller, pair)


def test_a_long_operation_has_clients_answered(pair: Pair) -> None:
    clock = HurriedClock(0.0)  # its slice is not over, whatever else the machine does
    poller = Poller(clock, Stacks(clock.monotonic_s, StepTimes()))
    trio.run(_answers_for_an_operation, poller, pair)
    poller.close()


class TriosClock(SystemClock):
    """The clock of trio, which a test may move."""

    def monotonic_s(self) -> float:
        return trio.current_time()


class Pausing:
    """A command that pauses with a signal, and what it was resumed for."""

    def __init__(self, poller: Poller, side: Side) -> None:
        self.poller = poller
        self.side = side
        self.signal = Signal()
        self.resumed: list[bool] = []
        self.pause: Pause | None = None

    def begin(self, seconds: float) -> None:
        self.signal.clear()
        self.pause = self.poller.pause(self.side.sock, seconds, self.signal, self.resume)

    def resume(self) -> bool:
        self.resumed.append(self.signal.notified)
        return True


async def _pauses(pair: Pair) -> None:
    poller = Poller(TriosClock(), Stacks(TriosClock().monotonic_s, StepTimes()))
    side = Side(pair[0])
    command = Pausing(poller, side)
    resumed = command.resumed

    async def serve() -> None:
        await poller.wait(side.sock, side.answer)
        side.woken += 1

    async with trio.open_nursery() as nursery:
        for task in (poller.run, poller.resume_due, serve):
            nursery.start_soon(task)
        await wait_all_tasks_blocked()
        command.begin(60.0)
        command.signal.notify()
        command.signal.notify()
        await wait_all_tasks_blocked()
        assert (resumed, poller.pauses) == ([True], 0)
        # A shorter pause than those before it ends first, and one that was ended is not resumed.
        command.begin(60.0)
        assert command.pause is not None
        command.pause.end()
        command.begin(5.0)
        await trio.sleep(4.0)
        assert (resumed, poller.pauses) == ([True], 1)
        await trio.sleep(2.0)
        assert (resumed, poller.pauses) == ([True, False], 0)
        await trio.sleep(100.0)
        assert len(resumed) == 2
        assert side.woken == 0
        nursery.cancel_scope.cancel()
    poller.close()


async def _resumes_for_an_answer(poller: Poller, pair: Pair) -> None:
    """What another client's message notifies is resumed after its answer."""
    side = Side(pair[0])
    command = Pausing(poller, side)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def notify() -> bool:
        ours.recv(64)
        command.signal.notify()
        assert command.resumed == []
        return True

    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            nursery.start_soon(poller.wait, side.sock, side.answer)
            nursery.start_soon(poller.wait, ours, notify)
            await wait_all_tasks_blocked()
            command.begin(60.0)
            theirs.send(b"a")
            await wait_all_tasks_blocked(0.01)
            assert command.resumed == [True]
            nursery.cancel_scope.cancel()


async def _answers_between_resumed(pair: Pair) -> None:
    """A client that asks when the first of several woken operations goes on is answered before the last one does."""
    clock = HurriedClock(0.001)
    poller = Poller(clock, Stacks(clock.monotonic_s, StepTimes()))
    pairs = [socket.socketpair() for _ in range(4)]
    order: list[str] = []
    commands: list[Pausing] = []

    class Long(Pausing):
        def resume(self) -> bool:
            order.append("resumed")
            if len(order) == 1:
                pair[1].send(b"a")
            return super().resume()

    def notify_all() -> bool:
        pairs[0][0].recv(64)
        for command in commands:
            command.signal.notify()
        return True

    def answer() -> bool:
        pair[0].recv(64)
        order.append("answered")
        return True

    for ours, _ in pairs:
        ours.setblocking(False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        nursery.start_soon(poller.wait, pair[0], answer)
        nursery.start_soon(poller.wait, pairs[0][0], notify_all)
        for ours, _ in pairs[1:]:
            side = Side(ours)
            nursery.start_soon(poller.wait, ours, side.answer)
            commands.append(Long(poller, side))
        await wait_all_tasks_blocked()
        for command in commands:
            command.begin(600.0)
        pairs[0][1].send(b"a")
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    poller.close()
    for ours, theirs in pairs:
        ours.close()
        theirs.close()
    assert order.count("resumed") == len(commands)
    assert order.index("answered") < len(order) - 1


async def _answers_between_tasks(pair: Pair) -> None:
    """A client that asks when the first of many tasks runs is answered before the last one does; also where the first
    ones wake as many others."""
    clock = HurriedClock(0.0)  # time passes while tasks run
    poller = Poller(clock, Stacks(clock.monotonic_s, StepTimes()))
    pairs = [socket.socketpair() for _ in range(2 * _TASKS)]
    order: list[str] = []

    def answer() -> bool:
        pair[0].recv(64)
        order.append("answered")
        return True

    async def serve(number: int) -> None:
        await poller.wait(pairs[number][0], lambda: False)
        clock.elapsed_s += SLICE_S
        pair[1].send(b"a")
        order.append(f"task {number // _TASKS}")
        if number < _TASKS:
            pairs[number + _TASKS][1].send(b"a")

    for ours, _ in pairs:
        ours.setblocking(False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        nursery.start_soon(poller.wait, pair[0], answer)
        for number in range(2 * _TASKS):
            nursery.start_soon(serve, number)
        await wait_all_tasks_blocked()
        for _, theirs in pairs[:_TASKS]:
            theirs.send(b"a")
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    poller.close()
    for ours, theirs in pairs:
        ours.close()
        theirs.close()
    for kind in ("task 0", "task 1"):
        assert order.count(kind) == _TASKS
        between = order[order.index(kind) : len(order) - order[::-1].index(kind)]
        assert between.count("answered") > _TASKS // 8


async def _forgets_times(poller: Poller, pair: Pair) -> None:
    command = Pausing(poller, Side(pair[0]))
    for _ in range(10_000):
        command.begin(60.0)
        assert command.pause is not None
        command.pause.end()
    assert poller.known_times < 2000


def test_paused_operations_are_resumed_by_signal_or_time(pair: Pair) -> None:
    trio.run(_pauses, pair, clock=MockClock(autojump_threshold=0))


def test_a_unit_of_work_that_pauses_after_the_last_client_has_nobody_answered(poller: Poller) -> None:
    """The end of a server writes, too."""
    poller.close()
    poller.answer_apart()


def test_operations_that_an_answer_wakes_are_resumed_after_it(poller: Poller, pair: Pair) -> None:
    trio.run(_resumes_for_an_answer, poller, pair)


def test_clients_are_answered_between_operations_that_are_resumed(pair: Pair) -> None:
    """A ping waited for 50 change streams, each of which had 15 MB from a store."""
    trio.run(_answers_between_resumed, pair)


def test_clients_are_answered_between_tasks_that_run_one_after_another(pair: Pair) -> None:
    """A ping waited for the tasks of a thousand change streams that an event had woken."""
    trio.run(_answers_between_tasks, pair)


def test_the_times_of_pauses_that_have_ended_are_forgotten(poller: Poller, pair: Pair) -> None:
    trio.run(_forgets_times, poller, pair)


async def _answers_before_it_ends_others(poller: Poller) -> None:
    pairs = [socket.socketpair() for _ in range(100)]
    ended: list[int] = []
    answered_after: list[int] = []

    async def serve(number: int) -> None:
        ours = pairs[number][0]

        def answer() -> bool:
            if ours.recv(64):
                answered_after.append(len(ended))
                return True
            ended.append(number)
            return False

        await poller.wait(ours, answer)

    try:
        async with trio.open_nursery() as nursery:
            for number, (ours, _) in enumerate(pairs):
                ours.setblocking(False)
                nursery.start_soon(serve, number)
            await wait_all_tasks_blocked()
            for _, theirs in pairs[:-1]:
                theirs.close()
            pairs[-1][1].send(b"a")
            nursery.start_soon(poller.run)
            while len(ended) < 99:
                await trio.lowlevel.checkpoint()
            assert answered_after == [0]
            nursery.cancel_scope.cancel()
    finally:
        for pair in pairs:
            for each in pair:
                each.close()


def test_clients_that_wait_go_before_those_that_have_left(poller: Poller) -> None:
    trio.run(_answers_before_it_ends_others, poller)


async def _ends_what_an_operation_has_seen_leave(poller: Poller, pair: Pair) -> None:
    side = Side(pair[0])

    async def serve() -> None:
        await poller.wait(side.sock, side.answer)
        side.woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        nursery.start_soon(serve)
        await wait_all_tasks_blocked()
        pair[1].close()
        assert poller.answer_ready()
        await wait_all_tasks_blocked(0.01)
        assert (side.taken, side.woken) == ([b""], 1)
        nursery.cancel_scope.cancel()


def test_client_that_leaves_beside_an_operation_is_ended_without_another_event(poller: Poller, pair: Pair) -> None:
    trio.run(_ends_what_an_operation_has_seen_leave, poller, pair)
