"""What is wrong with a field of a command, of a stage or of an option: mongod's codes and words for it.

    {find: "c", limit: "x"}     BSON field 'find.limit' is the wrong type 'string', expected types '[long, int, …]'

A field is named with all that it stands in. These are errors to raise, and the checks that need nothing but the fields.
`OptionField` declares the options of a stage as a table: their types, and whether null counts as absent.
"""

from typing import Final

from mongottl.document.types import ARRAY, BOOL, NULL, STRING, UNDEFINED, Value, type_code_of, type_name
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode

MISSING_FIELD: Final = 40414
UNKNOWN_FIELD: Final = 40415
DUPLICATE_FIELD: Final = 40413
NUMBERS: Final = "[long, int, decimal, double]"  # what is expected where any number will do


def wrong_type(name: str, value: Value, expected: str) -> CommandError:
    """TypeMismatch (14). expected: a type, or several as "[string, object]"."""
    form = "types" if expected.startswith("[") else "type"
    return CommandError(
        ErrorCode.TypeMismatch,
        f"BSON field '{name}' is the wrong type '{type_name(type_code_of(value))}', expected {form} '{expected}'",
    )


def unknown_field(name: str) -> CommandError:
    return CommandError(UNKNOWN_FIELD, f"BSON field '{name}' is an unknown field.")


def missing_field(name: str) -> CommandError:
    return CommandError(MISSING_FIELD, f"BSON field '{name}' is missing but a required field")


def read_fields(name: str, document: bytes) -> dict[str, Value]:
    """A document's fields. 40413 for one that is there twice; `check_known` finds the unknown ones."""
    written: dict[str, Value] = {}
    for key, value in fields(document):
        if key in written:
            raise CommandError(DUPLICATE_FIELD, f"BSON field '{name}.{key}' is a duplicate field")
        written[key] = value
    return written


def check_known(name: str, written: dict[str, Value], known: list[str]) -> None:
    """40415 for an unknown field. mongod looks for these after the fields that it needs."""
    for key in written:
        if key not in known:
            raise unknown_field(f"{name}.{key}")


class OptionField:
    """One option of a stage that is described by a document.

    type_code: the one BSON type that it has. null_is_absent: whether null and undefined are as if it were not there;
    else they are of a wrong type.
    """

    def __init__(self, name: str, type_code: int, null_is_absent: bool = False) -> None:
        self.name: Final = name
        self.type_code: Final = type_code
        self.null_is_absent: Final = null_is_absent


# The options of stages whose options mongod checks by one rule, in one pass over the document: an unknown one is 40415,
# one that is there twice 40413, one of another type TypeMismatch (14). Numbers are no booleans.
STAGE_OPTIONS: Final[dict[str, tuple[OptionField, ...]]] = {
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
    "$listSessions": (
        OptionField("allUsers", BOOL, null_is_absent=True),
        OptionField("users", ARRAY, null_is_absent=True),
    ),
    "$querySettings": (OptionField("showDebugQueryShape", BOOL),),
}
# The two fields of a user in `users`.
SESSION_USER: Final = (OptionField("user", STRING, null_is_absent=True), OptionField("db", STRING, null_is_absent=True))


def read_stage_options(stage: str, argument: bytes) -> dict[str, Value]:
    """The options that a stage of `STAGE_OPTIONS` is given."""
    return read_options(stage, argument, STAGE_OPTIONS[stage])


def read_options(name: str, document: bytes, options: tuple[OptionField, ...]) -> dict[str, Value]:
    """The options that a document gives, checked by their table; those that count as absent are left out.

    name: what the document describes, for the errors.
    """
    given: dict[str, Value] = {}
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
            given[key] = value
        elif not option.null_is_absent or (type_code != NULL and type_code != UNDEFINED):
            raise wrong_type(f"{name}.{key}", value, type_name(option.type_code))
    return given


def _option_named(name: str, options: tuple[OptionField, ...]) -> OptionField | None:
    for option in options:
        if option.name == name:
            return option
    return None
