"""Window functions of `$setWindowFields`: the base class, accumulators over a frame, and the registry.

An accumulator over a frame that only grows adds each document once. Over a frame that slides it removes those that have
left it, if it can (`sliding`); else it is computed anew for each document. The functions that are not accumulators are
in the other modules of this package.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mypy_extensions import i64

from mongottl.document.bson_field import read_fields
from mongottl.document.copied import COPIED
from mongottl.document.interrupt import give_way
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.accumulators import (
    ACCUMULATORS,
    SIMPLE,
    AccumulatorSpec,
    SimpleAccumulator,
    exact_avg_state,
)
from mongottl.query.pipeline.window.frame import Frame, Partition, default_frame, parse_frame
from mongottl.query.pipeline.window.sliding import FRAME_STD_DEV, SLIDING, SlidingState, is_repeatable
from mongottl.query.registry import Registry
from mongottl.query.sort import SortPattern
from mongottl.versions import Version


class WindowFunction:
    """One output field. steps: approximate number of values that the last call of `value` processed."""

    def __init__(self) -> None:
        self.steps: int = 1

    def begin(self, partition: Partition) -> None:
        """Starts a new partition, which is complete."""

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        """The field's value for a document; called once for each, in order."""
        raise NotImplementedError


class WindowAccumulator(WindowFunction):
    """An accumulator over a frame."""

    def __init__(self, spec: AccumulatorSpec, frame: Frame) -> None:
        super().__init__()
        self.spec: Final = spec
        self.frame: Final = frame
        self._state: AccumulatorState = spec.start(None)
        self._first = 0
        self._end = 0
        self._known = False
        self._gathered = 0  # what the partition counts for the state
        self._result: Value = None

    def begin(self, partition: Partition) -> None:
        self.frame.begin()
        self._gathered = 0
        self._restart(0)

    def _restart(self, first: int) -> None:
        self._state = self.spec.start(None)
        self._first = first
        self._end = first
        self._known = False

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        first, end = self.frame.bounds(partition, position)
        if first != self._first or end < self._end:
            self._restart(first)
        self.steps = 1
        self._add(partition, end, ev)
        if not self._known:
            self._result = self._state.result()
            self._known = True
        return self._result

    def _add(self, partition: Partition, end: int, ev: EvaluationContext) -> None:
        """Adds the documents up to the end of the frame."""
        argument = self.spec.argument
        copied: i64 = COPIED.bytes
        held = ev.held
        while self._end < end:
            give_way()
            ev.root = partition.document(self._end)
            self._state.add(argument.evaluate(ev))
            ev.held = held  # what the state keeps of it is measured there
            if COPIED.bytes != copied or self._state.grows():
                copied = COPIED.bytes
                size = self._state.size()
                partition.check_gathered(size, self._gathered)
                self._gathered = size
            self._end += 1
            self.steps += 1
            self._known = False


class SlidingAccumulator(WindowAccumulator):
    """An accumulator over a frame that slides. spec: its states are `SlidingState`s."""

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        first, end = self.frame.bounds(partition, position)
        removed = self._slide(partition, first, end, ev)
        value = WindowAccumulator.value(self, partition, position, ev)
        self.steps += removed
        return value

    def _slide(self, partition: Partition, first: int, end: int, ev: EvaluationContext) -> int:
        """Removes what has left the frame, unless less would be left; how much that was."""
        state = self._state
        assert isinstance(state, SlidingState)
        removed = first - self._first
        if removed <= 0 or removed > self._end - first or end < self._end:
            return 0
        argument = self.spec.argument
        for leaving in range(self._first, first):
            give_way()
            ev.root = partition.document(leaving)
            state.remove(argument.evaluate(ev))
        self._first = first
        self._known = False
        return removed

    def _add(self, partition: Partition, end: int, ev: EvaluationContext) -> None:
        WindowAccumulator._add(self, partition, end, ev)
        state = self._state
        assert isinstance(state, SlidingState)
        if not state.is_known():
            self._restart(self._first)
            WindowAccumulator._add(self, partition, end, ev)


class EdgeOfFrame(WindowFunction):
    """`$first` and `$last` over a frame that slides."""

    def __init__(self, argument: Expression, frame: Frame, is_last: bool) -> None:
        super().__init__()
        self.argument: Final = argument
        self.frame: Final = frame
        self._is_last: Final = is_last

    def begin(self, partition: Partition) -> None:
        self.frame.begin()

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        first, end = self.frame.bounds(partition, position)
        if first >= end:
            return MISSING
        ev.root = partition.document(end - 1 if self._is_last else first)
        return self.argument.evaluate(ev)


