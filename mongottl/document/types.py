"""BSON type codes, and the Python classes of BSON values.

The classes of decoded values:

    double      float                 string       str
    document    bytes (raw BSON)      array        list of values
    binary      BinData               undefined    Undefined
    objectId    bson.ObjectId         bool         bool
    date        Date                  null         None
    regex       Regex                 dbPointer    DBPointer
    javascript  JavaScript            symbol       Symbol
    int         int                   timestamp    bson.Timestamp
    long        bson.Int64            decimal      bson.Decimal128
    minKey      bson.MinKey           maxKey       bson.MaxKey

and `MISSING` where there is no value. A `bytes` is always a document, so that documents keep, without being decoded,
their field order, duplicate fields and exact types; binary data has a class of its own for that reason, as have the
types for which PyMongo's classes lose something (regex options, symbols, undefined) or are slow to build (dates).
A plain `int` is an int32: code that computes a larger one must make it an `Int64` (see `integer`).

Source: https://bsonspec.org/spec.html.
"""

from typing import Final, TypeAlias

from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

__all__ = [
    "ARRAY",
    "BINARY",
    "BOOL",
    "CODE",
    "CODE_WITH_SCOPE",
    "DATE",
    "DB_POINTER",
    "DECIMAL128",
    "DOCUMENT",
    "DOUBLE",
    "END",
    "INT32",
    "INT64",
    "INT64_MAX",
    "INT64_MIN",
    "INT_MAX",
    "INT_MIN",
    "MAX_DOCUMENT_BYTES",
    "MAX_KEY",
    "MIN_KEY",
    "MISSING",
    "NULL",
    "OBJECT_ID",
    "REGEX",
    "STRING",
    "SYMBOL",
    "TIMESTAMP",
    "UNDEFINED",
    "BinData",
    "DBPointer",
    "Date",
    "Decimal128",
    "Int64",
    "JavaScript",
    "MaxKey",
    "MinKey",
    "Missing",
    "ObjectId",
    "RawArray",
    "RawDocument",
    "Regex",
    "Symbol",
    "Timestamp",
    "Undefined",
    "Value",
    "integer",
    "is_number",
    "type_code_of",
    "type_name",
]

RawDocument: TypeAlias = bytes
Value: TypeAlias = object

END: Final = 0
DOUBLE: Final = 1
STRING: Final = 2
DOCUMENT: Final = 3
ARRAY: Final = 4
BINARY: Final = 5
UNDEFINED: Final = 6
OBJECT_ID: Final = 7
BOOL: Final = 8
DATE: Final = 9
NULL: Final = 10
REGEX: Final = 11
DB_POINTER: Final = 12
CODE: Final = 13
SYMBOL: Final = 14
CODE_WITH_SCOPE: Final = 15
INT32: Final = 16
TIMESTAMP: Final = 17
INT64: Final = 18
DECIMAL128: Final = 19
MIN_KEY: Final = 255
MAX_KEY: Final = 127

# Largest document in bytes, and mongod's `maxBsonObjectSize`.
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_TYPE_NAMES: Final[dict[int, str]] = {
    END: "missing",
    DOUBLE: "double",
    STRING: "string",
    DOCUMENT: "object",
    ARRAY: "array",
    BINARY: "binData",
    UNDEFINED: "undefined",
    OBJECT_ID: "objectId",
    BOOL: "bool",
    DATE: "date",
    NULL: "null",
    REGEX: "regex",
    DB_POINTER: "dbPointer",
    CODE: "javascript",
    SYMBOL: "symbol",
    CODE_WITH_SCOPE: "javascriptWithScope",
    INT32: "int",
    TIMESTAMP: "timestamp",
    INT64: "long",
    DECIMAL128: "decimal",
    MIN_KEY: "minKey",
    MAX_KEY: "maxKey",
}
# The codes of all types that a value in a document may have.
BSON_TYPES: Final = tuple(code for code in _TYPE_NAMES if code != END)


class Missing:
    """The type of `MISSING`: no such field. Not null, which is a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


class Undefined:
    """The deprecated BSON value `undefined`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undefined)

    def __hash__(self) -> int:
        return 6

    def __repr__(self) -> str:
        return "Undefined()"


class Date:
    """A BSON date: signed milliseconds since 1970-01-01T00:00:00Z, over the whole int64 range."""

    def __init__(self, ms: int) -> None:
        self.ms: Final = ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Date) and self.ms == other.ms

    def __hash__(self) -> int:
        return hash(self.ms)

    def __repr__(self) -> str:
        return f"Date({self.ms})"


