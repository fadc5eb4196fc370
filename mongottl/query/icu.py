"""Collations with ICU, the library that mongod uses, through PyICU's module `icu`. Nothing else imports it.

It is imported when the first collation is used, to keep start-up fast, and it is an optional dependency, the extra
`collation`. If it is not installed, collations other than the simple one are refused.

The extra installs icukit-pyicu, which is PyICU with ICU in one wheel. Alternatives: PyICU itself is the same
code, but is distributed as source only, so that an installation needs a C++ compiler, pkg-config and ICU's headers; the
version of ICU, and so the bytes of index keys, is the operating system's. If it is installed it is used, since it is
the same module. icu4py is maintained and has wheels, but no collator. icupy must be compiled. pyuca, feruca and
zope.ucol support neither the locales' rules nor ICU's options.

The binding lets no other thread run while it makes a key, 0.3 seconds for a text of 16 MB. So keys of long texts are
made by the function of the same library in C, if it can be found, without the binding: other operations run meanwhile.

The library sorts combining marks that follow each other in a time that grows with the square of their number, and
cannot be interrupted: an hour for a text of a few megabytes. Long rows of marks are divided here by a character that
comparisons ignore (COMBINING GRAPHEME JOINER), as Unicode's Stream-Safe Text Format does after 30 of them. No language
has rows as long as those.

Differences from mongod, which has ICU 57.1: characters newer than Unicode 8, later corrections of CLDR, and texts with
128 or more combining marks in a row, which are equal to fewer others.
"""

import ctypes
import importlib
import mmap
import re
import sys
import unicodedata
from functools import cache, partial
from typing import Any, Final

from mongottl.document.interrupt import give_way_after, run_aside
from mongottl.document.utf8 import character_start, encode_text
from mongottl.errors import CommandError, ErrorCode
from mongottl.extras import to_install

# Strengths 1 to 5 of MongoDB as ICU's.
_STRENGTHS: Final = (0, 1, 2, 3, 15)
_ON: Final = 17
# Bytes from which on a text is long: its key takes a millisecond.
_LONG_TEXT: Final = 1 << 16
# The attributes of a collator: UColAttribute of ICU's ucol.h, without one that has no effect any more.
_ATTRIBUTES: Final = (0, 1, 2, 3, 4, 5, 7)
_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
# Bytes that are decoded and encoded in less than a millisecond.
_ENCODED_AT_ONCE: Final = 1 << 18
# How much longer it takes to decode, encode and write bytes than to copy them.
_CONVERTED: Final = 8
# Bytes of a key that are copied in less than a millisecond.
_READ_AT_ONCE: Final = 1 << 19
# Bytes of a key for each character, mostly.
_KEY_BYTES: Final = 4
# Combining marks in a row after which they are divided, and the least bytes of one.
_MARKS_TOGETHER: Final = 128
_LEAST_MARK_BYTES: Final = 2
_JOINER: Final = "\u034f"


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
        self._locale = locale
        self._variable_top = ""
        # The same collator by the functions in C, once a long text was met.
        self._functions: _Functions | None = None
        self._has_looked = False

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
        self._variable_top = "\t"
        self._collator.setVariableTop(self._variable_top)

    def sort_key(self, text: bytes) -> bytes:
        """Bytes that compare as the UTF-8 texts do; without ICU's final NUL. What is no character counts as U+FFFD."""
        if len(text) >= _LONG_TEXT:
            if not self._has_looked:
                self._has_looked = True
                self._functions = _functions_of(self._library, self._collator, self._locale, self._variable_top)
            if self._functions is not None:
                return self._functions.sort_key(text)
        key: bytes = self._collator.getSortKey(_characters(text))
        return key[:-1]


