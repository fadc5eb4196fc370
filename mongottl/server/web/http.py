"""HTTP/1.1 on trio, by the library h11: requests are read, given to one function, and answered with what it returns.

    client ── head, body ──►  Request ──► answer() ──► Response ──►  whole, or a stream of parts

It is for a page and for monitoring: short requests, few connections, no uploads. Everything that a client can make
large or slow has a limit; a client that exceeds it is answered with the status for that, if HTTP has one, and
disconnected. Where there are as many connections as there may be, a new one takes the place of the one that has waited
longest without sending a whole request. This module knows nothing of the server that it shows.

Source: RFC 9110 and RFC 9112.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import h11
import trio

from mongottl.server.listeners import host_port

# Request line and headers together.
MAX_HEAD_BYTES: Final = 16 * 1024
# Of a filter, which may list some hundred values.
MAX_BODY_BYTES: Final = 16 * 1024
MAX_CONNECTIONS: Final = 64
# Time limits of a whole request, of the TLS handshake, and of sending a whole response or one part of a stream.
REQUEST_S: Final = 10.0
SEND_S: Final = 10.0
# Bytes and seconds of input to drain after an error reply, so that the client can read the reply before the reset.
MAX_DROPPED_BYTES: Final = 16 << 20
DROP_S: Final = 5.0
# Seconds for which a connection is kept without a request.
IDLE_S: Final = 75.0
_RECEIVE_BYTES: Final = 16 * 1024
_ACCEPT_RETRY_S: Final = 0.1
_REFUSED: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Send: TypeAlias = Callable[[bytes], Awaitable[None]]
Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Request(NamedTuple):
    """One request. path: decoded, without the query. headers: by name in lower case. local, remote: "host:port" of the
    two ends."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    local: str
    remote: str


class Response(NamedTuple):
    """What answers a request. parts: None, or a function that sends the body in parts and returns at its end."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    parts: Callable[[Send], Awaitable[None]] | None = None


Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


def text(status: int, message: str, *headers: tuple[str, str]) -> Response:
    """A response of one line."""
    return Response(status, "text/plain; charset=utf-8", f"{message}\n".encode(), headers)


class HttpServer:
    """Serves the connections of one address. failed: called with an exception that `answer` has raised."""

    def __init__(self, answer: Answer, failed: Callable[[Exception], None], context: ssl.SSLContext | None) -> None:
        self._answer = answer
        self._failed = failed
        self._context = context
        self._waiting = _WaitingClients()
        self.connections = 0

    async def run(self, listener: trio.SocketListener) -> None:
        """Accepts connections and serves them until it is cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await listener.accept()
                except trio.ClosedResourceError:
                    return
                except OSError:  # out of file descriptors, for example
                    await trio.sleep(_ACCEPT_RETRY_S)
                    continue
                if self.connections >= MAX_CONNECTIONS and not self._waiting.disconnect_longest():
                    nursery.start_soon(_refuse, stream, self._context is None)
                    continue
                self.connections += 1
                nursery.start_soon(self._serve, stream)

    async def _serve(self, socket_stream: trio.SocketStream) -> None:
        stream: Stream = socket_stream
        try:
            local = host_port(socket_stream.socket.getsockname())
            remote = host_port(socket_stream.socket.getpeername())
            if self._context is not None:
                stream = trio.SSLStream(socket_stream, self._context, server_side=True, https_compatible=True)
                with trio.fail_after(REQUEST_S), self._waiting.waiting():
                    await stream.do_handshake()
            await _Connection(stream, self._answer, self._failed, self._waiting, local, remote).run()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, _DisplacedError):
            pass  # the client has disconnected, is too slow, or has waited longest
        except Exception as error:  # else a fault in one connection would end the whole server
            self._failed(error)
        finally:
            self.connections -= 1
            await trio.aclose_forcefully(stream)


class _DisplacedError(Exception):
    """A new connection has taken the place of this one."""


