"""Checks of `encryptedFields` of `create`, and of the options and indexes of encrypted collections.

Encrypted writes and queries themselves are not supported.

    {fields: [{path: "ssn", keyId: <UUID>, bsonType: "string", queries: {queryType: "equality"} | [ … ]}]}

The option is stored and listed, and the collection takes only binary values at these paths; commands with
`encryptionInformation`, which drivers send for them, are refused by name.

Source: MongoDB's "Queryable Encryption" pages; error codes are those of MongoDB 8.2.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.catalog.index import IndexDescriptor
from mongottl.commands.request import (
    ANY,
    DOCUMENTS,
    GIVEN_BOOL,
    INT32_FIELD,
    TEXT,
    UUID,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.document.bson_field import NUMBERS, checked_word, wrong_type
from mongottl.document.compare import compare_values
from mongottl.document.freeing import list_for, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import clamp_to_long, whole
from mongottl.document.path import check_path_depth
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import BSON_TYPES, MISSING, BinData, Decimal128, Value, type_code_of, type_name
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode

_QUERY_TYPES: Final = (
    "equality",
    "range",
    "rangePreview",
    "suffixPreview",
    "prefixPreview",
    "substringPreview",
)
_TEXT_TYPES: Final = ("suffixPreview", "prefixPreview", "substringPreview")
_TYPES: Final = frozenset(type_name(code) for code in BSON_TYPES)
# Types that cannot be encrypted at all, and those that cannot be queried by equality.
_NEVER_ENCRYPTED: Final = ("minKey", "maxKey", "null", "undefined")
_WITHOUT_EQUALITY: Final = (*_NEVER_ENCRYPTED, "double", "decimal", "object", "array")
_RANGE_TYPES: Final = {"int": 32, "long": 64, "double": 64, "decimal": 128, "date": 64}

# About how many microseconds the parsing of one field takes.
_FIELD_WEIGHT: Final = 8

_EMPTY_PATH: Final = 6316402
_ID_PATH: Final = 6316403
_DUPLICATE_KEY: Final = 6338401
_DUPLICATE_PATH: Final = 6338402
_CONFLICTING_PATHS: Final = 6338403
_NO_EQUALITY_TYPE: Final = 6338405
_UNSUPPORTED_TYPE: Final = 6338406
_TTL_INDEX: Final = 6346501
_ENCRYPTED_KEY: Final = 6346502
_QUERIES_WITHOUT_TYPE: Final = 6412601
_MIN_NOT_BELOW_MAX: Final = 6720005
_NO_RANGE_TYPE: Final = 6775201
_FLOAT_WITHOUT_ALL: Final = 6967100
_MIN_OF_OTHER_TYPE: Final = 7018200
_MAX_OF_OTHER_TYPE: Final = 7018201
_STATE_NAME: Final = 7406900
_COMPACTION_NAME: Final = 7406902
_TRIM_FACTOR: Final = 8574000
_NO_TEXT_TYPE: Final = 9783400
_STRING_LENGTHS: Final = 9783406
_NO_MAX_LENGTH: Final = 9783407
_QUERY_LONGER_THAN_TEXT: Final = 9783408
_NO_QUERIES: Final = 9783412
_TOO_MANY_QUERIES: Final = 9783413
_QUERIES_CLASH: Final = 9783414

# What must not be given with a query type: option of the query to error code, in the order of mongod's checks.
_NOT_FOR_EQUALITY: Final = (
    ("sparsity", 6775205),
    ("min", 6775206),
    ("max", 6775207),
    ("trimFactor", 8574104),
    ("precision", 10774900),
    ("strMaxLength", 10774901),
    ("strMinQueryLength", 10774902),
    ("strMaxQueryLength", 10774903),
    ("caseSensitive", 10774904),
    ("diacriticSensitive", 10774905),
)
_NOT_FOR_TEXT: Final = (
    ("sparsity", 10774911),
    ("min", 10774912),
    ("max", 10774913),
    ("trimFactor", 10774914),
    ("precision", 10774915),
)
# What both query types of one field must agree on.
_SAME_FOR_BOTH: Final = (("caseSensitive", 9783409), ("diacriticSensitive", 9783410), ("contention", 9783411))


class EncryptedFieldsOptions(NamedTuple):
    fields: Annotated[list[bytes], Field("fields", DOCUMENTS)]
    state_collection: Annotated[str | None, Field("escCollection", TEXT)] = None
    cache_collection: Annotated[str | None, Field("eccCollection", TEXT)] = None
    compaction_collection: Annotated[str | None, Field("ecocCollection", TEXT)] = None
    text_version: Annotated[Value, Field("strEncodeVersion", INT32_FIELD)] = None


class EncryptedField(NamedTuple):
    key_id: Annotated[BinData, Field("keyId", UUID)]
    path: Annotated[str, Field("path", TEXT)]
    bson_type: Annotated[str | None, Field("bsonType", TEXT)] = None
    queries: Annotated[Value, Field("queries", ANY)] = MISSING


class FieldQuery(NamedTuple):
    query_type: Annotated[str, Field("queryType", TEXT)]
    contention: Annotated[Value, Field("contention", ANY)] = None
    sparsity: Annotated[Value, Field("sparsity", ANY)] = None
    minimum: Annotated[Value, Field("min", ANY)] = None
    maximum: Annotated[Value, Field("max", ANY)] = None
    precision: Annotated[Value, Field("precision", ANY)] = None
    trim_factor: Annotated[Value, Field("trimFactor", ANY)] = None
    max_length: Annotated[Value, Field("strMaxLength", ANY)] = None
    min_query_length: Annotated[Value, Field("strMinQueryLength", ANY)] = None
    max_query_length: Annotated[Value, Field("strMaxQueryLength", ANY)] = None
    case_sensitive: Annotated[bool | None, Field("caseSensitive", GIVEN_BOOL)] = None
    diacritic_sensitive: Annotated[bool | None, Field("diacriticSensitive", GIVEN_BOOL)] = None


_OPTIONS: Final[RequestParser] = parser_for("create.encryptedFields", EncryptedFieldsOptions)
_FIELD: Final[RequestParser] = parser_for("create.encryptedFields.fields", EncryptedField)
_QUERY: Final[RequestParser] = parser_for("create.encryptedFields.fields.queries", FieldQuery)


def check_encrypted_fields(options: bytes) -> None:
    """The error of a malformed `encryptedFields`, in the order in which mongod checks it."""
    given = EncryptedFieldsOptions._make(_OPTIONS.parse(options, [], None))
    described: list[EncryptedField] = list_for(len(given.fields))
    for document in given.fields:
        give_way(_FIELD_WEIGHT)
        described.append(EncryptedField._make(_FIELD.parse(document, [], None)))
    for field in described:
        give_way(_FIELD_WEIGHT)
        _check_field(field)
    _check_state_name(given.state_collection, "esc", _STATE_NAME)
    _check_state_name(given.compaction_collection, "ecoc", _COMPACTION_NAME)
    keys: set[BinData] = set_for(len(described))
    paths: list[str] = list_for(len(described))
    for field in described:
        give_way()
        if field.key_id in keys:
            raise CommandError(_DUPLICATE_KEY, "Duplicate key ids are not allowed")
        keys.add(field.key_id)
        _check_path(field.path)
        paths.append(field.path.replace(".", "\0"))
    _check_paths(paths)


def check_always_validated(level: str | None, action: str | None) -> None:
    """BadValue (2) for a `validationLevel` or `validationAction` with which an encrypted collection would take
    documents that are not encrypted. None: not given."""
    if level not in (None, "strict"):
        raise CommandError(
            ErrorCode.BadValue, "Validation levels other than 'strict' are not allowed on encrypted collections"
        )
    if action == "warn":
        raise CommandError(ErrorCode.BadValue, "Validation action of 'warn' is not allowed on encrypted collections")


def check_encrypted_index(paths: list[str], descriptor: IndexDescriptor) -> None:
    """6346501 for a TTL index on an encrypted collection, 6346502 for an index on one of its encrypted paths, on a part
    of it or on a field below it. paths: the encrypted ones.

    Deleting encrypted documents takes tokens that only clients have, so MongoDB lets no TTL index do it. But it asks so
    of createIndexes alone: collMod makes an ordinary index of such a collection a TTL index, there and here.
    """
    if descriptor.expire_after_s is not None:
        raise CommandError(_TTL_INDEX, "TTL indexes are not allowed on encrypted collections")
    for indexed, _ in fields(descriptor.key):
        for path in paths:
            give_way()
            if f"{path}.".startswith(f"{indexed}.") or indexed.startswith(f"{path}."):
                raise CommandError(_ENCRYPTED_KEY, f"Index not allowed on, or a prefix of, the encrypted field {path}")


def _check_state_name(name: str | None, kind: str, code: int) -> None:
    if name is not None and not (name.startswith("enxcol_.") and name.endswith((".esc", ".ecc", ".ecoc"))):
        raise CommandError(code, f"The name must have the form enxcol_.<collection>.{kind}")


def _check_path(path: str) -> None:
    if path == "":
        raise CommandError(_EMPTY_PATH, "Encrypted field must have a non-empty path")
    if path == "_id" or path.startswith("_id."):
        raise CommandError(_ID_PATH, "Cannot encrypt _id or its subfields")
    if "\0" in path:
        raise CommandError(ErrorCode.BadValue, "The path of an encrypted field cannot contain a null character")
    check_path_depth(path)


def _check_paths(paths: list[str]) -> None:
    """6338402 for two equal paths, 6338403 for the beginning of another one. paths: with a NUL in place of each dot, so
    that a path comes right before those that go on from it."""
    before = ""
    for path in sort_in_parts(paths):
        give_way()
        if path == before:
            raise CommandError(_DUPLICATE_PATH, "Duplicate paths are not allowed")
        if before and path.startswith(before + "\0"):
            shown, other = before.replace("\0", "."), path.replace("\0", ".")
            raise CommandError(
                _CONFLICTING_PATHS, f"One of the paths is a prefix of the other: '{other}' and '{shown}'"
            )
        before = path


def _check_field(field: EncryptedField) -> None:
    if field.bson_type is not None and field.bson_type not in _TYPES:
        raise CommandError(ErrorCode.BadValue, f"Unknown type name: {field.bson_type}")
    if field.queries is MISSING:
        if field.bson_type in _NEVER_ENCRYPTED:
            raise CommandError(_UNSUPPORTED_TYPE, f"Type '{field.bson_type}' is not a supported encrypted type")
        return
    if isinstance(field.queries, bytes):
        documents = [field.queries]
    elif isinstance(field.queries, list) and all(isinstance(query, bytes) for query in field.queries):
        documents = [query for query in field.queries if isinstance(query, bytes)]
    else:
        raise wrong_type("create.encryptedFields.fields.queries", field.queries, "[array, object]")
    queries = [FieldQuery._make(_QUERY.parse(document, [], None)) for document in documents]
    for query in queries:
        _check_options(query)
    if not queries:
        raise CommandError(_NO_QUERIES, "At least one query type must be specified in 'queries'")
    if field.bson_type is None:
        raise CommandError(_QUERIES_WITHOUT_TYPE, "A field with 'queries' must have a 'bsonType'")
    if len(queries) == 1:
        _check_query(field, queries[0], documents[0])
        return
    if len(queries) > 2:
        raise CommandError(_TOO_MANY_QUERIES, "A field can have at most two query types")
    if {query.query_type for query in queries} != {"suffixPreview", "prefixPreview"}:
        raise CommandError(_QUERIES_CLASH, "Only suffixPreview and prefixPreview can be combined")
    for query, document in zip(queries, documents, strict=True):
        _check_text(field, query, document)
    for name, code in _SAME_FOR_BOTH:
        if compare_values(get_value(documents[0], name), get_value(documents[1], name)) != 0:
            raise CommandError(code, f"{name} must be the same for both query types of the field {field.path}")


def _check_options(query: FieldQuery) -> None:
    """Types and ranges of a query's options, whatever its type is."""
    checked_word("create.encryptedFields.fields.queries.queryType", query.query_type, _QUERY_TYPES)
    _exact("contention", query.contention, 0)
    _exact("sparsity", query.sparsity, 1)
    _exact("precision", query.precision, 0)
    _exact("trimFactor", query.trim_factor, 0)
    _exact("strMaxLength", query.max_length, 1)
    _exact("strMinQueryLength", query.min_query_length, 1)
    _exact("strMaxQueryLength", query.max_query_length, 1)


