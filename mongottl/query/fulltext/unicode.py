"""What text search knows of characters: which ones part words, which differ by case or by diacritics only.

MongoDB's documentation names the properties of Unicode that decide. Python's own tables lack them; PCRE2, which is
there for `$regex`, has them, and tells them once, for the characters of the first two planes, when the first text
comes.
"""

import re
import unicodedata
from functools import cache
from typing import Final

# U+00AD, U+30FB and U+FF65 are hyphens by a property that PCRE2 no longer has. Control characters part words too.
_DELIMITERS: Final = (
    r"[\p{Dash}\p{Pattern_Syntax}\p{Quotation_Mark}\p{Terminal_Punctuation}\p{White_Space}\xAD\u30FB\uFF65"
    r"\x00-\x1F\x7F]+"
)
_DIACRITICS: Final = r"\p{Diacritic}+"
_CODE_POINTS: Final = 0x20000
# Versions 1 and 2 of text indexes part words at these.
_ASCII_DELIMITERS: Final = r"[\x00-\x1f !\"#$%&()*+,\-./:;<=>?@\[\\\]\^`{|}~]"


def _runs_of(pattern: str) -> list[str]:
    """The characters with a property, as strings of neighbours."""
    import pcre2

    everything = "".join([chr(code) for code in range(_CODE_POINTS) if not 0xD800 <= code < 0xE000])
    runs: list[str] = []
    for found in pcre2.compile(pattern).findall(everything):
        runs.append(str(found))
    return runs


def _ranges(runs: list[str], without: str) -> str:
    """A character class of them, without its brackets."""
    parts: list[str] = []
    for run in runs:
        start = 0
        for i in range(1, len(run) + 1):
            # The surrogates that were left out may lie within a run.
            if i == len(run) or ord(run[i]) != ord(run[i - 1]) + 1 or run[i] == without or run[i - 1] == without:
                if run[start] != without:
                    parts.append(f"{re.escape(run[start])}-{re.escape(run[i - 1])}")
                start = i
    return "".join(parts)


@cache
def word_pattern(english: bool, version: int) -> re.Pattern[str]:
    """Finds the words of a text. english: an apostrophe is part of a word then; stemming and stop words see to it."""
    if version < 3:
        return re.compile(f"[^{_ASCII_DELIMITERS[1:-1]}]+")
    return re.compile(f"[^{_ranges(_runs_of(_DELIMITERS), chr(39) if english else '')}]+")


@cache
def _diacritics() -> frozenset[str]:
    return frozenset("".join(_runs_of(_DIACRITICS)))


_folded: Final[dict[str, str]] = {}
_bare: Final[dict[str, str]] = {}


def lower_case(text: str, turkish: bool) -> str:
    """Folded by Unicode's simple case folding, one character for one; `turkish`: with its two letters i."""
    if turkish:
        text = text.replace("I", "ı").replace("İ", "i")
    if text.isascii():
        return text.lower()
    parts: list[str] = []
    for character in text:
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
    """Letters without their marks: é is e."""
    if text.isascii():
        return text
    parts: list[str] = []
    for character in text:
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
