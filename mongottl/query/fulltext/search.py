"""Parsing of `$search` strings, and matching of documents.

    coffee cake          one of the terms
    "brown fox" quick    each phrase, literally, in one of the strings; other terms add to the score
    fox -brown           none of the negated terms; -"brown fox" none of the negated phrases
    well-known           a hyphen within a word only separates words
    -fox                 matches nothing: negations only exclude documents

Source: MongoDB's "$text" page.
"""

from typing import Final

from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.long_lists import set_of
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import Value
from mongottl.query.fulltext.fields import TextFields
from mongottl.query.fulltext.languages import Language
from mongottl.query.fulltext.tokenizer import Tokenizer

# Characters of a search string after which it gives way.
_CHARACTERS: Final = 4096
# The fewest characters of a word and of what is before it.
_SHORTEST_WORD: Final = 2


class SearchString:
    """A parsed `$search` string: text of terms, and phrases, each also negated."""

    def __init__(self, search: str) -> None:
        most = len(search) // _SHORTEST_WORD
        self.positive: list[str] = list_for(most)
        self.negated: list[str] = list_for(most)
        self.phrases: list[str] = list_for(most)
        self.negated_phrases: list[str] = list_for(most)
        self._split(search)

    def _split(self, search: str) -> None:
        start = -1  # of the current phrase
        negating = False
        word = ""
        after_space = True
        for position, character in enumerate(search):
            if position % _CHARACTERS == 0:
                give_way(_CHARACTERS // 16)
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
        self.index_terms = sort_in_parts(list(self._terms(Tokenizer(fields.version), self._parts.positive)))
        self._positive = self._terms(self._tokenizer, self._parts.positive)
        self._negated = self._terms(self._tokenizer, self._parts.negated)
        # For `describe`, which cannot give way.
        self._shown = [sort_in_parts(list(terms)) for terms in (self._positive, self._negated)]
        # By the language of the text, phrases and negated phrases as they are compared with it.
        self._folded: dict[Language, tuple[list[str], list[str]]] = {}

    def _terms(self, tokenizer: Tokenizer, texts: list[str]) -> set[str]:
        return set_of(tokenizer.terms(" ".join(texts), self.language))

    @property
    def is_decided_by_terms(self) -> bool:
        """Whether every document with one of `index_terms` matches."""
        parts = self._parts
        return not (self._exact or self._negated or parts.phrases or parts.negated_phrases)

    def matches(self, document: bytes) -> bool:
        """Whether a document matches terms and phrases, and none of the negated ones."""
        missing: list[int] = list_for(len(self._parts.phrases))
        for position in range(len(self._parts.phrases)):
            give_way()
            missing.append(position)
        found = False
        for text, language, _ in self._fields.texts(document):
            if not found or self._negated:
                for term in self._tokenizer.terms(text, language):
                    if term in self._negated:
                        return False
                    found = found or term in self._positive
            if missing or self._parts.negated_phrases:
                folded = self._tokenizer.folded(text, language)
                phrases, negated_phrases = self._phrases_for(language)
                for phrase in negated_phrases:
                    give_way()
                    if phrase in folded:
                        return False
                still: list[int] = list_for(len(missing))
                for position in missing:
                    give_way()
                    if phrases[position] not in folded:
                        still.append(position)
                missing = still
        return found and not missing

    def _phrases_for(self, language: Language) -> tuple[list[str], list[str]]:
        """Phrases and negated phrases, folded for texts of a language."""
        known = self._folded.get(language)
        if known is None:
            parts = self._parts
            known = self._folded_for(parts.phrases, language), self._folded_for(parts.negated_phrases, language)
            self._folded[language] = known
        return known

    def _folded_for(self, phrases: list[str], language: Language) -> list[str]:
        folded: list[str] = list_for(len(phrases))
        for phrase in phrases:
            give_way()
            folded.append(self._tokenizer.folded(phrase, language))
        return folded

    def describe(self) -> dict[str, Value]:
        """`parsedTextQuery` of explain."""
        terms: list[Value] = [*self._shown[0]]
        negated: list[Value] = [*self._shown[1]]
        phrases: list[Value] = [*self._parts.phrases]
        negated_phrases: list[Value] = [*self._parts.negated_phrases]
        return {"terms": terms, "negatedTerms": negated, "phrases": phrases, "negatedPhrases": negated_phrases}
