"""What is wrong with a field of a command, of a stage or of an option: mongod's codes and words for it.

    {find: "c", limit: "x"}     BSON field 'find.limit' is the wrong type 'string', expected types '[long, int, …]'

A field is named with all that it stands in. These are errors to raise, and the checks that need nothing but the fields.
"""

from typing import Final

from mongottl.document.types import Value, type_code_of, type_name
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
