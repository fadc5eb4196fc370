"""Resolving views, checking and storing their definitions.

    v2: {viewOn: "v1", pipeline: [B]}     v1: {viewOn: "c", pipeline: [A]}     v2 resolves to c with [A, B]

A definition is checked when it is created. The collections and views that it names may change afterwards, so each read
resolves the view again. Source: MongoDB's "Views" pages.
"""

from functools import partial
from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.catalog.view import SYSTEM_VIEWS, View
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.interrupt import UndividedEvaluation, give_way
from mongottl.document.types import Value
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.writes import delete_batch, insert_document, update_record
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import check_length, parse_pipeline, traits_of

# Maximum depth of views on views.
MAX_VIEW_DEPTH: Final = 20
# Maximum size of the pipelines of a view and the views below it together, as in mongod.
MAX_PIPELINE_BYTES: Final = 16_000_000


class ResolvedView:
    """The underlying collection of a view, which need not exist, and all stages of the views on it, as written.

    collection: its name; the name of a view if the pipeline begins with `$collStats`.
    """

    def __init__(self, database: str, collection: str, pipeline: list[Value], collation: bytes | None) -> None:
        self.database = database
        self.collection = collection
        self.namespace = f"{database}.{collection}"
        self.pipeline = pipeline
        self.collation = collation


def view_collation(view: View) -> Collation | None:
    """The collation of a view's stages and of all queries on it."""
    return None if view.collation is None else parse_collation(view.collation)


def begins_with_coll_stats(stages: list[Value]) -> bool:
    """Whether a pipeline begins with `$collStats`, which applies to a view itself, so that it is not resolved."""
    return bool(stages) and isinstance(stages[0], bytes) and first_field_name(stages[0]) == "$collStats"


def resolve_view(catalog: Catalog, view: View) -> ResolvedView:
    """Resolves a view to a collection and a pipeline. One that begins with `$collStats` may resolve to a view.

    ViewDepthLimitExceeded (165) beyond MAX_VIEW_DEPTH or for a cycle. `create` refuses both, but clients can write both
    into `system.views`.
    """
    pipeline = view.pipeline
    below = catalog.find(view.database, view.view_on)
    name = view.view_on
    depth = 1
    while isinstance(below, View) and not begins_with_coll_stats(pipeline):
        depth += 1
        if depth > MAX_VIEW_DEPTH:
            raise CommandError(
                ErrorCode.ViewDepthLimitExceeded,
                f"View depth too deep or view cycle detected; maximum depth is {MAX_VIEW_DEPTH}",
            )
        pipeline = below.pipeline + pipeline
        name = below.view_on
        below = catalog.find(below.database, below.view_on)
    return ResolvedView(view.database, name, pipeline, view.collation)


def collection_below(catalog: Catalog, resolved: ResolvedView) -> Collection | None:
    """The collection that a resolved view reads; None if there is none, or if its stages read none."""
    if begins_with_coll_stats(resolved.pipeline):
        found = catalog.find(resolved.database, resolved.collection)
        return found if isinstance(found, Collection) else None
    return catalog.lookup(resolved.database, resolved.collection, time_series=True)


def add_below(catalog: Catalog, namespaces: set[str]) -> None:
    """Adds the collections and views that the views among the namespaces read, by their stages too, and so on."""
    waiting = [*namespaces]
    while waiting:
        database, _, name = waiting.pop().partition(".")
        view = catalog.find(database, name)
        if isinstance(view, View):
            read = {f"{database}.{other}" for other in (view.view_on, *_collections_named(view.pipeline))} - namespaces
            namespaces |= read
            waiting += read


def check_stages(op: OperationContext, view: View) -> None:
    """Checks the pipeline of a view by itself. It may be long: others run meanwhile, where they may.

    The errors of `parse_pipeline`; InvalidNamespace (73) if it begins with `$documents`, which reads no collection;
    OptionNotSupportedOnView (167) for `$out` or `$merge` in it.
    """
    op.compute(partial(_check_stages, op, view))


def _check_stages(op: OperationContext, view: View) -> None:
    check_length(view.pipeline)
    for value in view.pipeline:
        if isinstance(value, bytes) and not traits_of(first_field_name(value)).nested:
            raise CommandError(
                ErrorCode.OptionNotSupportedOnView,
                f"The aggregation stage {first_field_name(value)} of the view definition is not allowed",
            )
    if view.pipeline and isinstance(view.pipeline[0], bytes) and first_field_name(view.pipeline[0]) == "$documents":
        raise CommandError(ErrorCode.InvalidNamespace, "$documents is only valid with {aggregate: 1}, not in a view")
    context = ParseContext(op.now_ms, None, f"{view.database}.{view.view_on}", collation=view_collation(view))
    context.open_scripts = op.open_scripts
    context.features = op.service.features
    parse_pipeline(view.pipeline, context)


