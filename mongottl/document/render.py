"""Values as text, the way mongod writes them into error messages: `{ a: 1, b: "x", _id: ObjectId('…') }`."""

from mongottl.document.types import (
    BinData,
    Date,
    DBPointer,
    Decimal128,
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


def render_value(value: Value) -> str:
    """One value as mongod prints it."""
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return render_double(value)
    if isinstance(value, int):
        return str(int(value))
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return render_document(value)
    if isinstance(value, list):
        return "[ " + ", ".join(render_value(item) for item in value) + " ]" if value else "[]"
    if isinstance(value, ObjectId):
        return f"ObjectId('{value}')"
    return _render_rare(value)


def render_double(number: float) -> str:
    """A double with the `.0` that tells it from an int: `1.0`, `1.5`, `nan.0`, `inf.0`."""
    if number != number:
        return "nan.0"
    if number in (float("inf"), float("-inf")):
        return "inf.0" if number > 0 else "-inf.0"
    if number.is_integer() and abs(number) < 1e15:
        return f"{int(number)}.0" if number != 0 or str(number)[0] != "-" else "-0.0"
    return repr(number)


def _render_rare(value: Value) -> str:
    if isinstance(value, Date):
        return f"new Date({value.ms})"
    if isinstance(value, Decimal128):
        return str(value)
    if isinstance(value, BinData):
        return f"BinData({value.subtype}, {value.data.hex().upper()})"
    if isinstance(value, Timestamp):
        return f"Timestamp({value.time}, {value.inc})"
    if isinstance(value, Regex):
        return f"/{value.pattern}/{value.options}"
    if isinstance(value, JavaScript):
        return value.code if value.scope is None else f"CodeWScope( {value.code}, {render_document(value.scope)})"
    if isinstance(value, Symbol):
        return '"' + value.text + '"'
    if isinstance(value, DBPointer):
        return f"DBRef('{value.namespace}', {value.oid.hex()})"
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, MinKey):
        return "MinKey"
    if isinstance(value, MaxKey):
        return "MaxKey"
    if isinstance(value, Missing):
        return "missing"
    return str(value)


def render_document(document: bytes) -> str:
    """`{ a: 1, b: 2 }`, and `{}` for the empty document."""
    pairs = fields(document)
    if not pairs:
        return "{}"
    return "{ " + ", ".join(f"{name}: {render_value(value)}" for name, value in pairs) + " }"
