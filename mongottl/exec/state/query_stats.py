"""Statistics of queries by their shapes, for `$queryStats`.

A query is recorded at its end: when its reply is complete, or when its cursor is closed. The entries are kept in memory
up to `max_bytes`, those that were recorded longest ago go first, and they are lost at a restart.

Source: MongoDB's manual, "$queryStats (aggregation)".
"""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.types import Date, Decimal128, Int64, Timestamp, Value

# Entries may by default take one part of this number of the memory, as in MongoDB.
STORE_SHARE: Final = 100
# What an entry takes besides its key.
_ENTRY_BYTES: Final = 2048
_MS_PER_S: Final = 1000


class Total:
    """The sum, the extremes and the sum of squares of a number over the executions of a query."""

    def __init__(self) -> None:
        self.sum = 0
        self.max = 0
        self.min = -1
        self.squares = 0

    def add(self, number: int) -> None:
        self.sum += number
        self.max = max(self.max, number)
        self.min = number if self.min < 0 else min(self.min, number)
        self.squares += number * number

    def describe(self) -> Value:
        return {
            "sum": Int64(self.sum),
            "max": Int64(self.max),
            "min": Int64(max(self.min, 0)),
            "sumOfSquares": Decimal128(str(self.squares)),
        }


class QueryStatsEntry:
    """The executions of the queries with one key. key: a raw document, with types in place of values."""

    def __init__(self, key: bytes, shape_hash: str, now_ms: int) -> None:
        self.key: Final = key
        self.shape_hash: Final = shape_hash
        self.executions = 0
        self.last_micros = 0
        self.total_micros = Total()
        self.first_micros = Total()
        self.returned = Total()
        self.keys_examined = Total()
        self.docs_examined = Total()
        self.working_ms = Total()
        self.sorted = 0
        self.first_ms: Final = now_ms
        self.latest_ms = now_ms

    def size(self) -> int:
        return _ENTRY_BYTES + len(self.key)

    def describe(self, key: bytes, now_ms: int) -> bytes:
        """The document of the stage. key: `{queryShape, …}` as it is to be shown."""
        metrics: dict[str, Value] = {
            "lastExecutionMicros": Int64(self.last_micros),
            "execCount": Int64(self.executions),
            "totalExecMicros": self.total_micros.describe(),
            "firstResponseExecMicros": self.first_micros.describe(),
            "docsReturned": self.returned.describe(),
            "keysExamined": self.keys_examined.describe(),
            "docsExamined": self.docs_examined.describe(),
            "workingTimeMillis": self.working_ms.describe(),
            "hasSortStage": {"true": Int64(self.sorted), "false": Int64(self.executions - self.sorted)},
            "firstSeenTimestamp": Date(self.first_ms),
            "latestSeenTimestamp": Date(self.latest_ms),
        }
        from base64 import b64encode  # seldom needed
        from hashlib import sha256

        return encode(
            {
                "key": key,
                "keyHash": b64encode(sha256(key).digest()).decode("ascii"),
                "queryShapeHash": self.shape_hash,
                "metrics": metrics,
                "asOf": Timestamp(now_ms // _MS_PER_S, 0),
            }
        )


class RunningQuery:
    """A query that has begun: what its command and the getMores of its cursor have done so far.

    sorts: whether it has a sort stage. in_reply: whether a getMore runs, which records the query itself if it is the
    last.
    """

    def __init__(self, statistics: "QueryStats", key: bytes, shape_hash: str, sorts: bool) -> None:
        self._statistics: Final = statistics
        self.key: Final = key
        self.shape_hash: Final = shape_hash
        self.sorts: Final = sorts
        self.micros = 0
        self.first_micros = -1
        self.returned = 0
        self.keys_examined = 0
        self.docs_examined = 0
        self.in_reply = False
        self.now_ms = 0

    def add(self, micros: int, returned: int, examined: tuple[int, int], now_ms: int) -> None:
        """Adds one command. examined: index keys and documents."""
        self.micros += micros
        if self.first_micros < 0:
            self.first_micros = micros
        self.returned += returned
        self.keys_examined += examined[0]
        self.docs_examined += examined[1]
        self.now_ms = now_ms
        self.in_reply = False

    def end(self) -> None:
        """Records the query, and begins to count from zero."""
        self._statistics.record(self)
        self.micros = 0
        self.first_micros = -1
        self.returned = 0
        self.keys_examined = 0
        self.docs_examined = 0


class QueryStats:
    """The recorded queries of a server. rate_limit: how many are recorded per second, 0 for none, -1 for all.

    evicted_total, rate_limited_total, refused_total: entries that made room, and queries that were not recorded because
    of the rate or their length.
    """

    def __init__(self, max_bytes: int) -> None:
        self.rate_limit: int = 0
        self.size_text = "1%"
        self.max_bytes: int = max_bytes
        self.bytes: int = 0
        self.evicted_total = 0
        self.rate_limited_total = 0
        self.refused_total = 0
        self._entries: dict[bytes, QueryStatsEntry] = {}
        # Of the present second: its number, and how many queries it has recorded.
        self._second = 0
        self._taken = 0

    def copied(self) -> "QueryStats":
        """A store with the same settings, and no entries."""
        copy = QueryStats(self.max_bytes)
        copy.rate_limit = self.rate_limit
        copy.size_text = self.size_text
        return copy

    def takes(self, now_s: float, too_long: bool) -> bool:
        """Whether the query that ends now, by monotonic time, is to be recorded: not if the rate is exceeded."""
        if self.rate_limit >= 0:
            second = int(now_s)
            if second != self._second:
                self._second = second
                self._taken = 0
            if self._taken >= self.rate_limit:
                self.rate_limited_total += 1
                return False
            self._taken += 1
        if too_long:
            self.refused_total += 1
        return not too_long

    def shape_hash_of(self, key: bytes) -> str:
        """The hash of the shape in a key, "" if no query with that key is recorded."""
        entry = self._entries.get(key)
        return "" if entry is None else entry.shape_hash

    def record(self, query: RunningQuery) -> None:
        entry = self._entries.pop(query.key, None)
        if entry is None:
            entry = QueryStatsEntry(query.key, query.shape_hash, query.now_ms)
            self.bytes += entry.size()
        self._entries[query.key] = entry
        entry.executions += 1
        entry.last_micros = query.micros
        entry.latest_ms = query.now_ms
        entry.total_micros.add(query.micros)
        entry.first_micros.add(max(query.first_micros, 0))
        entry.returned.add(query.returned)
        entry.keys_examined.add(query.keys_examined)
        entry.docs_examined.add(query.docs_examined)
        entry.working_ms.add(query.micros // 1000)
        entry.sorted += query.sorts
        self._make_room()

    def resize(self, text: str, max_bytes: int) -> None:
        self.size_text = text
        self.max_bytes = max_bytes
        self._make_room()

    def _make_room(self) -> None:
        while self.bytes > self.max_bytes and self._entries:
            oldest = next(iter(self._entries))
            self.bytes -= self._entries.pop(oldest).size()
            self.evicted_total += 1

    def entries(self) -> list[QueryStatsEntry]:
        return list(self._entries.values())
