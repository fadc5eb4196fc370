"""Window functions of a value's slope and area along the sort field: `$derivative $integral`."""

from typing import Final

from mongottl.document.numbers import to_double
from mongottl.document.types import Date, Missing, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.arithmetic import Sum, add_values, divide, multiply, subtract
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.window.frame import Frame, Partition
from mongottl.query.pipeline.window.function import FunctionArguments, WindowFunction, window_function

_UNIT_MS: Final[dict[str, int]] = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
}


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

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        first, end = self.frame.bounds(partition, position)
        self.steps = 1
        if self.name == "$derivative":
            if end - first < 2:
                return None
            return self._slope(partition, first, end - 1, ev)
        if end <= first:
            return None
        self.steps = end - first
        return self._area(partition, first, end, ev)

    def _y(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        ev.root = partition.document(position)
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

    def _area(self, partition: Partition, first: int, end: int, ev: EvaluationContext) -> Value:
        total = Sum()
        previous_x: Value = None
        previous_y: Value = None
        for position in range(first, end):
            x = partition.sort_value(position)
            y = self._y(partition, position, ev)
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


def _parse_slope(call: FunctionArguments) -> WindowFunction:
    parameters = call.named(["input", "unit"], ["input"])
    call.need_sort(single=True)
    if isinstance(call.window, Missing) and call.name == "$derivative":
        raise CommandError(ErrorCode.FailedToParse, "$derivative requires explicit window bounds")
    unit_ms = 0
    if "unit" in parameters:
        unit = parameters["unit"]
        if not isinstance(unit, str):
            raise CommandError(ErrorCode.FailedToParse, "'unit' must be a string")
        if unit not in _UNIT_MS:
            known = unit in ("month", "quarter", "year")
            raise CommandError(
                5490710 if known else int(ErrorCode.FailedToParse), f"unit must be 'week' or smaller, and is '{unit}'"
            )
        unit_ms = _UNIT_MS[unit]
    return Slope(call.name, parse_expression(parameters["input"], call.ctx), call.frame(), unit_ms)


window_function("$derivative", since=(5, 0))(_parse_slope)
window_function("$integral", since=(5, 0))(_parse_slope)
