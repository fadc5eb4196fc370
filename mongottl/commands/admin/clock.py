"""advanceClock, setClock, resetClock, freezeClock and configureFailPoint: for tests, only with --enable-test-commands.

`{advanceClock: 2592000}` moves the server's clock by 30 days and replies after all documents that became due were
purged. So a test of a 30-day TTL takes a millisecond, without sleeping or polling. Of several servers with one store it
is the clock of all, and the reply comes after all have taken it over.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from mongottl.clock import VirtualClock
from mongottl.commands.access import on_cluster
from mongottl.commands.dialect_hooks import wrong_dialect
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, DOCUMENT_FIELD, NUMBER, ONE, Field
from mongottl.document.bson_field import wrong_type
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.numbers import to_double
from mongottl.document.types import Date, Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.stored_clock import change_clock
from mongottl.exec.state.failpoints import DIALECT_FAIL_POINTS
from mongottl.exec.write.expiry import move_clock


class AdvanceClockRequest(NamedTuple):
    seconds: Annotated[Value, Field("advanceClock", NUMBER)]


@command(
    "advanceClock",
    AdvanceClockRequest,
    access=on_cluster("setParameter"),
    help="Advances the server's clock by seconds and deletes the documents that have expired by then.",
    admin_only=True,
    test_only=True,
)
def advance_clock(op: OperationContext, request: AdvanceClockRequest) -> Reply:
    """`{advanceClock: seconds}` → `{now, ttlDeleted}`. BadValue (2) if the clock would leave the allowed years.

    seconds: any number, also fractional or negative. ttlDeleted: documents purged because of this command.
    """
    seconds = to_double(request.seconds)
    return _moved(op, "advanceClock", lambda clock: clock.advance(seconds))


class SetClockRequest(NamedTuple):
    date: Annotated[Value, Field("setClock", ANY)]


@command(
    "setClock",
    SetClockRequest,
    access=on_cluster("setParameter"),
    help="Sets the server's clock to a date and deletes the documents that have expired by then.",
    admin_only=True,
    test_only=True,
)
def set_clock(op: OperationContext, request: SetClockRequest) -> Reply:
    """`{setClock: date}` → `{now, ttlDeleted}`, as advanceClock. TypeMismatch (14), BadValue (2) for other years."""
    if not isinstance(request.date, Date):
        raise wrong_type("setClock.setClock", request.date, "date")
    now_ms = request.date.ms
    return _moved(op, "setClock", lambda clock: clock.set_wall(now_ms))


class ResetClockRequest(NamedTuple):
    one: Annotated[Value, Field("resetClock", ONE)]


@command(
    "resetClock",
    ResetClockRequest,
    access=on_cluster("setParameter"),
    help="Sets the server's clock as it was at the start: to the time of the start if it stood still, else to the"
    " machine's or --now.",
    admin_only=True,
    test_only=True,
)
def reset_clock(op: OperationContext, request: ResetClockRequest) -> Reply:
    """`{resetClock: 1}` → `{now, ttlDeleted}`, as advanceClock."""
    return _moved(op, "resetClock", VirtualClock.reset)


def _require_movable(op: OperationContext) -> None:
    if not isinstance(op.service.clock, VirtualClock):
        raise CommandError(ErrorCode.IllegalOperation, "the server's clock cannot be moved: it is the machine's own")


def _moved(op: OperationContext, name: str, change: Callable[[VirtualClock], object]) -> Reply:
    """Moves the clock, deletes what has expired by that, and replies. BadValue (2)."""
    _require_movable(op)
    op.lift_time_bound()  # the time by which the clock was moved is not the command's
    try:
        deleted = move_clock(op.service, change)
    except ValueError as error:
        raise CommandError(ErrorCode.BadValue, f"{name}: {error}") from None
    op.check_interrupt()
    return {"now": Date(op.service.clock.now_ms()), "ttlDeleted": deleted if deleted < 2**31 else Int64(deleted)}


class FreezeClockRequest(NamedTuple):
    frozen: Annotated[Value, Field("freezeClock", ANY)]


@command(
    "freezeClock",
    FreezeClockRequest,
    access=on_cluster("setParameter"),
    help="Stops the server's clock, or starts it again.",
    admin_only=True,
    test_only=True,
)
def freeze_clock(op: OperationContext, request: FreezeClockRequest) -> Reply:
    """`{freezeClock: true|false}` → `{now}`."""
    if not isinstance(request.frozen, bool):
        raise wrong_type("freezeClock.freezeClock", request.frozen, "bool")
    _require_movable(op)
    frozen = request.frozen
    now_ms = change_clock(op.service, lambda clock: clock.freeze(frozen))
    op.service.note_clock_change()
    return {"now": Date(now_ms)}


class ConfigureFailPointRequest(NamedTuple):
    name: Annotated[Value, Field("configureFailPoint", ONE)]
    mode: Annotated[Value, Field("mode", ANY)]
    data: Annotated[bytes, Field("data", DOCUMENT_FIELD)] = EMPTY_DOCUMENT


@command(
    "configureFailPoint",
    ConfigureFailPointRequest,
    access=on_cluster("setParameter"),
    help="Sets the fail points with which drivers' tests cause errors.",
    admin_only=True,
    test_only=True,
)
def configure_fail_point(op: OperationContext, request: ConfigureFailPointRequest) -> Reply:
    """CommandNotSupported (115) for a fail point of another dialect."""
    if not isinstance(request.name, str):
        raise CommandError(ErrorCode.TypeMismatch, "the name of a fail point must be a string")
    needed = DIALECT_FAIL_POINTS.get(request.name)
    if needed is not None and needed != op.service.dialect.name:
        raise wrong_dialect(needed)
    count = op.service.fail_points.entered
    op.service.fail_points.configure(request.name, request.mode, request.data)
    return {"count": count}
