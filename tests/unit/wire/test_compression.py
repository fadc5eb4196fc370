"""OP_COMPRESSED: three compressors, two of them optional, and data that lies about its size."""

import importlib.util
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from mongottl.errors import ProtocolError
from mongottl.wire import compression
from mongottl.wire.compression import compress, decompress, is_available, negotiate_compression
from mongottl.wire.connection import WireConnection
from mongottl.wire.encode import encode_op_query, encode_op_reply, encode_reply, encode_reply_to, encode_request
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    COMPRESSOR_NOOP,
    COMPRESSOR_SNAPPY,
    COMPRESSOR_ZLIB,
    COMPRESSOR_ZSTD,
    MAX_MESSAGE_SIZE,
    OpMsg,
    OpQuery,
    OpReply,
)

Refusal = Callable[[bytes], str]
Receive = Callable[[bytes], OpMsg]

EMPTY = bytes.fromhex("0500000000")
BODY = struct.pack("<i", 2000) + bytes(1996)

needs_snappy = pytest.mark.skipif(importlib.util.find_spec("snappy") is None, reason="python-snappy is not installed")
needs_zstd = pytest.mark.skipif(importlib.util.find_spec("zstandard") is None, reason="zstandard is not installed")
every_compressor = pytest.mark.parametrize(
    "compressor",
    [
        pytest.param(COMPRESSOR_NOOP, id="noop"),
        pytest.param(COMPRESSOR_ZLIB, id="zlib"),
        pytest.param(COMPRESSOR_SNAPPY, id="snappy", marks=needs_snappy),
        pytest.param(COMPRESSOR_ZSTD, id="zstd", marks=needs_zstd),
    ],
)


def op_compressed(data: bytes, size: int, compressor: int = COMPRESSOR_ZLIB, opcode: int = 2013) -> bytes:
    return struct.pack("<iiiiiiB", 25 + len(data), 1, 0, 2012, opcode, size, compressor) + data


def test_golden(receive: Receive) -> None:
    contents = b"\0\0\0\0\0" + EMPTY
    golden = bytes.fromhex("23000000 06000000 05000000 dc070000 dd070000 0a000000 00") + contents
    message = receive(golden)
    assert (message.request_id, message.response_to, message.body, message.compressor) == (6, 5, EMPTY, 0)
    assert encode_reply(6, 5, EMPTY, compressor=COMPRESSOR_NOOP) == golden


@every_compressor
def test_op_msg_and_its_reply(receive: Receive, receive_reply: Receive, compressor: int) -> None:
    data = encode_request(8, BODY, [("docs", [BODY, EMPTY])], compressor=compressor)
    assert data[12:16] == b"\xdc\7\0\0"
    assert compressor == COMPRESSOR_NOOP or len(data) < 500
    message = receive(data)
    assert (message.request_id, message.body, message.sequences) == (8, BODY, [("docs", [BODY, EMPTY])])
    assert message.compressor == compressor
    reply = receive_reply(encode_reply_to(message, 9, BODY))
    assert (reply.request_id, reply.response_to, reply.body, reply.compressor) == (9, 8, BODY, compressor)


@every_compressor
def test_op_query_and_its_reply(
    receive: Callable[[bytes], OpQuery], receive_reply: Callable[[bytes], OpReply], compressor: int
) -> None:
    query = receive(encode_op_query(8, "admin.$cmd", BODY, compressor=compressor))
    assert (query.request_id, query.namespace, query.query, query.compressor) == (8, "admin.$cmd", BODY, compressor)
    data = encode_reply_to(query, 9, BODY)
    assert data == encode_op_reply(9, 8, [BODY], compressor=compressor)
    reply = receive_reply(data)
    assert (reply.request_id, reply.response_to, reply.documents) == (9, 8, [BODY])
    assert (reply.flags, reply.compressor) == (8, compressor)


@every_compressor
def test_checksum_covers_the_uncompressed_message(receive: Receive, refusal: Refusal, compressor: int) -> None:
    message = receive(encode_request(8, BODY, flags=CHECKSUM_PRESENT, compressor=compressor))
    assert message.checksum_present
    plain = encode_request(1, BODY, flags=CHECKSUM_PRESENT)
    data = op_compressed(compress(compressor, plain[16:]), len(plain) - 16, compressor)
    assert receive(data).body == BODY
    wrong = plain[16:-1] + bytes([plain[-1] ^ 1])
    data = op_compressed(compress(compressor, wrong), len(wrong), compressor)
    assert refusal(data) == "OP_MSG: the checksum does not match the contents"


@every_compressor
@pytest.mark.parametrize("difference", [-1, 1, -2010])
def test_size_mismatch(refusal: Refusal, compressor: int, difference: int) -> None:
    contents = encode_request(1, BODY)[16:]
    size = len(contents) + difference
    text = refusal(op_compressed(compress(compressor, contents), max(size, 0), compressor))
    assert f"does not decompress to the uncompressedSize {max(size, 0)}" in text or text.startswith(
        "OP_COMPRESSED: damaged"
    )


