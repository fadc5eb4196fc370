"""The receiving end of a connection, without the socket: bytes in, messages out.

    connection.receive_data(socket.recv(65536))
    while (message := connection.next_message()) is not NEED_DATA: ...

Bytes lie in `_buffer` from `_pos` on, and behind those in `_more`. When everything before is consumed, a received
chunk becomes `_buffer` as it is, so that messages are sliced straight from it. Only when a message is spread over
chunks do the later ones gather in `_more`, and the two are joined once when enough is there for its header, and once
when it is complete, so copying stays linear however the stream is cut. Memory follows the bytes received, never a
length field.

After a ProtocolError the stream has no further message boundary: the same error is raised from then on.
"""

from typing import Final

from librt.strings import read_i32_le

from mongottl.errors import ProtocolError
from mongottl.wire.decode import (
    compressed_opcode,
    decode_op_msg,
    decode_op_query,
    decode_op_reply,
    decompress_message,
    refuse_opcode,
)
from mongottl.wire.messages import (
    HEADER_SIZE,
    MAX_MESSAGE_SIZE,
    NEED_DATA,
    NOT_COMPRESSED,
    OP_COMPRESSED,
    OP_MSG,
    OP_QUERY,
    OP_REPLY,
    NeedData,
    OpMsg,
    OpQuery,
    OpReply,
)

_NOTHING: Final = 0  # no opcode
# A compressed message that says to be so long without compression is better decompressed in another thread.
LONG_COMPRESSED_BYTES: Final = 128 * 1024
_COMPRESSED_HEADER_SIZE: Final = HEADER_SIZE + 9


class ReceiveBuffer:
    """The bytes of one stream, cut into messages."""

    def __init__(self) -> None:
        self._buffer = b""
        self._pos = 0
        self._more = bytearray()
        self._error = ""

    def receive_data(self, data: bytes) -> None:
        """Takes what the peer sent next, of any size. After a ProtocolError it is dropped."""
        if self._error:
            return
        if self._pos == len(self._buffer) and not self._more:
            self._buffer = data
            self._pos = 0
        else:
            self._more += data

    @property
    def unread_size(self) -> int:
        """Bytes received that belong to no message yet handed out: not 0 at the end of the stream means truncated."""
        return len(self._buffer) - self._pos + len(self._more)

    @property
    def next_is_compressed(self) -> bool:
        """Whether the next message is here as a whole and is one that takes long to decompress."""
        if self._error:
            return False
        have = len(self._buffer) - self._pos
        if have + len(self._more) < _COMPRESSED_HEADER_SIZE:
            return False
        if have < _COMPRESSED_HEADER_SIZE:
            self._join()
            have = len(self._buffer)
        pos = self._pos
        if read_i32_le(self._buffer, pos + 12) != OP_COMPRESSED:
            return False
        length: int = read_i32_le(self._buffer, pos)
        size: int = read_i32_le(self._buffer, pos + 20)
        return length <= have + len(self._more) and size >= LONG_COMPRESSED_BYTES

    def _next_end(self) -> int:
        """Offset in `_buffer` of the end of the whole message at `_pos`, or -1 when it is not there yet.

        ProtocolError as soon as its header tells a length that no message has.
        """
        if self._error:
            raise ProtocolError(self._error)
        have = len(self._buffer) - self._pos
        if have < HEADER_SIZE:
            if have + len(self._more) < HEADER_SIZE:
                return -1
            self._join()
            have = len(self._buffer)
        length: int = read_i32_le(self._buffer, self._pos)
        if length < HEADER_SIZE or length > MAX_MESSAGE_SIZE:
            raise self._bad_length(length)
        if have < length:
            if have + len(self._more) < length:
                return -1
            self._join()
        return self._pos + length

    def _join(self) -> None:
        # At once: a message may have 48 MB, and each copy of them holds up all connections.
        self._buffer = b"".join([self._buffer[self._pos :], self._more])
        self._pos = 0
        self._more = bytearray()

    def _consume(self, end: int) -> None:
        """The bytes before `end` are done with."""
        if end == len(self._buffer):
            # An idle connection does not hold on to its last message.
            self._buffer = b""
            self._pos = 0
        else:
            self._pos = end

    def _fail(self, error: ProtocolError) -> None:
        self._error = str(error)
        self._buffer = b""
        self._pos = 0
        self._more = bytearray()

    def _bad_length(self, length: int) -> ProtocolError:
        if self._buffer[self._pos : self._pos + 4] in (b"GET ", b"POST", b"HEAD", b"PUT "):
            return ProtocolError("this looks like an HTTP request; the port speaks MongoDB's wire protocol")
        return ProtocolError(f"messageLength {length} is not between {HEADER_SIZE} and {MAX_MESSAGE_SIZE}")

    def _next_whole(self) -> tuple[int, bytes, int, int, int]:
        """The next whole message, consumed: (opcode, buffer, start, end, compressor); NOTHING as opcode without one.

        A compressed message is given as what is inside it. ProtocolError for an opcode that this end does not take, by
        the header alone.
        """
        end = self._next_end()
        start = self._pos
        buffer = self._buffer
        if end < 0:
            if len(buffer) - start >= HEADER_SIZE:
                self._check_opcode(read_i32_le(buffer, start + 12))
            return _NOTHING, b"", 0, 0, NOT_COMPRESSED
        opcode: int = read_i32_le(buffer, start + 12)
        if opcode != OP_MSG:
            self._check_opcode(opcode)
        if opcode != OP_COMPRESSED:
            self._consume(end)
            return opcode, buffer, start, end, NOT_COMPRESSED
        opcode = compressed_opcode(buffer, start, end)
        self._check_opcode(opcode)
        plain = decompress_message(buffer, start, end)
        self._consume(end)
        return opcode, plain, 0, len(plain), buffer[start + 24]

    def _check_opcode(self, opcode: int) -> None:
        """ProtocolError for what this end does not take. OP_MSG both take."""
        raise NotImplementedError


