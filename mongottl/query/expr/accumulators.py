"""States of accumulators, for `$group`, and for `$sum`, `$avg` and others as operators on arrays.

Values are added to a state one by one; `result` may be called any number of times.
"""

import decimal
import math
from typing import Final

from mypy_extensions import i64

from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.freeing import LONG, LongList, freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.memory_size import size_of
from mongottl.document.numbers import to_double
from mongottl.document.render import render_result
from mongottl.document.types import MISSING, Int64, Missing, Value
from mongottl.document.walk import ElementCursor
from mongottl.errors import CommandError
from mongottl.query.expr.arithmetic import Sum
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.numbers import DECIMAL, DECIMAL_CONTEXT, from_decimal, width
from mongottl.query.expr.parser import type_of


class AccumulatorState:
    """The state of an accumulator."""

    def add(self, value: Value) -> None:
        """Adds a value; MISSING if the document has none."""
        raise NotImplementedError

    def result(self) -> Value:
        """The result so far; MISSING if there is none."""
        raise NotImplementedError

    def size(self) -> int:
        """Approximate memory in bytes, for the memory limit. Must be fast, since it may be called after each value."""
        return 64

    def grows(self) -> bool:
        """Whether its memory may grow with each value."""
        return False


class SumState(AccumulatorState):
    """`$sum`: values that are not numbers are ignored."""

    def __init__(self) -> None:
        self.total: Final = Sum()

    def add(self, value: Value) -> None:
        total = self.total
        if type(value) is int:
            total.integers += value
        else:
            total.add(value)

    def result(self) -> Value:
        return self.total.result()


class AvgState(AccumulatorState):
    """`$avg`: a double, or a decimal; null if there were no numbers.

    exact: whether int64 are added exactly, as in mongod's `$group`; elsewhere they are converted to doubles first.
    """

    def __init__(self, exact: bool = False) -> None:
        self.total: Final = Sum()
        self.count: int = 0
        self._exact: Final = exact

    def add(self, value: Value) -> None:
        total = self.total
        if type(value) is int:
            total.integers += value
            self.count += 1
        elif isinstance(value, Int64) and not self._exact:
            total.add_double(float(value))
            self.count += 1
        elif total.add(value):
            self.count += 1

    def result(self) -> Value:
        if self.count == 0:
            return None
        if self.total.widest == DECIMAL:
            return from_decimal(DECIMAL_CONTEXT.divide(self.total.exact_decimal(), decimal.Decimal(self.count)))
        return self.total.double() / self.count


class CountState(AccumulatorState):
    """`$count`: the number of documents, whatever their values."""

    def __init__(self) -> None:
        self.total: Final = Sum()

    def add(self, value: Value) -> None:
        self.total.integers += 1

    def result(self) -> Value:
        return self.total.result()


class FirstState(AccumulatorState):
    def __init__(self) -> None:
        self.value: Value = MISSING
        self.seen: bool = False

    def add(self, value: Value) -> None:
        if not self.seen:
            self.seen = True
            self.value = value

    def result(self) -> Value:
        return self.value

    def size(self) -> int:
        return 64 + size_of(self.value)


class LastState(AccumulatorState):
    def __init__(self) -> None:
        self.value: Value = MISSING

    def add(self, value: Value) -> None:
        self.value = value

    def result(self) -> Value:
        return self.value

    def size(self) -> int:
        return 64 + size_of(self.value)


class ExtremeState(AccumulatorState):
    """`$min` (sign -1) and `$max` (sign 1): null and missing values are skipped."""

    def __init__(self, sign: int, collation: Collation | None = None) -> None:
        self.value: Value = MISSING
        self.sign: Final[i64] = sign
        self.collation: Final = collation

    def add(self, value: Value) -> None:
        if is_nullish(value):
            return
        best = self.value
        if isinstance(best, Missing) or compare_values(value, best, self.collation) == self.sign:
            self.value = value

    def result(self) -> Value:
        return None if isinstance(self.value, Missing) else self.value

    def size(self) -> int:
        return 64 + size_of(self.value)


