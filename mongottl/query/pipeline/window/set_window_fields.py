"""`$setWindowFields`: values computed per document from the documents around it.

The whole input is read and sorted by partition and `sortBy`. Then each partition is collected and its documents are
output with their new fields, with a bounded number of steps per call.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.copied import COPIED
from mongottl.document.disjoint_paths import DisjointPaths
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.set_path import PathValues
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, Expression, parse_expression
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import FieldExpression
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.sorting import SortingSource
from mongottl.query.pipeline.source import BATCH_BYTES, BATCH_SIZE, DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.pipeline.window.frame import Partition
from mongottl.query.pipeline.window.function import WindowFunction, parse_window_function
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.sorter import SortEntry
from mongottl.query.spill import SpillSpace, SpillStatistics

STEPS: Final = 4096  # approximate number of values that one call processes


class WindowSpec(StageSpec):
    """`$setWindowFields`.

    paths: of the output fields. output, sort_by: the original documents; sort_by is None if there is none.
    """

    def __init__(
        self,
        partition_by: Expression | None,
        sort_by: bytes | None,
        pattern: SortPattern | None,
        paths: list[FieldPath],
        output: bytes,
        ctx: ParseContext,
    ) -> None:
        self.name = "$setWindowFields"
        self.partition_by: Final = partition_by
        self.sort_by: Final = sort_by
        self.pattern: Final = pattern
        self.paths: Final = paths
        self.output: Final = output
        self.ctx: Final = ctx

    def effect(self) -> Effect | None:
        """A filter on the partition key selects whole partitions; any other would remove documents from windows."""
        partition = self.partition_by
        if not isinstance(partition, FieldExpression):
            return None
        for path in self.paths:
            give_way()
            if path.parts[0] == partition.name:
                return None
        return Effect([partition.name], exclusive=True, comparisons_only=True)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return WindowSource(source, self, run)

    def functions(self) -> list[WindowFunction]:
        """New functions of the output fields; they have a state, so each opened stage needs its own."""
        found: list[WindowFunction] = list_for(len(self.paths))
        for name, specification in fields(self.output):
            found.append(parse_window_function(name, specification, self.pattern, self.ctx))
        return found

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = []
        if self.partition_by is not None:
            described.append(("partitionBy", self.partition_by.describe()))
        if self.sort_by is not None:
            described.append(("sortBy", self.sort_by))
        described.append(("output", self.output))
        return encode({"$setWindowFields": encode_fields(described)})


class WindowSource(SortingSource):
    """Sort keys are the partition's key followed by the sort key; the number of a SortEntry is the length of the
    former."""

    def __init__(self, source: DocumentSource, spec: WindowSpec, run: RunContext) -> None:
        super().__init__(source, run, run.limits.sort_bytes)
        self._spec: Final = spec
        self._functions: Final = spec.functions()
        self._outputs: Final = PathValues(spec.paths)
        self._run: Final = run
        self._ev: Final = run.evaluation()
        self._sorted: list[SortEntry] = []  # the next entries, from `_position` on
        self._position = 0
        self._spilled: Final = SpillStatistics()  # totals of all partitions
        self._partition = self._new_partition()
        self._key = b""
        self._next_output = -1  # position of the next document to output; -1 while the partition is being collected

    def output(self) -> list[bytes] | None:
        if self._next_output < 0:
            if self._position >= len(self._sorted):
                self._sorted = self.sorter.take(BATCH_SIZE)
                self._position = 0
                if not self._sorted and self._partition.count == 0:
                    return None
            self._gather()
            return []
        return self._compute()

    def statistics(self) -> dict[str, Value]:
        spilled = SpillStatistics()
        for one in (self.sorter.spilled, self._spilled):
            spilled.spills += one.spills
            spilled.records += one.records
            spilled.bytes += one.bytes
        return spilled.describe()

    def held_bytes(self) -> int:
        return super().held_bytes() + self._partition.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self._partition.spill(space) or super().spill(space)

    def close(self) -> None:
        self._partition.close()
        super().close()

    def _new_partition(self) -> Partition:
        run = self._run
        return Partition(self._spec.pattern, run.limits.window_bytes, run.space, self._spilled, run.memory)

    def add(self, batch: list[bytes]) -> None:
        partition_by = self._spec.partition_by
        pattern = self._spec.pattern
        ev = self._ev
        sorter = self.sorter
        for doc in batch:
            key = b""
            if partition_by is not None:
                ev.root = doc
                value = partition_by.evaluate(ev)
                if isinstance(value, list):
                    raise CommandError(
                        ErrorCode.TypeMismatch, "An expression used to partition cannot evaluate to value of type array"
                    )
                key = encode_value(None if isinstance(value, Missing) else value, False, self._spec.ctx.collation)
            sort_key = b"" if pattern is None else pattern.sort_key(doc)
            sorter.add(key + sort_key, doc, len(key))

    def _gather(self) -> None:
        """Adds sorted documents to the partition, which ends where another begins or at the end of the input."""
        partition = self._partition
        entries = self._sorted
        position = self._position
        while position < len(entries):
            sorted_key, _, document, key_length, _, _ = entries[position]
            key = sorted_key[:key_length]
            if partition.count == 0:
                self._key = key
            elif key != self._key:
                break
            partition.add(document, sorted_key[key_length:])
            position += 1
        self._position = position
        if position < len(entries) or not entries:
            for function in self._functions:
                give_way()
                function.begin(partition)
            self._next_output = 0

    def _compute(self) -> list[bytes]:
        partition = self._partition
        outputs = self._outputs
        found: list[bytes] = []
        steps = 0
        position = self._next_output
        room: i64 = BATCH_BYTES
        while position < partition.count and len(found) < BATCH_SIZE and steps < STEPS and room > 0:
            doc = partition.document(position)
            values: list[Value] = list_for(len(self._functions))
            ev = self._ev
            ev.held = 0
            copied: i64 = COPIED.bytes
            for function in self._functions:
                give_way()
                value = function.value(partition, position, ev)
                if COPIED.bytes != copied:
                    ev.hold(value, COPIED.bytes - copied)
                    copied = COPIED.bytes
                steps += function.steps
                values.append(None if isinstance(value, Missing) else value)
            changed = outputs.put(doc, values)
            found.append(changed)
            room -= i64(len(changed))
            position += 1
        self._next_output = position
        if position >= partition.count:
            partition.close()
            self._partition = self._new_partition()
            self._next_output = -1
        return found


@stage("$setWindowFields", StageTraits(planned=True), since=(5, 0))
def parse_set_window_fields(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{partitionBy, sortBy, output: {<path>: {<function>: …, window: …}, …}}`. FailedToParse for most bad shapes."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse,
            f"the $setWindowFields stage specification must be an object, found {type_of(argument)}",
        )
    parameters = read_fields("$setWindowFields", argument)
    check_known("$setWindowFields", parameters, ["partitionBy", "sortBy", "output"])
    if "output" not in parameters:
        raise missing_field("$setWindowFields.output")
    output = parameters["output"]
    if not isinstance(output, bytes):
        raise wrong_type("$setWindowFields.output", output, "object")
    sort_by = parameters.get("sortBy", MISSING)
    pattern: SortPattern | None = None
    if is_nullish(sort_by):
        sort_by = None
    elif not isinstance(sort_by, bytes):
        raise wrong_type("$setWindowFields.sortBy", sort_by, "object")
    else:
        pattern = parse_sort(sort_by, ctx.collation)
        ctx.metadata.requested.update(pattern.metadata)
    partition_by: Expression | None = None
    if not isinstance(parameters.get("partitionBy", MISSING), Missing):
        partition_by = parse_expression(parameters["partitionBy"], ctx)
        if isinstance(partition_by, Constant):
            if isinstance(partition_by.value, list):
                raise CommandError(
                    ErrorCode.TypeMismatch, "An expression used to partition cannot evaluate to value of type array"
                )
            partition_by = None
    return [window_stage(partition_by, sort_by if isinstance(sort_by, bytes) else None, pattern, output, ctx)]


def window_stage(
    partition_by: Expression | None,
    sort_by: bytes | None,
    pattern: SortPattern | None,
    output: bytes,
    ctx: ParseContext,
) -> WindowSpec:
    """The stage with the output fields of a specification. 40176 and 40177 for conflicting paths.

    pattern: of `sort_by`; None or without fields for no order.
    """
    if pattern is not None and pattern.is_empty():
        pattern = None
    outputs = fields(output)
    paths: list[FieldPath] = list_for(len(outputs))
    disjoint = DisjointPaths()
    for name, specification in outputs:
        check_field_path(name)
        other = disjoint.add(name)
        if other:
            raise CommandError(40176, f"specification contains two conflicting paths: '{other}' and '{name}'")
        paths.append(FieldPath(name))
        parse_window_function(name, specification, pattern, ctx)
    return WindowSpec(partition_by, sort_by, pattern, paths, output, ctx)
