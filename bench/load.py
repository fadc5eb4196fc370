"""A raw-socket client: OP_MSG requests prepared as bytes, sent from one epoll loop over many connections.

For a small command a driver needs several times the CPU of the server, so a load made by a driver measures the driver.
Here a request is a byte string in which at most the request id and one `_id` are patched, and a reply is read by its
length; every reply is searched for `ok: 1`, and one in 500 is decoded and checked in full.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from bench.documents import ID_NUMBER, id_of
from bench.measure import percentile

_OP_MSG = 2013
_HEADER = struct.Struct("<iiii")
_INT32 = struct.Struct("<i")
_REPLY_BODY = 16 + 4 + 1  # Header, flag bits, kind of the first section.
_OK = (b"\x01ok\0\0\0\0\0\0\0\xf0\x3f", b"\x10ok\0\x01\0\0\0")  # As a double and as an int32: servers differ.
_CHECK_EVERY = 500
_PLACEHOLDER = 0x5AC3_1F27  # A number whose bytes occur nowhere else in a request.
_REPLY_TIMEOUT_S = 300.0  # A server that does not reply within this time counts as failed.
_COMMAND_TIMEOUT_S = 180.0  # The time for single commands, which may take long: a million updates, an index build.
_PING_EVERY_S = 0.002

Document = Mapping[str, Any]
Check = Callable[[Document], bool]
Request = Callable[[], bytes | bytearray]


class ReplyError(Exception):
    """The server answered with an error, or with a reply that the workload does not expect."""


def op_msg(body: Document, identifier: str = "", documents: Iterable[bytes | bytearray] = ()) -> bytearray:
    """A request: the body and, with an identifier ("documents", …), a section of kind 1 of these documents."""
    message = bytearray(20)
    message += b"\0"
    message += bson.encode(body)
    if identifier:
        sequence = b"".join(documents)
        name = identifier.encode() + b"\0"
        message += b"\1" + _INT32.pack(4 + len(name) + len(sequence)) + name + sequence
    _HEADER.pack_into(message, 0, len(message), 1, 0, _OP_MSG)
    return message


def reply_document(reply: bytes | bytearray) -> dict[str, Any]:
    """The body of a whole OP_MSG reply."""
    size = _INT32.unpack_from(reply, _REPLY_BODY)[0]
    return bson.decode(reply[_REPLY_BODY : _REPLY_BODY + size])


def constant_request(body: Document) -> Request:
    """Makes requests that differ only in their request id."""
    message = op_msg(body)
    request_id = 1

    def request() -> bytearray:
        nonlocal request_id
        request_id = (request_id + 1) & 0x7FFFFFFF
        _INT32.pack_into(message, 4, request_id)
        return message

    return request


def patched_request(body_with: Callable[[ObjectId], Document], next_number: Callable[[], int]) -> Request:
    """Makes requests that differ in their request id and in the `_id` of a document (see `documents.id_of`).

    body_with: makes the body for an `_id`; called once, to find the offset of the `_id` in it.
    """
    message = op_msg(body_with(id_of(_PLACEHOLDER)))
    offset = message.index(ID_NUMBER.pack(_PLACEHOLDER))
    request_id = 1

    def request() -> bytearray:
        nonlocal request_id
        request_id = (request_id + 1) & 0x7FFFFFFF
        _INT32.pack_into(message, 4, request_id)
        ID_NUMBER.pack_into(message, offset, next_number())
        return message

    return request


class Connection:
    """One connection, one command at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, _COMMAND_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes | bytearray) -> None:
        self._socket.sendall(message)

    def receive_some(self) -> bytes:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ReplyError("the server closed the connection")
        return data

    def receive(self) -> bytes:
        """One whole reply."""
        data = self.receive_some()
        if len(data) >= 16 and len(data) >= _INT32.unpack_from(data, 0)[0]:
            return data
        whole = bytearray(data)
        while len(whole) < 16 or len(whole) < _INT32.unpack_from(whole, 0)[0]:
            whole += self.receive_some()
        return bytes(whole)

    def command(
        self, body: Document, identifier: str = "", documents: Iterable[bytes | bytearray] = ()
    ) -> dict[str, Any]:
        """Runs a command. ReplyError when it, or one of its writes, fails."""
        self.send(op_msg(body, identifier, documents))
        reply = reply_document(self.receive())
        if reply.get("ok") != 1 or reply.get("writeErrors"):
            raise ReplyError(f"{next(iter(body))}: {str(reply)[:300]}")
        return reply

    def raw_command(self, body: Document) -> Mapping[str, Any]:
        """Runs a command; the documents in its reply are decoded only when they are accessed."""
        self.send(op_msg(body))
        reply = RawBSONDocument(self.receive()[_REPLY_BODY:])
        if reply.get("ok") != 1:
            raise ReplyError(f"{next(iter(body))}: {str(reply)[:300]}")
        return reply

    def insert(self, database: str, collection: str, batches: Iterable[Sequence[bytes | bytearray]]) -> int:
        """Inserts documents that are BSON already; returns how many."""
        count = 0
        for batch in batches:
            self.command({"insert": collection, "$db": database, "ordered": True}, "documents", batch)
            count += len(batch)
        return count


