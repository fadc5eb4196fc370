"""`$project $unset`: documents reshaped by a projection."""

from typing import Final

from mongottl.document.build import encode, encode_fields
from mongottl.document.types import Value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.pipeline.source import DocumentSource, RunContext, TransformSource, carry_all
from mongottl.query.pipeline.stage import StageSpec, stage
from mongottl.query.projection import Projection, parse_projection


class ProjectSpec(StageSpec):
    """`$project`, and what is short for one. name: as explain calls it."""

    def __init__(self, name: str, specification: bytes, projection: Projection) -> None:
        self.name = name
        self.specification: Final = specification
        self.projection: Final = projection

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return ProjectSource(source, self.projection, run)

    def describe(self) -> Value:
        return encode({self.name: self.specification})


class ProjectSource(TransformSource):
    def __init__(self, source: DocumentSource, projection: Projection, run: RunContext) -> None:
        super().__init__(source)
        self._carries: Final = bool(run.metadata)
        self.projection: Final = projection

    def next_batch(self) -> list[bytes] | None:
        batch = self.source.next_batch()
        if batch is None:
            return None
        projection = self.projection
        shaped: list[bytes] = []
        for doc in batch:
            shaped.append(projection.apply(doc, None))
        return carry_all(batch, shaped) if self._carries else shaped


@stage("$project")
def parse_project(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$project: <projection>}`. 15969 if it is no document, 51272 if it is empty."""
    if not isinstance(argument, bytes):
        raise CommandError(15969, "$project specification must be an object")
    if len(argument) == 5:
        raise CommandError(
            51272, "Invalid $project :: caused by :: projection specification must have at least one field"
        )
    return [ProjectSpec("$project", argument, parse_projection(argument, ctx, for_find=False))]


@stage("$unset")
def parse_unset(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$unset: <path> | [<path>, …]}`. 31002, 31119, 31120 for another argument, and the errors of projections."""
    paths: list[tuple[str, Value]] = []
    if isinstance(argument, list):
        if not argument:
            raise CommandError(31119, "$unset specification must be a string or an array with at least one field")
        for path in argument:
            if not isinstance(path, str):
                raise CommandError(
                    31120, "$unset specification must be a string or an array containing only string values"
                )
            paths.append((path, False))
        check_no_null_bytes([path for path, _ in paths])
    elif isinstance(argument, str):
        check_no_null_bytes([argument])
        paths.append((argument, False))
    else:
        raise CommandError(31002, "$unset specification must be a string or an array")
    specification = encode_fields(paths)
    return [ProjectSpec("$unset", specification, parse_projection(specification, ctx, for_find=False))]


def check_no_null_bytes(paths: list[str]) -> None:
    """9527900 for a path that no field name could spell."""
    for path in paths:
        if "\0" in path:
            raise CommandError(9527900, "a field path must not contain a null byte")
