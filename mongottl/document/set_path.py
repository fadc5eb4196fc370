"""Setting values at paths of raw documents, for `$unwind`, `$lookup` and others."""

from mypy_extensions import i64

from mongottl.document.annotated import copy_metadata
from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, encode_value
from mongottl.document.freeing import LONG, LongDict, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.types import DOCUMENT, Value
from mongottl.document.walk import ElementCursor


def with_value(doc: bytes, path: FieldPath, value: Value) -> bytes:
    """The document with a value at a path; values along the path that are not documents are replaced by documents."""
    type_code, raw = encode_value(value)
    return copy_metadata(doc, set_path(doc, 0, path.part_bytes, 0, type_code, raw))


class PathValues:
    """Sets values at several paths of a document in one pass. No path may equal another one or be its prefix."""

    def __init__(self, paths: list[FieldPath]) -> None:
        self._root = _PathNode()
        for i in range(len(paths)):
            give_way()
            self._root.add(paths[i].part_bytes, i)

    def put(self, doc: bytes, values: list[Value]) -> bytes:
        """The document with values[i] at the path number i.

        Values along the paths that are not documents are replaced by documents.
        """
        return copy_metadata(doc, self._root.apply(doc, 0, values))


class _PathNode:
    """The fields of one level that are set or contain set fields.

    leaves: for each field the number of its value, -1 if `below` has the node of the next level.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.leaves: list[int] = []
        self.below: list[_PathNode | None] = []
        self.positions: dict[bytes, int] = {}

    def add(self, parts: list[bytes], leaf: int) -> None:
        node = self
        for depth in range(len(parts) - 1):
            position = node.positions.get(parts[depth], -1)
            child = None if position < 0 else node.below[position]
            if child is None:
                child = _PathNode()
                node._append(parts[depth], -1, child)
            node = child
        node._append(parts[len(parts) - 1], leaf, None)

    def _append(self, name: bytes, leaf: int, child: "_PathNode | None") -> None:
        self.positions[name] = len(self.names)
        self.names.append(name)
        self.leaves.append(leaf)
        self.below.append(child)
        if len(self.names) == LONG:
            self.positions = LongDict(self.positions)
            self.names = LongList(self.names)
            self.leaves = LongList(self.leaves)
            self.below = LongList(self.below)

    def apply(self, buf: bytes, start: i64, values: list[Value]) -> bytes:
        """The document at `start` with the values: existing fields keep their position, new ones are appended."""
        builder = DocumentBuilder()
        positions = self.positions
        seen = [False] * len(self.names)
        cursor = ElementCursor(buf, start)
        while cursor.next():
            position = positions.get(cursor.name_bytes(), -1)
            if position < 0 or seen[position]:
                builder.append_raw_element(cursor.raw_element())
                continue
            seen[position] = True
            child = self.below[position]
            if child is None:
                builder.append_named(self.names[position], values[self.leaves[position]])
            elif cursor.type_code == DOCUMENT:
                builder.append_named(self.names[position], child.apply(buf, cursor.value, values))
            else:
                builder.append_named(self.names[position], child.apply(EMPTY_DOCUMENT, 0, values))
        for position in range(len(seen)):
            give_way()
            if not seen[position]:
                child = self.below[position]
                value = values[self.leaves[position]] if child is None else child.apply(EMPTY_DOCUMENT, 0, values)
                builder.append_named(self.names[position], value)
        return builder.finish()


def set_path(buf: bytes, start: i64, parts: list[bytes], depth: i64, type_code: i64, raw: bytes) -> bytes:
    """The document at `start` with the encoded value `raw` at the path `parts[depth:]`; type code 0 removes the field.

    Values along the path that are not documents are replaced by documents.
    """
    builder = DocumentBuilder()
    name = parts[depth]
    last = depth + 1 == len(parts)
    seen = False
    cursor = ElementCursor(buf, start)
    while cursor.next():
        if seen or not cursor.name_is(name):
            builder.append_raw_element(cursor.raw_element())
            continue
        seen = True
        if last:
            if type_code != 0:
                builder.append_raw(name, type_code, raw, 0, len(raw))
        elif cursor.type_code == DOCUMENT:
            builder.append_named(name, set_path(buf, cursor.value, parts, depth + 1, type_code, raw))
        else:
            builder.append_named(name, _nested(parts, depth + 1, type_code, raw))
    if not seen and type_code != 0:
        if last:
            builder.append_raw(name, type_code, raw, 0, len(raw))
        else:
            builder.append_named(name, _nested(parts, depth + 1, type_code, raw))
    return builder.finish()


def _nested(parts: list[bytes], depth: i64, type_code: i64, raw: bytes) -> bytes:
    builder = DocumentBuilder()
    if depth + 1 == len(parts):
        if type_code != 0:
            builder.append_raw(parts[depth], type_code, raw, 0, len(raw))
    else:
        builder.append_named(parts[depth], _nested(parts, depth + 1, type_code, raw))
    return builder.finish()
