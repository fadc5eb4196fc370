"""Decodes the bytes of one whole message.

The functions take `buffer[start:end]` by offsets, header included, so that nothing is copied but the documents. The
caller has checked that the range is there and at least a header long. They check that each section and document fits
exactly; whether a document's inside is valid BSON is checked later, by `document`.
"""

from typing import Final

from librt.strings import read_i32_le, read_i64_le

from mongottl.errors import ProtocolError
from mongottl.wire.compression import decompress
from mongottl.wire.crc32c import crc32c_of_part
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    HEADER_SIZE,
    LEGACY_OPCODES,
    MAX_MESSAGE_SIZE,
    MAX_NAME_BYTES,
    MAX_SEQUENCES,
    NOT_COMPRESSED,
    OLD_DRIVER,
    OP_COMPRESSED,
    UNKNOWN_REQUIRED_FLAGS,
    OpGetMore,
    OpKillCursors,
    OpMsg,
    OpQuery,
    OpReply,
    opcode_name,
)

# mongod's limit of the cursors that one message closes.
MAX_KILLED_CURSORS: Final = 29_999


def decode_op_msg(buffer: bytes, start: int, end: int, compressor: int = NOT_COMPRESSED) -> OpMsg:
    """The OP_MSG in `buffer[start:end]`: flagBits, sections, and a CRC-32C when flagged, which is verified.

    ProtocolError: an unknown required flag, a wrong checksum, a section that does not fit, an unknown section kind, no
    body or two, two sequences of one name.
    """
    pos = start + 20
    size_bytes = end - start
    if end < pos:
        raise ProtocolError("OP_MSG: the message ends before its flag bits")
    flags: int = read_i32_le(buffer, start + 16)
    if flags & UNKNOWN_REQUIRED_FLAGS:
        raise ProtocolError(f"OP_MSG: unknown required flag bits {flags & UNKNOWN_REQUIRED_FLAGS:#x}")
    if flags & CHECKSUM_PRESENT:
        end -= 4
        if end < pos:
            raise ProtocolError("OP_MSG: the message ends before its checksum")
        expected: int = read_i32_le(buffer, end)
        if crc32c_of_part(buffer, start, end, 0) != expected & 0xFFFFFFFF:
            raise ProtocolError("OP_MSG: the checksum does not match the contents")
    body: bytes | None = None
    sequences: list[tuple[str, list[bytes]]] = []
    names: set[str] | None = None
    while pos < end:
        kind = buffer[pos]
        pos += 1
        if kind == 0:
            if body is not None:
                raise ProtocolError("OP_MSG: more than one body section")
            # `_take_document`, inlined because this runs for every message.
            if end - pos < 5:
                raise ProtocolError("OP_MSG: the body section is truncated")
            size: int = read_i32_le(buffer, pos)
            if size < 5 or size > end - pos:
                raise ProtocolError(
                    f"OP_MSG: the body's document has length {size}, but {end - pos} bytes of the message are left"
                )
            body = buffer[pos : pos + size]
            pos += size
            if buffer[pos - 1] != 0:
                raise ProtocolError("OP_MSG: the body's document does not end with NUL")
        elif kind == 1:
            if names is None:
                names = set()
            pos = _take_sequence(buffer, pos, end, sequences, names)
        else:
            raise ProtocolError(f"OP_MSG: unknown section kind {kind}")
    if body is None:
        raise ProtocolError("OP_MSG: no body section")
    request_id: int = read_i32_le(buffer, start + 4)
    response_to: int = read_i32_le(buffer, start + 8)
    return OpMsg(request_id, response_to, flags, body, sequences, compressor, size_bytes)


