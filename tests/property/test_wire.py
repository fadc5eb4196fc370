"""Laws of the codec: decoding undoes encoding, a prefix asks for more, bytes never do harm."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.errors import ProtocolError
from mongottl.wire.connection import ClientWireConnection, WireConnection
from mongottl.wire.encode import encode_op_kill_cursors, encode_op_query, encode_op_reply, encode_reply, encode_request
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    COMPRESSOR_NOOP,
    COMPRESSOR_ZLIB,
    NEED_DATA,
    NOT_COMPRESSED,
    NeedData,
    OpKillCursors,
    OpMsg,
    OpQuery,
    OpReply,
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
documents = st.binary(max_size=40).map(lambda inside: struct.pack("<i", 5 + len(inside)) + inside + b"\0")
cstrings = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
sequences = st.lists(
    st.tuples(cstrings, st.lists(documents, max_size=4)), max_size=3, unique_by=lambda section: section[0]
)
# Bits 0 (checksum), 1 and all optional ones.
flags = st.integers(0, 2**32 - 1).map(lambda bits: bits & 0xFFFF0003)
compressors = st.sampled_from([NOT_COMPRESSED, COMPRESSOR_NOOP, COMPRESSOR_ZLIB])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return encode_op_kill_cursors(draw(int32), draw(st.lists(int64, min_size=1, max_size=5)))
    if kind > 1:
        return encode_request(draw(int32), draw(documents), draw(sequences), draw(flags), draw(compressors))
    return encode_op_query(
        draw(int32),
        draw(cstrings),
        draw(documents),
        fields=draw(st.none() | documents),
        compressor=draw(compressors),
    )


def signed(bits: int) -> int:
    return bits - 2**32 if bits >= 2**31 else bits


def outcomes(connection: WireConnection, chunks: list[bytes]) -> list[str]:
    """What the connection makes of the chunks: its messages, and the error that ends it."""
    seen: list[str] = []
    received = 0
    for chunk in chunks:
        connection.receive_data(chunk)
        received += len(chunk)
        try:
            message = connection.next_message()
            while not isinstance(message, NeedData):
                if isinstance(message, OpMsg):
                    seen.append(f"{message!r} {message.body!r} {message.sequences!r}")
                elif isinstance(message, OpQuery):
                    seen.append(f"{message!r} {message.query!r} {message.fields!r}")
                elif isinstance(message, OpKillCursors):
                    seen.append(f"{message!r} {message.cursor_ids!r}")
                else:
                    seen.append(f"{message!r}")
                message = connection.next_message()
        except ProtocolError as error:
            seen.append(str(error))
            break
        assert connection.unread_size <= received
    return seen


@given(int32, documents, sequences, flags, compressors, int32)
def test_op_msg(
    request_id: int,
    body: bytes,
    sections: list[tuple[str, list[bytes]]],
    bits: int,
    compressor: int,
    response_to: int,
) -> None:
    connection = WireConnection()
    connection.receive_data(encode_request(request_id, body, sections, bits, compressor, response_to))
    message = connection.next_message()
    assert isinstance(message, OpMsg)
    assert (message.request_id, message.response_to, message.flags) == (request_id, response_to, signed(bits))
    assert (message.body, message.sequences, message.compressor) == (body, sections, compressor)
    assert message.checksum_present == (bits & 1 == 1)
    assert connection.next_message() is NEED_DATA


@given(int32, int32, documents, flags, compressors)
def test_reply(request_id: int, response_to: int, body: bytes, bits: int, compressor: int) -> None:
    data = encode_reply(request_id, response_to, body, bits, compressor)
    assert data == encode_request(request_id, body, (), bits, compressor, response_to)


@given(int32, cstrings, documents, int32, int32, int32, st.none() | documents, compressors)
def test_op_query(
    request_id: int,
    namespace: str,
    query: bytes,
    bits: int,
    skip: int,
    limit: int,
    fields: bytes | None,
    compressor: int,
) -> None:
    connection = WireConnection()
    connection.receive_data(
        encode_op_query(
            request_id, namespace, query, flags=bits, skip=skip, limit=limit, fields=fields, compressor=compressor
        )
    )
    message = connection.next_message()
    assert isinstance(message, OpQuery)
    assert (message.request_id, message.flags, message.namespace) == (request_id, bits, namespace)
    assert (message.skip, message.limit, message.query, message.fields) == (skip, limit, query, fields)
    assert message.compressor == compressor


@given(int32, int32, st.lists(documents, max_size=4), int32, st.integers(-(2**63), 2**63 - 1), int32, compressors)
def test_op_reply(
    request_id: int,
    response_to: int,
    found: list[bytes],
    bits: int,
    cursor_id: int,
    starting_from: int,
    compressor: int,
) -> None:
    connection = ClientWireConnection()
    connection.receive_data(encode_op_reply(request_id, response_to, found, bits, cursor_id, starting_from, compressor))
    reply = connection.next_message()
    assert isinstance(reply, OpReply)
    assert (reply.request_id, reply.response_to, reply.flags) == (request_id, response_to, bits)
    assert (reply.cursor_id, reply.starting_from, reply.documents) == (cursor_id, starting_from, found)
    assert reply.compressor == compressor


@given(requests(), st.data())
def test_a_proper_prefix_asks_for_more(data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data) - 1))
    connection = WireConnection()
    connection.receive_data(data[:cut])
    assert connection.next_message() is NEED_DATA
    assert connection.unread_size == cut
    connection.receive_data(data[cut:])
    assert not isinstance(connection.next_message(), NeedData)


@given(st.lists(requests(), max_size=5), st.lists(st.integers(1, 60), max_size=40))
def test_any_cutting_gives_the_same_messages(messages: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(messages)
    chunks: list[bytes] = []
    for size in sizes:
        chunks.append(stream[:size])
        stream = stream[size:]
    chunks.append(stream)
    whole = outcomes(WireConnection(), [b"".join(messages)])
    assert len(whole) == len(messages)
    assert outcomes(WireConnection(), chunks) == whole


def headed(opcode: int, inside: bytes) -> bytes:
    return struct.pack("<iiii", 16 + len(inside), 1, 0, opcode) + inside


hostile = st.one_of(
    st.binary(max_size=200),
    # Right lengths and opcodes, so that the insides are reached.
    st.builds(headed, st.sampled_from([2013, 2004, 2012]), st.binary(max_size=100)),
    st.builds(lambda inside: headed(2013, bytes(4) + inside), st.binary(max_size=100)),
    st.builds(
        lambda opcode, size, compressor, inside: headed(2012, struct.pack("<iiB", opcode, size, compressor) + inside),
        st.sampled_from([2013, 2004]),
        st.integers(0, 100) | int32,
        st.integers(0, 4),
        st.binary(max_size=60),
    ),
    # One byte of a good message changed.
    st.builds(
        lambda data, where, byte: data[: where % len(data)] + bytes([byte]) + data[where % len(data) + 1 :],
        requests(),
        st.integers(0, 1000),
        st.integers(0, 255),
    ),
)


@settings(max_examples=300)
@given(hostile)
def test_any_bytes_give_messages_need_data_or_a_protocol_error(data: bytes) -> None:
    # Any other exception fails the test.
    whole = outcomes(WireConnection(), [data])
    assert outcomes(WireConnection(), [data[n : n + 1] for n in range(len(data))]) == whole
    client = ClientWireConnection()
    client.receive_data(data)
    try:
        while not isinstance(client.next_message(), NeedData):
            pass
    except ProtocolError:
        assert client.unread_size == 0


@given(documents, sequences, st.integers(0, 10_000))
def test_a_checksum_finds_any_changed_bit(body: bytes, sections: list[tuple[str, list[bytes]]], position: int) -> None:
    data = bytearray(encode_request(1, body, sections, CHECKSUM_PRESENT))
    # Bytes 0 to 3 are the length, 12 to 15 the opcode, 16 has the flag itself.
    where = 17 + position // 8 % (len(data) - 17)
    data[where] ^= 1 << position % 8
    connection = WireConnection()
    connection.receive_data(bytes(data))
    try:
        connection.next_message()
    except ProtocolError as error:
        assert "checksum" in str(error) or "flag" in str(error)
    else:
        raise AssertionError("the damage was not seen")
