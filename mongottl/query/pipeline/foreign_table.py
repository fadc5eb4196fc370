"""The hash join of `$lookup`: another collection read once and kept by the values of a field."""

from typing import Final

from mongottl.document.collation import Collation
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import Date, ObjectId, Regex, Value
from mongottl.query.expr.base import is_nullish
from mongottl.query.pipeline.source import DocumentSource

_DOCUMENT_BYTES: Final = 48  # that a document takes beside its own, roughly
_KEY_BYTES: Final = 240  # that a key takes beside its own, roughly: its place in the table and a list of documents
_PLACE_BYTES: Final = 40  # that each further document of a key takes


def local_values(doc: bytes, path: FieldPath) -> list[Value]:
    """What the local field offers for comparison: the elements of arrays; null where there is none, and no field."""
    values = values_at(doc, path)
    return [None if is_nullish(value) else value for value in values] if values else [None]


def is_simple(value: Value) -> bool:
    """Whether a value is of a type whose equality is that of its keys in any index."""
    if isinstance(value, float):
        return value == value
    return isinstance(value, (str, int, ObjectId, Date))


def are_plain(values: list[Value]) -> bool:
    """Whether equality with each is equality of keys: not so for null, arrays and patterns."""
    return all(not isinstance(value, (list, Regex)) and value is not None for value in values)


class ForeignTable:
    """The documents of a collection by the values of a field, as long as all of it takes no more than `limit_bytes`."""

    def __init__(self, source: DocumentSource, path: FieldPath, collation: Collation | None, limit_bytes: int) -> None:
        self._limit_bytes: Final = limit_bytes
        self._source: Final = source
        self._collation: Final = collation
        self._path: Final = path
        self._by_key: Final[dict[bytes, list[int]]] = {}
        self._documents: Final[list[bytes]] = []
        self._size = 0
        self.complete = False
        self.too_large = False

    def read(self) -> None:
        """Takes in one batch."""
        batch = self._source.next_batch()
        if batch is None:
            self.complete = True
            return
        for doc in batch:
            place = len(self._documents)
            self._documents.append(doc)
            self._size += len(doc) + _DOCUMENT_BYTES
            for value in values_at(doc, self._path):
                key = self._key_of(value)
                places = self._by_key.get(key)
                if places is None:
                    self._by_key[key] = [place]
                    self._size += len(key) + _KEY_BYTES
                elif places[-1] != place:
                    places.append(place)
                    self._size += _PLACE_BYTES
        if self._size > self._limit_bytes:
            self.too_large = True
            self._documents.clear()
            self._by_key.clear()
            self._source.close()

    def _key_of(self, value: Value) -> bytes:
        return encode_value(value, False, self._collation)

    def is_outdated(self) -> bool:
        return self._source.is_outdated()

    def find(self, values: list[Value]) -> list[Value]:
        """The documents whose field has one of the values, in the collection's order."""
        if len(values) == 1:
            return [self._documents[place] for place in self._by_key.get(self._key_of(values[0]), [])]
        places: set[int] = set()
        for value in values:
            places.update(self._by_key.get(self._key_of(value), []))
        return [self._documents[place] for place in sorted(places)]
