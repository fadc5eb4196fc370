"""The languages of text search. Source: MongoDB's page "Text Search Languages".

Stemming is Snowball's, the family of algorithms that MongoDB uses too, by the package `snowballstemmer`, which uses the
compiled PyStemmer if that is installed (the extra `text`). Both are later releases than MongoDB's copy, so some words
may have another stem; for Dutch the older of the two algorithms is used, which is MongoDB's.
"""

from collections.abc import Callable
from typing import Final

from mongottl.document.utf8 import is_valid_text
from mongottl.query.fulltext.stopwords import STOP_WORDS

# Cached stems per language.
_REMEMBERED: Final = 50_000
# Longer words are no words of a language, and the stemmer in Python takes 10 µs for each character.
MAX_STEMMED_CHARACTERS: Final = 1000


class Language:
    """A language of text search, with its stemmer and stop words.

    algorithm: Snowball's name of the stemmer, "" for none. Stemmer and stop words are loaded at first use.
    """

    def __init__(self, name: str, code: str, algorithm: str) -> None:
        self.name = name
        self.code = code
        self._algorithm = algorithm
        self._stop_words: frozenset[str] | None = None
        self._stem: Callable[[str], str] | None = None
        self._stems: dict[str, str] = {}

    def is_stop_word(self, word: str) -> bool:
        """Whether a word is a stop word.

        word: in lower case.
        """
        known = self._stop_words
        if known is None:
            known = frozenset(STOP_WORDS.get(self.name, "").split())
            self._stop_words = known
        return word in known

    def stem(self, word: str) -> str:
        """The stem of a word; the word itself without a stemmer, beyond MAX_STEMMED_CHARACTERS, or if it is no UTF-8,
        which PyStemmer does not take."""
        if self._algorithm == "" or len(word) > MAX_STEMMED_CHARACTERS or not is_valid_text(word):
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
            import snowballstemmer  # takes thirty milliseconds, so imported when needed

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
    """The language of a name or two-letter code, ignoring case; None if there is no such language."""
    wanted = name.lower()
    for language in LANGUAGES:
        if wanted in (language.name, language.code):
            return language
    return None
