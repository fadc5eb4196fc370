"""The hash join of `$lookup`: a hash table of the documents of another collection by the values of a field."""

from typing import Final

from mongottl.document.collation import Collation
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import Date, ObjectId, Regex, Value
from mongottl.query.expr.base import is_nullish
from mongottl.query.pipeline.source import DocumentSource

_DOCUMENT_BYTES: Final = 48  # approximate memory of a document besides its bytes
_KEY_BYTES: Final = 240  # approximate memory of a key besides its bytes: table entry and list
_ENTRY_BYTES: Final = 40  # approximate memory of each further document of a key


def local_values(doc: bytes, path: FieldPath) -> list[Value]:
    """The values of the local field that are compared: of an array its elements; null for a missing field or empty
    array."""
    values = values_at(doc, path)
    return [None if is_nullish(value) else value for value in values] if values else [None]


def is_simple(value: Value) -> bool:
    """Whether a value has a type whose values are equal exactly if their keys in any index are."""
    if isinstance(value, float):
        return value == value
    return isinstance(value, (str, int, ObjectId, Date))


def are_plain(values: list[Value]) -> bool:
    """Whether for all values equality is equality of keys: false for null, arrays and regular expressions."""
    return all(not isinstance(value, (list, Regex)) and value is not None for value in values)


class ForeignTable:
    """The documents of a collection by the values of a field; given up if it needs more memory than `limit_bytes`."""

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
        """Reads one batch."""
        batch = self._source.next_batch()
        if batch is None:
            self.complete = True
            return
        for doc in batch:
            index = len(self._documents)
            self._documents.append(doc)
            self._size += len(doc) + _DOCUMENT_BYTES
            for value in values_at(doc, self._path):
                key = self._key_of(value)
                indexes = self._by_key.get(key)
                if indexes is None:
                    self._by_key[key] = [index]
                    self._size += len(key) + _KEY_BYTES
                elif indexes[-1] != index:
                    indexes.append(index)
                    self._size += _ENTRY_BYTES
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
        """The documents whose field has one of the values, in the order of the collection."""
        if len(values) == 1:
            return [self._documents[index] for index in self._by_key.get(self._key_of(values[0]), [])]
        indexes: set[int] = set()
        for value in values:
            indexes.update(self._by_key.get(self._key_of(value), []))
        return [self._documents[index] for index in sorted(indexes)]
