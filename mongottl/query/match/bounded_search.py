"""Searches with PCRE2 in which no single call takes long, whatever pattern and text a client sends.

The library counts steps, and gives up a search after ten million, but it begins to count again at each place of the
text where a match may begin, and does not count what a repeated character or a lookahead runs through: `(?=.*b)a`
goes through the rest of the text at each place, for an hour in a text of a megabyte. No other thread runs meanwhile.

So a text is searched with a low limit of steps first, where a search without surprises takes milliseconds at most:

    short      at once
    long       in windows: a window's match may not look beyond its end (PCRE2_PARTIAL_HARD), so that a window has a
               match, or has none, or does not say

Where a window does not say, or more steps are needed, a match is looked for at one place after the other, each by a
call of its own. Others may run between two calls.
"""

import re
from functools import cache
from typing import Any, Final

from mongottl.document.interrupt import LOOKED_WORK, give_way
from mongottl.document.utf8 import character_start, is_valid_utf8
from mongottl.errors import CommandError

# mongod's code where the library fails while it searches.
REGEX_SEARCH_ERROR: Final = 51156
# Of pcre2.h; the binding does not export them.
_NO_UTF_CHECK: Final = 0x40000000
_PARTIAL_HARD: Final = 0x20
_ANCHORED: Final = 0x80000000
# The limits of steps at one place. A step takes 5 ns, 0.1 microseconds if it runs through much text, 0.4 if a number of
# repetitions has it run through much text each time, and a microsecond where the library interprets the pattern, as it
# does in windows: a search takes 50 ms at most, at one place 100.
_STEPS_OF_SHORT: Final = 2000
_STEPS_OF_LONG: Final = 100
_STEPS_AT_PLACE: Final = 1_000_000
_COUNTED_AT_PLACE: Final = 250_000
_INTERPRETED_AT_PLACE: Final = 100_000
# Of the memory in which the library keeps where it goes back to.
_HEAP_KIB: Final = 1 << 16
# Bytes of a text that is short, and of a window.
_SHORT: Final = 128
_WINDOW: Final = 256
# A search counts as this number of microseconds, and how many characters are run through in one.
_SEARCH_WORK: Final = 64
_RUN_THROUGH: Final = 1000
# The most characters that a search at once may run through, by estimate, and a search at one place.
_MOST_AT_ONCE: Final = 1 << 22
_MOST_AT_A_PLACE: Final = 1 << 27

_REPEATS: Final = frozenset(b"*+?{")


@cache
def _forms() -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """Options that are set within a pattern; verbs at its beginning; what looks at the place where a search begins, or
    decides where the next one does."""
    return (
        re.compile(rb"\(\?\^?[a-zA-Z-]*[:)]"),
        re.compile(rb"(\(\*[A-Z_0-9=]+\))*"),
        re.compile(rb"\\G|\(\*(COMMIT|PRUNE|SKIP|THEN)"),
    )


