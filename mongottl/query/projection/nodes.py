"""The tree of a projection that is more than a list of root fields; it rebuilds raw documents.

`{a: 1, "l.n": 1, s: {$add: ["$a", 1]}}` becomes a ProjectionNode with the entries a (INCLUDE), l (NODE with n) and
s (COMPUTED). The fields of a document keep their order, and kept fields are copied. Computed fields are appended, in
the order of the specification; but in an exclusion an existing field keeps its position.

Paths traverse the elements of arrays, also of nested arrays; numbers in paths are field names here, never indexes. A
value without fields before the end of a path (a number, for example) is dropped by an inclusion, kept by an exclusion,
and replaced by a document if a field below it is computed.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import check_built, encode_value, index_name
from mongottl.document.freeing import LONG, LongDict, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.splice import element, finish_document, frame, start_document
from mongottl.document.types import ARRAY, DOCUMENT, MISSING
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, find_field
from mongottl.query.expr.base import EvaluationContext, Expression
from mongottl.query.match.tree import MatchDetails, MatchExpression

INCLUDE: Final = 1
EXCLUDE: Final = 2
NODE: Final = 3
COMPUTED: Final = 4
ELEM_MATCH: Final = 5

# Up to this many entries are compared one by one with a document's field; more are looked up.
FEW_ENTRIES: Final = 8


class Entry:
    """The projection of one field.

    node: for NODE. expression: for COMPUTED. condition: for ELEM_MATCH, a filter on the root field of this name.
    """

    def __init__(self, name: str, kind: int) -> None:
        self.name = name
        self.name_bytes: bytes = encode_text(name)
        self.kind: i64 = kind
        self.node: ProjectionNode | None = None
        self.expression: Expression | None = None
        self.condition: MatchExpression | None = None

    def computes(self) -> bool:
        """Whether it can create a field that the document does not have."""
        if self.kind == NODE:
            node = self.node
            return node is not None and node.has_computed
        return self.kind == COMPUTED or self.kind == ELEM_MATCH


class ProjectionNode:
    """The entries of one level, in the order of the specification.

    inclusive: fields without an entry are dropped. has_computed: something is computed at this level or below.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.inclusive: bool = False
        self.has_computed: bool = False
        self._by_name: dict[bytes, Entry] = {}

    def get(self, name: str) -> Entry | None:
        return self._by_name.get(encode_text(name))

    def add(self, entry: Entry) -> None:
        """Appends an entry with a new name."""
        self.entries.append(entry)
        self._by_name[entry.name_bytes] = entry
        if len(self.entries) == LONG:
            self.entries = LongList(self.entries)
            self._by_name = LongDict(self._by_name)

    def add_first(self, entry: Entry) -> None:
        """Inserts an entry with a new name before the others."""
        self.entries.insert(0, entry)
        self._by_name[entry.name_bytes] = entry

    def remove(self, entry: Entry) -> None:
        self.entries.remove(entry)
        del self._by_name[entry.name_bytes]

    def finish(self, inclusive: bool) -> None:
        """Must be called when the tree is complete."""
        self.inclusive = inclusive
        for entry in self.entries:
            give_way()
            node = entry.node
            if node is not None:
                node.finish(inclusive)
            if entry.computes():
                self.has_computed = True

    def _entry_of(self, cursor: ElementCursor) -> Entry | None:
        if len(self.entries) > FEW_ENTRIES:
            return self._by_name.get(cursor.name_bytes())
        for entry in self.entries:
            if cursor.name_is(entry.name_bytes):
                return entry
        return None

    def project(self, buf: bytes, pos: i64, ev: EvaluationContext) -> bytes:
        """The projection of the document at `pos`; ev.root is the root document."""
        writer = start_document()
        placed: set[Entry] = set()
        start: i64 = -1  # of the current run of kept elements
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            entry = self._entry_of(cursor)
            if entry is None:
                kept = not self.inclusive
            elif entry.kind == INCLUDE:
                kept = True
            elif entry.kind == NODE and cursor.type_code != DOCUMENT and cursor.type_code != ARRAY:
                kept = not self.inclusive and not entry.computes()
            else:
                kept = False
            if kept:
                if start < 0:
                    start = cursor.element
                continue
            if start >= 0:
                writer.write(buf[start : cursor.element])
                start = -1
            if entry is None or entry.kind == EXCLUDE:
                continue
            if entry.kind == NODE:
                writer.write(self._project_value(entry, cursor, ev))
                check_built(len(writer))
                placed.add(entry)
            elif not self.inclusive and entry not in placed:
                writer.write(compute(entry, ev))
                check_built(len(writer))
                placed.add(entry)
        if start >= 0:
            writer.write(buf[start : cursor.element])
        if self.has_computed:
            for entry in self.entries:
                if entry.computes() and entry not in placed:
                    writer.write(compute(entry, ev))
                    check_built(len(writer))
        return finish_document(writer)

    def _project_value(self, entry: Entry, cursor: ElementCursor, ev: EvaluationContext) -> bytes:
        """The projected element of a field with a subtree; b"" if it is dropped."""
        node = entry.node
        assert node is not None  # every NODE entry has one
        if cursor.type_code == DOCUMENT:
            return element(DOCUMENT, entry.name_bytes, node.project(cursor.buf, cursor.value, ev))
        if cursor.type_code == ARRAY:
            return element(ARRAY, entry.name_bytes, node.project_array(cursor.buf, cursor.value, ev))
        return compute(entry, ev) if node.has_computed else b""

    def project_array(self, buf: bytes, pos: i64, ev: EvaluationContext) -> bytes:
        """The projection of each element of the array at `pos`."""
        writer = start_document()
        index: i64 = 0
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if cursor.type_code == DOCUMENT:
                writer.write(element(DOCUMENT, index_name(index), self.project(buf, cursor.value, ev)))
            elif cursor.type_code == ARRAY:
                writer.write(element(ARRAY, index_name(index), self.project_array(buf, cursor.value, ev)))
            elif self.has_computed:
                writer.write(element(DOCUMENT, index_name(index), self.computed_document(ev)))
            elif self.inclusive:
                continue
            else:
                writer.write(element(cursor.type_code, index_name(index), buf[cursor.value : cursor.end]))
            if self.has_computed:
                check_built(len(writer))
            index += 1
        return finish_document(writer)

    def computed_document(self, ev: EvaluationContext) -> bytes:
        """A document of only the computed fields."""
        writer = start_document()
        for entry in self.entries:
            if entry.computes():
                writer.write(compute(entry, ev))
                check_built(len(writer))
        return finish_document(writer)

    def collect_paths(self, above: str, included: list[str], read: set[str]) -> bool:
        """Adds the dotted paths that an inclusion copies to `included`, and those that computed values read to `read`.

        above: the path of this node with a dot, empty for the root. False if more of the document decides the result.
        """
        for entry in self.entries:
            give_way()
            node = entry.node
            expression = entry.expression
            if entry.kind == INCLUDE:
                included.append(above + entry.name)
            elif node is not None and not node.has_computed:
                if not node.collect_paths(f"{above}{entry.name}.", included, read):
                    return False
            elif expression is None or not expression.collect_paths(read):
                return False
        return True

    def collect_fields(self, fields: set[str]) -> bool:
        """Adds the root fields that computed values read to `fields`; False if one reads the whole document."""
        for entry in self.entries:
            give_way()
            expression = entry.expression
            if expression is not None and not expression.collect_fields(fields):
                return False
            node = entry.node
            if node is not None and not node.collect_fields(fields):
                return False
        return True


def compute(entry: Entry, ev: EvaluationContext) -> bytes:
    """The element of a computed entry; b"" if there is no value."""
    give_way()
    expression = entry.expression
    if expression is not None:
        value = expression.evaluate(ev)
        if value is MISSING:
            return b""
        type_code, data = encode_value(value)
        return element(type_code, entry.name_bytes, data)
    node = entry.node
    if node is not None:
        return element(DOCUMENT, entry.name_bytes, node.computed_document(ev))
    return _first_match(entry, ev.root)


def _first_match(entry: Entry, root: bytes) -> bytes:
    """`$elemMatch`: an array of the first element that matches, or b""."""
    condition = entry.condition
    type_code, pos = find_field(root, entry.name_bytes)
    if type_code != ARRAY or condition is None:
        return b""
    details = MatchDetails()
    if not condition.matches_positional(root, details) or details.array_index < 0:
        return b""
    cursor = ElementCursor(root, pos)
    index: i64 = details.array_index
    while cursor.next():
        if index == 0:
            first = element(cursor.type_code, b"0", root[cursor.value : cursor.end])
            return element(ARRAY, entry.name_bytes, frame(first))
        index -= 1
    return b""
