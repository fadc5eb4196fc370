"""Terms of a text: words without stop words, stemmed, and folded by case and diacritics as required."""

import re
from collections.abc import Iterator
from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.query.fulltext.languages import ENGLISH, TURKISH, Language
from mongottl.query.fulltext.unicode import lower_case, without_diacritics, word_pattern

# Characters that are searched for words at once; 16 MB without a delimiter would take a second.
WINDOW: Final = 64 * 1024


class Tokenizer:
    """Splits texts into terms.

    version: of the text index. case_sensitive, diacritic_sensitive: do not fold case or diacritics.
    """

    def __init__(self, version: int, case_sensitive: bool = False, diacritic_sensitive: bool = False) -> None:
        self.version = version
        self.case_sensitive = case_sensitive
        self.diacritic_sensitive = diacritic_sensitive or version < 3

    def terms(self, text: str, language: Language) -> Iterator[str]:
        """The terms in the order of the text, with repetitions. Stop words and stems are found before diacritics are
        removed."""
        turkish = language is TURKISH
        for word in _words(text, word_pattern(language is ENGLISH, self.version)):
            give_way()
            lowered = lower_case(word, turkish)
            if language.is_stop_word(lowered):
                continue
            term = language.stem(word if self.case_sensitive else lowered)
            yield term if self.diacritic_sensitive else without_diacritics(term)

    def folded(self, text: str, language: Language) -> str:
        """The text as compared with phrases: folded by case and diacritics as required."""
        if not self.case_sensitive:
            text = lower_case(text, language is TURKISH)
        return text if self.diacritic_sensitive else without_diacritics(text)


def _words(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """The words of a text, in its order. It is searched a window at a time; a word may go on in the next ones."""
    unfinished: list[str] = []
    for start in range(0, len(text), WINDOW):
        give_way(WINDOW // 16)
        end = min(start + WINDOW, len(text))
        found: list[str] = pattern.findall(text, start, end)
        goes_on = end < len(text) and pattern.match(text, end - 1, end) is not None
        if unfinished and pattern.match(text, start, start + 1) is not None:
            unfinished.append(found.pop(0))
            if not found and goes_on:
                continue  # a word longer than the window
        if unfinished:
            yield "".join(unfinished)
            unfinished.clear()
        if goes_on:
            unfinished.append(found.pop())
        yield from found
    if unfinished:
        yield "".join(unfinished)
