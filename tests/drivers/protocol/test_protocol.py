"""The wire protocol over raw sockets: what no driver sends, and what each message does to its neighbours."""

import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import bson
import pymongo
import pytest
import trio
from bson import Int64
from pymongo.database import Database

import mongottl
from mongottl.config import ServerConfig
from mongottl.server.server import open_server
from mongottl.wire.connection import ClientWireConnection
from mongottl.wire.crc32c import crc32c
from mongottl.wire.encode import encode_op_query, encode_request
from mongottl.wire.messages import CHECKSUM_PRESENT, EXHAUST_ALLOWED, MORE_TO_COME, NeedData, OpMsg, OpReply
from tests.on_nodes import of_replica_set, own_fail_points, own_operations
from tests.on_store import is_wanted
from tests.replies import without_times
from tests.waiting import PATIENCE_S, until

OP_MSG = 2013
OP_QUERY = 2004
OP_COMPRESSED = 2012


class Closed(Exception):
    """The server has closed the connection."""


class Raw:
    """A client made of one socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.wire = ClientWireConnection()
        self.request_id = 0

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, command: dict[str, Any], flags: int = 0, **sequences: list[dict[str, Any]]) -> bytes:
        """The bytes of a request with the next id."""
        self.request_id += 1
        sections = [(name, [bson.encode(d) for d in documents]) for name, documents in sequences.items()]
        return encode_request(self.request_id, bson.encode(command), sections, flags)

    def receive(self) -> OpMsg | OpReply:
        while True:
            message = self.wire.next_message()
            if not isinstance(message, NeedData):
                return message
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                raise Closed from None
            if not data:
                raise Closed
            self.wire.receive_data(data)

    def reply(self) -> dict[str, Any]:
        message = self.receive()
        return without_times(bson.decode(message.body if isinstance(message, OpMsg) else message.documents[0]))

    def run(self, command: dict[str, Any], flags: int = 0, **sequences: list[dict[str, Any]]) -> dict[str, Any]:
        self.send(self.request({**command, "$db": command.get("$db", "test")}, flags, **sequences))
        return self.reply()

    def is_closed(self) -> bool:
        try:
            self.receive()
        except Closed:
            return True
        return False


@pytest.fixture
def connect(server: mongottl.RunningServer) -> Iterator[Callable[[], Raw]]:
    """Opens connections, and closes them in the end."""
    opened: list[Raw] = []

    def open_one() -> Raw:
        opened.append(Raw(server.port))
        return opened[-1]

    yield open_one
    for raw in opened:
        raw.socket.close()


@pytest.fixture
def raw(connect: Callable[[], Raw]) -> Raw:
    return connect()


@pytest.fixture
def bystander(connect: Callable[[], Raw], database: Database[dict[str, Any]]) -> Iterator[Raw]:
    """A connection and data of somebody else, which no mistake of others may touch."""
    database.things.insert_one({"_id": 1, "a": "b"})
    other = connect()
    assert other.run({"ping": 1}) == {"ok": 1.0}
    yield other
    assert other.run({"find": "things", "filter": {}, "$db": database.name})["cursor"]["firstBatch"] == [
        {"_id": 1, "a": "b"}
    ]


def message(body: bytes, opcode: int = OP_MSG, length: int | None = None) -> bytes:
    """A message of anything: header and `body` behind it."""
    return struct.pack("<iiii", 16 + len(body) if length is None else length, 7, 0, opcode) + body


PING = bson.encode({"ping": 1, "$db": "admin"})

# Bytes after which there is no telling where the next message begins, or which no server takes.
FATAL = {
    "length 0": struct.pack("<iiii", 0, 1, 0, OP_MSG),
    "length 15": struct.pack("<iiii", 15, 1, 0, OP_MSG),
    "negative length": struct.pack("<iiii", -1, 1, 0, OP_MSG),
    "length over the maximum": struct.pack("<iiii", 48_000_001, 1, 0, OP_MSG),
    "greatest length": struct.pack("<iiii", 2**31 - 1, 1, 0, OP_MSG),
    "noise": b"\xff" * 64,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x11" * 32,
    "unknown opcode": message(b"\0" * 8, 4711),
    "OP_INSERT": message(b"\0" * 8, 2002),
    "OP_REPLY": message(b"\0" * 20, 1),
    "OP_MSG without flags": message(b""),
    "OP_MSG without sections": message(b"\0\0\0\0"),
    "unknown required flag": message(struct.pack("<IB", 1 << 5, 0) + PING),
    "unknown section kind": message(struct.pack("<IB", 0, 9) + PING),
    "two bodies": message(struct.pack("<IB", 0, 0) + PING + b"\0" + PING),
    "body longer than the message": message(struct.pack("<IB", 0, 0) + struct.pack("<i", 500) + PING[4:]),
    "truncated body": message(struct.pack("<IB", 0, 0) + PING[:-4]),
    "body without its end": message(struct.pack("<IB", 0, 0) + PING[:-1] + b"\1"),
    "sequence longer than the message": message(struct.pack("<IBi", 0, 1, 500) + b"documents\0"),
    "wrong checksum": message(struct.pack("<IB", CHECKSUM_PRESENT, 0) + PING + b"\1\2\3\4"),
    "OP_QUERY without end": message(b"\0\0\0\0admin.$cmd", OP_QUERY),
    "unknown compressor": message(struct.pack("<iiB", OP_MSG, 26, 77) + b"\0" * 26, OP_COMPRESSED),
    "damaged zlib": message(struct.pack("<iiB", OP_MSG, 26, 2) + b"\0" * 26, OP_COMPRESSED),
    "compressed length over the maximum": message(struct.pack("<iiB", OP_MSG, 2**31 - 1, 2), OP_COMPRESSED),
    "compressed twice": message(struct.pack("<iiB", OP_COMPRESSED, 26, 0) + b"\0" * 26, OP_COMPRESSED),
}


@pytest.mark.parametrize("data", list(FATAL.values()), ids=list(FATAL))
def test_protocol_errors_close_only_their_own_connection(bystander: Raw, raw: Raw, data: bytes) -> None:
    raw.send(data)
    assert raw.is_closed()


INSERT = bson.encode({"insert": "http", "documents": [{"_id": 1}], "$db": "test"})


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("size", [0, 4_000_000])
def test_http_is_answered_in_http_and_nothing_of_it_is_run(bystander: Raw, raw: Raw, method: str, size: int) -> None:
    """Even if a web page makes a browser send a message of the wire protocol in the body of a request."""
    run = message(struct.pack("<IB", 0, 0) + INSERT)
    head = f"{method} /test HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(run) + size}\r\n\r\n".encode()
    raw.send(head + run + b"x" * size)
    raw.socket.shutdown(socket.SHUT_WR)
    answer = b""
    while data := raw.socket.recv(65536):
        answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert first == "HTTP/1.0 200 OK"
    assert {"Content-Type: text/plain", f"Content-Length: {len(body)}", "Connection: close"} == set(headers)
    assert body == b"It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n"
    assert bystander.run({"find": "http"})["cursor"]["firstBatch"] == []


def test_http_by_a_client_of_python(server: mongottl.RunningServer) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=PATIENCE_S) as answer:
        assert answer.status == 200
        assert answer.read().startswith(b"It looks like you are trying to access MongoDB over HTTP")


def test_truncated_message_is_not_answered(bystander: Raw, raw: Raw) -> None:
    whole = raw.request({"insert": "things", "documents": [{"_id": 2}], "$db": "test"})
    raw.send(whole[:-1])
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.is_closed()


def nested(levels: int) -> dict[str, Any]:
    """A document of so many levels, itself counted."""
    document: dict[str, Any] = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def broken_length() -> bytes:
    """A ping with an embedded document whose length is beyond its end."""
    inner = bson.encode({"x": 1})
    return bson.encode({"ping": 1, "$db": "admin", "comment": {"x": 1}}).replace(
        inner, struct.pack("<i", 200) + inner[4:]
    )


def unknown_type() -> bytes:
    return bson.encode({"ping": 1, "$db": "admin", "comment": 1}).replace(b"\x10comment", b"\x66comment")


ANSWERED = {
    "length inside": (broken_length(), 22),
    "unknown type": (unknown_type(), 22),
    "empty body": (bson.encode({}), 59),
    "too deep": (bson.encode({"ping": 1, "$db": "admin", "comment": nested(250)}), 15),
    "unknown command": (bson.encode({"nonsense": 1, "$db": "admin"}), 59),
    "known, not supported": (bson.encode({"appendOplogNote": 1, "$db": "admin"}), 115),
    "unknown field": (bson.encode({"ping": 1, "$db": "admin", "nonsense": 1}), 40415),
    "wrong type": (bson.encode({"find": "c", "filter": 1, "$db": "test"}), 14),
    "wrong type of $db": (bson.encode({"ping": 1, "$db": 1}), 14),
    "no $db": (bson.encode({"ping": 1}), 40571),
    "database name": (bson.encode({"find": "c", "$db": "a b"}), 73),
    "not on admin": (bson.encode({"advanceClock": 1, "$db": "test"}), 13),
    "missing field": (bson.encode({"insert": "c", "$db": "test"}), 40414),
    "duplicate field": (
        bson.encode({"find": "c", "limit": 1, "limix": 1, "$db": "test"}).replace(b"limix", b"limit"),
        40413,
    ),
    "txnNumber without session": (bson.encode({"ping": 1, "$db": "admin", "txnNumber": Int64(1)}), 72),
}


@pytest.mark.parametrize(("body", "code"), list(ANSWERED.values()), ids=list(ANSWERED))
def test_invalid_commands_get_an_error_and_the_connection_stays_open(
    bystander: Raw, raw: Raw, body: bytes, code: int
) -> None:
    raw.send(encode_request(5, body))
    reply = raw.receive()
    assert isinstance(reply, OpMsg)
    assert reply.response_to == 5
    answer = bson.decode(reply.body)
    assert (answer["ok"], answer["code"]) == (0.0, code), answer
    assert answer["errmsg"]
    assert answer["codeName"]
    assert raw.run({"ping": 1}) == {"ok": 1.0}  # the connection goes on


@pytest.mark.parametrize("levels", [180, 181])
def test_stored_documents_have_at_most_180_levels(raw: Raw, database: Database[dict[str, Any]], levels: int) -> None:
    document = {"_id": 1, **nested(levels)}
    inside = raw.run({"insert": "inside", "documents": [document], "$db": database.name})
    beside = raw.run({"insert": "beside", "$db": database.name}, documents=[document])
    for reply in (inside, beside):
        if levels > 180:
            assert reply.get("code") == 15 or reply["writeErrors"][0]["code"] == 15, reply
        else:
            assert reply == {"n": 1, "ok": 1.0}
    stored = 1 if levels <= 180 else 0
    assert database.inside.count_documents({}) == database.beside.count_documents({}) == stored


@pytest.mark.slow
def test_document_over_16_mib_is_refused(bystander: Raw, raw: Raw, database: Database[dict[str, Any]]) -> None:
    overhead = len(bson.encode({"_id": 1, "x": ""}))
    largest = {"_id": 1, "x": "x" * (16 * 1024 * 1024 - overhead)}
    assert raw.run({"insert": "large", "$db": database.name}, documents=[largest])["n"] == 1
    larger = {**largest, "_id": 2, "y": None}
    reply = raw.run({"insert": "large", "$db": database.name}, documents=[larger])
    assert reply["writeErrors"][0]["code"] == 10334
    reply = raw.run({"insert": "large", "documents": [{"_id": 3, "x": "x" * 17 * 1024 * 1024}], "$db": database.name})
    assert reply["code"] == 10334
    assert database.large.find_one() == largest
    assert database.large.count_documents({}) == 1


def test_checksum_is_answered_with_checksum(raw: Raw) -> None:
    raw.send(raw.request({"ping": 1, "$db": "admin"}, CHECKSUM_PRESENT))
    data = raw.socket.recv(4096)
    assert struct.unpack_from("<I", data, 16)[0] & CHECKSUM_PRESENT
    assert struct.unpack_from("<I", data, len(data) - 4)[0] == crc32c(data[:-4])
    raw.send(raw.request({"ping": 1, "$db": "admin"}))
    assert not struct.unpack_from("<I", raw.socket.recv(4096), 16)[0] & CHECKSUM_PRESENT


def test_more_to_come_is_not_answered(raw: Raw, database: Database[dict[str, Any]]) -> None:
    raw.send(raw.request({"insert": "quiet", "$db": database.name}, MORE_TO_COME, documents=[{"_id": 1}]))
    raw.send(raw.request({"nonsense": "quiet", "$db": database.name}, MORE_TO_COME))
    ping = raw.request({"ping": 1, "$db": "admin"})
    raw.send(ping)
    reply = raw.receive()
    assert isinstance(reply, OpMsg)
    assert reply.response_to == raw.request_id
    assert database.quiet.count_documents({}) == 1


@pytest.mark.parametrize("name", ["hello", "isMaster", "ismaster"])
def test_handshake_by_op_query(raw: Raw, name: str) -> None:
    raw.send(encode_op_query(3, "admin.$cmd", bson.encode({name: 1, "helloOk": True})))
    reply = raw.receive()
    assert isinstance(reply, OpReply)
    assert reply.response_to == 3
    answer = bson.decode(reply.documents[0])
    assert answer["ok"] == 1
    assert answer["helloOk"] is True
    assert answer["isWritablePrimary" if name == "hello" else "ismaster"] is True


def test_other_commands_by_op_query_are_refused(raw: Raw) -> None:
    raw.send(encode_op_query(3, "test.$cmd", bson.encode({"find": "things"})))
    reply = raw.receive()
    assert isinstance(reply, OpReply)
    assert bson.decode(reply.documents[0])["code"] == 352
    raw.send(encode_op_query(4, "test.things", bson.encode({})))
    assert raw.reply()["code"] == 352
    assert raw.run({"ping": 1}) == {"ok": 1.0}


def test_op_query_wrapped_for_a_read_preference(raw: Raw) -> None:
    wrapped = {"$query": {"isMaster": 1}, "$readPreference": {"mode": "secondaryPreferred"}}
    raw.send(encode_op_query(3, "admin.$cmd", bson.encode(wrapped)))
    assert raw.reply()["ismaster"] is True


def test_byte_by_byte(raw: Raw) -> None:
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in raw.request({"ping": 1, "$db": "admin"}):
        raw.send(bytes([byte]))
    assert raw.reply() == {"ok": 1.0}


def test_pipelined_requests_are_answered_in_order(raw: Raw) -> None:
    requests = [raw.request({"ping": 1, "$db": "admin"}) for _ in range(500)]
    requests[100] = raw.request({"nonsense": 1, "$db": "admin"})
    raw.send(b"".join(requests))
    answers = []
    for _ in range(500):
        reply = raw.receive()
        assert isinstance(reply, OpMsg)
        answers.append(reply.response_to)
    assert answers == [*range(1, 101), 501, *range(102, 501)]


def test_half_closed_client_gets_its_answers(raw: Raw, database: Database[dict[str, Any]]) -> None:
    database.many.insert_many({"_id": n} for n in range(100))
    raw.send(raw.request({"ping": 1, "$db": "admin"}) + raw.request({"count": "many", "$db": database.name}))
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.reply() == {"ok": 1.0}
    assert raw.reply()["n"] == 100
    assert raw.is_closed()


def test_half_closed_client_gets_the_answer_of_a_command_that_takes_a_while(raw: Raw) -> None:
    pipeline: list[dict[str, Any]] = [{"$documents": [{"n": {"$range": [0, 20_000]}}]}, {"$unwind": "$n"}]
    raw.send(raw.request({"aggregate": 1, "pipeline": [*pipeline, {"$count": "n"}], "cursor": {}, "$db": "admin"}))
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.reply()["cursor"]["firstBatch"] == [{"n": 20_000}]
    assert raw.is_closed()


def test_client_that_dies_mid_request(
    bystander: Raw, connect: Callable[[], Raw], database: Database[dict[str, Any]]
) -> None:
    for cut in (3, 16, 20, 40, -1):
        dying = connect()
        dying.send(dying.request({"insert": "half", "$db": database.name}, documents=[{"_id": 1}])[:cut])
        # Closed with a reset, as the kernel does it for a process that is killed with data unread.
        dying.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        dying.socket.close()
    assert bystander.run({"ping": 1}) == {"ok": 1.0}
    assert database.half.count_documents({}) == 0


def test_client_that_leaves_without_reading(
    bystander: Raw, connect: Callable[[], Raw], database: Database[dict[str, Any]]
) -> None:
    database.big.insert_many({"_id": n, "x": "x" * 1_000_000} for n in range(16))
    leaving = connect()
    leaving.send(leaving.request({"find": "big", "batchSize": 16, "singleBatch": True, "$db": database.name}))
    leaving.socket.recv(1000)
    leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.socket.close()
    assert bystander.run({"ping": 1}) == {"ok": 1.0}


def topology_version(raw: Raw) -> dict[str, Any]:
    version: dict[str, Any] = raw.run({"hello": 1, "$db": "admin"})["topologyVersion"]
    return version


def test_awaitable_hello_waits(raw: Raw) -> None:
    version = topology_version(raw)
    started = time.monotonic()
    reply = raw.run({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 100, "$db": "admin"})
    assert time.monotonic() - started >= 0.1
    assert reply["topologyVersion"] == version


def test_hello_does_not_wait_for_another_servers_topology(raw: Raw) -> None:
    version = {"processId": bson.ObjectId(), "counter": Int64(0)}
    # Longer than the client waits for a reply.
    reply = raw.run({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 3_600_000, "$db": "admin"})
    assert reply["topologyVersion"] != version


@pytest.mark.parametrize(
    ("user", "code"),
    [("nodot", 2), ("", 2), ({"db": "admin"}, 2), ({"user": "u", "db": 1}, 2), (1, 14), (True, 14), (["a.b"], 14),
     (None, 14), ("admin.nobody", None), ({"user": "nobody", "db": "admin"}, None)],
)  # fmt: skip
def test_hello_asked_for_the_mechanisms_of_a_user(raw: Raw, user: Any, code: int | None) -> None:
    answer = raw.run({"hello": 1, "saslSupportedMechs": user, "$db": "admin"})
    assert answer.get("code") == code
    assert "saslSupportedMechs" not in answer


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"maxAwaitTimeMS": 10}, 31368),
        ({"topologyVersion": {"processId": bson.ObjectId(), "counter": Int64(0)}}, 31368),
        ({"topologyVersion": 1, "maxAwaitTimeMS": 10}, 14),
        ({"topologyVersion": {"counter": Int64(0)}, "maxAwaitTimeMS": 10}, 40414),
        ({"topologyVersion": {"processId": bson.ObjectId()}, "maxAwaitTimeMS": 10}, 40414),
        ({"topologyVersion": {"processId": bson.ObjectId(), "counter": Int64(-1)}, "maxAwaitTimeMS": 10}, 31372),
    ],
)
def test_bad_awaitable_hello(raw: Raw, fields: dict[str, Any], code: int) -> None:
    assert raw.run({"hello": 1, **fields, "$db": "admin"})["code"] == code


def test_streaming_hello(raw: Raw) -> None:
    version = topology_version(raw)
    request = {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 20, "$db": "admin"}
    raw.send(raw.request(request, EXHAUST_ALLOWED))
    previous = raw.request_id
    for _ in range(3):
        reply = raw.receive()
        assert isinstance(reply, OpMsg)
        assert reply.response_to == previous
        assert reply.more_to_come
        previous = reply.request_id
    # The next request ends the stream, and is answered after it.
    raw.send(raw.request({"ping": 1, "$db": "admin"}))
    while True:
        reply = raw.receive()
        assert isinstance(reply, OpMsg)
        if not reply.more_to_come:
            break
    assert "isWritablePrimary" in bson.decode(reply.body)
    assert raw.reply() == {"ok": 1.0}


@own_operations
def test_stream_of_hellos_ends_with_its_client(
    connect: Callable[[], Raw], client: "pymongo.MongoClient[dict[str, Any]]"
) -> None:
    leaving = connect()
    hello = leaving.run({"hello": 1, "$db": "admin"})
    request = {
        "hello": 1,
        "topologyVersion": hello["topologyVersion"],
        "maxAwaitTimeMS": 3_600_000,
        "$db": "admin",
    }
    leaving.send(leaving.request(request, EXHAUST_ALLOWED))
    assert is_connected(client, hello["connectionId"])
    leaving.socket.close()
    until(lambda: not is_connected(client, hello["connectionId"]))


def is_connected(client: "pymongo.MongoClient[dict[str, Any]]", connection_id: int) -> bool:
    """Whether the server still has this connection. How many it has says less: those of earlier tests may just end."""
    every = {"$currentOp": {"allUsers": True, "idleConnections": True}}
    return bool(list(client.admin.aggregate([every, {"$match": {"connectionId": connection_id}}])))


def test_streaming_get_more(raw: Raw, database: Database[dict[str, Any]]) -> None:
    database.many.insert_many({"_id": n} for n in range(100))
    cursor = raw.run({"find": "many", "batchSize": 10, "$db": database.name})["cursor"]
    raw.send(
        raw.request(
            {"getMore": Int64(cursor["id"]), "collection": "many", "batchSize": 20, "$db": database.name},
            EXHAUST_ALLOWED | CHECKSUM_PRESENT,
        )
    )
    found = [d["_id"] for d in cursor["firstBatch"]]
    flags = []
    while True:
        reply = raw.receive()
        assert isinstance(reply, OpMsg)
        assert reply.checksum_present
        flags.append(reply.more_to_come)
        found += [d["_id"] for d in bson.decode(reply.body)["cursor"]["nextBatch"]]
        if not reply.more_to_come:
            break
    assert found == list(range(100))
    assert flags[:4] == [True] * 4
    assert raw.run({"ping": 1}) == {"ok": 1.0}


def test_streaming_get_more_of_no_cursor(raw: Raw, database: Database[dict[str, Any]]) -> None:
    raw.send(raw.request({"getMore": Int64(5), "collection": "many", "$db": database.name}, EXHAUST_ALLOWED))
    reply = raw.receive()
    assert isinstance(reply, OpMsg)
    assert not reply.more_to_come
    assert bson.decode(reply.body)["code"] == 43


def test_streaming_get_more_of_a_client_that_leaves(
    connect: Callable[[], Raw], database: Database[dict[str, Any]], client: "pymongo.MongoClient[dict[str, Any]]"
) -> None:
    database.big.insert_many({"_id": n, "x": "x" * 100_000} for n in range(100))
    leaving = connect()
    cursor = leaving.run({"find": "big", "batchSize": 1, "$db": database.name})["cursor"]
    leaving.send(
        leaving.request(
            {"getMore": Int64(cursor["id"]), "collection": "big", "batchSize": 1, "$db": database.name},
            EXHAUST_ALLOWED,
        )
    )
    leaving.receive()
    leaving.socket.close()
    status = client.admin.command
    until(
        lambda: status("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0,
        "the cursor of a stream outlives its client",
    )


@own_operations
def test_scan_of_a_client_that_leaves_is_given_up(
    connect: Callable[[], Raw], client: "pymongo.MongoClient[dict[str, Any]]"
) -> None:
    client.admin.command(
        {
            "configureFailPoint": "failCommand",
            "mode": {"times": 1},
            "data": {"failCommands": ["count"], "blockConnection": True, "blockTimeMS": 3_600_000},
        }
    )
    leaving = connect()
    connection_id = leaving.run({"hello": 1, "$db": "admin"})["connectionId"]
    leaving.send(leaving.request({"count": "nothing", "$db": "test"}))
    until(lambda: client.admin.command({"currentOp": 1, "command.count": "nothing"})["inprog"])
    leaving.socket.close()
    until(lambda: not is_connected(client, connection_id))


class TaskSteps(trio.abc.Instrument):
    """Counts the steps of the task that serves the first connection."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.task is None and task.name.endswith("Server._serve"):
            self.task = task
        self.count += task is self.task


@pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")
@pytest.mark.skipif(is_wanted(), reason="the task waits for the store, too")
def test_a_stream_that_waits_is_answered_without_its_connections_task() -> None:
    """A switch of tasks with what belongs to it costs more than the event."""
    steps = TaskSteps()

    def watch(port: int) -> int:
        watcher = Raw(port)
        opened = watcher.run({"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}})
        more = {"getMore": Int64(opened["cursor"]["id"]), "collection": "c", "$db": "test"}
        writer = Raw(port)
        before = steps.count
        for n in range(20):
            watcher.send(watcher.request(more))
            while not writer.run(WAITING)["cursor"]["firstBatch"]:
                pass
            writer.run({"insert": "c", "documents": [{"_id": n}]})
            assert [event["documentKey"] for event in watcher.reply()["cursor"]["nextBatch"]] == [{"_id": n}]
        taken = steps.count - before
        for each in (watcher, writer):
            each.socket.close()
        return taken

    async def main() -> int:
        async with open_server(ServerConfig(port=0, quiet=True)) as server:
            return await trio.to_thread.run_sync(watch, server.port)

    # The first getMore may come while the task has not yet begun to wait.
    assert trio.run(main, instruments=[steps]) < 5


@pytest.mark.parametrize("fails", ["state", "page"])
def test_a_server_that_fails_to_start_closes_what_it_has_opened(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """Also where it fails after it has begun to listen."""
    if fails == "state":
        monkeypatch.setattr("mongottl.server.server.save_initial", _without_memory)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        config = ServerConfig(port=port, quiet=True, enable_test_commands=True)
        if fails == "page":
            config.web_port = taken.getsockname()[1]

        async def main() -> None:
            async with open_server(config):
                raise AssertionError("it has started")

        # Holds the traceback, so that no collection of garbage closes anything.
        with pytest.raises(OSError if fails == "page" else MemoryError) as caught:
            trio.run(main)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert caught.tb is not None


def _without_memory(service: object) -> None:
    raise MemoryError


WAITING = {
    "aggregate": 1,
    "pipeline": [{"$currentOp": {}}, {"$match": {"command.getMore": {"$exists": True}}}],
    "cursor": {},
    "$db": "admin",
}


@pytest.fixture
def waiting(
    connect: Callable[[], Raw], database: Database[dict[str, Any]]
) -> Iterator[Callable[[int], tuple[Raw, Raw, Int64]]]:
    """Begins a getMore that waits so many milliseconds: its connection, another one, its cursor's id."""
    opened: list[Int64] = []

    def begin(milliseconds: int) -> tuple[Raw, Raw, Int64]:
        watcher, other = connect(), connect()
        stream = {"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}, "$db": database.name}
        cursor_id = Int64(watcher.run(stream)["cursor"]["id"])
        opened.append(cursor_id)
        more = {"getMore": cursor_id, "collection": "$cmd.aggregate", "maxTimeMS": milliseconds, "$db": database.name}
        watcher.send(watcher.request(more))
        while milliseconds > 1000 and not other.run(WAITING)["cursor"]["firstBatch"]:
            pass
        return watcher, other, cursor_id

    yield begin
    connect().run({"killCursors": "$cmd.aggregate", "cursors": opened, "$db": database.name})


def test_a_stream_waits_until_its_time_is_over(waiting: Callable[[int], tuple[Raw, Raw, Int64]]) -> None:
    watcher, _, cursor_id = waiting(20)
    reply = watcher.reply()
    assert (reply["cursor"]["id"], reply["cursor"]["nextBatch"]) == (cursor_id, [])


def test_a_stream_waits_until_its_client_sends_something(waiting: Callable[[int], tuple[Raw, Raw, Int64]]) -> None:
    watcher, _, cursor_id = waiting(60_000)
    watcher.send(watcher.request({"ping": 1, "$db": "admin"}))
    reply = watcher.reply()
    assert (reply["cursor"]["id"], reply["cursor"]["nextBatch"]) == (cursor_id, [])
    assert watcher.reply() == {"ok": 1.0}


def test_a_stream_that_waits_ends_with_its_client(waiting: Callable[[int], tuple[Raw, Raw, Int64]]) -> None:
    watcher, other, _ = waiting(60_000)
    watcher.socket.close()
    status = {"serverStatus": 1, "$db": "admin"}
    until(
        lambda: other.run(status)["metrics"]["cursor"]["open"]["total"] == 0,
        "the cursor of a stream outlives its client",
    )
    assert other.run(WAITING)["cursor"]["firstBatch"] == []


def test_a_stream_that_waits_is_killed(waiting: Callable[[int], tuple[Raw, Raw, Int64]]) -> None:
    watcher, other, cursor_id = waiting(60_000)
    other.run({"killCursors": "$cmd.aggregate", "cursors": [cursor_id], "$db": "test"})
    assert watcher.reply()["code"] == 237


@of_replica_set
def test_hello_describes_the_server(raw: Raw, server: mongottl.RunningServer) -> None:
    me = f"127.0.0.1:{server.port}"
    reply = raw.run(
        {
            "hello": 1,
            "helloOk": True,
            "client": {"application": {"name": "test"}, "driver": {"name": "raw", "version": "1"}},
            "compression": ["nonsense", "zlib"],
            "saslSupportedMechs": "admin.user",
            "speculativeAuthenticate": {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"", "db": "admin"},
            "loadBalanced": False,
            "backpressure": True,
            "$db": "admin",
        }
    )
    assert reply["isWritablePrimary"] is True
    assert reply["secondary"] is False
    assert (reply["setName"], reply["hosts"], reply["me"], reply["primary"]) == ("globaldb", [me], me, me)
    assert (reply["minWireVersion"], reply["maxWireVersion"]) == (0, 27)
    assert (reply["maxBsonObjectSize"], reply["maxMessageSizeBytes"], reply["maxWriteBatchSize"]) == (
        16_777_216,
        48_000_000,
        100_000,
    )
    assert type(reply["connectionId"]) is int
    assert reply["logicalSessionTimeoutMinutes"] == 30
    assert reply["compression"] == ["zlib"]
    assert reply["readOnly"] is False
    assert reply["helloOk"] is True
    assert "speculativeAuthenticate" not in reply
    assert raw.run({"hello": 1, "$db": "admin"})["connectionId"] == reply["connectionId"]


def test_client_metadata_is_sent_once(raw: Raw, connect: Callable[[], Raw]) -> None:
    metadata = {"driver": {"name": "raw", "version": "1"}, "os": {"type": "Linux"}}
    assert raw.run({"hello": 1, "client": metadata, "$db": "admin"})["ok"] == 1
    assert raw.run({"hello": 1, "client": metadata, "$db": "admin"})["code"] == 186
    assert raw.run({"hello": 1, "$db": "admin"})["ok"] == 1
    long_name = {"application": {"name": "x" * 129}, **metadata}
    assert connect().run({"hello": 1, "client": long_name, "$db": "admin"})["code"] == 184
    assert connect().run({"hello": 1, "client": {**metadata, "platform": "x" * 600}, "$db": "admin"})["code"] == 185


@contextmanager
def fail_point(client: "pymongo.MongoClient[dict[str, Any]]", **data: Any) -> Iterator[None]:
    client.admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data})
    yield
    client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@own_fail_points
def test_fail_point_closes_the_connection(raw: Raw, client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    with fail_point(client, failCommands=["find"], closeConnection=True):
        raw.send(raw.request({"find": "x", "$db": "test"}))
        assert raw.is_closed()


@own_fail_points
def test_fail_point_answers_an_error(raw: Raw, client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    with fail_point(client, failCommands=["find"], errorCode=91):
        assert raw.run({"find": "x"})["code"] == 91
        assert raw.run({"find": "x"})["ok"] == 1


def test_unknown_names_do_not_grow_the_server(raw: Raw) -> None:
    """Clients choose the names of the commands that do not exist: they are counted under one."""
    for n in range(20):
        assert raw.run({f"nonsense{n}": 1})["code"] == 59
    commands = raw.run({"serverStatus": 1, "$db": "admin"})["metrics"]["commands"]
    assert not any(name.startswith("nonsense") for name in commands)
    assert commands["<UNKNOWN>"] >= 20


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"collStats": "things"}, "scale"),
        ({"dbStats": 1}, "scale"),
        ({"dbStats": 1}, "freeStorage"),
        ({"aggregate": "things", "pipeline": [], "cursor": {}}, "allowDiskUse"),
        ({"find": "things"}, "allowDiskUse"),
        ({"listCollections": 1}, "authorizedCollections"),
        ({"listCollections": 1}, "nameOnly"),
        ({"validate": "things"}, "full"),
        ({"count": "things"}, "collation"),
        ({"dropIndexes": "things", "index": "*"}, "collectionUUID"),
        ({"createIndexes": "things", "indexes": [{"key": {"a": 1}, "name": "a"}]}, "commitQuorum"),
        ({"find": "things"}, "lsid"),
    ],
)
def test_an_undefined_option_counts_as_absent(
    bystander: Raw, database: Database[dict[str, Any]], command: dict[str, Any], field: str
) -> None:
    body = bson.encode({**command, "$db": database.name})[4:-1] + b"\x06" + field.encode() + b"\0\0"
    bystander.send(message(struct.pack("<IB", 0, 0) + struct.pack("<i", len(body) + 4) + body))
    assert bystander.reply()["ok"] == 1.0
