"""The functions of `$setWindowFields`: what is computed of a frame, a place, or the documents before.

An accumulator over a frame that only grows is fed once per document; over any other frame it starts anew for each.
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.bson_field import read_fields
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.types import MISSING, Date, Decimal128, Missing, Value, integer
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState, StdDevState
from mongottl.query.expr.arithmetic import Sum, add_values, divide, multiply, subtract
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.numbers import to_decimal, to_double, whole, width
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.accumulators import ACCUMULATORS, SIMPLE, AccumulatorSpec, SimpleAccumulator
from mongottl.query.pipeline.windowframe import Frame, Partition, default_frame, parse_frame
from mongottl.query.registry import Registry
from mongottl.query.sort import SortPattern

_UNIT_MS: Final[dict[str, int]] = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
}


class WindowFunction:
    """One output field. steps: values that the last call of `value` took in, roughly."""

    def __init__(self) -> None:
        self.steps: int = 1

    def begin(self, partition: Partition) -> None:
        """A new partition, complete."""

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        """The field's value for a document; asked in order, once for each."""
        raise NotImplementedError


class WindowAccumulator(WindowFunction):
    """An accumulator over a frame."""

    def __init__(self, spec: AccumulatorSpec, frame: Frame) -> None:
        super().__init__()
        self.spec: Final = spec
        self.frame: Final = frame
        self._state: AccumulatorState = spec.start(None)
        self._first = 0
        self._behind = 0
        self._known = False
        self._result: Value = None

    def begin(self, partition: Partition) -> None:
        self.frame.begin()
        self._restart(0)

    def _restart(self, first: int) -> None:
        self._state = self.spec.start(None)
        self._first = first
        self._behind = first
        self._known = False

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        first, behind = self.frame.bounds(partition, place)
        if first != self._first or behind < self._behind:
            self._restart(first)
        self.steps = 1
        argument = self.spec.argument
        while self._behind < behind:
            ev.root = partition.document(self._behind)
            self._state.add(argument.evaluate(ev))
            self._behind += 1
            self.steps += 1
            self._known = False
        if not self._known:
            self._result = self._state.result()
            self._known = True
        return self._result


class SlidingStdDevState(StdDevState):
    """Of a frame that leaves documents behind: null while anything infinite or NaN is in it, as in mongod."""

    def __init__(self, sample: bool) -> None:
        super().__init__(sample)
        self.finite: bool = True

    def add(self, value: Value) -> None:
        if width(value) != 0 and not math.isfinite(to_double(value)):
            self.finite = False
        StdDevState.add(self, value)

    def result(self) -> Value:
        return StdDevState.result(self) if self.finite else None


def _sliding_pop(collation: Collation | None) -> AccumulatorState:
    return SlidingStdDevState(False)


def _sliding_samp(collation: Collation | None) -> AccumulatorState:
    return SlidingStdDevState(True)


