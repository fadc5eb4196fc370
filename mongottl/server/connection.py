"""One client's connection: reads requests and sends replies, one request after the other.

Bytes are read and written without trio's stream classes: `recv` and `send` of the transport (`server/transport`) are
tried at once and trio only waits where they would block. While a connection is idle it waits in the poller
(`server/poller`), which has it answer short requests without waking its task; the task does whatever is long or has to
wait.

A request has one reply, none (`moreToCome`), or several (`exhaustAllowed`):

    client   hello/getMore, exhaustAllowed ──►
    server   ◄── reply, moreToCome   ◄── reply, moreToCome   ◄── …   ◄── reply      the last one has no moreToCome

Such a stream of replies ends when there are no further ones, when the client sends another request, when it
disconnects, or when the server stops.
"""

import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from mongottl.errors import HttpRequestError, ProtocolError
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Flush, InThread, Wait
from mongottl.server.driving import SLICE_S, perform
from mongottl.server.incoming import Incoming
from mongottl.server.message_traits import abandon, has_more, may_abandon, may_write
from mongottl.server.poller import Pause
from mongottl.server.shell import Shell
from mongottl.server.transport import Transport
from mongottl.server.transport.tls import HandshakeError, TlsTransport, failure_reason
from mongottl.storage.interface import EngineUnavailable
from mongottl.wire.connection import WireConnection
from mongottl.wire.encode import encode_reply, encode_reply_to
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    MAX_MESSAGE_SIZE,
    MORE_TO_COME,
    NOT_COMPRESSED,
    NeedData,
    OpMsg,
    Request,
)

