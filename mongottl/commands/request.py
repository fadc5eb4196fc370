"""Parsing a command's body into its typed request.

A command declares its request as a NamedTuple whose fields are annotated with a `Field`:

    class CountRequest(NamedTuple):
        collection: Annotated[str, Field("count", COLLECTION)]
        query: Annotated[bytes, Field("query", DOCUMENT)] = EMPTY_DOCUMENT

Unknown fields are refused (40415), as are duplicate (40413), missing (40414) and wrongly typed ones (14). A field that
is null counts as absent. The arguments that every command takes (`lsid`, `maxTimeMS`, …) go to `GenericArguments`.

Source: the errors of mongod's command parser; the generic arguments of MongoDB's command reference.
"""

from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from mypy_extensions import i64

from mongottl.document.bson_field import unknown_field
from mongottl.document.freeing import freed_in_slices
from mongottl.document.numbers import clamp_to_long, is_true, whole
from mongottl.document.types import (
    ARRAY,
    BINARY,
    BOOL,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    MISSING,
    NULL,
    STRING,
    UNDEFINED,
    BinData,
    Decimal128,
    Value,
    type_name,
)
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, read_embedded, read_string
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.sent_command import NO_SEQUENCES, SentCommand

# Kinds of fields. Each defines which BSON types are accepted and how the value is converted.
ANY: Final = 0  # any type, decoded
COLLECTION: Final = 1  # the collection's name, a string
TEXT: Final = 2  # a string
DOCUMENT_FIELD: Final = 3  # raw bytes
BOOL_FIELD: Final = 4  # bool or number
WHOLE: Final = 5  # a number >= 0, integral
INTEGER: Final = 6  # an integral number
ARRAY_FIELD: Final = 7  # list of decoded values
DOCUMENTS: Final = 8  # list of raw documents; also from a document sequence
IGNORED: Final = 10  # accepted and ignored
ONE: Final = 12  # the command's name as a field, without a collection: any value
UNSUPPORTED: Final = 13  # a field of mongod that is refused by name
NUMBER: Final = 14  # any number, decoded
STRICT_BOOL: Final = 15  # bool only
UUID: Final = 16  # binary data of subtype 4
INT32_FIELD: Final = 17  # an int32, no other number
NAMES: Final = 18  # list of the strings among the first elements of an array
RAW_ARRAY: Final = 19  # an array as raw bytes
# From this kind on null is a wrong type; for the others it counts as an absent field.
_FIRST_WITHOUT_NULL: Final = 20
HINT: Final = 20  # document or string
PIPELINE_OR_DOCUMENT: Final = 21  # raw document, or list
GIVEN_BOOL: Final = 22  # bool only
GIVEN_DOCUMENT: Final = 23  # raw bytes
PIPELINE: Final = 24  # list of raw documents
COUNT_LIMIT: Final = 25  # an integral number of either sign
BOOL_OR_UUID: Final = 26  # a bool, or binary data of subtype 4
GIVEN_DOCUMENTS: Final = 27  # list of raw documents, none of which may be null

T = TypeVar("T", bound=tuple[Any, ...])
_new_tuple: Final[Any] = tuple.__new__
# Most fields of one request: each has a bit of an i64.
_MOST_FIELDS: Final = 62
# Elements that NAMES looks at.
_MOST_NAMES: Final = 100
# Fields of a request that are not the command's own: generic arguments, and those that are ignored.
MOST_OTHER_FIELDS: Final = 1000
_UUID_SUBTYPE: Final = 4
_UUID_BYTES: Final = 16

_EXPECTED: Final = {
    COLLECTION: "string",
    TEXT: "string",
    DOCUMENT_FIELD: "object",
    BOOL_FIELD: "[bool, long, int, decimal, double]",
    WHOLE: "[long, int, decimal, double]",
    INTEGER: "[long, int, decimal, double]",
    NUMBER: "[long, int, decimal, double]",
    ARRAY_FIELD: "array",
    DOCUMENTS: "array",
    STRICT_BOOL: "bool",
    UUID: "UUID",
    INT32_FIELD: "int",
    NAMES: "array",
    RAW_ARRAY: "array",
    GIVEN_BOOL: "bool",
    GIVEN_DOCUMENT: "object",
    BOOL_OR_UUID: "[bool, binData]",
    GIVEN_DOCUMENTS: "array",
}