@dataclass(frozen=True)
class LoadReading:
    """The result of one run: how many commands were answered, and how many ns each took, in the order of replies."""

    commands: int
    latencies_ns: array[int]


class LoadPool:
    """Connections that each send the next request as soon as the last one is answered, driven by one epoll loop."""

    def __init__(self, address: tuple[str, int], connections: int) -> None:
        self._connections = [Connection(address) for _ in range(connections)]

    def __enter__(self) -> LoadPool:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def run(self, request: Request, check: Check, *, seconds: float, at_most: int | None = None) -> LoadReading:
        """Sends until `seconds` have passed or `at_most` commands are sent, then waits for the last replies.

        ReplyError on the first reply without `ok: 1`, or whose decoded body `check` refuses (one in 500 is asked).
        """
        by_fd = {connection.fileno(): connection for connection in self._connections}
        sent_ns = dict.fromkeys(by_fd, 0)
        partial: dict[int, bytes] = {}
        latencies_ns = array("q")
        now_ns = time.perf_counter_ns
        left = at_most if at_most is not None else 1 << 62
        answered = 0
        ok_double, ok_int32 = _OK
        with select.epoll() as epoll:
            deadline_ns = now_ns() + int(seconds * 1e9)
            outstanding = 0
            for fd, connection in by_fd.items():
                if not left:
                    break
                epoll.register(fd, select.EPOLLIN)
                sent_ns[fd] = now_ns()
                connection.send(request())
                left -= 1
                outstanding += 1
            while outstanding:
                ready = epoll.poll(_REPLY_TIMEOUT_S)
                if not ready:
                    raise ReplyError(f"no reply within {_REPLY_TIMEOUT_S:g} s, {answered} before")
                for fd, _ in ready:
                    connection = by_fd[fd]
                    data = connection.receive_some()
                    if fd in partial:
                        data = partial.pop(fd) + data
                    if len(data) < 16 or len(data) < _INT32.unpack_from(data, 0)[0]:
                        partial[fd] = data
                        continue
                    answered_ns = now_ns()
                    latencies_ns.append(answered_ns - sent_ns[fd])
                    if ok_double not in data and ok_int32 not in data:
                        raise ReplyError(str(reply_document(data))[:300])
                    if answered % _CHECK_EVERY == 0 and not check(reply_document(data)):
                        raise ReplyError(f"not what was asked for: {str(reply_document(data))[:300]}")
                    answered += 1
                    if left and answered_ns < deadline_ns:
                        left -= 1
                        sent_ns[fd] = now_ns()
                        connection.send(request())
                    else:
                        outstanding -= 1
        return LoadReading(answered, latencies_ns)


class Pinger:
    """Pings on a connection of its own, every two milliseconds until the block is left, to measure what other clients
    wait.

    It runs in a thread, so Python code of the block delays its pings; the block should mostly wait for the server.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = Connection(address)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ping)
        self._problem: Exception | None = None
        self._latencies_ns = array("q")

    def __enter__(self) -> Pinger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._connection.close()

    def _ping(self) -> None:
        try:
            while not self._ended.wait(_PING_EVERY_S):
                sent_ns = time.perf_counter_ns()
                self._connection.command({"ping": 1, "$db": "admin"})
                self._latencies_ns.append(time.perf_counter_ns() - sent_ns)
        except Exception as error:
            self._problem = error

    def figures(self) -> dict[str, float]:
        """`ping_p50_ms`, `ping_p99_ms`, `ping_max_ms` and how many there were; after the block."""
        if self._problem is not None:
            raise self._problem
        pings_ns = self._latencies_ns
        return {
            "ping_p50_ms": percentile(pings_ns, 50) / 1e6,
            "ping_p99_ms": percentile(pings_ns, 99) / 1e6,
            "ping_max_ms": max(pings_ns) / 1e6,
            "pings": float(len(pings_ns)),
        }
