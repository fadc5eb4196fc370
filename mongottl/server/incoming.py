"""The memory of messages that clients send: one bound for all connections, and a time limit for each message.

A message may have 48 MB, and is in memory from its first byte until it is answered. Its header says how long it will
be. So before more than SMALL_BYTES of it are read, memory for all of it is set aside:

    there is room    the connection is read until its message is whole, whatever others send
    there is none    the connection is not read, and waits in a queue

A message that has begun can always be finished, since its memory is set aside, and where nothing is set aside the first
in the queue is read even if its message alone is above the bound. So no two halves wait for each other. Clients wait in
turns by user and machine: one that sends many messages delays another user's by one of them. In total there are at most
the bound (or one message) and SMALL_BYTES and one chunk for each connection.

Time: a client must send its message at BYTES_PER_S on average, but may lag GRACE_S behind, and only PRESSED_GRACE_S
while others wait. While its connection waits in the queue, or its command runs, no time is counted. Connections that
are too slow are closed, so memory that is set aside is used or given up. Once one has waited for
PRESSED_GRACE_S, those that have memory may lag only LEAST_GRACE_S behind. So a client that sends does not wait long
behind many of its machine that have stopped.

Source: this bound is this server's own. mongod has only `preAuthMaximumMessageSizeBytes`, the length of a message
before a login, which `connection.channel` applies.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from mongottl.clock import Clock
from mongottl.config import MemoryLimits
from mongottl.exec.state.metrics import Metrics

# Bytes of each message that are read without memory set aside: all of most messages.
SMALL_BYTES: Final = 16 * 1024
# The slowest that a client may send a message on average: 0.5 Mbit/s.
BYTES_PER_S: Final = 64 * 1024
# Seconds by which it may lag behind.
GRACE_S: Final = 30.0
PRESSED_GRACE_S: Final = 3.0
# TCP sends again what was lost after 0.2 seconds.
LEAST_GRACE_S: Final = 0.3
# How often slow clients are looked for, and while others wait.
LOOK_EVERY_S: Final = 1.0
PRESSED_LOOK_EVERY_S: Final = 0.1


class Incoming:
    """The message that one connection has begun.

    name: of the connection. close: ends the connection. is_sending: whether bytes of its client have arrived that were
    not read yet, because the server was busy; then the client is not what is slow. received_bytes: of the
    message, so far. whole_bytes: what it takes when it is whole. owner: whose turn it is when its connection waits.
    waiting_since_s: monotonic time since which it does. reserved_bytes: what is set aside.
    """

    def __init__(self, name: str, remote: str, close: Callable[[], None], is_sending: Callable[[], bool]) -> None:
        self.name = name
        self.remote = remote
        self.close = close
        self.is_sending = is_sending
        self.received_bytes: int = 0
        self.whole_bytes: int = 0
        self.reserved_bytes: int = 0
        self.owner = ""
        self.waiting_since_s = 0.0
        # Monotonic time up to which its client has sent enough; None while that does not matter.
        self.paid_until_s: float | None = None
        # Set while it waits in the queue.
        self.turn: trio.Event | None = None


def _never() -> bool:
    return False


# Stands for the message of a connection of which nothing counts.
NOT_COUNTED: Final = Incoming("", "", lambda: None, _never)


class IncomingMessages:
    """The begun messages of a server's connections."""

    def __init__(
        self, limits: MemoryLimits, metrics: Metrics, clock: Clock, log_slow: Callable[[Incoming], None]
    ) -> None:
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._log_slow = log_slow
        self._begun: set[Incoming] = set()
        # Those that wait, by owner; the owners are in the order of their turns.
        self._queues: dict[str, deque[Incoming]] = {}
        self._any = trio.Event()
        self._ended = False

    def may_read(self, incoming: Incoming, received_bytes: int, whole_bytes: int) -> bool:
        """Notes how much there is of a message that is not whole; whether its connection may receive more at once, or
        has to `wait_turn` first."""
        now_s = self._clock.monotonic_s()
        grown = received_bytes - incoming.received_bytes
        if incoming.paid_until_s is None or grown < 0:
            incoming.paid_until_s = now_s
        else:
            incoming.paid_until_s = min(now_s, incoming.paid_until_s + grown / BYTES_PER_S)
        incoming.received_bytes = received_bytes
        incoming.whole_bytes = whole_bytes
        self._begun.add(incoming)
        self._any.set()
        return received_bytes <= SMALL_BYTES or self.may_take(incoming, whole_bytes)

    def may_take(self, incoming: Incoming, whole_bytes: int) -> bool:
        """Whether memory for the message is set aside, now or before; else the connection has to `wait_turn`."""
        incoming.whole_bytes = whole_bytes
        if incoming.reserved_bytes >= whole_bytes or self._ended:
            return True
        if self._queues or not self._fits(incoming):
            return False
        self._reserve(incoming)
        return True

    async def wait_turn(self, incoming: Incoming, owner: str) -> None:
        """Waits until memory for the message is set aside. owner: the user and machine of its client."""
        turn = incoming.turn = trio.Event()
        incoming.paid_until_s = None
        incoming.owner = owner
        incoming.waiting_since_s = self._clock.monotonic_s()
        self._queues.setdefault(owner, deque()).append(incoming)
        self._metrics.incoming_waiting += 1
        self._give_turns()
        try:
            await turn.wait()
        finally:
            if incoming.turn is not None:  # cancelled
                self._leave_queue(incoming)
                self._give_turns()

    def note_whole(self, incoming: Incoming) -> None:
        """The message is whole, and its command begins. Its memory stays set aside until `forget`."""
        incoming.paid_until_s = None

    def forget(self, incoming: Incoming) -> None:
        """The command is answered, or the connection has ended."""
        self._metrics.incoming_bytes -= incoming.reserved_bytes
        incoming.reserved_bytes = 0
        incoming.received_bytes = 0
        incoming.paid_until_s = None
        self._begun.discard(incoming)
        if self._queues:
            self._give_turns()

    def end(self) -> None:
        """Lets all connections read on, because the server stops."""
        self._ended = True
        self._give_turns()

    async def run(self) -> None:
        """Closes the connections of slow clients, for as long as the server runs."""
        while True:
            if not self._begun:
                self._any = trio.Event()
                await self._any.wait()
            await trio.sleep(min(LOOK_EVERY_S, PRESSED_LOOK_EVERY_S) if self._queues else LOOK_EVERY_S)
            self._close_slow()

    def _fits(self, incoming: Incoming) -> bool:
        others = self._metrics.incoming_bytes - incoming.reserved_bytes
        return others == 0 or others + incoming.whole_bytes <= self._limits.incoming_bytes

    def _reserve(self, incoming: Incoming) -> None:
        self._metrics.incoming_bytes += incoming.whole_bytes - incoming.reserved_bytes
        incoming.reserved_bytes = incoming.whole_bytes

    def _give_turns(self) -> None:
        """Sets memory aside for those who wait, an owner after the other, until there is no more."""
        while self._queues:
            owner = next(iter(self._queues))
            first = self._queues[owner][0]
            if not self._ended and not self._fits(first):
                return
            assert first.turn is not None
            first.turn.set()
            self._leave_queue(first)
            self._reserve(first)
            if owner in self._queues:  # whose next turn comes after all others'
                self._queues[owner] = self._queues.pop(owner)

    def _leave_queue(self, incoming: Incoming) -> None:
        incoming.turn = None
        queue = self._queues[incoming.owner]
        queue.remove(incoming)
        if not queue:
            del self._queues[incoming.owner]
        self._metrics.incoming_waiting -= 1

    def _close_slow(self) -> None:
        now_s = self._clock.monotonic_s()
        grace_s = PRESSED_GRACE_S if self._queues else GRACE_S
        reading_grace_s = self._reading_grace_s(now_s)
        for incoming in list(self._begun):
            if incoming.paid_until_s is None:
                continue
            lag_s = now_s - incoming.paid_until_s
            if lag_s > (reading_grace_s if incoming.reserved_bytes else grace_s) and not incoming.is_sending():
                self._metrics.incoming_closed += 1
                self._log_slow(incoming)
                incoming.close()
                incoming.paid_until_s = None

    def _reading_grace_s(self, now_s: float) -> float:
        """How far a client may lag for whose message memory is set aside."""
        if not self._queues:
            return GRACE_S
        waited_s = now_s - min([queue[0].waiting_since_s for queue in self._queues.values()])
        return PRESSED_GRACE_S if waited_s < PRESSED_GRACE_S else LEAST_GRACE_S
