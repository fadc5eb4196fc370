"""A clock that tests have moved, kept with the data so that the next run of the server goes on from there.

Only if the engine keeps its data. Without test commands the clock is the machine's, and documents of a run whose clock
was ahead have their `_ts` in its future: then they expire `ahead_s` later than they should.
"""

from collections.abc import Container
from typing import Final

from mongottl.clock import Clock, VirtualClock
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import get_value
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.interface import StorageEngine

_ENTRY: Final = "clock"


def keep_clock(service: ServiceContext) -> None:
    """Stores where the clock stands. To be called after each change."""
    clock = service.clock
    if not service.engine.persistent or not isinstance(clock, VirtualClock):
        return
    with Undivided():
        state: dict[str, Value] = {"now": Date(clock.now_ms())}
        offset_ms = clock.offset_ms
        if offset_ms is not None:
            state["offsetMs"] = Int64(offset_ms)
        service.catalog.save_server_entry(_ENTRY, encode(state))


def resume_clock(engine: StorageEngine, clock: VirtualClock) -> None:
    """Sets a clock as the last run of the server has left it, if that has moved it."""
    state = _stored(engine)
    if state is not None:
        clock.resume(*state)


def take_clock(engine: StorageEngine, clock: VirtualClock, changed: Container[str]) -> None:
    """Sets a clock as another server has, if one has moved its own. changed: the keys of entries that have changed."""
    if _ENTRY in changed:
        resume_clock(engine, clock)


def ahead_s(engine: StorageEngine, clock: Clock) -> int:
    """How many seconds the clock of the last run was ahead of this one; 0 if it was not."""
    state = _stored(engine)
    if state is None:
        return 0
    now_ms, offset_ms = state
    if offset_ms is not None:
        now_ms = offset_ms + (clock.base_ms if isinstance(clock, VirtualClock) else clock.now_ms())
    return max(0, now_ms - clock.now_ms()) // 1000


def _stored(engine: StorageEngine) -> tuple[int, int | None] | None:
    """Wall time in ms when it was stored, and the offset in ms, None for a clock that stood still."""
    entry = engine.catalog_entry(_ENTRY)
    if entry is None:
        return None
    now = get_value(entry, "now")
    offset = get_value(entry, "offsetMs")
    assert isinstance(now, Date)
    return now.ms, int(offset) if isinstance(offset, int) else None
