"""`$reduce` whose `in` adds something to `$$value`: in time linear in what is added, where plain evaluation copies
`$$value` for each element.

    {$concatArrays: ["$$value", …]}, {$concat: ["$$value", …]}      `$$value` is appended to in place while nothing else
                                                                    refers to it; also in branches of `$cond`, `$switch`
                                                                    and the body of `$let`
    {$mergeObjects: ["$$value", …]}, {$setUnion: ["$$value", …]}    the whole `in`, with no other `$$value`: fields or
                                                                    elements are gathered, and the value made at the end

Results and errors are those of plain evaluation, which goes on wherever an operand is of another type.
"""

import sys
from typing import Final

from mypy_extensions import i64

from mongottl.document.build import MAX_BUILT_BYTES
from mongottl.document.collation import Collation
from mongottl.document.copied import COPIED
from mongottl.document.freeing import LONG, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.utf8 import rejoined
from mongottl.document.value_set import ValueSet
from mongottl.document.walk import ElementCursor
from mongottl.errors import CommandError, is_interruption
from mongottl.query.expr.accumulators import joined_elements
from mongottl.query.expr.array import COPIED_BITS, MAX_ARRAY_BYTES, concat_arrays
from mongottl.query.expr.base import (
    OPERANDS_MASK,
    CollatedExpression,
    EvaluationContext,
    Expression,
    FunctionExpression,
    evaluate_all,
    is_nullish,
)
from mongottl.query.expr.conditional import CondExpression, SwitchExpression
from mongottl.query.expr.parser import check_string
from mongottl.query.expr.path import VariableExpression
from mongottl.query.expr.text import concat
from mongottl.query.expr.variable import LetExpression


class AppendExpression(Expression):
    """Appends to the variable in `slot`, whose value the result replaces: `{$concat…: ["$$value", …]}`.

    added: the operands after the variable.
    """

    def __init__(self, plain: FunctionExpression, slot: int) -> None:
        self._plain: Final = plain
        self._slot: Final[i64] = slot
        self._added: Final = plain.arguments[1:]

    def evaluate(self, ev: EvaluationContext) -> Value:
        added: list[Value] = []
        try:
            evaluate_all(self._added, ev, added)  # stays counted as held, since it does not come to an end here
        except CommandError as error:
            if not is_interruption(error) and self._plain.function([ev.slots[self._slot], *added]) is None:
                return None
            raise
        if self._plain.name == "$concat":
            return self._text(ev.slots, added)
        return self._array(ev, added)

    def _array(self, ev: EvaluationContext, added: list[Value]) -> Value:
        slots = ev.slots
        array = slots[self._slot]
        if not isinstance(array, list):
            return concat_arrays([array, *added])
        length = len(array)
        for value in added:
            if not isinstance(value, list):
                return concat_arrays([array, *added])
            length += len(value)
        if length * 8 > MAX_ARRAY_BYTES:
            return concat_arrays([array, *added])
        array = None
        if _references(slots, self._slot) > _UNSHARED:
            return concat_arrays([slots[self._slot], *added])
        array = slots[self._slot]
        assert isinstance(array, list)
        if len(array) < LONG <= length:
            array = LongList(array)
        before = len(array)
        for value in added:
            assert isinstance(value, list)
            give_way(1 + (len(value) >> COPIED_BITS))
            array.extend(value)
        if before | OPERANDS_MASK != length | OPERANDS_MASK:
            held = ev.held
            for i in range(before & ~OPERANDS_MASK, length):
                ev.hold(array[i], 0)
            COPIED.bytes += ev.held - held
        return array

    def _text(self, slots: list[Value], added: list[Value]) -> Value:
        parts: list[str] = []
        for value in added:
            if not isinstance(value, str):
                return concat([slots[self._slot], *added])
            parts.append(value)
        before = slots[self._slot]
        if not isinstance(before, str):
            return concat([before, *added])
        more = rejoined("".join(parts))
        seam = before[-1:] + more[:1]
        if not seam.isascii() and rejoined(seam) != seam:
            return concat([before, *added])  # bytes that are a character together
        # CPython appends to a text in place to which nothing else refers, so neither slot nor variable may.
        text = before
        before = None
        slots[self._slot] = None
        text += more
        return check_string(text)


def _references(slots: list[Value], slot: i64) -> int:
    return sys.getrefcount(slots[slot])


# What that counts for a value to which nothing refers but its slot: compiled code holds another number itself.
_UNSHARED: Final = _references([[]], 0)