class _WaitingClients:
    """The connections whose client has to send something before it can be answered, in the order in which they began
    to wait."""

    def __init__(self) -> None:
        self._scopes: dict[trio.CancelScope, None] = {}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a connection waits for its client. _DisplacedError if it is to be disconnected."""
        with trio.CancelScope() as scope:
            self._scopes[scope] = None
            try:
                yield
            finally:
                self._scopes.pop(scope, None)
        if scope.cancelled_caught:
            raise _DisplacedError

    def disconnect_longest(self) -> bool:
        """Disconnects the client that has been waited for longest; False if none is waited for."""
        scope = next(iter(self._scopes), None)
        if scope is None:
            return False
        del self._scopes[scope]
        scope.cancel()
        return True


async def _refuse(stream: trio.SocketStream, may_speak: bool) -> None:
    """Ends a connection that is one too many."""
    try:
        if may_speak:
            with trio.move_on_after(1.0):
                await stream.send_all(_REFUSED)
    except trio.BrokenResourceError:
        pass
    finally:
        await trio.aclose_forcefully(stream)


class _TooLargeError(Exception):
    """The request has a body that is too large."""


class _Connection:
    """One connection: one request after the other."""

    def __init__(
        self,
        stream: Stream,
        answer: Answer,
        failed: Callable[[Exception], None],
        waiting: _WaitingClients,
        local: str,
        remote: str,
    ) -> None:
        self._stream = stream
        self._answer = answer
        self._failed = failed
        self._waiting = waiting
        self._local = local
        self._remote = remote
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def run(self) -> None:
        while True:
            with self._waiting.waiting():
                request = await self._next_request()
            if request is None:
                return
            if isinstance(request, Response):
                await self._refuse(request)
                return
            try:
                response = await self._answer(request)
            except Exception as error:  # whatever it is, the client gets an answer, and the log the trace
                self._failed(error)
                response = text(500, "the server has failed; its log says why")
            await self._send(response, request.method == "HEAD")
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _next_request(self) -> Request | Response | None:
        """The next request, or what refuses it; None if the client has disconnected or sends nothing."""
        if not await self._wait_for_request():
            return None
        try:
            with trio.fail_after(REQUEST_S):
                return await self._request()
        except h11.RemoteProtocolError as error:
            return text(error.error_status_hint, str(error))
        except _TooLargeError:
            return text(413, f"the body of a request may have {MAX_BODY_BYTES} bytes")
        except trio.TooSlowError:
            return text(408, f"a request must be complete within {REQUEST_S:.0f} seconds")

    async def _wait_for_request(self) -> bool:
        """Waits until the next request has begun; False if the client has disconnected or sends nothing."""
        if self._http.trailing_data[0]:
            return True
        with trio.move_on_after(IDLE_S):
            data = await self._stream.receive_some(_RECEIVE_BYTES)
            if data:
                self._http.receive_data(bytes(data))
            return bool(data)
        return False

    async def _request(self) -> Request | None:
        """The request that has begun, None if the client has disconnected meanwhile."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        headers: dict[str, str] = {}
        for raw_name, raw_value in head.headers:
            name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if "content-length" in headers and "transfer-encoding" in headers:
            # Something between the client and here might go by the other one, and see other requests (RFC 9112, 6.3).
            raise h11.RemoteProtocolError("the body has two lengths", 400)
        if int(headers.get("content-length", "0")) > MAX_BODY_BYTES:
            raise _TooLargeError
        if self._http.they_are_waiting_for_100_continue:
            await self._write(h11.InformationalResponse(status_code=100, headers=[]))
        body = b""
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise _TooLargeError
        if not isinstance(event, h11.EndOfMessage):
            return None
        target = head.target.decode("ascii")
        if not target.startswith("/") and "://" in target:
            # Requests to a proxy name the host here, and that counts.
            headers["host"], slash, rest = target.partition("://")[2].partition("/")
            target = slash + rest
        path = unquote(target.partition("?")[0])
        return Request(head.method.decode("ascii"), path, headers, body, self._local, self._remote)

    async def _refuse(self, refusal: Response) -> None:
        """Sends a refusal, and reads what the client still sends, within the limits.

        A connection that is closed with data that nobody has read is reset, and its client may not get to read what
        was sent to it.
        """
        await self._send(refusal._replace(headers=(*refusal.headers, ("Connection", "close"))), False)
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        left = MAX_DROPPED_BYTES
        with trio.move_on_after(DROP_S), self._waiting.waiting():
            while left > 0 and (data := await self._stream.receive_some(_RECEIVE_BYTES)):
                left -= len(data)

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(_RECEIVE_BYTES)))
        return event

    async def _send(self, response: Response, without_body: bool) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = [("Content-Type", response.content_type), *response.headers]
        if response.parts is None:
            headers.append(("Content-Length", str(len(response.body))))
        with trio.fail_after(SEND_S):
            await self._write(h11.Response(status_code=response.status, headers=headers))
        if response.parts is not None and not without_body:
            await response.parts(self._part)
        elif response.body and not without_body:
            await self._part(response.body)
        with trio.fail_after(SEND_S):
            await self._write(h11.EndOfMessage())

    async def _part(self, data: bytes) -> None:
        with trio.fail_after(SEND_S):
            await self._write(h11.Data(data=data))

    async def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send_all(data)
