"""States of accumulators over a frame that slides: values that leave the frame are removed from them.

Else a state would be computed anew for each document, in as many steps as its frame has documents. What they return is
what that would return: sums are exact until they are rounded at the end, and of equal extremes the first is kept.
"""

import math
from collections import deque
from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.memory_size import size_of
from mongottl.document.numbers import to_double
from mongottl.document.types import Decimal128, Int64, Value
from mongottl.query.expr import Expression
from mongottl.query.expr.accumulators import AccumulatorState, AvgState, StdDevState, SumState
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.numbers import long_or_double, narrow, width

# Doubles are added as multiples of the smallest one, 2 to the power of minus this.
_SMALLEST_BITS: Final = 1074
_SQUARE_BITS: Final = 128
# From here on a sum may become infinite or not, depending on the order of its parts.
_HUGE: Final = 1e290
# The square of a double between these is one, too, and so is that of a difference of two, or their sum.
_LEAST_SQUARED: Final = 1e-140
_MOST_SQUARED: Final = 1e140
# Approximate memory of a value in a queue besides its own.
_ENTRY_BYTES: Final = 120


class SlidingState(AccumulatorState):
    """A state from which the values can be removed in the order in which they were added."""

    def remove(self, value: Value) -> None:
        """Removes the oldest value, which is this one."""
        raise NotImplementedError

    def is_known(self) -> bool:
        """Whether there is a result. If not, a new state must be made of the values that are left."""
        return True


class ExactState(SlidingState):
    """A state that keeps sums without rounding. unchanged: gives the result as long as nothing was removed.

    There is no result once a value was removed while one is left that is not added exactly.
    """

    def __init__(self, unchanged: AccumulatorState) -> None:
        self._unchanged: Final = unchanged
        self._has_removed = False
        # How many values there are that are not added exactly.
        self._inexact_count: i64 = 0

    def is_known(self) -> bool:
        return not self._has_removed or self._inexact_count == 0

    def add(self, value: Value) -> None:
        if not self._has_removed:
            self._unchanged.add(value)
        self._change(value, 1)

    def remove(self, value: Value) -> None:
        self._has_removed = True
        self._change(value, -1)

    def result(self) -> Value:
        return self._exact() if self._has_removed else self._unchanged.result()

    def _change(self, value: Value, sign: i64) -> None:
        """Adds a value to the sums (sign 1) or takes it from them (-1)."""
        raise NotImplementedError

    def _exact(self) -> Value:
        """The result by the sums."""
        raise NotImplementedError


class SlidingSum(ExactState):
    """`$sum`, and `$avg` of a frame that slides.

    Decimals are not added exactly, since they are rounded at each addition, nor are infinities and NaN, which leave no
    sum of the others.
    """

    def __init__(self, averages: bool) -> None:
        super().__init__(AvgState(exact=True) if averages else SumState())
        self._averages: Final = averages
        self._integers: int = 0
        self._doubles: int = 0
        # How many numbers there are, and how many of them are int64, and doubles that are added exactly.
        self._count: i64 = 0
        self._long_count: i64 = 0
        self._double_count: i64 = 0

    def _change(self, value: Value, sign: i64) -> None:
        if isinstance(value, float):
            if -_HUGE < value < _HUGE:
                scaled = _in_smallest(value)
                self._doubles += scaled if sign > 0 else -scaled
                self._double_count += sign
            else:
                self._inexact_count += sign
        elif isinstance(value, Decimal128):
            self._inexact_count += sign
        elif isinstance(value, int) and not isinstance(value, bool):
            self._integers += value if sign > 0 else -value
            if isinstance(value, Int64):
                self._long_count += sign
        else:
            return
        self._count += sign

    def _exact(self) -> Value:
        if self._averages:
            return None if self._count == 0 else self._double() / int(self._count)
        if self._double_count:
            return self._double()
        return narrow(self._integers) if self._long_count == 0 else long_or_double(self._integers)

    def _double(self) -> float:
        if self._double_count == 0:
            return float(self._integers)
        return ((self._integers << _SMALLEST_BITS) + self._doubles) / (1 << _SMALLEST_BITS)


class FrameStdDev(StdDevState):
    """`$stdDevPop` (sample False) and `$stdDevSamp` of a frame that slides, from which nothing was removed.

    As in mongod, null while it has infinities or NaN; that of the population of one value is an int, 0.
    """

    def __init__(self, sample: bool) -> None:
        super().__init__(sample)
        self.is_finite: bool = True

    def add(self, value: Value) -> None:
        if width(value) != 0 and not math.isfinite(to_double(value)):
            self.is_finite = False
        StdDevState.add(self, value)

    def result(self) -> Value:
        if not self.is_finite:
            return None
        return 0 if self.count == 1 and not self.sample else StdDevState.result(self)