class WireConnection(ReceiveBuffer):
    """What a server receives: OP_MSG, OP_QUERY, and either inside OP_COMPRESSED."""

    def next_message(self) -> OpMsg | OpQuery | NeedData:
        """The next whole message, or NEED_DATA.

        ProtocolError when the bytes are no message that a server takes, as soon as that can be told; a length or opcode
        that is refused is told by the header alone.
        """
        try:
            opcode, buffer, start, end, compressor = self._next_whole()
            if opcode == OP_MSG:
                return decode_op_msg(buffer, start, end, compressor)
            if opcode == _NOTHING:
                return NEED_DATA
            return decode_op_query(buffer, start, end, compressor)
        except ProtocolError as error:
            self._fail(error)
            raise

    def _check_opcode(self, opcode: int) -> None:
        if opcode not in (OP_MSG, OP_QUERY, OP_COMPRESSED):
            raise refuse_opcode(opcode, "a server takes OP_MSG, OP_COMPRESSED, and OP_QUERY for the first hello")


class ClientWireConnection(ReceiveBuffer):
    """What a client receives: OP_MSG, OP_REPLY, and either inside OP_COMPRESSED."""

    def next_message(self) -> OpMsg | OpReply | NeedData:
        """The next whole message, or NEED_DATA. ProtocolError as in WireConnection."""
        try:
            opcode, buffer, start, end, compressor = self._next_whole()
            if opcode == OP_MSG:
                return decode_op_msg(buffer, start, end, compressor)
            if opcode == _NOTHING:
                return NEED_DATA
            return decode_op_reply(buffer, start, end, compressor)
        except ProtocolError as error:
            self._fail(error)
            raise

    def _check_opcode(self, opcode: int) -> None:
        if opcode not in (OP_MSG, OP_REPLY, OP_COMPRESSED):
            raise refuse_opcode(opcode, "a client takes OP_MSG, OP_REPLY and OP_COMPRESSED")
