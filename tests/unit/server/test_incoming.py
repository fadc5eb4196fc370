"""The memory of messages that have begun to arrive: connections of a simulation, in virtual time."""

import math
import random

import pytest
import trio
from trio.testing import MockClock

from mongottl.clock import Clock
from mongottl.config import MemoryLimits
from mongottl.exec.state.metrics import Metrics
from mongottl.server.incoming import (
    BYTES_PER_S,
    GRACE_S,
    LOOK_EVERY_S,
    PRESSED_GRACE_S,
    SMALL_BYTES,
    Incoming,
    IncomingMessages,
)

CHUNK = 1 << 20
MB = 1 << 20


class TrioClock(Clock):
    """Elapsed time is trio's, which a MockClock moves."""

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def monotonic_s(self) -> float:
        return trio.current_time()


class Network:
    """Connections of one server. peak: the most bytes of messages that there were at once."""

    def __init__(self, bound: int) -> None:
        limits = MemoryLimits()
        limits.incoming_bytes = bound
        self.metrics = Metrics()
        self.slow: list[str] = []
        self.messages = IncomingMessages(
            limits, self.metrics, TrioClock(), lambda incoming: self.slow.append(incoming.name)
        )
        self.peak = 0
        self.held = 0
        self.answered: list[str] = []

    async def send(
        self,
        name: str,
        size: int,
        per_s: float,
        command_s: float = 0.0,
        stops_at: int | None = None,
        is_unread: bool = False,
    ) -> None:
        """A client that sends one message at a pace, and leaves when it is answered, or is closed.

        stops_at: sends no more from this size on, or the server reads no more of it if `is_unread`.
        """
        closed = trio.Event()
        incoming = Incoming(name, "127.0.0.1:1", closed.set, lambda: is_unread)
        received = 0
        step = min(CHUNK, int(per_s / 4))
        try:
            while received < size:
                if received and not self.messages.may_read(incoming, received, size):
                    await self.messages.wait_turn(incoming, name.rstrip("0123456789"))
                    continue
                with trio.move_on_after(step / per_s if stops_at is None or received < stops_at else math.inf):
                    await closed.wait()
                    return
                chunk = min(step, size - received)
                received += chunk
                self.held += chunk
                self.peak = max(self.peak, self.held)
            self.messages.note_whole(incoming)
            await trio.sleep(command_s)
            self.answered.append(name)
        finally:
            self.messages.forget(incoming)
            self.held -= received


Sent = tuple[str, int, float, float, int | None] | tuple[str, int, float, float, int | None, bool]


def run(bound: int, *sent: Sent, for_s: float = 3600.0) -> Network:
    """Sends these messages (name, size, bytes a second, seconds of the command, where it stops, whether it only is not
    read), all from the start."""

    async def main() -> Network:
        network = Network(bound)
        async with trio.open_nursery() as server:
            server.start_soon(network.messages.run)
            with trio.move_on_after(for_s):
                async with trio.open_nursery() as clients:
                    for each in sent:
                        clients.start_soon(network.send, *each)
            server.cancel_scope.cancel()
        assert network.metrics.incoming_bytes == network.metrics.incoming_waiting == network.held == 0
        return network

    return trio.run(main, clock=MockClock(autojump_threshold=0), strict_exception_groups=True)


FAST = 100.0 * MB


@pytest.mark.parametrize("seed", range(20))
def test_every_message_arrives_within_the_bound(seed: int) -> None:
    """Whatever their sizes, so two of which each is half there do not wait for each other."""
    chosen = random.Random(seed)
    bound = chosen.choice([1, MB, 8 * MB, 64 * MB])
    sizes = [chosen.choice([200, SMALL_BYTES, MB, 16 * MB, 48 * MB]) for _ in range(chosen.randint(1, 40))]
    paces = [chosen.choice([FAST, MB, BYTES_PER_S * 4.0]) for _ in sizes]
    network = run(
        bound,
        *(
            (str(n), size, pace, chosen.choice([0.0, 0.5]), None)
            for n, (size, pace) in enumerate(zip(sizes, paces, strict=True))
        ),
        for_s=1e6,
    )
    assert sorted(network.answered) == sorted(map(str, range(len(sizes))))
    assert network.slow == []
    assert network.peak <= max(bound, *sizes) + len(sizes) * (SMALL_BYTES + CHUNK)