class Field(NamedTuple):
    """One field of a request on the wire: its name and its kind."""

    name: str
    kind: int = ANY


class GenericArguments:
    """The arguments that every command takes."""

    def __init__(self) -> None:
        self.database = ""
        self.lsid: bytes | None = None
        self.txn_number: int | None = None
        self.autocommit: bool | None = None
        self.start_transaction: bool | None = None
        self.max_time_ms = -1  # -1 if it was not given
        self.comment: Value = MISSING
        self.read_concern: bytes | None = None
        self.write_concern: bytes | None = None
        self.api_version: str | None = None
        self.api_strict = False
        self.api_deprecation_errors = False
        self.raw_data = False
        self.asks_help = False
        # The position in the body of the document `$clusterTime`, or 0.
        self.cluster_time_at: int = 0
        # Undeclared fields, for commands that accept any.
        self.extra_fields: dict[str, Value] = {}

    def sent_command(
        self, spec: object = None, body: bytes = b"", sequences: list[tuple[str, list[bytes]]] = NO_SEQUENCES
    ) -> SentCommand:
        """The command that has these arguments."""
        comment = self.comment if self.comment is not MISSING else None
        return SentCommand(
            spec, body, sequences, comment, self.extra_fields, self.raw_data, self.write_concern is not None
        )

    def leave_session(self) -> None:
        """Forgets the session, and with it the transaction or retryable write."""
        self.lsid = None
        self.txn_number = None
        self.autocommit = None
        self.start_transaction = None


# Generic arguments, by the way in which `RequestParser` reads them.
_IGNORED_ARGUMENT: Final = 0
_DB: Final = 1
_LSID: Final = 2
_TXN_NUMBER: Final = 3
_AUTOCOMMIT: Final = 4
_START_TRANSACTION: Final = 5
_MAX_TIME_MS: Final = 6
_COMMENT: Final = 7
_READ_CONCERN: Final = 8
_WRITE_CONCERN: Final = 9
_READ_PREFERENCE: Final = 10
_API_VERSION: Final = 11
_API_STRICT: Final = 12
_API_DEPRECATION_ERRORS: Final = 13
_RAW_DATA: Final = 14
_CLUSTER_TIME: Final = 15
_HELP: Final = 16

_GENERIC: Final[dict[bytes, int]] = {
    b"$db": _DB,
    b"lsid": _LSID,
    b"$clusterTime": _CLUSTER_TIME,
    b"txnNumber": _TXN_NUMBER,
    b"autocommit": _AUTOCOMMIT,
    b"startTransaction": _START_TRANSACTION,
    b"maxTimeMS": _MAX_TIME_MS,
    b"comment": _COMMENT,
    b"readConcern": _READ_CONCERN,
    b"writeConcern": _WRITE_CONCERN,
    b"$readPreference": _READ_PREFERENCE,
    b"apiVersion": _API_VERSION,
    b"apiStrict": _API_STRICT,
    b"apiDeprecationErrors": _API_DEPRECATION_ERRORS,
    b"rawData": _RAW_DATA,
    b"$audit": _IGNORED_ARGUMENT,
    b"$client": _IGNORED_ARGUMENT,
    b"$configServerState": _IGNORED_ARGUMENT,
    b"$configTime": _IGNORED_ARGUMENT,
    b"$topologyTime": _IGNORED_ARGUMENT,
    b"$oplogQueryData": _IGNORED_ARGUMENT,
    b"$queryOptions": _IGNORED_ARGUMENT,
    b"$replData": _IGNORED_ARGUMENT,
    b"$impersonatedUser": _IGNORED_ARGUMENT,
    b"mayBypassWriteBlocking": _IGNORED_ARGUMENT,
    b"maxTimeMSOpOnly": _IGNORED_ARGUMENT,
    b"clientOperationKey": _IGNORED_ARGUMENT,
    b"tracking_info": _IGNORED_ARGUMENT,
    b"help": _HELP,
}