def appending(body: Expression, slot: int) -> Expression | None:
    """The body of a `$reduce` whose `$$value` is in the slot, with operators that append to it in place; None if there
    are none."""
    if isinstance(body, FunctionExpression):
        appends = body.name in ("$concat", "$concatArrays") and _begins_with(body.arguments, slot)
        return AppendExpression(body, slot) if appends else None
    if isinstance(body, CondExpression):
        then = appending(body.then, slot)
        otherwise = appending(body.otherwise, slot)
        if then is None and otherwise is None:
            return None
        return CondExpression(body.condition, then or body.then, otherwise or body.otherwise)
    if isinstance(body, SwitchExpression):
        thens = [appending(then, slot) for then in body.thens]
        default = None if body.default is None else appending(body.default, slot)
        if default is None and not any(thens):
            return None
        branches = [new or old for new, old in zip(thens, body.thens, strict=True)]
        return SwitchExpression(body.cases, branches, default or body.default)
    if isinstance(body, LetExpression):
        inner = appending(body.body, slot)
        return None if inner is None else LetExpression(body.names, body.slots, body.values, inner)
    return None


def _begins_with(arguments: list[Expression], slot: int) -> bool:
    return len(arguments) > 1 and _is_variable(arguments[0], slot)


def _is_variable(node: Expression, slot: int) -> bool:
    return isinstance(node, VariableExpression) and node.slot == slot and not node.parts


def _reads(node: Expression, slot: int) -> bool:
    if isinstance(node, VariableExpression) and node.slot == slot:
        return True
    return any(_reads(operand, slot) for operand in node.operands())


class Gathered:
    """What the elements so far have added to `$$value`."""

    def add(self, values: list[Value]) -> bool:
        """Adds the values of the operands after `$$value`; False, and adds nothing, if one has another type."""
        raise NotImplementedError

    def result(self) -> Value:
        """The present `$$value`."""
        raise NotImplementedError

    def size(self) -> int:
        """The approximate memory of what has been gathered, in bytes."""
        raise NotImplementedError


class MergedFields(Gathered):
    """size: bytes of the elements."""

    def __init__(self) -> None:
        self._elements: Final[dict[bytes, bytes]] = {}
        self._size: i64 = 0

    def add(self, values: list[Value]) -> bool:
        for value in values:
            if not is_nullish(value) and not isinstance(value, bytes):
                return False
        for value in values:
            if isinstance(value, bytes):
                self._merge(value)
        if self._size > MAX_BUILT_BYTES:
            self.result()  # raises its error
        return True

    def _merge(self, document: bytes) -> None:
        cursor = ElementCursor(document, 0)
        while cursor.next():
            name = cursor.name_bytes()
            element = cursor.raw_element()
            before = self._elements.get(name)
            if before is not None:
                self._size -= len(before)
            self._size += len(element)
            self._elements[name] = element

    def result(self) -> Value:
        return joined_elements(self._elements)

    def size(self) -> int:
        return int(self._size)


class UnitedSets(Gathered):
    def __init__(self, collation: Collation | None) -> None:
        self._values: Final = ValueSet(collation)

    def add(self, values: list[Value]) -> bool:
        for value in values:
            if not isinstance(value, list):
                return False
        for value in values:
            if isinstance(value, list):
                self._values.add_all(value)
        return True

    def result(self) -> Value:
        return self._values.in_order()

    def size(self) -> int:
        return self._values.size()


class Gathering:
    """The body of a `$reduce` that gathers: `{<name>: ["$$value", …]}`, with no other `$$value`."""

    def __init__(self, body: FunctionExpression) -> None:
        self._body: Final = body
        self._added: Final = body.arguments[1:]

    def begin(self, value: Value) -> Gathered | None:
        """Takes over `$$value`; None if it has another type."""
        body = self._body
        gathered: Gathered = UnitedSets(body.collation) if isinstance(body, CollatedExpression) else MergedFields()
        return gathered if gathered.add([value]) else None

    def add(self, gathered: Gathered, ev: EvaluationContext) -> bool:
        """Adds for the present element; False if plain evaluation must, which raises an error or gives null."""
        values: list[Value] = []
        try:
            evaluate_all(self._added, ev, values)
        except CommandError as error:
            if is_interruption(error):
                raise
            return False
        return gathered.add(values)


def gathering(body: Expression, slot: int) -> Gathering | None:
    """The body of a `$reduce` whose `$$value` is in the slot, if it gathers."""
    if not isinstance(body, FunctionExpression) or body.name not in ("$mergeObjects", "$setUnion"):
        return None
    if not _begins_with(body.arguments, slot) or any(_reads(argument, slot) for argument in body.arguments[1:]):
        return None
    return Gathering(body)
