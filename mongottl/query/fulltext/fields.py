"""The strings of a document in a text index, with language and weight, and their scores.

Indexed are strings at a path with a weight, or at any path with the wildcard "$**"; each element of an array is a
string of its own. A document or subdocument specifies its language in a field, by default `language`; nested ones
inherit it.

The score of a term in one string, of n terms, where it occurs k times:

    weight * (1 + 1/2 + 1/4 + … k times) * (0.5 * k / n + 0.5) * (1.1 if the string is only the term)

A document's score for a term is the sum over its strings; for a search, the sum over the terms of the search.
Source: MongoDB's "Text Indexes" and "Control Search Results with Weights" pages, and the scores of its examples.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from mypy_extensions import i64

from mongottl.document.freeing import list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import ARRAY, DOCUMENT, STRING
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, find_field_at, read_string
from mongottl.errors import CommandError
from mongottl.query.fulltext.languages import Language, language_named
from mongottl.query.fulltext.tokenizer import Tokenizer

WILDCARD: Final = "$**"
LANGUAGE_NOT_STRING: Final = 17261
LANGUAGE_UNSUPPORTED: Final = 17262
# Bytes of an element of an array that is an empty string, without its name.
_LEAST_BYTES: Final = 7


class IndexedText(NamedTuple):
    text: str
    language: Language
    weight: int


class TextFields:
    """The fields of a text index. weights: by path; "$**" for every field."""

    def __init__(self, weights: dict[str, int], default_language: Language, override: str, version: int) -> None:
        self.weights = weights
        self.default_language = default_language
        self.version = version
        self._override = override
        self._override_name: bytes = encode_text(override)
        self._everywhere = weights.get(WILDCARD, 0)
        # In their order, so that a search finds one that a subdocument leads to. A set of all prefixes of paths with
        # many components would be a hundred times as long as these.
        self._dotted: list[str] = sort_in_parts(_dotted(weights))
        self._tokenizer = Tokenizer(version)

    def scores(self, document: bytes, most: int) -> dict[str, float]:
        """The document's score for each of its terms; of a document with more terms than `most`, for some more."""
        scores: dict[str, float] = {}
        for text, language, weight in self.texts(document):
            if len(scores) > most:
                break
            counts: dict[str, int] = {}
            total = 0
            for term in self._tokenizer.terms(text, language):
                counts[term] = counts.get(term, 0) + 1
                total += 1
                if len(counts) > most:
                    break
            for term, count in counts.items():
                give_way()
                frequency = 2.0 - 0.5 ** (count - 1)
                alone = len(text) == len(term) and encode_text(text).lower() == encode_text(term)
                score = weight * frequency * (0.5 * count / total + 0.5) * (1.1 if alone else 1.0)
                scores[term] = scores.get(term, 0.0) + score
            put_aside(counts)
        return scores

    def texts(self, document: bytes) -> list[IndexedText]:
        """The indexed strings. 17261 if the language is not a string, 17262 if it is unknown."""
        found: list[IndexedText] = list_for(len(document) // _LEAST_BYTES)
        self._walk(document, 0, "", self.default_language, found)
        return found

    def _walk(self, buf: bytes, start: int, prefix: str | None, language: Language, found: list[IndexedText]) -> None:
        """prefix: None in a subdocument that leads to no path with a weight of its own."""
        type_code, pos = find_field_at(buf, start, self._override_name)
        if type_code == STRING:
            language = self._language(read_string(buf, int(pos)), language)
        elif type_code != 0:
            raise CommandError(LANGUAGE_NOT_STRING, "found language override field in document with non-string type")
        cursor = ElementCursor(buf, start)
        while cursor.next():
            give_way()
            container_type = cursor.type_code
            if container_type != STRING and container_type != DOCUMENT and container_type != ARRAY:
                continue
            name = cursor.name()
            path = None if prefix is None else prefix + name
            if name != self._override or path in self.weights:
                self._add_text(buf, container_type, cursor.value, path, language, found)

    def _add_text(
        self, buf: bytes, container_type: i64, pos: i64, path: str | None, language: Language, found: list[IndexedText]
    ) -> None:
        if container_type == STRING:
            weight = self._everywhere if path is None else self._weight(path)
            if weight:
                found.append(IndexedText(read_string(buf, pos), language, weight))
        elif container_type == DOCUMENT:
            prefix = None if path is None or not self._leads_to_weights(path + ".") else path + "."
            if prefix is not None or self._everywhere:
                self._walk(buf, int(pos), prefix, language, found)
        elif container_type == ARRAY:
            cursor = ElementCursor(buf, pos)
            while cursor.next():
                give_way()
                self._add_text(buf, cursor.type_code, cursor.value, path, language, found)

    def _language(self, name: str, inherited: Language) -> Language:
        if name == "":
            return inherited
        language = language_named(name)
        if language is None:
            raise CommandError(LANGUAGE_UNSUPPORTED, f"language override unsupported: {name}")
        return language

    def _weight(self, path: str) -> int:
        return self.weights.get(path, 0) or self._everywhere

    def _leads_to_weights(self, prefix: str) -> bool:
        place = bisect_left(self._dotted, prefix)
        return place < len(self._dotted) and self._dotted[place].startswith(prefix)


def _dotted(weights: dict[str, int]) -> list[str]:
    """The paths of several components."""
    paths: list[str] = list_for(len(weights))
    for path in weights:
        give_way()
        if "." in path:
            paths.append(path)
    return paths
