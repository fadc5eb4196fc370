"""Feeding a codec as h11's tests do: each case whole, byte by byte, and with other bytes before and behind it."""

from collections.abc import Callable

import pytest

from mongottl.errors import ProtocolError
from mongottl.wire.connection import ClientWireConnection, WireConnection
from mongottl.wire.encode import encode_request
from mongottl.wire.messages import NEED_DATA, NeedData, OpGetMore, OpKillCursors, OpMsg, OpQuery, OpReply, Request

Message = Request | OpReply
AnyConnection = WireConnection | ClientWireConnection

OTHER = encode_request(99, bytes.fromhex("0500000000"))


# The attributes of messages that are compared, by class.
ATTRIBUTES: dict[type[Message], tuple[str, ...]] = {
    OpMsg: ("request_id", "response_to", "flags", "body", "sequences", "compressor"),
    OpQuery: (
        "request_id",
        "response_to",
        "flags",
        "namespace",
        "skip",
        "limit",
        "query",
        "fields",
        "compressor",
        "size_bytes",
    ),
    OpGetMore: ("request_id", "response_to", "compressor"),
    OpKillCursors: ("request_id", "response_to", "cursor_ids", "compressor"),
    OpReply: ("request_id", "response_to", "flags", "cursor_id", "starting_from", "documents", "compressor"),
}


def contents(message: Message | NeedData) -> tuple[object, ...]:
    """The class of a message and its attributes, for comparison."""
    if isinstance(message, NeedData):
        return (NeedData,)
    kind = type(message)
    return (kind, *(getattr(message, name) for name in ATTRIBUTES[kind]))


def receive_every_way(make: Callable[[], AnyConnection], data: bytes) -> Message:
    whole = make()
    whole.receive_data(data)
    message = whole.next_message()
    assert not isinstance(message, NeedData)
    assert whole.next_message() is NEED_DATA
    assert whole.unread_size == 0

    bytewise = make()
    for offset in range(len(data) - 1):
        bytewise.receive_data(data[offset : offset + 1])
        assert bytewise.next_message() is NEED_DATA
        assert bytewise.unread_size == offset + 1
    bytewise.receive_data(data[-1:])
    assert contents(bytewise.next_message()) == contents(message)
    assert bytewise.next_message() is NEED_DATA

    # Between two other messages, the later of which is not whole yet.
    between = make()
    between.receive_data(OTHER + data + OTHER[:-1])
    assert contents(between.next_message())[1] == 99
    assert contents(between.next_message()) == contents(message)
    assert between.next_message() is NEED_DATA
    between.receive_data(OTHER[-1:] + data)
    assert contents(between.next_message())[1] == 99
    assert contents(between.next_message()) == contents(message)
    assert between.next_message() is NEED_DATA
    return message


def refuse_every_way(make: Callable[[], AnyConnection], data: bytes) -> str:
    whole = make()
    whole.receive_data(data)
    with pytest.raises(ProtocolError) as refusal:
        whole.next_message()
    text = str(refusal.value)

    with_more = make()
    with_more.receive_data(OTHER + data + OTHER)
    assert contents(with_more.next_message())[1] == 99
    # The stream stays refused, whatever comes.
    for _ in range(2):
        with pytest.raises(ProtocolError) as refusal:
            with_more.next_message()
        assert str(refusal.value) == text
        with_more.receive_data(OTHER)
        assert with_more.unread_size == 0

    bytewise = make()
    with pytest.raises(ProtocolError) as refusal:
        for offset in range(len(data)):
            bytewise.receive_data(data[offset : offset + 1])
            assert bytewise.next_message() is NEED_DATA
    assert str(refusal.value) == text
    return text


@pytest.fixture
def receive() -> Callable[[bytes], Message]:
    """The server's reading of one message's bytes, the same however they arrive."""
    return lambda data: receive_every_way(WireConnection, data)


@pytest.fixture
def receive_reply() -> Callable[[bytes], Message]:
    """The client's reading of one message's bytes, the same however they arrive."""
    return lambda data: receive_every_way(ClientWireConnection, data)


@pytest.fixture
def refusal() -> Callable[[bytes], str]:
    """The text with which the server refuses these bytes, the same however they arrive."""
    return lambda data: refuse_every_way(WireConnection, data)


@pytest.fixture
def refusal_of_reply() -> Callable[[bytes], str]:
    """The text with which the client refuses these bytes."""
    return lambda data: refuse_every_way(ClientWireConnection, data)
