"""Read and write concerns of a server with one member, and the version of the API that a client wants.

Everything committed here is committed by a majority of one, so the levels differ only in whether the reply waits for
the disk (`j: true`). What one member cannot promise is refused.

Source: MongoDB's "Read Concern", "Write Concern" and "Stable API" pages.
"""

from typing import Final

from mongottl.commands.registry import STABLE_API, CommandSpec
from mongottl.commands.request import GenericArguments
from mongottl.document.types import Date, Timestamp, is_number
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode

_LEVELS: Final = ("local", "available", "majority", "linearizable", "snapshot")
_READERS: Final = ("find", "aggregate", "count", "distinct", "insert", "update", "delete", "findAndModify", "explain")


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


def check_read_concern(command: str, concern: bytes) -> None:
    """BadValue (2), TypeMismatch (14) or 40415 for nonsense, CommandNotSupported (115) for what is to come."""
    for option, value in fields(concern):
        if option == "level":
            if not isinstance(value, str) or value not in _LEVELS:
                raise CommandError(
                    ErrorCode.BadValue,
                    f"Enumeration value '{value}' for field 'readConcern.level' is not a valid value.",
                )
            if value == "snapshot" and command in _READERS:
                raise CommandError(ErrorCode.CommandNotSupported, "readConcern level 'snapshot' is not supported yet")
        elif option in ("afterClusterTime", "atClusterTime"):
            if not isinstance(value, (Timestamp, Date)):
                raise CommandError(
                    ErrorCode.TypeMismatch,
                    f"BSON field 'readConcern.{option}' is the wrong type, expected type 'timestamp'",
                )
        elif option != "provenance":
            raise CommandError(40415, f"BSON field 'readConcern.{option}' is an unknown field.")


def check_write_concern(spec: CommandSpec, concern: bytes) -> bool:
    """Whether the reply must wait for the disk. FailedToParse (9) or UnsatisfiableWriteConcern (100) for the rest."""
    durable = False
    for option, value in fields(concern):
        if option == "w":
            if isinstance(value, str):
                if value != "majority":
                    raise CommandError(79, f"No write concern mode named '{value}' found in replica set configuration")
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                if value < 0 or value > 50:
                    raise CommandError(
                        ErrorCode.FailedToParse, "w has to be a non-negative number and not greater than 50"
                    )
                if value > 1:
                    raise CommandError(ErrorCode.UnsatisfiableWriteConcern, "Not enough data-bearing nodes")
            else:
                raise CommandError(ErrorCode.FailedToParse, "w has to be a number, string, or object")
        elif option in ("j", "fsync"):
            if not isinstance(value, (bool, int, float)):
                raise CommandError(ErrorCode.FailedToParse, f"{option} must be numeric or a boolean value")
            durable = durable or bool(value)
        elif option in ("wtimeout", "wtimeoutMS"):
            if not is_number(value):
                raise CommandError(ErrorCode.FailedToParse, "wtimeout must be numeric")
        elif option not in ("provenance", "getLastError"):
            raise CommandError(ErrorCode.FailedToParse, f"unrecognized write concern field: {option}")
    return durable and spec.writes
