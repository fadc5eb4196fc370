"""Finding the ends of the components of an index key (see `keystring`), to compare components with ranges."""

from mypy_extensions import i64

# The first bytes of components are internal to the modules about keys.
from mongottl.document.keystring import (
    _ARRAY,
    _BINARY,
    _CLASS_BELOW_ONE,
    _CLASS_BEYOND_DOUBLE,
    _CLASS_INTEGER,
    _CLASS_LARGE,
    _CODE,
    _CODE_WITH_SCOPE,
    _DATE,
    _DB_POINTER,
    _END,
    _INFINITY,
    _MINUS_INFINITY,
    _OBJECT,
    _OBJECT_ID,
    _REGEX,
    _STRING,
    _TIMESTAMP,
    _ZERO,
)

_TAIL_BYTES = 17  # of an inexact decimal


def component_end(key: bytes, pos: i64, descending: bool) -> i64:
    """The offset after the component that begins at `pos`. descending: of the component, whose bytes are inverted."""
    return _end(key, pos, 0xFF if descending else 0)


def _end(key: bytes, pos: i64, flip: i64) -> i64:
    first: i64 = key[pos] ^ flip
    pos += 1
    if _MINUS_INFINITY < first < _INFINITY:
        return _number_end(key, pos, first, flip)
    if first == _STRING or first == _CODE:
        return _text_end(key, pos, flip)
    if first == _OBJECT_ID:
        return pos + 12
    if first == _DATE or first == _TIMESTAMP:
        return pos + 8
    if first == _OBJECT:
        return _elements_end(key, pos, flip)
    if first == _ARRAY:
        while key[pos] ^ flip != _END:
            pos = _end(key, pos, flip)
        return pos + 1
    if first == _BINARY:
        return pos + 5 + _length(key, pos, flip)
    if first == _REGEX:
        return _text_end(key, _text_end(key, pos, flip), flip)
    if first == _DB_POINTER:
        return _text_end(key, pos + 4, flip) + 12
    if first == _CODE_WITH_SCOPE:
        return _elements_end(key, _text_end(key, pos, flip), flip)
    return pos  # null, booleans and others without a payload


def _number_end(key: bytes, pos: i64, first: i64, flip: i64) -> i64:
    if first == _ZERO:
        return pos
    size_class: i64 = first - _ZERO
    if size_class < 0:
        size_class = -size_class
        flip ^= 0xFF
    if size_class == _CLASS_BEYOND_DOUBLE:
        return pos + _TAIL_BYTES
    inexact: i64
    if size_class == _CLASS_BELOW_ONE or size_class == _CLASS_LARGE:
        pos += 8
        inexact = (key[pos - 1] ^ flip) & 1
    else:
        pos += size_class - _CLASS_INTEGER
        inexact = 0
        if (key[pos - 1] ^ flip) & 1:
            pos += 7
            inexact = (key[pos - 1] ^ flip) & 1
    return pos + _TAIL_BYTES if inexact == 1 else pos


def _text_end(key: bytes, pos: i64, flip: i64) -> i64:
    while key[pos] ^ flip != _END:
        pos += 1
    return pos + 1


def _elements_end(key: bytes, pos: i64, flip: i64) -> i64:
    while key[pos] ^ flip != _END:
        pos = _text_end(key, pos + 1, flip)
        pos = _end(key, pos, flip)
    return pos + 1


def _length(key: bytes, pos: i64, flip: i64) -> i64:
    length: i64 = 0
    end: i64 = pos + 4
    while pos < end:
        length = (length << 8) | (key[pos] ^ flip)
        pos += 1
    return length
