"""Accumulators that keep several values or sort values: `$firstN $lastN $minN $maxN $top $topN $bottom
$bottomN`, and `$median $percentile`."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.copied import COPIED
from mongottl.document.freeing import LONG, freed_in_slices, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.memory_size import size_of
from mongottl.document.numbers import to_double, whole
from mongottl.document.render import render_result, render_value
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState, GatheredState
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.digest import Digest
from mongottl.query.expr.numbers import width
from mongottl.query.expr.percentile import parse_percentile_parameters, parse_shares
from mongottl.query.expr.ranking import smallest
from mongottl.query.pipeline.accumulators import AccumulatorSpec, accumulator, of_key
from mongottl.query.sort import SortPattern, parse_sort

# States that keep some of many values drop the others when they exceed this, or twice the size of the kept ones.
_TRIM_AT_BYTES: Final = 16 << 20


class FirstNState(GatheredState):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count: Final = count

    def add(self, value: Value) -> None:
        if len(self.values) < self.count:
            self.values.append(None if isinstance(value, Missing) else value)
            self.bytes += size_of(value)


class LastNState(GatheredState):
    """Keeps at most twice the count."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count: Final = count
        self._cut_at_bytes = _TRIM_AT_BYTES

    def add(self, value: Value) -> None:
        self.values.append(None if isinstance(value, Missing) else value)
        self.bytes += size_of(value)
        held = len(self.values)
        if held >= 2 * self.count + 16 or (self.bytes > self._cut_at_bytes and held > self.count):
            self.values = self.values[-self.count :]
            self.bytes = _size_of_all(self.values)
            self._cut_at_bytes = max(_TRIM_AT_BYTES, 2 * self.bytes)

    def result(self) -> Value:
        return self.values[-self.count :]


class ExtremeNState(GatheredState):
    """`$minN` and `$maxN`: null and missing values are skipped."""

    def __init__(self, count: int, greatest: bool, collation: Collation | None) -> None:
        super().__init__()
        self.count: Final = count
        self.collation: Final = collation
        self.greatest: Final = greatest
        self._cut_at_bytes = _TRIM_AT_BYTES

    def add(self, value: Value) -> None:
        if is_nullish(value):
            return
        self.values.append(value)
        self.bytes += size_of(value)
        held = len(self.values)
        if held >= 2 * self.count + 64 or (self.bytes > self._cut_at_bytes and held > self.count):
            self.values = smallest(self.values, self.count, self.greatest, self.collation)
            self.bytes = _size_of_all(self.values)
            self._cut_at_bytes = max(_TRIM_AT_BYTES, 2 * self.bytes)

    def result(self) -> Value:
        return smallest(self.values, self.count, self.greatest, self.collation)


class TopState(AccumulatorState):
    """`$top $topN $bottom $bottomN`: adds TopEntry values, created by TopArgument."""

    def __init__(self, count: int, bottom: bool, single: bool) -> None:
        self.count: Final = count
        self.bottom: Final = bottom
        self.single: Final = single
        self.entries: list[tuple[bytes, int, Value]] = []
        self.arrived = 0
        self.bytes = 0
        self._cut_at_bytes = _TRIM_AT_BYTES

    def add(self, value: Value) -> None:
        if not isinstance(value, TopEntry):
            raise TypeError("not a sort key and an output")
        self.entries.append((value.key, self.arrived, value.output))
        self.arrived += 1
        self.bytes += size_of(value.output) + len(value.key) + 64
        count = len(self.entries)
        if count >= 2 * self.count + 64 or (self.bytes > self._cut_at_bytes and count > self.count):
            self._trim()
            self._cut_at_bytes = max(_TRIM_AT_BYTES, 2 * self.bytes)

    def _trim(self) -> None:
        if len(self.entries) < LONG:
            self.entries.sort(key=_entry_order)
        else:
            self.entries = sorted_by_keys(self.entries, [entry[0] for entry in self.entries])  # in parts; it is stable
        self.entries = self.entries[-self.count :] if self.bottom else self.entries[: self.count]
        self.bytes = 0
        for entry in self.entries:
            give_way()
            self.bytes += size_of(entry[2]) + len(entry[0]) + 64

    def result(self) -> Value:
        self._trim()
        outputs: list[Value] = [entry[2] for entry in self.entries]
        return outputs[0] if self.single else freed_in_slices(outputs)

    def size(self) -> int:
        return 64 + self.bytes

    def grows(self) -> bool:
        return True


