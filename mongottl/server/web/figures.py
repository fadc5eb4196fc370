"""What the server knows about itself, as plain values: for the metrics and for the page.

Figures of collections are read one collection after the other, and other tasks run in between. What other tasks change
meanwhile may make the sums of two figures differ.
"""

import os
from bisect import insort
from functools import partial
from typing import Final, NamedTuple

import trio

from mongottl.catalog.collection import Collection
from mongottl.clock import SystemClock, VirtualClock
from mongottl.document.freeing import LongDict, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts
from mongottl.exec.results.cursors import ClientCursor
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.write.schedule import LATEST_S, count_by_due, expires, first_due_s
from mongottl.server.driving import drive
from mongottl.server.shell import Shell

# The databases whose collections the server fills itself, such as the oplog.
_INTERNAL: Final = ("local", "config")
# What nobody waits for lets other tasks run sooner than commands do.
_SLICE_S: Final = 0.001


class CollectionFigures(NamedTuple):
    """One collection. documents: expired ones included. due: by `count_by_due`; empty if nothing can expire, or if
    it was not to be counted.

    first_due_s: the earliest second at which a document expires or has expired, next_due_s: that is still to come; None
    if there is none.
    """

    collection: Collection
    documents: int
    size_bytes: int
    indexes: int
    due: list[int]
    first_due_s: int | None
    next_due_s: int | None


class ShownCollections:
    """The collections that users have made, those whose documents expire first, then by name. expiring: how many these
    are."""

    def __init__(self, service: ServiceContext) -> None:
        ranked: list[tuple[bool, bool, str]] = LongList()
        named: dict[str, Collection] = LongDict({})
        self.expiring = 0
        for collection in service.catalog.all_collections():
            give_way()
            if collection.database not in _INTERNAL and not collection.pending:
                rank = _rank(collection)
                self.expiring += not rank[0]
                ranked.append(rank)
                named[rank[2]] = collection
        self.collections: list[Collection] = LongList()
        for _, _, namespace in sort_in_parts(ranked):
            give_way()
            self.collections.append(named[namespace])


async def shown_collections(shell: Shell) -> ShownCollections:
    stacks = shell.service.stacks
    outcome = stacks.begin(partial(stacks.compute_unknown, ShownCollections, shell.service))
    return await drive(outcome, shell.clock, shell.durability, _SLICE_S, writes=False)


def _rank(collection: Collection) -> tuple[bool, bool, str]:
    is_system = collection.name.startswith("system.") or collection.database == "admin"
    return not expires(collection), is_system, collection.namespace


async def read_collection(
    shell: Shell, collection: Collection, edges_s: list[int], most: int
) -> CollectionFigures | None:
    """The figures of a collection, None if it is dropped meanwhile. edges_s, most: as for `count_by_due`; without edges
    nothing is counted."""
    outcome = shell.service.stacks.begin(partial(_read, shell.service, collection, edges_s, most))
    return await drive(outcome, shell.clock, shell.durability, _SLICE_S, writes=False)


def _read(service: ServiceContext, collection: Collection, edges_s: list[int], most: int) -> CollectionFigures | None:
    due: list[int] = []
    if edges_s and expires(collection):
        due = count_by_due(service, collection, edges_s, most)
    if collection.dropped:
        return None
    records = RecoveryUnit(service).records(collection)
    first = following = None
    if expires(collection):
        first = first_due_s(service, collection)
        following = first_due_s(service, collection, now_s(service))
    indexes = len(collection.counted_indexes)
    return CollectionFigures(collection, records.count(), records.size_bytes(), indexes, due, first, following)


async def measure_oplog(shell: Shell) -> None:
    """Has the oplog's figures be those of all servers that write to it."""
    outcome = shell.service.stacks.begin(shell.service.oplog.measure)
    await drive(outcome, shell.clock, shell.durability, _SLICE_S, writes=False)


async def soonest(service: ServiceContext, collections: list[Collection], most: int) -> list[Collection]:
    """Up to `most` collections, in the given order: those in which a document expires next, then the first ones."""
    if len(collections) <= most:
        return collections
    soon: list[tuple[int, int]] = []
    for place, collection in enumerate(collections):
        due_s = None
        if expires(collection) and not collection.dropped:
            due_s = first_due_s(service, collection, now_s(service))
            await trio.lowlevel.checkpoint()
        entry = (LATEST_S if due_s is None else due_s, place)
        if len(soon) < most or entry < soon[-1]:
            insort(soon, entry)
            del soon[most:]
    return [collections[place] for place in sorted(place for _, place in soon)]


def now_s(service: ServiceContext) -> int:
    return service.clock.now_ms() // MS_PER_S


def lag_s(service: ServiceContext, due_s: int | None) -> float:
    """For how long the oldest expired document has been expired; 0.0 if there is none. due_s: `first_due_s` of all."""
    return 0.0 if due_s is None else max(0.0, service.clock.now_ms() / MS_PER_S - due_s)


def memory_bytes() -> tuple[int, int]:
    """Memory of this process that is in use, and its virtual memory; 0 where the system does not give them."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = statm.read().split()
    except OSError:
        return 0, 0
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return int(pages[1]) * page_bytes, int(pages[0]) * page_bytes


def change_streams(service: ServiceContext) -> int:
    """Open cursors that are change streams."""
    cursors = service.cursors.all()
    return sum(isinstance(c, ClientCursor) and c.tail is not None and c.tail.reads_changes for c in cursors)


def oplog_window_s(service: ServiceContext) -> tuple[int, int]:
    """Cluster times of the oldest and of the newest entry of the oplog, in seconds since 1970; zeros without any."""
    return service.oplog.span_s


def clock_offset_ms(service: ServiceContext) -> int:
    """The server's time minus that of the machine; it differs only where tests have moved it."""
    clock = service.clock
    return clock.now_ms() - SystemClock().now_ms() if isinstance(clock, VirtualClock) else 0


def is_frozen(service: ServiceContext) -> bool:
    clock = service.clock
    return isinstance(clock, VirtualClock) and clock.frozen
