"""OP_QUERY and OP_REPLY, the legacy way of a connection's first hello."""

import struct
from collections.abc import Callable

import pytest

from mongottl.wire.encode import encode_op_query, encode_op_reply, encode_reply_to
from mongottl.wire.messages import OpQuery, OpReply

Refusal = Callable[[bytes], str]

# {isMaster: 1}
IS_MASTER = bytes.fromhex("13000000 1069734d617374657200 01000000 00")
EMPTY = bytes.fromhex("0500000000")
# requestID 3; flags SlaveOk; admin.$cmd; skip 0; numberToReturn -1.
GOLDEN = bytes.fromhex(
    "3a000000 03000000 00000000 d4070000 04000000 61646d696e2e24636d6400 00000000 ffffffff"
    "13000000 1069734d617374657200 01000000 00"
)


def op_query(contents: bytes) -> bytes:
    return struct.pack("<iiii", 16 + len(contents), 1, 0, 2004) + contents


def op_reply(contents: bytes) -> bytes:
    return struct.pack("<iiii", 16 + len(contents), 1, 0, 1) + contents


def test_golden_query(receive: Callable[[bytes], OpQuery]) -> None:
    query = receive(GOLDEN)
    assert isinstance(query, OpQuery)
    assert (query.request_id, query.response_to, query.flags) == (3, 0, 4)
    assert (query.namespace, query.skip, query.limit) == ("admin.$cmd", 0, -1)
    assert query.query == IS_MASTER
    assert query.fields is None
    assert encode_op_query(3, "admin.$cmd", IS_MASTER, flags=4) == GOLDEN
    assert repr(query) == "OpQuery(request_id=3, namespace='admin.$cmd', query=19 bytes)"


def test_fields_selector(receive: Callable[[bytes], OpQuery]) -> None:
    query = receive(encode_op_query(1, "a.b", IS_MASTER, skip=2, limit=1, fields=EMPTY))
    assert (query.skip, query.limit, query.query, query.fields) == (2, 1, IS_MASTER, EMPTY)


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (b"", "OP_QUERY: the message ends before its flags"),
        (bytes(4) + b"admin.$cmd", "OP_QUERY: fullCollectionName does not end inside the message"),
        (bytes(4) + b"a" * 1_025 + b"\0", "OP_QUERY: fullCollectionName has more than 1024 bytes"),
        (bytes(4) + b"\xff\xfe\0" + bytes(8) + EMPTY, "OP_QUERY: fullCollectionName is not valid UTF-8"),
        (bytes(4) + b"a.b\0" + bytes(7), "OP_QUERY: the message ends before numberToReturn"),
        (bytes(4) + b"a.b\0" + bytes(8), "OP_QUERY: a document is truncated"),
        (bytes(4) + b"a.b\0" + bytes(8) + b"\6\0\0\0\0", "OP_QUERY: a document has length 6, but 5 bytes are left"),
        (bytes(4) + b"a.b\0" + bytes(8) + b"\5\0\0\0\1", "OP_QUERY: a document does not end with NUL"),
        (bytes(4) + b"a.b\0" + bytes(8) + EMPTY + b"\0", "OP_QUERY: a document is truncated"),
        (bytes(4) + b"a.b\0" + bytes(8) + EMPTY * 3, "OP_QUERY: 5 bytes are left behind its documents"),
    ],
)
def test_malformed_query(refusal: Refusal, contents: bytes, text: str) -> None:
    assert refusal(op_query(contents)) == text


def test_golden_reply(receive: Callable[[bytes], OpQuery], receive_reply: Callable[[bytes], OpReply]) -> None:
    golden = bytes.fromhex("29000000 09000000 03000000 01000000 08000000 0000000000000000 00000000 01000000 0500000000")
    assert encode_op_reply(9, 3, [EMPTY]) == golden
    assert encode_reply_to(receive(GOLDEN), 9, EMPTY) == golden
    reply = receive_reply(golden)
    assert isinstance(reply, OpReply)
    assert (reply.request_id, reply.response_to, reply.flags) == (9, 3, 8)
    assert (reply.cursor_id, reply.starting_from, reply.documents) == (0, 0, [EMPTY])


def test_reply_of_several_documents(receive_reply: Callable[[bytes], OpReply]) -> None:
    reply = receive_reply(encode_op_reply(9, 3, [EMPTY, IS_MASTER], flags=0, cursor_id=-(2**63), starting_from=4))
    assert (reply.flags, reply.cursor_id, reply.starting_from) == (0, -(2**63), 4)
    assert reply.documents == [EMPTY, IS_MASTER]


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (bytes(19), "OP_REPLY: the message ends before numberReturned"),
        (bytes(20) + EMPTY, "OP_REPLY: numberReturned is 0, but there are 1 documents"),
        (bytes(16) + b"\1\0\0\0", "OP_REPLY: numberReturned is 1, but there are 0 documents"),
        (bytes(16) + b"\xff\xff\xff\x7f" + EMPTY[:4], "OP_REPLY: a document is truncated"),
    ],
)
def test_malformed_reply(refusal_of_reply: Refusal, contents: bytes, text: str) -> None:
    assert refusal_of_reply(op_reply(contents)) == text


def test_each_side_refuses_the_other_ones_message(refusal: Refusal, refusal_of_reply: Refusal) -> None:
    assert refusal(encode_op_reply(1, 1, [EMPTY])).startswith("OP_REPLY (1) is not supported")
    assert refusal_of_reply(GOLDEN).startswith("OP_QUERY (2004) is not supported")
