"""Text into terms: words without delimiters, stop words, endings, case and diacritics, as far as each is wanted."""

from mongottl.query.fulltext.languages import ENGLISH, TURKISH, Language
from mongottl.query.fulltext.unicode import lower_case, without_diacritics, word_pattern


class Tokenizer:
    """version: of the text index. case_sensitive, diacritic_sensitive: keep what differs only by that apart."""

    def __init__(self, version: int, case_sensitive: bool = False, diacritic_sensitive: bool = False) -> None:
        self.version = version
        self.case_sensitive = case_sensitive
        self.diacritic_sensitive = diacritic_sensitive or version < 3

    def terms(self, text: str, language: Language) -> list[str]:
        """In their order in the text, with repetitions. Stop words and stems are told before diacritics are dropped."""
        turkish = language is TURKISH
        found: list[str] = []
        for word in word_pattern(language is ENGLISH, self.version).findall(text):
            lowered = lower_case(word, turkish)
            if language.is_stop_word(lowered):
                continue
            term = language.stem(word if self.case_sensitive else lowered)
            found.append(term if self.diacritic_sensitive else without_diacritics(term))
        return found

    def folded(self, text: str, language: Language) -> str:
        """The text as phrases are compared: whole, as far as case and diacritics count."""
        if not self.case_sensitive:
            text = lower_case(text, language is TURKISH)
        return text if self.diacritic_sensitive else without_diacritics(text)