def made(kind: type[T], values: list[Value]) -> T:
    """The NamedTuple of these values. `_make` does the same in an interpreted function, which takes five times as
    long."""
    return _new_tuple(kind, values)  # type: ignore[no-any-return]


class RequestParser:
    """Parses the bodies of one command.

    fields: wire name and kind of each field, in the order of the request's fields. defaults: of the last fields; the
    first ones are required. strict: whether unknown fields are refused (in a handshake they are not). raw_data: whether
    the command takes `rawData`. by_anyone: whether clients may run it that are not logged in: values that have no
    effect are then not decoded, and arrays in fields of any type are empty, since that takes long for some arrays.
    """

    def __init__(
        self,
        command: str,
        fields: list[Field],
        defaults: list[Value],
        strict: bool = True,
        raw_data: bool = False,
        by_anyone: bool = False,
    ) -> None:
        self.command = command
        self._by_anyone = by_anyone
        self._strict = strict
        self._raw_data = raw_data
        self._fields = fields
        if len(fields) > _MOST_FIELDS:
            raise ValueError(f"more than {_MOST_FIELDS} fields: {command}")
        required = len(fields) - len(defaults)
        # Their slots, as bits; and the values of a request without any field.
        self._required: i64 = (i64(1) << i64(required)) - 1
        self._absent: list[Value] = [MISSING] * required + defaults
        self._slots: dict[bytes, int] = {encode_text(field.name): slot for slot, field in enumerate(fields)}
        self._kinds: list[int] = [field.kind for field in fields]

    def parse(
        self, body: bytes, sequences: list[tuple[str, list[bytes]]], generic: GenericArguments | None
    ) -> list[Value]:
        """The values of the request's fields in order; sets the fields of `generic`.

        generic: None for a document within a request, such as a statement of `update`, without generic arguments.
        40413 or 40415 for more than MOST_OTHER_FIELDS others, which are unknown or stand there more than once: mongod
        reads on, but a message has room for two million.
        """
        values = self._absent.copy()
        # The slots that have a value, as bits.
        given: i64 = 0
        cursor = ElementCursor(body, 0)
        first = True
        others: i64 = 0
        while cursor.next():
            name = cursor.name_bytes()
            slot = self._slots.get(name, -1)
            if slot < 0 and first and generic is not None:
                slot = 0  # an alias of the command, or its name in another case
            first = False
            if slot < 0 and generic is None:
                raise unknown_field(f"{self.command}.{cursor.name()}")
            if slot < 0:
                assert generic is not None
                others += 1
                if others > MOST_OTHER_FIELDS:
                    raise self._one_too_many(cursor.name())
                self._take_generic(body, cursor, name, generic)
                continue
            bit: i64 = i64(1) << i64(slot)
            if given & bit:
                raise CommandError(40413, f"BSON field '{self.command}.{cursor.name()}' is a duplicate field")
            value = self._value(body, self._kinds[slot], cursor)
            if value is not MISSING:
                values[slot] = value
                given |= bit
        for identifier, documents in sequences:
            given |= self._take_sequence(identifier, documents, values, given)
        if (given & self._required) != self._required:
            raise self._incomplete(given)
        return values

    def _incomplete(self, given: i64) -> CommandError:
        """The error for the first required field that is missing. given: the slots that have a value."""
        slot: i64 = 0
        while given & (i64(1) << slot):
            slot += 1
        return CommandError(
            40414, f"BSON field '{self.command}.{self._fields[slot].name}' is missing but a required field"
        )

    def _one_too_many(self, name: str) -> CommandError:
        if encode_text(name) in _GENERIC:
            return CommandError(40413, f"BSON field '{self.command}.{name}' is a duplicate field")
        return unknown_field(f"{self.command}.{name}")

    def _take_sequence(self, identifier: str, documents: list[bytes], values: list[Value], given: i64) -> i64:
        """Sets the value of a document sequence; the bit of its slot. given: the slots that have a value."""
        slot = self._slots.get(encode_text(identifier), -1)
        if slot < 0 or self._kinds[slot] != DOCUMENTS:
            raise unknown_field(f"{self.command}.{identifier}")
        bit: i64 = i64(1) << i64(slot)
        if given & bit:
            raise CommandError(40413, f"BSON field '{self.command}.{identifier}' is a duplicate field")
        values[slot] = documents
        return bit

    def _take_generic(self, body: bytes, cursor: ElementCursor, name: bytes, generic: GenericArguments) -> None:
        which = _GENERIC.get(name, -1)
        type_code: i64 = cursor.type_code
        if which < 0 or (which == _RAW_DATA and not self._raw_data):
            if not self._strict:
                if not self._by_anyone:
                    generic.extra_fields[cursor.name()] = cursor.decoded()
                return
            raise unknown_field(f"{self.command}.{cursor.name()}")
        if which == _DB:
            self._expect(cursor, type_code == STRING, "string")
            generic.database = read_string(body, cursor.value)
        elif which == _LSID:
            if type_code == NULL or type_code == UNDEFINED:
                return
            self._expect(cursor, type_code == DOCUMENT, "object")
            generic.lsid = read_embedded(body, cursor.value)
        elif which == _IGNORED_ARGUMENT or type_code == NULL or type_code == UNDEFINED:
            return
        elif which == _TXN_NUMBER:
            self._expect(cursor, type_code == INT64, "long")
            number = cursor.decoded()
            assert isinstance(number, int)
            generic.txn_number = number
        elif which == _AUTOCOMMIT:
            self._expect(cursor, type_code == BOOL, "bool")
            generic.autocommit = body[cursor.value] != 0
        elif which == _START_TRANSACTION:
            self._expect(cursor, type_code == BOOL, "bool")
            generic.start_transaction = body[cursor.value] != 0
        elif which == _MAX_TIME_MS:
            generic.max_time_ms = self._max_time_ms(body, cursor)
        elif which == _COMMENT:
            if not self._by_anyone:
                generic.comment = cursor.decoded()
        elif which == _READ_CONCERN:
            self._expect(cursor, type_code == DOCUMENT, "object")
            generic.read_concern = read_embedded(body, cursor.value)
        elif which == _WRITE_CONCERN:
            self._expect(cursor, type_code == DOCUMENT, "object")
            generic.write_concern = read_embedded(body, cursor.value)
        elif which == _READ_PREFERENCE:
            self._expect(cursor, type_code == DOCUMENT, "object")
        elif which == _API_VERSION:
            self._expect(cursor, type_code == STRING, "string")
            generic.api_version = read_string(body, cursor.value)
        elif which == _API_STRICT:
            self._expect(cursor, type_code == BOOL, "bool")
            generic.api_strict = body[cursor.value] != 0
        elif which == _API_DEPRECATION_ERRORS:
            self._expect(cursor, type_code == BOOL, "bool")
            generic.api_deprecation_errors = body[cursor.value] != 0
        elif which == _RAW_DATA:
            self._expect(cursor, type_code == BOOL, "bool")
            generic.raw_data = body[cursor.value] != 0
        elif which == _CLUSTER_TIME:
            self._expect(cursor, type_code == DOCUMENT, "object")
            generic.cluster_time_at = int(cursor.value)
        elif which == _HELP:
            generic.asks_help = type_code == BOOL and body[cursor.value] != 0

    def _max_time_ms(self, body: bytes, cursor: ElementCursor) -> int:
        number = self._exact(cursor)
        if number < 0 or number > 2**31 - 1:
            raise CommandError(
                ErrorCode.BadValue,
                f"{number} value for maxTimeMS is out of range [0, {2**31 - 1}]",
            )
        return number

    def _expect(self, cursor: ElementCursor, right: bool, expected: str) -> None:
        if not right:
            raise self._wrong_type(cursor, expected)

    def _wrong_type(self, cursor: ElementCursor, expected: str) -> CommandError:
        form = "types" if expected.startswith("[") else "type"
        return CommandError(
            ErrorCode.TypeMismatch,
            f"BSON field '{self.command}.{cursor.name()}' is the wrong type '{type_name(int(cursor.type_code))}',"
            f" expected {form} '{expected}'",
        )

    def _value(self, body: bytes, kind: int, cursor: ElementCursor) -> Value:
        type_code: i64 = cursor.type_code
        if kind == COLLECTION:
            if type_code != STRING:
                raise CommandError(
                    ErrorCode.InvalidNamespace,
                    f"collection name has invalid type {type_name(int(type_code))}",
                )
            return read_string(body, cursor.value)
        if kind == ONE:
            return None if self._by_anyone else cursor.decoded()
        if kind == IGNORED or ((type_code == NULL or type_code == UNDEFINED) and kind < _FIRST_WITHOUT_NULL):
            return None if kind == ANY else MISSING
        if type_code == UNDEFINED and kind == GIVEN_BOOL:
            return MISSING
        if kind == DOCUMENT_FIELD and type_code == DOCUMENT:
            return read_embedded(body, cursor.value)
        if kind == WHOLE or kind == INTEGER:
            number = self._integral(cursor)
            if number < 0 and kind == WHOLE:
                raise CommandError(
                    ErrorCode.BadValue, f"BSON field '{cursor.name()}' value must be >= 0, actual value '{number}'"
                )
            return number
        if kind == BOOL_FIELD:
            if type_code == BOOL:
                return body[cursor.value] != 0
            if type_code == INT32 or type_code == INT64 or type_code == DOUBLE or type_code == DECIMAL128:
                return is_true(cursor.decoded())
        elif kind == TEXT and type_code == STRING:
            return read_string(body, cursor.value)
        elif (kind == DOCUMENTS or kind == GIVEN_DOCUMENTS) and type_code == ARRAY:
            return self._documents(body, cursor, kind == DOCUMENTS)
        elif kind == ARRAY_FIELD and type_code == ARRAY:
            return cursor.decoded()
        elif kind == NAMES and type_code == ARRAY:
            return _names(body, cursor)
        elif kind == RAW_ARRAY and type_code == ARRAY:
            return read_embedded(body, cursor.value)
        elif kind == STRICT_BOOL or kind == GIVEN_BOOL:
            if type_code == BOOL:
                return body[cursor.value] != 0
        elif kind == UUID and type_code == BINARY:
            uuid = cursor.decoded()
            if isinstance(uuid, BinData) and uuid.subtype == _UUID_SUBTYPE:
                return _bool_or_uuid(uuid)
        elif kind == INT32_FIELD and type_code == INT32:
            return cursor.decoded()
        elif kind == HINT:
            if type_code == STRING or type_code == DOCUMENT:
                return cursor.decoded()
            raise CommandError(ErrorCode.FailedToParse, "Hint must be a string or an object")
        elif kind == PIPELINE_OR_DOCUMENT:
            if type_code == DOCUMENT or type_code == ARRAY:
                return cursor.decoded()
            raise CommandError(ErrorCode.FailedToParse, "Update argument must be either an object or an array")
        elif kind == GIVEN_DOCUMENT and type_code == DOCUMENT:
            return read_embedded(body, cursor.value)
        elif kind == PIPELINE:
            return self._pipeline(cursor)
        elif kind == COUNT_LIMIT:
            return self._count_limit(cursor)
        elif kind == BOOL_OR_UUID and (type_code == BOOL or type_code == BINARY):
            return _bool_or_uuid(cursor.decoded())
        elif kind == NUMBER and type_code in (INT32, INT64, DOUBLE, DECIMAL128):
            return cursor.decoded()
        elif kind == ANY:
            return cursor.decoded_without_elements() if self._by_anyone else cursor.decoded()
        elif kind == UNSUPPORTED:
            raise CommandError(
                ErrorCode.CommandNotSupported, f"The option '{self.command}.{cursor.name()}' is not supported yet"
            )
        raise self._wrong_type(cursor, _EXPECTED[kind])

    def _integral(self, cursor: ElementCursor) -> int:
        """A number as an int. TypeMismatch (14) if it is no number."""
        type_code: i64 = cursor.type_code
        if type_code != INT32 and type_code != INT64 and type_code != DOUBLE and type_code != DECIMAL128:
            raise self._wrong_type(cursor, "[long, int, decimal, double]")
        value = cursor.decoded()
        assert isinstance(value, (int, float, Decimal128))
        return clamp_to_long(value)

    def _exact(self, cursor: ElementCursor) -> int:
        """A whole number. TypeMismatch (14) if it is no number, FailedToParse (9) if it has a fraction."""
        number = self._integral(cursor)
        value = cursor.decoded()
        if whole(value) is None:
            raise CommandError(ErrorCode.FailedToParse, f"Expected an integer: {cursor.name()}: {value}")
        return number

    def _count_limit(self, cursor: ElementCursor) -> int:
        if cursor.type_code not in (INT32, INT64, DOUBLE, DECIMAL128):
            raise CommandError(ErrorCode.BadValue, "limit value is not a valid number")
        number = self._exact(cursor)
        if number == -(2**63):
            raise CommandError(ErrorCode.BadValue, "limit value for count cannot be min long")
        return number

    def _pipeline(self, cursor: ElementCursor) -> Value:
        value = cursor.decoded()
        if not isinstance(value, list):
            raise CommandError(ErrorCode.TypeMismatch, "A pipeline must be an array of objects")
        for stage in value:
            if not isinstance(stage, bytes):
                raise CommandError(ErrorCode.TypeMismatch, "Each element of the 'pipeline' array must be an object")
        return value

    def _documents(self, body: bytes, cursor: ElementCursor, skips_null: bool) -> list[Value]:
        """The documents of an array. skips_null: whether null and undefined elements are skipped, as an absent field's
        value is."""
        documents: list[Value] = []
        elements = ElementCursor(body, cursor.value)
        while elements.next():
            if skips_null and (elements.type_code == NULL or elements.type_code == UNDEFINED):
                continue
            if elements.type_code != DOCUMENT:
                raise CommandError(
                    ErrorCode.TypeMismatch,
                    f"BSON field '{self.command}.{cursor.name()}.{elements.name()}' is the wrong type"
                    f" '{type_name(int(elements.type_code))}', expected type 'object'",
                )
            documents.append(read_embedded(body, elements.value))
        return freed_in_slices(documents)


def _names(body: bytes, cursor: ElementCursor) -> list[Value]:
    names: list[Value] = []
    elements = ElementCursor(body, cursor.value)
    looked_at: i64 = 0
    while looked_at < _MOST_NAMES and elements.next():
        looked_at += 1
        if elements.type_code == STRING:
            names.append(read_string(body, elements.value))
    return names


def _bool_or_uuid(value: Value) -> Value:
    if isinstance(value, BinData) and (value.subtype != _UUID_SUBTYPE or len(value.data) != _UUID_BYTES):
        raise CommandError(ErrorCode.InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
    return value


def parser_for(
    command: str, request: type[Any], strict: bool = True, raw_data: bool = False, by_anyone: bool = False
) -> RequestParser:
    """The parser of a request class."""
    fields = fields_of(request)
    return RequestParser(command, fields, list(request._field_defaults.values()), strict, raw_data, by_anyone)


def fields_of(request: type[Any]) -> list[Field]:
    """The wire names and kinds of a request class's fields, from its annotations and those of its base, in order."""
    annotations = get_type_hints(request, include_extras=True)
    fields: list[Field] = []
    for name in request._fields:
        [field] = annotations[name].__metadata__
        fields.append(field)
    return fields