class BoundedSearch:
    """The searches for one pattern: `pattern_error` of the library for an invalid one."""

    def __init__(self, library: Any, pattern: bytes, flags: int) -> None:
        self._library: Any = library
        self._pattern: Final = pattern
        self._flags: Final = flags
        compiled: Any = library.compiled(_limited(_STEPS_OF_SHORT, pattern), flags)
        self.groups: Final[int] = compiled.groups
        self._of_short: Any = compiled._pcre2_code
        self._is_interpreted: Final[bool] = not compiled.jit or b"(*NO_JIT" in pattern
        # Made for the first text that needs them.
        self._of_long: Any = None
        self._at_place: Any = None
        self._place_flags = 0
        self._interpreted: Any = None
        # What a search may run through at each place, in parts of the text's length.
        self._runs = 0
        self._is_placed = False

    def first(self, subject: bytes, start: int) -> Any:
        """The library's data of the first match from `start` on, None without one, or if it takes too many steps at one
        place.

        start: 0, or the end of an earlier match in the same subject, which is UTF-8 then. CommandError 51156 for a
        search that cannot be divided into steps that are short.
        """
        if start == 0 and not is_valid_utf8(subject):
            return None
        give_way(_SEARCH_WORK)
        size = len(subject) - start
        library = self._library
        try:
            if size > _SHORT:
                return self._first_in_long(subject, start)
            try:
                return library.match(self._of_short, subject, len(subject), start, library.context, _NO_UTF_CHECK)[0]
            except library.library_error:
                return self._one_by_one(subject, start, len(subject) + 1)
        except library.library_error:  # after the longest time that a search at one place can take
            give_way(LOOKED_WORK)
            return None

    def _first_in_long(self, subject: bytes, start: int) -> Any:
        if self._of_long is None:
            self._prepare_for_long()
        library = self._library
        end = len(subject)
        while not self._may_be_at_once(end - start):
            if self._is_placed:
                raise _too_long("the text is too long for a pattern with \\G or a verb")
            until = character_start(subject, start + _WINDOW)
            give_way(_SEARCH_WORK)
            try:
                options = _NO_UTF_CHECK | _PARTIAL_HARD
                found = library.match(self._of_long, subject, until, start, library.context, options)[0]
            except library.library_error:
                found = self._one_by_one(subject, start, until)
            if found is not None:
                return found
            start = until
        try:
            return library.match(self._of_long, subject, end, start, library.context, _NO_UTF_CHECK)[0]
        except library.library_error:
            return self._one_by_one(subject, start, end + 1)

    def _may_be_at_once(self, size: int) -> bool:
        return size <= _WINDOW or size * (self._runs * size + len(self._pattern)) <= _MOST_AT_ONCE

    def _prepare_for_long(self) -> None:
        self._of_long = self._library.compiled(_limited(_STEPS_OF_LONG, self._pattern), self._flags)._pcre2_code
        options, _, placed = _forms()
        written = options.sub(b"", self._pattern)
        self._runs = sum([1 for byte in written if byte in _REPEATS]) + written.count(b"(?")
        self._is_placed = placed.search(self._pattern) is not None

    def _one_by_one(self, subject: bytes, start: int, until: int) -> Any:
        """The first match that begins before `until`."""
        if self._of_long is None:
            self._prepare_for_long()
        if self._is_placed:
            raise _too_long("it takes too many steps for a pattern with \\G or a verb")
        end = len(subject)
        through = self._runs * (end - start)
        if through > _MOST_AT_A_PLACE:
            raise _too_long("it would run through the text too often")
        if self._at_place is None:
            self._compile_for_places()
        library = self._library
        options = _NO_UTF_CHECK | self._place_flags
        weight = 1 + through // _RUN_THROUGH
        for place in range(start, min(until, end + 1)):
            if place == end or subject[place] & 0xC0 != 0x80:
                give_way(weight)
                try:
                    found = library.match(self._at_place, subject, end, place, library.context, options)[0]
                except library.library_error as error:
                    if "JIT stack" not in str(error):
                        raise
                    found = self._found_without_machine_code(subject, place)
                if found is not None:
                    return found
        return None

    def _found_without_machine_code(self, subject: bytes, place: int) -> Any:
        """The match at a place for which the compiled code has too little stack: of `(a|b)*` after some thousand
        characters."""
        library = self._library
        if self._interpreted is None:
            limited = _limited(_INTERPRETED_AT_PLACE, self._pattern)
            self._interpreted = library.compiled(limited, self._flags, False)._pcre2_code
        give_way(LOOKED_WORK)
        options = _NO_UTF_CHECK | _ANCHORED
        return library.match(self._interpreted, subject, len(subject), place, library.context, options)[0]

    def _compile_for_places(self) -> None:
        """Code that matches only where a search begins. The library's flag for that is for interpreted code only, which
        is what a pattern needs that refers to itself as a whole."""
        pattern = self._pattern
        steps = _COUNTED_AT_PLACE if b"{" in pattern else _STEPS_AT_PLACE
        if self._is_interpreted:
            steps = _INTERPRETED_AT_PLACE
        if not any(reference in pattern for reference in (b"(?R", b"(?0", b"\\g<0", b"\\g'0")):
            _, verbs, _ = _forms()
            leading = verbs.match(pattern)
            begun = b"" if leading is None else leading[0]
            for closed in (b")", b"\n)", b"\\E)"):  # after a comment, and after an open quotation
                placed = begun + b"\\G(?:" + pattern[len(begun) :] + closed
                try:
                    self._at_place = self._library.compiled(_limited(steps, placed), self._flags)._pcre2_code
                except self._library.pattern_error:
                    continue
                return
        limited = _limited(_INTERPRETED_AT_PLACE, pattern)
        self._at_place = self._library.compiled(limited, self._flags)._pcre2_code
        self._place_flags = _ANCHORED


def _limited(steps: int, pattern: bytes) -> bytes:
    return b"(*LIMIT_MATCH=%d)(*LIMIT_HEAP=%d)" % (steps, _HEAP_KIB) + pattern


def _too_long(reason: str) -> CommandError:
    return CommandError(REGEX_SEARCH_ERROR, f"Error occurred while executing the regular expression: {reason}")
