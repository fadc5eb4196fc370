"""The filters that a partial index may have: no negations, and only conditions that the planner can compare."""

from typing import Final

from mongottl.document.numbers import is_true
from mongottl.document.types import DOCUMENT, Regex, Value, type_code_of
from mongottl.document.walk import fields, first_field_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_condition

_PARTIAL_OPERATORS: Final = (
    "$all", "$eq", "$gt", "$gte", "$lt", "$lte", "$in", "$type", "$exists", "$geoWithin", "$geoIntersects",
)  # fmt: skip
_PARTIAL_ROOTS: Final = ("$and", "$or")
# Operators for which MongoDB answers QueryFeatureNotAllowed (224) rather than CannotCreateIndex.
_NOT_IN_PARTIAL: Final = ("$expr", "$jsonSchema")


def check_partial_filter(filter: Value) -> None:
    """CannotCreateIndex (67) for operators that a partial index cannot have, QueryFeatureNotAllowed (224) for `$expr`
    and `$jsonSchema`, else the errors of filters."""
    assert isinstance(filter, bytes)
    _check_allowed_in_catalog(filter)
    parse_condition(filter, ParseContext(runtime_constants=False))
    _check_partial_document(filter)


def _check_allowed_in_catalog(filter: bytes) -> None:
    for name, value in fields(filter):
        if name in _NOT_IN_PARTIAL:
            raise CommandError(ErrorCode.QueryFeatureNotAllowed, f"{name} is not allowed in this context")
        if name in _PARTIAL_ROOTS and isinstance(value, list):
            for part in value:
                if isinstance(part, bytes):
                    _check_allowed_in_catalog(part)


def _check_partial_document(filter: bytes) -> None:
    for name, value in fields(filter):
        if name in _PARTIAL_ROOTS:
            assert isinstance(value, list)
            for part in value:
                assert isinstance(part, bytes)
                _check_partial_document(part)
        elif name.startswith("$"):
            raise _unsupported_in_partial(name)
        elif isinstance(value, Regex):
            raise _unsupported_in_partial("$regex")
        elif type_code_of(value) == DOCUMENT:
            assert isinstance(value, bytes)
            _check_partial_operators(value)


def _check_partial_operators(operand: bytes) -> None:
    for place, (name, value) in enumerate(fields(operand)):
        if not name.startswith("$"):
            return  # an equality with a document
        if name not in _PARTIAL_OPERATORS or (name == "$exists" and not is_true(value)):
            if place == 0 and name in ("$ref", "$id", "$db"):
                return
            raise _unsupported_in_partial("$exists: false" if name == "$exists" else name)
        if name in ("$in", "$all") and isinstance(value, list):
            for item in value:
                if isinstance(item, Regex):
                    raise _unsupported_in_partial("$regex")
                if name == "$all" and isinstance(item, bytes) and first_field_name(item) == "$elemMatch":
                    raise _unsupported_in_partial("$elemMatch")


def _unsupported_in_partial(name: str) -> CommandError:
    return CommandError(ErrorCode.CannotCreateIndex, f"Expression not supported in partial index: {name}")