class RankFunction(WindowFunction):
    """`$rank $denseRank $documentNumber`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name: Final = name
        self._rank = 0

    def begin(self, partition: Partition) -> None:
        self._rank = 0

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        if self.name == "$documentNumber":
            return integer(place + 1)
        if place == 0 or partition.sort_key(place) != partition.sort_key(place - 1):
            self._rank = place + 1 if self.name == "$rank" else self._rank + 1
        return integer(self._rank)


class ShiftFunction(WindowFunction):
    def __init__(self, output: Expression, by: int, default: Value) -> None:
        super().__init__()
        self.output: Final = output
        self.by: Final = by
        self.default: Final = default

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        at = place + self.by
        if at < 0 or at >= partition.count:
            return self.default
        ev.root = partition.document(at)
        return self.output.evaluate(ev)


class MovingAverage(WindowFunction):
    """`$expMovingAvg`. alpha: the weight of the newest value."""

    def __init__(self, argument: Expression, alpha: Value) -> None:
        super().__init__()
        self.argument: Final = argument
        self.alpha: Final = alpha
        self._average: Value = None

    def begin(self, partition: Partition) -> None:
        self._average = None

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(place)
        value = self.argument.evaluate(ev)
        if width(value) == 0:
            return None
        if self._average is None:
            self._average = value
        else:
            weight: Value = self.alpha
            if not isinstance(value, Decimal128) and not isinstance(self._average, Decimal128):
                weight = to_double(weight)
            newest = multiply([value, weight])
            rest = multiply([self._average, subtract([1, weight])])
            self._average = add_values([newest, rest])
        return self._average


class CarriedForward(WindowFunction):
    """`$locf`: the last value that was not null."""

    def __init__(self, argument: Expression) -> None:
        super().__init__()
        self.argument: Final = argument
        self._last: Value = None

    def begin(self, partition: Partition) -> None:
        self._last = None

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(place)
        value = self.argument.evaluate(ev)
        if not is_nullish(value):
            self._last = value
        return self._last


class LinearFill(WindowFunction):
    """`$linearFill`: null becomes what lies on the line between the values before and behind it."""

    def __init__(self, argument: Expression) -> None:
        super().__init__()
        self.argument: Final = argument
        self._left = -1
        self._left_value: Value = None
        self._right = -1
        self._right_value: Value = None

    def begin(self, partition: Partition) -> None:
        self._left = -1
        self._right = -1

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        x = partition.sort_value(place)
        if width(x) == 0 and not isinstance(x, Date):
            raise CommandError(605001, f"$linearFill needs numbers or dates to sort by, and found {type_of(x)}")
        if place > 0 and compare_values(x, partition.sort_value(place - 1)) == 0:
            raise CommandError(6050106, "There can be no repeated values in the sort field")
        self.steps = 1
        known = self._known(partition, place, ev)
        if known is not None:
            self._left = place
            self._left_value = known
            return known
        if self._left < 0:
            return None
        if self._right <= place:
            self._right = place + 1
            self._right_value = None
            while self._right < partition.count:
                self._right_value = self._known(partition, self._right, ev)
                self.steps += 1
                if self._right_value is not None:
                    break
                self._right += 1
        if self._right_value is None:
            return None
        left = partition.sort_value(self._left)
        right = partition.sort_value(self._right)
        if isinstance(left, Date) != isinstance(x, Date) or isinstance(right, Date) != isinstance(x, Date):
            raise CommandError(6050101, "$linearFill cannot mix dates and numbers in the sort field")
        rise = multiply([subtract([x, left]), subtract([self._right_value, self._left_value])])
        return add_values([self._left_value, divide([rise, subtract([right, left])])])

    def _known(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(place)
        value = self.argument.evaluate(ev)
        if is_nullish(value):
            return None
        if width(value) == 0:
            raise CommandError(ErrorCode.TypeMismatch, f"$linearFill fills numbers only, and found {type_of(value)}")
        return value


class Slope(WindowFunction):
    """`$derivative` and `$integral`. unit_ms: of the `unit` of time, 0 without one."""

    def __init__(self, name: str, argument: Expression, frame: Frame, unit_ms: int) -> None:
        super().__init__()
        self.name: Final = name
        self.argument: Final = argument
        self.frame: Final = frame
        self.unit_ms: Final = unit_ms

    def begin(self, partition: Partition) -> None:
        self.frame.begin()

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        first, behind = self.frame.bounds(partition, place)
        self.steps = 1
        if self.name == "$derivative":
            if behind - first < 2:
                return None
            return self._slope(partition, first, behind - 1, ev)
        if behind <= first:
            return None
        self.steps = behind - first
        return self._area(partition, first, behind, ev)

    def _y(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(place)
        return self.argument.evaluate(ev)

    def _check_x(self, x: Value) -> None:
        if self.unit_ms:
            if not isinstance(x, Date):
                code = 5624900 if self.name == "$derivative" else 5423901
                raise CommandError(code, f"{self.name} with 'unit' expects the sortBy field to be a Date")
        elif isinstance(x, Date):
            code = 5624901 if self.name == "$derivative" else 5423902
            raise CommandError(code, f"{self.name} where the sortBy is a Date requires an 'unit'")
        elif width(x) == 0:
            code = 5624902 if self.name == "$derivative" else 5423902
            raise CommandError(code, f"{self.name} (with no 'unit') expects the sortBy field to be numeric")

    def _slope(self, partition: Partition, first: int, last: int, ev: EvaluationContext) -> Value:
        left = partition.sort_value(first)
        right = partition.sort_value(last)
        self._check_x(left)
        self._check_x(right)
        low = self._y(partition, first, ev)
        high = self._y(partition, last, ev)
        if is_nullish(low) or is_nullish(high):
            return None
        for y in (low, high):
            if width(y) == 0:
                raise CommandError(5624903, f"$derivative expects its input to be numeric, and found {type_of(y)}")
        run = subtract([right, left])
        if to_double(run) == 0.0:
            return None
        if self.unit_ms:
            run = divide([run, self.unit_ms])
        return divide([subtract([high, low]), run])

    def _area(self, partition: Partition, first: int, behind: int, ev: EvaluationContext) -> Value:
        total = Sum()
        previous_x: Value = None
        previous_y: Value = None
        for place in range(first, behind):
            x = partition.sort_value(place)
            y = self._y(partition, place, ev)
            self._check_x(x)
            if is_nullish(y):
                continue
            if width(y) == 0:
                raise CommandError(5423900, f"$integral expects its input to be numeric, and found {type_of(y)}")
            if previous_y is not None:
                total.add(divide([multiply([subtract([x, previous_x]), add_values([y, previous_y])]), 2]))
            previous_x = x
            previous_y = y
        if previous_y is None:
            return None
        area = total.result()
        return divide([area, self.unit_ms]) if self.unit_ms else area


class MinMaxScaler(WindowFunction):
    """`$minMaxScaler`: where a value lies between the least and the greatest of its frame, from `low` to `high`."""

    def __init__(self, argument: Expression, low: Value, high: Value, frame: Frame) -> None:
        super().__init__()
        self.argument: Final = argument
        self.low: Final = low
        self.high: Final = high
        self.frame: Final = frame

    def begin(self, partition: Partition) -> None:
        self.frame.begin()

    def value(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        first, behind = self.frame.bounds(partition, place)
        self.steps = behind - first + 1
        current = self._number(partition, place, ev)
        least = current
        greatest = current
        for at in range(first, behind):
            number = self._number(partition, at, ev)
            if compare_values(number, least) < 0:
                least = number
            if compare_values(number, greatest) > 0:
                greatest = number
        width_of_frame = subtract([greatest, least])
        if to_decimal(width_of_frame) == 0:
            return self.low
        share = divide([subtract([current, least]), width_of_frame])
        return add_values([multiply([share, subtract([self.high, self.low])]), self.low])

    def _number(self, partition: Partition, place: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(place)
        value = self.argument.evaluate(ev)
        if width(value) == 0:
            raise CommandError(10487001, f"$minMaxScaler expects its input to be numeric, and found {type_of(value)}")
        return value


class FunctionArguments:
    """What a parser of a function may need. window: as written, MISSING without one."""

    def __init__(
        self, field: str, name: str, argument: Value, window: Value, pattern: SortPattern | None, ctx: ParseContext
    ) -> None:
        self.field: Final = field
        self.name: Final = name
        self.argument: Final = argument
        self.window: Final = window
        self.pattern: Final = pattern
        self.ctx: Final = ctx

    def frame(self) -> Frame:
        if isinstance(self.window, Missing):
            return default_frame()
        return parse_frame(self.window, self.pattern)

    def refuse_window(self) -> None:
        if not isinstance(self.window, Missing):
            raise CommandError(ErrorCode.FailedToParse, f"{self.name} does not accept a 'window' field")

    def need_sort(self, single: bool = False) -> None:
        if self.pattern is None or (single and len(self.pattern.paths) != 1):
            how = "a sortBy with exactly one element" if single else "a sortBy"
            raise CommandError(ErrorCode.FailedToParse, f"{self.name} requires {how}")

    def named(self, known: list[str], required: list[str]) -> dict[str, Value]:
        """The argument's fields. FailedToParse (9) for another shape."""
        if not isinstance(self.argument, bytes):
            raise CommandError(
                ErrorCode.FailedToParse, f"{self.name} takes an object, and found {type_of(self.argument)}"
            )
        written = read_fields(self.name, self.argument)
        for key in written:
            if key not in known:
                raise CommandError(ErrorCode.FailedToParse, f"{self.name} got unexpected argument: {key}")
        for key in required:
            if key not in written:
                raise CommandError(ErrorCode.FailedToParse, f"{self.name} requires '{key}'")
        return written