def test_a_client_that_sends_no_more_is_closed() -> None:
    network = run(256 * MB, ("stuck", 40 * MB, FAST, 0.0, 10 * MB), for_s=GRACE_S + 3 * LOOK_EVERY_S)
    assert (network.slow, network.metrics.incoming_closed) == (["stuck"], 1)
    assert run(256 * MB, ("stuck", 40 * MB, FAST, 0.0, 10 * MB), for_s=GRACE_S - 1).slow == []


def test_a_client_that_sends_a_few_bytes_now_and_then_is_closed() -> None:
    assert run(256 * MB, ("slow", 40 * MB, BYTES_PER_S / 2, 0.0, None)).slow == ["slow"]
    assert run(256 * MB, ("patient", 40 * MB, BYTES_PER_S * 1.1, 0.0, None)).answered == ["patient"]


def test_memory_of_unfinished_messages_is_released_for_other_users() -> None:
    """Sixty messages of which 47 MB are there, as an attack sent them, and one of another user, which is next but for
    those that had begun."""
    attack = [(f"attack{n}", 48 * MB, FAST, 0.0, 47 * MB) for n in range(60)]
    network = run(256 * MB, *attack, ("honest", 48 * MB, 10.0 * MB, 0.0, None), for_s=15.0)
    assert network.answered == ["honest"]
    assert run(256 * MB, *attack).metrics.incoming_closed == 60
    assert network.peak <= 256 * MB + 61 * (SMALL_BYTES + CHUNK)


def test_a_client_that_sends_does_not_wait_long_behind_many_of_its_machine_that_stopped() -> None:
    """Sixty half messages, and behind them one of the same machine: the memory is handed on twelve times until then."""
    attack = [(f"client{n}", 48 * MB, 1e10, 0.0, 47 * MB) for n in range(60)]
    network = run(256 * MB, *attack, ("client60", 20 * MB, 10.0 * MB, 0.0, None), for_s=12.0)
    assert network.answered == ["client60"]
    # Where a few stop, those that have memory may lag as long as others.
    few = run(256 * MB, *attack[:6], for_s=PRESSED_GRACE_S - 0.5)
    assert few.slow == []


def test_a_client_whose_bytes_the_server_has_not_read_is_not_slow() -> None:
    unread = [(f"client{n}", 48 * MB, FAST, 0.0, 47 * MB, True) for n in range(60)]
    assert run(256 * MB, *unread, for_s=2 * GRACE_S).slow == []


def test_small_messages_do_not_wait() -> None:
    attack = [(f"attack{n}", 48 * MB, FAST, 0.0, 47 * MB) for n in range(10)]

    async def main() -> None:
        network = Network(MB)
        async with trio.open_nursery() as nursery:
            for each in attack:
                nursery.start_soon(network.send, *each)
            await trio.sleep(PRESSED_GRACE_S / 2)
            assert network.metrics.incoming_waiting == 9
            await network.send("small", SMALL_BYTES, FAST)
            assert network.answered == ["small"]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_time_in_the_queue_and_of_the_command_does_not_count() -> None:
    network = run(
        MB,
        *((f"long{n}", 48 * MB, 8.0 * MB, 10 * GRACE_S, None) for n in range(4)),
        for_s=1e6,
    )
    assert (len(network.answered), network.slow) == (4, [])


def test_a_server_that_stops_reads_all_of_them() -> None:
    async def main() -> None:
        network = Network(1)
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(network.send, str(n), 48 * MB, FAST, 3600.0)
            await trio.sleep(10.0)
            assert network.metrics.incoming_waiting == 4
            network.messages.end()
            await trio.sleep(10.0)
            assert network.metrics.incoming_waiting == 0
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
