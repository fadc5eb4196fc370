"""Sort patterns, and the sort keys of documents.

A sort key is a KeyString (`document.keystring`) of one component per field of the pattern, so documents are sorted by
comparing bytes; descending fields are encoded descending. A missing field sorts as null.

A path through an array gives a document several keys; it is sorted by the first of them in the order of the pattern:
the smallest element for an ascending field, the greatest for a descending one. Fields that share the array are taken
from the same element. An empty array sorts as undefined, before null.

    pattern {"a.x": 1, "a.y": -1}, document {a: [{x: 1, y: 5}, {x: 1, y: 8}, {x: 2, y: 9}]}    ->    key (1, 8)

A field `{$meta: <keyword>}` sorts by the metadata of documents (`document.annotated`).

`{$natural: ±1}` is not a sort pattern: callers of `parse_sort` handle it before.

Source: MongoDB's "cursor.sort()", "$sort" and "Comparison/Sort Order" pages.
"""

from collections.abc import Iterable
from typing import Final

from mypy_extensions import i64

from mongottl.document.annotated import metadata_of
from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.keystring import KeyStringBuilder, encode_raw, encode_value
from mongottl.document.numbers import clamp_to_long
from mongottl.document.path import FieldPath, check_field_path, values_at
from mongottl.document.render import render_value
from mongottl.document.types import ARRAY, DOCUMENT, NULL, Undefined, Value, is_number
from mongottl.document.walk import ElementCursor, fields, find_field_at
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.metadata import SORTABLE

MAX_SORT_FIELDS: Final = 32

_COMPUTED: Final = -1  # the depth of a component whose part of the key is computed
_NOT_POSITIONAL: Final = -1


