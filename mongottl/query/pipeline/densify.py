"""`$densify`: adds documents in the gaps between a field's values. `$fill`: sets values of missing or null fields.

A gap is filled in steps from a base: the lower bound, or the first value of all ("full") or of the partition. The input
is sorted, so that each document ends the gap before it in its partition.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, encode, encode_fields
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.numbers import to_double, whole
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.set_path import with_value
from mongottl.document.types import MISSING, Date, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Expression, parse_expression
from mongottl.query.expr.arithmetic import add_values, multiply
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.date.arithmetic import add_units, unit_of
from mongottl.query.expr.date.calendar import UTC
from mongottl.query.expr.numbers import fits_long, width
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import value_at
from mongottl.query.memory import OperationMemory
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.pipeline.source import BATCH_BYTES, BATCH_SIZE, DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, parse_stage, stage
from mongottl.query.pipeline.window.set_window_fields import window_stage
from mongottl.query.sort import SortPattern, parse_sort

_PARTITION_BYTES: Final = 400  # approximate memory of a partition besides its key and values
MAX_GENERATED: Final = 500_000  # documents; mongod's internalQueryMaxAllowedDensifyDocs
_DOCUMENT_TYPE: Final = 3


class DensifySpec(StageSpec):
    """`$densify`.

    bounds: "full", "partition", or "" with lower and upper. unit: of time, "" for numbers. collation: of the values
    of the partition fields.
    """

    def __init__(
        self,
        field: FieldPath,
        partition: list[FieldPath],
        step: Value,
        unit: str,
        bounds: str,
        lower: Value,
        upper: Value,
        argument: bytes,
        collation: Collation | None,
    ) -> None:
        self.name = "$densify"
        self.collation: Final = collation
        self.field: Final = field
        self.partition: Final = partition
        self.step: Final = step
        self.unit: Final = unit
        self.bounds: Final = bounds
        self.lower: Final = lower
        self.upper: Final = upper
        self.argument: Final = argument

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return DensifySource(source, self, run.limits.densify_bytes, run.memory)

    def describe(self) -> Value:
        return encode({"$_internalDensify": self.argument})

    def at(self, base: Value, count: int) -> Value:
        """The value `count` steps after the base."""
        if isinstance(base, Date):
            size = whole(self.step)
            moved = add_units(base.ms, self.unit, count * (1 if size is None else size), UTC)
            if not fits_long(moved):
                raise CommandError(5166406, "$densify overflowed")
            return Date(moved)
        if count == 0:
            return base
        return add_values([base, multiply([self.step, count])])


class Progress:
    """How far a partition is filled. steps: the number of steps from the base that are done.

    first: the values of the partition fields in its first document; prefix: in its latest one, which may differ in
    type.
    """

    def __init__(self, prefix: bytes, base: Value) -> None:
        self.first: Final = prefix
        self.prefix = prefix
        self.base: Final = base
        self.steps = 0


class DensifySource(TransformSource):
    def __init__(
        self,
        source: DocumentSource,
        spec: DensifySpec,
        limit_bytes: int,
        memory: OperationMemory,
        max_generated: int = MAX_GENERATED,
    ) -> None:
        super().__init__(source)
        self._limit_bytes: Final = limit_bytes
        self._share: Final = memory.share()
        self._size = 0  # of the partitions
        self._room: i64 = 0  # bytes left for the documents that this call creates
        self._max_generated: Final = max_generated
        self._spec: Final = spec
        self._partitions: Final[dict[bytes, Progress]] = {}
        self._batch: list[bytes] = []
        self._position = 0
        self._first: Value = None  # of all values
        self._last: Value = None
        self._ending: list[Progress] = []
        self._ended = False
        self._generated = 0

    def close(self) -> None:
        self._share.release()
        super().close()

    def next_batch(self) -> list[bytes] | None:
        found: list[bytes] = []
        self._room = BATCH_BYTES
        if self._ended:
            while self._ending and len(found) < BATCH_SIZE and self._room > 0:
                give_way()
                if self._fill(self._ending[-1], self._end(), self._spec.bounds == "full", found):
                    self._ending.pop()
            return found if found or self._ending else None
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                self._start_final_fill()
                return []
            self._batch = batch
            self._position = 0
        while self._position < len(self._batch) and len(found) < BATCH_SIZE and self._room > 0:
            if self._fill_up_to(self._batch[self._position], found):
                self._position += 1
        return found

    def _start_final_fill(self) -> None:
        spec = self._spec
        self._ended = True
        if spec.bounds == "partition":
            return
        if spec.bounds == "" and not spec.partition and not self._partitions:
            self._partitions[b""] = Progress(EMPTY_DOCUMENT, spec.lower)
        self._ending = list_for(len(self._partitions))
        for progress in reversed(self._partitions.values()):
            give_way()
            self._ending.append(progress)

    def _end(self) -> Value:
        return self._spec.upper if self._spec.bounds == "" else self._last

    def _fill_up_to(self, doc: bytes, found: list[bytes]) -> bool:
        """Fills the gap before a document; returns False if it is not complete yet, else outputs the document."""
        spec = self._spec
        value = value_at(doc, _DOCUMENT_TYPE, 0, spec.field.part_bytes, 0)
        if is_nullish(value):
            found.append(doc)
            return True
        if spec.unit:
            if not isinstance(value, Date):
                raise CommandError(
                    6053600, f"$densify: with a unit, the field must hold dates, and it holds {type_of(value)}"
                )
        elif width(value) == 0:
            raise CommandError(5733201, f"$densify: the field must hold numbers, and it holds {type_of(value)}")
        if self._first is None:
            self._first = value
        self._last = value
        progress = self._progress(doc, value)
        limit = value
        if spec.bounds == "" and compare_values(value, spec.upper) > 0:
            limit = spec.upper
        if not self._fill(progress, limit, False, found):
            return False
        if compare_values(spec.at(progress.base, progress.steps), value) == 0:
            progress.steps += 1
        found.append(doc)
        return True

    def _progress(self, doc: bytes, value: Value) -> Progress:
        spec = self._spec
        key = b""
        prefix = EMPTY_DOCUMENT
        for path in spec.partition:
            give_way()
            part = value_at(doc, _DOCUMENT_TYPE, 0, path.part_bytes, 0)
            key += encode_value(None if isinstance(part, Missing) else part, False, spec.collation)
            if not isinstance(part, Missing):
                prefix = with_value(prefix, path, part)
        progress = self._partitions.get(key)
        if progress is None:
            base = value
            if spec.bounds == "":
                base = spec.lower
            elif spec.bounds == "full":
                base = self._first
            progress = Progress(prefix, base)
            self._partitions[key] = progress
            self._size += len(key) + len(prefix) + _PARTITION_BYTES
            if self._size > self._limit_bytes:
                raise CommandError(6007200, f"$densify exceeded memory limit of {self._limit_bytes}")
            if not self._share.need(self._size):
                raise self._share.memory.exceeded("$densify")
        progress.prefix = prefix
        return progress

    def _fill(self, progress: Progress, limit: Value, inclusive: bool, found: list[bytes]) -> bool:
        """Adds documents below the limit; False if there is no room for all of them."""
        spec = self._spec
        while True:
            value = spec.at(progress.base, progress.steps)
            order = compare_values(value, limit)
            if order > 0 or (order == 0 and not inclusive):
                return True
            if len(found) >= BATCH_SIZE or self._room <= 0:
                return False
            self._generated += 1
            if self._generated > self._max_generated:
                raise CommandError(
                    5897900,
                    f"Generated {self._generated} documents in $densify, which is over the limit of {MAX_GENERATED}",
                )
            generated = with_value(progress.prefix, spec.field, value)
            self._room -= i64(len(generated))
            found.append(generated)
            progress.steps += 1


@stage("$densify", StageTraits(planned=True), since=(5, 1))
def parse_densify(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{field, partitionByFields, range: {step, unit, bounds}}`. 5733401 to 5733408 for a bad range."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse, f"The $densify stage specification must be an object, found {type_of(argument)}"
        )
    parameters = read_fields("$densify", argument)
    check_known("$densify", parameters, ["field", "partitionByFields", "range"])
    for key in ("field", "range"):
        if key not in parameters:
            raise missing_field(f"$densify.{key}")
    name = parameters["field"]
    if not isinstance(name, str):
        raise wrong_type("$densify.field", name, "string")
    if name.startswith("$"):
        raise CommandError(ErrorCode.FailedToParse, "Cannot densify field starting with '$'")
    check_field_path(name)
    partition: list[FieldPath] = []
    names = parameters.get("partitionByFields", MISSING)
    if not is_nullish(names):
        if not isinstance(names, list):
            raise wrong_type("$densify.partitionByFields", names, "array")
        partition = list_for(len(names))
        within = f"{name}."
        for part in names:
            give_way()
            if not isinstance(part, str):
                raise wrong_type("$densify.partitionByFields", part, "string")
            if part.startswith("$"):
                raise CommandError(ErrorCode.FailedToParse, "Cannot partition by field starting with '$'")
            check_field_path(part)
            if part == name or part.startswith(within) or name.startswith(f"{part}."):
                raise CommandError(8993000, "$densify cannot partition by the field that it densifies")
            partition.append(FieldPath(part))
    spec = _densify_range(parameters["range"], FieldPath(name), partition, argument, ctx.collation)
    order = DocumentBuilder()
    if spec.bounds == "partition":
        for path in partition:
            order.append(path.dotted, 1)
    order.append(name, 1)
    sort = order.finish()
    return [SortSpec(sort, parse_sort(sort, ctx.collation)), spec]


def _densify_range(
    value: Value, field: FieldPath, partition: list[FieldPath], argument: bytes, collation: Collation | None
) -> DensifySpec:
    if not isinstance(value, bytes):
        raise wrong_type("$densify.range", value, "object")
    parameters = read_fields("$densify.range", value)
    check_known("$densify.range", parameters, ["step", "unit", "bounds"])
    for key in ("step", "bounds"):
        if key not in parameters:
            raise missing_field(f"$densify.range.{key}")
    step = parameters["step"]
    if width(step) == 0:
        raise wrong_type("$densify.range.step", step, "double")
    if not to_double(step) > 0.0:
        raise CommandError(5733401, "the step parameter in a range statement must be a strictly positive numeric value")
    unit = ""
    if not is_nullish(parameters.get("unit", MISSING)):
        unit = unit_of("$densify", parameters["unit"], ErrorCode.TypeMismatch)
        if whole(step) is None:
            raise CommandError(6586400, "the step of a range must be a whole number when densifying dates")
    bounds = parameters["bounds"]
    if isinstance(bounds, str):
        if bounds not in ("full", "partition"):
            raise CommandError(5946800, "Bounds string must either be 'full' or 'partition'")
        if bounds == "partition" and not partition:
            raise CommandError(
                5733408,
                "one may not specify the bounds as 'partition' without specifying a non-empty array of"
                " partitionByFields. You may have meant to specify 'full' bounds.",
            )
        return DensifySpec(field, partition, step, unit, bounds, None, None, argument, collation)
    if not isinstance(bounds, list):
        raise CommandError(5946800, "the bounds of a range must be 'full', 'partition' or an array")
    if len(bounds) != 2:
        raise CommandError(5733403, "A bounding array in a range statement must have exactly two elements")
    lower, upper = bounds
    for bound in bounds:
        if unit:
            if not isinstance(bound, Date):
                raise CommandError(5733402, "A bounding array must contain either both dates or both numeric types")
        elif isinstance(bound, Date) and isinstance(lower, Date) and isinstance(upper, Date):
            raise CommandError(5733501, "numeric bounds may not have dates without a unit")
        elif width(bound) == 0:
            raise CommandError(5733402, "A bounding array must contain either both dates or both numeric types")
    if compare_values(lower, upper) > 0:
        raise CommandError(
            5733404, "A bounding array must be ordered, with the lower bound not greater than the upper bound"
        )
    return DensifySpec(field, partition, step, unit, "", lower, upper, argument, collation)


@stage("$fill", since=(5, 3))
def parse_fill(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{sortBy, partitionBy, partitionByFields, output: {<field>: {value} | {method: "linear" | "locf"}}}`.

    It is translated into `$setWindowFields` and `$addFields`. 6050200 to 6050204 for a bad shape.
    """
    if not isinstance(argument, bytes):
        raise CommandError(6050200, f"Argument to $fill stage must be an object, but found type: {type_of(argument)}")
    parameters = read_fields("$fill", argument)
    check_known("$fill", parameters, ["sortBy", "partitionBy", "partitionByFields", "output"])
    if "output" not in parameters:
        raise missing_field("$fill.output")
    output = parameters["output"]
    if not isinstance(output, bytes):
        raise wrong_type("$fill.output", output, "object")
    sort_by = parameters.get("sortBy", MISSING)
    if not is_nullish(sort_by) and not isinstance(sort_by, bytes):
        raise wrong_type("$fill.sortBy", sort_by, "object")
    pattern: SortPattern | None = parse_sort(sort_by, ctx.collation) if isinstance(sort_by, bytes) else None
    if pattern is not None:
        ctx.metadata.requested.update(pattern.metadata)
    outputs = fields(output)
    windows: list[tuple[str, Value]] = list_for(len(outputs))
    values: list[tuple[str, Value]] = list_for(len(outputs))
    for name, specification in outputs:
        give_way()
        if not isinstance(specification, bytes):
            raise wrong_type(f"$fill.output.{name}", specification, "object")
        check_field_path(name)
        how = read_fields("$fill.output", specification)
        check_known("$fill.output", how, ["value", "method"])
        if len(how) != 1:
            raise CommandError(6050203, "Each $fill output field must have exactly one of 'value' or 'method'")
        if "value" in how:
            values.append((name, encode({"$ifNull": ["$" + name, how["value"]]})))
            continue
        method = how["method"]
        if not isinstance(method, str):
            raise wrong_type("$fill.output.method", method, "string")
        if method not in ("linear", "locf"):
            raise CommandError(6050202, "Method must be either 'locf' or 'linear'")
        windows.append((name, encode({"$linearFill" if method == "linear" else "$locf": "$" + name})))
        # `locf` without `sortBy` uses the input order.
        if method == "linear" and (pattern is None or pattern.is_empty()):
            raise CommandError(605001, "$fill by 'linear' requires a sortBy")
    specs: list[StageSpec] = []
    partition_by = _fill_partition(parameters, ctx)
    if windows:
        order = sort_by if isinstance(sort_by, bytes) else None
        specs.append(window_stage(partition_by, order, pattern, encode_fields(windows), ctx))
    if values:
        specs.extend(parse_stage("$addFields", encode_fields(values), ctx))
    return specs


def _fill_partition(parameters: dict[str, Value], ctx: ParseContext) -> Expression | None:
    by = parameters.get("partitionBy", MISSING)
    names = parameters.get("partitionByFields", MISSING)
    if not isinstance(by, Missing) and not is_nullish(names):
        raise CommandError(6050204, "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'")
    if not is_nullish(names):
        if not isinstance(names, list):
            raise wrong_type("$fill.partitionByFields", names, "array")
        members: list[tuple[str, Value]] = list_for(len(names))
        for name in names:
            give_way()
            if not isinstance(name, str):
                raise wrong_type("$fill.partitionByFields", name, "string")
            if name.startswith("$"):
                raise CommandError(6050206, "A field path in 'partitionByFields' may not begin with '$'")
            check_field_path(name)
            members.append((str(len(members)), "$" + name))
        return parse_expression(encode_fields(members), ctx) if members else None
    if isinstance(by, str):
        if not by.startswith("$"):
            raise CommandError(6050205, "partitionBy must be a field path or an expression")
        return parse_expression(by, ctx)
    if isinstance(by, bytes):
        return parse_expression(by, ctx)
    if not is_nullish(by):
        raise wrong_type("$fill.partitionBy", by, "[string, object]")
    return None
