"""One client's connection: reads requests and sends replies, one request after the other.

Plain TCP is read and written without trio's stream classes: `recv` and `send` are tried at once and trio only waits
where they would block (measured: 25 µs of CPU per message instead of 36 to 44).

A request has one reply, none (`moreToCome`), or several (`exhaustAllowed`):

    client   hello/getMore, exhaustAllowed ──►
    server   ◄── reply, moreToCome   ◄── reply, moreToCome   ◄── …   ◄── reply      the last one has no moreToCome

Such a stream of replies ends when there are no further ones, when the client sends another request, when it
disconnects, or when the server stops.
"""

import socket
from contextlib import suppress
from typing import Final

import trio

from mongottl.errors import ProtocolError
from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.steps import Flush, Steps, Wait
from mongottl.server.shell import Shell
from mongottl.storage.interface import EngineUnavailable
from mongottl.wire.connection import WireConnection
from mongottl.wire.encode import encode_reply, encode_reply_to
from mongottl.wire.messages import CHECKSUM_PRESENT, MORE_TO_COME, NOT_COMPRESSED, NeedData, OpMsg, OpQuery

RECEIVE_SIZE: Final = 64 * 1024
# A task that has run this long lets others run before it goes on.
SLICE_S: Final = 0.002
# Messages answered or chunks received without waiting for the client, before other connections run.
BURST: Final = 4

# A reply of this length is compressed in another thread: zlib takes a millisecond for every 40 KB.
LONG_REPLY_BYTES: Final = 32 * 1024

# What `_peek_client_state` sees of the client's side of the socket.
_SILENT: Final = 0
_TALKING: Final = 1
_GONE: Final = 2


class ClientLeftError(ConnectionError):
    """The client has disconnected during a command whose result only the client needs."""


