"""Modifiers of single fields: $set, $setOnInsert, $unset, $min, $max, $currentDate, $rename."""

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from mongottl.document.build import encode_value
from mongottl.document.compare import compare_raw
from mongottl.document.types import (
    ARRAY,
    BOOL,
    DATE,
    DOCUMENT,
    NULL,
    Timestamp,
    Value,
    type_name,
)
from mongottl.document.walk import ElementCursor, fields, find_field_at
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.update.describe import show_id
from mongottl.query.update.nodes import KEEP, REMOVE, ApplyState, ModifierNode, update_index
from mongottl.query.update.registry import Operand, modifier


class SetNode(ModifierNode):
    """Puts a value. A no-op if the very same bytes are there."""

    def __init__(self, type_code: i64, value: bytes) -> None:
        super().__init__(creates=True, may_rewrite_id=True)
        self.type_code: i64 = type_code
        self.value: bytes = value

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code == self.type_code and buf[pos:end] == self.value:
            return KEEP
        return state.replace(self.type_code, self.value)

    def new_value(self, state: ApplyState) -> i64:
        return state.replace(self.type_code, self.value)


@modifier("$set")
def parse_set(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return SetNode(operand.type_code, operand.raw())


@modifier("$setOnInsert")
def parse_set_on_insert(operand: Operand, ctx: ParseContext) -> ModifierNode:
    node = SetNode(operand.type_code, operand.raw())
    node.insert_only = True
    return node


class UnsetNode(ModifierNode):
    """Removes a field; an array's element becomes null, so that the others keep their indexes."""

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return state.replace(NULL, b"") if in_array else REMOVE


@modifier("$unset")
def parse_unset(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return UnsetNode(creates=False, ignores_path=True)


class BoundNode(ModifierNode):
    """$min and $max: puts the value if it comes before (sign -1) or after (1) the one that is there."""

    def __init__(self, sign: i64, type_code: i64, value: bytes) -> None:
        super().__init__(creates=True, may_rewrite_id=True)
        self.sign: i64 = sign
        self.type_code: i64 = type_code
        self.value: bytes = value

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if compare_raw(self.value, self.type_code, 0, buf, type_code, pos) != self.sign:
            return KEEP
        return state.replace(self.type_code, self.value)

    def new_value(self, state: ApplyState) -> i64:
        return state.replace(self.type_code, self.value)


@modifier("$min")
def parse_min(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return BoundNode(-1, operand.type_code, operand.raw())


@modifier("$max")
def parse_max(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return BoundNode(1, operand.type_code, operand.raw())


@modifier("$currentDate")
def parse_current_date(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """`true` (or false), {$type: "date"} or {$type: "timestamp"}. BadValue (2) for anything else."""
    if operand.type_code == BOOL:
        return _current_date(ctx)
    if operand.type_code != DOCUMENT:
        raise CommandError(
            ErrorCode.BadValue,
            f"{type_name(int(operand.type_code))} is not valid type for $currentDate. Please use a boolean ('true') "
            "or a $type expression ({$type: 'timestamp/date'}).",
        )
    wanted: Value = None
    for name, value in fields(operand.raw()):
        if name != "$type":
            raise CommandError(ErrorCode.BadValue, f"Unrecognized $currentDate option: {name}")
        wanted = value
    if wanted == "date":
        return _current_date(ctx)
    if wanted == "timestamp":
        type_code, value_bytes = encode_value(Timestamp(ctx.now_ms // 1000, 1))
        return SetNode(type_code, value_bytes)
    raise CommandError(
        ErrorCode.BadValue,
        "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}",
    )


def _current_date(ctx: ParseContext) -> ModifierNode:
    writer = BytesWriter()
    write_i64_le(writer, i64(ctx.now_ms))
    return SetNode(DATE, writer.getvalue())


class Found:
    """Where a rename's source lies in the original document, if it has one."""

    def __init__(self) -> None:
        self.type_code: i64 = 0
        self.pos: i64 = 0
        self.end: i64 = 0


def _find(doc: bytes, parts: list[str], found: Found) -> str:
    """Follows a path through documents and arrays. The name of the first array on the way, or "".

    found: the value, or type code 0 if the document has none. An array that is the value itself is not on the way.
    PathNotViable (28) where the path leads through a value that can have no fields.
    """
    array = ""
    type_code: i64 = DOCUMENT
    pos: i64 = 0
    end: i64 = len(doc)
    for depth in range(len(parts)):
        part = parts[depth]
        cursor = ElementCursor(doc, pos)
        hit = False
        if type_code == DOCUMENT:
            name = part.encode("utf-8")
            while cursor.next():
                if cursor.name_is(name):
                    hit = True
                    break
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
            state = ApplyState(doc, False, "")
            state.path = parts
            state.existing = depth
            state.blocked_buf = doc
            state.blocked_type = type_code
            state.blocked_at = pos
            raise state.cannot_traverse()
        if not hit:
            found.type_code = 0
            return array
        type_code = cursor.type_code
        pos = cursor.value
        end = cursor.end
    found.type_code = type_code
    found.pos = pos
    found.end = end
    return array


def _array_above(doc: bytes, parts: list[str]) -> str:
    """The name of the first array that a path leads through, or "". The value at its end does not count."""
    pos: i64 = 0
    for depth in range(len(parts) - 1):
        type_code, pos = find_field_at(doc, pos, parts[depth].encode("utf-8"))
        if type_code == ARRAY:
            return parts[depth]
        if type_code != DOCUMENT:
            return ""
    return ""


class RenameTarget(ModifierNode):
    """The place that $rename moves a value to. The source is read from the document as it was before the update:
    no other modifier may touch it, or the paths would conflict."""

    def __init__(self, source: str, target: str) -> None:
        super().__init__(creates=True)
        self.source: list[str] = source.split(".")
        self.source_path = source
        self.target_path = target

    def _moved(self, state: ApplyState) -> i64:
        found = Found()
        array = _find(state.doc, self.source, found)
        if found.type_code == 0:
            return KEEP
        if array != "":
            raise CommandError(
                ErrorCode.BadValue,
                f"The source field cannot be an array element, '{self.source_path}' in doc with {show_id(state.doc)} "
                f"has an array field called '{array}'",
            )
        array = _array_above(state.doc, state.path)
        if array != "":
            raise CommandError(
                ErrorCode.BadValue,
                f"The destination field cannot be an array element, '{self.target_path}' in doc with "
                f"{show_id(state.doc)} has an array field called '{array}'",
            )
        return state.replace(found.type_code, state.doc[found.pos : found.end])

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return self._moved(state)

    def new_value(self, state: ApplyState) -> i64:
        return self._moved(state)


class RenameSource(ModifierNode):
    """The place that $rename takes a value from."""

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return REMOVE
