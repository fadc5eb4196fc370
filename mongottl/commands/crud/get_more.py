"""getMore, killCursors.

Source: MongoDB's command reference for each.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.catalog.namespace import check_collection_name
from mongottl.commands.access import collection_needs, namespace_needs, needing
from mongottl.commands.registry import ALL_LEVELS, Reply, command
from mongottl.commands.request import (
    ARRAY_FIELD,
    COLLECTION,
    IGNORED,
    INTEGER,
    ONE,
    TEXT,
    WHOLE,
    Field,
)
from mongottl.document.bson_field import wrong_type
from mongottl.document.types import Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation import snapshot_reads
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.cursor_memory import make_room
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.results.plan_summary import examined_by
from mongottl.exec.results.reading import add_resume_token
from mongottl.exec.results.tailing import DEFAULT_AWAIT_S, await_page
from mongottl.exec.sessions.cursor_registry import CLOSED_AT_ONCE, OpenCursor
from mongottl.security.privileges import CLUSTER, Need

CURSOR_IN_USE: Final = 12051
_NOT_YOURS: Final = "Cannot run getMore on cursor"


class GetMoreRequest(NamedTuple):
    cursor_id: Annotated[Value, Field("getMore", ONE)]
    collection: Annotated[str, Field("collection", TEXT)]
    batch_size: Annotated[int, Field("batchSize", WHOLE)] = 0
    last_known: Annotated[Value, Field("lastKnownCommittedOpTime", IGNORED)] = None
    term: Annotated[int | None, Field("term", INTEGER)] = None


def _get_more_needs(op: OperationContext, request: GetMoreRequest) -> list[Need]:
    """What the command needed that opened the cursor. Unauthorized (13) for a cursor of another user."""
    cursor_id = request.cursor_id
    cursor = op.service.cursors.find(int(cursor_id)) if isinstance(cursor_id, Int64) else None
    if cursor is None:
        return collection_needs(op.database, request.collection, "find")
    if cursor.owner != op.user():
        raise CommandError(
            ErrorCode.Unauthorized, f"cursor id {cursor.cursor_id} was not created by the authenticated user"
        )
    return cursor.needs


@command(
    "getMore",
    GetMoreRequest,
    access=needing(_get_more_needs),
    help="Returns the next documents of a cursor.",
    counter="getmore",
    read_levels=ALL_LEVELS,
    may_be_abandoned=True,
    stable=True,
    latency="reads",
    in_transaction=True,
    uses_cursors=True,
)
def get_more(op: OperationContext, request: GetMoreRequest) -> Reply:
    """The next batch. CursorNotFound (43) for an unknown or closed cursor, QueryPlanKilled (175) if its collection is
    gone, Unauthorized (13) for another namespace, 50736 to 50738 in another session, 50739 to 50741 in another
    transaction, 12051 while another getMore uses it.
    """
    cursor_id = request.cursor_id
    if not isinstance(cursor_id, Int64):
        raise wrong_type("getMore.getMore", cursor_id, "long")
    cursor = op.service.cursors.get(int(cursor_id))
    namespace = f"{op.database}.{request.collection}"
    if cursor.namespace != namespace:
        raise CommandError(
            ErrorCode.Unauthorized,
            f"Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace"
            f" {cursor.namespace}",
        )
    if cursor.session_key != op.session_key:
        if cursor.session_key is None:
            raise CommandError(
                50736, f"{_NOT_YOURS} {int(cursor_id)}, which was not created in a session, in a session"
            )
        if op.session_key is None:
            raise CommandError(50737, f"{_NOT_YOURS} {int(cursor_id)}, which was created in a session, without an lsid")
        raise CommandError(50738, f"{_NOT_YOURS} {int(cursor_id)}, which was created in a different session")
    if cursor.transaction is not op.session.transaction:
        if cursor.transaction is None:
            raise CommandError(
                50739, f"{_NOT_YOURS} {int(cursor_id)}, which was not created in a transaction, in a transaction"
            )
        if op.session.transaction is None:
            raise CommandError(
                50740, f"{_NOT_YOURS} {int(cursor_id)}, which was created in a transaction, without a txnNumber"
            )
        raise CommandError(50741, f"{_NOT_YOURS} {int(cursor_id)}, which was created in a different transaction")
    if op.limits.await_s >= 0.0 and not cursor.await_data:
        raise CommandError(ErrorCode.BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
    if cursor.in_use:
        raise CommandError(CURSOR_IN_USE, f"cursor id {int(cursor_id)} is already in use")
    assert isinstance(cursor, ClientCursor)
    if cursor.kept_snapshot is not None and not cursor.why_dead:
        snapshot_reads.use(op, cursor.kept_snapshot)
    if cursor.scripts is not None:
        op.continue_scripts(cursor.scripts)
    if cursor.memory is not None:
        op.resources.take_over(cursor.memory, cursor.files)
    if op.command.comment is None and cursor.comment is not None:
        op.command = op.command.with_comment(cursor.comment)
    if cursor.running_query is not None:
        op.profile.running_query = cursor.running_query
        cursor.running_query.in_reply = True
    op.profile.plans = cursor.plans
    op.profile.examined_before = examined_by(op, cursor.plans) if op.profile.began_s else None
    return _next_page(op, cursor, request.batch_size)


def _next_page(op: OperationContext, cursor: ClientCursor, batch_size: int) -> Reply:
    registry = op.service.cursors
    tail = cursor.tail
    if tail is not None and tail.reads_changes:
        op.reading = op.reading.of_changes()
    if cursor.why_dead:
        registry.close(cursor)
        cursor.check_alive()
    cursor.in_use = True
    await_s = op.limits.await_s if op.limits.await_s >= 0.0 else DEFAULT_AWAIT_S
    limited = cursor.time_left_s >= 0.0 and (tail is None or not tail.await_data)
    try:
        op.service.fail_points.fail_get_more()
        if limited:
            op.limit_time(cursor.time_left_s)
        page = cursor.next_page(op, batch_size)
        if page.count == 0 and tail is not None and tail.await_data and not cursor.exhausted:
            page = await_page(op, cursor, tail, batch_size, await_s)
    except BaseException:
        registry.close(cursor)
        raise
    finally:
        cursor.in_use = False
        cursor.last_used_s = op.service.clock.monotonic_s()
    if limited:
        cursor.time_left_s = op.time_left_s()
    op.service.metrics.documents["returned"] += page.count
    cursor_id = cursor.cursor_id
    if cursor.exhausted:
        registry.close(cursor)
        cursor_id = 0
    else:
        cursor.files = op.resources.files_used
        registry.count(cursor)
        make_room(op)
    reply: dict[str, Value] = {"nextBatch": page.documents()}
    if tail is not None:
        add_resume_token(op, reply, tail)
    return {"cursor": {**reply, "id": Int64(cursor_id), "ns": cursor.namespace}}


class KillCursorsRequest(NamedTuple):
    collection: Annotated[str, Field("killCursors", COLLECTION)]
    cursors: Annotated[list[Value], Field("cursors", ARRAY_FIELD)]


def _kill_cursors_needs(op: OperationContext, request: KillCursorsRequest) -> list[Need]:
    """Everybody may close their own cursors; those of others need an action on the server or on their collection."""
    others: list[OpenCursor] = []
    for cursor_id in request.cursors:
        cursor = op.service.cursors.find(int(cursor_id)) if isinstance(cursor_id, Int64) else None
        if cursor is not None and cursor.owner != op.user():
            others.append(cursor)
    if not others or op.may(CLUSTER, "killAnyCursor"):
        return []
    return [need for cursor in others for need in namespace_needs(cursor.namespace, "killAnyCursor")]


@command(
    "killCursors",
    KillCursorsRequest,
    access=needing(_kill_cursors_needs),
    help="Closes cursors.",
    stable=True,
    in_transaction=True,
    begins_transaction=False,
    uses_cursors=True,
)
def kill_cursors(op: OperationContext, request: KillCursorsRequest) -> Reply:
    """Closes cursors by id, in any namespace; lists those closed and those unknown. null elements are skipped."""
    killed: list[Value] = []
    not_found: list[Value] = []
    check_collection_name(op.database, request.collection)
    for index, cursor_id in enumerate(request.cursors):
        if cursor_id is not None and not isinstance(cursor_id, Int64):
            raise wrong_type(f"killCursors.cursors.{index}", cursor_id, "long")
    for count, cursor_id in enumerate(request.cursors, 1):
        if not isinstance(cursor_id, Int64):
            continue
        cursor = op.service.cursors.find(int(cursor_id))
        if cursor is None:
            not_found.append(cursor_id)
        else:
            op.service.cursors.close(cursor)
            killed.append(cursor_id)
        if count % CLOSED_AT_ONCE == 0:
            op.give_way()
    return {"cursorsKilled": killed, "cursorsNotFound": not_found, "cursorsAlive": [], "cursorsUnknown": []}
