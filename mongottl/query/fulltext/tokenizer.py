"""Terms of a text: words without stop words, stemmed, and folded by case and diacritics as required."""

from mongottl.document.interrupt import give_way
from mongottl.query.fulltext.languages import ENGLISH, TURKISH, Language
from mongottl.query.fulltext.unicode import lower_case, without_diacritics, word_pattern


class Tokenizer:
    """Splits texts into terms.

    version: of the text index. case_sensitive, diacritic_sensitive: do not fold case or diacritics.
    """

    def __init__(self, version: int, case_sensitive: bool = False, diacritic_sensitive: bool = False) -> None:
        self.version = version
        self.case_sensitive = case_sensitive
        self.diacritic_sensitive = diacritic_sensitive or version < 3

    def terms(self, text: str, language: Language) -> list[str]:
        """The terms in the order of the text, with repetitions. Stop words and stems are found before diacritics are
        removed."""
        turkish = language is TURKISH
        found: list[str] = []
        for match in word_pattern(language is ENGLISH, self.version).finditer(text):
            give_way()
            word = match.group()
            lowered = lower_case(word, turkish)
            if language.is_stop_word(lowered):
                continue
            term = language.stem(word if self.case_sensitive else lowered)
            found.append(term if self.diacritic_sensitive else without_diacritics(term))
        return found

    def folded(self, text: str, language: Language) -> str:
        """The text as compared with phrases: folded by case and diacritics as required."""
        if not self.case_sensitive:
            text = lower_case(text, language is TURKISH)
        return text if self.diacritic_sensitive else without_diacritics(text)
