"""Answers requests within one call, while no other task runs: for the poller, and for the connection's task.

A command that ends within AT_ONCE_S, and whose reply the socket takes as a whole, is answered here. All else moves the
exchange to a state in which the connection's task goes on with it, or pauses it: then it waits for a signal in the
poller.

This is what every short request runs, and it is compiled.
"""

import socket
from typing import Final, final

from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Wait
from mongottl.server.connection.channel import CLOSED, GONE, SILENT, Channel
from mongottl.server.connection.exchange import (
    ANSWER,
    HOLD,
    IDLE,
    INTERRUPT,
    LEAVE,
    MESSAGE,
    RESUME,
    SEND,
    SENT,
    UNWANTED,
    WAIT,
    Answered,
    AtOnce,
    Driven,
    Held,
    ImpossibleMoveError,
    Paused,
    Sending,
)
from mongottl.server.connection.steps import ClientLeftError
from mongottl.server.incoming import NOT_COUNTED
from mongottl.server.message_traits import may_abandon, may_write, touches_no_data
from mongottl.wire.encode import encode_reply_to
from mongottl.wire.messages import NOT_COMPRESSED, NeedData, OpMsg, Request

# A command that ends within this time is answered by the poller, and never gets to the connection's task.
AT_ONCE_S: Final = 0.0005
# Messages answered or chunks received without waiting for the client, before other connections run.
BURST: Final = 4
# The longest request that is answered in the middle of a unit of work.
APART_BYTES: Final = 4096
# A reply of this length is compressed in another thread: zlib takes a millisecond for every 40 KB.
LONG_REPLY_BYTES: Final = 32 * 1024


