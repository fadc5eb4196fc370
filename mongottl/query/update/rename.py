"""$rename: moves a value from one path to another, so it has two leaves in the tree."""

from mypy_extensions import i64

from mongottl.document.interrupt import give_way
from mongottl.document.types import ARRAY, DOCUMENT, STRING
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.update.describe import show_id
from mongottl.query.update.nodes import (
    KEEP,
    REMOVE,
    ApplyState,
    ModifierNode,
    ObjectNode,
    UpdateNode,
    seek,
    update_index,
)
from mongottl.query.update.paths import is_filter_part, split_update_path
from mongottl.query.update.registry import Operand, modifier
from mongottl.versions import OLDEST


class SourceValue:
    """The value of a rename's source in the original document, if it exists."""

    def __init__(self) -> None:
        self.type_code: i64 = 0
        self.pos: i64 = 0
        self.end: i64 = 0


def _find(state: ApplyState, parts: list[str], found: SourceValue) -> str:
    """Follows the path of a source through documents and arrays. Returns the name of the first array along the path,
    or "".

    found: set to the value, or to type code 0 if it is missing. An array at the end of the path does not count.
    PathNotViable (28) if the path leads through a value that cannot have fields.
    """
    doc = state.doc
    node: UpdateNode | None = state.root
    array = ""
    type_code: i64 = DOCUMENT
    pos: i64 = 0
    end: i64 = len(doc)
    for depth in range(len(parts)):
        part = parts[depth]
        cursor = ElementCursor(doc, pos)
        hit = False
        if type_code == DOCUMENT:
            hit = _seek_below(state, node, cursor, part)
        elif type_code == ARRAY and update_index(part) >= 0:
            if array == "":
                array = parts[depth - 1]
            index: i64 = update_index(part)
            while cursor.next():
                if index == 0:
                    hit = True
                    break
                index -= 1
        else:
            blocked = ApplyState(doc, False, "", state.root)
            blocked.path = parts
            blocked.existing = depth
            blocked.blocked_buf = doc
            blocked.blocked_type = type_code
            blocked.blocked_at = pos
            raise blocked.cannot_traverse()
        if not hit:
            found.type_code = 0
            return array
        type_code = cursor.type_code
        pos = cursor.value
        end = cursor.end
        node = _child(node, part)
    found.type_code = type_code
    found.pos = pos
    found.end = end
    return array


def _array_on_path(state: ApplyState) -> str:
    """The name of the first array along the path to the target, or "". An array at its end does not count."""
    node: UpdateNode | None = state.root
    pos: i64 = 0
    parts = state.path
    for depth in range(len(parts) - 1):
        part = parts[depth]
        cursor = ElementCursor(state.doc, pos)
        if not _seek_below(state, node, cursor, part):
            return ""
        if cursor.type_code == ARRAY:
            return part
        if cursor.type_code != DOCUMENT:
            return ""
        pos = cursor.value
        node = _child(node, part)
    return ""


def _seek_below(state: ApplyState, node: UpdateNode | None, cursor: ElementCursor, part: str) -> bool:
    """Moves a cursor at the beginning of a document to the field of a path's component, which is a child of `node`:
    paths of both kinds are in the tree, so what it knows of a document with many changes serves all of them."""
    give_way()
    starts = node.field_starts(state, state.doc, cursor.element) if isinstance(node, ObjectNode) else None
    return seek(cursor, encode_text(part), starts)


def _child(node: UpdateNode | None, part: str) -> UpdateNode | None:
    return node.get(part) if isinstance(node, ObjectNode) else None


class RenameTarget(ModifierNode):
    """The target of $rename. The source is read from the document before the update: no other modifier may change it,
    since the paths would conflict."""

    def __init__(self, source: str, target: str) -> None:
        super().__init__(creates=True)
        self.source: list[str] = source.split(".")
        self.source_path = source
        self.target: list[str] = target.split(".")
        self.target_path = target

    def _move(self, state: ApplyState) -> i64:
        found = SourceValue()
        array = _find(state, self.source, found)
        if found.type_code == 0:
            return KEEP
        if array != "":
            raise CommandError(
                ErrorCode.BadValue,
                f"The source field cannot be an array element, '{self.source_path}' in doc with {show_id(state.doc)} "
                f"has an array field called '{array}'",
            )
        array = _array_on_path(state)
        if array != "":
            raise CommandError(
                ErrorCode.BadValue,
                f"The destination field cannot be an array element, '{self.target_path}' in doc with "
                f"{show_id(state.doc)} has an array field called '{array}'",
            )
        return state.replace(found.type_code, state.doc[found.pos : found.end])

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return self._move(state)

    def new_value(self, state: ApplyState) -> i64:
        return self._move(state)


class RenameSource(ModifierNode):
    """The source of $rename, which is removed."""

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return REMOVE


@modifier("$rename", since=OLDEST)
def parse_rename(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """`source: "target"`. BadValue (2) for equal, overlapping or positional paths; 9867600 for a NUL in the target."""
    source = operand.path
    source_parts = source.split(".")
    if operand.type_code != STRING:
        raise CommandError(ErrorCode.BadValue, f"The 'to' field for $rename must be a string: {operand.show()}")
    target = str(operand.value())
    if "\0" in target:
        raise CommandError(9867600, "The 'to' field for $rename cannot contain an embedded null byte")
    target_parts = split_update_path(target)
    if source == target:
        raise CommandError(ErrorCode.BadValue, f"The source and target field for $rename must differ: {operand.show()}")
    shorter = min(len(source_parts), len(target_parts))
    if source_parts[:shorter] == target_parts[:shorter]:
        raise CommandError(
            ErrorCode.BadValue,
            f"The source and target field for $rename must not be on the same path: {operand.show()}",
        )
    _check_static("source", source, source_parts)
    _check_static("destination", target, target_parts)
    return RenameTarget(source, target)


def _check_static(role: str, path: str, parts: list[str]) -> None:
    for part in parts:
        if part == "$" or is_filter_part(part):
            raise CommandError(ErrorCode.BadValue, f"The {role} field for $rename may not be dynamic: {path}")
