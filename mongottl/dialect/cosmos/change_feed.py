"""Change streams of Cosmos DB: the only pipeline that they take, and their resume tokens.

    [{$changeStream: {fullDocument: "updateLookup"}},
     {$match: {operationType: {$in: ["insert", "update", "replace"]}}},
     {$project: {_id: 1, fullDocument: 1, ns: 1, documentKey: 1}}]

Source: Microsoft's "Change streams in Azure Cosmos DB's API for MongoDB", and "Parallelizing change streams" in its
page on extension commands; the text of the refusal from users' reports, among them programs that compare it.
"""

import base64
import json
from typing import Final

from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import BinData, Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode

_RULE: Final = "Change stream must be followed by a match and then a project stage"
_STAGES: Final = ("$changeStream", "$match", "$project")
# What events have.
_FIELDS: Final = ("_id", "fullDocument", "ns", "documentKey")
BARE_WATCH: Final = "bare-watch"
_OPERATION_TYPE: Final = "operationType"
_RID_BYTES: Final = 8
_KIND: Final = 1


def check_pipeline(pipeline: list[Value]) -> None:
    """BadValue (2) for a pipeline that begins with `$changeStream` and is not the one above.

    That another `fullDocument`, and fields which events do not have, are refused with the same words is assumed.
    """
    stages = [fields(stage)[0] for stage in pipeline if isinstance(stage, bytes) and fields(stage)]
    if tuple(name for name, _ in stages) != _STAGES or len(pipeline) != len(_STAGES):
        raise _refused()
    (_, options), _, (_, projection) = stages
    if not isinstance(options, bytes) or get_value(options, "fullDocument") != "updateLookup":
        raise _refused()
    if isinstance(projection, bytes) and any(name.partition(".")[0] not in _FIELDS for name, _ in fields(projection)):
        raise _refused()


def _refused() -> CommandError:
    return CommandError(
        ErrorCode.BadValue,
        _RULE,
        advice=advice(
            "A change stream wants fullDocument: 'updateLookup', a $match, and a $project of some of"
            f" {', '.join(_FIELDS)}",
            "give it these",
            allow(BARE_WATCH),
        ),
    )


def without_operation_types(pipeline: list[Value]) -> list[Value]:
    """The pipeline, with no conditions on `operationType` in its `$match` stages: as users report, such a condition
    does not select, and insertions, updates and replacements look the same."""
    selected: list[Value] = []
    for stage in pipeline:
        filter = get_value(stage, "$match") if isinstance(stage, bytes) else None
        selected.append(encode({"$match": _without_operation_types(filter)}) if isinstance(filter, bytes) else stage)
    return selected


def _without_operation_types(filter: bytes) -> bytes:
    kept: list[tuple[str, Value]] = []
    for name, condition in fields(filter):
        if name == _OPERATION_TYPE:
            continue
        if name in ("$and", "$or") and isinstance(condition, list):
            clauses: list[Value] = [
                _without_operation_types(clause) if isinstance(clause, bytes) else clause for clause in condition
            ]
            selects = [clause for clause in clauses if not isinstance(clause, bytes) or fields(clause)]
            if not selects or (name == "$or" and len(selects) < len(clauses)):
                continue  # holds for every event
            condition = selects
        kept.append((name, condition))
    return encode_fields(kept)


def feed_token(collection: BinData, position: str) -> bytes:
    """The resume token `{_data: <binary>, _kind: 1}` of a position. collection: its UUID.

    The binary is a JSON text with the position in each partition; here there is one partition.
    """
    head, tail = _around_position(collection)
    return encode({"_data": BinData(b"".join([head, position.encode("ascii"), tail])), "_kind": _KIND})


def position_of(token: bytes, collection: BinData) -> str:
    """The position of a token. collection: the UUID of the one that it must be of, which one with the same name that is
    created later does not have. InvalidResumeToken (260, assumed) for one that is not of `feed_token`."""
    data = get_value(token, "_data")
    head, tail = _around_position(collection)
    if isinstance(data, BinData) and len(data.data) >= len(head) + len(tail):
        # Not parsed as JSON, since a client may send 16 MB of it.
        position = data.data[len(head) : -len(tail)]
        if data.data.startswith(head) and data.data.endswith(tail) and position.isalnum():
            return position.decode("ascii")
    raise CommandError(
        ErrorCode.InvalidResumeToken,
        "the resume token is not one of this collection's change stream",
        advice=advice("A token of Cosmos DB is of one collection, and ends with it", "begin a new change stream"),
    )


def _around_position(collection: BinData) -> tuple[bytes, bytes]:
    """What stands in a token before and after the position, which are hexadecimal digits."""
    state = {
        "V": 2,
        "Rid": _rid(collection),
        "Continuation": [
            {
                "FeedRange": {"type": "Effective Partition Key Range", "value": {"min": "", "max": "FF"}},
                "State": {"type": "continuation", "value": '"POSITION"'},
            }
        ],
    }
    head, _, tail = json.dumps(state, separators=(",", ":")).encode("ascii").partition(b"POSITION")
    return head, tail


def _rid(collection: BinData) -> str:
    """The id of a collection in the service's form."""
    return base64.b64encode(collection.data[:_RID_BYTES]).decode("ascii")
