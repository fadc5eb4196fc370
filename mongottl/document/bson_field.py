"""Errors about fields of commands, stages and options, with mongod's codes and messages.

    {find: "c", limit: "x"}     BSON field 'find.limit' is the wrong type 'string', expected types '[long, int, …]'

Fields are named by their full path, as in `find.limit`. Here are the errors, and checks that need only the fields.
`OptionField` declares the options of a stage as a table: their types, and whether null counts as absent.
"""

from collections.abc import Collection
from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.document.types import (
    ARRAY,
    BINARY,
    BOOL,
    DOCUMENT,
    NULL,
    STRING,
    TIMESTAMP,
    UNDEFINED,
    Value,
    type_code_of,
    type_name,
)
from mongottl.document.walk import ElementCursor, dict_for, fields
from mongottl.errors import CommandError, ErrorCode, shortened

MISSING_FIELD: Final = 40414
UNKNOWN_FIELD: Final = 40415
DUPLICATE_FIELD: Final = 40413
NUMBERS: Final = "[long, int, decimal, double]"  # what is expected where any numeric type is accepted


def wrong_type(name: str, value: Value, expected: str) -> CommandError:
    """TypeMismatch (14). expected: a type, or several as "[string, object]"."""
    form = "types" if expected.startswith("[") else "type"
    name = shortened(name)
    return CommandError(
        ErrorCode.TypeMismatch,
        f"BSON field '{name}' is the wrong type '{type_name(type_code_of(value))}', expected {form} '{expected}'",
    )


def unknown_field(name: str) -> CommandError:
    return CommandError(UNKNOWN_FIELD, f"BSON field '{shortened(name)}' is an unknown field.")


def missing_field(name: str) -> CommandError:
    return CommandError(MISSING_FIELD, f"BSON field '{name}' is missing but a required field")


def checked_word(name: str, value: Value, words: Collection[str]) -> str:
    """The value, which must be one of `words`: TypeMismatch (14) if it is no string, BadValue (2) for another one."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "string")
    if value not in words:
        raise not_a_word(name, value)
    return value


def not_a_word(name: str, value: str, advice: str = "") -> CommandError:
    """BadValue (2) for a string that a field does not take."""
    text = f"Enumeration value '{shortened(value)}' for field '{name}' is not a valid value."
    return CommandError(ErrorCode.BadValue, text, advice=advice)


def read_fields(name: str, document: bytes) -> dict[str, Value]:
    """A document's fields by name. 40413 for a duplicate field; `check_known` refuses unknown ones."""
    values: dict[str, Value] = dict_for(len(document))
    for key, value in fields(document):
        give_way()
        if key in values:
            raise CommandError(DUPLICATE_FIELD, f"BSON field '{name}.{key}' is a duplicate field")
        values[key] = value
    return values


def read_known(name: str, document: bytes, known: Collection[str]) -> dict[str, Value]:
    """A document's fields by name; arrays are empty, for documents whose fields take none.

    40415 for the first field that is not one of `known`, 40413 for a duplicate: what follows is not looked at, since it
    may be millions of fields.
    """
    values: dict[str, Value] = {}
    cursor = ElementCursor(document, 0)
    while cursor.next():
        key = cursor.name()
        if key not in known:
            raise unknown_field(f"{name}.{key}")
        if key in values:
            raise CommandError(DUPLICATE_FIELD, f"BSON field '{name}.{key}' is a duplicate field")
        values[key] = cursor.decoded_without_elements()
    return values


def check_known(name: str, values: dict[str, Value], known: list[str]) -> None:
    """40415 for an unknown field. mongod checks this after it has checked the required fields."""
    for key in values:
        if key not in known:
            raise unknown_field(f"{name}.{key}")


class OptionField:
    """One option of a stage that is described by a document.

    type_code: the one BSON type that it may have. null_is_absent: whether null and undefined count as an absent
    option; else they are of a wrong type.
    """

    def __init__(self, name: str, type_code: int, null_is_absent: bool = False) -> None:
        self.name: Final = name
        self.type_code: Final = type_code
        self.null_is_absent: Final = null_is_absent


