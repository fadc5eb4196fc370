"""Dotted field paths, split into their components once.

Traversal differs by purpose (matching fans out over arrays, updates create missing fields, projections keep the
structure), so it is implemented by each of those packages.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.interrupt import give_way
from mongottl.document.types import ARRAY, DOCUMENT, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, decode_value, find_field_at
from mongottl.errors import CommandError, ErrorCode

MAX_DEPTH = 200

# Names starting with `$` that paths may contain: the fields of DBRefs, and those that MongoDB's own components add.
_DOLLAR_NAMES: Final = frozenset(
    {"$id", "$ref", "$db", "$sortKey", "$recordId", "$searchSortValues", "$searchScore", "$searchRootDocumentId"}
)


class FieldPath:
    """A path such as `a.0.b`.

    parts: the components; part_bytes: the components as UTF-8, as `walk.find_field_at` takes them.
    indexes: for each component the array index that it may denote, or -1: "0" and "12" do, "01" and "-1" do not.
    Overflow (15) for more than 200 components.
    """

    def __init__(self, dotted: str) -> None:
        give_way()
        check_path_depth(dotted)
        self.dotted = dotted
        self.parts: list[str] = dotted.split(".")
        self.part_bytes: list[bytes] = [encode_text(part) for part in self.parts]
        self.indexes: list[int] = [array_index(part) for part in self.parts]
        self.depth: i64 = len(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldPath) and self.dotted == other.dotted

    def __hash__(self) -> int:
        return hash(self.dotted)

    def __repr__(self) -> str:
        return f"FieldPath({self.dotted!r})"


def array_index(part: str) -> int:
    """The array index that a path component denotes, or -1. With leading zeros or a sign it is only a field name."""
    if not part.isascii() or not part.isdigit():
        return -1
    if len(part) > 1 and part[0] == "0":
        return -1
    if len(part) > 10:
        return -1
    return int(part)


def check_field_path(dotted: str) -> None:
    """Checks a path of an expression, projection, sort or stage.

    CommandError: 40352 for an empty path, 40353 for a dot at the end, 15998 for an empty component, 16410 for one that
    starts with `$` (but `$id`, `$ref` and `$db` of DBRefs are allowed), 16411 for one with a null byte, Overflow (15)
    for more than 200 components.
    """
    check_path_depth(dotted)
    if dotted == "":
        raise CommandError(40352, "FieldPath cannot be constructed with empty string")
    if dotted.endswith("."):
        raise CommandError(40353, "FieldPath must not end with a '.'.")
    for part in dotted.split("."):
        if part == "":
            raise CommandError(15998, "FieldPath field names may not be empty strings.")
        check_dollar(part)
        if "\0" in part:
            raise CommandError(16411, "FieldPath field names may not contain '\\0'.")


def check_path_depth(dotted: str, code: int = ErrorCode.Overflow) -> None:
    """Overflow (15), or another code, for more than 200 components: no document has more levels, and functions that
    follow a path may call themselves for each."""
    if dotted.count(".") >= MAX_DEPTH:
        raise CommandError(code, f"FieldPath is too long: more than {MAX_DEPTH} components")


def check_dollar(name: str) -> None:
    """16410 for a path component that starts with `$` and is none of a DBRef's fields."""
    if name.startswith("$") and name not in _DOLLAR_NAMES:
        raise CommandError(
            16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField."
        )


def values_at(document: bytes, path: FieldPath, whole: bool = False) -> list[Value]:
    """Every value at a path, as `distinct` returns them: arrays along the path and at its end count by their elements.

    A numeric component is a field name in documents, and an index in arrays that have such an element.
    whole: an array at the end of the path is one value.
    """
    found: list[Value] = []
    _collect(document, 0, DOCUMENT, path, 0, whole, found)
    return found


def _collect(
    buf: bytes, start: i64, container_type: i64, path: FieldPath, depth: i64, whole: bool, found: list[Value]
) -> None:
    """Appends the values at the path's components from `depth` on in a document or array.

    container_type: DOCUMENT or ARRAY, the type of the container at `start`.
    """
    if container_type == ARRAY:
        if path.indexes[depth] >= 0:
            type_code, pos = find_field_at(buf, start, path.part_bytes[depth])
            if type_code != 0:
                _collect_value(buf, type_code, pos, path, depth + 1, whole, found)
                return
        cursor = ElementCursor(buf, start)
        while cursor.next():
            if cursor.type_code == DOCUMENT:
                _collect(buf, cursor.value, DOCUMENT, path, depth, whole, found)
        return
    type_code, pos = find_field_at(buf, start, path.part_bytes[depth])
    if type_code != 0:
        _collect_value(buf, type_code, pos, path, depth + 1, whole, found)


def _collect_value(
    buf: bytes, type_code: i64, pos: i64, path: FieldPath, depth: i64, whole: bool, found: list[Value]
) -> None:
    if depth < path.depth:
        if type_code == DOCUMENT or type_code == ARRAY:
            _collect(buf, pos, type_code, path, depth, whole, found)
        return
    if whole or type_code != ARRAY:
        found.append(decode_value(buf, type_code, pos))
        return
    cursor = ElementCursor(buf, pos)
    while cursor.next():
        found.append(cursor.decoded())


def find_outside_arrays(document: bytes, path: FieldPath) -> tuple[i64, i64]:
    """The type code and offset of the value at a path; type code 0 for none, ARRAY for an array on the path."""
    depth: i64 = 1
    type_code, pos = find_field_at(document, 0, path.part_bytes[0])
    while depth < path.depth and type_code == DOCUMENT:
        type_code, pos = find_field_at(document, pos, path.part_bytes[depth])
        depth += 1
    if depth < path.depth and type_code != ARRAY:
        type_code = 0
    return type_code, pos
