"""Text and its bytes, also where these are not valid UTF-8.

Strings, field names, code and symbols of BSON may hold any bytes. Python's `surrogateescape` decodes each byte that
belongs to no character as one of the code points U+DC80 to U+DCFF, and encodes these as the bytes again. So every
text of a document is encoded as what was decoded, and two texts are equal exactly if their bytes are.

Their order is another matter: as code points, U+DC80 to U+DCFF come before U+E000; as bytes, 80 to FF come after most
characters. MongoDB's order is that of the bytes: `compare_texts`.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.interrupt import give_way

_LONG: Final = 24  # bytes; up to this length compiled code looks at them faster than it calls a method
# Bytes, or characters, that are converted in one step. The codec takes 0.1 microseconds for each byte that is none of
# a character's.
_CONVERTED_AT_ONCE: Final = 1 << 16
_CONVERTED_WEIGHT: Final = 1024


def decode_text(data: bytes) -> str:
    """The text of these bytes, which need not be valid UTF-8."""
    try:
        return data.decode("utf-8")  # without an error handler compiled code takes half the time
    except UnicodeDecodeError:
        if len(data) <= _CONVERTED_AT_ONCE:
            return data.decode("utf-8", "surrogateescape")
    parts: list[str] = []
    start = 0
    while start < len(data):
        give_way(_CONVERTED_WEIGHT)
        end = character_start(data, start + _CONVERTED_AT_ONCE)
        parts.append(data[start:end].decode("utf-8", "surrogateescape"))
        start = end
    return "".join(parts)


def character_start(data: bytes, pos: int) -> int:
    """The last place until `pos`, of a UTF-8 text, at which a character begins: before, decoding can be divided.

    Where no character begins in the three bytes before, none goes beyond `pos`, since it has four bytes at most.
    """
    if pos >= len(data):
        return len(data)
    for start in range(pos, pos - 4, -1):
        if data[start] & 0xC0 != 0x80:
            return start
    return pos


def encode_text(text: str) -> bytes:
    """The bytes of a text that was decoded by `decode_text`, or is valid Unicode.

    UnicodeEncodeError for a surrogate that stands for no byte, which no text of a document has.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        if len(text) <= _CONVERTED_AT_ONCE:
            return text.encode("utf-8", "surrogateescape")
    parts: list[bytes] = []
    for start in range(0, len(text), _CONVERTED_AT_ONCE):
        give_way(_CONVERTED_WEIGHT)
        parts.append(text[start : start + _CONVERTED_AT_ONCE].encode("utf-8", "surrogateescape"))
    return b"".join(parts)


def compare_texts(a: str, b: str) -> i64:
    """-1, 0 or 1: the order of two texts by their bytes."""
    if a == b:
        return 0
    # Code points of valid Unicode sort as their bytes do; also beside escaped bytes, if one of the texts is ASCII.
    if a.isascii() or b.isascii():
        return -1 if a < b else 1
    return -1 if encode_text(a) < encode_text(b) else 1


def rejoined(text: str) -> str:
    """A text that was put together from others: bytes at their ends may be a character together."""
    return text if is_valid_text(text) else decode_text(encode_text(text))


def is_valid_utf8(data: bytes) -> bool:
    if _is_ascii(data):
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_ascii(data: bytes) -> bool:
    size: i64 = len(data)
    if size > _LONG:
        return data.isascii()
    at: i64 = 0
    bits: i64 = 0
    while at < size:
        bits |= i64(data[at])
        at += 1
    return bits < 0x80


def is_valid_text(text: str) -> bool:
    """Whether the bytes of a text are valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
