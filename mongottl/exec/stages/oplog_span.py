"""The part of `local.oplog.rs` that a filter on `ts` leaves, which scans seek instead of reading from its beginning.

What tails the oplog asks for `{ts: {$gte: <time>}}` or a range; mongod's plans say it by `minRecord` and `maxRecord`.
"""

from mongottl.document.types import Timestamp
from mongottl.document.walk import get_value
from mongottl.oplog.log import Oplog
from mongottl.storage.stores import Record


class OplogSpan:
    """low, high: the first and last cluster time of documents that may match; None without such a bound."""

    def __init__(self, low: tuple[int, int] | None, high: tuple[int, int] | None) -> None:
        self._low = low
        self._high = high

    def start(self, oplog: Oplog, forward: bool, default: int) -> int:
        """The record id after which a scan begins; default: of a scan of everything.

        A forward scan begins with the record before the span, as in mongod, so that a tailing cursor that finds nothing
        has a position all the same.
        """
        if forward:
            if self._low is None:
                return default
            return oplog.record_before(self._low)
        if self._high is None:
            return default
        return oplog.record_after((self._high[0], self._high[1] + 1), self._high)

    def is_left(self, record: Record, forward: bool) -> bool:
        """Whether no record that follows this one in the scan is in the span."""
        bound = self._high if forward else self._low
        if bound is None:
            return False
        at = get_value(record[1], "ts")
        assert isinstance(at, Timestamp)
        time = (at.time, at.inc)
        return time > bound if forward else time < bound
