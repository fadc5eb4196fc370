"""Parsing of `$search` strings, and matching of documents.

    coffee cake          one of the terms
    "brown fox" quick    each phrase, literally, in one of the strings; other terms add to the score
    fox -brown           none of the negated terms; -"brown fox" none of the negated phrases
    well-known           a hyphen within a word only separates words
    -fox                 matches nothing: negations only exclude documents

Source: MongoDB's "$text" page.
"""

from mongottl.document.types import Value
from mongottl.query.fulltext.fields import TextFields
from mongottl.query.fulltext.languages import Language
from mongottl.query.fulltext.tokenizer import Tokenizer


class SearchString:
    """A parsed `$search` string: text of terms, and phrases, each also negated."""

    def __init__(self, search: str) -> None:
        self.positive: list[str] = []
        self.negated: list[str] = []
        self.phrases: list[str] = []
        self.negated_phrases: list[str] = []
        self._split(search)

    def _split(self, search: str) -> None:
        start = -1  # of the current phrase
        negating = False
        word = ""
        after_space = True
        for position, character in enumerate(search):
            if character == '"':
                if start < 0:
                    self._add_word(word, negating)
                    negating = negating and search[position - 1] == "-"
                    start = position + 1
                else:
                    phrase = search[start:position]
                    (self.negated_phrases if negating else self.phrases).append(phrase)
                    if not negating:
                        self.positive.append(phrase)
                    start = -1
                    negating = False
                word = ""
            elif start < 0:
                if character == "-" and after_space:
                    negating = True
                elif character.isspace():
                    self._add_word(word, negating)
                    word = ""
                    negating = False
                else:
                    word += character
            after_space = character.isspace()
        if start >= 0:  # an unterminated phrase counts as words
            word = search[start:]
            if negating:
                return
        self._add_word(word, negating)

    def _add_word(self, word: str, negated: bool) -> None:
        if word:
            (self.negated if negated else self.positive).append(word)


class TextSearch:
    """A `$text` condition on a collection with a text index.

    language: of the search string. index_terms: the terms in the form of the index, without case and diacritics;
    sorted.
    """

    def __init__(
        self, search: str, language: Language, case_sensitive: bool, diacritic_sensitive: bool, fields: TextFields
    ) -> None:
        self.language = language
        self._fields = fields
        self._parts = SearchString(search)
        self._exact = case_sensitive or diacritic_sensitive
        self._tokenizer = Tokenizer(fields.version, case_sensitive, diacritic_sensitive)
        self.index_terms = sorted(self._terms(Tokenizer(fields.version), self._parts.positive))
        self._positive = self._terms(self._tokenizer, self._parts.positive)
        self._negated = self._terms(self._tokenizer, self._parts.negated)

    def _terms(self, tokenizer: Tokenizer, texts: list[str]) -> set[str]:
        return set(tokenizer.terms(" ".join(texts), self.language))

    @property
    def is_decided_by_terms(self) -> bool:
        """Whether every document with one of `index_terms` matches."""
        parts = self._parts
        return not (self._exact or self._negated or parts.phrases or parts.negated_phrases)

    def matches(self, document: bytes) -> bool:
        """Whether a document matches terms and phrases, and none of the negated ones."""
        missing = set(range(len(self._parts.phrases)))
        found = False
        for text, language, _ in self._fields.texts(document):
            if not found or self._negated:
                for term in self._tokenizer.terms(text, language):
                    if term in self._negated:
                        return False
                    found = found or term in self._positive
            if missing or self._parts.negated_phrases:
                folded = self._tokenizer.folded(text, language)
                for phrase in self._parts.negated_phrases:
                    if self._tokenizer.folded(phrase, language) in folded:
                        return False
                for position in [*missing]:
                    if self._tokenizer.folded(self._parts.phrases[position], language) in folded:
                        missing.discard(position)
        return found and not missing

    def describe(self) -> dict[str, Value]:
        """`parsedTextQuery` of explain."""
        terms: list[Value] = [*sorted(self._positive)]
        negated: list[Value] = [*sorted(self._negated)]
        phrases: list[Value] = [*self._parts.phrases]
        negated_phrases: list[Value] = [*self._parts.negated_phrases]
        return {"terms": terms, "negatedTerms": negated, "phrases": phrases, "negatedPhrases": negated_phrases}
