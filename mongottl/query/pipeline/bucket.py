"""`$bucket $bucketAuto $sortByCount`: grouping by ranges, and by counts."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, encode, encode_fields
from mongottl.document.collation import Collation
from mongottl.document.compare import bracket_of, compare_values
from mongottl.document.copied import COPIED
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.numbers import whole_int32
from mongottl.document.render import render_result, render_value
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.accumulators import AccumulatorSpec, parse_accumulator, ungrouped
from mongottl.query.pipeline.granularity import Granularity, granularity_of
from mongottl.query.pipeline.group import GroupSpec, accumulator_limit_exceeded, growth_limit
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.pipeline.sorting import SortingSource
from mongottl.query.pipeline.source import BATCH_SIZE, DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.sort import parse_sort
from mongottl.query.sorter import SortEntry
from mongottl.versions import OLDEST


class BucketKey(Expression):
    """The lower boundary of the range that contains a value, or the default. default: MISSING if there is none."""

    def __init__(
        self, group_by: Expression, boundaries: list[Value], default: Value, collation: Collation | None
    ) -> None:
        self.group_by: Final = group_by
        self.collation: Final = collation
        self.boundaries: Final = boundaries
        self.default: Final = default

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = self.group_by.evaluate(ev)
        boundaries = self.boundaries
        if _is_within(value, boundaries, self.collation):
            low = 0
            high = len(boundaries) - 1
            while high - low > 1:
                middle = (low + high) // 2
                if compare_values(value, boundaries[middle], self.collation) >= 0:
                    low = middle
                else:
                    high = middle
            return boundaries[low]
        if isinstance(self.default, Missing):
            raise CommandError(
                40066, "$switch could not find a matching branch for an input, and no default was specified."
            )
        return self.default

    def operands(self) -> list[Expression]:
        return [self.group_by]

    def describe(self) -> Value:
        described: dict[str, Value] = {"groupBy": self.group_by.describe(), "boundaries": self.boundaries}
        if not isinstance(self.default, Missing):
            described["default"] = self.default
        return encode({"$bucket": described})


def _is_within(value: Value, boundaries: list[Value], collation: Collation | None) -> bool:
    """Whether a value is within [first boundary, last boundary)."""
    return compare_values(value, boundaries[0], collation) >= 0 and compare_values(value, boundaries[-1], collation) < 0


@stage("$bucket", StageTraits(planned=True), since=OLDEST)
def parse_bucket(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{groupBy, boundaries, default, output}`: a `$group` and a `$sort` by `_id`. Codes 40191 to 40202, and
    15948 for an output named `_id`."""
    if not isinstance(argument, bytes):
        raise CommandError(40201, f"Argument to $bucket stage must be an object, but found type: {type_of(argument)}.")
    group_by: Expression | None = None
    boundaries: list[Value] = []
    default: Value = MISSING
    output: list[AccumulatorSpec] | None = None
    for key, value in fields(argument):
        if key == "groupBy":
            group_by = _group_by(value, ctx, 40202, "$bucket")
        elif key == "boundaries":
            boundaries = _boundaries(value, ctx)
        elif key == "default":
            node = parse_expression(value, ctx)
            if not isinstance(node, Constant):
                raise CommandError(
                    40195,
                    f"The $bucket 'default' field must be a constant expression, but found: {render_value(value)}.",
                )
            default = node.value
        elif key == "output":
            output = _output(value, ctx, 40196, "$bucket")
        else:
            raise CommandError(40197, f"Unrecognized option to $bucket: {key}.")
    if group_by is None or not boundaries:
        raise CommandError(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.")
    if not isinstance(default, Missing) and _is_within(default, boundaries, ctx.collation):
        raise CommandError(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the "
            "highest boundary.",
        )
    if output is None:
        output = [_count(ctx)]
    for accumulator in output:
        give_way()
        if accumulator.field == "_id":
            raise CommandError(15948, "a group's _id may only be specified once")
    ranges = BucketKey(group_by, boundaries, default, ctx.collation)
    return [GroupSpec(ranges, output, ctx.collation), _sorted_by("_id", 1, ctx)]


def _sorted_by(field: str, direction: int, ctx: ParseContext) -> SortSpec:
    specification = encode({field: direction})
    return SortSpec(specification, parse_sort(specification, ctx.collation))


def _count(ctx: ParseContext) -> AccumulatorSpec:
    return parse_accumulator("count", encode({"$sum": 1}), ctx)


def _group_by(value: Value, ctx: ParseContext, code: int, name: str) -> Expression:
    if isinstance(value, str) and value.startswith("$"):
        return parse_expression(value, ctx)
    if isinstance(value, bytes):
        members = fields(value)
        if members and members[0][0].startswith("$"):
            return parse_expression(value, ctx)
    raise CommandError(
        code,
        f"The {name} 'groupBy' field must be defined as a $-prefixed path or an expression, "
        f"but found: {render_value(value)}.",
    )


def _boundaries(value: Value, ctx: ParseContext) -> list[Value]:
    if not isinstance(value, list):
        raise CommandError(40200, f"The $bucket 'boundaries' field must be an array, but found type: {type_of(value)}.")
    boundaries: list[Value] = list_for(len(value))
    for item in value:
        give_way()
        node = parse_expression(item, ctx)
        # Variables are refused even if their value is known.
        if not isinstance(node, Constant) or (isinstance(item, str) and item.startswith("$$")):
            raise CommandError(
                40191,
                f"The $bucket 'boundaries' field must be an array of constant values, "
                f"but found value: {render_value(item)}.",
            )
        boundaries.append(node.value)
    if len(boundaries) < 2:
        raise CommandError(
            40192, f"The $bucket 'boundaries' field must have at least 2 values, but found {len(boundaries)} value(s)."
        )
    for i in range(1, len(boundaries)):
        give_way()
        low = boundaries[i - 1]
        high = boundaries[i]
        if bracket_of(low) != bracket_of(high):
            raise CommandError(
                40193,
                "All values in the 'boundaries' option to $bucket must have the same type. Found conflicting types "
                f"{type_of(low)} and {type_of(high)}.",
            )
        if compare_values(low, high, ctx.collation) >= 0:
            raise CommandError(
                40194,
                f"The 'boundaries' option to $bucket must be sorted, but elements {i - 1} and {i} are not in ascending "
                f"order ({render_result(low)} is not less than {render_result(high)}).",
            )
    return boundaries


def _output(value: Value, ctx: ParseContext, code: int, name: str) -> list[AccumulatorSpec]:
    if not isinstance(value, bytes):
        raise CommandError(code, f"The {name} 'output' field must be an object, but found type: {type_of(value)}.")
    members = fields(value)
    output: list[AccumulatorSpec] = list_for(len(members))
    for field, accumulator in members:
        give_way()
        output.append(parse_accumulator(field, accumulator, ctx))
    return output


@stage("$sortByCount", StageTraits(planned=True), since=OLDEST)
def parse_sort_by_count(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`<expression>`: a `$group` that counts, and a `$sort` by the count. 40147 to 40149 if it is not an expression."""
    if isinstance(argument, bytes):
        members = fields(argument)
        if not members or not members[0][0].startswith("$"):
            raise CommandError(
                40147, "the sortByCount field must be defined as a $-prefixed path or an expression inside an object"
            )
    elif isinstance(argument, str):
        if not argument.startswith("$"):
            raise CommandError(
                40148, "the sortByCount field must be defined as a $-prefixed path or an expression inside an object"
            )
    else:
        raise CommandError(40149, "the sortByCount field must be specified as a string or as an object")
    key = parse_expression(argument, ctx)
    return [GroupSpec(key, [_count(ctx)], ctx.collation), _sorted_by("count", -1, ctx)]


class BucketAutoSpec(StageSpec):
    def __init__(
        self,
        group_by: Expression,
        buckets: int,
        output: list[AccumulatorSpec],
        granularity: Granularity | None,
        collation: Collation | None,
    ) -> None:
        self.name = "$bucketAuto"
        self.collation: Final = collation
        self.keeps_metadata = False
        self.group_by: Final = group_by
        self.buckets: Final = buckets
        self.output: Final = output
        self.granularity: Final = granularity

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return BucketAutoSource(source, self, run)

    def describe(self) -> Value:
        output: list[tuple[str, Value]] = list_for(len(self.output))
        for accumulator in self.output:
            give_way()
            output.append((accumulator.field, accumulator.describe()))
        described: dict[str, Value] = {
            "groupBy": self.group_by.describe(),
            "buckets": self.buckets,
            "output": encode_fields(output),
        }
        if self.granularity is not None:
            described["granularity"] = self.granularity.name
        return encode({"$bucketAuto": described})


class BucketAutoSource(SortingSource):
    """Sorts by value, then fills the buckets in order: a bucket ends when it is full and the next value differs."""

    def __init__(self, source: DocumentSource, spec: BucketAutoSpec, run: RunContext) -> None:
        super().__init__(source, run, run.limits.bucket_auto_bytes)
        self._spec: Final = spec
        self._ev: Final = run.evaluation()
        self._limits: Final = run.limits
        self._share: Final = run.memory.share()
        self._count = 0
        self._output_count = 0  # buckets
        # The current bucket, if `_states` is not None.
        self._states: list[AccumulatorState] | None = None
        self._filled = 0
        self._low: Value = MISSING
        self._last_key = b""
        self._last: Value = MISSING  # the first of the values that compare equal to the latest one
        self._last_document = b""

    def output(self) -> list[bytes] | None:
        entries = self.sorter.take(BATCH_SIZE)
        if entries:
            return self._fill(entries)
        if self._states is None:
            return None
        granularity = self._spec.granularity
        last = self._value_of(self._last_document)
        return [self._end_bucket(last if granularity is None else granularity.round_up(last))]

    def statistics(self) -> dict[str, Value]:
        return self.sorter.spilled.describe()

    def add(self, batch: list[bytes]) -> None:
        granularity = self._spec.granularity
        sorter = self.sorter
        for doc in batch:
            value = self._value_of(doc)
            if granularity is not None:
                granularity.check(value)
            sorter.add(encode_value(value, False, self._spec.collation), doc)
        self._count += len(batch)

    def _value_of(self, doc: bytes) -> Value:
        self._ev.root = doc
        value = self._spec.group_by.evaluate(self._ev)
        return None if isinstance(value, Missing) else value

    def _fill(self, entries: list[SortEntry]) -> list[bytes]:
        spec = self._spec
        granularity = spec.granularity
        wanted = max(1, (self._count + spec.buckets // 2) // spec.buckets)  # rounded
        if self._count < spec.buckets:
            wanted = 1
        found: list[bytes] = []
        for key, _, doc, _, _, _ in entries:
            value = self._last
            if self._states is None or key != self._last_key:
                value = self._value_of(doc)
                if self._filled >= wanted and self._output_count < spec.buckets - 1 and self._states is not None:
                    if granularity is None:
                        found.append(self._end_bucket(value))
                        self._low = value
                    else:
                        high = granularity.round_up(self._last)
                        if compare_values(value, high) >= 0:
                            found.append(self._end_bucket(high))
                            self._low = high
            states = self._states
            if states is None:
                if self._output_count == 0:
                    self._low = value if granularity is None else granularity.round_down(value)
                # The bounds of a bucket are known only at its end, so `n` cannot depend on them.
                states = list_for(len(spec.output))
                for accumulator in spec.output:
                    give_way()
                    states.append(accumulator.start(EMPTY_DOCUMENT))
                self._states = states
            ev = self._ev
            ev.root = doc
            ev.held = 0
            begun: i64 = COPIED.bytes
            copied = begun
            gathered = 0
            for i in range(len(states)):
                give_way()
                argument = spec.output[i].argument.evaluate(ev)
                if COPIED.bytes != copied:
                    ev.hold(argument, COPIED.bytes - copied)
                    copied = COPIED.bytes
                states[i].add(argument)
                if states[i].grows():
                    limit = growth_limit(spec.output[i].name, self._limits)
                    size = states[i].size()
                    if size > limit:
                        raise accumulator_limit_exceeded(spec.output[i].name, limit)
                    gathered += size
                elif copied != begun:
                    gathered += states[i].size()
            if gathered and not self._share.need(gathered):
                raise self._share.memory.exceeded("$bucketAuto")
            self._filled += 1
            self._last_key = key
            self._last = value
            self._last_document = doc
        return found

    def _end_bucket(self, high: Value) -> bytes:
        states = self._states
        if states is None:
            raise AssertionError("no bucket")
        builder = DocumentBuilder()
        builder.append("_id", encode({"min": self._low, "max": high}))
        for i in range(len(states)):
            give_way()
            result = states[i].result()
            builder.append(self._spec.output[i].field, None if isinstance(result, Missing) else result)
        self._states = None
        self._share.release()
        self._filled = 0
        self._output_count += 1
        return builder.finish()


@stage("$bucketAuto", StageTraits(planned=True), since=OLDEST)
def parse_bucket_auto(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{groupBy, buckets, output, granularity}`. Codes 40239 to 40246, 40257 to 40261."""
    if not isinstance(argument, bytes):
        raise CommandError(
            40240, f"The argument to $bucketAuto must be an object, but found type: {type_of(argument)}."
        )
    group_by: Expression | None = None
    buckets = 0
    output: list[AccumulatorSpec] | None = None
    granularity: Granularity | None = None
    for key, value in fields(argument):
        if key == "groupBy":
            group_by = _group_by(value, ctx, 40239, "$bucketAuto")
        elif key == "buckets":
            if width(value) == 0:
                raise CommandError(
                    40241, f"The $bucketAuto 'buckets' field must be a numeric value, but found type: {type_of(value)}."
                )
            number = whole_int32(value)
            if number is None:
                raise CommandError(
                    40242,
                    f"The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found "
                    f"{render_result(value)}.",
                )
            if number <= 0:
                raise CommandError(
                    40243, f"The $bucketAuto 'buckets' field must be greater than 0, but found: {number}."
                )
            buckets = number
        elif key == "output":
            accumulators = _output(value, ctx, 40244, "$bucketAuto")
            output = list_for(len(accumulators))
            for spec in accumulators:
                give_way()
                output.append(ungrouped(spec, ctx))
        elif key == "granularity":
            if not isinstance(value, str):
                raise CommandError(
                    40261, f"The $bucketAuto 'granularity' field must be a string, but found type: {type_of(value)}."
                )
            granularity = granularity_of(value)
        else:
            raise CommandError(40245, f"Unrecognized option to $bucketAuto: {key}.")
    if group_by is None or buckets == 0:
        raise CommandError(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified.")
    if not output:
        output = [_count(ctx)]
    return [BucketAutoSpec(group_by, buckets, output, granularity, ctx.collation)]
