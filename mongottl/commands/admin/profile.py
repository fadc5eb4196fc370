"""profile: the database profiler, which is always off here.

Source: MongoDB's profile reference.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import collection_needs, database_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, INTEGER, NUMBER, Field
from mongottl.document.numbers import to_double
from mongottl.document.types import MISSING, Decimal128, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_condition
from mongottl.security.privileges import Need

# mongod's defaults.
SLOW_MS: Final = 100
SAMPLE_RATE: Final = 1.0
_LEVELS: Final = (1, 2)


class ProfileRequest(NamedTuple):
    level: Annotated[int, Field("profile", INTEGER)]
    slow_ms: Annotated[int | None, Field("slowms", INTEGER)] = None
    sample_rate: Annotated[int | float | Decimal128 | None, Field("sampleRate", NUMBER)] = None
    filter: Annotated[Value, Field("filter", ANY)] = MISSING


def _profile_needs(op: OperationContext, request: ProfileRequest) -> list[Need]:
    """Whoever may read the profile may ask for the level."""
    if request.level < 0 and request.slow_ms is None and request.sample_rate is None and request.filter is MISSING:
        return collection_needs(op.database, "system.profile", "find")
    return database_needs(op.database, "enableProfiler")


@command(
    "profile",
    ProfileRequest,
    access=needing(_profile_needs),
    help="Returns the profiling level, which is always 0 (off).",
)
def profile(op: OperationContext, request: ProfileRequest) -> Reply:
    """`{was: 0, slowms, sampleRate}`. CommandNotSupported (115) for turning the profiler on and for other thresholds,
    as there is no log of slow operations; BadValue (2) for a rate outside 0 to 1 and for an invalid filter."""
    rate = None if request.sample_rate is None else to_double(request.sample_rate)
    if rate is not None and not 0 <= rate <= 1:
        raise CommandError(ErrorCode.BadValue, f"'sampleRate' must be between 0.0 and 1.0 inclusive: {rate}")
    if request.filter is not MISSING and request.filter != "unset":
        if not isinstance(request.filter, bytes):
            raise CommandError(ErrorCode.BadValue, "Expected an object, or the string 'unset', as 'filter'")
        parse_condition(request.filter, ParseContext(op.now_ms))
        raise _unsupported("filter")
    if request.level in _LEVELS:
        raise _unsupported(f"level {request.level}")
    if request.slow_ms not in (None, SLOW_MS):
        raise _unsupported("slowms")
    if rate not in (None, SAMPLE_RATE):
        raise _unsupported("sampleRate")
    return {"was": 0, "slowms": SLOW_MS, "sampleRate": SAMPLE_RATE}


def _unsupported(what: str) -> CommandError:
    return CommandError(ErrorCode.CommandNotSupported, f"profile: {what} is not supported: there is no profiler")