RECEIVE_SIZE: Final = 64 * 1024
# The same of a client that has not logged in where users are checked.
STRANGER_RECEIVE_SIZE: Final = 16 * 1024
# A task that has run this long answers clients that wait, and after SLICE_S it lets other tasks run.
LOOK_EVERY_S: Final = 0.00025
# A command that ends within this time is answered by the poller, and never gets to the connection's task.
AT_ONCE_S: Final = 0.0005
# Time limit of the TLS handshake.
HANDSHAKE_S: Final = 10.0
# After the reply to an HTTP request: seconds to wait for the client to close, and bytes to discard meanwhile.
HTTP_CLOSE_S: Final = 1.0
_HTTP_DROPPED_BYTES: Final = 16 << 20
# The text with which mongod answers HTTP requests.
_HTTP_TEXT: Final = b"It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n"
_HTTP_ANSWER: Final = (
    b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(_HTTP_TEXT)
    + _HTTP_TEXT
)
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

    def __init__(self, server: Shell, sock: socket.socket, tls: TlsTransport | None, client: ClientInfo) -> None:
        self._server = server
        self._socket = sock
        self._tls = tls
        # What is read from and written to: without TLS the socket itself.
        self._transport: Transport = sock if tls is None else tls
        if tls is not None:
            host = client.host
            tls.on_first_byte = lambda: server.tls_hosts.note(host)
        self._client = client
        self._wire = WireConnection()
        self._last_reply_id = 0
        self._clock = server.clock
        # The message that has come in part, or is not answered yet, if its memory counts.
        self._incoming: Incoming | None = None
        # Where users are checked, the length of messages depends on whether the client has logged in.
        self._authorizes = server.service.authorizes
        self._receive_size = RECEIVE_SIZE
        # What the poller has begun and left to the task: an error, or a message with as much of its answer as there is.
        self._error: Exception | None = None
        self._message: Request | None = None
        self._outcome: bytes | Steps[bytes] | None = None
        self._step: Wait | Flush | InThread | None = None
        self._unsent = b""
        # What the poller answers now, and whether the client may have sent more.
        self._handled: Request | None = None
        self._full = True
        # Set while that answer waits in the poller.
        self._pause: Pause | None = None

    async def run(self) -> None:
        """Serves the connection until the client leaves, breaks the protocol, or the server stops."""
        log = self._server.log
        try:
            if self._tls is None:
                await self._serve()
            elif await self._shake_hands(self._tls):
                await self._serve_over(self._tls)
        except ProtocolError as error:
            log.warning("network", "Protocol error", self._name, remote=self._client.remote, error=str(error))
            if isinstance(error, HttpRequestError):
                await self._answer_http()
        except OSError:
            pass  # the client has disconnected
        except Exception as error:
            log.exception("network", "Connection failed", error, self._name, remote=self._client.remote)
        finally:
            self._end_pause()
            if self._incoming is not None:
                self._settle_message()
            if self._tls is not None:
                self._tls.close()

    async def _answer_http(self) -> None:
        """Answers an HTTP client, in HTTP, that the port has another protocol. Nothing that it has sent is run."""
        with suppress(OSError), trio.move_on_after(HTTP_CLOSE_S):
            await self._send(_HTTP_ANSWER)
            if self._tls is not None:
                return
            self._socket.shutdown(socket.SHUT_WR)
            # If the connection were closed with bytes unread, the client could lose the answer.
            dropped = 0
            while dropped < _HTTP_DROPPED_BYTES:
                await trio.lowlevel.checkpoint()
                try:
                    data = self._socket.recv(RECEIVE_SIZE)
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(self._socket)
                    continue
                if not data:
                    return
                dropped += len(data)

    async def _shake_hands(self, tls: TlsTransport) -> bool:
        """Does the TLS handshake; whether it succeeded."""
        reason = "the client has not ended the handshake in time"
        with trio.move_on_after(HANDSHAKE_S):
            try:
                await tls.handshake()
                self._client.subject = tls.client_subject()
                return True
            except HandshakeError as error:
                reason = str(error)
        self._server.log.warning(
            "network", "TLS handshake failed", self._name, remote=self._client.remote, reason=reason
        )
        return False

    async def _serve_over(self, tls: TlsTransport) -> None:
        """Serves a client after its TLS handshake; a warning if it leaves before its first byte.

        With TLS 1.3 the server's handshake is over before the client has looked at the certificate. .NET's driver then
        closes the connection, others send an alert. No warning while clients of the same machine do begin to speak:
        drivers also close connections that they have just opened, when their client ends.
        """
        reason = "the client has left without a word, as drivers do that do not trust the server's certificate"
        server = self._server
        host = self._client.host
        try:
            await self._serve()
        except ssl.SSLError as error:
            reason = failure_reason(error)
            raise
        finally:
            if not tls.has_received and not server.stopping.is_set() and not server.tls_hosts.has_spoken(host):
                server.log.warning(
                    "network", "TLS ended before the first byte", self._name, remote=self._client.remote, reason=reason
                )

    @property
    def _name(self) -> str:
        return f"conn{self._client.connection_id}"

    def stop_reading(self) -> None:
        """Ends the connection when the present request is answered: from now on reads see the client's side as
        closed."""
        with suppress(OSError):  # closed already
            self._socket.shutdown(socket.SHUT_RD)

    def close_socket(self) -> None:
        """In a process that was forked from the server's: closes its copy of the socket."""
        self._socket.close()

    async def _serve(self) -> None:
        wire = self._wire
        metrics = self._server.service.metrics
        transport = self._transport
        burst = 0
        while True:
            if self._pause is not None:
                await self._wait_in_poller()
                continue
            message = self._message
            if message is not None:
                await self._go_on(message)
                if self._incoming is not None:
                    self._settle_message()
                continue
            if self._authorizes:
                self._bound_messages()
            if wire.next_is_compressed:
                await self._reserve_decompressed()
                received = await trio.to_thread.run_sync(wire.next_message)
            else:
                while wire.next_is_long and not wire.prepare_next():
                    await trio.lowlevel.checkpoint()
                received = wire.next_message()
            if not isinstance(received, NeedData):
                if self._incoming is not None:
                    self._server.incoming.note_whole(self._incoming)
                if not await self._answer(received):
                    burst = 0
                    continue  # at once: what pauses is resumed only while this task waits in the poller
                if self._incoming is not None:
                    self._settle_message()
            else:
                if (wire.unread_size or self._incoming is not None) and not self._may_receive():
                    burst = 0
                    await self._wait_for_memory()
                    continue
                try:
                    data = transport.recv(self._receive_size)
                except BlockingIOError:
                    if self._server.stopping.is_set():
                        return
                    burst = 0
                    await self._wait_in_poller()
                    continue
                if not data:
                    return
                metrics.bytes_in += len(data)
                wire.receive_data(data)
            burst += 1
            if burst >= BURST:
                burst = 0
                await trio.lowlevel.checkpoint()

    async def _wait_in_poller(self) -> None:
        """Waits until there is something to do for this task: a message to read or to go on with."""
        await self._server.poller.wait(self._socket, self.answer_ready, self.answer_left)
        if self._error is not None:
            raise self._error from None

    def answer_ready(self) -> bool:
        """Answers those messages that the client has sent and that can be answered at once; for the poller.

        False: the connection's task has to go on.
        """
        try:
            return self._answer_ready() if self._pause is None else self._interrupt()
        except Exception as error:
            self._error = error
            return False

    def _answer_ready(self) -> bool:
        wire = self._wire
        server = self._server
        dispatcher = server.dispatcher
        metrics = server.service.metrics
        transport = self._transport
        full = True  # whether the latest chunk was as long as can be, so that more may be there
        for _ in range(BURST):
            if self._authorizes:
                self._bound_messages()
            if wire.next_is_compressed or wire.next_is_long:
                return False
            message = wire.next_message()
            if isinstance(message, NeedData):
                if (wire.unread_size or self._incoming is not None) and not self._may_receive():
                    return False
                if not full:
                    return True
                try:
                    data = transport.recv(self._receive_size)
                except BlockingIOError:
                    return True
                if not data:
                    return False
                full = len(data) >= self._receive_size
                metrics.bytes_in += len(data)
                wire.receive_data(data)
                continue
            if self._incoming is not None:
                server.incoming.note_whole(self._incoming)
            if server.durability.holds_writers and may_write(message):
                self._message = message
                return False
            self._handled = message
            self._full = full
            outcome = dispatcher.handle(message, self._client)
            if not isinstance(outcome, bytes):
                return self.answer_left(outcome)
            if not self._send_at_once(message, outcome):
                return False
            if wire.unread_size == 0 and not full:
                return True
        return wire.unread_size == 0

    def answer_left(self, steps: Steps[bytes]) -> bool:
        """Goes on with a command that was left while `answer_ready` answered; answers as that."""
        message = self._handled
        assert message is not None
        try:
            outcome = self._begin(steps)
            if not self._full and self._pauses(message, outcome):
                return True
            sent = self._send_at_once(message, outcome)
        except Exception as error:
            self._error = error
            return False
        return sent and self._wire.unread_size == 0 and not self._full

    def _send_at_once(self, message: Request, outcome: bytes | Steps[bytes]) -> bool:
        """Sends the only reply to a message; False if the connection's task has to."""
        if (
            not isinstance(outcome, bytes)
            or (message.compressor != NOT_COMPRESSED and len(outcome) >= LONG_REPLY_BYTES)
            or not message.expects_reply
            or (isinstance(message, OpMsg) and message.exhaust_allowed)
        ):
            self._message = message
            self._outcome = outcome
            return False
        self._last_reply_id += 1
        reply = encode_reply_to(message, self._last_reply_id, outcome)
        try:
            sent = self._transport.send(reply)
        except BlockingIOError:
            sent = 0
        self._server.service.metrics.bytes_out += sent
        if sent < len(reply):
            self._message = message
            self._unsent = reply[sent:]
            return False
        if self._incoming is not None:
            self._settle_message()
        return True

    def _settle_message(self) -> None:
        """Gives back the memory of a message that is answered."""
        assert self._incoming is not None
        self._server.incoming.forget(self._incoming)
        self._incoming = None

    def _may_receive(self) -> bool:
        """Counts the received bytes of a message that is not whole; whether more of it may be received at once."""
        messages = self._server.incoming
        wire = self._wire
        size_bytes = wire.unread_size
        if size_bytes == 0:
            if self._incoming is not None:
                self._settle_message()
            return True
        return messages.may_read(self._begun_message(), size_bytes, wire.next_whole_size)

    def _begun_message(self) -> Incoming:
        if self._incoming is None:
            self._incoming = Incoming(self._name, self._client.remote, self.stop_reading, self._is_sending)
        return self._incoming

    def _is_sending(self) -> bool:
        """Whether the client has sent bytes that were not read yet."""
        return self._peek_client_state() == _TALKING

    async def _reserve_decompressed(self) -> None:
        """Waits for the memory of a compressed message that is whole: a few bytes may become 48 MB."""
        if not self._server.incoming.may_take(self._begun_message(), self._wire.next_whole_size):
            await self._wait_for_memory()

    async def _wait_for_memory(self) -> None:
        """Waits until memory for the message that has begun is set aside."""
        assert self._incoming is not None
        login = self._client.login
        host = self._client.host
        await self._server.incoming.wait_turn(self._incoming, host if login is None else f"{login.user} {host}")

    def _bound_messages(self) -> None:
        """Bounds the length of messages before a login, as mongod does."""
        if self._client.login is not None:
            self._wire.max_message_bytes = MAX_MESSAGE_SIZE
            self._receive_size = RECEIVE_SIZE
        else:
            self._wire.max_message_bytes = self._server.service.limits.pre_auth_message_bytes
            self._receive_size = STRANGER_RECEIVE_SIZE

    def _pauses(self, message: Request, outcome: bytes | Steps[bytes]) -> bool:
        """Whether a command waits for a signal, which it then does in the poller.

        Its client has sent nothing after it, and may leave without the command's result.
        """
        step = self._step
        if isinstance(outcome, bytes) or not isinstance(step, Wait) or step.signal is None:
            return False
        if self._wire.unread_size or not message.expects_reply:
            return False
        if isinstance(message, OpMsg) and message.exhaust_allowed:
            return False
        server = self._server
        if server.stopping.is_set() or not may_abandon(message):
            return False
        self._step = None
        self._message = message
        self._outcome = outcome
        self._pause = server.poller.pause(self._socket, step.seconds, step.signal, self._resume)
        return True

    def _resume(self) -> bool:
        """Goes on with a command after its pause; answers as `answer_ready`."""
        message = self._message
        steps = self._outcome
        assert message is not None and steps is not None and not isinstance(steps, bytes)
        self._pause = None
        self._message = None
        self._outcome = None
        try:
            outcome = self._begin(steps)
            return self._pauses(message, outcome) or self._send_at_once(message, outcome)
        except Exception as error:
            self._error = error
            return False

    def _interrupt(self) -> bool:
        """Ends the pause of a command if its client has sent something or has disconnected, or the server stops."""
        client = self._peek_client_state()
        if client == _SILENT and not self._server.stopping.is_set():
            return True
        if client == _GONE:
            self._end_pause()
            raise ClientLeftError
        assert self._pause is not None
        self._pause.end()
        self._pause = None
        return False

    def _end_pause(self) -> None:
        """Ends the command that pauses, if there is one."""
        pause = self._pause
        if pause is None:
            return
        pause.end()
        self._pause = None
        if not isinstance(self._outcome, bytes) and self._outcome is not None:
            self._outcome.close()
        self._message = None
        self._outcome = None

    def _begin(self, steps: Steps[bytes]) -> bytes | Steps[bytes]:
        """The reply of a command that ends within AT_ONCE_S, else the steps that are left of it."""
        until_s = self._clock.monotonic_s() + AT_ONCE_S
        try:
            while (step := next(steps)) is None:
                if self._clock.monotonic_s() >= until_s:
                    return steps
        except StopIteration as stop:
            reply: bytes = stop.value
            return reply
        self._step = step
        return steps

    async def _go_on(self, message: Request) -> None:
        """Does the rest of what the poller has begun for a message."""
        outcome = self._outcome
        unsent = self._unsent
        self._message = None
        self._outcome = None
        self._unsent = b""
        if unsent:
            await self._send(unsent)
        elif outcome is None:
            await self._answer(message)
        else:
            await self._reply(message, outcome)

    async def _answer(self, message: Request) -> bool:
        """Answers a message; False if its command pauses."""
        dispatcher = self._server.dispatcher
        if self._server.durability.holds_writers and may_write(message):
            await self._server.durability.wait_until_writers_may_go()
        outcome = dispatcher.handle(message, self._client)
        if not isinstance(outcome, bytes) and self._server.poller.takes_pauses:
            outcome = self._begin(outcome)
            if self._pauses(message, outcome):
                return False
        await self._reply(message, outcome)
        return True

    async def _reply(self, message: Request, outcome: bytes | Steps[bytes]) -> None:
        """Sends the reply to a message, or all of them; outcome: the first reply, or the steps to it."""
        if isinstance(outcome, bytes):
            body = outcome
        else:
            body = await self._drive(outcome, may_abandon(message))
        if not message.expects_reply:
            return
        if (
            isinstance(message, OpMsg)
            and message.exhaust_allowed
            and has_more(message, body, self._server.service.features)
        ):
            await self._stream(message, body)
            return
        self._last_reply_id += 1
        if message.compressor != NOT_COMPRESSED and len(body) >= LONG_REPLY_BYTES:
            data = await trio.to_thread.run_sync(encode_reply_to, message, self._last_reply_id, body)
        else:
            data = encode_reply_to(message, self._last_reply_id, body)
        await self._send(data)

    def _has_more(self, message: OpMsg, reply: bytes) -> bool:
        return has_more(message, reply, self._server.service.features)

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
                more = (
                    client == _SILENT
                    and has_more(message, body, self._server.service.features)
                    and not self._server.stopping.is_set()
                )
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
            abandon(message, self._server.service.cursors)
            raise

    async def _drive(self, steps: Steps[bytes], may_abandon: bool) -> bytes:
        """Runs the steps of a command; other tasks run every SLICE_S, and clients that wait are answered.

        may_abandon: whether to end it with ClientLeftError when the client disconnects.
        """
        monotonic_s = self._clock.monotonic_s
        look_at = monotonic_s() + LOOK_EVERY_S
        slice_end = look_at + SLICE_S - LOOK_EVERY_S
        error: EngineUnavailable | None = None
        begun = self._step
        self._step = None
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
                if step is None:
                    now_s = monotonic_s()
                    if now_s < look_at:
                        continue
                    if now_s < slice_end and not self._server.poller.answer_ready():
                        look_at = monotonic_s() + LOOK_EVERY_S
                        continue
                    if may_abandon and self._peek_client_state() == _GONE:
                        raise ClientLeftError
                    await trio.lowlevel.checkpoint()
                    if not may_abandon and self._server.durability.holds_writers:
                        await self._server.durability.wait_until_writers_may_go()
                else:
                    until = partial(self._client_or_end, isinstance(step, Wait) and (may_abandon or step.may_abandon))
                    error = await perform(step, self._server.durability, until)
                look_at = monotonic_s() + LOOK_EVERY_S
                slice_end = look_at + SLICE_S - LOOK_EVERY_S
        finally:
            steps.close()

    async def _client_or_end(self, may_abandon: bool) -> ClientLeftError | None:
        """Waits until the server stops, or until the client sends something or disconnects: then ClientLeftError."""
        stopping = self._server.stopping
        if may_abandon and self._wire.unread_size == 0 and self._peek_client_state() != _TALKING:
            state = _SILENT
            while state == _SILENT:  # under TLS the socket may have a part of a record
                await trio.lowlevel.wait_readable(self._socket)
                if stopping.is_set():
                    return None  # what made it readable was `stop_reading`
                state = self._peek_client_state()
            return ClientLeftError() if state == _GONE else None
        await stopping.wait()
        return None

    def _peek_client_state(self) -> int:
        """Whether the client has sent something, nothing, or has disconnected; does not wait, and consumes no bytes."""
        try:
            return _TALKING if self._transport.recv(1, socket.MSG_PEEK) else self._closed()
        except BlockingIOError:
            return _SILENT
        except OSError:
            return _GONE

    def _closed(self) -> int:
        # When the server stops, `stop_reading` has closed the client's side, not the client.
        return _SILENT if self._server.stopping.is_set() else _GONE

    async def _send(self, data: bytes) -> None:
        self._server.service.metrics.bytes_out += len(data)
        transport = self._transport
        sent = 0
        view = memoryview(data)
        while True:
            try:
                sent += transport.send(view[sent:] if sent else data)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            if sent == len(data):
                return
            if self._tls is not None:
                # A long message is encrypted in parts, and a fast client leaves no time to others.
                await trio.lowlevel.checkpoint()
