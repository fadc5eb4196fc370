"""Window functions that smooth or fill values: `$expMovingAvg $locf $linearFill`."""

from typing import Final

from mongottl.document.compare import compare_values
from mongottl.document.numbers import to_double, whole
from mongottl.document.types import Date, Decimal128, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.arithmetic import add_values, divide, multiply, subtract
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.window.frame import Partition
from mongottl.query.pipeline.window.function import FunctionArguments, WindowFunction, window_function


class MovingAverage(WindowFunction):
    """`$expMovingAvg`: a double, or a decimal once there was one. alpha: the weight of the newest value."""

    def __init__(self, argument: Expression, alpha: Value) -> None:
        super().__init__()
        self.argument: Final = argument
        self.alpha: Final = alpha
        self._average: Value = None

    def begin(self, partition: Partition) -> None:
        self._average = None

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(position)
        value = self.argument.evaluate(ev)
        if width(value) == 0:
            return None
        if self._average is None:
            self._average = value if isinstance(value, Decimal128) else to_double(value)
        else:
            weight: Value = self.alpha
            if not isinstance(value, Decimal128) and not isinstance(self._average, Decimal128):
                weight = to_double(weight)
            newest = multiply([value, weight])
            rest = multiply([self._average, subtract([1, weight])])
            self._average = add_values([newest, rest])
        return self._average


class CarriedForward(WindowFunction):
    """`$locf`: the last value that is not null."""

    def __init__(self, argument: Expression) -> None:
        super().__init__()
        self.argument: Final = argument
        self._last: Value = None

    def begin(self, partition: Partition) -> None:
        self._last = None

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(position)
        value = self.argument.evaluate(ev)
        if not is_nullish(value):
            self._last = value
        return self._last


class LinearFill(WindowFunction):
    """`$linearFill`: null becomes the linear interpolation between the values before and after it."""

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

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        x = partition.sort_value(position)
        if width(x) == 0 and not isinstance(x, Date):
            raise CommandError(605001, f"$linearFill needs numbers or dates to sort by, and found {type_of(x)}")
        if position > 0 and compare_values(x, partition.sort_value(position - 1)) == 0:
            raise CommandError(6050106, "There can be no repeated values in the sort field")
        self.steps = 1
        known = self._known(partition, position, ev)
        if known is not None:
            self._left = position
            self._left_value = known
            return known
        if self._left < 0:
            return None
        if self._right <= position:
            self._right = position + 1
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

    def _known(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(position)
        value = self.argument.evaluate(ev)
        if is_nullish(value):
            return None
        if width(value) == 0:
            raise CommandError(ErrorCode.TypeMismatch, f"$linearFill fills numbers only, and found {type_of(value)}")
        return value


@window_function("$expMovingAvg", since=(5, 0))
def parse_moving_average(call: FunctionArguments) -> WindowFunction:
    """`{input, N}` or `{input, alpha}`, alpha between 0 and 1."""
    call.refuse_window()
    parameters = call.named(["input", "N", "alpha"], ["input"])
    call.need_sort()
    if ("N" in parameters) == ("alpha" in parameters):
        raise CommandError(ErrorCode.FailedToParse, "$expMovingAvg needs either 'N' or 'alpha'")
    alpha: Value
    if "N" in parameters:
        count = whole(parameters["N"]) if width(parameters["N"]) else None
        if count is None or count <= 0:
            raise CommandError(ErrorCode.FailedToParse, "'N' field must be an integer greater than zero")
        alpha = divide([Decimal128("2"), count + 1])
    else:
        alpha = parameters["alpha"]
        if width(alpha) == 0:
            raise CommandError(ErrorCode.FailedToParse, "'alpha' must be a number")
        if not 0.0 < to_double(alpha) < 1.0:
            raise CommandError(ErrorCode.FailedToParse, "'alpha' must be between 0 and 1 (exclusive)")
    return MovingAverage(parse_expression(parameters["input"], call.ctx), alpha)


@window_function("$locf", since=(5, 2))
def parse_locf(call: FunctionArguments) -> WindowFunction:
    call.refuse_window()
    return CarriedForward(parse_expression(call.argument, call.ctx))


@window_function("$linearFill", since=(5, 3))
def parse_linear_fill(call: FunctionArguments) -> WindowFunction:
    """605001 without a `sortBy` of one field."""
    call.refuse_window()
    if call.pattern is None or len(call.pattern.paths) != 1:
        raise CommandError(
            605001, "$linearFill must be specified with a top level sortBy expression with exactly one element"
        )
    return LinearFill(parse_expression(call.argument, call.ctx))
