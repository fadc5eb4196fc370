"""Values as error messages of updates print them: `{ a: 5, b: [ 1.0, "x" ] }`, `_id: ObjectId('…')`.

The notation is mongod's, roughly: drivers and tests look at error codes, people read the text.
"""

from mongottl.document.types import (
    BinData,
    Date,
    Decimal128,
    JavaScript,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Symbol,
    Timestamp,
    Undefined,
    Value,
    type_code_of,
)
from mongottl.document.walk import fields, get_value


def show(value: Value) -> str:
    """One value."""
    if isinstance(value, bytes):
        inner = ", ".join(f"{name}: {show(member)}" for name, member in fields(value))
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return "[ " + ", ".join([show(item) for item in value]) + " ]" if value else "[]"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(int(value))
    if value is None:
        return "null"
    if isinstance(value, ObjectId):
        return f"ObjectId('{value}')"
    if isinstance(value, Date):
        return f"new Date({value.ms})"
    return _show_rare(value)


def _show_rare(value: Value) -> str:
    if isinstance(value, Decimal128):
        return str(value)
    if isinstance(value, Timestamp):
        return f"Timestamp({value.time}, {value.inc})"
    if isinstance(value, BinData):
        return f"BinData({value.subtype}, {value.data.hex().upper()})"
    if isinstance(value, Regex):
        return f"/{value.pattern}/{value.options}"
    if isinstance(value, JavaScript):
        return value.code
    if isinstance(value, Symbol):
        return f'"{value.text}"'
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, MinKey):
        return "MinKey"
    if isinstance(value, MaxKey):
        return "MaxKey"
    return str(value)


def show_element(name: str, value: Value) -> str:
    """`name: value`."""
    return f"{name}: {show(value)}"


def show_id(doc: bytes) -> str:
    """`_id: 1` of a document, or "no id"."""
    value = get_value(doc, "_id")
    return "no id" if type_code_of(value) == 0 else show_element("_id", value)