class GatheredState(AccumulatorState):
    """A list of values. bytes: their total size."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.bytes: int = 0

    def result(self) -> Value:
        return list(self.values) if len(self.values) < LONG else LongList(self.values)

    def size(self) -> int:
        return 64 + self.bytes

    def grows(self) -> bool:
        return True


class PushState(GatheredState):
    def add(self, value: Value) -> None:
        if not isinstance(value, Missing):
            self.values.append(value)
            self.bytes += size_of(value)


class AddToSetState(AccumulatorState):
    """`$addToSet`: of values that compare equal the first is kept."""

    def __init__(self, collation: Collation | None = None) -> None:
        self.collation: Final = collation
        self.values: Final[dict[bytes, Value]] = {}
        self.bytes: int = 0

    def add(self, value: Value) -> None:
        if isinstance(value, Missing):
            return
        key = encode_value(value, False, self.collation)
        if key not in self.values:
            self.values[key] = value
            self.bytes += size_of(value) + len(key)

    def result(self) -> Value:
        return freed_in_slices(list(self.values.values()))

    def size(self) -> int:
        return 64 + self.bytes

    def grows(self) -> bool:
        return True


class ConcatArraysState(GatheredState):
    """`$concatArrays`: concatenated arrays. TypeMismatch for other types."""

    def add(self, value: Value) -> None:
        if isinstance(value, Missing):
            return
        if not isinstance(value, list):
            raise CommandError(14, f"$concatArrays requires array inputs, but input is of type {type_of(value)}")
        self.values.extend(value)
        self.bytes += size_of(value)


class SetUnionState(AddToSetState):
    """`$setUnion`: the elements of all arrays, without duplicates. TypeMismatch for other types."""

    def add(self, value: Value) -> None:
        if isinstance(value, Missing):
            return
        if not isinstance(value, list):
            raise CommandError(14, f"$setUnion requires array inputs, but input is of type {type_of(value)}")
        for item in value:
            AddToSetState.add(self, item)


class MergeObjectsState(AccumulatorState):
    """`$mergeObjects`: later fields replace earlier ones, which keep their position.

    error_code: for other types than objects: 40400 as an expression, 5911200 in a group.
    """

    def __init__(self, error_code: int) -> None:
        self.error_code: Final = error_code
        self.elements: Final[dict[bytes, bytes]] = {}
        self.bytes: int = 0

    def add(self, value: Value) -> None:
        if is_nullish(value):
            return
        if not isinstance(value, bytes):
            raise CommandError(
                self.error_code,
                f"$mergeObjects requires object inputs, but input {render_result(value)} is of type {type_of(value)}",
            )
        self.bytes += len(value)
        cursor = ElementCursor(value, 0)
        while cursor.next():
            self.elements[cursor.name_bytes()] = cursor.raw_element()

    def result(self) -> Value:
        return joined_elements(self.elements)

    def size(self) -> int:
        return 64 + self.bytes

    def grows(self) -> bool:
        return True


def joined_elements(elements: dict[bytes, bytes]) -> bytes:
    """The document of encoded elements."""
    if not elements:
        return EMPTY_DOCUMENT
    builder = DocumentBuilder()
    for element in elements.values():
        give_way()
        builder.append_raw_element(element)
    return builder.finish()


class StdDevState(AccumulatorState):
    """`$stdDevPop` (sample False) and `$stdDevSamp`, by Welford's recurrence; a double, or null."""

    def __init__(self, sample: bool) -> None:
        self.sample: Final = sample
        self.count: int = 0
        self.mean: float = 0.0
        self.squares: float = 0.0

    def add(self, value: Value) -> None:
        if width(value) == 0:
            return
        number = to_double(value)
        self.count += 1
        delta = number - self.mean
        if delta != 0.0:
            self.mean += delta / self.count
            self.squares += delta * (number - self.mean)

    def result(self) -> Value:
        divisor = self.count - 1 if self.sample else self.count
        if divisor <= 0:
            return None
        return math.sqrt(self.squares / divisor) if self.squares == self.squares else math.nan