class Connection:
    """One connection, and the task that serves it."""

    def __init__(self, server: Shell, sock: socket.socket, client: ClientInfo) -> None:
        self._server = server
        self._socket = sock
        self._client = client
        self._wire = WireConnection()
        self._last_reply_id = 0
        self._clock = server.clock

    async def run(self) -> None:
        """Serves the connection until the client leaves, breaks the protocol, or the server stops."""
        log = self._server.log
        try:
            await self._serve()
        except ProtocolError as error:
            log.warning("network", "Protocol error", self._name, remote=self._client.remote, error=str(error))
        except OSError:
            pass  # the client has disconnected
        except Exception as error:
            log.exception("network", "Connection failed", error, self._name, remote=self._client.remote)

    @property
    def _name(self) -> str:
        return f"conn{self._client.connection_id}"

    def stop_reading(self) -> None:
        """Ends the connection when the present request is answered: from now on reads see the client's side as
        closed."""
        with suppress(OSError):  # closed already
            self._socket.shutdown(socket.SHUT_RD)

    async def _serve(self) -> None:
        wire = self._wire
        metrics = self._server.service.metrics
        sock = self._socket
        burst = 0
        while True:
            if wire.next_is_compressed:
                message = await trio.to_thread.run_sync(wire.next_message)
            else:
                message = wire.next_message()
            if isinstance(message, NeedData):
                try:
                    data = sock.recv(RECEIVE_SIZE)
                except BlockingIOError:
                    if self._server.stopping.is_set():
                        return
                    burst = 0
                    await trio.lowlevel.wait_readable(sock)
                    continue
                if not data:
                    return
                metrics.bytes_in += len(data)
                wire.receive_data(data)
            else:
                await self._answer(message)
            burst += 1
            if burst >= BURST:
                burst = 0
                await trio.lowlevel.checkpoint()

    async def _answer(self, message: OpMsg | OpQuery) -> None:
        dispatcher = self._server.dispatcher
        if self._server.durability.holds_writers and dispatcher.may_write(message):
            await self._server.durability.wait_until_writers_may_go()
        outcome = dispatcher.handle(message, self._client)
        if isinstance(outcome, bytes):
            body = outcome
        else:
            body = await self._drive(outcome, dispatcher.may_abandon(message))
        if isinstance(message, OpMsg):
            if message.more_to_come:
                return
            if message.exhaust_allowed and dispatcher.has_more(message, body):
                await self._stream(message, body)
                return
        self._last_reply_id += 1
        if message.compressor != NOT_COMPRESSED and len(body) >= LONG_REPLY_BYTES:
            data = await trio.to_thread.run_sync(encode_reply_to, message, self._last_reply_id, body)
        else:
            data = encode_reply_to(message, self._last_reply_id, body)
        await self._send(data)

    async def _stream(self, message: OpMsg, body: bytes) -> None:
        """Sends all replies to a request that allows several; each but the last has the flag `moreToCome`."""
        dispatcher = self._server.dispatcher
        response_to = message.request_id
        checksum = message.flags & CHECKSUM_PRESENT
        try:
            while True:
                client = _TALKING if self._wire.unread_size else self._peek_client_state()
                if client == _GONE:
                    raise ClientLeftError
                more = client == _SILENT and dispatcher.has_more(message, body) and not self._server.stopping.is_set()
                self._last_reply_id += 1
                flags = checksum | (MORE_TO_COME if more else 0)
                if message.compressor != NOT_COMPRESSED and len(body) >= LONG_REPLY_BYTES:
                    data = await trio.to_thread.run_sync(
                        encode_reply, self._last_reply_id, response_to, body, flags, message.compressor
                    )
                else:
                    data = encode_reply(self._last_reply_id, response_to, body, flags, message.compressor)
                await self._send(data)
                if not more:
                    return
                response_to = self._last_reply_id
                await trio.lowlevel.checkpoint()
                outcome = dispatcher.handle(message, self._client)
                body = outcome if isinstance(outcome, bytes) else await self._drive(outcome, True)
        except OSError:
            dispatcher.abandon(message)
            raise

    async def _drive(self, steps: Steps[bytes], may_abandon: bool) -> bytes:
        """Runs the steps of a command; other tasks run every SLICE_S.

        may_abandon: whether to end it with ClientLeftError when the client disconnects.
        """
        monotonic_s = self._clock.monotonic_s
        slice_end = monotonic_s() + SLICE_S
        error: Exception | None = None
        try:
            while True:
                try:
                    step = next(steps) if error is None else steps.throw(error)
                except StopIteration as stop:
                    reply: bytes = stop.value
                    return reply
                error = None
                if step is None:
                    if monotonic_s() < slice_end:
                        continue
                    if may_abandon and self._peek_client_state() == _GONE:
                        raise ClientLeftError
                    await trio.lowlevel.checkpoint()
                    if not may_abandon and self._server.durability.holds_writers:
                        await self._server.durability.wait_until_writers_may_go()
                elif isinstance(step, Wait):
                    await self._wait(step, may_abandon)
                elif isinstance(step, Flush):
                    try:
                        await self._server.durability.flush()
                    except EngineUnavailable as failure:
                        error = failure  # thrown into the command, which answers with it
                slice_end = monotonic_s() + SLICE_S
        finally:
            steps.close()

    async def _wait(self, step: Wait, may_abandon: bool) -> None:
        """Waits as long as the step says, or until its signal, until the server stops, or until the client sends
        something or disconnects."""
        stopping = self._server.stopping
        signal = step.signal
        with trio.move_on_after(step.seconds) as scope:
            if signal is not None:
                if signal.notified:
                    return
                signal.wake = scope.cancel
            try:
                if may_abandon and self._wire.unread_size == 0 and self._peek_client_state() != _TALKING:
                    await trio.lowlevel.wait_readable(self._socket)
                    if self._peek_client_state() == _GONE:
                        raise ClientLeftError
                else:
                    await stopping.wait()
            finally:
                if signal is not None:
                    signal.wake = None

    def _peek_client_state(self) -> int:
        """Whether the client has sent something, nothing, or has disconnected; does not wait, and consumes no bytes."""
        try:
            return _TALKING if self._socket.recv(1, socket.MSG_PEEK) else self._closed()
        except BlockingIOError:
            return _SILENT
        except OSError:
            return _GONE

    def _closed(self) -> int:
        # When the server stops, `stop_reading` has closed the client's side, not the client.
        return _SILENT if self._server.stopping.is_set() else _GONE

    async def _send(self, data: bytes) -> None:
        self._server.service.metrics.bytes_out += len(data)
        sock = self._socket
        sent = 0
        view = memoryview(data)
        while sent < len(data):
            try:
                sent += sock.send(view[sent:] if sent else data)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(sock)
