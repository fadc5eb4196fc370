"""`$match $skip $limit $count`: stages that filter and count."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode
from mongottl.document.numbers import whole
from mongottl.document.render import render_value
from mongottl.document.types import INT64_MAX, Int64, Value, integer
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.match.tree import always_true
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST


class MatchSpec(StageSpec):
    """`$match`.

    filter: the original document, which the planner parses again. expression: the parsed filter.
    """

    def __init__(self, filter: bytes, expression: MatchExpression) -> None:
        self.name = "$match"
        self.shrinks = True
        self.filter: Final = filter
        self.expression: Final = expression
        self.no_op = always_true(expression)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return MatchSource(source, self.expression)

    def describe(self) -> Value:
        return encode({"$match": self.filter})


class MatchSource(TransformSource):
    def __init__(self, source: DocumentSource, expression: MatchExpression) -> None:
        super().__init__(source)
        self.expression: Final = expression

    def next_batch(self) -> list[bytes] | None:
        batch = self.source.next_batch()
        if batch is None:
            return None
        expression = self.expression
        kept: list[bytes] = []
        for doc in batch:
            if expression.matches(doc):
                kept.append(doc)
        return kept


@stage("$match", StageTraits(streaming=True, selects=True, in_change_stream=True), since=OLDEST)
def parse_match_stage(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$match: <filter>}`. 15959 if the filter is not a document."""
    if not isinstance(argument, bytes):
        raise CommandError(15959, "the match filter must be an expression in an object")
    return [MatchSpec(argument, parse_match(argument, ctx))]


class SkipSpec(StageSpec):
    def __init__(self, count: int) -> None:
        self.name = "$skip"
        self.shrinks = True
        self.count: Final = count
        self.no_op = count == 0

    def coalesced(self, following: StageSpec) -> StageSpec | None:
        if isinstance(following, SkipSpec) and self.count + following.count <= INT64_MAX:
            return SkipSpec(self.count + following.count)
        return None

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return SkipSource(source, self.count)

    def describe(self) -> Value:
        return encode({"$skip": Int64(self.count)})


class SkipSource(TransformSource):
    def __init__(self, source: DocumentSource, count: int) -> None:
        super().__init__(source)
        self._left: i64 = count

    def next_batch(self) -> list[bytes] | None:
        batch = self.source.next_batch()
        left = self._left
        if batch is None or left == 0:
            return batch
        size: i64 = len(batch)
        if size <= left:
            self._left = left - size
            return []
        self._left = 0
        return batch[left:]


@stage("$skip", StageTraits(streaming=True, selects=True), since=OLDEST)
def parse_skip(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$skip: n}`. 5107200 unless n is a whole number from 0 to the largest int64."""
    count = whole(argument)
    if count is None or count < 0:
        raise CommandError(
            5107200,
            f"invalid argument to $skip stage: Expected a non-negative number in: $skip: {render_value(argument)}",
        )
    return [SkipSpec(count)]


class LimitSpec(StageSpec):
    def __init__(self, count: int) -> None:
        self.name = "$limit"
        self.shrinks = True
        self.count: Final = count

    def coalesced(self, following: StageSpec) -> StageSpec | None:
        if isinstance(following, LimitSpec):
            return self if self.count <= following.count else following
        return None

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return LimitSource(source, self.count)

    def describe(self) -> Value:
        return encode({"$limit": Int64(self.count)})


class LimitSource(TransformSource):
    def __init__(self, source: DocumentSource, count: int) -> None:
        super().__init__(source)
        self._left: i64 = count

    def next_batch(self) -> list[bytes] | None:
        left = self._left
        if left == 0:
            return None
        batch = self.source.next_batch()
        if batch is None:
            return None
        size: i64 = len(batch)
        if size > left:
            batch = batch[:left]
            size = left
        self._left = left - size
        if self._left == 0:
            self.source.close()
        return batch


@stage("$limit", StageTraits(streaming=True, selects=True), since=OLDEST)
def parse_limit(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$limit: n}`. 5107201 unless n is a whole number, 15958 for zero."""
    count = whole(argument)
    if count is None or count < 0:
        raise CommandError(
            5107201,
            f"invalid argument to $limit stage: Expected a non-negative number in: $limit: {render_value(argument)}",
        )
    if count == 0:
        raise CommandError(15958, "the limit must be positive")
    return [LimitSpec(count)]


class CountSpec(StageSpec):
    def __init__(self, field: str) -> None:
        self.name = "$count"
        self.keeps_metadata = False
        self.field: Final = field

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return CountSource(source, self.field)

    def describe(self) -> Value:
        return encode({"$count": self.field})


class CountSource(TransformSource):
    """One document with the number of input documents; no document if there are none."""

    def __init__(self, source: DocumentSource, field: str) -> None:
        super().__init__(source)
        self._field: Final = field
        self._count = 0
        self._done = False

    def next_batch(self) -> list[bytes] | None:
        if self._done:
            return None
        batch = self.source.next_batch()
        if batch is not None:
            self._count += len(batch)
            return []
        self._done = True
        if self._count == 0:
            return None
        return [encode({self._field: integer(self._count)})]


@stage("$count", StageTraits(planned=True), since=OLDEST)
def parse_count(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$count: <field>}`. 40156 to 40160 for an invalid field name, 9039800 for `_id`."""
    if not isinstance(argument, str):
        raise CommandError(40156, "the count field must be a non-empty string")
    if argument == "":
        raise CommandError(40157, "the count field must be a non-empty string")
    if argument.startswith("$"):
        raise CommandError(40158, "the count field cannot be a $-prefixed path")
    if "\0" in argument:
        raise CommandError(40159, "the count field cannot contain a null byte")
    if "." in argument:
        raise CommandError(40160, "the count field cannot contain '.'")
    if argument == "_id":
        raise CommandError(9039800, "the count field cannot be '_id'")
    return [CountSpec(argument)]