class SortPattern:
    """Paths, each ascending or descending. Without paths documents keep their order.

    paths, descending: one of each per field, in order. metadata: keywords of `{$meta: …}` fields.
    collation: of strings, None for the order of their bytes.
    """

    def __init__(self, paths: list[FieldPath], descending: list[bool], collation: Collation | None = None) -> None:
        self.collation = collation
        self.paths = paths
        self.descending = descending
        self.metadata: list[str] = []
        self._width: i64 = len(paths)
        self._single: bool = len(paths) == 1 and paths[0].depth == 1
        self._single_name: bytes = paths[0].part_bytes[0] if paths else b""
        self._single_descending: bool = descending[0] if paths else False
        self._nulls: list[bytes] = [encode_value(None, inverted) for inverted in descending]
        self._empty_arrays: list[bytes] = [encode_value(Undefined(), inverted) for inverted in descending]

    def is_empty(self) -> bool:
        return self._width == 0

    def describe(self) -> dict[str, Value]:
        """The pattern as explain shows it: `{"a.b": 1, "c": -1}`."""
        directions: dict[str, Value] = {}
        for i in range(len(self.paths)):
            directions[self.paths[i].dotted] = -1 if self.descending[i] else 1
        return directions

    def sort_key(self, document: bytes) -> bytes:
        """The document's KeyString.

        CommandError: BadValue (2) when two fields run through different arrays; 16746 when a number in a path is both
        the index of an array element and the name of a field in an element.
        """
        if self._single:
            type_code, pos = find_field_at(document, 0, self._single_name)
            if type_code == 0:
                return self._nulls[0]
            if type_code != ARRAY:
                return encode_raw(document, type_code, pos, self._single_descending, self.collation)
            return self._first_element(document, pos)
        builder = KeyStringBuilder(self.collation)
        i: i64 = 0
        while i < self._width:
            path = self.paths[i]
            type_code = DOCUMENT
            pos = 0
            depth: i64 = 0
            while depth < path.depth and type_code == DOCUMENT:
                type_code, pos = find_field_at(document, pos, path.part_bytes[depth])
                depth += 1
            if type_code == ARRAY:
                width = int(self._width)
                return self._first_key(document, [b""] * width, [0] * width, [DOCUMENT] * width, [0] * width)
            if depth < path.depth or type_code == 0:
                type_code = NULL
            builder.append_raw(document, type_code, pos, self.descending[i])
            i += 1
        return builder.finish()

    def sort_values(self, document: bytes) -> list[Value]:
        """The values that the document sorts by, one per field: `{$meta: "sortKey"}`."""
        key = self.sort_key(document)
        found: list[Value] = []
        at = 0
        for i in range(len(self.paths)):
            value, end = _value_in_key(self, document, i, key, at)
            found.append(value)
            at = end
        return found

    def sort(self, documents: Iterable[bytes]) -> list[bytes]:
        """The documents in order; the sort is stable."""
        return sorted(documents, key=self.sort_key)

    def _first_element(self, buf: bytes, array_at: i64) -> bytes:
        """The first key of the elements of the array at the end of the only path; nested arrays are single values."""
        cursor = ElementCursor(buf, array_at)
        if not cursor.next():
            return self._empty_arrays[0]
        first = encode_raw(buf, cursor.type_code, cursor.value, self.descending[0], self.collation)
        while cursor.next():
            key = encode_raw(buf, cursor.type_code, cursor.value, self.descending[0], self.collation)
            if key < first:
                first = key
        return first

    def _first_key(
        self, buf: bytes, parts: list[bytes], depths: list[int], types: list[int], positions: list[int]
    ) -> bytes:
        """The first of the document's keys. types, positions: of the value of each component at depth `depths` of its
        path.

        parts: the encoded components that are already computed (their depth is _COMPUTED). The lists are modified.
        """
        array_at: i64 = -1  # offset of the only array on the paths of the remaining components
        for i in range(len(depths)):
            if depths[i] == _COMPUTED:
                continue
            path = self.paths[i]
            depth: i64 = depths[i]
            type_code: i64 = types[i]
            pos: i64 = positions[i]
            while depth < path.depth and type_code == DOCUMENT:
                type_code, pos = find_field_at(buf, pos, path.part_bytes[depth])
                depth += 1
            if type_code == ARRAY:
                if array_at >= 0 and array_at != pos:
                    raise CommandError(ErrorCode.BadValue, "cannot sort with keys that are parallel arrays")
                array_at = pos
                depths[i] = int(depth)
            else:
                depths[i] = _COMPUTED
                if depth < path.depth or type_code == 0:
                    parts[i] = self._nulls[i]
                else:
                    parts[i] = encode_raw(buf, type_code, pos, self.descending[i], self.collation)
        if array_at < 0:
            return b"".join(parts)
        if len(depths) == 1 and self.paths[0].depth == depths[0]:
            return self._first_element(buf, array_at)
        return self._fan_out(buf, array_at, parts, depths)

    def _fan_out(self, buf: bytes, array_at: i64, parts: list[bytes], depths: list[int]) -> bytes:
        """The first key over the elements of the array at which every component that is not computed yet has
        arrived."""
        width = len(depths)
        indexed_types = [0] * width
        indexed_positions = [_NOT_POSITIONAL] * width
        varies = False  # whether the key depends on the element at all
        for i in range(width):
            if depths[i] == _COMPUTED:
                continue
            path = self.paths[i]
            if depths[i] < path.depth and path.indexes[depths[i]] >= 0:
                type_code, pos = find_field_at(buf, array_at, path.part_bytes[depths[i]])
                indexed_types[i] = int(type_code)
                indexed_positions[i] = int(pos)
            if indexed_positions[i] == _NOT_POSITIONAL:
                varies = True
        cursor = ElementCursor(buf, array_at)
        first: bytes | None = None
        while cursor.next():
            element_parts = parts.copy()
            element_depths = depths.copy()
            element_types = indexed_types.copy()
            element_positions = indexed_positions.copy()
            for i in range(width):
                depth: i64 = depths[i]
                if depth == _COMPUTED:
                    continue
                path = self.paths[i]
                if indexed_positions[i] != _NOT_POSITIONAL:
                    if cursor.type_code == DOCUMENT:
                        self._check_unambiguous(buf, cursor.value, path, depth)
                    element_depths[i] = int(depth + 1)
                elif depth == path.depth:
                    # An array within the array is a value and not traversed.
                    element_parts[i] = encode_raw(
                        buf, cursor.type_code, cursor.value, self.descending[i], self.collation
                    )
                    element_depths[i] = _COMPUTED
                elif cursor.type_code == DOCUMENT:
                    element_types[i] = DOCUMENT
                    element_positions[i] = int(cursor.value)
                else:
                    element_parts[i] = self._nulls[i]
                    element_depths[i] = _COMPUTED
            if varies or first is None:
                key = self._first_key(buf, element_parts, element_depths, element_types, element_positions)
                if first is None or key < first:
                    first = key
        if first is not None:
            return first
        for i in range(width):
            if depths[i] != _COMPUTED:
                parts[i] = self._empty_arrays[i] if self.paths[i].depth == depths[i] else self._nulls[i]
        return b"".join(parts)

    def _check_unambiguous(self, buf: bytes, element_at: i64, path: FieldPath, depth: i64) -> None:
        type_code, _ = find_field_at(buf, element_at, path.part_bytes[depth])
        if type_code != 0:
            raise CommandError(
                16746,
                f"Ambiguous field name in an array: '{path.parts[depth]}' of '{path.dotted}' is both the place of an"
                " element and the name of a field in an element",
            )


