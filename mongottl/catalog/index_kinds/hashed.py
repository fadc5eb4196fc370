"""Hashed indexes: {a: "hashed"}, or compound with one hashed path. A key has the hash of the value, an int64.

They are never multikey and never unique, and are used for equality only. Source: MongoDB's page "Hashed Indexes".
"""

from typing import Final

from mypy_extensions import i64

from mongottl.catalog.index_kinds.kind import IndexKind, IndexPattern, Pattern
from mongottl.catalog.keys import KeyGenerator
from mongottl.document.collation import Collation, with_keys
from mongottl.document.hashing import hashed_raw, hashed_value
from mongottl.document.keystring import KeyStringBuilder
from mongottl.document.path import FieldPath, find_outside_arrays
from mongottl.document.types import ARRAY, NULL, Value
from mongottl.document.walk import decode_value
from mongottl.errors import CommandError

HASHED: Final = "hashed"
HASHED_UNIQUE: Final = 16764
HASHED_ARRAY: Final = 16766
SEVERAL_HASHED: Final = 31303


class HashedKind(IndexKind):
    """The kind "hashed". Refuses two hashed paths (31303) and `unique` (16764)."""

    def __init__(self) -> None:
        super().__init__("hashed", HASHED, {})

    def check_pattern(self, pattern: Pattern) -> None:
        hashed = sum(1 for _, direction in pattern if direction == HASHED)
        if hashed > 1:
            raise CommandError(
                SEVERAL_HASHED, f"A maximum of one index field is allowed to be hashed but found {hashed}"
            )

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        if options.get("unique") or options.get("prepareUnique"):
            raise CommandError(
                HASHED_UNIQUE, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index."
            )
        return key, options

    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        hashed = [direction == HASHED for direction in pattern.directions]
        return HashedKeyGenerator(pattern.paths, pattern.descending, hashed, pattern.sparse, pattern.collation)


class HashedKeyGenerator(KeyGenerator):
    """Makes one key for each document, with the hash of a string's sort key under a collation. 16766 for an array on
    the path."""

    def __init__(
        self,
        paths: list[FieldPath],
        descending: list[bool],
        hashed: list[bool],
        sparse: bool,
        collation: Collation | None,
    ) -> None:
        super().__init__()
        self.roots = [path.part_bytes[0] for path in paths]
        self._collation = collation
        self._paths = paths
        self._descending = descending
        self._hashed = hashed
        self._sparse = sparse

    def keys_of(self, document: bytes) -> list[bytes]:
        builder = KeyStringBuilder(self._collation)
        missing = 0
        for i in range(len(self._paths)):
            type_code, pos = _find(document, self._paths[i])
            if type_code == 0:
                missing += 1
                type_code = NULL
            if self._hashed[i]:
                builder.append(self._hash(document, type_code, pos), self._descending[i])
            else:
                builder.append_raw(document, type_code, pos, self._descending[i])
        if self._sparse and missing == len(self._paths):
            return []
        return [builder.finish()]

    def _hash(self, document: bytes, type_code: i64, pos: i64) -> int:
        if self._collation is None:
            return hashed_raw(document, type_code, pos)
        return hashed_value(with_keys(decode_value(document, type_code, pos), self._collation))

    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        values: list[Value] = []
        for i in range(len(self._paths)):
            type_code, pos = _find(document, self._paths[i])
            value = None if type_code == 0 else decode_value(document, type_code, pos)
            values.append(hashed_value(with_keys(value, self._collation)) if self._hashed[i] else value)
        return values


def _find(document: bytes, path: FieldPath) -> tuple[i64, i64]:
    """The type code and offset of the value at a path; type code 0 for none. 16766 for an array on the path."""
    type_code, pos = find_outside_arrays(document, path)
    if type_code == ARRAY:
        raise CommandError(
            HASHED_ARRAY, f"hashed indexes do not currently support array values. Found array at path: {path.dotted}"
        )
    return type_code, pos
