"""Collations with ICU, the library that mongod uses, through PyICU's module `icu`. Nothing else imports it.

It is imported when the first collation is used, to keep start-up fast, and it is an optional dependency, the extra
`collation`. If it is not installed, collations other than the simple one are refused.

The extra installs icukit-pyicu, which is PyICU with ICU in one wheel. Alternatives: PyICU itself is the same
code, but is distributed as source only, so that an installation needs a C++ compiler, pkg-config and ICU's headers; the
version of ICU, and so the bytes of index keys, is the operating system's. If it is installed it is used, since it is
the same module. icu4py is maintained and has wheels, but no collator. icupy must be compiled. pyuca, feruca and
zope.ucol support neither the locales' rules nor ICU's options.

Differences from mongod, which has ICU 57.1: characters newer than Unicode 8, and later corrections of CLDR.
"""

import importlib
from typing import Any, Final

from mongottl.errors import CommandError, ErrorCode
from mongottl.extras import to_install

# Strengths 1 to 5 of MongoDB as ICU's.
_STRENGTHS: Final = (0, 1, 2, 3, 15)
_ON: Final = 17


class _Library:
    """The binding, once it is imported."""

    def __init__(self) -> None:
        # Compiled by mypyc, `import icu` does not fail if the module is blocked (None in sys.modules).
        icu: Any = importlib.import_module("icu")
        self.icu: Any = icu
        self.attribute: Any = icu.UCollAttribute
        self.value: Any = icu.UCollAttributeValue
        self.version = str(icu.ICU_VERSION)


_loaded: Final[list[_Library]] = []


def _library() -> _Library:
    if not _loaded:
        try:
            _loaded.append(_Library())
        except ImportError:
            raise CommandError(
                ErrorCode.CommandNotSupported,
                f"collation is not supported here: the library ICU is missing: {to_install('collation')}",
            ) from None
    return _loaded[0]


def is_available() -> bool:
    try:
        _library()
    except CommandError:
        return False
    return True


def icu_version() -> str:
    """The library's version; keys of different versions are not comparable. CommandNotSupported (115) without ICU."""
    return _library().version


def canonical_locale(locale: str) -> str:
    """The canonical name of a locale: `en_US` for `EN-us`; "" if ICU has no rules for its language."""
    library = _library()
    found = library.icu.Locale.createFromName(locale)
    collator = library.icu.Collator.createInstance(found)
    valid = collator.getLocale(library.icu.ULocDataLocaleType.VALID_LOCALE)
    return str(found.getName()) if valid.getLanguage() else ""


class SortKeys:
    """ICU's collator for a locale, with its options, which default to the locale's values."""

    def __init__(self, locale: str) -> None:
        library = _library()
        self._library = library
        self._collator: Any = library.icu.Collator.createInstance(library.icu.Locale.createFromName(locale))

    def set_strength(self, strength: int) -> None:
        """Sets the strength of the comparison.

        strength: 1 to 5.
        """
        self._collator.setStrength(_STRENGTHS[strength - 1])

    def strength(self) -> int:
        return _STRENGTHS.index(int(self._collator.getStrength())) + 1

    def set_flag(self, name: str, on: bool) -> None:
        """Sets a boolean option.

        name: caseLevel, numericOrdering, normalization or backwards.
        """
        value = self._library.value
        self._collator.setAttribute(self._attribute(name), value.ON if on else value.OFF)

    def flag(self, name: str) -> bool:
        return int(self._collator.getAttribute(self._attribute(name))) == _ON

    def _attribute(self, name: str) -> Any:
        attribute = self._library.attribute
        if name == "caseLevel":
            return attribute.CASE_LEVEL
        if name == "numericOrdering":
            return attribute.NUMERIC_COLLATION
        return attribute.NORMALIZATION_MODE if name == "normalization" else attribute.FRENCH_COLLATION

    def set_case_first(self, case: str) -> None:
        """upper, lower or off."""
        value = self._library.value
        values = {"upper": value.UPPER_FIRST, "lower": value.LOWER_FIRST, "off": value.OFF}
        self._collator.setAttribute(self._library.attribute.CASE_FIRST, values[case])

    def case_first(self) -> str:
        value = self._library.value
        found = int(self._collator.getAttribute(self._library.attribute.CASE_FIRST))
        return "upper" if found == int(value.UPPER_FIRST) else "lower" if found == int(value.LOWER_FIRST) else "off"

    def set_shifted(self, shifted: bool) -> None:
        value = self._library.value
        wanted = value.SHIFTED if shifted else value.NON_IGNORABLE
        self._collator.setAttribute(self._library.attribute.ALTERNATE_HANDLING, wanted)

    def shifted(self) -> bool:
        found = int(self._collator.getAttribute(self._library.attribute.ALTERNATE_HANDLING))
        return found == int(self._library.value.SHIFTED)

    def set_only_spaces_variable(self) -> None:
        """Sets `maxVariable: "space"`. ICU uses the end of the group of the given character: a tab, since `en_US_POSIX`
        has the space itself in another group."""
        self._collator.setVariableTop("\t")

    def sort_key(self, text: str) -> bytes:
        """Bytes that compare as the texts do; without ICU's final NUL."""
        key: bytes = self._collator.getSortKey(text)
        return key[:-1]
