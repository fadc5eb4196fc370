"""`$map $filter $reduce`: evaluate an expression for each element of an array, bound to a variable."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.copied import COPIED, note_elements
from mongottl.document.freeing import LONG, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.memory_size import size_of
from mongottl.document.numbers import is_true, whole_int32
from mongottl.document.render import render_result
from mongottl.document.types import Missing, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.appending import Gathered, appending, gathering
from mongottl.query.expr.base import (
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    expression_parser,
    is_nullish,
)
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.parser import parse_operand, type_of
from mongottl.query.expr.path import check_user_name
from mongottl.versions import OLDEST

# How many bytes are copied before the value of `$reduce` is measured again.
_MEASURED_BYTES: Final[i64] = 32 << 20


class MapExpression(NamedExpression):
    """`$map`.

    index_slot: of the variable for the index, -1 if there is none.
    """

    def __init__(
        self, parameters: dict[str, Expression], input: Expression, slot: int, index_slot: int, body: Expression
    ) -> None:
        super().__init__("$map", parameters)
        self.input: Final = input
        self.slot: Final[i64] = slot
        self.index_slot: Final[i64] = index_slot
        self.body: Final = body

    def foldable(self) -> bool:
        return False

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        array = self.input.evaluate(ev)
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(16883, f"input to $map must be an array not {type_of(array)}")
        if COPIED.bytes != copied:
            ev.hold(array, COPIED.bytes - copied)
            copied = COPIED.bytes
        results: list[Value] = [] if len(array) < LONG else LongList()
        index = 0
        for item in array:
            give_way()
            ev.bind(self.slot, item)
            if self.index_slot >= 0:
                ev.bind(self.index_slot, index)
                index += 1
            value = self.body.evaluate(ev)
            results.append(None if isinstance(value, Missing) else value)
            if COPIED.bytes != copied or isinstance(value, (str, bytes, list)):
                ev.hold(value, COPIED.bytes - copied)
                copied = COPIED.bytes
        ev.release(held)
        note_elements(len(results))
        return results


_MAP: Final = Syntax(16878, 16879, [("input", 16880), ("in", 16882)], ["as", "arrayIndexAs"])


@expression_parser("$map", since=OLDEST)
def parse_map(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, as, arrayIndexAs, in}`; the variable is `this` by default."""
    raw = _MAP.read(name, argument)
    names = [_variable_name(raw.get("as", "this"))]
    if "arrayIndexAs" in raw:
        names.append(_variable_name(raw["arrayIndexAs"]))
    source = parse_operand(raw["input"], scope)
    inner = scope.bind(names)
    body = parse_operand(raw["in"], inner)
    index_slot = inner.slots[names[1]] if len(names) > 1 else -1
    return MapExpression({"input": source, "in": body}, source, inner.slots[names[0]], index_slot, body)


def _variable_name(value: Value) -> str:
    if not isinstance(value, str):
        raise CommandError(ErrorCode.FailedToParse, "empty variable names are not allowed")
    check_user_name(value)
    return value


class FilterExpression(NamedExpression):
    """`$filter`.

    limit: maximal number of elements; None for all.
    """

    def __init__(
        self,
        parameters: dict[str, Expression],
        input: Expression,
        slot: int,
        cond: Expression,
        limit: Expression | None,
    ) -> None:
        super().__init__("$filter", parameters)
        self.input: Final = input
        self.slot: Final[i64] = slot
        self.cond: Final = cond
        self.limit: Final = limit

    def foldable(self) -> bool:
        return False

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        array = self.input.evaluate(ev)
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(28651, f"input to $filter must be an array not {type_of(array)}")
        if COPIED.bytes != copied:
            ev.hold(array, COPIED.bytes - copied)
        left = len(array)
        limit = self.limit
        if limit is not None:
            limit_value = limit.evaluate(ev)
            if not is_nullish(limit_value):
                left = _limit(limit_value)
        kept: list[Value] = [] if len(array) < LONG else LongList()
        for item in array:
            give_way()
            ev.bind(self.slot, item)
            if is_true(self.cond.evaluate(ev)):
                kept.append(item)
                left -= 1
                if left == 0:
                    break
        ev.held = held
        note_elements(len(kept))
        return kept