class FunctionArguments:
    """The input of a function's parser. window: the original document, MISSING if there is none."""

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
        """The fields of the argument, which must be an object. FailedToParse (9) for another shape."""
        if not isinstance(self.argument, bytes):
            raise CommandError(
                ErrorCode.FailedToParse, f"{self.name} takes an object, and found {type_of(self.argument)}"
            )
        parameters = read_fields(self.name, self.argument)
        for key in parameters:
            if key not in known:
                raise CommandError(ErrorCode.FailedToParse, f"{self.name} got unexpected argument: {key}")
        for key in required:
            if key not in parameters:
                raise CommandError(ErrorCode.FailedToParse, f"{self.name} requires '{key}'")
        return parameters


FunctionParser: TypeAlias = Callable[[FunctionArguments], WindowFunction]
WINDOW_FUNCTIONS: Final[Registry[FunctionParser]] = Registry("window function")
RANKS: Final = ("$rank", "$denseRank", "$documentNumber")
# What the parsing of one function weighs.
_PARSED: Final[i64] = 4
_NOT_IN_WINDOWS: Final = frozenset({"$mergeObjects", "$accumulator"})


def window_function(name: str, *, since: Version) -> Callable[[FunctionParser], FunctionParser]:
    """Registers `def parse(call: FunctionArguments) -> WindowFunction`. since: as for `Registry.add`."""

    def register(parser: FunctionParser) -> FunctionParser:
        WINDOW_FUNCTIONS.add(name, parser, since)
        return parser

    return register


def parse_window_function(field: str, value: Value, pattern: SortPattern | None, ctx: ParseContext) -> WindowFunction:
    """`{<function>: <argument>, window: …}`. FailedToParse (9) for a bad shape or an unknown function."""
    give_way(_PARSED)
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.FailedToParse, f"The field '{field}' must be an object, found {type_of(value)}")
    name = ""
    argument: Value = MISSING
    window: Value = MISSING
    members = fields(value)
    if len(members) > 1 and members[0][0] in RANKS:
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
    if ctx.lacks(WINDOW_FUNCTIONS.kind, name) or ctx.lacks(ACCUMULATORS.kind, name):
        what_helps = WINDOW_FUNCTIONS.advice(ctx.features, name) or ACCUMULATORS.advice(ctx.features, name)
        raise _unrecognized(name, what_helps)
    parser = WINDOW_FUNCTIONS.get(name)
    call = FunctionArguments(field, name, argument, window, pattern, ctx)
    if parser is not None:
        return parser(call)
    if name in SIMPLE and name not in _NOT_IN_WINDOWS:
        spec: AccumulatorSpec = SimpleAccumulator(
            field, name, parse_expression(argument, ctx), SIMPLE[name], ctx.collation
        )
        frame = call.frame()
        if frame.slides and name in FRAME_STD_DEV:
            spec = SimpleAccumulator(field, name, spec.argument, FRAME_STD_DEV[name], None)
        if frame.slides and name == "$avg":
            spec = SimpleAccumulator(field, name, spec.argument, exact_avg_state, None)
        return _over(frame, spec, ctx)
    accumulator = ACCUMULATORS.get(name)
    if accumulator is None or name in _NOT_IN_WINDOWS:
        raise _unrecognized(name)
    spec = accumulator(field, name, argument, ctx)
    return _over(call.frame(), spec, ctx)


def _over(frame: Frame, spec: AccumulatorSpec, ctx: ParseContext) -> WindowFunction:
    """The function that computes an accumulator over a frame."""
    name = spec.name
    if frame.slides and name in ("$first", "$last"):
        return EdgeOfFrame(spec.argument, frame, name == "$last")
    if frame.slides and not frame.is_narrow and name in SLIDING and is_repeatable(spec.argument):
        sliding = SimpleAccumulator(spec.field, name, spec.argument, SLIDING[name], ctx.collation)
        return SlidingAccumulator(sliding, frame)
    return WindowAccumulator(spec, frame)


def _unrecognized(name: str, advice: str = "") -> CommandError:
    return CommandError(ErrorCode.FailedToParse, f"Unrecognized window function, {name}", advice=advice)