FunctionParser: TypeAlias = Callable[[FunctionArguments], WindowFunction]

WINDOW_FUNCTIONS: Final[Registry[FunctionParser]] = Registry("window function")
_RANKS: Final = ("$rank", "$denseRank", "$documentNumber")
_NOT_IN_WINDOWS: Final = frozenset({"$mergeObjects", "$accumulator"})


def window_function(name: str) -> Callable[[FunctionParser], FunctionParser]:
    """Registers `def parse(given: FunctionArguments) -> WindowFunction`."""

    def register(parser: FunctionParser) -> FunctionParser:
        WINDOW_FUNCTIONS.add(name, parser)
        return parser

    return register


def parse_window_function(field: str, value: Value, pattern: SortPattern | None, ctx: ParseContext) -> WindowFunction:
    """`{<function>: <argument>, window: …}`. FailedToParse (9) for a bad shape or an unknown function."""
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.FailedToParse, f"The field '{field}' must be an object, found {type_of(value)}")
    name = ""
    argument: Value = MISSING
    window: Value = MISSING
    members = fields(value)
    if len(members) > 1 and members[0][0] in _RANKS:
        raise CommandError(5371601, "Rank style window functions take no other arguments")
    for key, member in members:
        if key == "window":
            window = member
        elif key.startswith("$"):
            if name:
                raise CommandError(ErrorCode.FailedToParse, f"The field '{field}' has two functions: {name} and {key}")
            name = key
            argument = member
        else:
            raise CommandError(ErrorCode.FailedToParse, f"Window function found an unknown argument: {key}")
    if not name:
        raise CommandError(ErrorCode.FailedToParse, f"Expected a $-prefixed window function in '{field}'")
    parser = WINDOW_FUNCTIONS.get(name)
    given = FunctionArguments(field, name, argument, window, pattern, ctx)
    if parser is not None:
        return parser(given)
    if name in SIMPLE and name not in _NOT_IN_WINDOWS:
        spec: AccumulatorSpec = SimpleAccumulator(
            field, name, parse_expression(argument, ctx), SIMPLE[name], ctx.collation
        )
        frame = given.frame()
        if frame.slides and (name == "$stdDevPop" or name == "$stdDevSamp"):
            sliding = _sliding_pop if name == "$stdDevPop" else _sliding_samp
            spec = SimpleAccumulator(field, name, spec.argument, sliding, None)
        return WindowAccumulator(spec, frame)
    accumulator = ACCUMULATORS.get(name)
    if accumulator is None or name in _NOT_IN_WINDOWS:
        raise CommandError(ErrorCode.FailedToParse, f"Unrecognized window function, {name}")
    return WindowAccumulator(accumulator(field, name, argument, ctx), given.frame())


