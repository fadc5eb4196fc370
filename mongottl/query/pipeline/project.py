"""`$project $unset`: documents reshaped by a projection."""

from typing import Final

from mongottl.document.annotated import copy_metadata
from mongottl.document.build import encode, encode_fields
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.utf8 import decode_text
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr.path import FieldExpression
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, MappedSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.projection import Projection, parse_projection
from mongottl.query.projection.nodes import EXCLUDE, INCLUDE, NODE, Entry
from mongottl.query.projection.plan import RootProjection, TreeProjection
from mongottl.versions import OLDEST


class ProjectSpec(StageSpec):
    """`$project` and `$unset`. name: the name in explain."""

    def __init__(self, name: str, specification: bytes, projection: Projection) -> None:
        self.name = name
        self.specification: Final = specification
        self.projection: Final = projection
        self.one_to_one = True
        self.shrinks = projection.is_simple

    def effect(self) -> Effect | None:
        return projection_effect(self.projection)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return ProjectSource(source, self.projection, run)

    def describe(self) -> Value:
        return encode({self.name: self.specification})


def projection_effect(projection: Projection) -> Effect | None:
    if isinstance(projection, RootProjection):
        names: list[str] = []
        for name in projection.names:
            give_way()
            names.append(decode_text(name))
        return Effect(names, exclusive=projection.inclusive)
    if not isinstance(projection, TreeProjection):
        return None
    paths: list[str] = []
    renames: dict[str, str] = {}
    inclusive = projection.kind == "inclusion"
    for entry in projection.root.entries:
        if entry.kind == NODE:
            _collect_leaves(entry, entry.name, INCLUDE if inclusive else EXCLUDE, paths)
        elif entry.kind == INCLUDE if inclusive else entry.kind != INCLUDE:
            paths.append(entry.name)
        if isinstance(entry.expression, FieldExpression):
            renames[entry.name] = entry.expression.name
    return Effect(paths, renames, exclusive=inclusive)


def _collect_leaves(entry: Entry, path: str, kind: int, paths: list[str]) -> None:
    """Collects the paths that are included or excluded below a field; the whole field if something is computed
    there."""
    node = entry.node
    if node is None:
        return
    if node.has_computed:
        if kind == EXCLUDE:
            paths.append(path)
        return
    for inner in node.entries:
        below = f"{path}.{inner.name}"
        if inner.kind == NODE:
            _collect_leaves(inner, below, kind, paths)
        elif inner.kind == kind:
            paths.append(below)


class ProjectSource(MappedSource):
    def __init__(self, source: DocumentSource, projection: Projection, run: RunContext) -> None:
        super().__init__(source)
        self._keeps_metadata: Final = bool(run.metadata)
        self.projection: Final = projection

    def mapped(self, document: bytes) -> bytes | None:
        shaped = self.projection.apply(document, None)
        return copy_metadata(document, shaped) if self._keeps_metadata else shaped


@stage("$project", StageTraits(streaming=True, in_update=True, planned=True, in_change_stream=True), since=OLDEST)
def parse_project(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$project: <projection>}`. 15969 if it is not a document, 51272 if it is empty."""
    if not isinstance(argument, bytes):
        raise CommandError(15969, "$project specification must be an object")
    if len(argument) == 5:
        raise CommandError(
            51272, "Invalid $project :: caused by :: projection specification must have at least one field"
        )
    return [ProjectSpec("$project", argument, parse_projection(argument, ctx, for_find=False))]


@stage("$unset", StageTraits(streaming=True, in_update=True, in_change_stream=True), since=(4, 2))
def parse_unset(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$unset: <path> | [<path>, …]}`. 31002, 31119, 31120 for another argument, and the errors of projections."""
    paths: list[tuple[str, Value]] = []
    if isinstance(argument, list):
        paths = list_for(len(argument))
        if not argument:
            raise CommandError(31119, "$unset specification must be a string or an array with at least one field")
        for path in argument:
            give_way()
            if not isinstance(path, str):
                raise CommandError(
                    31120, "$unset specification must be a string or an array containing only string values"
                )
            paths.append((path, False))
        for path, _ in paths:
            check_no_null_byte(path)
    elif isinstance(argument, str):
        check_no_null_byte(argument)
        paths.append((argument, False))
    else:
        raise CommandError(31002, "$unset specification must be a string or an array")
    specification = encode_fields(paths)
    return [ProjectSpec("$unset", specification, parse_projection(specification, ctx, for_find=False))]


def check_no_null_byte(path: str) -> None:
    """9527900 for a path with a null byte, which no field name can contain."""
    give_way()
    if "\0" in path:
        raise CommandError(9527900, "a field path must not contain a null byte")