class SlidingStdDev(ExactState):
    """The same, from which values can be removed: then from the sums of the numbers and of their squares, unrounded.

    mongod removes them from rounded sums, so that its last digits depend on what was in the frame before. Numbers whose
    squares no double can hold are not added exactly: the result has to be what it is where nothing is removed.
    """

    def __init__(self, sample: bool) -> None:
        super().__init__(FrameStdDev(sample))
        self._sample: Final = sample
        # Of the finite numbers, in multiples of the smallest double, and of its square.
        self._sum: int = 0
        self._squares: int = 0
        self._count: int = 0
        self._infinite_count: i64 = 0

    def _change(self, value: Value, sign: i64) -> None:
        if width(value) == 0:
            return
        number = to_double(value)
        if not math.isfinite(number):
            self._infinite_count += sign
            return
        if number != 0.0 and not _LEAST_SQUARED < abs(number) < _MOST_SQUARED:
            self._inexact_count += sign
            return
        scaled = _in_smallest(number)
        square = scaled * scaled
        self._sum += scaled if sign > 0 else -scaled
        self._squares += square if sign > 0 else -square
        self._count += int(sign)

    def _exact(self) -> Value:
        if self._infinite_count:
            return None
        count = self._count
        if count == 1 and not self._sample:
            return 0
        divisor = count * (count - 1 if self._sample else count)
        if divisor <= 0:
            return None
        return _root(count * self._squares - self._sum * self._sum, divisor)


def _in_smallest(number: float) -> int:
    """A finite number as a multiple of the smallest double."""
    numerator, denominator = number.as_integer_ratio()
    return int(numerator << (_SMALLEST_BITS + 1 - denominator.bit_length()))


def _root(dividend: int, divisor: int) -> float:
    """The square root of a quotient of squares of the smallest double, rounded once."""
    # To twice as many bits as a root needs, and an even number of them.
    shift = (dividend.bit_length() - divisor.bit_length() - _SQUARE_BITS) // 2 * 2
    shifted = dividend >> shift if shift >= 0 else dividend << -shift
    square, rest = divmod(shifted, divisor)
    root = math.isqrt(square)
    if rest or root * root < square or (shift > 0 and dividend & ((1 << shift) - 1)):
        root |= 1  # else it might seem to be halfway between two doubles
    try:
        return math.ldexp(root, shift // 2 - _SMALLEST_BITS)
    except OverflowError:
        return math.inf


class SlidingCount(SlidingState):
    """`$count`."""

    def __init__(self) -> None:
        self._count: i64 = 0

    def add(self, value: Value) -> None:
        self._count += 1

    def remove(self, value: Value) -> None:
        self._count -= 1

    def result(self) -> Value:
        return narrow(int(self._count))


class SlidingExtreme(SlidingState):
    """`$min` (sign -1) and `$max` (sign 1): a queue of the values that will be the extreme once those before them have
    left the frame."""

    def __init__(self, sign: int, collation: Collation | None) -> None:
        self._sign: Final[i64] = sign
        self._collation: Final = collation
        self._queue: Final[deque[tuple[int, Value]]] = deque()
        self._bytes: int = 0
        self._added = 0
        self._removed = 0

    def add(self, value: Value) -> None:
        number = self._added
        self._added += 1
        if is_nullish(value):
            return
        queue = self._queue
        while queue and compare_values(value, queue[-1][1], self._collation) == self._sign:
            self._bytes -= size_of(queue.pop()[1])
        queue.append((number, value))
        self._bytes += size_of(value)

    def remove(self, value: Value) -> None:
        queue = self._queue
        if queue and queue[0][0] == self._removed:
            self._bytes -= size_of(queue.popleft()[1])
        self._removed += 1

    def result(self) -> Value:
        return self._queue[0][1] if self._queue else None

    def size(self) -> int:
        return 64 + self._bytes + _ENTRY_BYTES * len(self._queue)

    def grows(self) -> bool:
        return True


def _sliding_sum(collation: Collation | None) -> AccumulatorState:
    return SlidingSum(False)


def _sliding_avg(collation: Collation | None) -> AccumulatorState:
    return SlidingSum(True)


def _sliding_count(collation: Collation | None) -> AccumulatorState:
    return SlidingCount()


def _sliding_min(collation: Collation | None) -> AccumulatorState:
    return SlidingExtreme(-1, collation)


def _sliding_max(collation: Collation | None) -> AccumulatorState:
    return SlidingExtreme(1, collation)


def _sliding_pop(collation: Collation | None) -> AccumulatorState:
    return SlidingStdDev(False)


def _sliding_samp(collation: Collation | None) -> AccumulatorState:
    return SlidingStdDev(True)


def _frame_pop(collation: Collation | None) -> AccumulatorState:
    return FrameStdDev(False)


def _frame_samp(collation: Collation | None) -> AccumulatorState:
    return FrameStdDev(True)


FRAME_STD_DEV: Final = {"$stdDevPop": _frame_pop, "$stdDevSamp": _frame_samp}
SLIDING: Final = {
    "$avg": _sliding_avg,
    "$count": _sliding_count,
    "$max": _sliding_max,
    "$min": _sliding_min,
    "$stdDevPop": _sliding_pop,
    "$stdDevSamp": _sliding_samp,
    "$sum": _sliding_sum,
}


def is_repeatable(expression: Expression) -> bool:
    """Whether it gives the same value when it is evaluated on a document again: when that leaves the frame."""
    described = encode({"": expression.describe()})
    return b"$rand\0" not in described and b"$function\0" not in described
