"""explain of a find in the dialect `cosmos`: executes it with a meter; `explain` has the reply's form."""

from collections.abc import Callable
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.commands.dialect_hooks import PlannedFind
from mongottl.commands.registry import Reply
from mongottl.dialect.cosmos.explain import ExecutedFind, explained_find
from mongottl.dialect.cosmos.metering import MeteringRecoveryUnit
from mongottl.dialect.cosmos.request_meter import RequestMeter
from mongottl.dialect.cosmos.served_sorts import indexes_path
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.cost import OperationCost
from mongottl.exec.plan.key_lookup import key_lookup
from mongottl.exec.results.plan_summary import total
from mongottl.exec.state.request_units import HUNDREDTHS
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import ListExpression, NotExpression, PathExpression
from mongottl.versions import parse_version

_ID: Final = "_id"
_MS_PER_S: Final = 1000.0


def explain_find(
    op: OperationContext, name: str, filter: bytes, command: bytes, plan_find: Callable[[], PlannedFind]
) -> Reply:
    """Executes a find to its end with a meter; the reply of explain. Arguments: see `CommandHooks.explain_find`."""
    meter = RequestMeter(op.now_s)
    op.cost = OperationCost(meter)
    op.recovery_unit = MeteringRecoveryUnit(op.service, op.recovery_unit, meter)
    plan, match, described, collection = plan_find()
    clock = op.service.clock
    start_s = clock.monotonic_s()
    returned = returned_bytes = 0
    stage = plan.open()
    try:
        batch = stage.next_batch(op)
        while batch is not None:
            returned += len(batch)
            returned_bytes += sum([len(record[1]) for record in batch])
            op.check_interrupt()
            op.give_way()
            batch = stage.next_batch(op)
        loaded = total(stage.node(), "docsExamined")
    finally:
        stage.close()
    paths = list(dict.fromkeys(_paths(match)))
    indexed = [path for path in paths if _has_index(collection, path)]
    executed = ExecutedFind(
        op.database,
        name,
        command,
        filter,
        described,
        key_lookup(collection, match),
        indexed,
        [path for path in paths if path not in indexed],
        loaded,
        meter.loaded_bytes,
        returned,
        returned_bytes,
        (clock.monotonic_s() - start_s) * _MS_PER_S,
        meter.total(returned_bytes) / HUNDREDTHS,
    )
    return explained_find(executed, parse_version(op.service.config.announced_version()))


def _paths(match: MatchExpression) -> list[str]:
    """The paths of a filter's conditions, in their order."""
    if isinstance(match, ListExpression):
        return [path for child in match.children for path in _paths(child)]
    if isinstance(match, NotExpression):
        return _paths(match.child)
    return [match.path.dotted] if isinstance(match, PathExpression) else []


def _has_index(collection: Collection | None, path: str) -> bool:
    """Whether an index has the path, alone or with others: for filters Microsoft's page says it makes no difference."""
    if collection is None:
        return path == _ID
    return any(index.ready and indexes_path(index.descriptor, path) for index in collection.listed_indexes)
