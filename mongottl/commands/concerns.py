"""Read and write concerns of a server with one member, and the Stable API version that a client declares.

What is committed here is majority committed, so the levels differ only in whether the reply waits for the disk
(`j: true`). Concerns that one member cannot fulfil are refused.

Source: MongoDB's "Read Concern", "Write Concern" and "Stable API" pages.
"""

from typing import Final, NamedTuple

from mongottl.commands.registry import ALL_LEVELS, CommandSpec
from mongottl.commands.request import GenericArguments
from mongottl.document.bson_field import checked_word, read_known, wrong_type
from mongottl.document.numbers import clamp_to_long, is_nan, is_true
from mongottl.document.types import Decimal128, Timestamp, Value, is_number
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields, find_field_at, get_value
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.query.timestamps import ClusterTime

_PROVENANCES: Final = (
    "clientSupplied",
    "implicitDefault",
    "customDefault",
    "getLastErrorDefaults",
    "internalWriteDefault",
)
_READ_CONCERN: Final = ("level", "afterClusterTime", "atClusterTime", "provenance")
# The last three are mongod's own, and have no effect here.
_WRITE_CONCERN: Final = ("w", "j", "fsync", "wtimeout", "provenance", "getLastError", "wOpTime", "wElectionId")
# Bytes of the tags in `w`. Those of real replica sets, which have 50 members at most, have a few hundred.
_MAX_TAGS_BYTES: Final = 16 * 1024
_MAX_MEMBERS: Final = 50
_MAX_INT32: Final = 2**31 - 1


def check_api_version(spec: CommandSpec, generic: GenericArguments, required: bool) -> None:
    """APIVersionError (322) for a version other than 1, APIStrictError (323) for a command that is not part of it.

    required: the server parameter `requireApiVersion`; 498870 for a command without `apiVersion`.
    4886600 if `apiStrict` or `apiDeprecationErrors` is given without `apiVersion`.
    """
    if generic.api_version is None:
        if required:
            raise CommandError(
                498870, "The apiVersion parameter is required, please configure your MongoClient's API version"
            )
        if generic.api_strict or generic.api_deprecation_errors:
            raise CommandError(4886600, "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion")
        return
    if generic.api_version != "1":
        raise CommandError(ErrorCode.APIVersionError, 'API version must be "1"')
    if generic.api_strict and not spec.stable:
        raise CommandError(
            ErrorCode.APIStrictError,
            f"Provided apiStrict:true, but the command {spec.name} is not in API Version 1.",
        )


def check_api_strict(spec: CommandSpec, body: bytes) -> None:
    """APIStrictError (323) for a field or stage that is not part of API version 1."""
    for name in spec.unstable_fields:
        if find_field_at(body, 0, encode_text(name))[0] != 0:
            raise CommandError(
                ErrorCode.APIStrictError, f"BSON field '{spec.name}.{name}' is not allowed with apiStrict:true."
            )
    if spec.name == "aggregate":
        _check_stages(get_value(body, "pipeline"))


def _check_stages(pipeline: Value) -> None:
    from mongottl.query.pipeline import is_stable, traits_of  # kept out of the start of the server

    for stage in pipeline if isinstance(pipeline, list) else ():
        if not isinstance(stage, bytes):
            continue
        for name, argument in fields(stage):
            if not is_stable(name, argument):
                raise CommandError(
                    ErrorCode.APIStrictError, f"stage {name} is not allowed with 'apiStrict: true' in API Version 1"
                )
            if isinstance(argument, bytes):
                for part, inner in fields(argument):
                    if name == "$facet" or (part == "pipeline" and traits_of(name).has_pipeline):
                        _check_stages(inner)


class ReadConcern(NamedTuple):
    """A parsed read concern. level: empty if none was given. after, at: afterClusterTime and atClusterTime, or None."""

    level: str
    after: Timestamp | None
    at: Timestamp | None


def parse_read_concern(spec: CommandSpec, concern: bytes, in_transaction: bool = False) -> ReadConcern:
    """The read concern of a command.

    in_transaction: whether it is that of a transaction, which its first statement gives, whatever command that is.
    The stages of an aggregation have levels of their own (`StageTraits.read_levels`).
    TypeMismatch (14), BadValue (2), 40413 or 40415 for wrong fields, InvalidOptions (72) for a level that the command
    does not support or fields that exclude each other.
    """
    level: Value = None
    after: Timestamp | None = None
    at: Timestamp | None = None
    for option, value in read_known("readConcern", concern, _READ_CONCERN).items():
        if option == "level":
            level = value
            if value is not None:
                checked_word("readConcern.level", value, ALL_LEVELS)
        elif option in ("afterClusterTime", "atClusterTime"):
            if not isinstance(value, Timestamp):
                raise wrong_type(f"readConcern.{option}", value, "timestamp")
            if option == "afterClusterTime":
                after = value
            else:
                at = value
        elif value is not None:
            checked_word("readConcern.provenance", value, _PROVENANCES)
    _check_cluster_times(level, after, at)
    if not isinstance(level, str) or in_transaction:
        return ReadConcern("", after, at)
    if level not in spec.read_levels:
        raise CommandError(
            ErrorCode.InvalidOptions, f"Command {spec.name} does not support read concern level '{level}'"
        )
    return ReadConcern(level, after, at)


