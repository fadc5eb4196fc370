"""`$minMaxScaler`."""

from typing import Final

from mongottl.document.compare import compare_values
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.arithmetic import add_values, divide, multiply, subtract
from mongottl.query.expr.numbers import to_decimal, width
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.window.frame import Frame, Partition
from mongottl.query.pipeline.window.function import FunctionArguments, WindowFunction, window_function


class MinMaxScaler(WindowFunction):
    """`$minMaxScaler`: a value scaled linearly, so that the smallest of its frame becomes `low` and the greatest
    `high`."""

    def __init__(self, argument: Expression, low: Value, high: Value, frame: Frame) -> None:
        super().__init__()
        self.argument: Final = argument
        self.low: Final = low
        self.high: Final = high
        self.frame: Final = frame
        # What is known of a frame: where it begins and ends, and its smallest and its greatest value.
        self._first = 0
        self._end = 0
        self._smallest: Value = None
        self._greatest: Value = None

    def begin(self, partition: Partition) -> None:
        self.frame.begin()
        self._first = self._end = 0

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        first, end = self.frame.bounds(partition, position)
        current = self._number(partition, position, ev)
        if first != self._first or end < self._end:
            self._first = self._end = first
        self.steps = end - self._end + 1
        for at in range(self._end, end):
            give_way()
            number = self._number(partition, at, ev)
            if at == first or compare_values(number, self._smallest) < 0:
                self._smallest = number
            if at == first or compare_values(number, self._greatest) > 0:
                self._greatest = number
        self._end = end
        # The document itself may be outside of its frame.
        smallest = greatest = current
        if end > first:
            if compare_values(self._smallest, current) < 0:
                smallest = self._smallest
            if compare_values(self._greatest, current) > 0:
                greatest = self._greatest
        width_of_frame = subtract([greatest, smallest])
        if to_decimal(width_of_frame) == 0:
            return self.low
        share = divide([subtract([current, smallest]), width_of_frame])
        return add_values([multiply([share, subtract([self.high, self.low])]), self.low])

    def _number(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(position)
        value = self.argument.evaluate(ev)
        if width(value) == 0:
            raise CommandError(10487001, f"$minMaxScaler expects its input to be numeric, and found {type_of(value)}")
        return value


@window_function("$minMaxScaler", since=(8, 2))
def parse_min_max_scaler(call: FunctionArguments) -> WindowFunction:
    """`{input, min, max}`, from 0 to 1 unless both are given."""
    parameters = call.named(["input", "min", "max"], ["input"])
    if ("min" in parameters) != ("max" in parameters):
        raise CommandError(ErrorCode.FailedToParse, "$minMaxScaler needs both 'min' and 'max', or neither")
    low = _constant_number(parameters.get("min", 0), call)
    high = _constant_number(parameters.get("max", 1), call)
    if compare_values(low, high) >= 0:
        raise CommandError(ErrorCode.FailedToParse, "$minMaxScaler needs a 'max' greater than 'min'")
    return MinMaxScaler(parse_expression(parameters["input"], call.ctx), low, high, call.frame())


def _constant_number(value: Value, call: FunctionArguments) -> Value:
    node = parse_expression(value, call.ctx)
    if not isinstance(node, Constant) or width(node.value) == 0:
        raise CommandError(ErrorCode.FailedToParse, "$minMaxScaler: 'min' and 'max' must be constant numbers")
    return node.value
