"""getClusterParameter and setClusterParameter, as a replica set has them.

Each parameter is a document; a table declares its fields, their types and ranges. `defaultMaxTimeMS` limits reads;
the others but `changeStreamOptions` are checked, stored and shown, but have no effect.

Source: MongoDB's "getClusterParameter", "setClusterParameter" and "MongoDB Cluster Parameters".
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import DOCUMENT_FIELD, ONE, Field
from mongottl.document.bson_field import NUMBERS, unknown_field, wrong_type
from mongottl.document.build import DocumentsOfReply, encode
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import clamp_to_long, to_double
from mongottl.document.types import BOOL, DOUBLE, INT32, INT64, Int64, Value, is_number, type_code_of
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.cluster_parameters import DEFAULTS, ClusterParameters
from mongottl.query.expr.parser import type_of

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
# What it takes to describe a parameter, in the units of `give_way`.
_WORK: Final = 4


class ParameterField(NamedTuple):
    """One field of a cluster parameter. It has the BSON type of `type_code`; any number is taken for a numeric one.

    minimum, maximum: the range of a number.
    """

    type_code: int
    minimum: float = 0
    maximum: float = _LONG_MAX


_FIELDS: Final[dict[str, dict[str, ParameterField]]] = {
    "addOrRemoveShardInProgress": {"inProgress": ParameterField(BOOL)},
    "changeStreams": {"expireAfterSeconds": ParameterField(INT64, minimum=1)},
    "configServerReadPreferenceForCatalogQueries": {"mustAlwaysUseNearest": ParameterField(BOOL)},
    "defaultMaxTimeMS": {"readOperations": ParameterField(INT64, maximum=_INT_MAX)},
    "fleCompactionOptions": {
        "maxCompactionSize": ParameterField(INT32, minimum=1, maximum=_INT_MAX),
        "maxAnchorCompactionSize": ParameterField(INT32, minimum=1, maximum=_INT_MAX),
        "maxESCEntriesPerCompactionDelete": ParameterField(INT32, minimum=1, maximum=_INT_MAX),
        "compactAnchorPaddingFactor": ParameterField(DOUBLE, minimum=0, maximum=1),
    },
    "internalSearchOptions": {
        "oversubscriptionFactor": ParameterField(DOUBLE, minimum=1),
        "batchSizeGrowthFactor": ParameterField(DOUBLE, minimum=1),
    },
    "pauseMigrationsDuringMultiUpdates": {"enabled": ParameterField(BOOL)},
    "shardedClusterCardinalityForDirectConns": {"hasTwoOrMoreShards": ParameterField(BOOL)},
}


class GetClusterParameterRequest(NamedTuple):
    names: Annotated[Value, Field("getClusterParameter", ONE)]


@command(
    "getClusterParameter",
    GetClusterParameterRequest,
    access=on_cluster("getClusterParameter"),
    help="Values of cluster parameters: by name, or all with '*'.",
    admin_only=True,
    strict=False,
)
def get_cluster_parameter(op: OperationContext, request: GetClusterParameterRequest) -> Reply:
    """`{getClusterParameter: <name> | [<name>, …] | "*"}`: `{clusterParameters: [{_id, <its fields>}]}`.

    NoSuchKey (4) for an unknown name, BadValue (2) without a name, TypeMismatch (14) for anything but strings.
    """
    return {"clusterParameters": op.compute(partial(_all_described, op.service.cluster_parameters, request.names))}


def _all_described(parameters: ClusterParameters, given: Value) -> list[Value]:
    described = DocumentsOfReply()
    for name in _names(given):
        give_way(_WORK)
        described.append(_described(parameters, name))
    return described.documents


def _names(given: Value) -> list[str]:
    if given == "*":
        return sorted(DEFAULTS)
    if isinstance(given, str):
        names = [given]
    elif isinstance(given, list):
        if not given:
            raise CommandError(ErrorCode.BadValue, "Must supply at least one cluster parameter name")
        names = []
        for i, name in enumerate(given):
            give_way()
            if not isinstance(name, str):
                raise wrong_type(f"getClusterParameter.getClusterParameter.{i}", name, "string")
            names.append(name)
    else:
        raise wrong_type("getClusterParameter.getClusterParameter", given, "[string, array]")
    for name in names:
        _check_name(name)
    return names


def _check_name(name: str) -> None:
    if name not in DEFAULTS:
        raise CommandError(ErrorCode.NoSuchKey, f"Unknown server parameter: {name}")


def _described(parameters: ClusterParameters, name: str) -> bytes:
    described: dict[str, Value] = {"_id": name}
    set_at = parameters.set_at.get(name)
    if set_at is not None:
        described["clusterParameterTime"] = set_at
    described.update(parameters.value(name))
    return encode(described)


class SetClusterParameterRequest(NamedTuple):
    parameter: Annotated[bytes, Field("setClusterParameter", DOCUMENT_FIELD)]


@command(
    "setClusterParameter",
    SetClusterParameterRequest,
    access=on_cluster("setClusterParameter"),
    help="Sets a cluster parameter; only defaultMaxTimeMS and changeStreamOptions have an effect.",
    admin_only=True,
    strict=False,
)
def set_cluster_parameter(op: OperationContext, request: SetClusterParameterRequest) -> Reply:
    """`{setClusterParameter: {<name>: {<field>: <value>, …}}}`: fields that are not given get their defaults.

    InvalidOptions (72) for several parameters, NoSuchKey (4) for none and for an unknown one, BadValue (2) for a value
    out of range or no document, DollarPrefixedFieldName (52), TypeMismatch (14) and 40415 for other wrong fields;
    every wrong field of `changeStreamOptions` is a BadValue.
    """
    name, values = op.compute(partial(_parsed, request.parameter))
    op.service.cluster_parameters.replace(name, values, op.service.timestamps.next(op.now_ms), op.now_ms)
    return {}


def _parsed(parameter: bytes) -> tuple[str, dict[str, Value]]:
    """The name and the values of the parameter that is to be set."""
    given = fields(parameter)
    if len(given) > 1:
        raise CommandError(ErrorCode.InvalidOptions, "setClusterParameter takes exactly one parameter")
    name, value = given[0] if given else ("", None)
    _check_name(name)
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.BadValue, f"The value of cluster parameter {name} must be an object")
    for field, _ in fields(value):
        if field.startswith("$"):
            raise CommandError(
                ErrorCode.DollarPrefixedFieldName, f"The field '{field}' of a cluster parameter cannot begin with '$'"
            )
    return name, _checked_change_streams(value) if name == "changeStreamOptions" else _checked(name, value)


def _checked(name: str, document: bytes) -> dict[str, Value]:
    """The values of a parameter of the table `_FIELDS`."""
    declared = _FIELDS[name]
    values = dict(DEFAULTS[name])
    for key, value in fields(document):
        field = declared.get(key)
        if field is None:
            raise unknown_field(f"{name}.{key}")
        if value is not None:
            values[key] = _checked_field(f"{name}.{key}", field, value)
    return values


def _checked_field(path: str, field: ParameterField, value: Value) -> Value:
    if field.type_code == BOOL:
        if type_code_of(value) != BOOL:
            raise wrong_type(path, value, "bool")
        return value
    if not is_number(value):
        raise wrong_type(path, value, NUMBERS)
    number = to_double(value) if field.type_code == DOUBLE else clamp_to_long(value)
    if not field.minimum <= number <= field.maximum:
        raise CommandError(
            ErrorCode.BadValue,
            f"BSON field '{path}' value must be from {field.minimum} to {field.maximum}, actual value '{number}'",
        )
    if field.type_code == INT64:
        return Int64(int(number))
    return number


def _checked_change_streams(document: bytes) -> dict[str, Value]:
    """`{preAndPostImages: {expireAfterSeconds: "off" | <seconds>}}`. BadValue (2) for everything else."""
    images: Value = None
    for key, value in fields(document):
        if key != "preAndPostImages":
            raise _bad_change_streams(f"unknown field '{key}'")
        images = value
    if not isinstance(images, bytes):
        raise _bad_change_streams(f"'preAndPostImages' must be an object, not {type_of(images)}")
    if is_empty(images):
        return {"preAndPostImages": encode({"expireAfterSeconds": "off"})}
    seconds: Value = None
    for key, value in fields(images):
        if key != "expireAfterSeconds":
            raise _bad_change_streams(f"unknown field 'preAndPostImages.{key}'")
        seconds = value
    if seconds == "off" and isinstance(seconds, str):
        return {"preAndPostImages": encode({"expireAfterSeconds": "off"})}
    if not is_number(seconds):
        raise _bad_change_streams("'expireAfterSeconds' must be 'off' or a number of seconds")
    number = clamp_to_long(seconds)
    if number <= 0:
        raise _bad_change_streams("'expireAfterSeconds' must be greater than 0")
    return {"preAndPostImages": encode({"expireAfterSeconds": Int64(number)})}


def _bad_change_streams(reason: str) -> CommandError:
    return CommandError(ErrorCode.BadValue, f"Invalid value of changeStreamOptions: {reason}")
