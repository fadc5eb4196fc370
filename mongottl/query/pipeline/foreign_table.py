"""The hash join of `$lookup`: a hash table of the documents of another collection by the values of a field."""

from typing import Final

from mongottl.document.collation import Collation
from mongottl.document.freeing import freed_in_slices, put_aside
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import Date, ObjectId, Regex, Value
from mongottl.query.expr.base import is_nullish
from mongottl.query.memory import MemoryShare
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


def key_of(value: Value, collation: Collation | None) -> bytes:
    """The key of a value in a table."""
    return encode_value(value, False, collation)


class ForeignTable:
    """The documents of a collection by the values of a field.

    limit_bytes: the memory beyond which it is `too_large`, as it is if `share` gets no more; it is then to be reduced
    or dropped. share: for a stage's tables, of which there is one at a time. wanted: the keys (`key_of`) of the values
    whose documents it holds, None for all.
    """

    def __init__(
        self,
        source: DocumentSource,
        path: FieldPath,
        collation: Collation | None,
        limit_bytes: int,
        share: MemoryShare,
        wanted: set[bytes] | None = None,
    ) -> None:
        self._wanted = wanted
        self._limit_bytes: Final = limit_bytes
        self._share: Final = share
        share.release()
        self._source: Final = source
        self._collation: Final = collation
        self._path: Final = path
        self._by_key: dict[bytes, list[int]] = {}
        self._documents: list[bytes] = []
        self._size = 0
        self.complete = False

    def read(self) -> None:
        """Reads one batch."""
        batch = self._source.next_batch()
        if batch is None:
            self.complete = True
            return
        wanted = self._wanted
        for doc in batch:
            index = -1
            for value in values_at(doc, self._path):
                key = key_of(value, self._collation)
                if wanted is not None and key not in wanted:
                    continue
                if index < 0:
                    index = len(self._documents)
                    self._documents.append(doc)
                    self._size += len(doc) + _DOCUMENT_BYTES
                indexes = self._by_key.get(key)
                if indexes is None:
                    self._by_key[key] = [index]
                    self._size += len(key) + _KEY_BYTES
                elif indexes[-1] != index:
                    indexes.append(index)
                    self._size += _ENTRY_BYTES

    @property
    def too_large(self) -> bool:
        return self._size > self._limit_bytes or not self._share.hold(self._size)

    def reduce(self, wanted: set[bytes]) -> None:
        """Restricts it to the documents of these values, which it has wanted so far."""
        by_key: dict[bytes, list[int]] = {}
        kept: set[int] = set()
        for key in wanted:
            indexes = self._by_key.get(key)
            if indexes is not None:
                by_key[key] = indexes
                kept.update(indexes)
        moved: dict[int, int] = {}
        documents: list[bytes] = []
        self._size = 0
        for index in sorted(kept):
            moved[index] = len(documents)
            doc = self._documents[index]
            documents.append(doc)
            self._size += len(doc) + _DOCUMENT_BYTES
        for key, indexes in by_key.items():
            by_key[key] = [moved[index] for index in indexes]
            self._size += len(key) + _KEY_BYTES + _ENTRY_BYTES * (len(indexes) - 1)
        self._wanted = wanted
        self._by_key = by_key
        self._documents = documents

    def held_bytes(self) -> int:
        return self._size

    def close(self) -> None:
        put_aside(self._by_key)
        self._by_key = {}
        self._documents = freed_in_slices(self._documents)
        self._share.release()
        self._source.close()

    def is_outdated(self) -> bool:
        return self._source.is_outdated()

    def find(self, values: list[Value]) -> list[Value]:
        """The documents whose field has one of the values, in the order of the collection."""
        if len(values) == 1:
            return [self._documents[index] for index in self._by_key.get(key_of(values[0], self._collation), [])]
        indexes: set[int] = set()
        for value in values:
            indexes.update(self._by_key.get(key_of(value, self._collation), []))
        return [self._documents[index] for index in sorted(indexes)]
