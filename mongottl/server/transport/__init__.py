"""The bytes of a connection: a plain socket, or TLS above one.

    tls           TLS above a non-blocking socket
    certificates  the server's certificate from files, or one made at start

A connection reads and writes by `recv` and `send`. A non-blocking socket has them, so a plain connection uses the
socket itself, without any layer in between.
"""

from typing import Protocol


class Transport(Protocol):
    """The methods by which a connection reads and writes."""

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """The bytes that the client has sent, about `size` of them at most; empty at the end of its stream.

        All received bytes are returned before BlockingIOError is raised, which says that the socket is not readable.
        flags: `socket.MSG_PEEK` to consume nothing.
        """
        ...

    def send(self, data: bytes | memoryview, /) -> int:
        """Sends bytes; how many were sent.

        BlockingIOError if the socket has no room. It must then be called again with the same bytes.
        """
        ...