def _take_sequence(buffer: bytes, pos: int, end: int, sequences: list[tuple[str, list[bytes]]], names: set[str]) -> int:
    """Appends the document sequence at `pos` (size, identifier, documents) and returns the offset after it.

    names: those of the sequences before it, if there are at least two.
    """
    if end - pos < 5:
        raise ProtocolError("OP_MSG: a document sequence is truncated")
    size: int = read_i32_le(buffer, pos)
    if size < 5 or size > end - pos:
        raise ProtocolError(
            f"OP_MSG: a document sequence has length {size}, but {end - pos} bytes of the message are left"
        )
    end = pos + size
    name_end = buffer.find(b"\0", pos + 4, min(end, pos + 4 + MAX_NAME_BYTES + 1))
    if name_end < 0:
        raise unended_identifier(size)
    name = decode_text(buffer, pos + 4, name_end, "OP_MSG: a document sequence's identifier")
    if len(sequences) == MAX_SEQUENCES:
        raise too_many_sequences()
    # Most messages have one sequence, but a set is made for any number of them in linear time.
    if sequences:
        if not names:
            names.add(sequences[0][0])
        if name in names:
            raise ProtocolError(f"OP_MSG: two document sequences are named {name!r}")
        names.add(name)
    documents: list[bytes] = []
    pos = name_end + 1
    while pos < end:
        document = _take_document(buffer, pos, end, "OP_MSG: document sequence")
        documents.append(document)
        pos += len(document)
    sequences.append((name, documents))
    return pos


def unended_identifier(size: int) -> ProtocolError:
    """The error for a document sequence in which no identifier ends. size: its bytes."""
    if size <= 4 + MAX_NAME_BYTES:
        return ProtocolError("OP_MSG: a document sequence's identifier does not end inside its section")
    return ProtocolError(f"OP_MSG: a document sequence's identifier has more than {MAX_NAME_BYTES} bytes")


def too_many_sequences() -> ProtocolError:
    return ProtocolError(f"OP_MSG: there are more than {MAX_SEQUENCES} document sequences")


def _take_document(buffer: bytes, pos: int, end: int, where: str) -> bytes:
    """The document at `pos`, which has to fit before `end`."""
    if end - pos < 5:
        raise ProtocolError(f"{where}: a document is truncated")
    size: int = read_i32_le(buffer, pos)
    if size < 5 or size > end - pos:
        raise ProtocolError(f"{where}: a document has length {size}, but {end - pos} bytes are left")
    if buffer[pos + size - 1] != 0:
        raise ProtocolError(f"{where}: a document does not end with NUL")
    return buffer[pos : pos + size]


def decode_text(buffer: bytes, start: int, end: int, what: str) -> str:
    """`buffer[start:end]` as text. ProtocolError if that is not UTF-8; what: begins its text."""
    try:
        return buffer[start:end].decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"{what} is not valid UTF-8") from None


def decode_op_query(buffer: bytes, start: int, end: int, compressor: int = NOT_COMPRESSED) -> OpQuery:
    """The OP_QUERY in `buffer[start:end]`: flags, fullCollectionName, numberToSkip, numberToReturn, one or two
    documents."""
    pos = start + 20
    size_bytes = end - start
    if end < pos:
        raise ProtocolError("OP_QUERY: the message ends before its flags")
    flags: int = read_i32_le(buffer, start + 16)
    name_end = buffer.find(b"\0", pos, min(end, pos + MAX_NAME_BYTES + 1))
    if name_end < 0 and end - pos > MAX_NAME_BYTES:
        raise ProtocolError(f"OP_QUERY: fullCollectionName has more than {MAX_NAME_BYTES} bytes")
    if name_end < 0:
        raise ProtocolError("OP_QUERY: fullCollectionName does not end inside the message")
    namespace = decode_text(buffer, pos, name_end, "OP_QUERY: fullCollectionName")
    pos = name_end + 1
    if end - pos < 8:
        raise ProtocolError("OP_QUERY: the message ends before numberToReturn")
    skip: int = read_i32_le(buffer, pos)
    limit: int = read_i32_le(buffer, pos + 4)
    pos += 8
    query = _take_document(buffer, pos, end, "OP_QUERY")
    pos += len(query)
    fields: bytes | None = None
    if pos < end:
        fields = _take_document(buffer, pos, end, "OP_QUERY")
        pos += len(fields)
    if pos < end:
        raise ProtocolError(f"OP_QUERY: {end - pos} bytes are left behind its documents")
    request_id: int = read_i32_le(buffer, start + 4)
    response_to: int = read_i32_le(buffer, start + 8)
    return OpQuery(request_id, response_to, flags, namespace, skip, limit, query, fields, compressor, size_bytes)


def decode_op_get_more(buffer: bytes, start: int, end: int, compressor: int = NOT_COMPRESSED) -> OpGetMore:
    """The OP_GET_MORE in `buffer[start:end]`. Only its header is read: it is answered by an error."""
    request_id: int = read_i32_le(buffer, start + 4)
    response_to: int = read_i32_le(buffer, start + 8)
    return OpGetMore(request_id, response_to, compressor)


