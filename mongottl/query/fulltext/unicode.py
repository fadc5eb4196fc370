"""Properties of characters for text search: delimiters, case folding and diacritics.

MongoDB documents which Unicode properties are used; `unicode_tables` has those that Python lacks.
"""

import re
import unicodedata
from functools import cache
from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.query.fulltext.unicode_tables import DELIMITERS, DIACRITICS, ranges

# Delimiters of versions 1 and 2 of text indexes.
_ASCII_DELIMITERS: Final = r"[\x00-\x1f !\"#$%&()*+,\-./:;<=>?@\[\\\]\^`{|}~]"


def _delimiters(without: str) -> str:
    """The delimiters as a character class of a regular expression, without its brackets."""
    parts: list[str] = []
    for first, last in ranges(DELIMITERS):
        if without and first <= ord(without) <= last:
            parts.append(f"{re.escape(chr(first))}-{re.escape(chr(ord(without) - 1))}")
            first = ord(without) + 1
        parts.append(f"{re.escape(chr(first))}-{re.escape(chr(last))}")
    return "".join(parts)


@cache
def word_pattern(english: bool, version: int) -> re.Pattern[str]:
    """A pattern that finds the words of a text. english: an apostrophe is part of a word; stemming handles it."""
    if version < 3:
        return re.compile(f"[^{_ASCII_DELIMITERS[1:-1]}]+")
    return re.compile(f"[^{_delimiters(chr(39) if english else '')}]+")


@cache
def _diacritics() -> frozenset[str]:
    return frozenset([chr(code) for first, last in ranges(DIACRITICS) for code in range(first, last + 1)])


# Characters after which it gives way: a single word may have millions.
_CHARACTERS: Final = 4096
_folded: Final[dict[str, str]] = {}
_bare: Final[dict[str, str]] = {}


def lower_case(text: str, turkish: bool) -> str:
    """The text with Unicode's simple case folding; turkish: with the Turkish rules for i."""
    if turkish:
        text = text.replace("I", "ı").replace("İ", "i")
    if text.isascii():
        return text.lower()
    parts: list[str] = []
    for position, character in enumerate(text):
        if position % _CHARACTERS == 0:
            give_way(_CHARACTERS // 16)
        folded = _folded.get(character)
        if folded is None:
            folded = _simple_folding(character)
            _folded[character] = folded
        parts.append(folded)
    return "".join(parts)


def _simple_folding(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character


def without_diacritics(text: str) -> str:
    """The text without diacritics: é becomes e."""
    if text.isascii():
        return text
    parts: list[str] = []
    for position, character in enumerate(text):
        if position % _CHARACTERS == 0:
            give_way(_CHARACTERS // 16)
        bare = _bare.get(character)
        if bare is None:
            bare = _without_marks(character)
            _bare[character] = bare
        parts.append(bare)
    return "".join(parts)


def _without_marks(character: str) -> str:
    if character.isascii():
        return character
    marks = _diacritics()
    kept = [part for part in unicodedata.normalize("NFD", character) if part not in marks]
    return unicodedata.normalize("NFC", "".join(kept))