@final
class Answerer:
    """Answers the requests of one connection."""

    def __init__(self, channel: Channel) -> None:
        shell = channel.shell
        self._channel = channel
        self._exchange = channel.exchange
        self._dispatcher = shell.dispatcher
        self._durability = shell.durability
        self._metrics = shell.service.metrics
        self._clock = shell.clock

    def answer_ready(self) -> bool:
        """Answers those messages that the client has sent and that can be answered at once; for the poller.

        False: the connection's task has to go on.
        """
        try:
            state = self._exchange.state
            return self._interrupt(state) if isinstance(state, Paused) else self._answer_ready()
        except Exception as error:
            self._exchange.fail(error)
            return False

    def _answer_ready(self) -> bool:
        channel = self._channel
        wire = channel.wire
        full = True  # whether the latest chunk was as long as can be, so that more may be there
        for _ in range(BURST):
            if channel.authorizes:
                channel.bound_messages()
            if wire.next_is_compressed or wire.next_is_long:
                return False
            message = wire.next_message()
            if isinstance(message, NeedData):
                if wire.unread_size and not channel.may_receive():
                    return False
                if not full:
                    return True
                try:
                    data = channel.transport.recv(channel.receive_size)
                except BlockingIOError:
                    return True
                if not data:
                    return False
                full = len(data) >= channel.receive_size
                self._metrics.bytes_in += len(data)
                wire.receive_data(data)
                continue
            state = self.take(message, full)
            if self._durability.holds_writers and may_write(message):
                self._exchange.move(HOLD, Held(message))
                return False
            outcome = self._dispatcher.handle(message, channel.client)
            if isinstance(outcome, bytes):
                if not self.reply(message, outcome):
                    return False
            else:
                return self._go_on(state, outcome)
            if wire.unread_size == 0 and not full:
                return True
        return wire.unread_size == 0

    def answer_apart(self) -> bool:
        """Answers the client's request if it touches no data, and leaves all else where it is: for the poller, in the
        middle of a unit of work of another connection.

        False: the connection's task has to go on.
        """
        channel = self._channel
        wire = channel.wire
        if self._exchange.state is not IDLE or wire.unread_size:
            return True
        try:
            try:
                data = channel.transport.recv(APART_BYTES, socket.MSG_PEEK)
            except BlockingIOError:
                return True
            if not touches_no_data(data):
                return not channel.encrypts  # the poller would not see what is decrypted
            wire.receive_data(channel.transport.recv(len(data)))
            self._metrics.bytes_in += len(data)
            message = wire.next_message()
            assert not isinstance(message, NeedData)
            state = self.take(message, True)
            outcome = self._dispatcher.handle(message, channel.client)
            if isinstance(outcome, bytes):
                return self.reply(message, outcome)
            return self._go_on(state, outcome)
        except Exception as error:
            self._exchange.fail(error)
            return False

    def take(self, message: Request, full: bool) -> AtOnce:
        """Begins to answer a whole message. full: whether the client may have sent more after it."""
        channel = self._channel
        if channel.memory is not NOT_COUNTED:
            channel.shell.incoming.note_whole(channel.memory)
        state = AtOnce(message, full)
        self._exchange.move(MESSAGE, state)
        return state

    def answer_left(self, steps: Steps[bytes]) -> bool:
        """Goes on with a command that was left while `answer_ready` answered; answers as that."""
        state = self._exchange.state
        try:
            if not isinstance(state, AtOnce):
                raise ImpossibleMoveError(f"an exchange that is {type(state).__name__} has no command to go on with")
            return self._go_on(state, steps)
        except Exception as error:
            self._exchange.fail(error)
            return False

    def _go_on(self, state: AtOnce, steps: Steps[bytes]) -> bool:
        """Goes on with a command that was left; whether the connection's task has nothing to do."""
        outcome = self._begin(state.message, steps)
        if isinstance(outcome, bytes):
            return self.reply(state.message, outcome) and self._channel.wire.unread_size == 0 and not state.full
        return (not state.full and self._pauses(outcome)) or self._leave(outcome)

    def answer_for_task(self, message: Request) -> None:
        """Runs a command for its connection's task, until it ends, takes long or waits."""
        outcome = self._dispatcher.handle(message, self._channel.client)
        if isinstance(outcome, bytes):
            self.reply(message, outcome)
            return
        if not self._channel.shell.poller.takes_pauses:
            self._leave(Driven(message, outcome, None))
            return
        begun = self._begin(message, outcome)
        if isinstance(begun, bytes):
            self.reply(message, begun)
        elif not self._pauses(begun):
            self._leave(begun)

    def reply(self, message: Request, body: bytes) -> bool:
        """Sends the only reply to a message; False if the connection's task has to."""
        if not message.expects_reply:
            self._channel.end_exchange(UNWANTED)
            return True
        if (message.compressor != NOT_COMPRESSED and len(body) >= LONG_REPLY_BYTES) or (
            isinstance(message, OpMsg) and message.exhaust_allowed
        ):
            self._exchange.move(ANSWER, Answered(message, body))
            return False
        channel = self._channel
        channel.last_reply_id += 1
        reply = encode_reply_to(message, channel.last_reply_id, body)
        try:
            sent = channel.transport.send(reply)
        except BlockingIOError:
            sent = 0
        self._metrics.bytes_out += sent
        if sent < len(reply):
            self._exchange.move(SEND, Sending(reply, sent))
            return False
        channel.end_exchange(SENT)
        return True

    def _begin(self, message: Request, steps: Steps[bytes]) -> bytes | Driven:
        """The reply of a command that ends within AT_ONCE_S, else what is left of it."""
        until_s = self._clock.monotonic_s() + AT_ONCE_S
        try:
            while (step := next(steps)) is None:
                if self._clock.monotonic_s() >= until_s:
                    break
        except StopIteration as stop:
            reply: bytes = stop.value
            return reply
        return Driven(message, steps, step)

    def _leave(self, command: Driven) -> bool:
        """Leaves the rest of a command to the connection's task."""
        self._exchange.move(LEAVE, command)
        return False

    def _pauses(self, command: Driven) -> bool:
        """Whether a command waits for a signal, which it then does in the poller.

        Its client has sent nothing after it, and may leave without the command's result; or the command waits for the
        storage engine, as each of them does with one over a network.
        """
        step = command.step
        if not isinstance(step, Wait):
            return False
        signal = step.signal
        if signal is None:
            return False
        message = command.message
        channel = self._channel
        if channel.wire.unread_size or not message.expects_reply:
            return False
        if isinstance(message, OpMsg) and message.exhaust_allowed:
            return False
        shell = channel.shell
        if shell.stopping.is_set() or not (step.for_storage or may_abandon(message)):
            return False
        pause = shell.poller.pause(channel.socket, step.seconds, signal, self._resume)
        self._exchange.move(WAIT, Paused(message, command.steps, pause, step.for_storage))
        return True

    def _resume(self) -> bool:
        """Goes on with a command after its pause; answers as `answer_ready`."""
        state = self._exchange.state
        try:
            if not isinstance(state, Paused):
                raise ImpossibleMoveError(f"an exchange that is {type(state).__name__} has no pause to end")
            message = state.message
            self._exchange.move(RESUME, AtOnce(message, False))
            outcome = self._begin(message, state.steps)
            if isinstance(outcome, bytes):
                return self.reply(message, outcome)
            return self._pauses(outcome) or self._leave(outcome)
        except Exception as error:
            self._exchange.fail(error)
            return False

    def _interrupt(self, state: Paused) -> bool:
        """Ends the pause of a command if its client has sent something or has disconnected, or the server stops.

        One that waits for the storage engine goes on in the connection's task; so a client that has closed its side
        gets the answer to what it has asked for.
        """
        channel = self._channel
        client = channel.peek_client_state()
        if client == SILENT and not channel.shell.stopping.is_set():
            return True
        if (client == GONE or (client == CLOSED and not state.for_storage)) and may_abandon(state.message):
            raise ClientLeftError
        state.pause.end()
        self._exchange.move(INTERRUPT, Driven(state.message, state.steps, None))
        return False
