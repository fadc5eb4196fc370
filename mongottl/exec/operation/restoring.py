"""Saving the state of a server and restoring it: for tests.

    save_state(service, "fixtures")          at once, whatever there is stored
    restore_state(service, "fixtures")       in steps:
        1. new commands wait                 `ServiceContext.restoring`
        2. what runs ends                    operations with Interrupted (11601), the reaper between two batches
        3. the state is put in place         in one step
        4. the commands that waited begin

Nothing that has read the old state can therefore write to, or answer from, the new one. Every field of `ServiceContext`
is in one of these tables; a test compares them with its source:

    RESTORED   is what it was when the state was saved
    ENDED      belongs to the state that is left: it ends with errors that say why, or starts empty
    KEPT       goes on: connections, counters, and what must not go back, such as the cluster time

What of it is seen by clients:

- Cursors: QueryPlanKilled (175). Change streams: ChangeStreamHistoryLost (286), also when resumed with an earlier
  token, since events are the history of the state that is left. The oplog begins again.
- Transactions: NoSuchTransaction (251) with the label TransientTransactionError, also for a repeated commit of one that
  was committed since the state was saved, or before.
- A retryable write that is sent again is carried out again; numbers of earlier writes are refused as before (225).
- A clock that was frozen stands where it stood. One that ran runs with the same offset to the machine's: tests that
  want stored documents to be as old as they were freeze it first.
- `$clusterTime` and `operationTime` go on ascending, as drivers require.
- Record ids, and therefore the natural order, are given as if the state had not been left. Numbers of collections and
  indexes are not given twice.
"""

from dataclasses import replace
from typing import Final

from mongottl.clock import VirtualClock
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.transaction_unit import abort
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.saved_states import SavedServer, ServerSettings
from mongottl.oplog.change import no_operation
from mongottl.oplog.numbered import NumberedOplog
from mongottl.storage.interface import WriteUnitOfWork

# Attributes of `ServiceContext` that are values, and are restored as such.
PLAIN_SETTINGS: Final = (
    "automation_descriptor",
    "fsync_locks",
    "requires_api_version",
    "transaction_lifetime_s",
)
RESTORED: Final = frozenset(
    {
        *PLAIN_SETTINGS,
        "accounts",  # users and roles are stored; the parameters of SCRAM are restored with the settings
        "catalog",
        "clock",
        "cluster_parameters",
        "connection_rate",
        "databases",
        "bounds",  # of the dialect
        "dialect",  # its configuration
        "expiry",  # but for what runs: `purging`, `arming`
        "engine",
        "fail_points",
        "limits",
        "log_settings",
        "profiler",
        "settings",
        "processes",  # the limit of scripts; the processes go on
        "write_block",
    }
)
ENDED: Final = frozenset(
    {
        "cursors",
        "exclusive",  # of the commands that have ended
        "isolation",  # of the transactions and snapshots
        "operations",
        "oplog",
        "sessions",  # what they remember of writes; the sessions themselves go on
        "snapshots",
        "transactions",
    }
)
KEPT: Final = frozenset(
    {
        "authorizes",
        "clients",
        "cluster_clock",
        "commit_log",
        "compaction",
        "config",
        "features",
        "held",  # by who shares the store, which saves no states; so is `left_indexes`
        "hooks",
        "left_indexes",
        "metrics",
        "monotonic_s",
        "object_ids",
        "observation",
        "operation_memory",
        "process_id",
        "refuses_dollar_fields",
        "request_units",
        "restoring",
        "saved_states",
        "spill_space",
        "started_monotonic_s",
        "started_ms",
        "stacks",
        "describe_operation",
        "stop_due_s",
        "stopping",
        "timestamps",
    }
)

_WHY: Final = "a saved state of the server was restored"
# How often a restore looks whether the operations that it has ended are over.
_POLL_S: Final = 0.0005


def _require_saving(service: ServiceContext, what: str) -> None:
    """IllegalOperation (20) if the server's engine saves no states. what: the command."""
    if not service.engine.saves_states:
        raise CommandError(
            ErrorCode.IllegalOperation,
            f"{what} needs a server that keeps its data in memory: the storage engine {service.engine.name} saves no"
            " states",
        )


def save_initial(service: ServiceContext) -> None:
    """Saves the state at the start of the server, for `resetState`, if its engine can and test commands are on."""
    if service.engine.saves_states and service.config.enable_test_commands:
        service.saved_states.initial = _saved(service)
        service.saved_states.initial.unarmed = None  # the reaper has not filled the wheel yet


def save_state(service: ServiceContext, name: str) -> None:
    """Saves the state of the server, in place of one of the same name. IllegalOperation (20).

    All that was committed belongs to it. Indexes under construction and the writes of open transactions do not.
    """
    _require_saving(service, "saveState")
    with Undivided():
        before = service.saved_states.put(name, _saved(service))
    if before is not None:
        _release(service, before)


def drop_state(service: ServiceContext, name: str) -> None:
    """Forgets a saved state. NoSuchKey (4)."""
    _release(service, service.saved_states.remove(name))