def decode_op_kill_cursors(buffer: bytes, start: int, end: int, compressor: int = NOT_COMPRESSED) -> OpKillCursors:
    """The OP_KILL_CURSORS in `buffer[start:end]`: 0, numberOfCursorIDs, cursorIDs."""
    pos = start + 24
    if end < pos:
        raise ProtocolError("OP_KILL_CURSORS: the message ends before its cursor ids")
    count: int = read_i32_le(buffer, start + 20)
    if count < 1 or count > MAX_KILLED_CURSORS:
        raise ProtocolError(f"OP_KILL_CURSORS: numberOfCursorIDs {count} is not between 1 and {MAX_KILLED_CURSORS}")
    if end - pos != 8 * count:
        raise ProtocolError(f"OP_KILL_CURSORS: numberOfCursorIDs is {count}, but there are {end - pos} bytes of ids")
    cursor_ids: list[int] = [read_i64_le(buffer, at) for at in range(pos, end, 8)]
    request_id: int = read_i32_le(buffer, start + 4)
    response_to: int = read_i32_le(buffer, start + 8)
    return OpKillCursors(request_id, response_to, cursor_ids, compressor)


def decode_op_reply(buffer: bytes, start: int, end: int, compressor: int = NOT_COMPRESSED) -> OpReply:
    """The OP_REPLY in `buffer[start:end]`: responseFlags, cursorID, startingFrom, numberReturned, documents."""
    pos = start + 36
    if end < pos:
        raise ProtocolError("OP_REPLY: the message ends before numberReturned")
    flags: int = read_i32_le(buffer, start + 16)
    cursor_id: int = read_i64_le(buffer, start + 20)
    starting_from: int = read_i32_le(buffer, start + 28)
    count: int = read_i32_le(buffer, start + 32)
    documents: list[bytes] = []
    while pos < end:
        document = _take_document(buffer, pos, end, "OP_REPLY")
        documents.append(document)
        pos += len(document)
    if len(documents) != count:
        raise ProtocolError(f"OP_REPLY: numberReturned is {count}, but there are {len(documents)} documents")
    request_id: int = read_i32_le(buffer, start + 4)
    response_to: int = read_i32_le(buffer, start + 8)
    return OpReply(request_id, response_to, flags, cursor_id, starting_from, documents, compressor)


def compressed_opcode(buffer: bytes, start: int, end: int) -> int:
    """The originalOpcode of the OP_COMPRESSED in `buffer[start:end]`, which may not be OP_COMPRESSED again."""
    if end - start < HEADER_SIZE + 9:
        raise ProtocolError("OP_COMPRESSED: the message ends before its compressorId")
    opcode: int = read_i32_le(buffer, start + 16)
    if opcode == OP_COMPRESSED:
        raise ProtocolError("OP_COMPRESSED inside OP_COMPRESSED")
    return opcode


def decompress_message(buffer: bytes, start: int, end: int, max_bytes: int = MAX_MESSAGE_SIZE) -> bytes:
    """The message inside the OP_COMPRESSED in `buffer[start:end]`, with the header that it had before.

    max_bytes: the longest message that is taken. The caller must call `compressed_opcode` first. The uncompressedSize
    is checked before anything is decompressed.
    """
    header = decompressed_header(buffer, start, max_bytes)
    return header + decompress(buffer[start + 24], buffer[start + 25 : end], read_i32_le(buffer, start + 20))


def decompressed_header(buffer: bytes, start: int, max_bytes: int) -> bytes:
    """The header that the message inside the OP_COMPRESSED at `start` had before. ProtocolError for a message that is
    too long; max_bytes: as that of `decompress_message`."""
    size: int = read_i32_le(buffer, start + 20)
    if size < 0 or size > max_bytes - HEADER_SIZE:
        raise ProtocolError(f"OP_COMPRESSED: uncompressedSize {size} is not between 0 and {max_bytes - HEADER_SIZE}")
    return (size + HEADER_SIZE).to_bytes(4, "little") + buffer[start + 4 : start + 12] + buffer[start + 16 : start + 20]


def refused_opcode(opcode: int, expected: str) -> str:
    """The text of the error for a message with an opcode that this end does not accept.

    expected: the text about those it accepts.
    """
    advice = OLD_DRIVER if opcode in LEGACY_OPCODES else expected
    return f"{opcode_name(opcode)} is not supported; {advice}"
