"""Window functions of a document's place in its partition: `$rank $denseRank $documentNumber $shift`."""

from typing import Final

from mongottl.document.numbers import whole
from mongottl.document.types import Missing, Value, integer
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.numbers import width
from mongottl.query.pipeline.window.frame import Partition
from mongottl.query.pipeline.window.function import RANKS, FunctionArguments, WindowFunction, window_function


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


for _name in RANKS:
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
