"""A clock that tests have moved, kept with the data so that the next run of the server goes on from there.

Only if the engine keeps its data. Without test commands the clock is the machine's, and documents of a run whose clock
was ahead have their `_ts` in its future: then they expire `ahead_s` later than they should.

Where several servers may have the same store it is the clock of all of them: moved, stopped and started there. It is
stored first. The server that changes it takes it over when that is committed, the others when they hear of it, and its
command is answered when they have. A server that starts while others run begins with their clock; one that starts alone
goes on from where the last one has left it, as any server does, and those that follow see that.
"""

from collections.abc import Callable, Container
from typing import Final, TypeVar

from mongottl.clock import Clock, ClockState, VirtualClock
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import get_value
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.errors import CatalogChanged
from mongottl.storage.interface import StorageEngine

T = TypeVar("T")

_ENTRY: Final = "clock"


def change_clock(service: ServiceContext, change: Callable[[VirtualClock], T]) -> T:
    """Changes the clock, of all servers of the store, and stores where it stands; what the change returns. Others than
    this one may know it only when the command ends (`StoreNodes.settle`). ValueError of the change; CatalogChanged:
    nothing is changed."""
    clock = service.clock
    assert isinstance(clock, VirtualClock)
    nodes = service.engine.shared_nodes
    if nodes is None:
        result = change(clock)
        if service.engine.persistent:
            with Undivided():
                service.catalog.save_server_entry(_ENTRY, encode(_entry(clock)))
        return result
    with Undivided():
        changed = clock.copied()
        result = change(changed)
        service.catalog.save_server_entry(_ENTRY, encode(_shared_entry(changed, nodes.number)))
        service.expiry.left_to = 0
        clock.take_over(changed.state())
    return result


def begin_clock(engine: StorageEngine, clock: VirtualClock, goes_on: bool) -> None:
    """Sets the clock of a server that starts: to that of the servers that run, or else, with `goes_on`, as the last run
    has left it. EngineUnavailable, WriteConflict."""
    nodes = engine.shared_nodes
    if nodes is None:
        if goes_on:
            resume_clock(engine, clock)
        return
    if nodes.found_others:
        _take(engine, clock)
        return
    if goes_on:
        resume_clock(engine, clock)
    is_stored = engine.catalog_entry(_ENTRY) is not None
    if is_stored or clock.state() != ClockState(0, None, None, clock.unsettled):
        while not _put(engine, _shared_entry(clock, nodes.number)):
            nodes.catch_up()  # with others that start


def resume_clock(engine: StorageEngine, clock: VirtualClock) -> None:
    """Sets a clock as the last run of the server has left it, if that has moved it."""
    state = _stored(engine)
    if state is not None:
        clock.resume(*state)


def take_clock(service: ServiceContext, changed: Container[str] = (_ENTRY,)) -> bool:
    """Sets the clock as another server has set that of all; whether it is another one now. changed: the keys of entries
    that have changed."""
    clock = service.clock
    if _ENTRY not in changed or not isinstance(clock, VirtualClock):
        return False
    before = clock.state()
    by = _take(service.engine, clock)
    if clock.state() == before:
        return False
    service.expiry.leave_to(by, service.clock.monotonic_s())
    return True


def ahead_s(engine: StorageEngine, clock: Clock) -> int:
    """How many seconds the clock of the last run was ahead of this one; 0 if it was not."""
    state = _stored(engine)
    if state is None:
        return 0
    now_ms, offset_ms = state
    if offset_ms is not None:
        now_ms = offset_ms + (clock.base_ms if isinstance(clock, VirtualClock) else clock.now_ms())
    return max(0, now_ms - clock.now_ms()) // 1000


def _put(engine: StorageEngine, entry: dict[str, Value]) -> bool:
    """Stores the clock; False if others have changed the catalog meanwhile."""
    try:
        with engine.unit_of_work() as work:
            engine.put_catalog_entry(_ENTRY, encode(entry))
            work.commit()
    except CatalogChanged:
        return False
    return True


def _entry(clock: VirtualClock) -> dict[str, Value]:
    state: dict[str, Value] = {"now": Date(clock.now_ms())}
    offset_ms = clock.offset_ms
    if offset_ms is not None:
        state["offsetMs"] = Int64(offset_ms)
    return state


def _shared_entry(clock: VirtualClock, number: int) -> dict[str, Value]:
    """number: of the server that stores it."""
    state = clock.state()
    start = None if state.start_ms is None else Date(state.start_ms)
    return {**_entry(clock), "start": start, "startsFrozen": state.starts_frozen, "by": Int64(number)}


def _take(engine: StorageEngine, clock: VirtualClock) -> int:
    """Sets a clock as it is stored for all servers; by which one it was stored, 0 if it is not stored."""
    entry = engine.catalog_entry(_ENTRY)
    stored = _stored(engine)
    if entry is None or stored is None:
        return 0
    now_ms, offset_ms = stored
    start = get_value(entry, "start")
    by = get_value(entry, "by")
    start_ms = start.ms if isinstance(start, Date) else None
    starts_frozen = get_value(entry, "startsFrozen") is True
    clock.take_over(ClockState(offset_ms or 0, now_ms if offset_ms is None else None, start_ms, starts_frozen))
    return int(by) if isinstance(by, int) else 0


def _stored(engine: StorageEngine) -> tuple[int, int | None] | None:
    """Wall time in ms when it was stored, and the offset in ms, None for a clock that stood still."""
    entry = engine.catalog_entry(_ENTRY)
    if entry is None:
        return None
    now = get_value(entry, "now")
    offset = get_value(entry, "offsetMs")
    assert isinstance(now, Date)
    return now.ms, int(offset) if isinstance(offset, int) else None
