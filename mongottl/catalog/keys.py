"""A document's keys in an index.

Each component of an index pattern is a path. Where a path runs through an array, the document has one key per element
(the index is then multikey); paths that share the array are taken from the same element. Two different arrays in one
compound key are refused: CannotIndexParallelArrays (171). A missing field is keyed as null, an empty array as
undefined, an array within an array as a whole.

    pattern {"a.b": 1, c: -1}, document {a: [{b: 1}, {b: 2}], c: 9}    ->    keys (1, 9) and (2, 9)

A numeric component of a path names the array element with that number, if there is one, else a field of the elements,
as any other name does. If it could be both, the document is refused (16746). An array that is named in this way is
keyed as a whole:

    pattern {"a.0": 1}     {a: [5, 6]} -> 5     {a: [[5, 6], 7]} -> [5, 6]     {a: [{b: 1}]} -> {b: 1}

Source: MongoDB's "Multikey Indexes" and "Sparse Indexes" pages.
"""

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64

from mongottl.catalog.array_paths import SOMEWHERE
from mongottl.document.collation import Collation
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.key_reader import BITS_PER_COMPONENT, MAX_WIDTH, double_type_bits, type_bits_of
from mongottl.document.keystring import KeyStringBuilder, encode_raw, encode_value
from mongottl.document.path import FieldPath, find_outside_arrays
from mongottl.document.types import ARRAY, DOCUMENT, DOUBLE, NULL, UNDEFINED, Undefined, Value
from mongottl.document.walk import ElementCursor, decode_value, find_field_at
from mongottl.errors import CommandError, ErrorCode

AMBIGUOUS_FIELD_NAME: Final = 16746
# Keys that one document may have in one index: MongoDB's default for `indexMaxNumGeneratedKeysPerDocument`.
MAX_KEYS: Final = 100_000
# Bytes of these keys. What a document's values take is bounded by its own size, but each key of a compound index that
# has one array has the values of the other paths, too: 100,000 keys with a text of 16 MB.
MAX_KEYS_BYTES: Final[i64] = 256 * 1024 * 1024

# The depth of a component whose value is known.
_SETTLED: Final = -1
# Instead of the offset of a document: the array element is not a document.
_NO_DOCUMENT: Final = -1


class _Components:
    """The state of the walk along the path of each component; one such object for each array element.

    depths: how many parts of the path are walked, or _SETTLED. types, places: type and offset of the value that was
    reached, type 0 for none. For a component that has reached an array, all three are of the array.
    """

    def __init__(self, depths: list[int], types: list[int], places: list[int]) -> None:
        self.depths = depths
        self.types = types
        self.places = places

    def copy(self) -> "_Components":
        return _Components(self.depths.copy(), self.types.copy(), self.places.copy())


class _Positions:
    """The array elements that numeric components name; one such object for each array.

    depths: 0 for components that name none. within_array: whether the named element is an array itself.
    """

    def __init__(self, width: int) -> None:
        self.depths: list[int] = [0] * width
        self.types: list[int] = [0] * width
        self.places: list[int] = [0] * width
        self.within_array: list[bool] = [False] * width


class KeyGenerator(ABC):
    """Makes the keys of one index; each kind of index has its own subclass.

    saw_array, array_paths: after `keys_of`, whether the document has an array on an indexed path, and at which paths
    (see `array_paths.ArrayPaths`). roots: the root fields on which the keys depend; empty if they depend on others,
    too.
    """

    def __init__(self) -> None:
        self.saw_array = False
        self.array_paths: set[str] = set()
        # What all keys made so far stem from, a few bits for each component (`document.key_reader`).
        self.type_bits: i64 = 0
        self.roots: list[bytes] = []

    def begin(self) -> None:
        """Resets the arrays of the last document; `keys_of` must call it first."""
        if self.saw_array:
            self.saw_array = False
            self.array_paths.clear()

    def adopt(self, made: "MadeKeys") -> list[bytes]:
        """Keys that another generator of the same index has made, as if this one had made them. The error of it."""
        self.begin()
        self.type_bits |= made.generator.type_bits
        if made.generator.saw_array:
            self.saw_array = True
            self.array_paths.update(made.generator.array_paths)
        if made.error is not None:
            raise made.error
        return made.keys

    def note_array(self, path: str) -> None:
        self.saw_array = True
        self.array_paths.add(path)

    @abstractmethod
    def keys_of(self, document: bytes) -> list[bytes]:
        """The document's KeyStrings, without duplicates, in no order; none if the document is not in the index."""
        raise NotImplementedError

    @abstractmethod
    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        """The values of one of the document's keys, one for each component, for messages; null for a missing value."""
        raise NotImplementedError


