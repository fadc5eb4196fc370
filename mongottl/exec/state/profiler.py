"""The settings of the database profiler: what is profiled, and from how long on an operation counts as slow.

The level and the filter belong to a database, the threshold and the sample rate to the server, as in MongoDB. Where a
filter is set, it alone decides, and the threshold and the rate do not matter.

Source: MongoDB's manual, "Database Profiler" and the `profile` command.
"""

from typing import TYPE_CHECKING, Final

from mongottl.exec.state.query_stats import QueryStats

if TYPE_CHECKING:
    from mongottl.query.match import MatchExpression

PROFILE_COLLECTION: Final = "system.profile"
OFF: Final = 0
SLOW_ONLY: Final = 1
EVERYTHING: Final = 2
DEFAULT_SLOW_MS: Final = 100
DEFAULT_SAMPLE_RATE: Final = 1.0
_MICROS_PER_MS: Final = 1000


class DatabaseProfile:
    """What is profiled in one database. filter: the document of `filter`, and its tree; None if none is set.

    since_s: monotonic time at which profiling was last switched on. Operations that began before are not profiled.
    """

    def __init__(self) -> None:
        self.level = OFF
        self.since_s = 0.0
        self.filter: bytes | None = None
        self.tree: MatchExpression | None = None


_UNSET: Final = DatabaseProfile()


class Profiler:
    """The profiler of a server. slow_micros: from this duration on an operation is slow.

    attentive: whether any database has a level or a filter, or queries are recorded for `$queryStats`, so that every
    operation has to be looked at.
    """

    def __init__(self, query_stats_bytes: int = 0) -> None:
        self.query_stats = QueryStats(query_stats_bytes)
        self.slow_ms: int = DEFAULT_SLOW_MS
        self.slow_micros: int = DEFAULT_SLOW_MS * _MICROS_PER_MS
        self.sample_rate: float = DEFAULT_SAMPLE_RATE
        self.attentive = False
        self._databases: dict[str, DatabaseProfile] = {}
        # Grows by the sample rate with each slow operation; at 1.0 one is taken.
        self._due = 0.0

    def of(self, database: str) -> DatabaseProfile:
        """The settings of a database, to be read only."""
        return self._databases.get(database, _UNSET)

    def change(
        self,
        database: str,
        level: int | None,
        filter: bytes | None,
        tree: "MatchExpression | None",
        unset: bool,
        now_s: float,
    ) -> None:
        """Changes the settings of a database. level, filter: None to keep; unset: removes the filter. now_s: monotonic
        time."""
        profile = self._databases.setdefault(database, DatabaseProfile())
        if level is not None:
            if profile.level == OFF:
                profile.since_s = now_s
            profile.level = level
        if unset or filter is not None:
            profile.filter = filter
            profile.tree = tree
        if profile.level == OFF and profile.filter is None:
            del self._databases[database]
        self.attend()

    def attend(self) -> None:
        """Sets `attentive`, after a setting has changed."""
        self.attentive = bool(self._databases) or self.query_stats.rate_limit != 0

    def copied(self) -> "Profiler":
        """A profiler with the same settings."""
        copy = Profiler()
        copy.query_stats = self.query_stats.copied()
        copy.set_slow_ms(self.slow_ms)
        copy.sample_rate = self.sample_rate
        copy.attentive = self.attentive
        for name, profile in self._databases.items():
            copied = DatabaseProfile()
            copied.level = profile.level
            copied.since_s = profile.since_s
            copied.filter = profile.filter
            copied.tree = profile.tree
            copy._databases[name] = copied
        return copy

    def set_slow_ms(self, slow_ms: int) -> None:
        self.slow_ms = slow_ms
        self.slow_micros = slow_ms * _MICROS_PER_MS

    def takes_sample(self) -> bool:
        """Whether the next slow operation belongs to the sample: of 100 as many as the rate says, evenly."""
        self._due += self.sample_rate
        if self._due < 1.0:
            return False
        self._due -= 1.0
        return True
