"""Cutting a stream into messages: headers, chunks, memory."""

import random
import struct
import tracemalloc
from collections.abc import Callable

import bson
import pytest

from mongottl.errors import ProtocolError
from mongottl.wire.compression import compressor_name, is_available
from mongottl.wire.connection import WireConnection
from mongottl.wire.crc32c import crc32c
from mongottl.wire.encode import encode_op_query, encode_request
from mongottl.wire.long_message import STEP_BYTES
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    COMPRESSOR_NOOP,
    COMPRESSOR_SNAPPY,
    COMPRESSOR_ZLIB,
    COMPRESSOR_ZSTD,
    MAX_LEGACY_SIZE,
    MAX_MESSAGE_SIZE,
    NEED_DATA,
    OpMsg,
    OpQuery,
)

Refusal = Callable[[bytes], str]

EMPTY = bytes.fromhex("0500000000")


def document(size: int) -> bytes:
    return struct.pack("<i", size) + bytes(size - 4)


def next_op_msg(connection: WireConnection) -> OpMsg:
    message = connection.next_message()
    assert isinstance(message, OpMsg)
    return message


def next_kind(connection: WireConnection) -> tuple[bool, bool]:
    """Whether the next message is compressed and long, and whether it is long."""
    return connection.next_is_compressed, connection.next_is_long


def test_nothing_received() -> None:
    connection = WireConnection()
    assert connection.next_message() is NEED_DATA
    connection.receive_data(b"")
    assert connection.next_message() is NEED_DATA
    assert repr(NEED_DATA) == "NEED_DATA"


@pytest.mark.parametrize("length", [0, 1, 15, -1, -(2**31), MAX_MESSAGE_SIZE + 1, 2**31 - 1])
def test_length_is_refused_by_the_header_alone(refusal: Refusal, length: int) -> None:
    text = refusal(struct.pack("<iiii", length, 1, 0, 2013))
    assert text == f"messageLength {length} is not between 16 and 48000000"


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        (1000, "OP_MSG (legacy) (1000)"),
        (2010, "OP_COMMAND (2010)"),
        (2011, "OP_COMMANDREPLY (2011)"),
        (0, "unknown opcode 0"),
        (-1, "unknown opcode -1"),
        (2014, "unknown opcode 2014"),
    ],
)
def test_opcode_is_refused_by_the_header_alone(refusal: Refusal, opcode: int, name: str) -> None:
    # The header announces more bytes than there are.
    assert refusal(struct.pack("<iiii", 1000, 1, 0, opcode)).startswith(f"{name} is not supported; a server takes")


@pytest.mark.parametrize(("opcode", "name"), [(2001, "OP_UPDATE"), (2002, "OP_INSERT"), (2006, "OP_DELETE")])
def test_writes_of_old_drivers_are_refused_with_their_age(refusal: Refusal, opcode: int, name: str) -> None:
    text = refusal(struct.pack("<iiii", 1000, 1, 0, opcode))
    assert text.startswith(f"{name} ({opcode}) is not supported; ")
    assert "drivers of before MongoDB 3.6 (2017)" in text


@pytest.mark.parametrize(("opcode", "name"), [(2004, "OP_QUERY"), (2005, "OP_GET_MORE"), (2007, "OP_KILL_CURSORS")])
def test_longer_old_messages_than_any_has_are_refused_by_the_header_alone(
    refusal: Refusal, opcode: int, name: str
) -> None:
    size = MAX_LEGACY_SIZE + 1
    text = f"{name} ({opcode}): messageLength {size} is above its limit, {MAX_LEGACY_SIZE}"
    assert refusal(struct.pack("<iiii", size, 1, 0, opcode)) == text
    # Inside OP_COMPRESSED by the header of that: these 1,000 bytes would be sent later.
    assert refusal(struct.pack("<iiiiiiB", 1_000, 1, 0, 2012, opcode, size - 16, COMPRESSOR_ZLIB)) == text


def test_an_uncompressed_size_beyond_a_message_is_refused_by_the_header_alone(refusal: Refusal) -> None:
    text = refusal(struct.pack("<iiiiiiB", MAX_MESSAGE_SIZE, 1, 0, 2012, 2013, MAX_MESSAGE_SIZE, COMPRESSOR_ZLIB))
    assert text == "OP_COMPRESSED: uncompressedSize 48000000 is not between 0 and 47999984"