class MadeKeys:
    """The keys of a document, made by a generator of their own; or the error for one that has no valid keys."""

    def __init__(self, document: bytes, generator: KeyGenerator) -> None:
        self.document = document
        self.generator = generator
        self.keys: list[bytes] = []
        self.error: CommandError | None = None


class BtreeKeyGenerator(KeyGenerator):
    """Makes the keys of an ordinary index: the values at its paths."""

    def __init__(
        self, paths: list[FieldPath], descending: list[bool], sparse: bool, collation: Collation | None = None
    ) -> None:
        super().__init__()
        self._collation = collation
        self._paths = paths
        self.roots = [path.part_bytes[0] for path in paths]
        # The prefixes of each path, by their depth less one. If a path has numbers, which may name elements of an
        # array, the exact path is not recorded.
        numbers = any(index >= 0 for path in paths for index in path.indexes)
        self._prefixes: list[list[str]] = [
            [SOMEWHERE if numbers else ".".join(path.parts[: depth + 1]) for depth in range(len(path.parts))]
            for path in paths
        ]
        self._descending = descending
        self._sparse = sparse
        self._width: i64 = len(paths)
        self._no_positions = _Positions(len(paths))
        self._wanted: bytes | None = None
        self._values: list[Value] = []
        self._bytes: i64 = 0  # of the keys found so far, of a document with arrays

    def keys_of(self, document: bytes) -> list[bytes]:
        self.begin()
        builder = KeyStringBuilder(self._collation)
        missing: i64 = 0
        shift: i64 = 0
        for i in range(self._width):
            path = self._paths[i]
            depth: i64 = 1
            type_code, pos = find_field_at(document, 0, path.part_bytes[0])
            while depth < path.depth and type_code == DOCUMENT:
                type_code, pos = find_field_at(document, pos, path.part_bytes[depth])
                depth += 1
            if type_code == ARRAY:
                if self._width == 1 and depth == path.depth:
                    return self._keys_of_elements(document, pos)
                return self._keys_through_arrays(document)
            if type_code == 0 or depth < path.depth:
                missing += 1
                bits = type_bits_of(0)
                type_code = NULL
            else:
                bits = double_type_bits(document, pos) if type_code == DOUBLE else type_bits_of(type_code)
            if bits != 0 and i < MAX_WIDTH:
                self.type_bits |= bits << shift
            shift += BITS_PER_COMPONENT
            builder.append_raw(document, type_code, pos, self._descending[i])
        if self._sparse and missing == self._width:
            return []
        return [builder.finish()]

    def _keys_of_elements(self, buf: bytes, array_at: i64) -> list[bytes]:
        """The keys of an index with one path that ends at an array, the simplest and most frequent multikey index."""
        self.note_array(self._prefixes[0][-1])
        descending = self._descending[0]
        found: dict[bytes, bool] = {}
        cursor = ElementCursor(buf, array_at)
        while cursor.next():
            give_way()
            found[encode_raw(buf, cursor.type_code, cursor.value, descending, self._collation)] = True
            check_count(len(found))
        return list(found) if found else [encode_value(Undefined(), descending)]

    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        values: list[Value] = []
        for path in self._paths:
            type_code, pos = find_outside_arrays(document, path)
            if type_code == ARRAY:
                return self._values_in_arrays(document, key)
            values.append(None if type_code == 0 else decode_value(document, type_code, pos))
        return values

    def _values_in_arrays(self, document: bytes, key: bytes) -> list[Value]:
        self._wanted = key
        self._values = [None] * int(self._width)
        self._keys_through_arrays(document)
        self._wanted = None
        return self._values

    def _keys_through_arrays(self, document: bytes) -> list[bytes]:
        found: dict[bytes, bool] = {}
        width = int(self._width)
        self._bytes = 0
        self._expand(document, 0, _Components([0] * width, [0] * width, [0] * width), self._no_positions, found)
        return list(found)

    def _expand(
        self, buf: bytes, start: int, components: _Components, positions: _Positions, found: dict[bytes, bool]
    ) -> None:
        """Continues the paths of the components in the document at `start` (or _NO_DOCUMENT), each to its end or to an
        array.

        positions: the elements that numeric components name in the array of which the document is an element.
        """
        array_at = -1  # the one array that components wait at
        array_name = ""
        within_array = False
        for i in range(len(components.depths)):
            depth: i64 = i64(components.depths[i])
            if depth == _SETTLED:
                continue
            path = self._paths[i]
            type_code: i64 = 0
            pos: i64 = 0
            if start != _NO_DOCUMENT:
                type_code, pos = find_field_at(buf, start, path.part_bytes[depth])
            if type_code != 0:
                if positions.depths[i] != 0:
                    raise _ambiguous(path, depth)
                depth += 1
                while depth < path.depth and type_code == DOCUMENT:
                    type_code, pos = find_field_at(buf, pos, path.part_bytes[depth])
                    depth += 1
            elif positions.depths[i] != 0:
                type_code = i64(positions.types[i])
                pos = i64(positions.places[i])
                depth = i64(positions.depths[i])
                within_array = within_array or positions.within_array[i]
            components.places[i] = int(pos)
            if type_code != ARRAY:
                # A path that continues below a scalar has no value.
                components.types[i] = int(type_code) if depth == path.depth else 0
                components.depths[i] = _SETTLED
                continue
            self.note_array(self._prefixes[i][depth - 1])
            name = path.parts[depth - 1]
            if array_at >= 0 and array_at != int(pos):
                raise CommandError(
                    ErrorCode.CannotIndexParallelArrays, f"cannot index parallel arrays [{name}] [{array_name}]"
                )
            array_at = int(pos)
            array_name = name
            components.types[i] = ARRAY
            components.depths[i] = int(depth)
        if array_at < 0:
            self._emit(buf, components, found)
            return
        self._fan_out(buf, array_at, components, within_array, found)

    def _fan_out(
        self, buf: bytes, array_at: int, components: _Components, within_array: bool, found: dict[bytes, bool]
    ) -> None:
        """Continues in each element of the array that components have reached."""
        cursor = ElementCursor(buf, array_at)
        if not cursor.next():
            for i in range(len(components.depths)):
                if components.depths[i] != _SETTLED:
                    ends_here = components.depths[i] == self._paths[i].depth
                    components.types[i] = UNDEFINED if ends_here else 0
            self._emit(buf, components, found)
            return
        positions = self._positions_in(buf, array_at, components)
        while True:
            element = components.copy()
            for i in range(len(element.depths)):
                if element.depths[i] == self._paths[i].depth:
                    element.depths[i] = _SETTLED
                    if not within_array:
                        element.types[i] = int(cursor.type_code)
                        element.places[i] = int(cursor.value)
            start = int(cursor.value) if cursor.type_code == DOCUMENT else _NO_DOCUMENT
            self._expand(buf, start, element, positions, found)
            if not cursor.next():
                return

    def _positions_in(self, buf: bytes, array_at: int, components: _Components) -> _Positions:
        """Follows the components that name an element of the array by its number, to their end or the next array."""
        positions = self._no_positions
        for i in range(len(components.depths)):
            depth: i64 = i64(components.depths[i])
            path = self._paths[i]
            if depth == _SETTLED or depth == path.depth or path.indexes[depth] < 0:
                continue
            type_code, pos = find_field_at(buf, array_at, path.part_bytes[depth])
            if type_code == 0:
                continue
            if positions is self._no_positions:
                positions = _Positions(len(components.depths))
            positions.within_array[i] = type_code == ARRAY
            depth += 1
            while depth < path.depth and type_code == DOCUMENT:
                type_code, pos = find_field_at(buf, pos, path.part_bytes[depth])
                depth += 1
            positions.types[i] = int(type_code)
            positions.places[i] = int(pos)
            positions.depths[i] = int(depth)
        return positions

    def _emit(self, buf: bytes, components: _Components, found: dict[bytes, bool]) -> None:
        types = components.types
        places = components.places
        if self._sparse and not any(types):
            return
        builder = KeyStringBuilder(self._collation)
        for i in range(len(types)):
            builder.append_raw(buf, types[i] or NULL, places[i], self._descending[i])
        key = builder.finish()
        give_way()
        give_way_after(len(key))
        if key not in found:
            found[key] = True
            self._bytes += len(key)
            check_count(len(found), self._bytes)
        if key == self._wanted:
            self._values = [
                None if types[i] == 0 else decode_value(buf, types[i], places[i]) for i in range(len(types))
            ]


def check_count(count: i64, size: i64 = 0) -> None:
    """CannotBuildIndexKeys (201) for more keys than a document may have; called before more of them are made.

    size: their bytes, where each may have much of the document.
    """
    if count > MAX_KEYS:
        raise CommandError(
            ErrorCode.CannotBuildIndexKeys,
            f"Index key generation produced more than {MAX_KEYS} keys, which is the limit for a document",
        )
    if size > MAX_KEYS_BYTES:
        raise CommandError(
            ErrorCode.CannotBuildIndexKeys,
            f"Index key generation produced keys of more than {int(MAX_KEYS_BYTES)} bytes, which is the limit for a"
            " document",
        )


def _ambiguous(path: FieldPath, depth: i64) -> CommandError:
    return CommandError(
        AMBIGUOUS_FIELD_NAME,
        f"Ambiguous field name found in array: '{path.parts[depth]}' of '{path.dotted}' is both the place of an element"
        " and the name of a field in an element",
    )