def _check_query(field: EncryptedField, query: FieldQuery, document: bytes) -> None:
    if query.query_type in _TEXT_TYPES:
        _check_text(field, query, document)
    elif query.query_type in ("range", "rangePreview"):
        _check_range(field, query)
    else:
        if field.bson_type in _WITHOUT_EQUALITY:
            raise CommandError(_NO_EQUALITY_TYPE, f"Type '{field.bson_type}' is not a supported equality indexed type")
        _check_not_given(query, document, _NOT_FOR_EQUALITY)


def _check_not_given(query: FieldQuery, document: bytes, refused: tuple[tuple[str, int], ...]) -> None:
    for name, code in refused:
        if get_value(document, name) not in (MISSING, None):
            raise CommandError(code, f"'{name}' cannot be given with the query type {query.query_type}")


def _check_text(field: EncryptedField, query: FieldQuery, document: bytes) -> None:
    if field.bson_type != "string":
        raise CommandError(_NO_TEXT_TYPE, f"A field with the query type {query.query_type} must be of type string")
    _check_not_given(query, document, _NOT_FOR_TEXT)
    shortest = _exact("strMinQueryLength", query.min_query_length, 1)
    longest = _exact("strMaxQueryLength", query.max_query_length, 1)
    required = (
        (9783402, "strMinQueryLength", shortest),
        (9783403, "strMaxQueryLength", longest),
        (9783404, "caseSensitive", query.case_sensitive),
        (9783405, "diacriticSensitive", query.diacritic_sensitive),
    )
    for code, name, value in required:
        if value is None:
            raise CommandError(code, f"{name} must be specified for the query type {query.query_type}")
    if shortest is not None and longest is not None and shortest > longest:
        raise CommandError(_STRING_LENGTHS, "strMinQueryLength cannot be greater than strMaxQueryLength")
    if query.query_type == "substringPreview":
        text_length = _exact("strMaxLength", query.max_length, 1)
        if text_length is None:
            raise CommandError(_NO_MAX_LENGTH, "strMaxLength must be specified for the query type substringPreview")
        if longest is not None and longest > text_length:
            raise CommandError(_QUERY_LONGER_THAN_TEXT, "strMaxQueryLength cannot be greater than strMaxLength")


