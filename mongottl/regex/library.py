"""The library PCRE2, through the binding `pcre2`, which is imported when the first pattern needs it: start-up stays
fast."""

from typing import Any, Final

OPTIONS: Final = "imsux"

# PCRE2_NO_UTF_CHECK of pcre2.h, which the binding does not export.
_NO_UTF_CHECK: Final = 0x40000000


class Library:
    """The binding's functions and flag values.

    match, context: searches, and its last argument; as `found`, which takes longer.
    pattern_error, library_error: its errors, for a pattern that does not compile and a search that fails.
    """

    def __init__(self) -> None:
        import pcre2

        # The wrapper's Pattern.search takes seven times as long as the library's match, so that is called directly.
        self.match: Final[Any] = pcre2._cy.match
        self._compile: Final[Any] = pcre2.compile
        self._span: Final[Any] = pcre2._cy.match_substring_span_bynumber
        self.context: Final[Any] = pcre2._EMPTY_MATCH_CONTEXT
        self.pattern_error: Final[Any] = pcre2.PatternError
        self.library_error: Final[Any] = pcre2.LibraryError
        # UTF-8, but \w, \d and \b mean ASCII unless the pattern says (*UCP): mongod's setting.
        self._flags: Final = int(pcre2.UNICODE | pcre2.ASCII)
        self._flag_of: Final[dict[str, int]] = {
            "i": int(pcre2.IGNORECASE),
            "m": int(pcre2.MULTILINE),
            "s": int(pcre2.DOTALL),
            "x": int(pcre2.VERBOSE),
            "u": 0,
        }

    def compiled(self, pattern: bytes, options: str, to_machine_code: bool) -> Any:
        """A compiled pattern. The binding's errors for an invalid one, and for one too large for machine code."""
        flags = self._flags
        for letter in options:
            flags |= self._flag_of[letter]
        return self._compile(pattern, flags, jit=to_machine_code)

    def found(self, code: Any, subject: bytes, start: int) -> Any:
        """The first match from `start` on; None if there is none. The binding's error if the search fails.

        code: of a compiled pattern (`code_of`). start: 0, or the end of an earlier match: only a search from 0
        validates the UTF-8 of the subject, since otherwise each of many searches in a long text would validate the
        rest of it.
        """
        options = _NO_UTF_CHECK if start > 0 else 0
        return self.match(code, subject, len(subject), start, self.context, options)[0]

    def add_spans(self, numbers: list[int], match: Any, subject: bytes, groups: int) -> None:
        """Adds begin and end of a match and of each of its groups, as bytes of the subject; -1 for unset groups."""
        for group in range(groups + 1):
            begin, end = self._span(match, subject, group)
            numbers.append(begin)
            numbers.append(end)


def code_of(compiled: Any) -> Any:
    return compiled._pcre2_code


_loaded: Final[list[Library]] = []


def library() -> Library:
    if not _loaded:
        _loaded.append(Library())
    return _loaded[0]


def next_start(subject: bytes, begin: int, end: int) -> int:
    """Where the search for the match after one goes on: a character later if that was empty. -1 if it was the last."""
    if begin == end:
        end += 1
        while end < len(subject) and subject[end] & 0xC0 == 0x80:
            end += 1
    return end if end < len(subject) else -1
