"""A value put at a path of a document: what `$unwind`, `$lookup` and others do to each of theirs."""

from mypy_extensions import i64

from mongottl.document.annotated import carried
from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, encode_value
from mongottl.document.path import FieldPath
from mongottl.document.types import DOCUMENT, Value
from mongottl.document.walk import ElementCursor


def with_value(doc: bytes, path: FieldPath, value: Value) -> bytes:
    """The document with a value at a path; what is on the way and no document is replaced by one."""
    type_code, raw = encode_value(value)
    return carried(doc, set_path(doc, 0, path.part_bytes, 0, type_code, raw))


class PathValues:
    """Values that are put at several paths of a document at once. No path is another one or leads through it."""

    def __init__(self, paths: list[FieldPath]) -> None:
        self._root = _Branch()
        for i in range(len(paths)):
            self._root.add(paths[i].part_bytes, i)

    def put(self, doc: bytes, values: list[Value]) -> bytes:
        """The document with a value at each path; what is on the way and no document is replaced by one."""
        return carried(doc, self._root.applied(doc, 0, values))


class _Branch:
    """The fields of one level that change: each gets a value (leaves has its number) or has fields below that do."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.leaves: list[int] = []
        self.below: list[_Branch | None] = []
        self.places: dict[bytes, int] = {}

    def add(self, parts: list[bytes], leaf: int) -> None:
        node = self
        for depth in range(len(parts) - 1):
            place = node.places.get(parts[depth], -1)
            child = None if place < 0 else node.below[place]
            if child is None:
                child = _Branch()
                node._append(parts[depth], -1, child)
            node = child
        node._append(parts[len(parts) - 1], leaf, None)

    def _append(self, name: bytes, leaf: int, child: "_Branch | None") -> None:
        self.places[name] = len(self.names)
        self.names.append(name)
        self.leaves.append(leaf)
        self.below.append(child)

    def applied(self, buf: bytes, start: i64, values: list[Value]) -> bytes:
        """The document at `start` with the values: fields that exist keep their place, others come behind."""
        builder = DocumentBuilder()
        places = self.places
        seen = [False] * len(self.names)
        cursor = ElementCursor(buf, start)
        while cursor.next():
            place = places.get(cursor.name_bytes(), -1)
            if place < 0 or seen[place]:
                builder.append_raw_element(cursor.raw_element())
                continue
            seen[place] = True
            child = self.below[place]
            if child is None:
                builder.append_named(self.names[place], values[self.leaves[place]])
            elif cursor.type_code == DOCUMENT:
                builder.append_named(self.names[place], child.applied(buf, cursor.value, values))
            else:
                builder.append_named(self.names[place], child.applied(EMPTY_DOCUMENT, 0, values))
        for place in range(len(seen)):
            if not seen[place]:
                child = self.below[place]
                value = values[self.leaves[place]] if child is None else child.applied(EMPTY_DOCUMENT, 0, values)
                builder.append_named(self.names[place], value)
        return builder.finish()


def set_path(buf: bytes, start: i64, parts: list[bytes], depth: i64, type_code: i64, raw: bytes) -> bytes:
    """The document at `start` with the value (type, bytes) at a path through documents; type 0 takes the field out.

    What is on the way and no document is replaced by one.
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
