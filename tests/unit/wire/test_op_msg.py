"""OP_MSG, golden bytes and malformed ones."""

import struct
from collections.abc import Callable

import bson
import pytest

from mongottl.wire.crc32c import crc32c
from mongottl.wire.encode import encode_reply, encode_reply_to, encode_request
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    EXHAUST_ALLOWED,
    MAX_MESSAGE_SIZE,
    MORE_TO_COME,
    NOT_COMPRESSED,
    OpMsg,
)

Receive = Callable[[bytes], OpMsg]
Refusal = Callable[[bytes], str]

# {ping: 1, $db: "admin"}
PING_BODY = bytes.fromhex("1e000000 1070696e670001000000 0224646200 06000000 61646d696e00 00")
# messageLength 51, requestID 7, responseTo 0, opCode 2013; flagBits 0; kind 0.
PING = bytes.fromhex("33000000 07000000 00000000 dd070000 00000000 00") + PING_BODY
# {}
EMPTY = bytes.fromhex("0500000000")


def op_msg(contents: bytes, flags: int = 0) -> bytes:
    return struct.pack("<iiiiI", 20 + len(contents), 1, 0, 2013, flags) + contents


def sequence(identifier: bytes, documents: bytes, size: int | None = None) -> bytes:
    if size is None:
        size = 4 + len(identifier) + len(documents)
    return b"\1" + struct.pack("<i", size) + identifier + documents


def with_checksum(contents: bytes) -> bytes:
    message = struct.pack("<iiiiI", 24 + len(contents), 1, 0, 2013, CHECKSUM_PRESENT) + contents
    return message + struct.pack("<I", crc32c(message))


def test_golden_ping(receive: Receive) -> None:
    assert bson.decode(PING_BODY) == {"ping": 1, "$db": "admin"}
    message = receive(PING)
    assert isinstance(message, OpMsg)
    assert (message.request_id, message.response_to, message.flags) == (7, 0, 0)
    assert message.body == PING_BODY
    assert message.sequences == []
    assert message.compressor == NOT_COMPRESSED
    assert not message.checksum_present
    assert not message.more_to_come
    assert not message.exhaust_allowed
    assert encode_request(7, PING_BODY) == PING


def test_golden_reply() -> None:
    expected = bytes.fromhex("1a000000 05000000 07000000 dd070000 02000000 00 0500000000")
    assert encode_reply(5, 7, EMPTY, MORE_TO_COME) == expected


def test_golden_document_sequences(receive: Receive) -> None:
    one = bytes.fromhex("0c0000001061000100000000")  # {a: 1}
    golden = bytes.fromhex(
        "4c000000 01000000 00000000 dd070000 00000000"
        "01 21000000 646f637300 0c0000001061000100000000 0c0000001061000100000000"
        "00 0500000000"
        "01 0f000000 757064617400 0500000000"
    )
    message = receive(golden)
    assert message.body == EMPTY
    assert message.sequences == [("docs", [one, one]), ("updat", [EMPTY])]
    assert receive(encode_request(1, EMPTY, [("docs", [one, one]), ("updat", [EMPTY])])).sequences == message.sequences


def test_sequence_of_no_documents(receive: Receive) -> None:
    assert receive(op_msg(b"\0" + EMPTY + sequence(b"documents\0", b""))).sequences == [("documents", [])]


def test_sequence_names_are_utf8(receive: Receive) -> None:
    assert receive(encode_request(1, EMPTY, [("größe", [])])).sequences == [("größe", [])]


def test_flags(receive: Receive) -> None:
    message = receive(encode_request(1, EMPTY, flags=MORE_TO_COME | EXHAUST_ALLOWED))
    assert message.more_to_come
    assert message.exhaust_allowed
    assert not message.checksum_present


@pytest.mark.parametrize("bit", range(17, 32))
def test_unknown_optional_flags_are_ignored(receive: Receive, bit: int) -> None:
    assert receive(op_msg(b"\0" + EMPTY, 1 << bit)).body == EMPTY


@pytest.mark.parametrize("bit", range(2, 16))
def test_unknown_required_flags_are_refused(refusal: Refusal, bit: int) -> None:
    assert refusal(op_msg(b"\0" + EMPTY, 1 << bit)) == f"OP_MSG: unknown required flag bits {1 << bit:#x}"


def test_golden_checksum(receive: Receive) -> None:
    message = receive(with_checksum(b"\0" + PING_BODY))
    assert message.checksum_present
    assert message.body == PING_BODY
    assert encode_request(1, PING_BODY, flags=CHECKSUM_PRESENT) == with_checksum(b"\0" + PING_BODY)


def test_checksum_with_sequences(receive: Receive) -> None:
    data = encode_request(1, EMPTY, [("docs", [PING_BODY])], flags=CHECKSUM_PRESENT)
    assert receive(data).sequences == [("docs", [PING_BODY])]


@pytest.mark.parametrize("offset", [4, 8, 21, 30, -5, -1])
def test_one_damaged_byte_fails_the_checksum(refusal: Refusal, offset: int) -> None:
    data = bytearray(with_checksum(b"\0" + PING_BODY))
    data[offset] ^= 1
    assert refusal(bytes(data)) == "OP_MSG: the checksum does not match the contents"


def test_checksum_flag_without_room_for_one(refusal: Refusal) -> None:
    assert refusal(op_msg(b"", CHECKSUM_PRESENT)) == "OP_MSG: the message ends before its checksum"
    assert refusal(op_msg(b"abc", CHECKSUM_PRESENT)) == "OP_MSG: the message ends before its checksum"