class MetaSortPattern(SortPattern):
    """A pattern with `{$meta: …}` fields.

    order: for each field of the pattern its keyword, or "" for the next one of `paths`. names: the pattern's field
    names.
    """

    def __init__(
        self,
        paths: list[FieldPath],
        descending: list[bool],
        names: list[str],
        order: list[str],
        collation: Collation | None,
    ) -> None:
        super().__init__(paths, descending, collation)
        self.metadata = [keyword for keyword in order if keyword]
        self._names = names
        self._order = order
        # For each keyword a pattern of the fields before it: its key is the beginning of the complete key.
        self._prefixes: list[SortPattern] = []
        taken = 0
        for keyword in order:
            if keyword:
                self._prefixes.append(SortPattern(paths[:taken], descending[:taken], collation))
            else:
                taken += 1

    def is_empty(self) -> bool:
        return False

    def describe(self) -> dict[str, Value]:
        described: dict[str, Value] = {}
        taken = 0
        for i in range(len(self._order)):
            if self._order[i]:
                described[self._names[i]] = encode({"$meta": self._order[i]})
            else:
                described[self._names[i]] = -1 if self.descending[taken] else 1
                taken += 1
        return described

    def sort_key(self, document: bytes) -> bytes:
        fields_key = super().sort_key(document)
        metadata = metadata_of(document)
        parts: list[bytes] = []
        at = 0
        for i in range(len(self.metadata)):
            prefix = self._prefixes[i]
            end = 0 if prefix.is_empty() else len(prefix.sort_key(document))
            parts.append(fields_key[at:end])
            at = end
            keyword = self.metadata[i]
            parts.append(encode_value(metadata.get(keyword), not SORTABLE[keyword]))
        parts.append(fields_key[at:])
        return b"".join(parts)

    def sort_values(self, document: bytes) -> list[Value]:
        fields_key = super().sort_key(document)
        metadata = metadata_of(document)
        found: list[Value] = []
        at = 0
        taken = 0
        for keyword in self._order:
            if keyword:
                found.append(metadata.get(keyword))
                continue
            value, end = _value_in_key(self, document, taken, fields_key, at)
            found.append(value)
            at = end
            taken += 1
        return found


def _value_in_key(pattern: SortPattern, document: bytes, field: int, key: bytes, at: int) -> tuple[Value, int]:
    """The document's value whose component is at offset `at` of a sort key, and the offset after the component.

    field: index of its path in the pattern.
    """
    descending = pattern.descending[field]
    candidates = values_at(document, pattern.paths[field])
    candidates.append(None)
    for value in candidates:
        encoded = encode_value(value, descending, pattern.collation)
        if key.startswith(encoded, at):
            return value, at + len(encoded)
    return None, at + len(encode_value(Undefined(), descending))  # an empty array


def parse_sort(
    specification: bytes, collation: Collation | None = None, takes_dollar_names: bool = False
) -> SortPattern:
    """The pattern of a sort document `{path: 1 | -1, …}`; an empty one gives an empty pattern.

    takes_dollar_names: whether a path may start with `$`, which is then part of the field's name.

    CommandError: 15974 for a direction that is not a number, 15975 for one that is not 1 or -1 (fractions of doubles
    are cut off); 7472500 for a duplicate path; 17312 for an object other than `{$meta: …}`, 31138 for a kind
    of metadata that cannot be sorted by; 13103 for more than 32 fields; those of `check_field_path` for paths.
    """
    paths: list[FieldPath] = []
    descending: list[bool] = []
    names: list[str] = []
    keywords: list[str] = []
    seen: set[str] = set()
    cursor = ElementCursor(specification, 0)
    while cursor.next():
        if len(names) == 2 * MAX_SORT_FIELDS:  # a client may send a million
            raise CommandError(13103, "too many compound keys")
        name = cursor.name()
        direction = cursor.decoded()
        names.append(name)
        if isinstance(direction, bytes):
            keywords.append(_meta_keyword(direction))
            continue
        keywords.append("")
        if len(paths) == MAX_SORT_FIELDS:  # metadata do not count
            raise CommandError(13103, "too many compound keys")
        if not is_number(direction):
            raise CommandError(15974, f"Illegal key in $sort specification: {name}: {render_value(direction)}")
        order = clamp_to_long(direction)  # doubles are truncated, decimals rounded
        if order not in (1, -1):
            raise CommandError(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
        check_field_path(name[1:] if takes_dollar_names and name.startswith("$") else name)
        if name in seen:
            raise CommandError(7472500, f"$sort key must not contain duplicate keys (duplicate key: '{name}')")
        seen.add(name)
        paths.append(FieldPath(name))
        descending.append(order < 0)
    if len(paths) < len(names):
        return MetaSortPattern(paths, descending, names, keywords, collation)
    return SortPattern(paths, descending, collation)


def _meta_keyword(expression: bytes) -> str:
    """The keyword of `{$meta: <keyword>}` as a direction."""
    arguments = fields(expression)
    if len(arguments) != 1:
        if any(name == "$meta" for name, _ in arguments):
            raise CommandError(ErrorCode.FailedToParse, "Cannot have additional keys in a $meta sort specification")
        raise CommandError(17312, "$meta is the only expression supported by $sort right now")
    name, kind = arguments[0]
    if name != "$meta":
        raise CommandError(17312, "$meta is the only expression supported by $sort right now")
    if not isinstance(kind, str) or kind not in SORTABLE:
        raise CommandError(31138, f"Illegal $meta sort: $meta: {render_value(kind)}")
    return kind
