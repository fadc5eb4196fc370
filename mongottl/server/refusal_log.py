"""Which refusals are logged, so that a test suite that repeats one ten thousand times does not fill the log.

    a refusal ──► note: the same one within a minute?  counted, and logged with its next line
                        too many lines in a minute?    counted, too; one line says that lines are left out

Whoever mends a refusal and runs the program again a minute later sees in the log whether it has gone. The page has all
of them, with their numbers.
"""

from typing import Final, NamedTuple

# How long a refusal is not logged again, and how many lines all of them may have in that time.
REPEAT_S: Final = 60.0
MAX_LINES: Final = 50
# How many refusals are remembered.
KEPT_REFUSALS: Final = 1000


class Refusal(NamedTuple):
    """What makes two refusals the same for the log. namespace: "" where the command names no collection."""

    command: str
    namespace: str
    code: int
    advice: str


class RefusalLog:
    """Decides for each refusal of one server whether the log gets a line of it."""

    def __init__(self) -> None:
        # When each was logged the last time, if it was, and how often it has come since; the latest one at the end.
        self._known: dict[Refusal, tuple[float | None, int]] = {}
        self._began_s: float | None = None
        self._lines = 0

    def __len__(self) -> int:
        """How many refusals are remembered."""
        return len(self._known)

    def note(self, refusal: Refusal, now_s: float) -> int:
        """How many refusals the line stands for that is to be logged now; 0 for no line, -1 for the one that says that
        others are left out. now_s: monotonic time."""
        logged_s, times = self._known.pop(refusal, (None, 0))
        times += 1
        if self._began_s is None or now_s - self._began_s >= REPEAT_S:
            self._began_s = now_s
            self._lines = 0
        is_due = logged_s is None or now_s - logged_s >= REPEAT_S
        self._lines += is_due
        is_logged = is_due and self._lines <= MAX_LINES
        self._known[refusal] = (now_s, 0) if is_logged else (logged_s, times)
        if len(self._known) > KEPT_REFUSALS:
            del self._known[next(iter(self._known))]
        if is_logged:
            return times
        return -1 if is_due and self._lines == MAX_LINES + 1 else 0
