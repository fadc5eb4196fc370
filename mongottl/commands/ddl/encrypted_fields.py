"""Checks of `encryptedFields` of `create`; Queryable Encryption itself is not supported.

    {fields: [{path: "ssn", keyId: <UUID>, bsonType: "string", queries: {queryType: "equality"} | [ … ]}]}

Source: MongoDB's "Queryable Encryption" pages; error codes are those of MongoDB 8.2.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.ddl.collection_options import check_word
from mongottl.commands.request import (
    ANY,
    DOCUMENTS,
    GIVEN_BOOL,
    TEXT,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.document.bson_field import NUMBERS, wrong_type
from mongottl.document.compare import compare_values
from mongottl.document.numbers import clamp_to_long, whole
from mongottl.document.types import MISSING, BinData, Decimal128, Value, type_code_of, type_name
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
# Types that cannot be encrypted.
_NEVER_ENCRYPTED: Final = ("minKey", "maxKey", "null", "undefined")
_RANGE_TYPES: Final = {"int": 32, "long": 64, "double": 64, "decimal": 128, "date": 64}

_EMPTY_PATH: Final = 6316402
_ID_PATH: Final = 6316403
_DUPLICATE_PATH: Final = 6338402
_UNSUPPORTED_TYPE: Final = 6338406
_MIN_NOT_BELOW_MAX: Final = 6720005
_NO_RANGE_TYPE: Final = 6775201
_BOUND_OF_OTHER_TYPE: Final = 7018200
_TRIM_FACTOR: Final = 8574000
_NO_TEXT_TYPE: Final = 9783400
_STRING_LENGTHS: Final = 9783406
_NO_QUERIES: Final = 9783412
_TOO_MANY_QUERIES: Final = 9783413
_QUERIES_CLASH: Final = 9783414


class EncryptedFieldsOptions(NamedTuple):
    fields: Annotated[list[bytes], Field("fields", DOCUMENTS)]
    state_collection: Annotated[str | None, Field("escCollection", TEXT)] = None
    cache_collection: Annotated[str | None, Field("eccCollection", TEXT)] = None
    compaction_collection: Annotated[str | None, Field("ecocCollection", TEXT)] = None


class EncryptedField(NamedTuple):
    key_id: Annotated[Value, Field("keyId", ANY)]
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
    """Always raises: the error of a malformed `encryptedFields`, else CommandNotSupported (115)."""
    given = EncryptedFieldsOptions._make(_OPTIONS.parse(options, [], None))
    paths: list[str] = []
    for document in given.fields:
        field = EncryptedField._make(_FIELD.parse(document, [], None))
        _check_field(field)
        for other in paths:
            if f"{field.path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field.path}."):
                raise CommandError(
                    _DUPLICATE_PATH, f"Conflicting field paths found in encryptedFields: {field.path} and {other}"
                )
        paths.append(field.path)
    raise CommandError(ErrorCode.CommandNotSupported, "The option 'create.encryptedFields' is not supported yet")


def _check_field(field: EncryptedField) -> None:
    if not isinstance(field.key_id, BinData) or field.key_id.subtype != 4:
        raise wrong_type("create.encryptedFields.fields.keyId", field.key_id, "UUID")
    if field.path == "":
        raise CommandError(_EMPTY_PATH, "Encrypted field must have a non-empty path")
    if field.path == "_id" or field.path.startswith("_id."):
        raise CommandError(_ID_PATH, "Cannot encrypt _id or its subfields")
    if field.bson_type in _NEVER_ENCRYPTED:
        raise CommandError(_UNSUPPORTED_TYPE, f"Type '{field.bson_type}' is not a supported encrypted type")
    if field.queries is MISSING:
        return
    if isinstance(field.queries, bytes):
        documents = [field.queries]
    elif isinstance(field.queries, list) and all(isinstance(query, bytes) for query in field.queries):
        documents = [query for query in field.queries if isinstance(query, bytes)]
    else:
        raise wrong_type("create.encryptedFields.fields.queries", field.queries, "[array, object]")
    if not documents:
        raise CommandError(_NO_QUERIES, "At least one query type must be specified in 'queries'")
    queries = [FieldQuery._make(_QUERY.parse(document, [], None)) for document in documents]
    for query in queries:
        _check_query(field, query)
    if len(queries) > 2:
        raise CommandError(_TOO_MANY_QUERIES, "A field can have at most two query types")
    if len(queries) == 2:
        kinds = {query.query_type for query in queries}
        if kinds != {"suffixPreview", "prefixPreview"}:
            raise CommandError(_QUERIES_CLASH, "Only suffixPreview and prefixPreview can be combined")


def _check_query(field: EncryptedField, query: FieldQuery) -> None:
    check_word("create.encryptedFields.fields.queries.queryType", query.query_type, _QUERY_TYPES)
    _exact("contention", query.contention, 0)
    _exact("sparsity", query.sparsity, 1)
    _exact("precision", query.precision, 0)
    trim_factor = _exact("trimFactor", query.trim_factor, 0)
    _exact("strMaxLength", query.max_length, 1)
    shortest = _exact("strMinQueryLength", query.min_query_length, 1)
    longest = _exact("strMaxQueryLength", query.max_query_length, 1)
    if query.query_type in _TEXT_TYPES:
        _check_text(field, query, shortest, longest)
    elif query.query_type in ("range", "rangePreview"):
        _check_range(field, query, trim_factor)


def _check_text(field: EncryptedField, query: FieldQuery, shortest: int | None, longest: int | None) -> None:
    if field.bson_type != "string":
        raise CommandError(_NO_TEXT_TYPE, f"A field with the query type {query.query_type} must be of type string")
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


def _check_range(field: EncryptedField, query: FieldQuery, trim_factor: int | None) -> None:
    bits = _RANGE_TYPES.get(field.bson_type or "")
    if bits is None:
        raise CommandError(_NO_RANGE_TYPE, f"Type '{field.bson_type}' is not a supported range indexed type")
    for bound in (query.minimum, query.maximum):
        if bound is not None and type_name(type_code_of(bound)) != field.bson_type:
            raise CommandError(_BOUND_OF_OTHER_TYPE, "Range bounds must be of the type of the field")
    if query.minimum is not None and query.maximum is not None and compare_values(query.minimum, query.maximum) >= 0:
        raise CommandError(_MIN_NOT_BELOW_MAX, "Minimum value must be less than maximum value")
    if trim_factor is not None and trim_factor >= bits:
        raise CommandError(_TRIM_FACTOR, "The field has a trim factor that is not less than the number of its bits")


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
