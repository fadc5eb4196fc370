"""What a client must be allowed to do for a pipeline: on its own collection, and on those that its stages use.

It stands apart from `access` because it imports the stages, which a server needs first when a pipeline comes.
"""

from collections.abc import Sequence

from mongottl.commands.access import collection_needs
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.query.pipeline import traits_of
from mongottl.query.pipeline.stage import MAX_STAGES
from mongottl.security.privileges import CLUSTER, Need, Resource, collection_resource, database_resource


def view_needs(op: OperationContext, view: str, source: str | None, pipeline: Sequence[Value] | None) -> list[Need]:
    """What defining a view needs: who may read the view must be allowed to read what it shows."""
    if source is None or not op.may(collection_resource(op.database, view), "find"):
        return []
    return pipeline_needs(op.database, source, pipeline or ())


def pipeline_needs(database: str, collection: Value, stages: Sequence[Value]) -> list[Need]:
    """What a pipeline needs: on its own collection, and on those that its stages read and write.

    collection: its name; another value if the pipeline reads none. What is no valid stage needs nothing, since it is
    refused; nor does one beyond those that a pipeline may have.
    """
    resource = collection_resource(database, collection) if isinstance(collection, str) else database_resource(database)
    first = stages[0] if stages else None
    actions = traits_of(first_field_name(first)).actions if isinstance(first, bytes) else ("find",)
    needs = [Need(resource, action) for action in actions]
    _add_stage_needs(database, resource, stages, needs)
    return needs


def _add_stage_needs(database: str, resource: Resource, stages: Sequence[Value], needs: list[Need]) -> None:
    for stage in stages[:MAX_STAGES]:
        if not isinstance(stage, bytes):
            continue
        for name, argument in fields(stage):
            traits = traits_of(name)
            given = argument if isinstance(argument, bytes) else None
            field = traits.cluster_action_field
            if traits.cluster_action and (not field or (given is not None and get_value(given, field) is True)):
                needs.append(Need(CLUSTER, traits.cluster_action))
            if traits.action_without is not None:
                optional, action = traits.action_without
                if given is None or get_value(given, optional) is MISSING:
                    needs.append(Need(CLUSTER, action))
            if traits.target is not None:
                target = traits.target(database, argument)
                if target is not None:
                    needs.extend(collection_needs(target[0], target[1], *target[2]))
            if traits.joined_field:
                joined = argument if given is None else get_value(given, traits.joined_field)
                inner = None if given is None else get_value(given, "pipeline")
                needs.extend(_joined_needs(database, joined, inner if isinstance(inner, list) else []))
            elif name == "$facet" and given is not None:
                for _, inner in fields(given):
                    if isinstance(inner, list):
                        _add_stage_needs(database, resource, inner, needs)
            elif traits.hybrid and given is not None:
                for inner in _inputs(given):
                    _add_stage_needs(database, resource, inner, needs)


def _joined_needs(database: str, collection: Value, stages: list[Value]) -> list[Need]:
    """What a stage needs that reads another collection, through a pipeline if it has one."""
    if isinstance(collection, bytes):  # `{db, coll}`, which only sharded clusters know
        other = get_value(collection, "db")
        database = other if isinstance(other, str) else database
        collection = get_value(collection, "coll")
    return pipeline_needs(database, collection, stages)


def _inputs(argument: bytes) -> list[list[Value]]:
    """The pipelines in `{input: {pipelines: {<name>: [...]}}}`."""
    given = get_value(argument, "input")
    pipelines = get_value(given, "pipelines") if isinstance(given, bytes) else None
    named = fields(pipelines) if isinstance(pipelines, bytes) else []
    return [value for _, value in named if isinstance(value, list)]
