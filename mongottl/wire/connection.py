"""The receiving end of a connection, without the socket: from received bytes to messages.

    connection.receive_data(socket.recv(65536))
    while (message := connection.next_message()) is not NEED_DATA: ...

Unread bytes are in `_buffer` from `_pos` on, and then in `_parts` and `_more`. If there are none, a received chunk
becomes `_buffer` without a copy, so that messages are slices of it. If a message consists of several chunks, the later
ones are collected in `_more`, and from there in parts of PART_BYTES; all are joined once when its header is complete,
and once when the message is, so that the bytes copied stay proportional to the bytes received. Memory depends on the
bytes received, never on a length field.

A message may have 48 MB: joining these takes 30 ms, its checksum as long, and decoding it as long again. So a long one
is not joined, but decoded part by part (`long_message`), and a compressed one is decompressed in another thread. Where
others must not wait, the caller lets them run in between:

    if connection.next_is_compressed:
        while not connection.gather_next(): ...
        connection.decompress_next()                         in another thread
    while connection.next_is_long and not connection.prepare_next(): ...

After a ProtocolError no message boundary can be found in the stream: the same error is raised from then on.
"""

from typing import Final, Generic, TypeVar

from librt.strings import read_i32_le

from mongottl.errors import HttpRequestError, ProtocolError
from mongottl.wire.compression import decompress_in_parts
from mongottl.wire.decode import (
    compressed_opcode,
    decode_op_get_more,
    decode_op_kill_cursors,
    decode_op_msg,
    decode_op_query,
    decode_op_reply,
    decompress_message,
    decompressed_header,
    refused_opcode,
)
from mongottl.wire.long_message import LongMessage, Part
from mongottl.wire.messages import (
    HEADER_SIZE,
    MAX_LEGACY_SIZE,
    MAX_MESSAGE_SIZE,
    NEED_DATA,
    NOT_COMPRESSED,
    OP_COMPRESSED,
    OP_GET_MORE,
    OP_KILL_CURSORS,
    OP_MSG,
    OP_QUERY,
    OP_REPLY,
    LegacyRequest,
    NeedData,
    OpMsg,
    OpReply,
    opcode_name,
)

_NOTHING: Final = 0  # no opcode
# The first four bytes of HTTP requests. As the length of a message, all would be beyond the maximum.
_HTTP_METHODS: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN")
# The first bytes of a TLS record of the handshake: its type and the major version.
_TLS_HANDSHAKE: Final = b"\x16\x03"
# A message that declares to be at least this long without compression is decompressed in another thread.
LONG_COMPRESSED_BYTES: Final = 128 * 1024
_COMPRESSED_HEADER_SIZE: Final = HEADER_SIZE + 9
# A message that is at least this long is decoded in steps.
LONG_MESSAGE_BYTES: Final = 1 << 20
# Bytes of compressed data that are copied in one step.
_GATHERED_BYTES: Final = 2 << 20
# Chunks are collected up to this size; a longer array would be copied whenever it grows.
PART_BYTES: Final = 256 * 1024


# The messages that one end accepts beside OP_MSG.
Other = TypeVar("Other")