def test_http_is_told_so(refusal: Refusal) -> None:
    for method in ("GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"):
        assert "HTTP" in refusal(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def test_the_longest_message_in_chunks() -> None:
    body = document(MAX_MESSAGE_SIZE - 21)
    data = encode_request(1, body)
    assert len(data) == MAX_MESSAGE_SIZE
    connection = WireConnection()
    for start in range(0, MAX_MESSAGE_SIZE, 1 << 20):
        assert connection.next_message() is NEED_DATA
        connection.receive_data(data[start : start + (1 << 20)])
    assert next_op_msg(connection).body == body
    assert connection.next_message() is NEED_DATA


def test_memory_follows_the_bytes_received_not_the_length_field() -> None:
    tracemalloc.start()
    try:
        connection = WireConnection()
        connection.receive_data(struct.pack("<iiiiI", MAX_MESSAGE_SIZE, 1, 0, 2013, 0) + b"\0")
        assert connection.next_message() is NEED_DATA
        connection.receive_data(struct.pack("<i", MAX_MESSAGE_SIZE - 21))
        assert connection.next_message() is NEED_DATA
        assert connection.unread_size == 25
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_idle_connection_holds_no_message() -> None:
    data = encode_request(1, document(1_000_000))
    connection = WireConnection()
    tracemalloc.start()
    try:
        connection.receive_data(data[:500_000])
        connection.receive_data(data[500_000:])
        next_op_msg(connection)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_many_messages_in_one_chunk() -> None:
    connection = WireConnection()
    connection.receive_data(b"".join([encode_request(n, EMPTY) for n in range(1000)]))
    for n in range(1000):
        assert next_op_msg(connection).request_id == n
    assert connection.next_message() is NEED_DATA


@pytest.mark.parametrize("size", [1, 7, 15, 16, 17, 26, 27, 53, 1000])
def test_any_chunk_size(size: int) -> None:
    data = b"".join([encode_request(n, document(5 + n)) for n in range(50)])
    connection = WireConnection()
    seen: list[int] = []
    for start in range(0, len(data), size):
        connection.receive_data(data[start : start + size])
        message = connection.next_message()
        while isinstance(message, OpMsg):
            assert len(message.body) == 5 + message.request_id
            seen.append(message.request_id)
            message = connection.next_message()
    assert seen == list(range(50))


def test_chunks_received_before_anybody_asks() -> None:
    data = b"".join([encode_request(n, EMPTY) for n in range(20)])
    connection = WireConnection()
    for start in range(0, len(data), 11):
        connection.receive_data(data[start : start + 11])
    assert connection.unread_size == len(data)
    assert [next_op_msg(connection).request_id for _ in range(20)] == list(range(20))
    assert connection.unread_size == 0


def test_documents_do_not_change_with_later_bytes() -> None:
    connection = WireConnection()
    connection.receive_data(encode_request(1, b"\6\0\0\0\1\0"))
    first = next_op_msg(connection)
    connection.receive_data(encode_request(2, b"\6\0\0\0\2\0"))
    next_op_msg(connection)
    assert first.body == b"\6\0\0\0\1\0"


def test_a_refused_stream_frees_its_bytes() -> None:
    connection = WireConnection()
    connection.receive_data(encode_request(1, EMPTY)[:-1] + b"\1" + bytes(1000))
    with pytest.raises(ProtocolError):
        connection.next_message()
    connection.receive_data(bytes(1000))
    assert connection.unread_size == 0


class TestPreparation:
    """A long message is decoded, and its checksum computed, in steps, and one that is compressed is gathered in steps
    before it is decompressed."""

    def message(self, size: int, checksum_error: int = 0) -> bytes:
        data = bytearray(encode_request(1, document(size)) + bytes(4))
        struct.pack_into("<i", data, 0, len(data))
        struct.pack_into("<I", data, 16, CHECKSUM_PRESENT)
        struct.pack_into("<I", data, len(data) - 4, crc32c(bytes(data[:-4])) ^ checksum_error)
        return bytes(data)

    def prepared(self, connection: WireConnection) -> int:
        """How many steps it took."""
        steps = 1
        while not connection.prepare_next():
            steps += 1
        return steps

    @pytest.mark.slow
    @pytest.mark.parametrize("chunk", [1 << 16, 300_001, 1 << 20, 1 << 24])
    def test_steps(self, chunk: int) -> None:
        data = self.message(5_000_003) + self.message(3_000_001) + encode_request(2, EMPTY)
        connection = WireConnection()
        for start in range(0, len(data), chunk):
            connection.receive_data(data[start : start + chunk])
        for size in (5_000_003, 3_000_001):
            # Without the header in one piece it is not known yet how long the message is.
            assert connection.next_is_long
            assert self.prepared(connection) >= size // STEP_BYTES
            assert connection.next_is_long
            assert len(next_op_msg(connection).body) == size
        assert not connection.next_is_long
        assert next_op_msg(connection).request_id == 2
        assert connection.unread_size == 0

    def test_incomplete(self) -> None:
        data = self.message(5_000_003)
        connection = WireConnection()
        connection.receive_data(data[:-1])
        assert not connection.next_is_long
        assert connection.next_message() is NEED_DATA
        connection.receive_data(data[-1:])
        assert connection.next_is_long

    def test_short_or_refused(self, refusal: Refusal) -> None:
        connection = WireConnection()
        connection.receive_data(encode_request(1, document(1000)))
        assert not connection.next_is_long
        connection = WireConnection()
        connection.receive_data(struct.pack("<iiii", MAX_MESSAGE_SIZE + 1, 1, 0, 2013) + bytes(2_000_000))
        assert not connection.next_is_long

    def test_without_checksum(self) -> None:
        connection = WireConnection()
        connection.receive_data(encode_request(1, document(2_000_000)))
        assert self.prepared(connection) >= 2
        assert len(next_op_msg(connection).body) == 2_000_000

    def test_bytes_after_it_are_the_next_message(self) -> None:
        connection = WireConnection()
        connection.receive_data(encode_request(1, document(2_000_000)) + encode_request(2, EMPTY)[:-1])
        assert not connection.prepare_next()
        assert connection.unread_size > 2_000_000
        connection.receive_data(b"\0" + encode_request(3, EMPTY))
        assert next_op_msg(connection).request_id == 1
        assert next_op_msg(connection).request_id == 2
        assert next_op_msg(connection).request_id == 3
        assert connection.unread_size == 0

    @pytest.mark.parametrize("chunk", [1 << 16, 1 << 24])
    @pytest.mark.parametrize("compressor", [COMPRESSOR_NOOP, COMPRESSOR_SNAPPY, COMPRESSOR_ZLIB, COMPRESSOR_ZSTD])
    def test_compressed(self, compressor: int, chunk: int) -> None:
        if not is_available(compressor_name(compressor)) and compressor != COMPRESSOR_NOOP:
            pytest.skip("the compressor's package is not installed")
        rng = random.Random(1)
        documents = [bson.encode({"random": rng.randbytes(100_000)}) for _ in range(50)]
        data = encode_request(1, EMPTY, [("documents", documents)], compressor=compressor)
        stream = data + encode_request(2, EMPTY)
        connection = WireConnection()
        for start in range(0, len(stream), chunk):
            assert next_kind(connection) == (False, False)
            connection.receive_data(stream[start : start + chunk])
        assert next_kind(connection) == (True, False)
        steps = 1
        while not connection.gather_next():
            steps += 1
        assert steps >= 3
        connection.decompress_next()
        assert next_kind(connection) == (False, True)
        assert self.prepared(connection) >= 5_000_000 // STEP_BYTES
        assert next_op_msg(connection).sequences == [("documents", documents)]
        assert next_op_msg(connection).request_id == 2

    def test_compressed_of_another_kind(self) -> None:
        connection = WireConnection()
        data = encode_op_query(7, "admin.$cmd", document(2_000_000), compressor=COMPRESSOR_ZLIB)
        connection.receive_data(data + encode_request(2, EMPTY))
        assert next_kind(connection) == (True, False)
        assert connection.gather_next()
        connection.decompress_next()
        assert next_kind(connection) == (False, False)
        query = connection.next_message()
        assert isinstance(query, OpQuery) and query.query == document(2_000_000)
        assert next_op_msg(connection).request_id == 2

    def test_more_compressed_bytes_than_declared_contents(self) -> None:
        """They are not joined before that is seen, but gathered in steps, and decompressed aside."""
        connection = WireConnection()
        data = bytearray(encode_request(7, document(5_000_000), compressor=COMPRESSOR_NOOP))
        struct.pack_into("<i", data, 20, 100)
        connection.receive_data(bytes(data[:1_000_000]))
        connection.receive_data(bytes(data[1_000_000:]))
        assert next_kind(connection) == (True, False)
        assert not connection.gather_next()
        while not connection.gather_next():
            pass
        with pytest.raises(ProtocolError, match="100"):
            connection.decompress_next()

    def test_damaged(self) -> None:
        connection = WireConnection()
        data = bytearray(encode_request(7, document(2_000_000), compressor=COMPRESSOR_ZLIB))
        data[25:27] = b"\xff\xff"
        connection.receive_data(bytes(data))
        assert next_kind(connection) == (True, False)
        assert connection.gather_next()
        with pytest.raises(ProtocolError, match="damaged zlib data"):
            connection.decompress_next()
        with pytest.raises(ProtocolError, match="damaged zlib data"):
            connection.next_message()

    @pytest.mark.parametrize("prepare", [True, False])
    def test_wrong_checksum(self, prepare: bool) -> None:
        connection = WireConnection()
        connection.receive_data(self.message(2_000_000, checksum_error=1))
        if prepare:
            self.prepared(connection)
        with pytest.raises(ProtocolError, match="checksum"):
            connection.next_message()

    def test_many_small_chunks_take_no_more_memory(self) -> None:
        data = self.message(2_000_000)
        tracemalloc.start()
        try:
            connection = WireConnection()
            for start in range(0, len(data), 50):
                connection.receive_data(data[start : start + 50])
            assert tracemalloc.get_traced_memory()[0] < 2_500_000
        finally:
            tracemalloc.stop()
