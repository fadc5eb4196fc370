"""What a process does that searches: `processes.spawner` runs it in each process that it forks.

Requests are of kind S; the rest is `SEARCH`, the pattern, the options and the subject. Replies are of kind D: numbers
as `array` has them. After a search for whether there is a match: 0 if there is one, or nothing. After one for matches:
where to go on, -1 if these were the last ones; then for each match its begin and end and those of its groups, as bytes.
"""

import os
import resource
from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from mongottl.regex.library import Library, library, next_start

# Where to begin, how many matches are wanted at most (0: only whether there is one), and the lengths of the pattern and
# of the options.
SEARCH: Final = Struct("<IIHH")
# Of numbers in replies, as `array` names them: bytes of a subject.
NUMBERS: Final = "i"

# A lower priority than the server's, whose other clients a search must not hold up.
_NICENESS: Final = 10
# A search that needs more than this memory, in KB, finds nothing, as with PCRE2's own limit, which is 20 GB.
_HEAP_LIMIT: Final = b"(*LIMIT_HEAP=65536)"


class _Pattern:
    """The latest pattern, since the next request mostly has the same one."""

    def __init__(self, found_by: Library, pattern: bytes, options: str) -> None:
        self.pattern: Final = pattern
        self.options: Final = options
        self._library: Final = found_by
        self._interpreted: Any = None
        try:
            self._compiled = found_by.compiled(_HEAP_LIMIT + pattern, options, True)
        except found_by.library_error:  # it is too large for machine code
            self._compiled = found_by.compiled(_HEAP_LIMIT + pattern, options, False)
        self.groups: Final = int(self._compiled.groups)

    def found(self, subject: bytes, start: int) -> Any:
        """The first match from `start` on; None if there is none, or if the search exceeds PCRE2's limits."""
        try:
            return self._library.found(self._compiled, subject, start)
        except self._library.library_error as error:
            if "JIT stack" not in str(error):
                return None
        # Machine code has 32 KB for what it may have to go back to.
        if self._interpreted is None:
            self._interpreted = self._library.compiled(_HEAP_LIMIT + self.pattern, self.options, False)
        try:
            return self._library.found(self._interpreted, subject, start)
        except self._library.library_error:
            return None


class Searcher:
    """Answers requests."""

    def __init__(self) -> None:
        self._library: Final = library()
        self._latest: _Pattern | None = None

    def answer(self, request: bytes) -> bytes:
        start, most, pattern_bytes, options_bytes = SEARCH.unpack_from(request)
        pattern_end = SEARCH.size + pattern_bytes
        subject_start = pattern_end + options_bytes
        pattern = request[SEARCH.size : pattern_end]
        options = request[pattern_end:subject_start].decode("ascii")
        subject = request[subject_start:]
        latest = self._latest
        if latest is None or latest.pattern != pattern or latest.options != options:
            latest = _Pattern(self._library, pattern, options)
            self._latest = latest
        if most == 0:
            return array(NUMBERS, [] if latest.found(subject, start) is None else [0]).tobytes()
        numbers = [-1]
        while start >= 0 and most > 0:
            found = latest.found(subject, start)
            if found is None:
                start = -1
                break
            at = len(numbers)
            self._library.add_spans(numbers, found, subject, latest.groups)
            start = next_start(subject, numbers[at], numbers[at + 1])
            most -= 1
        numbers[0] = start
        return array(NUMBERS, numbers).tobytes()

    def run(self) -> None:
        """Answers the requests on standard input until there are no more."""
        os.nice(_NICENESS)
        # It needs no files and sockets. If a pattern finds a hole in the library, it can open none.
        with open(0, "rb", closefd=False) as requests, open(1, "wb", closefd=False) as replies:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            while len(header := requests.read(5)) == 5:
                reply = self.answer(requests.read(int.from_bytes(header[1:], "little")))
                replies.write(b"D" + len(reply).to_bytes(4, "little"))
                replies.write(reply)
                replies.flush()


def prepare(arguments: list[str]) -> Callable[[], None]:
    """What `processes.spawner` calls in each process."""
    return Searcher().run