class ReceiveBuffer(Generic[Other]):
    """The received bytes of one stream, split into messages.

    max_message_bytes: the longest message that is taken, also of what it has when it is decompressed.
    """

    def __init__(self) -> None:
        self.max_message_bytes: int = MAX_MESSAGE_SIZE
        self._buffer = b""
        self._pos = 0
        self._more = bytearray()
        self._parts: list[bytes] = []
        # Bytes in `_parts` and `_more`.
        self._collected = 0
        # Bytes of the next message that were given away.
        self._held = 0
        # The next message while it is decoded in steps.
        self._long: LongMessage | None = None
        # The next message if it is compressed, while it is gathered in steps, how much of it there is, and the rest.
        self._gathered: bytearray | None = None
        self._gathered_size = 0
        self._ungathered: list[Part] = []
        # If that was no OP_MSG: its opcode, itself, and its compressor.
        self._plain: tuple[int, bytes, int] | None = None
        self._error = ""

    def receive_data(self, data: bytes) -> None:
        """Appends bytes that the peer sent, in chunks of any size. After a ProtocolError they are dropped."""
        if self._error:
            return
        if self._pos == len(self._buffer) and not self._collected:
            self._buffer = data
            self._pos = 0
            return
        self._more += data
        self._collected += len(data)
        if len(self._more) >= PART_BYTES:
            self._parts.append(bytes(self._more))
            self._more = bytearray()

    @property
    def unread_size(self) -> int:
        """Bytes received that belong to no message yet handed out: not 0 at the end of the stream means truncated."""
        return len(self._buffer) - self._pos + self._collected + self._held

    @property
    def next_whole_size(self) -> int:
        """Bytes of the next message when it is whole, and of its content when it is decompressed, if its header
        has that; 0 before the header is there, and for an impossible one."""
        have = len(self._buffer) - self._pos
        if have < HEADER_SIZE:
            return 0
        buffer = self._buffer
        pos = self._pos
        length: int = read_i32_le(buffer, pos)
        if read_i32_le(buffer, pos + 12) == OP_COMPRESSED and have >= _COMPRESSED_HEADER_SIZE:
            plain: int = read_i32_le(buffer, pos + 20)
            length += max(0, min(plain, MAX_MESSAGE_SIZE))
        return max(0, length)

    @property
    def next_is_compressed(self) -> bool:
        """Whether the next message is here as a whole and is one that takes long to decompress."""
        if self._error or self._long is not None or self._plain is not None:
            return False
        have = len(self._buffer) - self._pos
        if have + self._collected < _COMPRESSED_HEADER_SIZE:
            return False
        if have < _COMPRESSED_HEADER_SIZE:
            self._join()
            have = len(self._buffer)
        pos = self._pos
        if read_i32_le(self._buffer, pos + 12) != OP_COMPRESSED:
            return False
        length: int = read_i32_le(self._buffer, pos)
        size: int = read_i32_le(self._buffer, pos + 20)
        if length > have + self._collected or size > self.max_message_bytes:
            return False
        # Also one that has not what it declares, so that its bytes need not be joined to see that.
        return size >= LONG_COMPRESSED_BYTES or length >= LONG_MESSAGE_BYTES

    def gather_next(self) -> bool:
        """Copies a part of the next message into one piece, while `next_is_compressed`. False if there is more to do
        before `decompress_next` is called."""
        gathered = self._gathered
        if gathered is None:
            # Its pages are made when they are written to.
            gathered = self._gathered = bytearray(read_i32_le(self._buffer, self._pos))
            self._gathered_size = 0
            self._ungathered = self._hold(len(gathered))
            self._ungathered.reverse()
        size = len(gathered)
        until = min(size, self._gathered_size + _GATHERED_BYTES)
        while self._gathered_size < until:
            part = self._ungathered.pop()
            left = until - self._gathered_size
            if len(part) > left:
                self._ungathered.append(part[left:])
                part = part[:left]
            gathered[self._gathered_size : self._gathered_size + len(part)] = part
            self._gathered_size += len(part)
        return self._gathered_size == size

    def decompress_next(self) -> None:
        """Decompresses the next message, after `gather_next`; may be called in another thread. ProtocolError."""
        gathered = self._gathered
        assert gathered is not None
        self._gathered = None
        self._ungathered.reverse()
        self._release(b"".join(self._ungathered))
        self._ungathered = []
        try:
            head = bytes(gathered[:_COMPRESSED_HEADER_SIZE])
            opcode = self._checked_compressed(head, 0, len(gathered))
            header = decompressed_header(head, 0, self.max_message_bytes)
            compressor = head[24]
            size: int = read_i32_le(head, 20)
            parts = decompress_in_parts(compressor, memoryview(gathered)[_COMPRESSED_HEADER_SIZE:], size)
            if opcode == OP_MSG:
                self._long = LongMessage([header, *parts], compressor)
            else:
                self._plain = (opcode, b"".join([header, *parts]), compressor)
        except ProtocolError as error:
            self._fail(error)
            raise

    def _hold(self, size: int) -> list[Part]:
        """Gives away all received bytes, of which `size` are the next message's."""
        held: list[Part] = [self._buffer[self._pos :], *self._parts, bytes(self._more)]
        self._held = size
        self._buffer = b""
        self._pos = 0
        self._forget_collected()
        return held

    def _release(self, rest: bytes) -> None:
        """Takes back the bytes after the next message."""
        self._held = 0
        if self._pos == len(self._buffer) and not self._collected:
            self._buffer = rest
        else:
            self._buffer = rest + self._buffer[self._pos :]
        self._pos = 0

    @property
    def next_is_long(self) -> bool:
        """Whether the next message is here as a whole, decompressed, and long enough for `prepare_next` to pay."""
        if self._long is not None:
            return True
        if self._plain is not None:
            return False
        if self.unread_size < LONG_MESSAGE_BYTES or self._error:
            return False
        pos = self._pos
        if len(self._buffer) - pos < HEADER_SIZE or read_i32_le(self._buffer, pos + 12) != OP_MSG:
            return False
        length: int = read_i32_le(self._buffer, pos)
        return LONG_MESSAGE_BYTES <= length <= min(self.max_message_bytes, self.unread_size)

    def prepare_next(self) -> bool:
        """Does a part of the work for the next message; only while `next_is_long`. False if there is more to prepare
        before `next_message` is called."""
        long = self._long
        if long is None:
            held = self._hold(read_i32_le(self._buffer, self._pos))
            long = self._long = LongMessage(held, NOT_COMPRESSED)
        return long.advance()

    def _next_end(self) -> int:
        """Offset in `_buffer` of the end of the whole message at `_pos`, or -1 when it is not there yet.

        ProtocolError as soon as its header has a length that is not valid.
        """
        if self._error:
            raise ProtocolError(self._error)
        have = len(self._buffer) - self._pos
        if have < HEADER_SIZE:
            if have + self._collected < HEADER_SIZE:
                return -1
            self._join()
            have = len(self._buffer)
        length: int = read_i32_le(self._buffer, self._pos)
        if length < HEADER_SIZE or length > MAX_MESSAGE_SIZE:
            raise self._not_a_message(f"messageLength {length} is not between {HEADER_SIZE} and {MAX_MESSAGE_SIZE}")
        if length > self.max_message_bytes:
            raise ProtocolError(f"messageLength {length} is above the limit before a login, {self.max_message_bytes}")
        if have < length:
            if have + self._collected < length:
                return -1
            self._join()
        return self._pos + length

    def _join(self) -> None:
        # In one copy: a message may have 48 MB, and each copy of that blocks all connections.
        self._buffer = b"".join([self._buffer[self._pos :], *self._parts, self._more])
        self._pos = 0
        self._forget_collected()

    def _forget_collected(self) -> None:
        self._more = bytearray()
        self._parts = []
        self._collected = 0

    def _consume(self, end: int) -> None:
        """Drops the bytes before `end`."""
        if end == len(self._buffer):
            # An idle connection does not keep its last message in memory.
            self._buffer = b""
            self._pos = 0
        else:
            self._pos = end

    def _fail(self, error: ProtocolError) -> None:
        self._error = str(error)
        self._buffer = b""
        self._pos = 0
        self._held = 0
        self._long = None
        self._gathered = None
        self._ungathered = []
        self._forget_collected()

    def _not_a_message(self, text: str) -> ProtocolError:
        """The error for a header that is no message's: says in words which other protocol it seems to be, else
        `text`. HttpRequestError for HTTP."""
        first = self._buffer[self._pos : self._pos + 4]
        if first in _HTTP_METHODS:
            return HttpRequestError("this looks like an HTTP request; the port speaks MongoDB's wire protocol")
        if first[:2] == _TLS_HANDSHAKE:
            return ProtocolError(
                "this looks like a TLS handshake, but the server was started without TLS: leave tls=true or ssl=true "
                "out of the connection string, or start the server with --tls-self-signed or --tls-cert"
            )
        return ProtocolError(text)

    def _next_whole(self) -> tuple[int, bytes, int, int, int]:
        """The next whole message, consumed: (opcode, buffer, start, end, compressor); NOTHING as opcode without one.

        Of a compressed message, the decompressed contents. ProtocolError for an opcode that this end does not accept,
        as soon as its header is received.
        """
        if self._plain is not None:
            kind, contents, used = self._plain
            self._plain = None
            return kind, contents, 0, len(contents), used
        end = self._next_end()
        start = self._pos
        buffer = self._buffer
        if end < 0:
            if len(buffer) - start >= HEADER_SIZE:
                self._check_header()
            return _NOTHING, b"", 0, 0, NOT_COMPRESSED
        opcode: int = read_i32_le(buffer, start + 12)
        if opcode != OP_MSG:
            self._check_opcode(opcode, end - start)
        if opcode != OP_COMPRESSED:
            self._consume(end)
            return opcode, buffer, start, end, NOT_COMPRESSED
        opcode = self._checked_compressed(buffer, start, end)
        plain = decompress_message(buffer, start, end, self.max_message_bytes)
        self._consume(end)
        return opcode, plain, 0, len(plain), buffer[start + 24]

    def next_message(self) -> OpMsg | Other | NeedData:
        """The next whole message, or NEED_DATA.

        ProtocolError for bytes that are not a message which this end accepts; for a bad length or opcode as soon as the
        header is received.
        """
        try:
            long = self._long
            if long is not None:
                return self._end_long(long)
            opcode, buffer, start, end, compressor = self._next_whole()
            if opcode == OP_MSG:
                return decode_op_msg(buffer, start, end, compressor)
            if opcode == _NOTHING:
                return NEED_DATA
            return self._decode_other(buffer, start, end, compressor)
        except ProtocolError as error:
            self._fail(error)
            raise

    def _end_long(self, long: LongMessage) -> OpMsg:
        while not long.advance():
            pass
        self._long = None
        if self._held:
            self._release(long.rest())
        return long.result()

    def _check_header(self) -> None:
        """ProtocolError for a message that is not whole yet if it is not accepted by its header, also by that of a
        compressed one."""
        size: int = read_i32_le(self._buffer, self._pos)
        opcode: int = read_i32_le(self._buffer, self._pos + 12)
        self._check_opcode(opcode, size)
        have = len(self._buffer) - self._pos
        if opcode != OP_COMPRESSED or have + self._collected < _COMPRESSED_HEADER_SIZE:
            return
        if have < _COMPRESSED_HEADER_SIZE:
            self._join()
        self._checked_compressed(self._buffer, self._pos, self._pos + size)
        decompressed_header(self._buffer, self._pos, self.max_message_bytes)

    def _checked_compressed(self, buffer: bytes, start: int, end: int) -> int:
        """The opcode of the message inside the OP_COMPRESSED in `buffer[start:end]`, of which the beginning is there.
        ProtocolError if this end does not accept it, or its length."""
        opcode = compressed_opcode(buffer, start, end)
        self._check_opcode(opcode, HEADER_SIZE + read_i32_le(buffer, start + 20))
        return opcode

    def _check_opcode(self, opcode: int, size: int) -> None:
        """ProtocolError for an opcode that this end does not accept, or not of this length. Both ends accept OP_MSG."""
        raise NotImplementedError

    def _decode_other(self, buffer: bytes, start: int, end: int, compressor: int) -> Other:
        """The message of the opcode that this end accepts beside OP_MSG."""
        raise NotImplementedError