class BinData:
    """Binary data with its subtype. (Subtype 2's inner length prefix is kept as it came.)"""

    def __init__(self, data: bytes, subtype: int = 0) -> None:
        self.data: Final = data
        self.subtype: Final = subtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinData) and self.subtype == other.subtype and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.data, self.subtype))

    def __repr__(self) -> str:
        return f"BinData({self.data!r}, {self.subtype})"


class RawArray:
    """An array as raw BSON. Only replies contain it: large arrays are encoded incrementally, before the reply is."""

    def __init__(self, data: bytes) -> None:
        self.data: Final = data


class Regex:
    """A regular expression as stored: pattern and option letters, neither interpreted."""

    def __init__(self, pattern: str, options: str = "") -> None:
        self.pattern: Final = pattern
        self.options: Final = options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Regex) and self.pattern == other.pattern and self.options == other.options

    def __hash__(self) -> int:
        return hash((self.pattern, self.options))

    def __repr__(self) -> str:
        return f"Regex({self.pattern!r}, {self.options!r})"


class JavaScript:
    """JavaScript code, with its scope document or None. Stored and compared, never run."""

    def __init__(self, code: str, scope: bytes | None = None) -> None:
        self.code: Final = code
        self.scope: Final = scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JavaScript) and self.code == other.code and self.scope == other.scope

    def __hash__(self) -> int:
        return hash((self.code, self.scope))

    def __repr__(self) -> str:
        return f"JavaScript({self.code!r}, {self.scope!r})"


class Symbol:
    """The deprecated BSON symbol; it compares as the string of the same text."""

    def __init__(self, text: str) -> None:
        self.text: Final = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Symbol({self.text!r})"


class DBPointer:
    """The deprecated BSON DBPointer: a namespace and the 12 bytes of an ObjectId."""

    def __init__(self, namespace: str, oid: bytes) -> None:
        self.namespace: Final = namespace
        self.oid: Final = oid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DBPointer) and self.namespace == other.namespace and self.oid == other.oid

    def __hash__(self) -> int:
        return hash((self.namespace, self.oid))

    def __repr__(self) -> str:
        return f"DBPointer({self.namespace!r}, {self.oid!r})"


def type_name(type_code: int) -> str:
    """mongod's alias of a type code, as used by `$type` and in error messages: 16 is "int"."""
    return _TYPE_NAMES[type_code]


def type_code_of(value: Value) -> int:
    """The BSON type code that `build` would write for a value; END (0) for MISSING.

    A dict counts as a document too, since replies are built from dicts. TypeError for other Python types.
    """
    if isinstance(value, str):
        return STRING
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, Int64):
        return INT64
    if isinstance(value, int):
        return INT32 if INT_MIN <= value <= INT_MAX else INT64
    if isinstance(value, float):
        return DOUBLE
    if value is None:
        return NULL
    if isinstance(value, (bytes, dict)):
        return DOCUMENT
    if isinstance(value, (list, tuple)):
        return ARRAY
    if isinstance(value, ObjectId):
        return OBJECT_ID
    if isinstance(value, Date):
        return DATE
    return _rare_type_code_of(value)


def _rare_type_code_of(value: Value) -> int:
    if isinstance(value, Missing):
        return END
    if isinstance(value, Decimal128):
        return DECIMAL128
    if isinstance(value, BinData):
        return BINARY
    if isinstance(value, Timestamp):
        return TIMESTAMP
    if isinstance(value, Regex):
        return REGEX
    if isinstance(value, JavaScript):
        return CODE if value.scope is None else CODE_WITH_SCOPE
    if isinstance(value, Symbol):
        return SYMBOL
    if isinstance(value, Undefined):
        return UNDEFINED
    if isinstance(value, DBPointer):
        return DB_POINTER
    if isinstance(value, MinKey):
        return MIN_KEY
    if isinstance(value, MaxKey):
        return MAX_KEY
    raise TypeError(f"not a BSON value: {type(value).__name__}")


def is_number(value: Value) -> bool:
    """Whether a value is a BSON number (a bool is not)."""
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float, Decimal128))


def integer(number: int) -> Value:
    """An int32 where the number fits, else an Int64. OverflowError beyond 64 bits."""
    if INT_MIN <= number <= INT_MAX:
        return int(number)
    if number < INT64_MIN or number > INT64_MAX:
        raise OverflowError("integer does not fit 64 bits")
    return Int64(number)
