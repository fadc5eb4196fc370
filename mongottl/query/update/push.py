"""$push with its clauses: $each, $position, $sort, $slice, applied in this order."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import KeyStringBuilder, encode_raw
from mongottl.document.long_lists import part_of, with_more
from mongottl.document.numbers import whole
from mongottl.document.path import array_index, check_path_depth
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import ARRAY, DOCUMENT, NULL, Value, is_number, type_name
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import SEARCHED_BITS, ElementCursor, fields, find_field_at
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.update.arrays import Item, append_items, cut_items, join_items
from mongottl.query.update.describe import show_id
from mongottl.query.update.nodes import KEEP, ApplyState, ModifierNode
from mongottl.query.update.registry import Operand, modifier, modifiers
from mongottl.versions import OLDEST

_CLAUSES: Final = ("$each", "$slice", "$sort", "$position")


class SortClause:
    """The clause `$sort` of $push.

    paths: the fields to sort documents by, or none to sort whole elements. directions: 1 or -1 for each.
    """

    def __init__(self, paths: list[list[str]], directions: list[int], collation: Collation | None) -> None:
        self.collation = collation
        self.paths = paths
        self.directions = directions

    def sorted(self, items: list[Item]) -> list[Item]:
        """The elements in order, equal ones as they were; by their KeyStrings, since arrays may have a million."""
        keys: list[bytes] = list_for(len(items))
        for item in items:
            give_way()
            keys.append(self._key(item))
        return sorted_by_keys(items, keys)

    def _key(self, item: Item) -> bytes:
        if not self.paths:
            return encode_raw(item.value, item.type_code, 0, self.directions[0] < 0, self.collation)
        builder = KeyStringBuilder(self.collation)
        for i in range(len(self.paths)):
            give_way(1 + (i64(len(item.value)) >> SEARCHED_BITS))
            type_code, pos = _sort_field(item, self.paths[i])
            builder.append_raw(item.value, type_code, pos, self.directions[i] < 0)
        return builder.finish()


def _sort_field(item: Item, path: list[str]) -> tuple[i64, i64]:
    """(type code, offset) of the field by which an element is sorted; null if missing. Arrays are traversed by index
    only."""
    type_code: i64 = item.type_code
    pos: i64 = 0
    buf = item.value
    for part in path:
        if type_code != DOCUMENT and (type_code != ARRAY or array_index(part) < 0):
            return NULL, 0
        type_code, pos = find_field_at(buf, pos, encode_text(part))
        if type_code == 0:
            return NULL, 0
    return type_code, pos


class PushNode(ModifierNode):
    """$push.

    position: index at which to insert, from the end if negative; None: at the end. slice: number of elements to
    keep, the last ones if negative; None: all.
    """

    def __init__(self, values: list[Item], position: int | None, slice: int | None, sort: SortClause | None) -> None:
        super().__init__(creates=True)
        self.values = values
        self.position = position
        self.slice = slice
        self.sort = sort

    def _pushed(self, items: list[Item]) -> list[Item]:
        position = self.position
        if position is None or position >= len(items):
            items = with_more(part_of(items, 0, len(items)), self.values)
        else:
            at = position if position >= 0 else max(len(items) + position, 0)
            items = with_more(with_more(part_of(items, 0, at), self.values), part_of(items, at, len(items)))
        sort = self.sort
        if sort is not None:
            items = sort.sorted(items)
        kept = self.slice
        if kept is not None:
            if kept >= 0:
                items = part_of(items, 0, kept)
            elif -kept < len(items):
                items = part_of(items, len(items) + kept, len(items))
        return items

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code != ARRAY:
            raise CommandError(
                ErrorCode.BadValue,
                f"The field '{state.dotted()}' must be an array but is of type {type_name(int(type_code))} in document "
                f"{{{show_id(state.doc)}}}",
            )
        if self.position is None and self.slice is None and self.sort is None:
            return state.replace(ARRAY, append_items(buf, pos, end, self.values)) if self.values else KEEP
        before = cut_items(buf, pos)
        after = self._pushed(before)
        if not self.values and self.sort is None and len(after) == len(before):
            return KEEP
        return state.replace(ARRAY, join_items(after))

    def new_value(self, state: ApplyState) -> i64:
        return state.replace(ARRAY, join_items(self._pushed([])))


def _bad(message: str) -> CommandError:
    return CommandError(ErrorCode.BadValue, message)


@modifier("$push", since=OLDEST)
def parse_push(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """A value, or a document with `$each` and other clauses in any order. BadValue (2) for malformed clauses."""
    if operand.type_code != DOCUMENT or find_field_at(operand.buf, operand.pos, b"$each")[0] == 0:
        return PushNode([Item(operand.type_code, operand.raw())], None, None, None)
    values: list[Item] = []
    position: int | None = None
    kept: int | None = None
    sort: SortClause | None = None
    seen: list[str] = []
    cursor = ElementCursor(operand.buf, operand.pos)
    while cursor.next():
        name = cursor.name()
        if name not in _CLAUSES:
            raise _bad(f"Unrecognized clause in $push: {name}")
        if name in seen:
            raise _bad(f"Only one {name} is supported.")
        seen.append(name)
        kind = type_name(int(cursor.type_code))
        if name == "$each":
            if cursor.type_code != ARRAY:
                raise _bad(f"The argument to $each in $push must be an array but it was of type: {kind}")
            values = cut_items(cursor.buf, cursor.value)
        elif name == "$slice":
            kept = whole(cursor.decoded())
            if kept is None:
                raise _bad(f"The value for $slice must be an integer value but was given type: {kind}")
        elif name == "$position":
            position = whole(cursor.decoded())
            if position is None:
                raise _bad(f"The value for $position must be an integer value, not of type: {kind}")
        else:
            sort = parse_sort_clause(cursor.decoded(), ctx.collation)
    return PushNode(values, position, kept, sort)


def parse_push_all(operand: Operand, ctx: ParseContext) -> ModifierNode:
    """`$pushAll`, which MongoDB had until 3.4: the elements of an array, pushed. BadValue (2) for anything else."""
    if operand.type_code != ARRAY:
        kind = type_name(int(operand.type_code))
        raise _bad(f"$pushAll requires an array of values but was given type: {kind}")
    return PushNode(cut_items(operand.buf, operand.pos), None, None, None)


modifiers.add_removed("$pushAll", parse_push_all)


def _direction(value: Value) -> int:
    number = whole(value)
    if number != 1 and number != -1:
        raise _bad("The $sort element value must be either 1 or -1")
    return number


def parse_sort_clause(value: Value, collation: Collation | None) -> SortClause:
    """±1 to sort whole elements, {field: ±1, …} to sort documents by fields."""
    if is_number(value):
        return SortClause([], [_direction(value)], collation)
    if not isinstance(value, bytes):
        raise _bad("The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields")
    pairs = fields(value)
    paths: list[list[str]] = list_for(len(pairs))
    directions: list[int] = list_for(len(pairs))
    for name, direction in pairs:
        give_way()
        if name == "":
            raise _bad("The $sort field cannot be empty")
        check_path_depth(name)
        parts = name.split(".")
        if "" in parts:
            raise _bad(f"The $sort field is a dotted field but has an empty part: {name}")
        paths.append(parts)
        directions.append(_direction(direction))
    if not paths:
        raise _bad("The $sort pattern is empty when it should be a set of fields.")
    return SortClause(paths, directions, collation)
