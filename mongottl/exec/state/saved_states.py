"""The saved states of a server: what `restoring` makes, keeps by name and puts back."""

from typing import Final

from mongottl.catalog.plan_memory import IndexFilter
from mongottl.config import MemoryLimits
from mongottl.document.types import Timestamp
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.state.failpoints import FailPointSetting
from mongottl.exec.state.profiler import Profiler
from mongottl.exec.state.query_settings import QuerySettings
from mongottl.storage.interface import SavedState
from mongottl.ttl.wheel import WheelEntries


class ServerSettings:
    """What commands change of a server that is not stored: parameters, fail points, profiling, defaults.

    plain: attributes of `ServiceContext` by name.
    """

    def __init__(
        self,
        plain: dict[str, object],
        limits: MemoryLimits,
        fail_points: FailPointSetting,
        profiler: Profiler,
        query_settings: dict[str, QuerySettings],
    ) -> None:
        self.plain = plain
        self.limits = limits
        self.fail_points = fail_points
        self.profiler = profiler
        self.query_settings = query_settings
        self.index_filters: dict[int, dict[str, IndexFilter]] = {}
        # Of the log: quiet, verbosity, levels of components.
        self.log: tuple[bool, int, dict[str, int]] = (False, 0, {})
        # The default concerns: read, write, when they were set.
        self.concerns: tuple[bytes | None, bytes | None, int, Timestamp | None] = (None, None, 0, None)
        self.connection_rate: tuple[bool, int, float, int] = (False, 0, 0.0, 0)
        self.scram_iterations: dict[str, int] = {}
        self.script_limit_ms: int = 0
        # Of TTL deletion: `service.Expiry.setting`.
        self.expiry: tuple[bool, int] = (True, 1)
        # What commands have changed in the dialect: `Dialect.saved`.
        self.dialect: object = None


class SavedServer:
    """A server at one time.

    clock: how it was moved and frozen; None for the machine's own. wheel: of the timing wheel; unarmed: the collections
    whose expiry times are not all in it, None for all collections.
    """

    def __init__(
        self,
        data: SavedState,
        settings: ServerSettings,
        clock: tuple[int, int | None] | None,
        wheel: WheelEntries,
        unarmed: set[int] | None,
    ) -> None:
        self.data = data
        self.settings = settings
        self.clock = clock
        self.wheel = wheel
        self.unarmed = unarmed


class SavedStates:
    """The saved states of a server by name. initial: the state at its start; None if it was not saved."""

    def __init__(self) -> None:
        self.initial: SavedServer | None = None
        self._states: Final[dict[str, SavedServer]] = {}

    def put(self, name: str, state: SavedServer) -> SavedServer | None:
        """Keeps a state; the one that had the name before."""
        before = self._states.get(name)
        self._states[name] = state
        return before

    def get(self, name: str) -> SavedServer:
        """NoSuchKey (4) if there is no state of this name."""
        state = self._states.get(name)
        if state is None:
            known = ", ".join(repr(other) for other in sorted(self._states))
            raise CommandError(
                ErrorCode.NoSuchKey,
                f"no state was saved as {name!r}: " + (f"there are {known}" if known else "there is none"),
            )
        return state

    def remove(self, name: str) -> SavedServer:
        """Forgets a state, and returns it. NoSuchKey (4) if there is none of this name."""
        state = self.get(name)
        del self._states[name]
        return state

    def names(self) -> list[str]:
        """The names of the states, sorted."""
        return sorted(self._states)
