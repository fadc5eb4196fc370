"""How deep documents and arrays may lie inside each other.

What comes from outside is checked when it comes (`validate`). What expressions make may be deeper; whoever goes down
into values by recursion counts levels, so that no document can exhaust the stack.
"""

from typing import Final

from mongottl.errors import CommandError, ErrorCode

# Of a result: mongod's 200 levels of documents, and an array in the last. (What is stored may have fewer, see
# `validate`.)
MAX_RESULT_LEVELS: Final = 201
# That any function goes down: more than any value that is of use has.
MAX_LEVELS: Final = 250


def too_deep() -> CommandError:
    """Overflow (15)."""
    return CommandError(
        ErrorCode.Overflow,
        f"cannot convert document to BSON because it exceeds the limit of {MAX_RESULT_LEVELS - 1} levels of nesting",
    )
