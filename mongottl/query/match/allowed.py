"""Refusal of operators in filters that are tested on single documents, such as validators and partial indexes."""

from typing import Final

from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match.near import NEAR_NOT_ALLOWED

_COMPARISONS: Final = frozenset({"$eq", "$ne", "$in", "$nin"})  # their operands are values, not operators
_LISTS: Final = frozenset({"$and", "$or", "$nor", "$all"})
_PLAIN_ONLY: Final = frozenset({"$expr", "$jsonSchema"})


def check_operators(filter: bytes, plain: bool = False) -> None:
    """Refuses the operators that need an index or a script: BadValue (2) and 5626500, at any depth.

    plain: refuse `$expr` and `$jsonSchema` too, with QueryFeatureNotAllowed (224).
    """
    for name, value in fields(filter):
        if name in ("$where", "$text"):
            raise CommandError(ErrorCode.BadValue, f"{name} is not allowed in this context")
        if name in ("$near", "$nearSphere", "$geoNear"):
            raise CommandError(NEAR_NOT_ALLOWED, "$geoNear, $near, and $nearSphere are not allowed in this context")
        if name in _PLAIN_ONLY:
            if plain:
                raise CommandError(ErrorCode.QueryFeatureNotAllowed, f"{name} is not allowed in this context")
        elif name in _COMPARISONS:
            continue
        elif isinstance(value, bytes):
            check_operators(value, plain)
        elif isinstance(value, list) and name in _LISTS:
            for part in value:
                if isinstance(part, bytes):
                    check_operators(part, plain)