class WireConnection(ReceiveBuffer[LegacyRequest]):
    """The receiving end of a server, which accepts OP_MSG, and of older messages those that have a reply or that a
    server of some version executes, plain or inside OP_COMPRESSED."""

    def _check_opcode(self, opcode: int, size: int) -> None:
        if opcode not in (OP_MSG, OP_QUERY, OP_COMPRESSED, OP_GET_MORE, OP_KILL_CURSORS):
            expected = "a server takes OP_MSG, OP_COMPRESSED, and OP_QUERY for the first hello"
            raise self._not_a_message(refused_opcode(opcode, expected))
        if size > MAX_LEGACY_SIZE and opcode not in (OP_MSG, OP_COMPRESSED):
            raise ProtocolError(f"{opcode_name(opcode)}: messageLength {size} is above its limit, {MAX_LEGACY_SIZE}")

    def _decode_other(self, buffer: bytes, start: int, end: int, compressor: int) -> LegacyRequest:
        opcode: int = read_i32_le(buffer, start + 12)
        if opcode == OP_GET_MORE:
            return decode_op_get_more(buffer, start, end, compressor)
        if opcode == OP_KILL_CURSORS:
            return decode_op_kill_cursors(buffer, start, end, compressor)
        return decode_op_query(buffer, start, end, compressor)


class ClientWireConnection(ReceiveBuffer[OpReply]):
    """The receiving end of a client, which accepts OP_MSG and OP_REPLY, plain or inside OP_COMPRESSED."""

    def _check_opcode(self, opcode: int, size: int) -> None:
        if opcode not in (OP_MSG, OP_REPLY, OP_COMPRESSED):
            raise self._not_a_message(refused_opcode(opcode, "a client takes OP_MSG, OP_REPLY and OP_COMPRESSED"))

    def _decode_other(self, buffer: bytes, start: int, end: int, compressor: int) -> OpReply:
        return decode_op_reply(buffer, start, end, compressor)
