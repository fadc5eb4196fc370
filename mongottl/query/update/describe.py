"""Fields as error messages of updates show them: `a: 5`, `_id: ObjectId('…')`."""

from mongottl.document.render import render_value
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value


def show_element(name: str, value: Value) -> str:
    """`name: value`."""
    return f"{name}: {render_value(value)}"


def show_id(doc: bytes) -> str:
    """`_id: 1` for a document, or "no id"."""
    value = get_value(doc, "_id")
    return "no id" if value is MISSING else show_element("_id", value)
