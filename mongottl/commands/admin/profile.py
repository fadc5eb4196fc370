"""profile: what is written to `system.profile`, and from when on an operation is logged as slow.

Source: MongoDB's profile reference.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.options import CollectionOptions
from mongottl.commands.access import collection_needs, database_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, INTEGER, NUMBER, Field
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.numbers import to_double
from mongottl.document.types import MISSING, Decimal128, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.profiler import EVERYTHING, OFF, PROFILE_COLLECTION
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_condition
from mongottl.security.privileges import Need

# mongod's size of a new one.
_PROFILE_BYTES: Final = 1024 * 1024
_MAX_INT32: Final = 2**31 - 1
_NOTE: Final = (
    "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines."
)


class ProfileRequest(NamedTuple):
    level: Annotated[int, Field("profile", INTEGER)]
    slow_ms: Annotated[int | None, Field("slowms", INTEGER)] = None
    sample_rate: Annotated[int | float | Decimal128 | None, Field("sampleRate", NUMBER)] = None
    filter: Annotated[Value, Field("filter", ANY)] = MISSING


def _profile_needs(op: OperationContext, request: ProfileRequest) -> list[Need]:
    """Whoever may read the profile may ask for the level."""
    if request.level < 0 and request.slow_ms is None and request.sample_rate is None and request.filter is MISSING:
        return collection_needs(op.database, PROFILE_COLLECTION, "find")
    return database_needs(op.database, "enableProfiler")


@command(
    "profile",
    ProfileRequest,
    access=needing(_profile_needs),
    help="Sets the profiling level of a database (0 to 2), or returns it (-1), and sets what counts as slow.",
)
def profile(op: OperationContext, request: ProfileRequest) -> Reply:
    """`{was, slowms, sampleRate, filter, note}`: the settings before the command.

    A level other than 0, 1 and 2 changes no level. The command that switches profiling on is not itself profiled.
    BadValue (2) for a rate outside 0 to 1 and for an invalid filter.
    """
    rate = None if request.sample_rate is None else to_double(request.sample_rate)
    if rate is not None and not 0 <= rate <= 1:
        raise CommandError(ErrorCode.BadValue, f"'sampleRate' must be between 0.0 and 1.0 inclusive: {rate}")
    filter: bytes | None = None
    tree: MatchExpression | None = None
    unset = request.filter == "unset"
    if request.filter is not MISSING and not unset:
        if not isinstance(request.filter, bytes):
            raise CommandError(ErrorCode.BadValue, "Expected an object, or the string 'unset', as 'filter'")
        filter = request.filter
        tree = op.compute(partial(parse_condition, filter, ParseContext(op.now_ms)))
    profiler = op.service.profiler
    was = profiler.of(op.database)
    reply: dict[str, Value] = {"was": was.level, "slowms": profiler.slow_ms, "sampleRate": profiler.sample_rate}
    if was.filter is not None:
        reply.update({"filter": was.filter, "note": _NOTE})
    level = request.level if OFF <= request.level <= EVERYTHING else None
    if level is not None and level != OFF:
        profile_collection(op)
    if level is not None or filter is not None or unset:
        profiler.change(op.database, level, filter, tree, unset, op.service.clock.monotonic_s())
    if request.slow_ms is not None:
        profiler.set_slow_ms(max(-_MAX_INT32 - 1, min(request.slow_ms, _MAX_INT32)))
    if rate is not None:
        profiler.sample_rate = rate
    return reply


def profile_collection(op: OperationContext) -> Collection:
    """The collection `system.profile` of the operation's database, created if it does not exist."""
    with Undivided():
        collection = op.catalog.lookup(op.database, PROFILE_COLLECTION)
        if collection is None:
            options = CollectionOptions(encode({"capped": True, "size": _PROFILE_BYTES}))
            collection = op.catalog.create_collection(op.database, PROFILE_COLLECTION, options)
        return collection
