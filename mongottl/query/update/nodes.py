"""The tree of a modifier update, which walks and rebuilds a raw document.

`{$set: {"a.b": 1, "a.c": 2, "l.$[].n": 3}}` becomes

    ObjectNode ── a ── ObjectNode ── b ── $set 1
               │                 └── c ── $set 2
               └─ l ── ArrayNode ─ $[] ── ObjectNode ── n ── $set 3

Inner nodes are path components; leaves are modifiers. Each node is applied to a raw value and returns KEEP
(no change), REPLACE (the new value is in the state) or REMOVE. Only documents that contain a change are rebuilt, from
new elements and slices of the old bytes, so all other bytes are unchanged: types, order, duplicate fields. If the
document does not have the path, `create` is called instead.

Children are applied in mongod's order (names by their bytes, array indexes by number), which is the order of new fields
and of the detection of errors.

The modifiers themselves are in other modules.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from mongottl.document.build import index_name
from mongottl.document.compare import compare_raw
from mongottl.document.freeing import LONG, LongDict, LongList, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts, sorted_by_comparison
from mongottl.document.splice import element, finish_document, frame, start_document
from mongottl.document.types import ARRAY, DOCUMENT, MAX_DOCUMENT_BYTES, NULL
from mongottl.document.utf8 import compare_texts, encode_text
from mongottl.document.walk import ElementCursor, count_fields, decode_value, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match.tree import MatchExpression
from mongottl.query.update.describe import show_element

KEEP: Final = 0
REPLACE: Final = 1
REMOVE: Final = 2

# Maximal number of nulls that an update may append before the index that it sets.
MAX_PADDING: Final = 1_500_000
# Nulls that are encoded in one step.
_NULLS_AT_ONCE: Final = 1000
# Some of them, 2 to the power of this, take about a microsecond.
_NULLS_BITS: Final = 3
_MAX_INDEX: Final = 2**32 - 1
_MOST_DIGITS: Final = len(str(_MAX_INDEX))
# From this number of children of a node on, the offsets of the document's fields are collected first.
MANY: Final = 8


def update_index(part: str) -> int:
    """The array index that a path component denotes in an update, or -1. Unlike in queries, leading zeros are
    allowed."""
    if not part.isascii() or not part.isdigit():
        return -1
    digits = part.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return -1
    index = int(digits or "0")
    return index if index <= _MAX_INDEX else -1


def _is_strict_index(part: str) -> bool:
    return part.isascii() and part.isdigit() and (part[0] != "0" or len(part) == 1)


def compare_components(a: str, b: str) -> int:
    """mongod's order of path components: array indexes by number, everything else by bytes."""
    if _is_strict_index(a) and _is_strict_index(b) and len(a) != len(b):
        return -1 if len(a) < len(b) else 1
    return int(compare_texts(a, b))


class ApplyState:
    """One application of an update to one document.

    doc: the original document. is_insert: it is being built for an upsert.
    matched: the array index for the positional `$`, "" if the query matched none.
    path: components from the root to the current node; existing: how many of them the document has.
    out_type, out: the new value if a node returned REPLACE.
    blocked_type, blocked_at: during `create` below a value that cannot contain the field: that value.
    padded_bytes: the size of all nulls that were appended to arrays.
    root: the tree that is applied. starts: see `ObjectNode.field_starts`, by the offsets of documents in `doc`.
    """

    def __init__(self, doc: bytes, is_insert: bool, matched: str, root: "ObjectNode") -> None:
        self.doc: bytes = doc
        self.root = root
        self.starts: dict[int, dict[bytes, int]] = {}
        self.is_insert: bool = is_insert
        self.matched: str = matched
        self.path: list[str] = []
        self.existing: i64 = 0
        self.out_type: i64 = 0
        self.out: bytes = b""
        self.blocked: bool = False
        self.blocked_type: i64 = 0
        self.blocked_buf: bytes = b""
        self.blocked_at: i64 = 0
        self.padded_bytes: i64 = 0

    def dotted(self) -> str:
        return ".".join(self.path)

    def replace(self, type_code: i64, value: bytes) -> i64:
        self.out_type = type_code
        self.out = value
        return REPLACE

    def show_blocking_element(self) -> str:
        name = self.path[self.existing - 1] if self.existing > 0 else ""
        return show_element(name, decode_value(self.blocked_buf, self.blocked_type, self.blocked_at))

    def cannot_create(self) -> CommandError:
        return CommandError(
            ErrorCode.PathNotViable,
            f"Cannot create field '{self.path[self.existing]}' in element {{{self.show_blocking_element()}}}",
        )

    def cannot_traverse(self) -> CommandError:
        return CommandError(
            ErrorCode.PathNotViable,
            f"Cannot use the part ({self.path[self.existing]}) of ({self.dotted()}) "
            f"to traverse the element ({{{self.show_blocking_element()}}})",
        )


