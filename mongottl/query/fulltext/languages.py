"""The languages of text search. Source: MongoDB's page "Text Search Languages".

Stemming is Snowball's, the family of algorithms that MongoDB uses too, by the package `snowballstemmer`; it takes the
compiled PyStemmer by itself where that is installed (the extra `text`). Both are of a later release than MongoDB's
copy, so single words may get another stem; Dutch is stemmed by the older of its two algorithms, which is MongoDB's.
"""

from collections.abc import Callable
from typing import Final

from mongottl.query.fulltext.stopwords import STOP_WORDS

# Stems that are remembered of each language.
_REMEMBERED: Final = 50_000


class Language:
    """algorithm: Snowball's name of the stemmer, "" for none. Both that and the stop words are loaded at first use."""

    def __init__(self, name: str, code: str, algorithm: str) -> None:
        self.name = name
        self.code = code
        self._algorithm = algorithm
        self._stop_words: frozenset[str] | None = None
        self._stem: Callable[[str], str] | None = None
        self._stems: dict[str, str] = {}

    def is_stop_word(self, word: str) -> bool:
        """word: in lower case."""
        known = self._stop_words
        if known is None:
            known = frozenset(STOP_WORDS.get(self.name, "").split())
            self._stop_words = known
        return word in known

    def stem(self, word: str) -> str:
        """What words of one meaning have in common; the word itself without a stemmer."""
        if self._algorithm == "":
            return word
        found = self._stems.get(word)
        if found is None:
            found = self._computed(word)
            if len(self._stems) >= _REMEMBERED:
                self._stems.clear()
            self._stems[word] = found
        return found

    def _computed(self, word: str) -> str:
        stem = self._stem
        if stem is None:
            import snowballstemmer  # thirty milliseconds, for those who search text

            stem = snowballstemmer.stemmer(self._algorithm).stemWord
            self._stem = stem
        return stem(word)


NONE: Final = Language("none", "none", "")
ENGLISH: Final = Language("english", "en", "english")
TURKISH: Final = Language("turkish", "tr", "turkish")
LANGUAGES: Final = (
    Language("danish", "da", "danish"),
    Language("dutch", "nl", "dutch_porter"),
    ENGLISH,
    Language("finnish", "fi", "finnish"),
    Language("french", "fr", "french"),
    Language("german", "de", "german"),
    Language("hungarian", "hu", "hungarian"),
    Language("italian", "it", "italian"),
    Language("norwegian", "nb", "norwegian"),
    Language("portuguese", "pt", "portuguese"),
    Language("romanian", "ro", "romanian"),
    Language("russian", "ru", "russian"),
    Language("spanish", "es", "spanish"),
    Language("swedish", "sv", "swedish"),
    TURKISH,
    NONE,
)


def language_named(name: str) -> Language | None:
    """By name or two-letter code, in any case; None if there is no such language."""
    wanted = name.lower()
    for language in LANGUAGES:
        if wanted in (language.name, language.code):
            return language
    return None
