"""`$unionWith`: appends the documents of another collection."""

from typing import Final

from mongottl.document.bson_field import check_known, read_fields
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.match import parse_match
from mongottl.query.pipeline.basic import MatchSpec
from mongottl.query.pipeline.effect import KEEPS_ALL, Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.pipeline.subpipeline import (
    brings_documents,
    open_on_collection,
    parse_sub_pipeline,
    target_namespace,
)
from mongottl.query.spill import SpillSpace


class UnionSpec(StageSpec):
    def __init__(self, database: str, collection: str, pipeline: list[StageSpec], ctx: ParseContext) -> None:
        self.name = "$unionWith"
        self.database: Final = database
        self.collection: Final = collection
        self.pipeline: Final = pipeline
        self.ctx: Final = ctx
        self.shrinks = all(spec.shrinks for spec in pipeline)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return UnionSource(source, self, run)

    def describe(self) -> Value:
        stages: list[Value] = [spec.describe() for spec in self.pipeline]
        return encode({"$unionWith": {"coll": self.collection, "pipeline": stages}})

    def sub_pipelines(self) -> list[list[StageSpec]]:
        return [self.pipeline]

    def effect(self) -> Effect | None:
        return KEEPS_ALL

    def narrowed(self, filter: bytes) -> StageSpec:
        match_stage = MatchSpec(filter, parse_match(filter, self.ctx))
        narrowed = UnionSpec(self.database, self.collection, [*self.pipeline, match_stage], self.ctx)
        narrowed.requested = self.requested
        return narrowed


class UnionSource(TransformSource):
    def __init__(self, source: DocumentSource, spec: UnionSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._second: DocumentSource | None = None

    def next_batch(self) -> list[bytes] | None:
        second = self._second
        if second is not None:
            return second.next_batch()
        batch = self.source.next_batch()
        if batch is not None:
            return batch
        self._second = open_on_collection(self._spec.pipeline, self._spec.ctx, self._run, None)
        return []

    def held_bytes(self) -> int:
        return self.source.held_bytes() if self._second is None else self._second.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self.source.spill(space) if self._second is None else self._second.spill(space)

    def close(self) -> None:
        self.source.close()
        if self._second is not None:
            self._second.close()


@stage(
    "$unionWith",
    StageTraits(streaming=True, joined_field="coll", has_pipeline=True, in_transaction=False),
    since=(4, 4),
)
def parse_union_with(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`<collection>` or `{coll, pipeline}`. FailedToParse for another shape, 31441 for `$out` inside."""
    collection: Value = argument
    pipeline: Value = []
    if isinstance(argument, bytes):
        parameters = read_fields("$unionWith", argument)
        check_known("$unionWith", parameters, ["coll", "pipeline"])
        if "coll" not in parameters and not brings_documents(parameters.get("pipeline", MISSING)):
            raise CommandError(
                ErrorCode.FailedToParse, "$unionWith needs 'coll' or a pipeline that begins with $documents"
            )
        collection = parameters.get("coll", "$cmd.aggregate")
        pipeline = parameters.get("pipeline", [])
    elif not isinstance(argument, str):
        raise CommandError(
            ErrorCode.FailedToParse,
            f"the $unionWith stage specification must be an object or string, but found {type_of(argument)}",
        )
    database, name = target_namespace("$unionWith", collection, ctx)
    inner = ParseContext(
        ctx.now_ms, ctx.let, f"{database}.{name}", collation=ctx.collation, cluster_time=ctx.cluster_time
    ).inheriting(ctx)
    return [UnionSpec(database, name, parse_sub_pipeline(pipeline, "$unionWith", 31441, inner), inner)]
