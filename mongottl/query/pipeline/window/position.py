"""Window functions of a document's position in its partition: `$rank $denseRank $documentNumber $shift`."""

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

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        if self.name == "$documentNumber":
            return integer(position + 1)
        if position == 0 or partition.sort_key(position) != partition.sort_key(position - 1):
            self._rank = position + 1 if self.name == "$rank" else self._rank + 1
        return integer(self._rank)


class ShiftFunction(WindowFunction):
    def __init__(self, output: Expression, by: int, default: Value) -> None:
        super().__init__()
        self.output: Final = output
        self.by: Final = by
        self.default: Final = default

    def value(self, partition: Partition, position: int, ev: EvaluationContext) -> Value:
        at = position + self.by
        if at < 0 or at >= partition.count:
            return self.default
        ev.root = partition.document(at)
        return self.output.evaluate(ev)


def _parse_rank(call: FunctionArguments) -> WindowFunction:
    if not isinstance(call.window, Missing):
        raise CommandError(5371601, "Rank style window functions take no other arguments")
    if not isinstance(call.argument, bytes) or len(call.argument) != 5:
        raise CommandError(5371603, f"{call.name} must be specified with '{{}}' as the value")
    if call.pattern is None or len(call.pattern.paths) != 1:
        raise CommandError(
            5371602,
            f"{call.name} must be specified with a top level sortBy expression with exactly one element",
        )
    return RankFunction(call.name)


for _name in RANKS:
    window_function(_name, since=(5, 0))(_parse_rank)


@window_function("$shift", since=(5, 0))
def parse_shift(call: FunctionArguments) -> WindowFunction:
    """`{output, by, default}`; the default is a constant."""
    call.refuse_window()
    parameters = call.named(["output", "by", "default"], ["output", "by"])
    call.need_sort()
    by = whole(parameters["by"]) if width(parameters["by"]) else None
    if by is None:
        raise CommandError(ErrorCode.FailedToParse, "'$shift:by' field must be an integer")
    default: Value = None
    if "default" in parameters:
        node = parse_expression(parameters["default"], call.ctx)
        if not isinstance(node, Constant):
            raise CommandError(ErrorCode.FailedToParse, "'$shift:default' expression must yield a constant value.")
        default = node.value
    return ShiftFunction(parse_expression(parameters["output"], call.ctx), by, default)
