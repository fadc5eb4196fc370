"""BSON values as JSON, which QuickJS parses fast, and back.

    string, bool, null, array    as in JSON
    document                     an object
    double, int32                to scripts: numbers. From scripts: numbers are doubles
    others                       {"\\0": type, …}; no field of BSON is named "\\0"

A document with int32 fields also has their names, under "\\0": scripts give a field of such a document back as an int32
if its value is still one. Of two fields with one name scripts see the last.
"""

import json
from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.types import (
    BinData,
    Date,
    DBPointer,
    Decimal128,
    Int64,
    JavaScript,
    MaxKey,
    MinKey,
    Missing,
    ObjectId,
    Regex,
    Symbol,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.document.walk import fields

TAG: Final = "\0"

_quote: Final = json.encoder.encode_basestring_ascii


def to_json(value: Value) -> str:
    """A value as JSON, in ASCII."""
    if isinstance(value, str):
        return _quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Int64):
        return f'{{"\\u0000":"long","v":"{int(value)}"}}'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double_to_json(value)
    if isinstance(value, bytes):
        return _document_to_json(value)
    if isinstance(value, list):
        return "[" + ",".join([to_json(item) for item in value]) + "]"
    if isinstance(value, ObjectId):
        return f'{{"\\u0000":"objectId","v":"{value}"}}'
    if isinstance(value, Date):
        return f'{{"\\u0000":"date","v":{value.ms}}}'
    return _rare_to_json(value)


def _double_to_json(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        text = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return f'{{"\\u0000":"double","v":"{text}"}}'
    return repr(value)


def _document_to_json(document: bytes) -> str:
    parts: list[str] = []
    integers: list[str] = []
    for name, value in fields(document):
        quoted = _quote(name)
        parts.append(f"{quoted}:{to_json(value)}")
        if isinstance(value, int) and not isinstance(value, (bool, Int64)):
            integers.append(quoted)
    if integers:
        parts.append(f'"\\u0000":[{",".join(integers)}]')
    return "{" + ",".join(parts) + "}"


def _rare_to_json(value: Value) -> str:
    if isinstance(value, Decimal128):
        return f'{{"\\u0000":"decimal","v":"{value}","b":"{value.bid.hex()}"}}'
    if isinstance(value, BinData):
        return f'{{"\\u0000":"binary","s":{value.subtype},"v":"{value.data.hex()}"}}'
    if isinstance(value, Timestamp):
        return f'{{"\\u0000":"timestamp","t":{value.time},"i":{value.inc}}}'
    if isinstance(value, Regex):
        return f'{{"\\u0000":"regex","v":{_quote(value.pattern)},"o":{_quote(value.options)}}}'
    if isinstance(value, JavaScript):
        scope = "" if value.scope is None else f',"s":{_document_to_json(value.scope)}'
        return f'{{"\\u0000":"code","v":{_quote(value.code)}{scope}}}'
    if isinstance(value, Symbol):
        return _quote(value.text)
    if isinstance(value, DBPointer):
        return f'{{"\\u0000":"pointer","v":{_quote(value.namespace)},"i":"{value.oid.hex()}"}}'
    if isinstance(value, (Undefined, Missing)):
        return '{"\\u0000":"undefined"}'
    if isinstance(value, MinKey):
        return '{"\\u0000":"minKey"}'
    if isinstance(value, MaxKey):
        return '{"\\u0000":"maxKey"}'
    raise TypeError(f"not a BSON value: {type(value).__name__}")


class _Pairs:
    """A JSON object, with the order of its members."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs: Final = pairs


def parse_reply(text: str) -> dict[str, object]:
    """The members of a reply of `invoke`: `value`, which `from_json` converts, or `error`, and `printed`.

    ValueError if a script has tampered with what makes the replies.
    """
    try:
        reply = json.loads(text, parse_int=float, object_pairs_hook=_Pairs)
    except RecursionError:
        raise ValueError("the reply is nested too deeply") from None
    if not isinstance(reply, _Pairs):
        raise ValueError("the reply is no object")
    return dict(reply.pairs)


def from_json(value: object) -> Value:
    """A BSON value of a parsed JSON value. ValueError, TypeError, KeyError for one that is malformed.

    BSONObjectTooLarge (10334) for a document beyond the limit.
    """
    if isinstance(value, _Pairs):
        pairs = value.pairs
        if pairs and pairs[0][0] == TAG:
            return _special(dict(pairs))
        return encode_fields([(name, from_json(item)) for name, item in pairs])
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def _special(members: dict[str, object]) -> Value:
    kind = members[TAG]
    if kind == "undefined":
        return Undefined()
    if kind == "minKey":
        return MinKey()
    if kind == "maxKey":
        return MaxKey()
    if kind == "timestamp":
        return Timestamp(_whole(members["t"]), _whole(members["i"]))
    value = members["v"]
    if kind == "int":
        return _whole(value)
    if kind == "date":
        return Date(_whole(value))
    if not isinstance(value, str):
        raise TypeError("a value that is no text")
    if kind == "long":
        return Int64(int(value))
    if kind == "double":
        return float(value)
    if kind == "objectId":
        return ObjectId(value)
    if kind == "binary":
        return BinData(bytes.fromhex(value), _whole(members["s"]))
    if kind == "decimal":
        exact = members["b"]
        return Decimal128.from_bid(bytes.fromhex(exact)) if isinstance(exact, str) and exact else Decimal128(value)
    if kind == "regex":
        if "\0" in value:
            raise ValueError("a regular expression with a null character")
        return Regex(value, str(members["o"]))
    if kind == "code":
        scope = from_json(members["s"]) if "s" in members else None
        return JavaScript(value, scope if isinstance(scope, bytes) else None)
    if kind == "pointer":
        return DBPointer(value, bytes.fromhex(str(members["i"])))
    raise ValueError(f"unknown type {kind!r}")


def _whole(value: object) -> int:
    if not isinstance(value, float):
        raise TypeError("a value that is no number")
    return int(value)
