"""The task that serves one connection.

While a connection is idle it waits in the poller (`server/poller`), which has short requests answered without waking
the task (`at_once`). The task does whatever is long or has to wait: what that is, the state of the exchange says.
"""

import socket

import trio

from mongottl.document.freeing import free_some
from mongottl.errors import HttpRequestError, ProtocolError
from mongottl.exec.running.client import ClientInfo
from mongottl.server.connection.at_once import BURST, Answerer
from mongottl.server.connection.channel import Channel
from mongottl.server.connection.exchange import (
    HOLD,
    HTTP,
    HTTP_REQUEST,
    IDLE,
    LONG,
    MEMORY,
    NO_MEMORY,
    QUEUED,
    RECEIVING,
    RELEASE,
    SENT,
    UNPACKING,
    Answered,
    AtOnce,
    Driven,
    Failed,
    Held,
    ImpossibleMoveError,
    Paused,
    Sending,
    State,
)
from mongottl.server.connection.http import answer_http
from mongottl.server.connection.replies import send, send_reply
from mongottl.server.connection.steps import run_steps
from mongottl.server.message_traits import may_abandon, may_write
from mongottl.server.shell import Shell
from mongottl.server.transport import Transport
from mongottl.wire.messages import NeedData, Request


class Connection:
    """One connection, and the task that serves it. channel: its bytes, and its exchange."""

    def __init__(
        self,
        shell: Shell,
        sock: socket.socket,
        transport: Transport,
        client: ClientInfo,
        state: State = IDLE,
        encrypts: bool = False,
    ) -> None:
        self.channel = Channel(shell, sock, transport, client, state, encrypts)
        self._answerer = Answerer(self.channel)

    async def run(self) -> None:
        """Serves the connection until the client leaves, breaks the protocol, or the server stops."""
        channel = self.channel
        log = channel.shell.log
        try:
            await self._serve()
        except ProtocolError as error:
            log.warning("network", "Protocol error", channel.name, remote=channel.client.remote, error=str(error))
            if isinstance(error, HttpRequestError):
                channel.exchange.move(HTTP_REQUEST, HTTP)
                await answer_http(channel)
        except OSError:
            pass  # the client has disconnected
        except Exception as error:
            channel.shell.service.metrics.asserts_internal += 1
            log.exception("network", "Connection failed", error, channel.name, remote=channel.client.remote)
        finally:
            channel.exchange.close()
            channel.forget_memory()

    def stop_reading(self) -> None:
        """Ends the connection when the present request is answered."""
        self.channel.stop_reading()

    def close_socket(self) -> None:
        """In a process that was forked from the server's: closes its copy of the socket."""
        self.channel.socket.close()

    async def _serve(self) -> None:
        """Does what the state of the exchange asks for, until the client leaves or the server stops."""
        channel = self.channel
        exchange = channel.exchange
        burst = 0
        while True:
            state = exchange.state
            if state is IDLE or state is RECEIVING:
                if burst >= BURST:
                    burst = 0
                    await trio.lowlevel.checkpoint()
                burst += 1
                received = await self._next_message()
                if not isinstance(received, NeedData):
                    await self._answer(received)
                    del received
                    while not isinstance(exchange.state, Paused) and free_some():
                        await trio.lowlevel.checkpoint()  # it may have had a million documents
                elif channel.wire.unread_size and not channel.may_receive():
                    burst = 0
                    await self._wait_for_memory()
                else:
                    try:
                        data = channel.transport.recv(channel.receive_size)
                    except BlockingIOError:
                        if channel.shell.stopping.is_set():
                            return
                        burst = 0
                        await self._wait_in_poller()
                        continue
                    if not data:
                        return
                    channel.shell.service.metrics.bytes_in += len(data)
                    channel.wire.receive_data(data)
            elif isinstance(state, Paused):
                # At once: what pauses is resumed only while this task waits in the poller.
                burst = 0
                await self._wait_in_poller()
            else:
                await self._go_on(state)

    async def _wait_in_poller(self) -> None:
        """Waits until there is something to do for this task: a message to read or to go on with."""
        answerer = self._answerer
        poller = self.channel.shell.poller
        await poller.wait(self.channel.socket, answerer.answer_ready, answerer.answer_left, answerer.answer_apart)

    async def _next_message(self) -> Request | NeedData:
        """The next request that is whole. A long one is decompressed or prepared while others run."""
        channel = self.channel
        wire = channel.wire
        if channel.authorizes:
            channel.bound_messages()
        if wire.next_is_compressed:
            # Waits for the memory of all of it: a few bytes may become 48 MB.
            if not channel.shell.incoming.may_take(channel.counted_memory(), wire.next_whole_size):
                await self._wait_for_memory()
            channel.exchange.move(LONG, UNPACKING)
            while not wire.gather_next():
                await trio.lowlevel.checkpoint()
            await trio.to_thread.run_sync(wire.decompress_next)
        elif wire.next_is_long:
            channel.exchange.move(LONG, UNPACKING)
        while wire.next_is_long and not wire.prepare_next():
            await trio.lowlevel.checkpoint()
        return wire.next_message()

    async def _wait_for_memory(self) -> None:
        """Waits until memory for the request that has begun is set aside."""
        channel = self.channel
        login = channel.client.login
        host = channel.client.host
        channel.exchange.move(NO_MEMORY, QUEUED)
        await channel.shell.incoming.wait_turn(channel.memory, host if login is None else f"{login.user} {host}")
        channel.exchange.move(MEMORY, RECEIVING)

    async def _answer(self, message: Request) -> None:
        """Begins to answer a message; what takes long or waits is left to `_go_on`."""
        self._answerer.take(message, True)
        if self.channel.shell.durability.holds_writers and may_write(message):
            self.channel.exchange.move(HOLD, Held(message))
        else:
            self._answerer.answer_for_task(message)

    async def _go_on(self, state: State) -> None:
        """Goes on with an exchange that cannot be ended at once."""
        channel = self.channel
        if isinstance(state, Driven):
            body = await run_steps(channel, state.steps, state.step, may_abandon(state.message))
            self._answerer.reply(state.message, body)
        elif isinstance(state, Answered):
            await send_reply(channel, state)
        elif isinstance(state, Sending):
            await send(channel, state.data, state.sent)
            channel.end_exchange(SENT)
        elif isinstance(state, Held):
            await channel.shell.durability.wait_until_writers_may_go()
            channel.exchange.move(RELEASE, AtOnce(state.message, True))
            self._answerer.answer_for_task(state.message)
        elif isinstance(state, Failed):
            raise state.error from None
        else:
            raise ImpossibleMoveError(f"a task has nothing to do for an exchange that is {type(state).__name__}")
