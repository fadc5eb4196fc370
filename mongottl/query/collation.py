"""Collation documents: checked and completed as mongod does it, and converted to a Collation.

    {locale: "fr_CA", strength: 2}   ->   {locale: "fr_CA", caseLevel: false, caseFirst: "off", strength: 2,
                                           numericOrdering: false, alternate: "non-ignorable", maxVariable: "punct",
                                           normalization: false, backwards: true, version: "57.1"}

Missing fields get the locale's default, which ICU provides. `{locale: "simple"}` means no collation, whatever the other
fields are.

Source: MongoDB's "Collation" and "Collation Locales and Default Parameters" pages.
"""

from typing import Final

from mongottl.document.bson_field import NUMBERS, checked_word, missing_field, unknown_field, wrong_type
from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import Decimal128, Value
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.icu import SortKeys, canonical_locale

SIMPLE: Final = "simple"
# The version that mongod 8.2 reports for its collations; ours are those of the installed ICU (`query.icu.icu_version`).
VERSION: Final = "57.1"

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "caseFirst": ("upper", "lower", "off"),
    "alternate": ("non-ignorable", "shifted"),
    "maxVariable": ("punct", "space"),
}
_FLAGS: Final = ("caseLevel", "numericOrdering", "normalization", "backwards")
_TEXTS: Final = ("locale", "version")
# Languages that MongoDB supports; a region, script or variant may follow.
_LANGUAGES: Final = frozenset(
    """
    af am ar as az be bg bn bo br bs ca chr cs cy da de dsb dz ee el en eo es et fa fi fil fo fr ga gl gu ha haw he hi
    hr hsb hu hy id ig is it ja ka kk kl km kn ko kok ky lb lkt ln lo lt lv mk ml mn mr ms mt my nb ne nl nn om or pa pl
    ps pt ro ru se si sk sl smn sq sr sv sw ta te th to tr ug uk ur vi wae yi yo zh zu
    """.split()
)

# A cache of collations by their documents: creating one takes ICU a tenth of a millisecond.
_MAX_CACHED: Final = 256
_cache: Final[dict[bytes, Collation]] = {}


def parse_collation(document: bytes) -> Collation | None:
    """The collation of a document; None for `{}` and the simple one.

    40414 without locale, 40415 for an unknown field, TypeMismatch (14) for a wrong type, BadValue (2) for an
    unknown value, IncompatibleCollationVersion (161) for a `version` other than mongod's, CommandNotSupported (115) for
    a collation other than the simple one if ICU is not installed.
    """
    cached = _cache.get(document)
    if cached is not None:
        return cached
    if is_empty(document):
        return None
    options: dict[str, Value] = {}
    for name, value in fields(document):
        if value is not None or name == "backwards":
            options[name] = _check_field(name, value)
    locale = options.get("locale")
    if not isinstance(locale, str):
        raise missing_field("collation.locale")
    if locale == SIMPLE:
        return None
    language = locale.replace("-", "_").replace("@", "_").partition("_")[0]
    if language.lower() not in _LANGUAGES or "\0" in locale:
        raise _bad_locale(locale, "")
    _check_combination(options)
    canonical = canonical_locale(locale)
    if canonical != locale:
        raise _bad_locale(locale, canonical)
    collation = _create(locale, options)
    if len(_cache) >= _MAX_CACHED:
        _cache.clear()
    _cache[document] = collation
    return collation


def _create(locale: str, options: dict[str, Value]) -> Collation:
    keys = SortKeys(locale)
    strength = options.get("strength")
    if isinstance(strength, int):
        keys.set_strength(strength)
    for name in _FLAGS:
        flag = options.get(name)
        if isinstance(flag, bool):
            keys.set_flag(name, flag)
    case_first = options.get("caseFirst")
    if isinstance(case_first, str):
        keys.set_case_first(case_first)
    alternate = options.get("alternate")
    if isinstance(alternate, str):
        keys.set_shifted(alternate == "shifted")
    max_variable = options.get("maxVariable", "punct")
    if max_variable == "space":
        keys.set_only_spaces_variable()
    version = options.get("version", VERSION)
    if version != VERSION:
        raise CommandError(
            ErrorCode.IncompatibleCollationVersion,
            f"Requested collation version {version} but the only available collator version was {VERSION}",
        )
    spec: dict[str, Value] = {
        "locale": locale,
        "caseLevel": keys.flag("caseLevel"),
        "caseFirst": keys.case_first(),
        "strength": keys.strength(),
        "numericOrdering": keys.flag("numericOrdering"),
        "alternate": "shifted" if keys.shifted() else "non-ignorable",
        "maxVariable": max_variable,
        "normalization": keys.flag("normalization"),
        "backwards": keys.flag("backwards"),
        "version": VERSION,
    }
    return Collation(encode(spec), keys.sort_key)


def _bad_locale(locale: str, suggestion: str) -> CommandError:
    hint = f". Did you mean '{suggestion}'?" if suggestion else ""
    return CommandError(ErrorCode.BadValue, f"Field 'locale' is invalid in: {{ locale: \"{locale}\" }}{hint}")


def _check_field(name: str, value: Value) -> Value:
    if name == "strength":
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
            raise wrong_type("collation.strength", value, NUMBERS)
        strength = clamp_to_long(value)
        if not 1 <= strength <= 5:
            raise CommandError(
                ErrorCode.BadValue, f"BSON field 'strength' value must be >= 1 and <= 5, actual value '{strength}'"
            )
        return strength
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise wrong_type(f"collation.{name}", value, "bool")
    elif name in _WORDS:
        checked_word(f"collation.{name}", value, _WORDS[name])
    elif name in _TEXTS:
        if not isinstance(value, str):
            raise wrong_type(f"collation.{name}", value, "string")
    else:
        raise unknown_field(f"collation.{name}")
    return value


def _check_combination(options: dict[str, Value]) -> None:
    strength = options.get("strength", 3)
    assert isinstance(strength, int)
    if options.get("backwards") and strength == 1:
        raise CommandError(ErrorCode.BadValue, "'backwards' is invalid with 'strength' of 1")
    if options.get("caseFirst", "off") != "off" and not options.get("caseLevel") and strength < 3:
        raise CommandError(
            ErrorCode.BadValue, "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2"
        )
