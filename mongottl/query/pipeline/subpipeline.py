"""Nested pipelines on other collections: target namespace, checks, opening."""

from typing import Final

from mongottl.document.bson_field import unknown_field, wrong_type
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.match import parse_match
from mongottl.query.pipeline.basic import MatchSource, MatchSpec
from mongottl.query.pipeline.optimise import optimise
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.pipeline.stage import (
    StageSpec,
    check_length,
    open_pipeline,
    parse_pipeline,
    requested_by,
    traits_of,
)


def open_on_collection(
    specs: list[StageSpec], ctx: ParseContext, run: RunContext, match: bytes | None
) -> DocumentSource:
    """Opens a pipeline on the collection of its context; a first `$match` becomes part of the query."""
    run.metadata |= requested_by(specs)
    specs = optimise(specs, ctx)
    if specs and specs[0].first_only:
        first_source = specs[0].open(EmptySource(), run)
        if match is not None:
            first_source = MatchSource(first_source, parse_match(match, ctx))
        return open_pipeline(specs[1:], first_source, run)
    if specs and isinstance(specs[0], MatchSpec):
        first = specs[0].filter
        match = first if match is None else encode({"$and": [match, first]})
        specs = specs[1:]
    database, _, collection = ctx.namespace.partition(".")
    return open_pipeline(specs, run.open_collection(database, collection, match, ctx), run)


class EmptySource(DocumentSource):
    def next_batch(self) -> list[bytes] | None:
        return None


def target_namespace(stage_name: str, value: Value, ctx: ParseContext) -> tuple[str, str]:
    """(database, collection) of a field `from` or `coll`, which names a collection of the same database."""
    if isinstance(value, bytes):
        for key, part in fields(value):
            if key not in ("db", "coll"):
                raise unknown_field(f"{stage_name}.from.{key}")
            if not isinstance(part, str):
                raise wrong_type(f"{stage_name}.from.{key}", part, "string")
    if not isinstance(value, str):
        raise CommandError(
            ErrorCode.FailedToParse, f"{stage_name} argument 'from' must be a string, is type {type_of(value)}"
        )
    if value == "" or "\0" in value or value.startswith("."):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid collection name: '{value}'")
    return ctx.database, value


_MAX_NESTING: Final = 20  # pipelines inside pipelines


def parse_sub_pipeline(value: Value, name: str, code: int, ctx: ParseContext) -> list[StageSpec]:
    """Parses a nested pipeline. code: error for `$out` and `$merge`. 232 for more than 20 levels of nesting."""
    if not isinstance(value, list):
        raise wrong_type(f"{name}.pipeline", value, "array")
    check_length(value)
    if _nesting(value) > _MAX_NESTING:
        raise CommandError(232, f"Maximum number of nested sub-pipelines exceeded. Limit is {_MAX_NESTING}")
    for item in value:
        if not isinstance(item, bytes):
            raise CommandError(ErrorCode.TypeMismatch, "Each element of the 'pipeline' array must be an object")
        stage_name = first_field_name(item)
        traits = traits_of(stage_name)
        if not traits.nested:
            raise CommandError(code, f"{stage_name} is not allowed within a {name}'s sub-pipeline")
        if traits.server_wide:
            raise CommandError(ErrorCode.InvalidNamespace, f"{stage_name} must be run against the 'admin' database")
    return parse_pipeline(value, ctx)


def _nesting(stages: list[Value]) -> int:
    """The levels of nested pipelines, this one included."""
    deepest = 0
    for item in stages:
        if isinstance(item, bytes) and traits_of(first_field_name(item)).has_pipeline:
            argument = get_value(item, first_field_name(item))
            inner = get_value(argument, "pipeline") if isinstance(argument, bytes) else MISSING
            if isinstance(inner, list):
                check_length(inner)
                deepest = max(deepest, _nesting(inner))
    return deepest + 1


def brings_documents(pipeline: Value) -> bool:
    if not isinstance(pipeline, list) or not pipeline:
        return False
    first = pipeline[0]
    return isinstance(first, bytes) and first_field_name(first) == "$documents"