def _parse_rank(given: FunctionArguments) -> WindowFunction:
    if not isinstance(given.window, Missing):
        raise CommandError(5371601, "Rank style window functions take no other arguments")
    if not isinstance(given.argument, bytes) or len(given.argument) != 5:
        raise CommandError(5371603, f"{given.name} must be specified with '{{}}' as the value")
    if given.pattern is None or len(given.pattern.paths) != 1:
        raise CommandError(
            5371602,
            f"{given.name} must be specified with a top level sortBy expression with exactly one element",
        )
    return RankFunction(given.name)


for _name in _RANKS:
    window_function(_name)(_parse_rank)


@window_function("$shift")
def parse_shift(given: FunctionArguments) -> WindowFunction:
    """`{output, by, default}`; the default is a constant."""
    given.refuse_window()
    written = given.named(["output", "by", "default"], ["output", "by"])
    given.need_sort()
    by = whole(written["by"]) if width(written["by"]) else None
    if by is None:
        raise CommandError(ErrorCode.FailedToParse, "'$shift:by' field must be an integer")
    default: Value = None
    if "default" in written:
        node = parse_expression(written["default"], given.ctx)
        if not isinstance(node, Constant):
            raise CommandError(ErrorCode.FailedToParse, "'$shift:default' expression must yield a constant value.")
        default = node.value
    return ShiftFunction(parse_expression(written["output"], given.ctx), by, default)


