"""Documents as the MongoDB shell writes them, to and from values of `bson`; every type has a form of its own.

    {n: 1, d: 1.0, l: NumberLong(1), m: NumberDecimal("1.5"), t: ISODate("2100-01-01T00:00:00Z"), r: /a.b/i,
     o: ObjectId("…"), u: UUID("…"), b: BinData(0, "…"), ts: Timestamp(1, 2), x: <cursor 1>}

Keys that are identifiers need no quotes. `<name n>` stands for a value that differs from run to run.
"""

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import bson
from bson import Binary, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.code import Code

WIDTH = 118
_TOKENS = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Infinity\b))
    | (?P<regex>/(?:[^/\\]|\\.)+/[a-z]*)
    | (?P<placeholder><[a-z]+\s\d+>)
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<mark>[{}\[\]():,])
    )""",
    re.VERBOSE,
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INT32 = range(-(2**31), 2**31)


def _iso(text: str) -> DatetimeMS:
    return DatetimeMS(datetime.fromisoformat(text))


_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
}
_CALLS: dict[str, Callable[..., Any]] = {
    "NumberDecimal": Decimal128,
    "ISODate": _iso,
    "Date": lambda ms: DatetimeMS(int(ms)),
    "ObjectId": ObjectId,
    "UUID": lambda text: Binary.from_uuid(uuid.UUID(text)),
    "BinData": lambda subtype, text: Binary(base64.b64decode(text), subtype),
    "Timestamp": Timestamp,
    "Code": Code,
    "MinKey": MinKey,
    "MaxKey": MaxKey,
}


class _Parser:
    def __init__(self, text: str, known: Mapping[str, Any]) -> None:
        self.known = known
        self.tokens: list[tuple[str, str]] = []
        pos = 0
        text = text.rstrip()
        while pos < len(text):
            found = _TOKENS.match(text, pos)
            if found is None:
                raise ValueError(f"cannot be read: {text[pos : pos + 30]!r}")
            assert found.lastgroup is not None
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            pos = found.end()
        self.place = 0

    def take(self, wanted: str = "") -> tuple[str, str]:
        if self.place == len(self.tokens):
            raise ValueError("ends too early")
        token = self.tokens[self.place]
        if wanted and token[1] != wanted:
            raise ValueError(f"{wanted!r} is needed where {token[1]!r} stands")
        self.place += 1
        return token

    def list_until(self, end: str, item: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while self.tokens[self.place][1] != end:
            found.append(item())
            if self.tokens[self.place][1] != end:
                self.take(",")
        self.take(end)
        return found

    def pair(self) -> tuple[str, Any]:
        kind, text = self.take()
        key: str = json.loads(text) if kind == "string" else text
        self.take(":")
        return key, self.value()

    def value(self) -> Any:
        kind, text = self.take()
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            if "." in text or "e" in text.lower() or "I" in text:
                return float(text)
            if int(text) not in _INT32:
                raise ValueError(f"{text} is no int32: write NumberLong({text}) or {text}.0")
            return int(text)
        if kind == "regex":
            pattern, _, flags = text[1:].rpartition("/")
            return Regex(pattern, flags)
        if kind == "placeholder":
            if text not in self.known:
                raise ValueError(f"{text} stands in no earlier reply")
            return self.known[text]
        if text == "{":
            return dict(self.list_until("}", self.pair))
        if text == "[":
            return self.list_until("]", self.value)
        if text == "NumberLong":
            self.take("(")
            number = Int64(int(json.loads(self.take()[1])))
            self.take(")")
            return number
        if text in _CALLS and self.place < len(self.tokens) and self.tokens[self.place][1] == "(":
            self.take("(")
            return _CALLS[text](*self.list_until(")", self.value))
        if text in _WORDS:
            return _WORDS[text]
        raise ValueError(f"not a value: {text}")


def parse(text: str, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document that a text names. known: what its placeholders stand for. ValueError says what is wrong with it."""
    parser = _Parser(text, known or {})
    document = parser.value()
    if parser.place != len(parser.tokens) or not isinstance(document, dict):
        raise ValueError("one document is needed")
    return document


class Placeholder(str):
    """Text that is shown as it is: `<cursor 1>`."""


def render(value: Any, width: int = WIDTH, indent: int = 0) -> str:
    """The text of a value, on one line if it fits the width, else with one line for each element."""
    flat = _flat(value)
    if indent + len(flat) <= width or not isinstance(value, (dict, list)) or not value:
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            head = f"{_key(key)}: "
            lines.append(f"{inner}{head}{render(item, width - len(head) - 1, indent + 2)},")
        return "{\n" + "\n".join(lines) + "\n" + " " * indent + "}"
    lines = [f"{inner}{render(item, width - 1, indent + 2)}," for item in value]
    return "[\n" + "\n".join(lines) + "\n" + " " * indent + "]"


def _key(key: str) -> str:
    return key if _IDENTIFIER.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _flat(value: Any) -> str:
    match value:
        case Placeholder():
            return str(value)
        case dict():
            return "{" + ", ".join([f"{_key(key)}: {_flat(item)}" for key, item in value.items()]) + "}"
        case list():
            return "[" + ", ".join([_flat(item) for item in value]) + "]"
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case Code():
            return f"Code({json.dumps(str(value))})"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Int64():
            return f"NumberLong({int(value)})"
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
        case int():
            return str(value)
        case Decimal128():
            return f'NumberDecimal("{value}")'
        case ObjectId():
            return f'ObjectId("{value}")'
        case DatetimeMS():
            return _date(int(value))
        case Binary() if value.subtype == 4 and len(value) == 16:
            return f'UUID("{value.as_uuid()}")'
        case bytes():  # subtype 0 comes as plain bytes
            subtype = value.subtype if isinstance(value, Binary) else 0
            return f'BinData({subtype}, "{base64.b64encode(value).decode()}")'
        case Regex():
            flags = "".join(letter for letter, bit in (("i", 2), ("m", 8), ("s", 16), ("x", 64)) if value.flags & bit)
            return f"/{value.pattern}/{flags}"
        case Timestamp():
            return f"Timestamp({value.time}, {value.inc})"
        case MinKey() | MaxKey():
            return f"{type(value).__name__}()"
    raise TypeError(f"no notation for {type(value).__name__}")


def _date(ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return f"Date(NumberLong({ms}))"
    return f'ISODate("{moment.isoformat(timespec="auto" if not ms % 1000 else "milliseconds").replace("+00:00", "Z")}")'


def shape(value: Any) -> Any:
    """The same document with the names of types in place of values; arrays show their first element."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    names = {
        str: "string",
        bool: "bool",
        int: "int",
        Int64: "long",
        float: "double",
        DatetimeMS: "date",
        ObjectId: "objectId",
        Timestamp: "timestamp",
        Decimal128: "decimal",
        bytes: "binData",
        Binary: "binData",
        type(None): "null",
    }
    return Placeholder(names[type(value)])


CODEC: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(
    document_class=dict, datetime_conversion=bson.DatetimeConversion.DATETIME_MS
)