@every_compressor
@pytest.mark.parametrize("size", [-1, -(2**31), MAX_MESSAGE_SIZE - 15, 2**31 - 1])
def test_size_is_checked_before_anything_is_decompressed(refusal: Refusal, compressor: int, size: int) -> None:
    text = refusal(op_compressed(b"not compressed at all", size, compressor))
    assert text == f"OP_COMPRESSED: uncompressedSize {size} is not between 0 and 47999984"


@pytest.mark.parametrize(
    "compressor",
    [
        pytest.param(COMPRESSOR_ZLIB, id="zlib"),
        pytest.param(COMPRESSOR_SNAPPY, id="snappy", marks=needs_snappy),
        pytest.param(COMPRESSOR_ZSTD, id="zstd", marks=needs_zstd),
    ],
)
def test_damaged_data(compressor: int) -> None:
    contents = bytes(range(256)) * 20
    packed = compress(compressor, contents)
    assert decompress(compressor, packed, len(contents)) == contents
    refused = 0
    for data in [b"", packed[:-1], packed[: len(packed) // 2], packed + b"\0", b"\xff" * 40]:
        with pytest.raises(ProtocolError, match="OP_COMPRESSED"):
            decompress(compressor, data, len(contents))
        refused += 1
    assert refused == 5


def test_a_bomb_is_stopped_at_the_announced_size(refusal: Refusal) -> None:
    bomb = zlib.compress(bytes(20_000_000))
    connection = WireConnection()
    connection.receive_data(op_compressed(bomb, 100))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="uncompressedSize 100"):
            connection.next_message()
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@needs_snappy
def test_snappy_size_that_the_data_cannot_have() -> None:
    # A varint for 40,000,000 and a few bytes behind it: refused before 40 MB are reserved for them.
    with pytest.raises(ProtocolError, match="uncompressedSize 40000000"):
        decompress(COMPRESSOR_SNAPPY, b"\x80\xb4\x89\x13" + bytes(20), 40_000_000)
    with pytest.raises(ProtocolError, match="uncompressedSize 5"):
        decompress(COMPRESSOR_SNAPPY, b"\xff\xff\xff\xff\xff\1abc", 5)


@needs_snappy
def test_snappy_at_its_densest() -> None:
    data = bytes(1_000_000)
    packed = compress(COMPRESSOR_SNAPPY, data)
    assert len(packed) < 50_000
    assert decompress(COMPRESSOR_SNAPPY, packed, len(data)) == data


def test_zstd_frame_that_does_not_tell_its_size() -> None:
    zstandard = pytest.importorskip("zstandard")
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = stream.compress(BODY) + stream.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert decompress(COMPRESSOR_ZSTD, packed, len(BODY)) == BODY
    for size in (len(BODY) - 1, len(BODY) + 1):
        with pytest.raises(ProtocolError, match="OP_COMPRESSED"):
            decompress(COMPRESSOR_ZSTD, packed, size)


def test_nothing_inside_is_refused_by_name(refusal: Refusal) -> None:
    contents = b"\0\0\0\0\0" + EMPTY
    assert refusal(op_compressed(contents, len(contents), 0, 2012)) == "OP_COMPRESSED inside OP_COMPRESSED"
    assert refusal(op_compressed(contents, len(contents), 0, 2002)).startswith("OP_INSERT (2002) is not supported")
    assert refusal(op_compressed(contents, len(contents), 0, 1)).startswith("OP_REPLY (1) is not supported")


@pytest.mark.parametrize("compressor", [4, 9, 255])
def test_unknown_compressor(refusal: Refusal, compressor: int) -> None:
    assert refusal(op_compressed(b"abc", 3, compressor)) == f"OP_COMPRESSED: unknown compressor {compressor}"
    with pytest.raises(ProtocolError, match="unknown compressor"):
        compress(compressor, b"abc")


def test_truncated(refusal: Refusal) -> None:
    data = op_compressed(b"", 0)[:-1]
    data = struct.pack("<i", len(data)) + data[4:]
    assert refusal(data) == "OP_COMPRESSED: the message ends before its compressorId"


def test_negotiation_keeps_the_clients_order_and_drops_the_rest() -> None:
    assert negotiate_compression([]) == []
    assert negotiate_compression(["lz4", "zlib", "noop", "zlib"]) == ["zlib"]
    assert negotiate_compression(["zlib"], enabled=["snappy"]) == []


@needs_snappy
@needs_zstd
def test_negotiation_with_all_packages() -> None:
    assert negotiate_compression(["zstd", "zlib", "snappy"]) == ["zstd", "zlib", "snappy"]
    assert negotiate_compression(["zstd", "zlib", "snappy"], enabled=["snappy", "zlib"]) == ["zlib", "snappy"]


def test_without_the_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snappy", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    compression._load.cache_clear()
    try:
        assert not is_available("snappy")
        assert negotiate_compression(["snappy", "zstd", "zlib"]) == ["zlib"]
        with pytest.raises(ProtocolError, match="compressor zstd is not available here"):
            decompress(COMPRESSOR_ZSTD, b"abc", 3)
    finally:
        compression._load.cache_clear()


def test_nothing_optional_is_imported_at_start() -> None:
    code = (
        "import sys, mongottl.wire.connection, mongottl.wire.encode\n"
        "print([name for name in ('snappy', 'cramjam', 'zstandard', 'bson', 'trio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
