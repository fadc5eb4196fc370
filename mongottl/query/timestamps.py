"""Timestamps that the server makes: for `$currentDate`, and for empty ones in what clients insert or replace by."""

from mongottl.document.types import Timestamp

_MAX_SECONDS = 2**32 - 1  # a timestamp's seconds are unsigned 32 bits: until the year 2106


def timestamp_seconds(now_ms: int) -> int:
    """A wall time as the seconds of a timestamp; beyond the range, 1970 to 2106, the nearest that there are."""
    return min(max(now_ms // 1000, 0), _MAX_SECONDS)


class TimestampClock:
    """Hands out timestamps, each later than the one before, also while the wall clock stands or is set back."""

    def __init__(self) -> None:
        self._seconds: int = 0
        self._counter: int = 0

    def next(self, now_ms: int) -> Timestamp:
        """The next timestamp. now_ms: the operation's time; seconds beyond 2106 count as the last that there are."""
        seconds = timestamp_seconds(now_ms)
        if seconds > self._seconds:
            self._seconds = seconds
            self._counter = 0
        self._counter += 1
        return Timestamp(self._seconds, self._counter)