@window_function("$expMovingAvg")
def parse_moving_average(given: FunctionArguments) -> WindowFunction:
    """`{input, N}` or `{input, alpha}`, alpha between 0 and 1."""
    given.refuse_window()
    written = given.named(["input", "N", "alpha"], ["input"])
    given.need_sort()
    if ("N" in written) == ("alpha" in written):
        raise CommandError(ErrorCode.FailedToParse, "$expMovingAvg needs either 'N' or 'alpha'")
    alpha: Value
    if "N" in written:
        count = whole(written["N"]) if width(written["N"]) else None
        if count is None or count <= 0:
            raise CommandError(ErrorCode.FailedToParse, "'N' field must be an integer greater than zero")
        alpha = divide([Decimal128("2"), count + 1])
    else:
        alpha = written["alpha"]
        if width(alpha) == 0:
            raise CommandError(ErrorCode.FailedToParse, "'alpha' must be a number")
        if not 0.0 < to_double(alpha) < 1.0:
            raise CommandError(ErrorCode.FailedToParse, "'alpha' must be between 0 and 1 (exclusive)")
    return MovingAverage(parse_expression(written["input"], given.ctx), alpha)


@window_function("$locf")
def parse_locf(given: FunctionArguments) -> WindowFunction:
    given.refuse_window()
    return CarriedForward(parse_expression(given.argument, given.ctx))


@window_function("$linearFill")
def parse_linear_fill(given: FunctionArguments) -> WindowFunction:
    """605001 without a `sortBy` of one field."""
    given.refuse_window()
    if given.pattern is None or len(given.pattern.paths) != 1:
        raise CommandError(
            605001, "$linearFill must be specified with a top level sortBy expression with exactly one element"
        )
    return LinearFill(parse_expression(given.argument, given.ctx))


def _parse_slope(given: FunctionArguments) -> WindowFunction:
    written = given.named(["input", "unit"], ["input"])
    given.need_sort(single=True)
    if isinstance(given.window, Missing) and given.name == "$derivative":
        raise CommandError(ErrorCode.FailedToParse, "$derivative requires explicit window bounds")
    unit_ms = 0
    if "unit" in written:
        unit = written["unit"]
        if not isinstance(unit, str):
            raise CommandError(ErrorCode.FailedToParse, "'unit' must be a string")
        if unit not in _UNIT_MS:
            known = unit in ("month", "quarter", "year")
            raise CommandError(
                5490710 if known else int(ErrorCode.FailedToParse), f"unit must be 'week' or smaller, and is '{unit}'"
            )
        unit_ms = _UNIT_MS[unit]
    return Slope(given.name, parse_expression(written["input"], given.ctx), given.frame(), unit_ms)


window_function("$derivative")(_parse_slope)
window_function("$integral")(_parse_slope)


@window_function("$minMaxScaler")
def parse_min_max_scaler(given: FunctionArguments) -> WindowFunction:
    """`{input, min, max}`, from 0 to 1 unless both are given."""
    written = given.named(["input", "min", "max"], ["input"])
    if ("min" in written) != ("max" in written):
        raise CommandError(ErrorCode.FailedToParse, "$minMaxScaler needs both 'min' and 'max', or neither")
    low = _constant_number(written.get("min", 0), given)
    high = _constant_number(written.get("max", 1), given)
    if compare_values(low, high) >= 0:
        raise CommandError(ErrorCode.FailedToParse, "$minMaxScaler needs a 'max' greater than 'min'")
    return MinMaxScaler(parse_expression(written["input"], given.ctx), low, high, given.frame())


def _constant_number(value: Value, given: FunctionArguments) -> Value:
    node = parse_expression(value, given.ctx)
    if not isinstance(node, Constant) or width(node.value) == 0:
        raise CommandError(ErrorCode.FailedToParse, "$minMaxScaler: 'min' and 'max' must be constant numbers")
    return node.value
