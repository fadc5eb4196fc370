"""Read and write concerns of a server with one member, and the version of the API that a client wants.

Everything committed here is committed by a majority of one, so the levels differ only in whether the reply waits for
the disk (`j: true`). What one member cannot promise is refused.

Source: MongoDB's "Read Concern", "Write Concern" and "Stable API" pages.
"""

from typing import Final

from mongottl.commands.registry import STABLE_API, CommandSpec
from mongottl.commands.request import GenericArguments
from mongottl.document.bson_field import unknown_field, wrong_type
from mongottl.document.numbers import clamp_to_long, is_nan, is_true
from mongottl.document.types import Decimal128, Timestamp, Value, is_number
from mongottl.document.walk import fields, find_field_at, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import check_level

# What the pages of these commands and stages say that API Version 1 has not.
_UNSTABLE_FIELDS: Final = {
    "create": (b"capped", b"indexOptionDefaults", b"max", b"size", b"storageEngine"),
    "find": (
        b"awaitData",
        b"max",
        b"min",
        b"noCursorTimeout",
        b"oplogReplay",
        b"returnKey",
        b"showRecordId",
        b"tailable",
    ),
}
_UNSTABLE_STAGES: Final = frozenset(
    ("$currentOp", "$indexStats", "$listLocalSessions", "$listSessions", "$planCacheStats", "$search")
)
_LEVELS: Final = ("local", "available", "majority", "linearizable", "snapshot")
# The others are read at `local` alone.
_READ_AT_ANY_LEVEL: Final = frozenset(("find", "aggregate", "distinct", "explain", "getMore"))
_PROVENANCES: Final = (
    "clientSupplied",
    "implicitDefault",
    "customDefault",
    "getLastErrorDefaults",
    "internalWriteDefault",
)
_INTERNAL_WRITE_CONCERN: Final = frozenset(("getLastError", "wOpTime", "wElectionId"))
_MAX_MEMBERS: Final = 50
_MAX_INT32: Final = 2**31 - 1


def check_api_version(spec: CommandSpec, generic: GenericArguments) -> None:
    """APIVersionError (322) for a version other than 1, APIStrictError (323) for what is no part of it.

    Location4886600 where one of the other two fields stands without `apiVersion`.
    """
    if not generic.api_version:
        if generic.api_strict or generic.api_deprecation_errors:
            raise CommandError(4886600, "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion")
        return
    if generic.api_version != "1":
        raise CommandError(ErrorCode.APIVersionError, 'API version must be "1"')
    if generic.api_strict and spec.name not in STABLE_API:
        raise CommandError(
            ErrorCode.APIStrictError,
            f"Provided apiStrict:true, but the command {spec.name} is not in API Version 1.",
        )


def check_api_strict(command: str, body: bytes) -> None:
    """APIStrictError (323) for a field or stage that is no part of API Version 1, though its command is."""
    for name in _UNSTABLE_FIELDS.get(command, ()):
        if find_field_at(body, 0, name)[0] != 0:
            raise CommandError(
                ErrorCode.APIStrictError,
                f"BSON field '{command}.{name.decode('utf-8')}' is not allowed with apiStrict:true.",
            )
    if command == "aggregate":
        _check_stages(get_value(body, "pipeline"))


def _check_stages(pipeline: Value) -> None:
    for stage in pipeline if isinstance(pipeline, list) else ():
        if not isinstance(stage, bytes):
            continue
        for name, argument in fields(stage):
            counts_alone = isinstance(argument, bytes) and [part for part, _ in fields(argument)] == ["count"]
            if name in _UNSTABLE_STAGES or (name == "$collStats" and not counts_alone):
                raise CommandError(
                    ErrorCode.APIStrictError, f"stage {name} is not allowed with 'apiStrict: true' in API Version 1"
                )
            if isinstance(argument, bytes):
                for part, inner in fields(argument):
                    if name == "$facet" or (part == "pipeline" and name in ("$lookup", "$unionWith")):
                        _check_stages(inner)


def check_read_concern(command: str, concern: bytes) -> str:
    """The level, if this command may be read at it and the concern makes sense at all; empty where it names none.

    An aggregation's stages have a word of their own first (`StageSpec.read_levels`).
    TypeMismatch (14), BadValue (2) or 40415 for wrong fields, InvalidOptions (72) for a level that the command does not
    have or fields that do not go together, CommandNotSupported (115) for what is to come.
    """
    level: Value = None
    after: Value = None
    at: Value = None
    for option, value in fields(concern):
        if option == "level":
            level = value
            if value is not None:
                _check_word("readConcern.level", value, _LEVELS)
        elif option in ("afterClusterTime", "atClusterTime"):
            if not isinstance(value, Timestamp):
                raise wrong_type(f"readConcern.{option}", value, "timestamp")
            if option == "afterClusterTime":
                after = value
            else:
                at = value
        elif option == "provenance":
            if value is not None:
                _check_word("readConcern.provenance", value, _PROVENANCES)
        else:
            raise unknown_field(f"readConcern.{option}")
    _check_cluster_times(level, after, at)
    if level is None or level == "local" or command in _READ_AT_ANY_LEVEL:
        if command not in ("getMore", "aggregate"):
            check_level(str(level))
        return level if isinstance(level, str) else ""
    if command != "count" or level == "snapshot":
        raise CommandError(ErrorCode.InvalidOptions, f"Command {command} does not support read concern level '{level}'")
    return str(level)