def restore_state(service: ServiceContext, name: str | None, op: OperationContext | None = None) -> None:
    """Restores a saved state, without a name that of the start. op: the command that does so, if it is one.

    IllegalOperation (20), NoSuchKey (4).
    """
    _saved_as(service, name)
    while service.restoring:
        service.stacks.wait(Wait(_POLL_S))
    service.restoring = True
    try:
        while not _have_ended(service, op):
            service.stacks.wait(Wait(_POLL_S))
        with Undivided():
            # Looked up now: meanwhile another thread may have saved a state under that name, or dropped it.
            _put_back(service, _saved_as(service, name))
    finally:
        service.restoring = False
    service.note_clock_change()


def _saved_as(service: ServiceContext, name: str | None) -> SavedServer:
    """The state of that name, or that of the start."""
    _require_saving(service, "resetState" if name is None else "restoreState")
    if name is not None:
        return service.saved_states.get(name)
    initial = service.saved_states.initial
    if initial is None:
        raise CommandError(ErrorCode.IllegalOperation, "resetState needs a server that was started with test commands")
    return initial


def _saved(service: ServiceContext) -> SavedServer:
    clock = service.clock
    unarmed: set[int] | None = set(service.expiry.unarmed)
    if service.expiry.purging or service.expiry.arming:
        unarmed = None  # what the wheel has returned, or is being filled with, is not in it
    elif unarmed is not None:
        for transaction in service.transactions.open():
            unarmed.update(transaction.collections)  # a purge has passed over what they have written
    return SavedServer(
        service.engine.save_state(),
        _settings(service),
        clock.setting() if isinstance(clock, VirtualClock) else None,
        service.expiry.wheel.saved(),
        unarmed,
    )


def _release(service: ServiceContext, state: SavedServer) -> None:
    service.engine.release_state(state.data)
    service.catalog.in_unit(_nothing)  # a commit, so that what is released is freed soon


def _nothing(work: WriteUnitOfWork) -> None:
    return None


def _have_ended(service: ServiceContext, op: OperationContext | None) -> bool:
    """Ends what runs; whether all of it has ended."""
    service.cursors.end_all(_WHY)
    others = [r for r in service.operations.all() if r.op is not op and r.reads_data]
    for running in others:
        if not running.op.killed:
            running.op.kill(f"operation was interrupted because {_WHY}")
    return not others and not service.expiry.purging and not service.expiry.arming


def _put_back(service: ServiceContext, state: SavedServer) -> None:
    for transaction in service.transactions.open():
        abort(service, transaction)
    service.transactions.void_all(_WHY)
    service.snapshots.close_all()
    service.sessions.forget_writes()
    service.exclusive.clear()
    before = dict(service.engine.catalog_entries())
    changed = service.engine.restore_state(state.data)
    for namespace in service.catalog.reload(before, changed):
        service.metrics.usage.remove(namespace)
    service.cluster_parameters.reload()
    service.write_block.reload()
    service.databases.reload()
    _restore_settings(service, state.settings)
    clock = service.clock
    if isinstance(clock, VirtualClock) and state.clock is not None:
        clock.restore(state.clock)
    unarmed = state.unarmed
    if unarmed is None:
        unarmed = {collection.number for collection in service.catalog.all_collections()}
    service.expiry.restore(state.wheel, unarmed)
    # Resume tokens may be one increment ahead of the cluster time.
    floor = service.cluster_clock.tick(clock.now_ms()).timestamp
    oplog = service.oplog
    assert isinstance(oplog, NumberedOplog)  # a store saves no states
    oplog.begin_again(floor)
    service.commit_log.log_alone(no_operation(encode({"msg": _WHY})))


def _settings(service: ServiceContext) -> ServerSettings:
    settings = ServerSettings(
        {name: getattr(service, name) for name in PLAIN_SETTINGS},
        replace(service.limits),
        service.fail_points.setting(),
        service.profiler.copied(),
        dict(service.settings.query_settings),
    )
    log = service.log_settings
    concerns = service.settings.concerns
    settings.index_filters = service.catalog.index_filters()
    settings.log = (log.quiet, log.verbosity, dict(log.components))
    settings.concerns = (concerns.read, concerns.write, concerns.updated_ms, concerns.updated_at)
    settings.connection_rate = service.connection_rate.setting()
    settings.scram_iterations = dict(service.accounts.iterations)
    settings.expiry = service.expiry.setting()
    settings.script_limit_ms = service.processes.scripts.limit_ms
    settings.dialect = service.dialect.saved()
    return settings


def _restore_settings(service: ServiceContext, settings: ServerSettings) -> None:
    for name, value in settings.plain.items():
        setattr(service, name, value)
    service.limits = replace(settings.limits)
    service.fail_points.restore(settings.fail_points)
    service.profiler = settings.profiler.copied()
    service.settings.query_settings = dict(settings.query_settings)
    service.catalog.set_index_filters(settings.index_filters)
    log = service.log_settings
    log.quiet, log.verbosity = settings.log[0], settings.log[1]
    log.components = dict(settings.log[2])
    concerns = service.settings.concerns
    concerns.read, concerns.write, concerns.updated_ms, concerns.updated_at = settings.concerns
    service.connection_rate.restore(settings.connection_rate)
    service.accounts.iterations = dict(settings.scram_iterations)
    service.expiry.restore_setting(settings.expiry)
    service.processes.scripts.limit_ms = settings.script_limit_ms
    service.dialect.restore(settings.dialect)
    service.apply_dialect()
