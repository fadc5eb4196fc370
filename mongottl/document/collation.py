"""A collation as the compiled packages see it: what makes a sort key of a text, and nothing of the library behind it.

Two texts compare as their keys do, byte by byte; they are equal where their keys are. So one function is the whole
protocol, and order, equality, hashing and index keys cannot disagree. (ICU's own `compare` does disagree with its keys
in a corner: with `alternate: "shifted"` and `maxVariable: "space"` it sets U+00A0 apart from a space.)

None stands for the simple collation, the order of UTF-8 bytes, wherever a collation is asked for.

A key is valid UTF-8: the library's bytes, each as the character of that number. So a key is a text as well, and can
take the place of the text in a value: `with_keys`. Field names, regular expressions and code are never collated.
"""

from collections.abc import Callable
from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.types import Symbol, Value
from mongottl.document.walk import fields, get_value

# Texts whose keys are kept. What is sorted and grouped repeats itself; longer texts seldom do.
_MOST_REMEMBERED: Final = 8192
_LONGEST_REMEMBERED: Final = 64  # bytes


class Collation:
    """A collation other than the simple one.

    spec: the collation document in full, as mongod normalises it; collations with equal ones are the same.
    sort_key: the library's function from a text to bytes that compare as the texts do.
    """

    def __init__(self, spec: bytes, sort_key: Callable[[str], bytes]) -> None:
        self.spec = spec
        self._sort_key = sort_key
        self._remembered: dict[bytes, bytes] = {}

    @property
    def locale(self) -> str:
        return str(get_value(self.spec, "locale"))

    def key(self, text: bytes) -> bytes:
        """The key of a UTF-8 text."""
        key = self._remembered.get(text)
        if key is not None:
            return key
        key = self._sort_key(text.decode("utf-8", "surrogatepass")).decode("latin-1").encode("utf-8")
        if len(text) <= _LONGEST_REMEMBERED:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[text] = key
        return key

    def text_key(self, text: str) -> str:
        """The key as a text."""
        return self.key(text.encode("utf-8", "surrogatepass")).decode("utf-8")


def same_collation(a: Collation | None, b: Collation | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return a is b or a.spec == b.spec


def may_hold_text(value: Value) -> bool:
    """Whether a collation may have a say in how the value compares: for texts, and for what may have some in it."""
    return isinstance(value, (str, bytes, list, Symbol))


def with_keys(value: Value, collation: Collation | None) -> Value:
    """The value with every text in it replaced by its key: it compares simply as the value does under the collation."""
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