class UpdateNode:
    """A node of the tree. `path` of the state is always the path to which the node is applied."""

    def apply(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        """Applies to the existing value buf[pos:end]; in_array: it is an array's element. KEEP, REPLACE or REMOVE."""
        raise NotImplementedError

    def create(self, state: ApplyState) -> i64:
        """Applies to a missing value: REPLACE if a value is created, else KEEP. PathNotViable (28) if blocked."""
        raise NotImplementedError


class ModifierNode(UpdateNode):
    """A leaf. Subclasses implement the change of an existing value and the creation of a missing one.

    creates: whether it creates a missing value; otherwise that is a no-op.
    ignores_path: is a no-op below a value that cannot be traversed, where others fail with PathNotViable (28).
    may_rewrite_id: `_id` may be set to an equal value of another numeric type; otherwise any change is refused.
    insert_only: a no-op unless the document is being inserted.
    """

    def __init__(self, creates: bool, ignores_path: bool = False, may_rewrite_id: bool = False) -> None:
        self.creates: bool = creates
        self.ignores_path: bool = ignores_path
        self.may_rewrite_id: bool = may_rewrite_id
        self.insert_only: bool = False

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        """Changes an existing value: KEEP, REPLACE or REMOVE."""
        raise NotImplementedError

    def new_value(self, state: ApplyState) -> i64:
        """Creates a missing value: `state.replace(…)`, or KEEP."""
        return KEEP

    def apply(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if self.insert_only and not state.is_insert:
            return KEEP
        answer = self.update_value(state, buf, type_code, pos, end, in_array)
        if answer != KEEP:
            root = state.path[0]
            if root == "_id":
                self._check_id_kept(state, answer, buf, type_code, pos)
            elif answer == REPLACE:
                check_root_name(state, root)
        return answer

    def create(self, state: ApplyState) -> i64:
        if self.insert_only and not state.is_insert:
            return KEEP
        if not self.creates:
            if state.blocked and not self.ignores_path:
                raise state.cannot_traverse()
            return KEEP
        existing = state.existing
        answer = self.new_value(state)
        if answer == KEEP:
            return KEEP
        if state.blocked:
            raise state.cannot_create()
        root = state.path[0]
        if root == "_id":
            if existing > 0:
                raise CommandError(
                    ErrorCode.ImmutableField,
                    f"Updating the path '{'.'.join(state.path[:existing])}' to {_show_root(state, root)} "
                    "would modify the immutable field '_id'",
                )
        else:
            check_root_name(state, root)
        return answer

    def _check_id_kept(self, state: ApplyState, answer: i64, buf: bytes, type_code: i64, pos: i64) -> None:
        if (
            answer == REPLACE
            and self.may_rewrite_id
            and len(state.path) == 1
            and compare_raw(buf, type_code, pos, state.out, state.out_type, 0) == 0
        ):
            return
        raise CommandError(
            ErrorCode.ImmutableField,
            f"Performing an update on the path '{state.dotted()}' would modify the immutable field '_id'",
        )


def check_root_name(state: ApplyState, name: str) -> None:
    """DollarPrefixedFieldName (52) for a root field that only a pipeline or an insert may create."""
    if not state.is_insert and name.startswith("$"):
        raise dollar_prefixed(name)


def dollar_prefixed(name: str) -> CommandError:
    return CommandError(
        ErrorCode.DollarPrefixedFieldName,
        f"The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement "
        "document. Consider using an aggregation pipeline with $replaceWith.",
    )


def _show_root(state: ApplyState, name: str) -> str:
    return show_element(name, get_value(state.doc, name))


class Child:
    """A named child of an ObjectNode. index: the array index that the name may denote, or -1. is_strict_index: whether
    it denotes one in queries, too."""

    def __init__(self, name: str, node: UpdateNode) -> None:
        self.name = name
        self.name_bytes: bytes = encode_text(name)
        self.index: i64 = update_index(name)
        self.is_strict_index: bool = _is_strict_index(name)
        self.node = node


def _compare_children(a: Child, b: Child) -> int:
    """`compare_components` of two names."""
    if a.is_strict_index and b.is_strict_index and len(a.name_bytes) != len(b.name_bytes):
        return -1 if len(a.name_bytes) < len(b.name_bytes) else 1
    return -1 if a.name_bytes < b.name_bytes else 1


class ObjectNode(UpdateNode):
    """A path component with named children (fields or array indexes).

    positional: the child under `$`, if any.
    """

    def __init__(self) -> None:
        self.positional: UpdateNode | None = None
        self._children: list[Child] = []
        self._is_ordered: bool = True
        self._by_name: dict[bytes, Child] = {}

    @property
    def children(self) -> list[Child]:
        """In the order of application."""
        if not self._is_ordered:
            self._children = sorted_by_comparison(self._children, _compare_children)
            self._is_ordered = True
        return self._children

    def get(self, name: str) -> UpdateNode | None:
        if name == "$":
            return self.positional
        child = self._by_name.get(encode_text(name))
        return None if child is None else child.node

    def put(self, name: str, node: UpdateNode) -> None:
        """Adds a new child."""
        if name == "$":
            self.positional = node
            return
        child = Child(name, node)
        children = self._children
        if children and _compare_children(children[-1], child) > 0:
            self._is_ordered = False
        children.append(child)
        self._by_name[child.name_bytes] = child
        if len(children) == LONG:
            self._children = LongList(children)
            self._by_name = LongDict(self._by_name)

    def replace(self, name: str, node: UpdateNode) -> None:
        """Replaces the node of an existing child."""
        self._by_name[encode_text(name)].node = node

    def _effective(self, state: ApplyState) -> "ObjectNode":
        """The node, with the positional child under the index that the query matched."""
        positional = self.positional
        if positional is None:
            return self
        if state.matched == "":
            raise CommandError(
                ErrorCode.BadValue, "The positional operator did not find the match needed from the query."
            )
        merged = ObjectNode()
        for child in self.children:
            give_way()
            merged.put(child.name, child.node)
        known = merged.get(state.matched)
        if known is None:
            merged.put(state.matched, positional)
        else:
            merged.replace(state.matched, merge_nodes(positional, known, [*state.path, state.matched]))
        return merged

    def field_starts(self, state: ApplyState, buf: bytes, pos: i64) -> dict[bytes, int] | None:
        """The offset of the first field of each child's name in a document, for `seek`. None for few children, each of
        which is searched for."""
        if len(self._children) <= MANY:
            return None
        if buf is not state.doc:
            return _field_starts(buf, pos, self._by_name)
        at = int(pos)
        starts = state.starts.get(at)
        if starts is None:
            starts = _field_starts(buf, pos, self._by_name)
            # A node with a positional child is applied as another one with a child more.
            if self.positional is None:
                state.starts[at] = starts
        return starts

    def apply(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code == DOCUMENT:
            return self._apply_to_document(state, buf, pos, end)
        if type_code == ARRAY:
            return self._apply_to_array(state, buf, pos, end)
        for child in self._effective(state).children:
            give_way()
            self._create_blocked(state, child, buf, type_code, pos)
        return KEEP

    def _apply_to_document(self, state: ApplyState, buf: bytes, pos: i64, end: i64) -> i64:
        node = self._effective(state)
        edits: list[tuple[i64, i64, bytes]] = []
        appended: list[bytes] = []
        path = state.path
        starts = node.field_starts(state, buf, pos)
        for child in node.children:
            give_way(1 if starts is not None else 1 + ((end - pos) >> 10))
            cursor = ElementCursor(buf, pos)
            found = seek(cursor, child.name_bytes, starts)
            path.append(child.name)
            if found:
                answer = child.node.apply(state, buf, cursor.type_code, cursor.value, cursor.end, False)
                if answer != KEEP:
                    piece = b"" if answer == REMOVE else element(state.out_type, child.name_bytes, state.out)
                    edits.append((cursor.element, cursor.end, piece))
            else:
                state.existing = i64(len(path)) - 1
                if child.node.create(state) == REPLACE:
                    appended.append(element(state.out_type, child.name_bytes, state.out))
            path.pop()
        if not edits and not appended:
            return KEEP
        return state.replace(DOCUMENT, _splice(buf, pos + 4, end - 1, edits, appended))

    def _apply_to_array(self, state: ApplyState, buf: bytes, pos: i64, end: i64) -> i64:
        children = self._effective(state).children
        if len(children) > MANY and _are_ascending(children):
            return self._apply_many_to_array(state, children, buf, pos, end)
        array = buf[pos:end]
        changed = False
        path = state.path
        for child in children:
            give_way(1 + (i64(len(array)) >> 10))
            index: i64 = child.index
            if index < 0:
                self._create_blocked(state, child, array, ARRAY, 0)
                continue
            cursor = ElementCursor(array, 0)
            at: i64 = 0
            while cursor.next() and at < index:
                at += 1
            path.append(child.name)
            if cursor.type_code != 0:
                answer = child.node.apply(state, array, cursor.type_code, cursor.value, cursor.end, True)
                if answer != KEEP:
                    name = cursor.name_bytes()
                    piece = element(state.out_type, name, state.out) if answer == REPLACE else element(NULL, name, b"")
                    array = frame(array[4 : cursor.element] + piece + array[cursor.end : len(array) - 1])
                    changed = True
            else:
                state.existing = i64(len(path)) - 1
                if child.node.create(state) == REPLACE:
                    out_type = state.out_type
                    array = _append_at(state, array, index, out_type, state.out)
                    changed = True
            path.pop()
        return state.replace(ARRAY, array) if changed else KEEP

    def _apply_many_to_array(self, state: ApplyState, children: list[Child], buf: bytes, pos: i64, end: i64) -> i64:
        """Applies children that are indexes in ascending order, in one pass over the array."""
        writer = start_document()
        path = state.path
        cursor = ElementCursor(buf, pos)
        size: i64 = 0  # number of elements read so far; after the loop, the size of the new array
        last: i64 = pos + 4
        ended = False
        changed = False
        for child in children:
            give_way()
            index: i64 = child.index
            while not ended and size <= index:
                if cursor.next():
                    size += 1
                else:
                    ended = True
            path.append(child.name)
            if not ended:
                answer = child.node.apply(state, buf, cursor.type_code, cursor.value, cursor.end, True)
                if answer != KEEP:
                    changed = True
                    name = cursor.name_bytes()
                    writer.write(buf[last : cursor.element])
                    writer.write(
                        element(state.out_type, name, state.out) if answer == REPLACE else element(NULL, name, b"")
                    )
                    last = cursor.end
            else:
                state.existing = i64(len(path)) - 1
                if child.node.create(state) == REPLACE:
                    changed = True
                    if last < end - 1:
                        writer.write(buf[last : end - 1])
                        last = end - 1
                    size = _append_padded(state, writer, size, index, state.out_type, state.out)
            path.pop()
        if not changed:
            return KEEP
        writer.write(buf[last : end - 1])
        return state.replace(ARRAY, finish_document(writer))

    def _create_blocked(self, state: ApplyState, child: Child, buf: bytes, type_code: i64, pos: i64) -> None:
        """Calls `create` of a child below a value that cannot contain such a field: it fails or is a no-op."""
        state.existing = len(state.path)
        state.path.append(child.name)
        state.blocked = True
        state.blocked_buf = buf
        state.blocked_type = type_code
        state.blocked_at = pos
        child.node.create(state)
        state.blocked = False
        state.path.pop()

    def create(self, state: ApplyState) -> i64:
        writer = start_document()
        created = False
        for child in self._effective(state).children:
            give_way()
            state.path.append(child.name)
            if child.node.create(state) == REPLACE:
                created = True
                writer.write(element(state.out_type, child.name_bytes, state.out))
            state.path.pop()
        if not created:
            return KEEP
        return state.replace(DOCUMENT, finish_document(writer))


def _splice(buf: bytes, start: i64, end: i64, edits: list[tuple[i64, i64, bytes]], appended: list[bytes]) -> bytes:
    """A document of the elements buf[start:end], with the replacements (from, to, bytes), and with elements
    appended."""
    writer = start_document()
    if len(edits) > 1:
        edits = sort_in_parts(edits)
    last: i64 = start
    for edit in edits:
        give_way()
        writer.write(buf[last : edit[0]])
        writer.write(edit[2])
        last = edit[1]
    writer.write(buf[last:end])
    for piece in appended:
        writer.write(piece)
    return finish_document(writer)


def _append_at(state: ApplyState, array: bytes, index: i64, type_code: i64, value: bytes) -> bytes:
    """The array extended by a value at an index after its last element, with nulls before it; see `_append_padded`."""
    writer = start_document()
    writer.write(array[4 : len(array) - 1])
    _append_padded(state, writer, count_fields(array, 0), index, type_code, value)
    return finish_document(writer)


def _append_padded(state: ApplyState, writer: BytesWriter, size: i64, index: i64, type_code: i64, value: bytes) -> i64:
    """Appends nulls from index `size` on, and the value at `index`; returns the new size.

    CannotBackfillArray (34) for too many nulls; 17419 if all of the update are longer than a document may be. Nothing
    removes them again, since an update changes no path twice.
    """
    if index - size > MAX_PADDING:
        raise CommandError(ErrorCode.CannotBackfillArray, f"can't backfill array to larger than {MAX_PADDING} elements")
    state.padded_bytes += nulls_bytes(size, index)
    if state.padded_bytes > MAX_DOCUMENT_BYTES:
        raise too_large()
    while size < index:
        count = min(index - size, _NULLS_AT_ONCE)
        writer.write((b"\n%d\0" * int(count)) % tuple(range(int(size), int(size + count))))
        give_way(count >> _NULLS_BITS)
        size += count
    writer.write(element(type_code, index_name(index), value))
    return index + 1


def nulls_bytes(first: i64, end: i64) -> i64:
    """The size of the nulls with the indexes from `first` to before `end` of an array."""
    total: i64 = 0
    digits: i64 = 1
    bound: i64 = 10
    while first < end:
        if first < bound:
            last = min(end, bound)
            total += (last - first) * (digits + 2)
            first = last
        digits += 1
        bound *= 10
    return total


def too_large() -> CommandError:
    return CommandError(17419, f"Resulting document after update is larger than {MAX_DOCUMENT_BYTES}")


def seek(cursor: ElementCursor, name: bytes, starts: dict[bytes, int] | None) -> bool:
    """Moves a cursor at the beginning of a document to the first field of a name; False if it has none. starts: those
    of a node with a child of this name."""
    if starts is not None:
        start = starts.get(name)
        if start is None:
            return False
        cursor.end = start
        return cursor.next()
    while cursor.next():
        if cursor.name_is(name):
            return True
    return False


def _field_starts(buf: bytes, pos: i64, names: dict[bytes, Child]) -> dict[bytes, int]:
    """The offset of the first field of each of these names."""
    starts: dict[bytes, int] = {} if len(names) < LONG else LongDict({})
    cursor = ElementCursor(buf, pos)
    while cursor.next():
        name = cursor.name_bytes()
        if name in names and name not in starts:
            starts[name] = int(cursor.element)
    return starts


def _are_ascending(children: list[Child]) -> bool:
    """Whether the children are array indexes in ascending order."""
    last: i64 = -1
    for child in children:
        if child.index <= last:
            return False
        last = child.index
    return True


class ArrayFilter:
    """One of the command's `arrayFilters`: the identifier and the condition on an element."""

    def __init__(self, identifier: str, condition: MatchExpression) -> None:
        self.identifier = identifier
        self.condition = condition


class FilteredChild:
    """A child of an ArrayNode. condition: on the elements that it is applied to; None for all of them."""

    def __init__(self, identifier: str, node: UpdateNode, condition: MatchExpression | None) -> None:
        self.identifier = identifier
        self.node = node
        self.condition = condition


def _compare_filtered(a: FilteredChild, b: FilteredChild) -> int:
    return -1 if a.identifier < b.identifier else 1


class ArrayNode(UpdateNode):
    """A path component whose children are `$[]` (identifier "") and `$[identifier]`."""

    def __init__(self, filters: dict[str, ArrayFilter]) -> None:
        self._children: list[FilteredChild] = []
        self._is_ordered: bool = True
        self._by_identifier: dict[str, UpdateNode] = {}
        self.filters = filters

    @property
    def children(self) -> list["FilteredChild"]:
        """In the order of their identifiers."""
        if not self._is_ordered:
            self._children = sorted_by_comparison(self._children, _compare_filtered)
            self._is_ordered = True
        return self._children

    def get(self, identifier: str) -> UpdateNode | None:
        return self._by_identifier.get(identifier)

    def put(self, identifier: str, node: UpdateNode) -> None:
        """Adds a new child."""
        children = self._children
        if children and children[-1].identifier > identifier:
            self._is_ordered = False
        children.append(FilteredChild(identifier, node, self.filters[identifier].condition if identifier else None))
        self._by_identifier[identifier] = node
        if len(children) == LONG:
            self._children = LongList(children)
            self._by_identifier = LongDict(self._by_identifier)

    def apply(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code != ARRAY:
            name = state.path[len(state.path) - 1]
            raise CommandError(
                ErrorCode.BadValue,
                "Cannot apply array updates to non-array element "
                + show_element(name, decode_value(buf, type_code, pos)),
            )
        writer = start_document()
        last: i64 = pos + 4
        cursor = ElementCursor(buf, pos)
        index: i64 = 0
        changed = False
        while cursor.next():
            state.path.append(str(int(index)))
            node = self._node_for(state, buf, cursor.type_code, cursor.value)
            if node is not None:
                answer = node.apply(state, buf, cursor.type_code, cursor.value, cursor.end, True)
                if answer != KEEP:
                    changed = True
                    writer.write(buf[last : cursor.element])
                    if answer == REPLACE:
                        writer.write(element(state.out_type, cursor.name_bytes(), state.out))
                    else:
                        writer.write(element(NULL, cursor.name_bytes(), b""))
                    last = cursor.end
            state.path.pop()
            index += 1
        if not changed:
            return KEEP
        writer.write(buf[last : end - 1])
        return state.replace(ARRAY, finish_document(writer))

    def _node_for(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64) -> UpdateNode | None:
        """The merged nodes of the children whose filters an element matches; None if there are none."""
        children = self.children
        chosen: list[UpdateNode] = list_for(len(children))
        for child in children:
            give_way()
            condition = child.condition
            if condition is None or condition.matches_value(buf, type_code, pos):
                chosen.append(child.node)
        # Merged pairwise, since each merge copies both of its nodes.
        while len(chosen) > 1:
            merged: list[UpdateNode] = list_for(len(chosen))
            for i in range(0, len(chosen) - 1, 2):
                merged.append(merge_nodes(chosen[i], chosen[i + 1], state.path))
            if len(chosen) % 2:
                merged.append(chosen[-1])
            chosen = merged
        return chosen[0] if chosen else None

    def create(self, state: ApplyState) -> i64:
        raise CommandError(
            ErrorCode.BadValue,
            f"The path '{state.dotted()}' must exist in the document in order to apply array updates.",
        )


def merge_nodes(a: UpdateNode, b: UpdateNode, path: list[str]) -> UpdateNode:
    """One node with the effects of both. ConflictingUpdateOperators (40) if both change the same path."""
    give_way()
    if isinstance(a, ObjectNode) and isinstance(b, ObjectNode):
        objects = ObjectNode()
        objects.positional = _merge_optional(a.positional, b.positional, [*path, "$"])
        for child in a.children:
            give_way()
            objects.put(child.name, child.node)
        for child in b.children:
            give_way()
            other = a.get(child.name)
            if other is None:
                objects.put(child.name, child.node)
                continue
            objects.replace(child.name, merge_nodes(other, child.node, [*path, child.name]))
        return objects
    if isinstance(a, ArrayNode) and isinstance(b, ArrayNode):
        arrays = ArrayNode(a.filters)
        for filtered in a.children:
            give_way()
            counterpart = b.get(filtered.identifier)
            node = filtered.node if counterpart is None else merge_nodes(filtered.node, counterpart, path)
            arrays.put(filtered.identifier, node)
        for filtered in b.children:
            give_way()
            if a.get(filtered.identifier) is None:
                arrays.put(filtered.identifier, filtered.node)
        return arrays
    raise CommandError(ErrorCode.ConflictingUpdateOperators, f"Update created a conflict at '{'.'.join(path)}'")


def _merge_optional(a: UpdateNode | None, b: UpdateNode | None, path: list[str]) -> UpdateNode | None:
    if a is None:
        return b
    return a if b is None else merge_nodes(a, b, path)