def _check_range(field: EncryptedField, query: FieldQuery) -> None:
    bits = _RANGE_TYPES.get(field.bson_type or "")
    if bits is None:
        raise CommandError(_NO_RANGE_TYPE, f"Type '{field.bson_type}' is not a supported range indexed type")
    for bound, code in ((query.minimum, _MIN_OF_OTHER_TYPE), (query.maximum, _MAX_OF_OTHER_TYPE)):
        if bound is not None and type_name(type_code_of(bound)) != field.bson_type:
            raise CommandError(code, "Range bounds must be of the type of the field")
    if query.minimum is not None and query.maximum is not None and compare_values(query.minimum, query.maximum) >= 0:
        raise CommandError(_MIN_NOT_BELOW_MAX, "Minimum value must be less than maximum value")
    if field.bson_type in ("double", "decimal"):
        given = [value is not None for value in (query.minimum, query.maximum, query.precision)]
        if any(given) != all(given):
            raise CommandError(_FLOAT_WITHOUT_ALL, "Precision, min and max must all be given, or none of them")
    trim_factor = _exact("trimFactor", query.trim_factor, 0)
    if trim_factor is not None and trim_factor >= _bits_between(query, bits):
        raise CommandError(_TRIM_FACTOR, "The trim factor is not less than the number of bits of the field's values")


def _bits_between(query: FieldQuery, bits: int) -> int:
    """The number of bits in which values between the bounds differ: all of the type's without two bounds."""
    if isinstance(query.minimum, int) and isinstance(query.maximum, int):
        return (query.maximum - query.minimum).bit_length()
    return bits


def _exact(name: str, value: Value, minimum: int) -> int | None:
    """A whole number of at least `minimum`. FailedToParse (9) for a fraction, BadValue (2) if it is less."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
        raise wrong_type(f"create.encryptedFields.fields.queries.{name}", value, NUMBERS)
    number = clamp_to_long(value)
    if whole(value) is None:
        raise CommandError(ErrorCode.FailedToParse, f"Expected an integer: {name}: {value}")
    if number < minimum:
        raise CommandError(
            ErrorCode.BadValue, f"BSON field '{name}' value must be >= {minimum}, actual value '{number}'"
        )
    return number
