"""Regular expressions by PCRE2, the library that mongod uses, through the binding `pcre2` from PyPI.

Patterns and subjects are UTF-8 bytes, as in BSON. Patterns that are plain text, with or without a leading `^`, are
matched without the library, which is imported when the first pattern needs it, to keep start-up fast.

Differences from mongod: the binding always sets PCRE2_ALT_BSUX (`\\uhhhh` is a code point, where mongod refuses
`\\u`) and PCRE2_NEVER_BACKSLASH_C (`\\C`, one byte of a character, is refused). A search that exceeds PCRE2's own
limits finds nothing, as in mongod.
"""

from typing import Any, Final

from mongottl.document.interrupt import LOOKED_WORK, give_way
from mongottl.document.utf8 import is_valid_utf8
from mongottl.errors import CommandError

# mongod's codes: the pattern does not compile; an option letter is unknown.
REGEX_COMPILE_ERROR: Final = 51091
REGEX_OPTION_ERROR: Final = 51108
# mongod refuses longer patterns without parsing them.
MAX_PATTERN_BYTES: Final = 16 * 1024
OPTIONS: Final = "imsux"

# PCRE2_NO_UTF_CHECK of pcre2.h, which the binding does not export.
_NO_UTF_CHECK: Final = 0x40000000

# What a search counts as in `give_way`: it may take a microsecond or, with a bad pattern, the tenth of a second.
_SEARCH_WORK: Final = 64

# How a pattern begins to refer to itself or to a group. The library takes 15 ms to compile 400 references to what they
# stand in, and four times as long for twice as many.
_RECURSIONS: Final = (
    b"(?R",
    b"(?&",
    b"(?P>",
    b"\\g<",
    b"\\g'",
    *[b"(?%d" % digit for digit in range(10)],
    b"(?+",
    b"(?-",
)
_MOST_RECURSIONS: Final = 400

_SPECIAL: Final = frozenset(b"\\^$.[]|()?*+{}")


class _Library:
    """The binding's functions and flag values, once it is imported."""

    def __init__(self) -> None:
        import pcre2

        # The wrapper's Pattern.search takes seven times as long as the library's match, so that is called directly.
        self.match: Any = pcre2._cy.match
        self._compile: Any = pcre2.compile
        self.pattern_error: Any = pcre2.PatternError
        self.library_error: Any = pcre2.LibraryError
        self.span: Any = pcre2._cy.match_substring_span_bynumber
        self.match_context: Any = pcre2._EMPTY_MATCH_CONTEXT
        # UTF-8, but \w, \d and \b mean ASCII unless the pattern says (*UCP): mongod's setting.
        self.flags: Final = int(pcre2.UNICODE | pcre2.ASCII)
        self.flag_of: Final[dict[str, int]] = {
            "i": int(pcre2.IGNORECASE),
            "m": int(pcre2.MULTILINE),
            "s": int(pcre2.DOTALL),
            "x": int(pcre2.VERBOSE),
            "u": 0,
        }

    def compiled(self, pattern: bytes, flags: int) -> Any:
        """A compiled pattern. The binding's error for an invalid one."""
        try:
            return self._compile(pattern, flags)
        except self.library_error:  # it is too large for machine code
            return self._compile(pattern, flags, jit=False)


_loaded: Final[list[_Library]] = []


def _library() -> _Library:
    if not _loaded:
        _loaded.append(_Library())
    return _loaded[0]


class CompiledRegex:
    """A compiled pattern with its options. CommandError 51091 for an invalid pattern, 51108 for an unknown option.

    pattern: UTF-8. options: letters of `imsux`, repeats allowed.
    """

    def __init__(self, pattern: bytes, options: str) -> None:
        for letter in options:
            if letter not in OPTIONS:
                raise CommandError(REGEX_OPTION_ERROR, f"invalid flag in regex options: {letter}")
        if len(pattern) > MAX_PATTERN_BYTES:
            raise CommandError(
                REGEX_COMPILE_ERROR,
                "Regular expression is invalid: pattern string is longer than the limit set by the application",
            )
        self.pattern = pattern
        self.options = options
        self._literal: bytes = pattern
        self._is_literal = False
        self._anchored = False
        self._compiled: Any = None
        self._code: Any = None
        self._match: Any = None
        self._context: Any = None
        self._groups = 0
        if options in ("", "s", "u"):
            if pattern.startswith(b"^"):
                self._anchored = True
                self._literal = pattern[1:]
            # The library's message says what is wrong with a pattern that is no UTF-8.
            self._is_literal = is_valid_utf8(pattern) and not any(byte in _SPECIAL for byte in self._literal)
        if not self._is_literal:
            self._compile()

    def _compile(self) -> None:
        library = _library()
        if sum([self.pattern.count(begin) for begin in _RECURSIONS]) > _MOST_RECURSIONS:
            raise CommandError(REGEX_COMPILE_ERROR, "Regular expression is invalid: it has too many recursions")
        flags = library.flags
        for letter in self.options:
            flags |= library.flag_of[letter]
        try:
            self._compiled = library.compiled(self.pattern, flags)
        except library.pattern_error as error:
            raise CommandError(REGEX_COMPILE_ERROR, f"Regular expression is invalid: {error}") from None
        self._code = self._compiled._pcre2_code
        self._match = library.match
        self._groups = self._compiled.groups
        self._context = library.match_context

    def found_in(self, subject: bytes) -> bool:
        """Whether the pattern matches anywhere in the subject. As in mongod, nothing matches what is not UTF-8."""
        if self._is_literal:
            found = subject.startswith(self._literal) if self._anchored else self._literal in subject
            return found and is_valid_utf8(subject)
        give_way(_SEARCH_WORK)
        try:
            return self._match(self._code, subject, len(subject), 0, self._context)[0] is not None
        except _library().library_error:  # after the longest time that a search can take
            give_way(LOOKED_WORK)
            return False

    def spans(self, subject: bytes, start: int = 0) -> list[tuple[int, int]] | None:
        """Byte ranges of the first match from `start` on and of its groups ((-1, -1) if unset); None if there is no
        match.

        start: 0, or the end of an earlier match: only a search from 0 validates the UTF-8 of the subject, since
        otherwise each of many searches in a long text would validate the rest of it.
        """
        if self._compiled is None:
            self._compile()
        library = _library()
        try:
            found = library.match(
                self._code, subject, len(subject), start, self._context, _NO_UTF_CHECK if start > 0 else 0
            )[0]
        except library.library_error:
            give_way(LOOKED_WORK)
            return None
        if found is None:
            return None
        groups: int = self._groups
        return [library.span(found, subject, group) for group in range(groups + 1)]
