"""Decodes a long OP_MSG in steps, between which others run.

    message = LongMessage(parts, compressor)
    while not message.advance(): ...                others run
    message.result()

The parts are those in which it was received or decompressed. They are never joined: a message has up to 48 MB, and each
copy of that takes 20 ms. Only a document that begins in one part and ends in another is put together. The errors are
those of `decode.decode_op_msg`; one in the sections is raised after the checksum was compared, as there.
"""

from typing import Final, TypeAlias

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.freeing import LongList
from mongottl.errors import ProtocolError
from mongottl.wire.crc32c import crc32c_of_part
from mongottl.wire.decode import decode_text, too_many_sequences, unended_identifier
from mongottl.wire.messages import (
    CHECKSUM_PRESENT,
    CHECKSUM_SIZE,
    HEADER_SIZE,
    MAX_NAME_BYTES,
    MAX_SEQUENCES,
    UNKNOWN_REQUIRED_FLAGS,
    OpMsg,
)

Part: TypeAlias = bytes | memoryview

# Flag bits follow the header.
HEAD_SIZE: Final = HEADER_SIZE + 4
# Bytes that are decoded in one step: 50,000 of the smallest documents, in two milliseconds.
STEP_BYTES: Final[i64] = 256 * 1024
# Bytes of the smallest document, and of the smallest section without its kind.
_SMALLEST: Final[i64] = 5
# Kinds of sections.
_NO_SECTION: Final = -1
_BODY: Final = 0
_SEQUENCE: Final = 1
# Inside a document sequence, after its identifier.
_DOCUMENTS: Final = 2