def _size_of_all(values: list[Value]) -> int:
    total = 0
    for value in values:
        total += size_of(value)
    return total


def _entry_order(entry: tuple[bytes, int, Value]) -> tuple[bytes, int]:
    return entry[0], entry[1]


class TopEntry:
    """A document's sort key and output value."""

    def __init__(self, key: bytes, output: Value) -> None:
        self.key: Final = key
        self.output: Final = output


class TopArgument(Expression):
    def __init__(self, pattern: SortPattern, sort_by: bytes, output: Expression) -> None:
        self.pattern: Final = pattern
        self.sort_by: Final = sort_by
        self.output: Final = output

    def evaluate(self, ev: EvaluationContext) -> Value:
        copied: i64 = COPIED.bytes
        value = self.output.evaluate(ev)
        if COPIED.bytes != copied:
            ev.hold(value, COPIED.bytes - copied)  # what `evaluate` returns hides it
        return TopEntry(self.pattern.sort_key(ev.root), None if isinstance(value, Missing) else value)

    def operands(self) -> list[Expression]:
        return [self.output]

    def collect_paths(self, paths: set[str]) -> bool:
        for path in self.pattern.paths:
            give_way()
            paths.add(path.dotted)
        return self.output.collect_paths(paths)

    def describe(self) -> Value:
        return encode({"output": self.output.describe(), "sortBy": self.sort_by})

    def foldable(self) -> bool:
        return False


class CountedAccumulator(AccumulatorSpec):
    """An accumulator with an `n`, which may depend on the group's key."""

    def __init__(self, field: str, name: str, argument: Expression, n: Expression, collation: Collation | None) -> None:
        super().__init__(field, name, argument)
        self.collation: Final = collation
        self.n: Final = n

    def start(self, key: Value) -> AccumulatorState:
        count = check_n(of_key(self.n, key))
        if self.name == "$firstN":
            return FirstNState(count)
        if self.name == "$lastN":
            return LastNState(count)
        if self.name == "$minN" or self.name == "$maxN":
            return ExtremeNState(count, self.name == "$maxN", self.collation)
        return TopState(count, self.name.startswith("$bottom"), not self.name.endswith("N"))

    def describe(self) -> Value:
        return encode({self.name: {"n": self.n.describe(), "input": self.argument.describe()}})


def check_n(value: Value) -> int:
    """A positive whole number. 7548606 for other values."""
    number = whole(value)
    if number is None:
        raise CommandError(7548606, f"Value for 'n' must be of integral type, but found {render_result(value)}")
    if number <= 0:
        raise CommandError(7548606, f"'n' must be greater than 0, found {number}")
    return number


def _named(name: str, argument: Value, known: list[str]) -> dict[str, Value]:
    if not isinstance(argument, bytes):
        raise CommandError(5787801, f"specification must be an object; found {name}: {render_value(argument)}")
    parameters: dict[str, Value] = {}
    for key, value in fields(argument):
        if key not in known:
            raise CommandError(5787901, f"Unknown argument for '{name}': {key}")
        parameters[key] = value
    return parameters


