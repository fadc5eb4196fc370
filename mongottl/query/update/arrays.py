"""Modifiers that remove elements of arrays or add single ones: $pop, $pull, $pullAll, $addToSet."""

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64, mypyc_attr

from mongottl.document.build import index_name
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_raw
from mongottl.document.freeing import LONG_BYTES, LongList, LongSet, list_for, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_raw
from mongottl.document.numbers import whole
from mongottl.document.render import render_value
from mongottl.document.splice import element, finish_document, frame, start_document
from mongottl.document.types import ARRAY, DOCUMENT, REGEX, is_number, type_name
from mongottl.document.walk import ElementCursor, first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.filter import parse_condition
from mongottl.query.match.registry import match_operators
from mongottl.query.match.tree import MatchExpression
from mongottl.query.update.nodes import KEEP, ApplyState, ModifierNode
from mongottl.query.update.registry import Operand, modifier
from mongottl.versions import OLDEST


@mypyc_attr(acyclic=True)
class Item:
    """An element of an array: its type and the bytes of its value."""

    def __init__(self, type_code: i64, value: bytes) -> None:
        self.type_code: i64 = type_code
        self.value: bytes = value


def cut_items(buf: bytes, pos: i64) -> list[Item]:
    """The elements of the array at `pos`."""
    items: list[Item] = LongList() if read_i32_le(buf, pos) >= LONG_BYTES else []
    cursor = ElementCursor(buf, pos)
    while cursor.next():
        items.append(Item(cursor.type_code, buf[cursor.value : cursor.end]))
    return items


def join_items(items: list[Item]) -> bytes:
    """The encoded array of these elements."""
    writer = start_document()
    index: i64 = 0
    for item in items:
        give_way()
        writer.write(element(item.type_code, index_name(index), item.value))
        index += 1
    return finish_document(writer)


def append_items(buf: bytes, pos: i64, end: i64, items: list[Item]) -> bytes:
    """The array buf[pos:end] with elements appended."""
    index: i64 = 0
    cursor = ElementCursor(buf, pos)
    while cursor.next():
        index += 1
    writer = start_document()
    writer.write(buf[pos + 4 : end - 1])
    for item in items:
        give_way()
        writer.write(element(item.type_code, index_name(index), item.value))
        index += 1
    return finish_document(writer)


# From this number of values on they are looked up by their KeyStrings, which are equal if the values are.
_MANY: Final = 8


class ValueSet:
    """A set of values with which elements are compared."""

    def __init__(self, items: list[Item], collation: Collation | None) -> None:
        self._items = items
        self._collation = collation
        self._keys: set[bytes] | None = None
        if len(items) >= _MANY:
            keys: set[bytes] = set_for(len(items))
            for item in items:
                give_way()
                keys.add(encode_raw(item.value, item.type_code, 0, False, collation))
            self._keys = keys

    def contains(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        """Whether the value at `pos` compares equal to one of them."""
        keys = self._keys
        if keys is not None:
            return encode_raw(buf, type_code, pos, False, self._collation) in keys
        found = False
        for item in self._items:
            if compare_raw(buf, type_code, pos, item.value, item.type_code, 0, self._collation) == 0:
                found = True
                break
        return found


class PopNode(ModifierNode):
    def __init__(self, from_front: bool) -> None:
        super().__init__(creates=False)
        self.from_front: bool = from_front

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code != ARRAY:
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"Path '{state.dotted()}' contains an element of non-array type '{type_name(int(type_code))}'",
            )
        items = cut_items(buf, pos)
        if not items:
            return KEEP
        del items[0 if self.from_front else -1]
        return state.replace(ARRAY, join_items(items))


