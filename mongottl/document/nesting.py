"""Limits of nesting of documents and arrays.

Documents from clients are checked on arrival (`validate`). Expressions can compute deeper values, so every recursive
function over values counts levels, and no document can exhaust the stack.
"""

from typing import Final

from mongottl.errors import CommandError, ErrorCode

# Nesting levels of a result: mongod's 200 levels of documents, and an array in the last. (Stored documents may have
# fewer, see `validate`.)
MAX_RESULT_LEVELS: Final = 201
# Maximal recursion depth of functions over values, more than useful values need.
MAX_LEVELS: Final = 250


def too_deep() -> CommandError:
    """The error for values that are nested too deep: Overflow (15)."""
    return CommandError(
        ErrorCode.Overflow,
        f"cannot convert document to BSON because it exceeds the limit of {MAX_RESULT_LEVELS - 1} levels of nesting",
    )
