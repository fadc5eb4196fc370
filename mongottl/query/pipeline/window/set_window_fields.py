"""`$setWindowFields`: values computed per document from the documents around it.

Everything is read and sorted by partition and `sortBy`, in runs of bounded size. Then one partition after the other is
gathered and its documents are given out with their new fields, a bounded number of steps per call.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.disjoint_paths import DisjointPaths
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
from mongottl.query.pipeline.source import BATCH_BYTES, BATCH_SIZE, DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.pipeline.window.frame import Partition
from mongottl.query.pipeline.window.function import WindowFunction, parse_window_function
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.sorter import SortEntry, Sorter
from mongottl.query.spill import SpillStatistics

STEPS: Final = 4096  # values that one call takes into windows, roughly


class WindowSpec(StageSpec):
    """paths: of the output fields. output: as written. sort_by: as written, None without one."""

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
        """A filter on what the partitions are by chooses partitions as a whole; any other takes from a window."""
        partition = self.partition_by
        if not isinstance(partition, FieldExpression) or any(path.parts[0] == partition.name for path in self.paths):
            return None
        return Effect([partition.name], exclusive=True, comparisons_only=True)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return WindowSource(source, self, run)

    def functions(self) -> list[WindowFunction]:
        """The functions of the output fields; they have a state, so each opened stage has its own."""
        found: list[WindowFunction] = []
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


class WindowSource(DocumentSource):
    """Entries are sorted by the partition's key and the sort key behind it; their number is the former's length."""

    def __init__(self, source: DocumentSource, spec: WindowSpec, run: RunContext) -> None:
        self.source: Final = source
        self._spec: Final = spec
        self._functions: Final = spec.functions()
        self._outputs: Final = PathValues(spec.paths)
        self._run: Final = run
        self._ev: Final = run.evaluation()
        self._sorter: Final = Sorter(0, run.limits.sort_bytes, run.space)
        self._reading = True
        self._sorted: list[SortEntry] = []  # the next entries, from `_position` on
        self._position = 0
        self._spilled: Final = SpillStatistics()  # of all partitions
        self._partition = self._new_partition()
        self._key = b""
        self._given = -1  # documents of the partition that are given out; -1 while it is being gathered

    def next_batch(self) -> list[bytes] | None:
        sorter = self._sorter
        if sorter.pending:
            sorter.work()
            return []
        if self._reading:
            batch = self.source.next_batch()
            if batch is not None:
                self._absorb(batch)
                return []
            self._reading = False
            sorter.finish()
            return []
        if self._given < 0:
            if self._position >= len(self._sorted):
                self._sorted = sorter.take(BATCH_SIZE)
                self._position = 0
                if not self._sorted and self._partition.count == 0:
                    return None
            self._gather()
            return []
        return self._compute()

    def statistics(self) -> dict[str, Value]:
        spilled = SpillStatistics()
        for one in (self._sorter.spilled, self._spilled):
            spilled.spills += one.spills
            spilled.records += one.records
            spilled.bytes += one.bytes
        return spilled.describe()

    def close(self) -> None:
        self._partition.close()
        self._sorter.close()
        self.source.close()

    def _new_partition(self) -> Partition:
        return Partition(self._spec.pattern, self._run.limits.window_bytes, self._run.space, self._spilled)

    def _absorb(self, batch: list[bytes]) -> None:
        partition_by = self._spec.partition_by
        pattern = self._spec.pattern
        ev = self._ev
        sorter = self._sorter
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
        sorter.check()

    def _gather(self) -> None:
        """Takes what is sorted into the partition, and ends it where another begins, or nothing follows."""
        partition = self._partition
        entries = self._sorted
        place = self._position
        while place < len(entries):
            sorted_key, _, document, key_length, _, _ = entries[place]
            key = sorted_key[:key_length]
            if partition.count == 0:
                self._key = key
            elif key != self._key:
                break
            partition.add(document, sorted_key[key_length:])
            place += 1
        self._position = place
        if place < len(entries) or not entries:
            for function in self._functions:
                function.begin(partition)
            self._given = 0

    def _compute(self) -> list[bytes]:
        partition = self._partition
        outputs = self._outputs
        found: list[bytes] = []
        steps = 0
        place = self._given
        room: i64 = BATCH_BYTES
        while place < partition.count and len(found) < BATCH_SIZE and steps < STEPS and room > 0:
            doc = partition.document(place)
            values: list[Value] = []
            for function in self._functions:
                value = function.value(partition, place, self._ev)
                steps += function.steps
                values.append(None if isinstance(value, Missing) else value)
            changed = outputs.put(doc, values)
            found.append(changed)
            room -= i64(len(changed))
            place += 1
        self._given = place
        if place >= partition.count:
            partition.close()
            self._partition = self._new_partition()
            self._given = -1
        return found


@stage("$setWindowFields", StageTraits(planned=True))
def parse_set_window_fields(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{partitionBy, sortBy, output: {<path>: {<function>: …, window: …}, …}}`. FailedToParse for most bad shapes."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse,
            f"the $setWindowFields stage specification must be an object, found {type_of(argument)}",
        )
    written = read_fields("$setWindowFields", argument)
    check_known("$setWindowFields", written, ["partitionBy", "sortBy", "output"])
    if "output" not in written:
        raise missing_field("$setWindowFields.output")
    output = written["output"]
    if not isinstance(output, bytes):
        raise wrong_type("$setWindowFields.output", output, "object")
    sort_by = written.get("sortBy", MISSING)
    pattern: SortPattern | None = None
    if is_nullish(sort_by):
        sort_by = None
    elif not isinstance(sort_by, bytes):
        raise wrong_type("$setWindowFields.sortBy", sort_by, "object")
    else:
        pattern = parse_sort(sort_by, ctx.collation)
        ctx.metadata.requested.update(pattern.metadata)
    partition_by: Expression | None = None
    if not isinstance(written.get("partitionBy", MISSING), Missing):
        partition_by = parse_expression(written["partitionBy"], ctx)
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
    """The stage with the output fields of a specification. 40176 and 40177 where these get into each other's way.

    pattern: of `sort_by`; one without fields counts as none.
    """
    if pattern is not None and pattern.is_empty():
        pattern = None
    paths: list[FieldPath] = []
    apart = DisjointPaths()
    for name, specification in fields(output):
        check_field_path(name)
        other = apart.add(name)
        if other:
            raise CommandError(40176, f"specification contains two conflicting paths: '{other}' and '{name}'")
        paths.append(FieldPath(name))
        parse_window_function(name, specification, pattern, ctx)
    return WindowSpec(partition_by, sort_by, pattern, paths, output, ctx)
