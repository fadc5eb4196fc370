"""The collections that the tests read: documents of 21 bytes, 1 KB, 30 KB and 15 MB.

A document is made of its number, so that nobody has to keep them all: `{_id, n, k, x}`, where `n` is the number in
another order, `k` one of a hundred values, and `x` a text that compresses to about half.
"""

import random
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import bson

from mongottl.build_info import is_compiled

COMPILED: Final = is_compiled()
KEYS: Final = 100
_TEXT: Final = random.Random(1).randbytes(1 << 20).hex()
_TINY: Final = struct.Struct("<i5si3sic")
_TWICE: Final = _TEXT + _TEXT


class Shape:
    """Documents of one size. count: how many there are. text_bytes: of their `x`; -1 for `{_id, n}` alone."""

    def __init__(self, name: str, count: int, interpreted: int, text_bytes: int) -> None:
        self.name: Final = name
        self.count: Final = count if COMPILED else interpreted
        self.text_bytes: Final = text_bytes
        self.size_bytes: Final = len(self.document(0))
        self._checksums: Final[dict[str, int]] = {}

    def n(self, i: int) -> int:
        """7919 is a prime that divides no count: each `n` below the count comes once."""
        return i * 7919 % self.count

    def document(self, i: int) -> bytes:
        if self.text_bytes < 0:
            return _TINY.pack(21, b"\x10_id\0", i, b"\x10n\0", self.n(i), b"\0")  # as bson.encode does, and faster
        # In the order of their names, in which $merge inserts them, as an upsert with $set does.
        return bson.encode({"_id": i, "k": i % KEYS, "n": self.n(i), "x": text(i, self.text_bytes)})

    def documents(self) -> Iterator[bytes]:
        for i in range(self.count):
            yield self.document(i)

    def checksum(self, order: str) -> int:
        """Of all documents one behind the other, by `_id` or by `n`, from the last one on where `-` comes first."""
        known = self._checksums.get(order)
        if known is None:
            numbers: Iterable[int] = range(self.count)
            if order.endswith("n"):
                numbers = sorted(numbers, key=self.n)
            if order.startswith("-"):
                numbers = reversed(list(numbers))
            known = checksum(self.document(i) for i in numbers)
            self._checksums[order] = known
        return known


def text(i: int, size: int) -> str:
    """A text of its own for each `i`."""
    start = i * 97 % len(_TEXT)
    if size <= len(_TEXT):
        return _TWICE[start : start + size]
    return (_TEXT * (size // len(_TEXT) + 2))[start : start + size]


def checksum(parts: Iterable[bytes]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


# In a reply each takes eight bytes more for its place: altogether a page of 16 MiB, and a second one.
TINY: Final = Shape("tiny", 600_000, 50_000, -1)
SMALL: Final = Shape("small", 100_000, 20_000, 970)
MEDIUM: Final = Shape("medium", 3_400, 700, 30_000)
LARGE: Final = Shape("large", 7, 3, 15_000_000)
SHAPES: Final = (TINY, SMALL, MEDIUM, LARGE)