def _parse_n_of(field: str, name: str, argument: Value, ctx: ParseContext) -> AccumulatorSpec:
    """`{input, n}`. 5787906, 5787907 for a missing one."""
    parameters = _named(name, argument, ["n", "input"])
    if "n" not in parameters:
        raise CommandError(5787906, "Missing value for 'n'")
    if "input" not in parameters:
        raise CommandError(5787907, "Missing value for 'input'")
    n = parse_expression(parameters["n"], ctx)
    if isinstance(n, Constant):
        check_n(n.value)
    return CountedAccumulator(field, name, parse_expression(parameters["input"], ctx), n, ctx.collation)


for _name in ("$firstN", "$lastN", "$minN", "$maxN"):
    accumulator(_name, since=(5, 2))(_parse_n_of)


def _parse_top(field: str, name: str, argument: Value, ctx: ParseContext) -> AccumulatorSpec:
    """`{sortBy, output}` and, for the N-forms, `n`. 5788001 to 5788005 for a bad shape."""
    many = name.endswith("N")
    if not isinstance(argument, bytes):
        raise CommandError(5788001, f"specification must be an object; found {name}: {render_value(argument)}")
    parameters: dict[str, Value] = {}
    for key, value in fields(argument):
        if key not in ("sortBy", "output") and not (many and key == "n"):
            raise CommandError(5788002, f"Unknown argument to {name} '{key}'")
        parameters[key] = value
    if many and "n" not in parameters:
        raise CommandError(5788003, "Missing value for 'n'")
    if "output" not in parameters:
        raise CommandError(5788004, "Missing value for 'output'")
    if "sortBy" not in parameters:
        raise CommandError(5788005, "Missing value for 'sortBy'")
    sort_by = parameters["sortBy"]
    if not isinstance(sort_by, bytes):
        raise CommandError(10065, "invalid parameter: expected an object (sortBy)")
    pattern = parse_sort(sort_by, ctx.collation)
    ctx.metadata.requested.update(pattern.metadata)
    if pattern.is_empty():
        raise CommandError(ErrorCode.BadValue, "sortBy must not be empty")
    n = parse_expression(parameters["n"], ctx) if many else Constant(1)
    if isinstance(n, Constant):
        check_n(n.value)
    output = TopArgument(pattern, sort_by, parse_expression(parameters["output"], ctx))
    return CountedAccumulator(field, name, output, n, ctx.collation)


for _name in ("$top", "$topN", "$bottom", "$bottomN"):
    accumulator(_name, since=(5, 2))(_parse_top)


class PercentileState(AccumulatorState):
    """Discrete percentiles of all numbers, exact up to `digest.BUFFER` numbers; null for each if there are none."""

    def __init__(self, shares: list[float], single: bool) -> None:
        self.shares: Final = shares
        self.single: Final = single
        self.digest: Final = Digest()

    def add(self, value: Value) -> None:
        if width(value):
            number = to_double(value)
            if number == number:
                self.digest.add(number)

    def result(self) -> Value:
        found: list[Value] = list_for(len(self.shares))
        for share in self.shares:
            give_way()
            found.append(self.digest.percentile(share))
        return found[0] if self.single else found

    def size(self) -> int:
        return 64 + self.digest.size()

    def grows(self) -> bool:
        return True


class PercentileAccumulator(AccumulatorSpec):
    def __init__(self, field: str, name: str, argument: Expression, shares: list[float]) -> None:
        super().__init__(field, name, argument)
        self.shares: Final = shares

    def start(self, key: Value) -> AccumulatorState:
        return PercentileState(self.shares, self.name == "$median")


def _parse_percentile(field: str, name: str, argument: Value, ctx: ParseContext) -> AccumulatorSpec:
    parameters = parse_percentile_parameters(name, argument)
    shares = parse_shares(parse_expression(parameters["p"], ctx)) if name == "$percentile" else [0.5]
    return PercentileAccumulator(field, name, parse_expression(parameters["input"], ctx), shares)


for _name in ("$median", "$percentile"):
    accumulator(_name, since=(7, 0))(_parse_percentile)
