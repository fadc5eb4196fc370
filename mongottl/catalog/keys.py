"""A document's keys in an index.

Each component of an index pattern is a path. Where a path runs through an array, the document has one key per element
(the index is then multikey); paths that share the array are taken from the same element. Two different arrays in one
compound key are refused: CannotIndexParallelArrays (171). A missing field is keyed as null, an empty array as
undefined. A numeric component names an element of an array where there is one with that number.

    pattern {"a.b": 1, c: -1}, document {a: [{b: 1}, {b: 2}], c: 9}    ->    keys (1, 9) and (2, 9)

Source: MongoDB's "Multikey Indexes" and "Sparse Indexes" pages.
"""

from mypy_extensions import i64

from mongottl.document.keystring import KeyStringBuilder
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DOCUMENT, NULL, UNDEFINED, Value
from mongottl.document.walk import ElementCursor, decode_value, find_field_at
from mongottl.errors import CommandError

CANNOT_INDEX_PARALLEL_ARRAYS = 171


class KeyGenerator:
    """Makes the keys of one index pattern. After `keys_of`, `saw_array` says whether an array was on the way."""

    def __init__(self, paths: list[FieldPath], descending: list[bool], sparse: bool) -> None:
        self._paths = paths
        self._descending = descending
        self._sparse = sparse
        self._width: i64 = len(paths)
        self.saw_array = False
        self._single = len(paths) == 1 and paths[0].depth == 1
        self._single_name: bytes = paths[0].part_bytes[0]
        self._single_descending: bool = descending[0]
        self._wanted: bytes | None = None
        self._values: list[Value] = []

    def keys_of(self, document: bytes) -> list[bytes]:
        """The document's KeyStrings, without duplicates, in no particular order; empty if a sparse index skips it."""
        self.saw_array = False
        if self._single:
            type_code, pos = find_field_at(document, 0, self._single_name)
            if type_code != ARRAY:
                if type_code == 0:
                    if self._sparse:
                        return []
                    type_code = NULL
                builder = KeyStringBuilder()
                builder.append_raw(document, type_code, pos, self._single_descending)
                return [builder.finish()]
        found: dict[bytes, bool] = {}
        types: list[int] = [DOCUMENT] * int(self._width)
        places: list[int] = [0] * int(self._width)
        depths: list[int] = [0] * int(self._width)
        self._expand(document, types, places, depths, found)
        return list(found)

    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        """The values behind one of the document's keys, for messages; a missing field as null."""
        self._wanted = key
        self._values = [None] * int(self._width)
        size = int(self._width)
        self._expand(document, [DOCUMENT] * size, [0] * size, [0] * size, {})
        self._wanted = None
        return self._values

    def _expand(
        self, buf: bytes, types: list[int], places: list[int], depths: list[int], found: dict[bytes, bool]
    ) -> None:
        """Walks each component on from (type, place) at its depth until its end or an array that must fan out."""
        array_at: i64 = -1  # offset of the one array that the components fan out over
        for i in range(len(types)):
            path = self._paths[i]
            while depths[i] < path.depth and types[i] == DOCUMENT:
                type_code, pos = find_field_at(buf, places[i], path.part_bytes[depths[i]])
                types[i] = int(type_code)
                places[i] = int(pos)
                depths[i] += 1
                if type_code == ARRAY:
                    self._enter_positions(buf, i, types, places, depths)
            if depths[i] < path.depth and types[i] != ARRAY:
                types[i] = 0  # the path goes on below a scalar: missing
            if types[i] == ARRAY:
                if array_at >= 0 and array_at != places[i]:
                    raise CommandError(
                        CANNOT_INDEX_PARALLEL_ARRAYS,
                        "cannot index parallel arrays"
                        f" [{path.parts[depths[i] - 1]}] [{self._parallel_to(types, places, array_at)}]",
                    )
                array_at = places[i]
        if array_at < 0:
            self._emit(buf, types, places, found)
            return
        self.saw_array = True
        self._fan_out(buf, array_at, types, places, depths, found)

    def _enter_positions(self, buf: bytes, i: int, types: list[int], places: list[int], depths: list[int]) -> None:
        """Follows numeric components into the array itself, where it has such an element."""
        path = self._paths[i]
        while types[i] == ARRAY and depths[i] < path.depth and path.indexes[depths[i]] >= 0:
            type_code, pos = find_field_at(buf, places[i], path.part_bytes[depths[i]])
            if type_code == 0:
                return
            self.saw_array = True
            types[i] = int(type_code)
            places[i] = int(pos)
            depths[i] += 1

    def _parallel_to(self, types: list[int], places: list[int], array_at: i64) -> str:
        for i in range(len(types)):
            if types[i] == ARRAY and places[i] == array_at:
                return self._paths[i].parts[0]
        return ""

    def _fan_out(
        self,
        buf: bytes,
        array_at: i64,
        types: list[int],
        places: list[int],
        depths: list[int],
        found: dict[bytes, bool],
    ) -> None:
        cursor = ElementCursor(buf, array_at)
        empty = True
        while cursor.next():
            empty = False
            element_types = types.copy()
            element_places = places.copy()
            element_depths = depths.copy()
            for i in range(len(types)):
                if types[i] == ARRAY and places[i] == array_at:
                    element_types[i] = int(cursor.type_code)
                    element_places[i] = int(cursor.value)
                    if depths[i] == self._paths[i].depth:
                        if cursor.type_code == ARRAY:
                            # An array as an element is a value: it is keyed whole and not entered.
                            element_types[i] = -ARRAY
                    elif cursor.type_code != DOCUMENT:
                        element_types[i] = 0
                        element_depths[i] = int(self._paths[i].depth)
            self._expand(buf, element_types, element_places, element_depths, found)
        if empty:
            for i in range(len(types)):
                if types[i] == ARRAY and places[i] == array_at:
                    types[i] = UNDEFINED if depths[i] == self._paths[i].depth else 0
                    depths[i] = int(self._paths[i].depth)
            self._expand(buf, types, places, depths, found)

    def _emit(self, buf: bytes, types: list[int], places: list[int], found: dict[bytes, bool]) -> None:
        if self._sparse and not any(types):
            return
        builder = KeyStringBuilder()
        for i in range(len(types)):
            type_code = types[i]
            if type_code == 0:
                type_code = NULL
            elif type_code == -ARRAY:
                type_code = ARRAY
            builder.append_raw(buf, type_code, places[i], self._descending[i])
        key = builder.finish()
        found[key] = True
        if key == self._wanted:
            self._values = [
                None if types[i] == 0 else decode_value(buf, abs(types[i]), places[i]) for i in range(len(types))
            ]
