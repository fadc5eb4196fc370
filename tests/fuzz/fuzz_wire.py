"""Fuzzes the wire codec with atheris: `python tests/fuzz/fuzz_wire.py [corpus folder] [libFuzzer options]`.

Invariant: whatever bytes arrive, in whatever pieces,
- the connection answers with messages, NEED_DATA or ProtocolError, and with nothing else;
- the answers do not depend on the pieces;
- it never holds more bytes than it was given, and none after an error;
- a message that was read and is encoded again reads as the same message.

Run it with an interpreted `mongottl`: atheris sees the branches of Python code alone.
Not collected by pytest (its name does not begin with `test_`); the property tests state the same laws for hypothesis.
"""

import importlib
import struct
import sys

from mongottl.errors import ProtocolError
from mongottl.wire.connection import WireConnection
from mongottl.wire.encode import encode_op_kill_cursors, encode_op_query, encode_request
from mongottl.wire.messages import (
    NOT_COMPRESSED,
    OP_COMPRESSED,
    OP_KILL_CURSORS,
    OP_MSG,
    OP_QUERY,
    NeedData,
    OpGetMore,
    OpKillCursors,
    OpMsg,
    OpQuery,
    Request,
)

# Compressed data grows at most about a thousandfold; longer inputs find nothing new and are slow.
MAX_INPUT = 1 << 16


def contents(message: Request) -> tuple[object, ...]:
    if isinstance(message, OpMsg):
        return (message.request_id, message.response_to, message.flags, message.body, message.sequences)
    if isinstance(message, OpKillCursors):
        return (message.request_id, message.cursor_ids)
    if isinstance(message, OpGetMore):
        return (message.request_id,)
    return (message.request_id, message.flags, message.namespace, message.skip, message.limit, message.query)


def read(chunks: list[bytes]) -> tuple[list[Request], str]:
    """The messages in the chunks, and the text of the error that ends them or an empty one."""
    connection = WireConnection()
    messages: list[Request] = []
    received = 0
    for chunk in chunks:
        connection.receive_data(chunk)
        received += len(chunk)
        try:
            message = connection.next_message()
            while not isinstance(message, NeedData):
                messages.append(message)
                message = connection.next_message()
        except ProtocolError as error:
            assert connection.unread_size == 0
            return messages, str(error)
        assert connection.unread_size <= received
    return messages, ""


def encode_again(message: OpMsg | OpQuery | OpKillCursors) -> bytes:
    if isinstance(message, OpMsg):
        return encode_request(
            message.request_id,
            message.body,
            message.sequences,
            message.flags,
            NOT_COMPRESSED,
            message.response_to,
        )
    if isinstance(message, OpKillCursors):
        return encode_op_kill_cursors(message.request_id, message.cursor_ids)
    return encode_op_query(
        message.request_id,
        message.namespace,
        message.query,
        flags=message.flags,
        skip=message.skip,
        limit=message.limit,
        fields=message.fields,
    )


def check(data: bytes) -> None:
    """One input: its first byte says how the rest is cut, its second whether that gets a good header first."""
    if len(data) < 2 or len(data) > MAX_INPUT:
        return
    size = data[0] + 1
    stream = data[2:]
    if data[1] % 5:
        opcode = (OP_MSG, OP_QUERY, OP_COMPRESSED, OP_KILL_CURSORS)[data[1] % 5 - 1]
        stream = struct.pack("<iiii", 16 + len(stream), 1, 0, opcode) + stream
    messages, error = read([stream])
    pieces, error_of_pieces = read([stream[n : n + size] for n in range(0, len(stream), size)])
    assert error == error_of_pieces
    assert [contents(one) for one in messages] == [contents(one) for one in pieces]
    for message in messages:
        if isinstance(message, OpGetMore):
            continue  # of which nothing but its header is read
        again, error = read([encode_again(message)])
        assert not error, error
        assert [contents(one) for one in again] == [contents(message)]


def main() -> None:
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
