"""`$minMaxScaler`."""

from typing import Final

from mongottl.document.compare import compare_values
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.arithmetic import add_values, divide, multiply, subtract
from mongottl.query.expr.numbers import to_decimal, width
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.window.frame import Frame, Partition
from mongottl.query.pipeline.window.function import FunctionArguments, WindowFunction, window_function


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