# Stages whose options mongod checks by one rule, in one pass over the document: 40415 for an unknown option, 40413 for
# a duplicate, TypeMismatch (14) for another type. Numbers do not count as booleans.
STAGE_OPTIONS: Final[dict[str, tuple[OptionField, ...]]] = {
    "$changeStream": (
        OptionField("allChangesForCluster", BOOL),
        OptionField("allowToRunOnConfigDB", BOOL),
        OptionField("allowToRunOnSystemNS", BOOL),
        OptionField("fullDocument", STRING, null_is_absent=True),
        OptionField("fullDocumentBeforeChange", STRING, null_is_absent=True),
        OptionField("matchCollectionUUIDForUpdateLookup", BOOL),
        OptionField("resumeAfter", DOCUMENT, null_is_absent=True),
        OptionField("showExpandedEvents", BOOL),
        OptionField("showMigrationEvents", BOOL),
        OptionField("showRawUpdateDescription", BOOL),
        OptionField("showSystemEvents", BOOL),
        OptionField("startAfter", DOCUMENT, null_is_absent=True),
        OptionField("startAtOperationTime", TIMESTAMP, null_is_absent=True),
    ),
    "$currentOp": (
        OptionField("allUsers", BOOL),
        OptionField("idleConnections", BOOL),
        OptionField("idleCursors", BOOL),
        OptionField("idleSessions", BOOL),
        OptionField("localOps", BOOL),
        OptionField("targetAllNodes", BOOL),
        OptionField("truncateOps", BOOL),
    ),
    "$listClusterCatalog": (
        OptionField("shards", BOOL),
        OptionField("balancingConfiguration", BOOL),
        OptionField("tracked", BOOL),
    ),
    "$listLocalSessions": (
        OptionField("allUsers", BOOL, null_is_absent=True),
        OptionField("users", ARRAY, null_is_absent=True),
    ),
    "$listSampledQueries": (OptionField("namespace", STRING, null_is_absent=True),),
    "$listSessions": (
        OptionField("allUsers", BOOL, null_is_absent=True),
        OptionField("users", ARRAY, null_is_absent=True),
    ),
    "$querySettings": (OptionField("showDebugQueryShape", BOOL),),
    "$queryStats": (OptionField("transformIdentifiers", DOCUMENT, null_is_absent=True),),
}
# The fields of `transformIdentifiers`.
IDENTIFIER_TRANSFORM: Final = (OptionField("algorithm", STRING), OptionField("hmacKey", BINARY))
# The two fields of a user in `users`.
SESSION_USER: Final = (OptionField("user", STRING, null_is_absent=True), OptionField("db", STRING, null_is_absent=True))


def read_stage_options(stage: str, argument: bytes) -> dict[str, Value]:
    """The options in the argument of a stage of `STAGE_OPTIONS`, checked by `read_options`."""
    return read_options(stage, argument, STAGE_OPTIONS[stage])


def read_options(name: str, document: bytes, options: tuple[OptionField, ...]) -> dict[str, Value]:
    """The options in a document by name, checked by their table; those that count as absent are left out.

    name: path of the document in error messages. 40415 for an unknown option, 40413 for a duplicate, TypeMismatch (14)
    for a wrong type.
    """
    found: dict[str, Value] = {}
    seen: set[str] = set()
    for key, value in fields(document):
        option = _option_named(key, options)
        if option is None:
            raise unknown_field(f"{name}.{key}")
        if key in seen:
            raise CommandError(DUPLICATE_FIELD, f"BSON field '{name}.{key}' is a duplicate field")
        seen.add(key)
        type_code = type_code_of(value)
        if type_code == option.type_code:
            found[key] = value
        elif not option.null_is_absent or (type_code != NULL and type_code != UNDEFINED):
            raise wrong_type(f"{name}.{key}", value, type_name(option.type_code))
    return found


def _option_named(name: str, options: tuple[OptionField, ...]) -> OptionField | None:
    for option in options:
        if option.name == name:
            return option
    return None