class LongMessage:
    """parts: the bytes of the message, at least HEAD_SIZE, and perhaps others after them. compressor: as in OpMsg."""

    def __init__(self, parts: list[Part], compressor: int) -> None:
        head = b""
        count: i64 = 0
        at: i64 = 0
        while len(head) < HEAD_SIZE:
            piece = parts[count][at : at + HEAD_SIZE - len(head)]
            head += piece
            at += len(piece)
            if at == len(parts[count]):
                count += 1
                at = 0
        self._head: Final = head
        # The last one is decoded next.
        self._parts: Final = parts[count:]
        self._parts.reverse()
        self._part_at: i64 = at
        self._compressor: Final = compressor
        self._size_bytes: Final[i64] = i64(read_i32_le(head, 0))
        self._flags: Final = int(read_i32_le(head, HEADER_SIZE))
        # Bytes of the message that were not taken from the parts, and those of sections that were not decoded.
        self._untaken: i64 = self._size_bytes - HEAD_SIZE
        self._left: i64 = self._untaken
        self._checksum = -1
        self._expected = b""
        # The first bytes of what is needed as a whole to go on.
        self._begun: list[bytes] = []
        self._begun_size: i64 = 0
        self._needed: i64 = 0
        self._section: i64 = _NO_SECTION
        self._body: bytes | None = None
        self._sequences: Final[list[tuple[str, list[bytes]]]] = []
        self._names: Final[set[str]] = set()
        self._documents: list[bytes] = []
        # Bytes of the present document sequence that were not decoded.
        self._sequence_left: i64 = 0
        self._error: ProtocolError | None = None
        if self._flags & UNKNOWN_REQUIRED_FLAGS:
            unknown = self._flags & UNKNOWN_REQUIRED_FLAGS
            self._error = ProtocolError(f"OP_MSG: unknown required flag bits {unknown:#x}")
        elif self._flags & CHECKSUM_PRESENT and self._left < CHECKSUM_SIZE:
            self._error = ProtocolError("OP_MSG: the message ends before its checksum")
        elif self._flags & CHECKSUM_PRESENT:
            self._left -= CHECKSUM_SIZE
            self._checksum = crc32c_of_part(head, 0, HEAD_SIZE, 0)

    def advance(self) -> bool:
        """Does one step; whether it was the last one."""
        if self._untaken == 0:
            return True
        part = self._parts[-1]
        start = self._part_at
        end: i64 = min(i64(len(part)), start + min(STEP_BYTES, self._untaken))
        if isinstance(part, memoryview):
            taken = bytes(part[start:end])
            self._take(taken, 0, len(taken))
        else:
            self._take(part, start, end)
        self._part_at = end
        if end == len(part):
            self._parts.pop()
            self._part_at = 0
        return self._untaken == 0

    def rest(self) -> bytes:
        """The bytes that follow the message, after the last step."""
        assert self._untaken == 0
        self._parts.reverse()
        rest = b"".join(self._parts)[self._part_at :]
        self._parts.clear()
        return rest

    def result(self) -> OpMsg:
        """The message, after the last step. ProtocolError as of `decode_op_msg`."""
        if self._checksum >= 0:
            expected: int = read_i32_le(self._expected, 0)
            if self._checksum != expected & 0xFFFFFFFF:
                raise ProtocolError("OP_MSG: the checksum does not match the contents")
        error = self._error
        if error is not None:
            raise error
        if self._body is None:
            raise ProtocolError("OP_MSG: no body section")
        request_id: int = read_i32_le(self._head, 4)
        response_to: int = read_i32_le(self._head, 8)
        size_bytes = int(self._size_bytes)
        return OpMsg(request_id, response_to, self._flags, self._body, self._sequences, self._compressor, size_bytes)

    def _take(self, part: bytes, start: i64, end: i64) -> None:
        """Takes the next bytes of the message, `part[start:end]`."""
        self._untaken -= end - start
        contents_end = end
        if self._checksum >= 0:
            if self._untaken < CHECKSUM_SIZE:
                contents_end = max(start, end - (CHECKSUM_SIZE - self._untaken))
                self._expected += part[contents_end:end]
            self._checksum = crc32c_of_part(part, int(start), int(contents_end), self._checksum)
        if self._error is None:
            try:
                self._decode_part(part, start, contents_end)
            except ProtocolError as error:
                self._error = error

    def _decode_part(self, part: bytes, pos: i64, end: i64) -> None:
        while self._begun_size:
            more = self._needed - self._begun_size
            if end - pos < more:
                self._begun.append(part[pos:end])
                self._begun_size += end - pos
                return
            self._begun.append(part[pos : pos + more])
            pos += more
            whole = b"".join(self._begun)
            self._begun = []
            self._begun_size = 0
            self._begin(whole, self._decode(whole, 0, len(whole)), len(whole))
        self._begin(part, self._decode(part, pos, end), end)

    def _begin(self, part: bytes, pos: i64, end: i64) -> None:
        """Keeps the bytes with which what is needed as a whole begins."""
        if pos < end:
            self._begun = [part[pos:end]]
            self._begun_size = end - pos

    def _decode(self, part: bytes, pos: i64, end: i64) -> i64:
        """Decodes what is whole in `part[pos:end]`: the offset after it. Sets how many bytes are needed from there."""
        while pos < end:
            before = pos
            if self._section == _DOCUMENTS:
                pos = self._take_documents(part, pos, end)
            elif self._section == _NO_SECTION:
                self._section = i64(part[pos])
                if self._section > _SEQUENCE:
                    raise ProtocolError(f"OP_MSG: unknown section kind {self._section}")
                if self._section == _BODY and self._body is not None:
                    raise ProtocolError("OP_MSG: more than one body section")
                pos += 1
                self._left -= 1
                self._check_left(self._left)
                continue
            elif end - pos < _SMALLEST:
                self._needed = _SMALLEST
                return pos
            elif self._section == _BODY:
                pos = self._take_body(part, pos, end)
            else:
                pos = self._take_identifier(part, pos, end)
            if pos == before:
                return pos
            self._left -= pos - before
        return pos

    def _check_left(self, left: i64) -> None:
        """ProtocolError if the section that begins has not that many bytes as its smallest content."""
        if left < _SMALLEST:
            section = "the body section" if self._section == _BODY else "a document sequence"
            raise ProtocolError(f"OP_MSG: {section} is truncated")

    def _take_body(self, part: bytes, pos: i64, end: i64) -> i64:
        size = i64(read_i32_le(part, pos))
        if size < _SMALLEST or size > self._left:
            raise ProtocolError(
                f"OP_MSG: the body's document has length {size}, but {self._left} bytes of the message are left"
            )
        if end - pos < size:
            self._needed = size
            return pos
        if part[pos + size - 1] != 0:
            raise ProtocolError("OP_MSG: the body's document does not end with NUL")
        self._body = part if size == len(part) else part[pos : pos + size]
        self._section = _NO_SECTION
        return pos + size

    def _take_identifier(self, part: bytes, pos: i64, end: i64) -> i64:
        size = i64(read_i32_le(part, pos))
        if size < _SMALLEST or size > self._left:
            raise ProtocolError(
                f"OP_MSG: a document sequence has length {size}, but {self._left} bytes of the message are left"
            )
        longest: i64 = min(size, 4 + MAX_NAME_BYTES + 1)
        name_end: i64 = part.find(b"\0", pos + 4, min(end, pos + longest))
        if name_end < 0:
            if end - pos >= longest:
                raise unended_identifier(int(size))
            self._needed = min(longest, 2 * (end - pos))
            return pos
        name = decode_text(part, int(pos) + 4, int(name_end), "OP_MSG: a document sequence's identifier")
        if len(self._sequences) == MAX_SEQUENCES:
            raise too_many_sequences()
        if name in self._names:
            raise ProtocolError(f"OP_MSG: two document sequences are named {name!r}")
        self._names.add(name)
        self._documents = LongList()
        self._sequences.append((name, self._documents))
        self._sequence_left = size - (name_end + 1 - pos)
        self._section = _DOCUMENTS if self._sequence_left else _NO_SECTION
        return name_end + 1

    def _take_documents(self, part: bytes, pos: i64, end: i64) -> i64:
        documents = self._documents
        left = self._sequence_left
        while left > 0:
            if left < _SMALLEST:
                raise ProtocolError("OP_MSG: document sequence: a document is truncated")
            have = end - pos
            if have < _SMALLEST:
                self._needed = _SMALLEST
                break
            size = i64(read_i32_le(part, pos))
            if size < _SMALLEST or size > left:
                raise ProtocolError(
                    f"OP_MSG: document sequence: a document has length {size}, but {left} bytes are left"
                )
            if have < size:
                self._needed = size
                break
            if part[pos + size - 1] != 0:
                raise ProtocolError("OP_MSG: document sequence: a document does not end with NUL")
            documents.append(part if size == len(part) else part[pos : pos + size])
            pos += size
            left -= size
        self._sequence_left = left
        if left == 0:
            self._section = _NO_SECTION
        return pos
