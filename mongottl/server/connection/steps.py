"""Runs the steps of a command that takes long or waits, in the task of its connection."""

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Final

import trio

from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Flush, InThread, Step, Wait
from mongottl.server.connection.channel import CLOSED, GONE, SILENT, TALKING, Channel
from mongottl.server.driving import SLICE_S, perform
from mongottl.storage.errors import EngineUnavailable

# A task that has run this long answers clients that wait, and after SLICE_S it lets other tasks run.
LOOK_EVERY_S: Final = 0.00025
# Seconds for which a command goes on whose client has closed its side: it may have sent all that it has to ask, and
# wait for the answers. One that waits longer has probably left.
CLOSED_S: Final = 0.5


class ClientLeftError(ConnectionError):
    """The client has disconnected during a command whose result only the client needs."""


class _Attention:
    """Whether the client of a command still waits for its answer."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # Monotonic time at which it does not any more, if it has closed its side.
        self._until_s = inf

    def has_ended(self) -> bool:
        """Whether it is gone, or has closed its side long ago."""
        client = self._channel.peek_client_state()
        return client == GONE or (client == CLOSED and self._left_s() <= 0.0)

    async def end(self) -> ClientLeftError:
        """Waits until it ends. For ever if the client has sent something, or the server stops."""
        channel = self._channel
        if channel.wire.unread_size == 0:
            client = channel.peek_client_state()
            while client == SILENT and not channel.shell.stopping.is_set():
                await trio.lowlevel.wait_readable(channel.socket)
                client = channel.peek_client_state()
            if client == CLOSED:
                await trio.sleep(max(0.0, self._left_s()))
            if client == CLOSED or client == GONE:
                return ClientLeftError()
        return await trio.sleep_forever()

    def _left_s(self) -> float:
        """For how many seconds more the client may wait, which has closed its side."""
        now_s = self._channel.shell.clock.monotonic_s()
        self._until_s = min(self._until_s, now_s + CLOSED_S)
        return self._until_s - now_s


async def run_steps(channel: Channel, steps: Steps[bytes], begun: Step, may_abandon: bool) -> bytes:
    """The reply of a command; other tasks run every SLICE_S, and clients that wait are answered.

    begun: what the command waits for now, None if it can go on.
    may_abandon: whether to end it with ClientLeftError when the client disconnects; if it has closed its side alone,
    after CLOSED_S.
    """
    attention = _Attention(channel)
    shell = channel.shell
    durability = shell.durability
    monotonic_s = shell.clock.monotonic_s
    look_at = monotonic_s() + LOOK_EVERY_S
    slice_end = look_at + SLICE_S - LOOK_EVERY_S
    error: EngineUnavailable | None = None
    try:
        while True:
            try:
                step = begun
                if step is not None:
                    begun = None
                else:
                    step = next(steps) if error is None else steps.throw(error)
            except StopIteration as stop:
                reply: bytes = stop.value
                return reply
            error = None
            now_s = monotonic_s()
            if step is None and now_s < look_at:
                continue
            # Before other tasks run: of twenty with steps that take long each would go before the clients that wait.
            must_end = now_s >= look_at and shell.poller.answer_ready()
            if step is None:
                if now_s < slice_end and not must_end:
                    look_at = monotonic_s() + LOOK_EVERY_S
                    continue
                if may_abandon and attention.has_ended():
                    raise ClientLeftError
                await trio.lowlevel.checkpoint()
                if not may_abandon and durability.holds_writers:
                    await durability.wait_until_writers_may_go()
            else:
                error = await perform(step, durability, _end_of_wait(channel, attention, step, may_abandon))
            look_at = monotonic_s() + LOOK_EVERY_S
            slice_end = look_at + SLICE_S - LOOK_EVERY_S
    finally:
        steps.close()


def _end_of_wait(
    channel: Channel, attention: _Attention, step: Wait | Flush | InThread, may_abandon: bool
) -> Callable[[], Awaitable[ClientLeftError | None]]:
    """What ends a wait early."""
    may_abandon = isinstance(step, Wait) and (may_abandon or step.may_abandon)
    if isinstance(step, Wait) and step.for_storage:
        return attention.end if may_abandon else trio.sleep_forever
    return partial(_client_or_end, channel, may_abandon)


async def _client_or_end(channel: Channel, may_abandon: bool) -> ClientLeftError | None:
    """Waits until the server stops, or until the client sends something or disconnects: then ClientLeftError."""
    stopping = channel.shell.stopping
    if may_abandon and channel.wire.unread_size == 0 and channel.peek_client_state() != TALKING:
        state = SILENT
        while state == SILENT:  # under TLS the socket may have a part of a record
            await trio.lowlevel.wait_readable(channel.socket)
            if stopping.is_set():
                return None  # what made it readable was `stop_reading`
            state = channel.peek_client_state()
        return None if state == TALKING else ClientLeftError()
    await stopping.wait()
    return None