def reach_cluster_time(op: OperationContext, after: Timestamp) -> None:
    """Makes sure that a read with this afterClusterTime reads all that was written until then.

    All writes of this server are older than its clock, so only a time that clients have brought lies ahead of them;
    mongod then writes a no-op. InvalidOptions (72) for a time that the clock has not reached.
    """
    clock = op.service.cluster_clock
    if not clock.has_reached(after):
        raise CommandError(
            ErrorCode.InvalidOptions,
            "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested"
            f" clusterTime: {_shown(after)}; current clusterTime: {_shown(clock.last)}",
        )
    written = clock.operation_time
    if (after.time, after.inc) > (written.time, written.inc):
        clock.tick(op.now_ms)


def _shown(at: Timestamp | ClusterTime) -> str:
    return f"Timestamp({at.time}, {at.inc})"


def _check_cluster_times(level: Value, after: Timestamp | None, at: Timestamp | None) -> None:
    if at is not None and level != "snapshot":
        raise CommandError(
            ErrorCode.InvalidOptions, "atClusterTime field can be set only if level is equal to snapshot"
        )
    if after is not None:
        if level in ("available", "linearizable"):
            raise CommandError(
                ErrorCode.InvalidOptions,
                "afterClusterTime field can be set only if level is equal to majority, local, or snapshot",
            )
        if at is not None:
            raise CommandError(ErrorCode.InvalidOptions, "Specifying a timestamp for both clocks is not supported")
    if after is not None and after.time == 0 and after.inc == 0:
        raise CommandError(ErrorCode.InvalidOptions, "afterClusterTime cannot be a null timestamp")
    if at is not None and at.time == 0:  # a timestamp of second 0 counts as null, whatever its increment
        raise CommandError(ErrorCode.InvalidOptions, "atClusterTime cannot be a null timestamp")


class WriteConcern:
    """A parsed write concern.

    durable: whether the reply waits until the write is on disk. unsynced: whether it need not be there (`j: false`).
    silent: whether failed statements are not reported (`w: 0` without `j: true`). error: the reply's
    `writeConcernError` if more members are required than exist, or None.
    """

    def __init__(self) -> None:
        self.durable = False
        self.unsynced = False
        self.silent = False
        self.error: dict[str, Value] | None = None


def parse_write_concern(spec: CommandSpec, concern: bytes, writes: bool) -> WriteConcern:
    """Parses the write concern of a command. writes: whether the command writes with its arguments.

    FailedToParse (9), TypeMismatch (14), 40413 or 40415 for an invalid concern, InvalidOptions (72) if the command
    takes none.
    """
    if not spec.takes_write_concern:
        raise CommandError(ErrorCode.InvalidOptions, "Command does not support writeConcern")
    parsed = WriteConcern()
    fsync = False
    for option, value in read_known("writeConcern", concern, _WRITE_CONCERN).items():
        if option == "w":
            _take_members(parsed, value)
        elif option in ("j", "fsync"):
            wanted = _truth(option, value)
            if option == "fsync":
                fsync = wanted
            else:
                parsed.durable = wanted
                parsed.unsynced = not wanted
        elif option == "wtimeout":
            if is_number(value) and not (isinstance(value, (int, float)) and value <= _MAX_INT32):
                _check_timeout(value)
        elif option == "provenance" and value is not None:
            checked_word("writeConcern.provenance", value, _PROVENANCES)
    if fsync and parsed.durable:
        raise CommandError(ErrorCode.FailedToParse, "fsync and j options cannot be used together")
    parsed.durable = (parsed.durable or fsync) and writes
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
                f"No write concern mode named '{shortened(value)}' found in replica set configuration",
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
        if len(value) > _MAX_TAGS_BYTES:
            raise CommandError(
                ErrorCode.FailedToParse, f"tagged write concern has more than {_MAX_TAGS_BYTES} bytes of tags"
            )
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
    """Checks `wtimeout`: FailedToParse (9). Values that are no numbers are accepted."""
    if _as_integer(value) > _MAX_INT32:
        raise CommandError(ErrorCode.FailedToParse, "wtimeout must be an integer within int32 range")


def _as_integer(value: Value) -> int:
    assert isinstance(value, (int, float, Decimal128))
    return clamp_to_long(value)
