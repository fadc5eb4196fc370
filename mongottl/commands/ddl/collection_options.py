"""Checks of the options of `create` and `collMod`.

Source: MongoDB's create and collMod references; error codes are those of MongoDB 8.2.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.catalog.index import TS_FIELD
from mongottl.catalog.namespace import SYSTEM_DATABASES
from mongottl.catalog.time_series import completed_options
from mongottl.commands.request import BOOL_FIELD, DOCUMENT_FIELD, INTEGER, TEXT, Field, RequestParser, parser_for
from mongottl.document.bson_field import wrong_type
from mongottl.document.numbers import is_true, whole
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match import check_operators, parse_condition
from mongottl.versions import Features

MAX_CAPPED_BYTES: Final = 2**50
MAX_CAPPED_DOCUMENTS: Final = 2**31 - 1
VALIDATION_LEVELS: Final = ("off", "strict", "moderate")
VALIDATION_ACTIONS: Final = ("error", "warn", "errorAndLog")
_CLUSTERED_BY_FLAG: Final = 5979703
_CLUSTERED_NOT_UNIQUE: Final = 5979700
_CLUSTERED_VERSION: Final = 5979704


def check_capped_size(size: int) -> None:
    if not 1 <= size <= MAX_CAPPED_BYTES:
        bound = f">= 1, actual value '{size}'" if size < 1 else f"<= {MAX_CAPPED_BYTES}, actual value '{size}'"
        raise CommandError(ErrorCode.BadValue, f"BSON field 'size' value must be {bound}")


def checked_capped_max(documents: int) -> int:
    """`max` of a capped collection; 0 for no limit, also if it is negative."""
    if documents > MAX_CAPPED_DOCUMENTS:
        raise CommandError(ErrorCode.BadValue, "max in a capped collection has to be < 2^31 or not set")
    return max(documents, 0)


# Validators


def check_validator(database: str, collection: str, validator: bytes, features: Features | None) -> None:
    """Checks a validator: the errors of filters; InvalidOptions (72) in namespaces where mongod stores its own data.

    BadValue (2) or 5626500 for operators that validators cannot use. An empty validator is always valid.
    """
    if is_empty(validator):
        return
    if collection.startswith("system."):
        raise CommandError(
            ErrorCode.InvalidOptions,
            f"Document validators not allowed on system collection {database}.{collection}",
        )
    if database in SYSTEM_DATABASES:
        raise CommandError(
            ErrorCode.InvalidOptions,
            f"Document validators are not allowed on collection {database}.{collection} in the {database} database",
        )
    check_operators(validator)
    parse_condition(validator, ParseContext(features=features))


# Storage engines


# Time series


class TimeSeriesOptions(NamedTuple):
    time_field: Annotated[str, Field("timeField", TEXT)]
    meta_field: Annotated[str | None, Field("metaField", TEXT)] = None
    granularity: Annotated[str | None, Field("granularity", TEXT)] = None
    bucket_rounding_s: Annotated[int | None, Field("bucketRoundingSeconds", INTEGER)] = None
    bucket_max_span_s: Annotated[int | None, Field("bucketMaxSpanSeconds", INTEGER)] = None


_TIME_SERIES: Final[RequestParser] = parser_for("create.timeseries", TimeSeriesOptions)


def checked_time_series(value: bytes) -> bytes:
    """`timeseries` of `create`, with its defaults, as listCollections shows it.

    40414 without `timeField`; InvalidOptions (72) for invalid field names and for bucket sizes that contradict each
    other; BadValue (2) for bucket sizes out of range and for an unknown granularity.
    """
    given = TimeSeriesOptions._make(_TIME_SERIES.parse(value, [], None))
    _check_field_name("timeField", given.time_field)
    if given.meta_field is not None:
        _check_field_name("metaField", given.meta_field)
        if given.meta_field == "_id":
            raise CommandError(ErrorCode.InvalidOptions, "The field name '_id' is not allowed for 'metaField'")
        if given.meta_field == given.time_field:
            raise CommandError(ErrorCode.InvalidOptions, "'metaField' and 'timeField' must not have the same name")
    return completed_options(
        given.time_field, given.meta_field, given.granularity, given.bucket_rounding_s, given.bucket_max_span_s
    )


def _check_field_name(option: str, name: str) -> None:
    if "\0" in name:
        raise CommandError(ErrorCode.BadValue, f"'{option}' cannot contain embedded null bytes")
    if "." in name:
        raise CommandError(ErrorCode.InvalidOptions, f"'{option}' must be a top-level field and not contain a '.'")


def check_expiring_time_field(name: Value) -> None:
    """CommandNotSupported (115) for `_ts` as the time field of a time series collection with a TTL."""
    if name == TS_FIELD:
        raise CommandError(
            ErrorCode.CommandNotSupported,
            f"measurements cannot expire by a field '{TS_FIELD}': it stands for the time of a document's last write",
        )


def checked_expiry_s(seconds: int, now_ms: int) -> int:
    """Checks `expireAfterSeconds` of a clustered or time series collection.

    InvalidOptions (72) if it is negative, or more seconds than since 1970.
    """
    if seconds < 0:
        raise CommandError(ErrorCode.InvalidOptions, "TTL 'expireAfterSeconds' option cannot be less than 0")
    if seconds > now_ms // 1000:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "TTL 'expireAfterSeconds' option must be within an acceptable range, try a lower number."
            f" It would reach back before 1970: {seconds}",
        )
    return seconds


# Clustered collections


class ClusteredIndexOptions(NamedTuple):
    key: Annotated[bytes, Field("key", DOCUMENT_FIELD)]
    unique: Annotated[bool, Field("unique", BOOL_FIELD)]
    version: Annotated[int, Field("v", INTEGER)] = 2
    name: Annotated[str, Field("name", TEXT)] = "_id_"


_CLUSTERED_INDEX: Final[RequestParser] = parser_for("create.clusteredIndex", ClusteredIndexOptions)


def checked_clustered_index(value: Value) -> dict[str, Value] | None:
    """`clusteredIndex` of `create`, with its defaults, as listCollections shows it; None if it is false.

    40414, 40415, TypeMismatch (14) for a malformed one; InvalidIndexSpecificationOption (197) for a key other than
    {_id: 1}; 5979700 if not unique, 5979703 for `true`, 5979704 for a version other than 2.
    """
    if isinstance(value, bool) or is_number(value):
        if is_true(value):
            raise CommandError(
                _CLUSTERED_BY_FLAG, "The format of clusteredIndex that is true is for internal collections alone"
            )
        return None
    if not isinstance(value, bytes):
        raise wrong_type("create.clusteredIndex", value, "[object, bool, int, long, double, decimal]")
    given = ClusteredIndexOptions._make(_CLUSTERED_INDEX.parse(value, [], None))
    key = fields(given.key)
    if len(key) != 1 or key[0][0] != "_id" or not _is_one(key[0][1]):
        raise CommandError(
            ErrorCode.InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported for key: {_id: 1}",
        )
    if not given.unique:
        raise CommandError(_CLUSTERED_NOT_UNIQUE, "The clusteredIndex option requires unique: true to be specified")
    if given.version != 2:
        raise CommandError(_CLUSTERED_VERSION, "The clusteredIndex option requires v: 2 if specified")
    return {"v": 2, "key": given.key, "name": given.name, "unique": True}


def _is_one(value: Value) -> bool:
    return whole(value) == 1


# Views


def check_view_source(name: str) -> None:
    """Checks the name in `viewOn`: BadValue (2), InvalidNamespace (73)."""
    if name == "":
        raise CommandError(ErrorCode.BadValue, "'viewOn' cannot be empty")
    if "\0" in name or name.startswith((".", "$")):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid name for 'viewOn': {name}")
