"""Encodes messages: replies for the server, requests for clients (load generator, tests).

Documents are given as raw BSON and spliced in whole. CHECKSUM_PRESENT in `flags` makes the functions append the
CRC-32C; `compressor` wraps the message in OP_COMPRESSED. The checksum is that of the uncompressed message.
"""

import struct
from collections.abc import Sequence
from typing import Final

from mongottl.document.utf8 import encode_text
from mongottl.wire.compression import compress
from mongottl.wire.crc32c import crc32c
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    HEADER_SIZE,
    MAX_MESSAGE_SIZE,
    NOT_COMPRESSED,
    OP_COMPRESSED,
    OP_KILL_CURSORS,
    OP_MSG,
    OP_QUERY,
    OP_REPLY,
    REPLY_AWAIT_CAPABLE,
    REPLY_QUERY_FAILURE,
    OpMsg,
    OpQuery,
    Request,
)

# Header, flagBits and the kind byte of a body section: a reply without its document.
_pack_op_msg: Final = struct.Struct("<iiiiIB").pack
_pack_header: Final = struct.Struct("<iiii").pack
_pack_compressed: Final = struct.Struct("<iiiiiiB").pack
_pack_op_reply: Final = struct.Struct("<iiiiIqii").pack
_pack_i32: Final = struct.Struct("<i").pack
_pack_u32: Final = struct.Struct("<I").pack
_pack_2i32: Final = struct.Struct("<ii").pack
_pack_i64: Final = struct.Struct("<q").pack


def encode_reply(
    request_id: int, response_to: int, body: bytes, flags: int = 0, compressor: int = NOT_COMPRESSED
) -> bytes:
    """An OP_MSG with `body` as its one section.

    request_id: this message's own id. response_to: the request's id, or for a later reply of an exhaust command the
    previous reply's. flags: as in OpMsg. ValueError when the message would exceed MAX_MESSAGE_SIZE.
    """
    if compressor == NOT_COMPRESSED and flags & CHECKSUM_PRESENT == 0:
        size = 21 + len(body)
        if size > MAX_MESSAGE_SIZE:
            raise _too_long(size)
        head: bytes = _pack_op_msg(size, request_id, response_to, OP_MSG, flags & 0xFFFFFFFF, 0)
        return head + body
    return _finish(request_id, response_to, OP_MSG, [_pack_u32(flags & 0xFFFFFFFF), b"\0", body], flags, compressor)


def encode_reply_to(request: Request, request_id: int, body: bytes, flags: int = 0) -> bytes:
    """The reply to `request`: OP_MSG to OP_MSG, else OP_REPLY; with checksum and compressor if the request had them.

    To a query of a collection and to OP_GET_MORE there are only errors.

    flags: MORE_TO_COME or 0; without meaning for OP_REPLY.
    """
    if isinstance(request, OpMsg):
        return encode_reply(
            request_id, request.request_id, body, flags | (request.flags & CHECKSUM_PRESENT), request.compressor
        )
    reply_flags = REPLY_AWAIT_CAPABLE
    if not (isinstance(request, OpQuery) and request.is_command):
        reply_flags |= REPLY_QUERY_FAILURE
    return encode_op_reply(request_id, request.request_id, [body], reply_flags, compressor=request.compressor)


def encode_request(
    request_id: int,
    body: bytes,
    sequences: Sequence[tuple[str, Sequence[bytes]]] = (),
    flags: int = 0,
    compressor: int = NOT_COMPRESSED,
    response_to: int = 0,
) -> bytes:
    """An OP_MSG with `body` and document sequences, as clients send. flags: as in OpMsg."""
    parts: list[bytes] = [_pack_u32(flags & 0xFFFFFFFF), b"\0", body]
    for name, documents in sequences:
        identifier = encode_text(name) + b"\0"
        contents = b"".join(documents)
        parts.append(b"\1" + _pack_i32(4 + len(identifier) + len(contents)) + identifier)
        parts.append(contents)
    return _finish(request_id, response_to, OP_MSG, parts, flags, compressor)


def encode_op_query(
    request_id: int,
    namespace: str,
    query: bytes,
    *,
    flags: int = 0,
    skip: int = 0,
    limit: int = -1,
    fields: bytes | None = None,
    compressor: int = NOT_COMPRESSED,
) -> bytes:
    """An OP_QUERY, as clients send their first `hello`. limit: numberToReturn."""
    parts: list[bytes] = [_pack_u32(flags & 0xFFFFFFFF), encode_text(namespace) + b"\0", _pack_2i32(skip, limit), query]
    if fields is not None:
        parts.append(fields)
    return _finish(request_id, 0, OP_QUERY, parts, 0, compressor)


def encode_op_kill_cursors(request_id: int, cursor_ids: Sequence[int]) -> bytes:
    """An OP_KILL_CURSORS, as old clients send."""
    parts = [_pack_2i32(0, len(cursor_ids)), *(_pack_i64(cursor_id) for cursor_id in cursor_ids)]
    return _finish(request_id, 0, OP_KILL_CURSORS, parts, 0, NOT_COMPRESSED)


def encode_op_reply(
    request_id: int,
    response_to: int,
    documents: Sequence[bytes],
    flags: int = REPLY_AWAIT_CAPABLE,
    cursor_id: int = 0,
    starting_from: int = 0,
    compressor: int = NOT_COMPRESSED,
) -> bytes:
    """An OP_REPLY: the answer to an OP_QUERY, one document for a command."""
    contents = b"".join(documents)
    head: bytes = _pack_op_reply(
        36 + len(contents),
        request_id,
        response_to,
        OP_REPLY,
        flags & 0xFFFFFFFF,
        cursor_id,
        starting_from,
        len(documents),
    )
    if compressor == NOT_COMPRESSED:
        return head + contents
    return _finish(request_id, response_to, OP_REPLY, [head[HEADER_SIZE:], contents], 0, compressor)


def _finish(request_id: int, response_to: int, opcode: int, parts: list[bytes], flags: int, compressor: int) -> bytes:
    """The message whose contents after the header are `parts`, with checksum and compression where asked for."""
    size = HEADER_SIZE
    for part in parts:
        size += len(part)
    with_checksum = flags & CHECKSUM_PRESENT != 0
    if with_checksum:
        size += 4
    if size > MAX_MESSAGE_SIZE:
        raise _too_long(size)
    header: bytes = _pack_header(size, request_id, response_to, opcode)
    message = b"".join([header, *parts])
    if with_checksum:
        message += _pack_u32(crc32c(message))
    if compressor == NOT_COMPRESSED:
        return message
    packed = compress(compressor, message[HEADER_SIZE:])
    head: bytes = _pack_compressed(
        HEADER_SIZE + 9 + len(packed),
        request_id,
        response_to,
        OP_COMPRESSED,
        opcode,
        size - HEADER_SIZE,
        compressor,
    )
    return head + packed


def _too_long(size: int) -> ValueError:
    return ValueError(f"a message of {size} bytes exceeds the protocol's {MAX_MESSAGE_SIZE}")