class _Functions:
    """A collator of the library's functions in C. While one of them is called other threads run."""

    def __init__(self, sort_key: Any, close: Any, collator: Any) -> None:
        self._sort_key: Any = sort_key
        self._close: Any = close
        self._collator: Any = collator

    def __del__(self) -> None:
        self._close(self._collator)

    def sort_key(self, text: bytes) -> bytes:
        """The key. Only the library works in another thread. What takes Python long there has each answer of this
        thread wait for several turns, of 5 ms each; here others run between its parts."""
        parts: list[bytes] = []
        # Anonymous memory, since a buffer of ctypes is filled with zeros first, in which no other thread runs. A byte
        # gives two bytes of UTF-16 at most.
        with mmap.mmap(-1, 2 * len(text)) as units:
            written = 0
            start = 0
            while start < len(text):
                end = character_start(text, start + _ENCODED_AT_ONCE)
                written += units.write(_characters(text[start:end]).encode(_UTF_16))
                give_way_after(_CONVERTED * (end - start))
                start = end
            count = written // 2
            size = _KEY_BYTES * count
            while not parts:
                with mmap.mmap(-1, size) as key:
                    call = partial(self._sort_key, self._collator, _address(units), count, _address(key), size)
                    needed: int = run_aside(call)
                    if needed == 0:
                        raise MemoryError("ICU has made no sort key")
                    if needed <= size:
                        for start in range(0, needed, _READ_AT_ONCE):
                            parts.append(key.read(min(_READ_AT_ONCE, needed - 1 - start)))
                            give_way_after(_READ_AT_ONCE)
                size = needed
        made = b"".join(parts)
        give_way_after(len(made))
        return made


def _characters(text: bytes) -> str:
    """The text of UTF-8, what is no character as U+FFFD, with its rows of marks divided."""
    found = text.decode("utf-8", "replace")
    if len(text) < _MARKS_TOGETHER * _LEAST_MARK_BYTES or found.isascii():
        return found
    return _row_of_marks().sub(_divided, found)


def _divided(row: re.Match[str]) -> str:
    found = row[0]
    return found + _JOINER if all(map(unicodedata.combining, found)) else found


@cache
def _row_of_marks() -> re.Pattern[str]:
    """As many in a row as are divided from the next one. Beyond the Basic Multilingual Plane each character may be a
    mark here, since a pattern that knows which of them are takes thirty times as long."""
    marks = "".join([chr(code) for code in range(0x300, 0x10000) if unicodedata.combining(chr(code))])
    return re.compile(f"[{marks}\U00010000-\U0010ffff]{{{_MARKS_TOGETHER}}}")


def _address(memory: mmap.mmap) -> Any:
    """Where it is; it may be closed afterwards."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


def _functions_of(library: _Library, collator: Any, locale: str, variable_top: str) -> _Functions | None:
    """The same collator by the library's functions in C; None if they are not found."""
    try:
        functions: Any = ctypes.CDLL(sys.modules["icu._icu_"].__file__)
        release = library.version.partition(".")[0]
        opened: Any = getattr(functions, f"ucol_open_{release}")
        set_attribute: Any = getattr(functions, f"ucol_setAttribute_{release}")
        set_variable_top: Any = getattr(functions, f"ucol_setVariableTop_{release}")
        sort_key: Any = getattr(functions, f"ucol_getSortKey_{release}")
        close: Any = getattr(functions, f"ucol_close_{release}")
    except (AttributeError, KeyError, OSError, TypeError):
        return None
    opened.restype = ctypes.c_void_p
    status: Any = ctypes.c_int(0)
    name = str(library.icu.Locale.createFromName(locale).getName())
    made: Any = ctypes.c_void_p(opened(encode_text(name), ctypes.byref(status)))
    if variable_top:
        set_variable_top(made, variable_top.encode(_UTF_16), len(variable_top), ctypes.byref(status))
    for attribute in _ATTRIBUTES:
        set_attribute(made, attribute, int(collator.getAttribute(attribute)), ctypes.byref(status))
    found = _Functions(sort_key, close, made)
    # Positive numbers are errors.
    return found if status.value <= 0 else None
