"""Collations as arguments of commands: malformed ones are refused as MongoDB does, all but `simple` as not there yet.

Source: MongoDB's "Collation" page.
"""

from typing import Final

from mongottl.document.types import Decimal128, Value, type_code_of, type_name
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match.numbers import clamped_integer

SIMPLE: Final = "simple"

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "caseFirst": ("upper", "lower", "off"),
    "alternate": ("non-ignorable", "shifted"),
    "maxVariable": ("punct", "space"),
}
_FLAGS: Final = frozenset(("caseLevel", "numericOrdering", "normalization", "backwards"))
_TEXTS: Final = frozenset(("locale", "version"))
# Languages whose rules MongoDB knows; a region, script or variant may follow.
_LANGUAGES: Final = frozenset(
    """
    af am ar as az be bg bn bo br bs ca chr cs cy da de dsb dz ee el en eo es et fa fi fil fo fr ga gl gu ha haw he hi
    hr hsb hu hy id ig is it ja ka kk kl km kn ko kok ky lb lkt ln lo lt lv mk ml mn mr ms mt my nb ne nl nn om or pa pl
    ps pt ro ru se si sk sl smn sq sr sv sw ta te th to tr ug uk ur vi wae yi yo zh zu
    """.split()
)


def check_collation(collation: bytes) -> None:
    """40414, 40415, TypeMismatch (14), BadValue (2) or FailedToParse (9) for a malformed collation.

    CommandNotSupported (115) for a well-formed one that is not `{locale: "simple"}`.
    """
    if is_empty(collation):
        return
    given: dict[str, Value] = {}
    for name, value in fields(collation):
        if value is not None:
            given[name] = _checked(name, value)
    locale = given.get("locale")
    if locale is None:
        raise CommandError(40414, "BSON field 'collation.locale' is missing but a required field")
    assert isinstance(locale, str)
    if locale == SIMPLE:
        if len(given) > 1:
            raise CommandError(
                ErrorCode.FailedToParse, f"If locale={SIMPLE}, no other fields should be present in a collation"
            )
        return
    language = locale.replace("-", "_").replace("@", "_").partition("_")[0]
    if language not in _LANGUAGES or "\0" in locale:
        raise CommandError(ErrorCode.BadValue, f"Field 'locale' is invalid in: {{ locale: \"{locale}\" }}")
    _check_together(given)
    raise CommandError(ErrorCode.CommandNotSupported, f"collation: the locale '{locale}' is not supported yet")


def _checked(name: str, value: Value) -> Value:
    if name == "strength":
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
            raise _wrong_type(name, value, "[long, int, decimal, double]")
        strength = clamped_integer(value)
        if not 1 <= strength <= 5:
            raise CommandError(
                ErrorCode.BadValue, f"BSON field 'strength' value must be >= 1 and <= 5, actual value '{strength}'"
            )
        return strength
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise _wrong_type(name, value, "bool")
    elif name in _TEXTS or name in _WORDS:
        if not isinstance(value, str):
            raise _wrong_type(name, value, "string")
        if name in _WORDS and value not in _WORDS[name]:
            raise CommandError(
                ErrorCode.BadValue,
                f"Enumeration value '{value}' for field 'collation.{name}' is not a valid value.",
            )
    else:
        raise CommandError(40415, f"BSON field 'collation.{name}' is an unknown field.")
    return value


def _check_together(given: dict[str, Value]) -> None:
    strength = given.get("strength", 3)
    assert isinstance(strength, int)
    if given.get("backwards") and strength == 1:
        raise CommandError(ErrorCode.BadValue, "'backwards' is invalid with 'strength' of 1")
    if given.get("caseFirst", "off") != "off" and not given.get("caseLevel") and strength < 3:
        raise CommandError(
            ErrorCode.BadValue, "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2"
        )


def _wrong_type(name: str, value: Value, expected: str) -> CommandError:
    form = "types" if expected.startswith("[") else "type"
    return CommandError(
        ErrorCode.TypeMismatch,
        f"BSON field 'collation.{name}' is the wrong type '{type_name(type_code_of(value))}', expected {form}"
        f" '{expected}'",
    )
