"""What HTTP clients are answered, in HTTP: that the port has another protocol. Nothing that they have sent is run."""

import socket
from contextlib import suppress
from typing import Final

import trio

from mongottl.server.connection.channel import RECEIVE_SIZE, Channel
from mongottl.server.connection.replies import send

# After the reply to an HTTP request: seconds to wait for the client to close, and bytes to discard meanwhile.
HTTP_CLOSE_S: Final = 1.0
_HTTP_DROPPED_BYTES: Final = 16 << 20
# The text with which mongod answers HTTP requests.
_HTTP_TEXT: Final = b"It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n"
_HTTP_ANSWER: Final = (
    b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(_HTTP_TEXT)
    + _HTTP_TEXT
)


async def answer_http(channel: Channel) -> None:
    """Sends the answer, and lets the client read it."""
    with suppress(OSError), trio.move_on_after(HTTP_CLOSE_S):
        await send(channel, _HTTP_ANSWER)
        if channel.encrypts:
            return
        channel.socket.shutdown(socket.SHUT_WR)
        # If the connection were closed with bytes unread, the client could lose the answer.
        dropped = 0
        while dropped < _HTTP_DROPPED_BYTES:
            await trio.lowlevel.checkpoint()
            try:
                data = channel.socket.recv(RECEIVE_SIZE)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(channel.socket)
                continue
            if not data:
                return
            dropped += len(data)