def _check_cluster_times(level: Value, after: Value, at: Value) -> None:
    if isinstance(at, Timestamp) and level != "snapshot":
        raise CommandError(
            ErrorCode.InvalidOptions, "atClusterTime field can be set only if level is equal to snapshot"
        )
    if isinstance(after, Timestamp):
        if level in ("available", "linearizable"):
            raise CommandError(
                ErrorCode.InvalidOptions,
                "afterClusterTime field can be set only if level is equal to majority, local, or snapshot",
            )
        if at is not None:
            raise CommandError(ErrorCode.InvalidOptions, "Specifying a timestamp for both clocks is not supported")
    for name, given in (("afterClusterTime", after), ("atClusterTime", at)):
        if isinstance(given, Timestamp) and given.time == 0 and given.inc == 0:
            raise CommandError(ErrorCode.InvalidOptions, f"{name} cannot be a null timestamp")


def _check_word(name: str, value: Value, words: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise wrong_type(name, value, "string")
    if value not in words:
        raise CommandError(ErrorCode.BadValue, f"Enumeration value '{value}' for field '{name}' is not a valid value.")


# `aggregate` may write. The Node driver sends `w: 0` along with endSessions, whose reply it does not want.
_TAKES_WRITE_CONCERN: Final = ("aggregate", "endSessions")


class WriteConcern:
    """What a write's reply waits for, and what it says.

    durable: until the journal is on disk. silent: nothing is said of failed statements (`w: 0` without `j: true`).
    error: the `writeConcernError` of a reply whose write was done but cannot reach as many members as asked for.
    """

    def __init__(self) -> None:
        self.durable = False
        self.silent = False
        self.error: dict[str, Value] | None = None


def parse_write_concern(spec: CommandSpec, concern: bytes) -> WriteConcern:
    """FailedToParse (9), TypeMismatch (14) or 40415 for a wrong concern, InvalidOptions (72) where none is taken."""
    if not spec.writes and spec.name not in _TAKES_WRITE_CONCERN:
        raise CommandError(ErrorCode.InvalidOptions, "Command does not support writeConcern")
    parsed = WriteConcern()
    fsync = False
    for option, value in fields(concern):
        if option == "w":
            _take_members(parsed, value)
        elif option in ("j", "fsync"):
            wanted = _truth(option, value)
            if option == "fsync":
                fsync = wanted
            else:
                parsed.durable = wanted
        elif option == "wtimeout":
            if is_number(value) and not (isinstance(value, (int, float)) and value <= _MAX_INT32):
                _check_timeout(value)
        elif option == "provenance":
            if value is not None:
                _check_word("writeConcern.provenance", value, _PROVENANCES)
        elif option not in _INTERNAL_WRITE_CONCERN:
            raise unknown_field(f"writeConcern.{option}")
    if fsync and parsed.durable:
        raise CommandError(ErrorCode.FailedToParse, "fsync and j options cannot be used together")
    parsed.durable = (parsed.durable or fsync) and spec.writes
    if parsed.durable:
        parsed.silent = False
    return parsed


def _take_members(parsed: WriteConcern, value: Value) -> None:
    """`w`: a number of members, the name of a mode, or tags."""
    if value is None:
        return
    if isinstance(value, str):
        if value != "majority":
            parsed.error = _write_concern_error(
                79,
                "UnknownReplWriteConcern",
                f"No write concern mode named '{value}' found in replica set configuration",
            )
    elif is_number(value):
        if is_nan(value):
            raise CommandError(ErrorCode.FailedToParse, "w has to be a number, string, or object; found: nan")
        number = _as_integer(value)
        if number < 0 or number > _MAX_MEMBERS:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"w has to be a non-negative number and not greater than {_MAX_MEMBERS}; found: {number}",
            )
        parsed.silent = number == 0
        if number > 1:
            parsed.error = _write_concern_error(100, "UnsatisfiableWriteConcern", "Not enough data-bearing nodes")
    elif isinstance(value, bytes):
        tags = fields(value)
        if not tags:
            raise CommandError(ErrorCode.FailedToParse, "tagged write concern requires tags")
        if not all(is_number(count) for _, count in tags):
            raise CommandError(ErrorCode.FailedToParse, "tags must be a single level document with only number values")
        parsed.error = _write_concern_error(
            100, "UnsatisfiableWriteConcern", "Not enough nodes match write concern mode"
        )
    else:
        raise CommandError(ErrorCode.FailedToParse, "w has to be a number, string, or object")


def _write_concern_error(code: int, name: str, message: str) -> dict[str, Value]:
    return {"code": code, "codeName": name, "errmsg": message}


def _truth(option: str, value: Value) -> bool:
    if value is None:
        return False
    if not (isinstance(value, bool) or is_number(value)):
        raise wrong_type(f"writeConcern.{option}", value, "[bool, long, int, decimal, double]")
    return is_true(value)


def _check_timeout(value: Value) -> None:
    """Of other types than numbers, anything goes."""
    if _as_integer(value) > _MAX_INT32:
        raise CommandError(ErrorCode.FailedToParse, "wtimeout must be an integer within int32 range")


def _as_integer(value: Value) -> int:
    assert isinstance(value, (int, float, Decimal128))
    return clamp_to_long(value)
