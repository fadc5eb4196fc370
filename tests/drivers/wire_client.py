"""Commands over a socket, to servers of versions that PyMongo no longer speaks to."""

import select
import socket
import struct
from contextlib import closing
from typing import Any

import bson
from pymongo.uri_parser import parse_uri

from mongottl import RunningServer
from mongottl.document.build import encode
from tests.on_nodes import node_uris
from tests.waiting import PATIENCE_S

# A surrogate stands for a byte that is no UTF-8.
ANY_TEXT: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(unicode_decode_error_handler="surrogateescape")
_OP_MSG = 2013


class WireClient:
    """One connection. `command` answers with the reply, whether it is an error or not."""

    def __init__(self, uri: str) -> None:
        host, port = parse_uri(uri)["nodelist"][0]
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_S)
        self._requests = 0

    def command(self, command: dict[str, Any], database: str = "test") -> dict[str, Any]:
        self.send(command, database)
        return self.reply()

    def send(self, command: dict[str, Any], database: str = "test") -> None:
        self._requests += 1
        body = struct.pack("<IB", 0, 0) + self.encoded({**command, "$db": database})
        self._socket.sendall(struct.pack("<iiii", 16 + len(body), self._requests, 0, _OP_MSG) + body)

    def reply(self) -> dict[str, Any]:
        (length,) = struct.unpack("<i", self._received(4))
        return self.decoded(self._received(length - 4)[12 + 5 :])

    def encoded(self, command: dict[str, Any]) -> bytes:
        return bson.encode(command)

    def decoded(self, reply: bytes) -> dict[str, Any]:
        return bson.decode(reply)

    def has_reply(self) -> bool:
        """Whether something has arrived that was not read."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def refusal(self, command: dict[str, Any], database: str = "test") -> tuple[int, str]:
        """Code and text of the error that answers a command, or of its first write error; (0, "") for success."""
        reply = self.command(command, database)
        failed = reply if not reply["ok"] else next(iter(reply.get("writeErrors", ())), None)
        return (0, "") if failed is None else (failed["code"], failed["errmsg"])

    def end_sending(self) -> None:
        """Closes this side of the connection; what was sent is answered all the same."""
        self._socket.shutdown(socket.SHUT_WR)

    def _received(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionError("the server has closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()


def ask_each_node(server: RunningServer, command: dict[str, Any]) -> list[dict[str, Any]]:
    """The replies of all servers that stand in the place of one to a command on `admin`, which succeeds."""
    replies = []
    for uri in node_uris(server):
        with closing(WireClient(uri)) as wire:
            reply = wire.command(command, "admin")
        assert reply["ok"] == 1, reply
        replies.append(reply)
    return replies


class AnyTextClient(WireClient):
    """Sends surrogates as the bytes that they stand for, and reads such bytes as surrogates."""

    def encoded(self, command: dict[str, Any]) -> bytes:
        return encode(command)

    def decoded(self, reply: bytes) -> dict[str, Any]:
        return bson.decode(reply, ANY_TEXT)
