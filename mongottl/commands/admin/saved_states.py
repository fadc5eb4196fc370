"""saveState, restoreState, resetState and dropState: for tests, only with --enable-test-commands.

A test suite saves what all its tests begin with, and restores it after each of them. Both take a time that does not
depend on how many documents there are (`exec.operation.restoring`).
"""

from typing import Annotated, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ONE, Field
from mongottl.document.bson_field import wrong_type
from mongottl.document.types import Date, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.restoring import drop_state, restore_state, save_state


def _checked_name(command: str, name: Value) -> str:
    if not isinstance(name, str):
        raise wrong_type(f"{command}.{command}", name, "string")
    if not name:
        raise CommandError(ErrorCode.BadValue, f"{command}: the name of a state must not be empty")
    return name


class SaveStateRequest(NamedTuple):
    name: Annotated[Value, Field("saveState", ANY)]


@command(
    "saveState",
    SaveStateRequest,
    access=on_cluster("setParameter"),
    help="Saves all that the server has stored, its clock and its settings under a name, for restoreState.",
    admin_only=True,
    test_only=True,
)
def save_state_command(op: OperationContext, request: SaveStateRequest) -> Reply:
    """`{saveState: name}` → `{now}`, in place of a state that was saved under the same name.

    IllegalOperation (20) with an engine that saves no states.
    """
    save_state(op.service, _checked_name("saveState", request.name))
    return {"now": Date(op.service.clock.now_ms())}


class RestoreStateRequest(NamedTuple):
    name: Annotated[Value, Field("restoreState", ANY)]


@command(
    "restoreState",
    RestoreStateRequest,
    access=on_cluster("setParameter"),
    help="Restores what saveState has saved under a name; it can be restored again.",
    admin_only=True,
    test_only=True,
    restores=True,
)
def restore_state_command(op: OperationContext, request: RestoreStateRequest) -> Reply:
    """`{restoreState: name}` → `{now}`. Running operations end with Interrupted (11601), and new ones wait.

    IllegalOperation (20) with an engine that saves no states, NoSuchKey (4) for an unknown name.
    """
    restore_state(op.service, _checked_name("restoreState", request.name), op)
    return {"now": Date(op.service.clock.now_ms())}


class ResetStateRequest(NamedTuple):
    one: Annotated[Value, Field("resetState", ONE)]


@command(
    "resetState",
    ResetStateRequest,
    access=on_cluster("setParameter"),
    help="Restores the state in which the server has started: with no data but what --load has read, and with its first"
    " settings and clock.",
    admin_only=True,
    test_only=True,
    restores=True,
)
def reset_state_command(op: OperationContext, request: ResetStateRequest) -> Reply:
    """`{resetState: 1}` → `{now}`. Saved states are kept. IllegalOperation (20) with an engine that saves no states."""
    restore_state(op.service, None, op)
    return {"now": Date(op.service.clock.now_ms())}


class DropStateRequest(NamedTuple):
    name: Annotated[Value, Field("dropState", ANY)]


@command(
    "dropState",
    DropStateRequest,
    access=on_cluster("setParameter"),
    help="Forgets what saveState has saved under a name, and frees its memory.",
    admin_only=True,
    test_only=True,
)
def drop_state_command(op: OperationContext, request: DropStateRequest) -> Reply:
    """`{dropState: name}` → `{}`. NoSuchKey (4) for an unknown name."""
    drop_state(op.service, _checked_name("dropState", request.name))
    return {}
