"""Modifiers of single fields: $set, $setOnInsert, $unset, $min, $max, $currentDate."""

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from mongottl.document.build import encode_value
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_raw
from mongottl.document.types import (
    BOOL,
    DATE,
    DOCUMENT,
    NULL,
    Value,
    type_name,
)
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.timestamps import TimestampClock
from mongottl.query.update.nodes import KEEP, REMOVE, ApplyState, ModifierNode
from mongottl.query.update.registry import Operand, modifier
from mongottl.versions import OLDEST


class SetNode(ModifierNode):
    """Sets a value. A no-op if the existing value has the same bytes."""

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


@modifier("$set", since=OLDEST)
def parse_set(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return SetNode(operand.type_code, operand.raw())


class CurrentTimestampNode(ModifierNode):
    """`$currentDate` of type timestamp: sets a new timestamp, a different one for each field and document."""

    def __init__(self, ctx: ParseContext) -> None:
        super().__init__(creates=True, may_rewrite_id=True)
        self._timestamps: TimestampClock = ctx.timestamps
        self._now_ms: int = ctx.now_ms

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return self.new_value(state)

    def new_value(self, state: ApplyState) -> i64:
        type_code, value = encode_value(self._timestamps.next(self._now_ms))
        return state.replace(type_code, value)


@modifier("$setOnInsert", since=OLDEST)
def parse_set_on_insert(operand: Operand, ctx: ParseContext) -> ModifierNode:
    node = SetNode(operand.type_code, operand.raw())
    node.insert_only = True
    return node


class UnsetNode(ModifierNode):
    """Removes a field; an array's element becomes null, so that the others keep their indexes."""

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        return state.replace(NULL, b"") if in_array else REMOVE


@modifier("$unset", since=OLDEST)
def parse_unset(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return UnsetNode(creates=False, ignores_path=True)


class BoundNode(ModifierNode):
    """$min and $max: sets the value if it is less (sign -1) or greater (1) than the existing one."""

    def __init__(self, sign: i64, type_code: i64, value: bytes, collation: Collation | None) -> None:
        super().__init__(creates=True, may_rewrite_id=True)
        self.collation = collation
        self.sign: i64 = sign
        self.type_code: i64 = type_code
        self.value: bytes = value

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if compare_raw(self.value, self.type_code, 0, buf, type_code, pos, self.collation) != self.sign:
            return KEEP
        return state.replace(self.type_code, self.value)

    def new_value(self, state: ApplyState) -> i64:
        return state.replace(self.type_code, self.value)


@modifier("$min", since=OLDEST)
def parse_min(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return BoundNode(-1, operand.type_code, operand.raw(), ctx.collation)


@modifier("$max", since=OLDEST)
def parse_max(operand: Operand, ctx: ParseContext) -> ModifierNode:
    return BoundNode(1, operand.type_code, operand.raw(), ctx.collation)


@modifier("$currentDate", since=OLDEST)
def parse_current_date(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """`true` (or false), {$type: "date"} or {$type: "timestamp"}. BadValue (2) for other operands."""
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
        return CurrentTimestampNode(ctx)
    raise CommandError(
        ErrorCode.BadValue,
        "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}",
    )


def _current_date(ctx: ParseContext) -> ModifierNode:
    writer = BytesWriter()
    write_i64_le(writer, i64(ctx.now_ms))
    return SetNode(DATE, writer.getvalue())
