"""The command's `arrayFilters`: conditions on array elements, by the identifier with which their paths begin."""

import re
from typing import Final

from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.filter import parse_condition
from mongottl.query.update.nodes import ArrayFilter

_IDENTIFIER: Final = "[a-z][a-zA-Z0-9]*"
_LOGICAL: Final = ("$and", "$or", "$nor")
_NEAR: Final = ("$near", "$nearSphere", "$geoNear")
_CONTEXT: Final = "Error parsing array filter :: caused by :: "


def parse_array_filters(filters: list[bytes], ctx: ParseContext) -> dict[str, ArrayFilter]:
    """The filters by identifier.

    FailedToParse (9) for a filter without identifier or with several, and for a duplicate identifier; BadValue (2) for
    an invalid identifier, and the errors of filters.
    """
    parsed: dict[str, ArrayFilter] = {}
    for document in filters:
        found: dict[str, None] = {}
        try:
            _collect_names(document, found)
            condition = parse_condition(document, ctx)
        except CommandError as error:
            raise CommandError(error.code, _CONTEXT + error.message) from None
        names = list(found)
        if not names:
            raise CommandError(
                ErrorCode.FailedToParse, "Cannot use an expression without a top-level field name in arrayFilters"
            )
        identifier = names[0]
        if len(names) > 1:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"{_CONTEXT}Expected a single top-level field name, found '{names[0]}' and '{names[1]}'",
            )
        if re.fullmatch(_IDENTIFIER, identifier) is None:
            raise CommandError(
                ErrorCode.BadValue,
                f"{_CONTEXT}The top-level field name must be an alphanumeric string beginning with a lowercase letter, "
                f"found '{identifier}'",
            )
        if identifier in parsed:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"Found multiple array filters with the same top-level field name {identifier}",
            )
        parsed[identifier] = ArrayFilter(identifier, condition)
    return parsed


def _collect_names(document: bytes, names: dict[str, None]) -> None:
    """Adds the first components of all paths, without duplicates. Refuses operators that cannot be tested on an
    element."""
    for name, value in fields(document):
        if name in _LOGICAL:
            if isinstance(value, list):
                for branch in value:
                    if isinstance(branch, bytes):
                        _collect_names(branch, names)
        elif name.startswith("$"):
            _refuse_special(name)
        else:
            names[name.split(".", 1)[0]] = None
            _check_operators(value)


def _check_operators(value: Value) -> None:
    if not isinstance(value, bytes):
        return
    for name, operand in fields(value):
        if not name.startswith("$"):
            return
        _refuse_special(name)
        if name == "$not":
            _check_operators(operand)


def _refuse_special(name: str) -> None:
    if name in _NEAR:
        raise CommandError(5626500, "$geoNear, $near, and $nearSphere are not allowed in this context")
    if name == "$text" or name == "$where":
        raise CommandError(ErrorCode.BadValue, f"{name} is not allowed in this context")
    if name == "$expr":
        raise CommandError(224, "$expr is not allowed in this context")