class _ViewGraph:
    """The views of a database including the checked one, and which view reads which.

    OptionNotSupportedOnView (167) for a collation that a view below or above does not have; GraphContainsCycle (5),
    ViewDepthLimitExceeded (165), ViewPipelineMaxSizeExceeded (195).
    """

    def __init__(self, catalog: Catalog, view: View) -> None:
        self._view = view
        self._views = {other.name: other for other in catalog.views(view.database)}
        self._views[view.name] = view
        self._below: dict[str, list[View]] = {}
        self._above: dict[str, list[View]] = {}
        for other in self._views.values():
            give_way()
            self._below[other.name] = []
            for name in {other.view_on, *_collections_named(other.pipeline)}:
                below = self._views.get(name)
                if below is not None:
                    self._below[other.name].append(below)
                    self._above.setdefault(name, []).append(other)

    def check(self) -> None:
        view = self._view
        depth_below, size_below = self._extent(view, self._below, set(), {})
        depth_above, size_above = self._extent(view, self._above, set(), {})
        if depth_below + depth_above - 1 > MAX_VIEW_DEPTH:
            raise CommandError(
                ErrorCode.ViewDepthLimitExceeded, f"View depth limit exceeded; maximum depth is {MAX_VIEW_DEPTH}"
            )
        if size_below + size_above - _size_of(view) > MAX_PIPELINE_BYTES:
            raise CommandError(
                ErrorCode.ViewPipelineMaxSizeExceeded,
                f"View pipeline exceeds maximum size; maximum size is {MAX_PIPELINE_BYTES}",
            )
        for other in [*self._below[view.name], *self._above.get(view.name, [])]:
            if not _same_collation(view.collation, other.collation):
                raise CommandError(
                    ErrorCode.OptionNotSupportedOnView,
                    f"View {view.name} has conflicting collation with view {other.namespace}",
                )

    def _extent(
        self, view: View, edges: dict[str, list[View]], path: set[str], known: dict[str, tuple[int, int]]
    ) -> tuple[int, int]:
        """The length of the longest chain of views along `edges`, and the largest total size of their pipelines."""
        if view.name in known:
            return known[view.name]
        if view.name in path:
            raise CommandError(ErrorCode.GraphContainsCycle, f"View cycle detected: {view.namespace} stands on itself")
        depth = size = 0
        path.add(view.name)
        for other in edges.get(view.name, []):
            other_depth, other_size = self._extent(other, edges, path, known)
            depth = max(depth, other_depth)
            size = max(size, other_size)
        path.discard(view.name)
        known[view.name] = (depth + 1, size + _size_of(view))
        return known[view.name]


def _size_of(view: View) -> int:
    """Bytes of the stages of a view."""
    return sum(len(stage) for stage in view.pipeline if isinstance(stage, bytes))


def _same_collation(first: bytes | None, second: bytes | None) -> bool:
    if first is None or second is None:
        return first is second
    return compare_values(first, second) == 0


def _collections_named(stages: list[Value]) -> set[str]:
    """The other collections that the stages read, also in nested pipelines."""
    names: set[str] = set()
    for stage in stages:
        if not isinstance(stage, bytes):
            continue
        name = first_field_name(stage)
        argument = get_value(stage, name)
        if name == "$unionWith" and isinstance(argument, str):
            names.add(argument)
        if not isinstance(argument, bytes):
            continue
        joined_field = traits_of(name).joined_field
        if joined_field:
            other = get_value(argument, joined_field)
            if isinstance(other, str):
                names.add(other)
            inner = get_value(argument, "pipeline")
            if isinstance(inner, list):
                names |= _collections_named(inner)
        elif name == "$facet":
            for _, inner in fields(argument):
                if isinstance(inner, list):
                    names |= _collections_named(inner)
    return names


def define_view(op: OperationContext, view: View, checked: bool = False) -> None:
    """Creates a view or replaces its definition. Errors are those of `check_stages` and `_ViewGraph`.

    checked: whether its stages have been checked, before the undivided block in which this is called.
    """
    if not checked:
        check_stages(op, view)
    with UndividedEvaluation():  # there may be a hundred thousand
        _ViewGraph(op.catalog, view).check()
    catalog = op.catalog
    definitions = catalog.lookup(view.database, SYSTEM_VIEWS)
    if definitions is None:
        catalog.check_new_name(view.database, SYSTEM_VIEWS)
        nodes = op.service.engine.shared_nodes
        has_committed = nodes is not None and nodes.has_committed
        definitions = catalog.create_collection(view.database, SYSTEM_VIEWS)
        if nodes is not None and not has_committed:
            # The command may be carried out again if another server has changed the catalog before the view is stored.
            nodes.disregard_commits()
    known = catalog.view_record(view.database, view.name)
    if known is None:
        insert_document(op, definitions, view.definition())
    else:
        update_record(op, definitions, known, view.definition(), by_server=True)


def drop_view(op: OperationContext, view: View) -> None:
    """Drops a view. Views and cursors that read from it stay."""
    definitions = op.catalog.lookup(view.database, SYSTEM_VIEWS)
    known = op.catalog.view_record(view.database, view.name)
    if definitions is not None and known is not None:
        delete_batch(op, definitions, [known])