def test_checksum_is_not_a_section(refusal: Refusal) -> None:
    assert refusal(with_checksum(b"")) == "OP_MSG: no body section"


def test_reply_to_copies_checksum(receive: Receive, receive_reply: Receive) -> None:
    plain = receive(encode_request(31, EMPTY))
    checked = receive(encode_request(32, EMPTY, flags=CHECKSUM_PRESENT))
    reply = receive_reply(encode_reply_to(plain, 1, PING_BODY))
    assert (reply.request_id, reply.response_to, reply.flags, reply.body) == (1, 31, 0, PING_BODY)
    reply = receive_reply(encode_reply_to(checked, 2, PING_BODY, MORE_TO_COME))
    assert (reply.request_id, reply.response_to, reply.body) == (2, 32, PING_BODY)
    assert reply.checksum_present
    assert reply.more_to_come


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (b"", "OP_MSG: no body section"),
        (sequence(b"a\0", EMPTY), "OP_MSG: no body section"),
        (b"\0" + EMPTY + b"\0" + EMPTY, "OP_MSG: more than one body section"),
        (b"\2" + EMPTY, "OP_MSG: unknown section kind 2"),
        (b"\0" + EMPTY + b"\xff", "OP_MSG: unknown section kind 255"),
        (b"\0", "OP_MSG: the body section is truncated"),
        (b"\0\5\0\0\0", "OP_MSG: the body section is truncated"),
        (
            b"\0\4\0\0\0\0",
            "OP_MSG: the body's document has length 4, but 5 bytes of the message are left",
        ),
        (
            b"\0\xff\xff\xff\xff\0",
            "OP_MSG: the body's document has length -1, but 5 bytes of the message are left",
        ),
        (
            b"\0\6\0\0\0\0",
            "OP_MSG: the body's document has length 6, but 5 bytes of the message are left",
        ),
        (
            b"\0\xff\xff\xff\x7f\0",
            "OP_MSG: the body's document has length 2147483647, but 5 bytes of the message are left",
        ),
        (b"\0\5\0\0\0\1", "OP_MSG: the body's document does not end with NUL"),
        (b"\0" + EMPTY + b"\1\0\0\0", "OP_MSG: a document sequence is truncated"),
        (
            b"\0" + EMPTY + sequence(b"a\0", EMPTY, 12),
            "OP_MSG: a document sequence has length 12, but 11 bytes of the message are left",
        ),
        (
            b"\0" + EMPTY + sequence(b"a\0", EMPTY, 4),
            "OP_MSG: a document sequence has length 4, but 11 bytes of the message are left",
        ),
        (
            b"\0" + EMPTY + sequence(b"a\0", EMPTY, -1),
            "OP_MSG: a document sequence has length -1, but 11 bytes of the message are left",
        ),
        (
            b"\0" + EMPTY + sequence(b"abc", b""),
            "OP_MSG: a document sequence's identifier does not end inside its section",
        ),
        (
            # The identifier's NUL is there, but behind the section.
            sequence(b"abc", b"") + b"\0" + EMPTY,
            "OP_MSG: a document sequence's identifier does not end inside its section",
        ),
        (
            b"\0" + EMPTY + sequence(b"\xff\0", EMPTY),
            "OP_MSG: a document sequence's identifier is not valid UTF-8",
        ),
        (
            b"\0" + EMPTY + sequence(b"a\0", EMPTY) + sequence(b"a\0", EMPTY),
            "OP_MSG: two document sequences are named 'a'",
        ),
        (b"\0" + EMPTY + sequence(b"a\0", b"\5\0\0\0"), "OP_MSG: document sequence: a document is truncated"),
        (
            b"\0" + EMPTY + sequence(b"a\0", b"\6\0\0\0\0"),
            "OP_MSG: document sequence: a document has length 6, but 5 bytes are left",
        ),
        (
            # The document would fit the message, but not its section.
            sequence(b"a\0", b"\6\0\0\0\0") + b"\0" + EMPTY,
            "OP_MSG: document sequence: a document has length 6, but 5 bytes are left",
        ),
        (
            b"\0" + EMPTY + sequence(b"a\0", b"\5\0\0\0\1"),
            "OP_MSG: document sequence: a document does not end with NUL",
        ),
    ],
)
def test_malformed_sections(refusal: Refusal, contents: bytes, text: str) -> None:
    assert refusal(op_msg(contents)) == text


def test_message_of_a_header_alone(refusal: Refusal) -> None:
    assert refusal(struct.pack("<iiii", 16, 1, 0, 2013)) == "OP_MSG: the message ends before its flag bits"
    assert refusal(struct.pack("<iiii", 19, 1, 0, 2013) + b"abc") == "OP_MSG: the message ends before its flag bits"


def test_too_long_a_reply_is_not_encoded() -> None:
    longest = MAX_MESSAGE_SIZE - 21
    assert len(encode_reply(1, 1, bytes(longest))) == MAX_MESSAGE_SIZE
    with pytest.raises(ValueError, match="48000001"):
        encode_reply(1, 1, bytes(longest + 1))
    with pytest.raises(ValueError, match="48000004"):
        encode_reply(1, 1, bytes(longest), CHECKSUM_PRESENT)


def test_repr_tells_sizes_not_contents() -> None:
    message = OpMsg(1, 0, 2, EMPTY, [("docs", [EMPTY])])
    assert repr(message) == "OpMsg(request_id=1, response_to=0, flags=0x2, body=5 bytes, sequences=[('docs', 1)])"
