"""Counts the bytes of long values that are made: where none are made, an evaluation need not measure what it holds
(`query.expr.base.EvaluationContext`)."""

from typing import Final

from mypy_extensions import i64


class Copied:
    """bytes: of long values that have been made, by whatever ran meanwhile."""

    def __init__(self) -> None:
        self.bytes: i64 = 0


COPIED: Final = Copied()
# Texts and documents of fewer bytes are not counted, nor lists of fewer elements.
COUNTED_BYTES: Final[i64] = 1024
_COUNTED_ELEMENTS: Final[i64] = 512


def note_elements(count: i64) -> None:
    """Called where a list has been made that may be long."""
    if count >= _COUNTED_ELEMENTS:
        COPIED.bytes += 8 * count
