"""Collations as the compiled packages use them: sort keys of texts, computed by a function of the ICU library.

Two texts compare as the bytes of their keys do, and are equal if the keys are equal. Order, equality, hashing and index
keys all use the keys, so they always agree. (ICU's own `compare` disagrees with its keys in one case: with
`alternate: "shifted"` and `maxVariable: "space"` it distinguishes U+00A0 from a space.)

None stands for the simple collation, the order of UTF-8 bytes, wherever a collation is asked for.

A key is valid UTF-8: each byte of the library's key as the character of that code. So a key is also a text, and can
replace the text in a value: `with_keys`. Field names, regular expressions and code are never collated.
"""

from collections.abc import Callable
from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.interrupt import MANY_BYTES, give_way_after
from mongottl.document.types import Symbol, Value
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.document.walk import fields, get_value

# Texts whose keys are cached. Sorted and grouped values often repeat; long texts seldom do.
_MAX_CACHED_KEYS: Final = 8192
_MAX_CACHED_TEXT_BYTES: Final = 64  # bytes
# Bytes of a key that are encoded at once.
_PART: Final = 1 << 18


class Collation:
    """A collation other than the simple one.

    spec: the complete collation document, as mongod normalises it; collations with equal specs are the same.
    sort_key: the library's function from a UTF-8 text to bytes that compare as the texts do.
    """

    def __init__(self, spec: bytes, sort_key: Callable[[bytes], bytes]) -> None:
        self.spec = spec
        self._sort_key = sort_key
        self._cached_keys: dict[bytes, bytes] = {}

    @property
    def locale(self) -> str:
        return str(get_value(self.spec, "locale"))

    def key(self, text: bytes) -> bytes:
        """The key of a UTF-8 text. Bytes that belong to no character count as U+FFFD, as in ICU."""
        if len(text) > _MAX_CACHED_TEXT_BYTES:
            return _as_utf8(self._sort_key(text))
        key = self._cached_keys.get(text)
        if key is None:
            key = _as_utf8(self._sort_key(text))
            if len(self._cached_keys) >= _MAX_CACHED_KEYS:
                self._cached_keys.clear()
            self._cached_keys[text] = key
        return key

    def text_key(self, text: str) -> str:
        """The key as a text."""
        encoded = encode_text(text)
        if len(encoded) < MANY_BYTES:
            return decode_text(self.key(encoded))
        give_way_after(len(encoded))
        made = self._sort_key(encoded)
        give_way_after(len(made))
        key = made.decode("latin-1")
        give_way_after(len(made))
        return key


def _as_utf8(made: bytes) -> bytes:
    """The bytes of the library as characters."""
    if len(made) < MANY_BYTES:
        return encode_text(made.decode("latin-1"))
    # In parts: 16 MB at once would take 20 ms.
    parts: list[bytes] = []
    for start in range(0, len(made), _PART):
        parts.append(encode_text(made[start : start + _PART].decode("latin-1")))
        give_way_after(_PART)
    key = b"".join(parts)
    give_way_after(len(key))
    return key


def same_collation(a: Collation | None, b: Collation | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return a is b or a.spec == b.spec


def may_hold_text(value: Value) -> bool:
    """Whether a collation can affect how the value compares: true for strings, symbols, documents and arrays."""
    return isinstance(value, (str, bytes, list, Symbol))


def with_keys(value: Value, collation: Collation | None) -> Value:
    """The value with every string in it replaced by its key, so that it compares correctly without the collation."""
    if collation is None:
        return value
    if isinstance(value, str):
        return collation.text_key(value)
    if isinstance(value, Symbol):
        return collation.text_key(value.text)
    if isinstance(value, bytes):
        return encode_fields([(name, with_keys(member, collation)) for name, member in fields(value)])
    if isinstance(value, list):
        return [with_keys(item, collation) for item in value]
    return value