@modifier("$pop", since=OLDEST)
def parse_pop(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """1: the last element, -1: the first. FailedToParse (9) for other operands."""
    value = operand.value()
    if not is_number(value):
        raise CommandError(ErrorCode.FailedToParse, f"Expected a number in: {operand.show()}")
    number = whole(value)
    if number is None:
        raise CommandError(ErrorCode.FailedToParse, f"Expected an integer: {operand.show()}")
    if number != 1 and number != -1:
        raise CommandError(ErrorCode.FailedToParse, f"$pop expects 1 or -1, found: {render_value(value)}")
    return PopNode(number == -1)


class RemovalNode(ModifierNode):
    """Removes the elements for which `is_pulled` is true."""

    def is_pulled(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        raise NotImplementedError

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code != ARRAY:
            raise CommandError(ErrorCode.BadValue, "Cannot apply $pull to a non-array value")
        writer = start_document()
        removed = False
        index: i64 = 0
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if self.is_pulled(buf, cursor.type_code, cursor.value):
                removed = True
                continue
            if removed:
                writer.write(element(cursor.type_code, index_name(index), buf[cursor.value : cursor.end]))
            else:
                writer.write(cursor.raw_element())
            index += 1
        return state.replace(ARRAY, finish_document(writer)) if removed else KEEP


class PullValueNode(RemovalNode):
    """$pull of one value, or $pullAll of several: removes elements that compare equal."""

    def __init__(self, values: list[Item], collation: Collation | None) -> None:
        super().__init__(creates=False)
        self.values = ValueSet(values, collation)

    def is_pulled(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return self.values.contains(buf, type_code, pos)


class PullConditionNode(RemovalNode):
    """$pull of a condition.

    documents_only: the condition is a filter on the fields of elements, so that only documents can match.
    Otherwise it was parsed for the field "", which denotes the element itself.
    """

    def __init__(self, condition: MatchExpression, documents_only: bool) -> None:
        super().__init__(creates=False)
        self.condition = condition
        self.documents_only: bool = documents_only

    def is_pulled(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if self.documents_only:
            return type_code == DOCUMENT and self.condition.matches_at(buf, pos)
        return self.condition.matches_value(buf, type_code, pos)


@modifier("$pull", since=OLDEST)
def parse_pull(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """A value, a regex, operators on the element ({$gt: 3}) or a filter on its fields. Errors: the filter's."""
    if operand.type_code == DOCUMENT:
        raw = operand.raw()
        if is_empty(raw) or match_operators.get(first_field_name(raw)) is None:
            return PullConditionNode(parse_condition(raw, ctx), True)
    elif operand.type_code != REGEX:
        return PullValueNode([Item(operand.type_code, operand.raw())], ctx.collation)
    return PullConditionNode(parse_condition(frame(element(operand.type_code, b"", operand.raw())), ctx), False)


@modifier("$pullAll", since=OLDEST)
def parse_pull_all(operand: Operand, ctx: ParseContext) -> ModifierNode:
    if operand.type_code != ARRAY:
        raise CommandError(
            ErrorCode.BadValue,
            f"$pullAll requires an array argument but was given a {type_name(int(operand.type_code))}",
        )
    return PullValueNode(cut_items(operand.buf, operand.pos), ctx.collation)


class AddToSetNode(ModifierNode):
    """$addToSet.

    values: no two compare equal.
    """

    def __init__(self, values: list[Item], collation: Collation | None) -> None:
        super().__init__(creates=True)
        self.values = values
        self.collation = collation

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code != ARRAY:
            raise CommandError(
                ErrorCode.BadValue,
                f"Cannot apply $addToSet to non-array field. Field named '{state.path[-1]}' has non-array type "
                f"{type_name(int(type_code))}",
            )
        added = self._missing_from(buf, pos)
        if not added:
            return KEEP
        return state.replace(ARRAY, append_items(buf, pos, end, added))

    def _missing_from(self, buf: bytes, pos: i64) -> list[Item]:
        """The values that the array at `pos` does not contain."""
        if len(self.values) >= _MANY:
            present: set[bytes] = LongSet()
            elements = ElementCursor(buf, pos)
            while elements.next():
                present.add(encode_raw(buf, elements.type_code, elements.value, False, self.collation))
            missing: list[Item] = list_for(len(self.values))
            for item in self.values:
                give_way()
                if encode_raw(item.value, item.type_code, 0, False, self.collation) not in present:
                    missing.append(item)
            return missing
        added: list[Item] = []
        for item in self.values:
            give_way()
            cursor = ElementCursor(buf, pos)
            found = False
            while not found and cursor.next():
                found = (
                    compare_raw(buf, cursor.type_code, cursor.value, item.value, item.type_code, 0, self.collation) == 0
                )
            if not found:
                added.append(item)
        return added

    def new_value(self, state: ApplyState) -> i64:
        return state.replace(ARRAY, join_items(self.values))


def _without_duplicates(items: list[Item], collation: Collation | None) -> list[Item]:
    seen: set[bytes] = set_for(len(items))
    unique: list[Item] = list_for(len(items))
    for item in items:
        give_way()
        key = encode_raw(item.value, item.type_code, 0, False, collation)
        if key not in seen:
            seen.add(key)
            unique.append(item)
    return unique


@modifier("$addToSet", since=OLDEST)
def parse_add_to_set(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """A value, or {$each: [values]} if that is the document's first field."""
    if operand.type_code != DOCUMENT or first_field_name(operand.raw()) != "$each":
        return AddToSetNode([Item(operand.type_code, operand.raw())], ctx.collation)
    cursor = ElementCursor(operand.buf, operand.pos)
    cursor.next()
    if cursor.type_code != ARRAY:
        raise CommandError(
            ErrorCode.TypeMismatch,
            "The argument to $each in $addToSet must be an array but it was of type "
            f"{type_name(int(cursor.type_code))}",
        )
    values = cut_items(operand.buf, cursor.value)
    if cursor.next():
        raise CommandError(
            ErrorCode.BadValue, f"Found unexpected fields after $each in $addToSet: {render_value(operand.value())}"
        )
    return AddToSetNode(_without_duplicates(values, ctx.collation), ctx.collation)