def _limit(value: Value) -> int:
    number = whole_int32(value)
    if number is None:
        raise CommandError(
            327391,
            f"$filter: limit must be represented as a 32-bit integral value: {render_result(value)}",
        )
    if number < 1:
        raise CommandError(327392, f"$filter: limit must be greater than 0: {number}")
    return number


_FILTER: Final = Syntax(28646, 28647, [("input", 28648), ("cond", 28650)], ["as", "limit"])


@expression_parser("$filter", since=OLDEST)
def parse_filter(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, as, cond, limit}`; the variable is `this` by default."""
    raw = _FILTER.read(name, argument)
    variable = _variable_name(raw.get("as", "this"))
    source = parse_operand(raw["input"], scope)
    inner = scope.bind([variable])
    cond = parse_operand(raw["cond"], inner)
    parameters: dict[str, Expression] = {"input": source, "cond": cond}
    limit: Expression | None = None
    if "limit" in raw:
        limit = parse_operand(raw["limit"], scope)
        parameters["limit"] = limit
    return FilterExpression(parameters, source, inner.slots[variable], cond, limit)


class ReduceExpression(NamedExpression):
    """`$reduce`, whose `$$this` and `$$value` are in the slots `this` and `this + 1`.

    body: `in`, or what appends to `$$value` in its place. gathering: what adds to `$$value` in place of `in`, or None.
    """

    def __init__(
        self, parameters: dict[str, Expression], input: Expression, initial: Expression, this: int, body: Expression
    ) -> None:
        super().__init__("$reduce", parameters)
        self.input: Final = input
        self.initial: Final = initial
        self.this: Final[i64] = this
        self.value: Final[i64] = this + 1
        self.body: Final[Expression] = appending(body, this + 1) or body
        self.gathering: Final = gathering(body, this + 1)

    def foldable(self) -> bool:
        return False

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        array = self.input.evaluate(ev)
        if is_nullish(array):
            return None
        if not isinstance(array, list):
            raise CommandError(40080, f"$reduce requires that 'input' be an array, found: {render_result(array)}")
        if COPIED.bytes != copied:
            ev.hold(array, COPIED.bytes - copied)
        ev.bind(self.value, self.initial.evaluate(ev))
        gathering = self.gathering
        gathered: Gathered | None = None
        # What appends to the value adds to `held`, which may be too much as soon as another value replaces it.
        around = ev.held
        measured_at = COPIED.bytes + _MEASURED_BYTES
        for item in array:
            give_way()
            ev.bind(self.this, item)
            if gathering is not None:
                if gathered is None:
                    gathered = gathering.begin(ev.slots[self.value])
                if gathered is not None:
                    if gathering.add(gathered, ev):
                        if COPIED.bytes >= measured_at:
                            measured_at = _measured(ev, around, gathered.size())
                        continue
                    ev.bind(self.value, gathered.result())
                    gathered = None
            # Nothing else holds the value meanwhile, so that it can be appended to in place.
            ev.bind(self.value, self.body.evaluate(ev))
            if COPIED.bytes >= measured_at:
                measured_at = _measured(ev, around, size_of(ev.slots[self.value]))
        value = ev.slots[self.value] if gathered is None else gathered.result()
        ev.slots[self.value] = None
        ev.held = held
        return value


def _measured(ev: EvaluationContext, around: i64, size: i64) -> i64:
    """Counts the present value of `$reduce` beside what is held around it; how many bytes must have been copied before
    it is measured again."""
    ev.held = around
    ev.hold_bytes(size)
    return COPIED.bytes + max(size, _MEASURED_BYTES)


_REDUCE: Final = Syntax(40075, 40076, [("input", 40077), ("initialValue", 40078), ("in", 40079)])


@expression_parser("$reduce", since=OLDEST)
def parse_reduce(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, initialValue, in}`, with `$$value` and `$$this`."""
    raw = _REDUCE.read(name, argument)
    source = parse_operand(raw["input"], scope)
    initial = parse_operand(raw["initialValue"], scope)
    inner = scope.bind(["this", "value"])
    body = parse_operand(raw["in"], inner)
    parameters: dict[str, Expression] = {"input": source, "initialValue": initial, "in": body}
    return ReduceExpression(parameters, source, initial, inner.slots["this"], body)
