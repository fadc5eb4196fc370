"""The stages of mapReduce that no pipeline of a client can have: what `map` emits, and what `reduce` makes of it.

mapReduce is the pipeline

    $match, $sort, $limit                           the documents
    $project: {emits: [{k, v}, …]}                  map
    $unwind: "$emits"
    $group: {_id: "$emits.k", value: reduce}
    $project: {value: {$function: finalize}}        if there is a finalize
    $out or $merge                                  unless the results are returned

Source: MongoDB's manual, "mapReduce".
"""

from typing import TYPE_CHECKING, Final

from mongottl.document.build import encode, value_size
from mongottl.document.types import JavaScript, Value
from mongottl.query.context import ParseContext
from mongottl.query.expr import Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState
from mongottl.query.pipeline.accumulators import AccumulatorSpec
from mongottl.query.pipeline.group import GroupSpec
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts

# Documents, and about how many bytes of them, that one call maps.
_MAP_BATCH: Final = 64
_MAP_BYTES: Final = 1 << 20
# Values, and about how many bytes of them, of a key that wait to be reduced into one.
_MAX_WAITING: Final = 1000
_MAX_WAITING_BYTES: Final = 1 << 20


class EmitSpec(StageSpec):
    """`{emits: [{k: key, v: value}, …]}` for each document, by a `map` function; explain shows it as a `$project`."""

    def __init__(self, code: str, scripts: "Scripts") -> None:
        self.name = "$project"
        self.keeps_metadata = False
        self.code: Final = code
        self.scripts: Scripts = scripts

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return EmitSource(source, self)

    def describe(self) -> Value:
        emit = encode({"$_internalJsEmit": encode({"this": "$$ROOT", "eval": JavaScript(self.code)})})
        return encode({"$project": encode({"emits": emit, "_id": False})})


class EmitSource(TransformSource):
    def __init__(self, source: DocumentSource, spec: EmitSpec) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._batch: list[bytes] = []
        self._position = 0

    def next_batch(self) -> list[bytes] | None:
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                return None
            self._batch = batch
            self._position = 0
        start = end = self._position
        room = _MAP_BYTES
        while end < len(self._batch) and end - start < _MAP_BATCH and room > 0:
            room -= len(self._batch[end])
            end += 1
        self._position = end
        if start == end:
            return []
        found: list[list[list[Value]]] = self._spec.scripts.emitted(self._spec.code, self._batch[start:end])
        mapped: list[bytes] = []
        for pairs in found:
            emits: list[Value] = [encode({"k": pair[0], "v": pair[1]}) for pair in pairs]
            if emits:
                mapped.append(encode({"emits": emits}))
        return mapped


class ReduceState(AccumulatorState):
    """The values of a key. A single one is not reduced."""

    def __init__(self, key: Value, code: str, scripts: "Scripts") -> None:
        self._key: Final = key
        self._code: Final = code
        self._scripts: Scripts = scripts
        self._values: list[Value] = []
        self._bytes = 0

    def add(self, value: Value) -> None:
        self._values.append(value)
        self._bytes += value_size(value)
        if len(self._values) >= _MAX_WAITING or (self._bytes >= _MAX_WAITING_BYTES and len(self._values) > 1):
            self._reduce()

    def result(self) -> Value:
        if len(self._values) > 1:
            self._reduce()
        return self._values[0]

    def _reduce(self) -> None:
        value: Value = self._scripts.call(self._code, [self._key, self._values])
        self._values = [value]
        self._bytes = value_size(value)

    def size(self) -> int:
        return 64 + self._bytes

    def grows(self) -> bool:
        return True


class ReduceAccumulator(AccumulatorSpec):
    """The field `value` of a group, by a `reduce` function."""

    def __init__(self, argument: Expression, code: str, scripts: "Scripts") -> None:
        super().__init__("value", "$_internalJsReduce", argument)
        self.code: Final = code
        self.scripts: Scripts = scripts

    def start(self, key: Value) -> AccumulatorState:
        return ReduceState(key, self.code, self.scripts)

    def describe(self) -> Value:
        return encode({self.name: encode({"data": self.argument.describe(), "eval": JavaScript(self.code)})})


def group_by_emitted_key(code: str, ctx: ParseContext, scripts: "Scripts") -> GroupSpec:
    """The `$group` of what was emitted, with the `reduce` function."""
    reduced = ReduceAccumulator(parse_expression("$emits.v", ctx), code, scripts)
    return GroupSpec(parse_expression("$emits.k", ctx), [reduced], ctx.collation)
