"""Holding off all writes to a collection, of all servers with the same store, while one of them copies it.

    A    the mark is stored ── all know it ── copies ── the copy takes the place of the collection, and of the mark
    B                 knows it ····················· goes on, with what has that name then

The mark is `heldBy` in the entry of the collection. Commands that write to it, or change it, wait before they begin
(`ServiceContext.exclusive`). Those which have begun meet it when they begin a unit of work (`CollectionHeld`), and wait
outside of that. So nobody writes once all know it, since units from before have ended then. Reads go on. Purges pass
the collection over. Transactions that have used it are aborted on other servers, and cannot commit on this one what
they have written to it.

What changes the collection waits, too (`drop`, `createIndexes`, `collMod`), but not what has begun before, nor
`dropDatabase` and `renameCollection`: these go first. The copy fails if the collection is gone then, or has another
name.

The mark of a server that has ended is taken away by the one with the duties, and what a server has left of its own by
itself: `release_left`.
"""

from contextlib import suppress
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.interrupt import Undivided
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.nodes import StoreNodes

# How often at once it is tried to take a mark away while other servers change the catalog.
_ATTEMPTS: Final = 20


def note_held(service: ServiceContext) -> None:
    """Has commands wait that write to collections with a mark, and to no others."""
    service.exclusive = {each.namespace for each in service.catalog.all_collections() if each.held_by}


def hold(service: ServiceContext, nodes: StoreNodes, collection: Collection) -> None:
    """Stores the mark of this server; `let_go` must follow. Within an undivided block, in which the caller has looked
    whether the collection is there, and nobody holds it. All servers know it after `nodes.settle`. CatalogChanged."""
    service.held.add(collection.number)
    try:
        service.catalog.set_holder(collection, nodes.number)
    except BaseException:
        service.held.discard(collection.number)
        raise
    note_held(service)


def is_held(nodes: StoreNodes, collection: Collection) -> bool:
    """Whether this server still holds it: it may have been taken for dead meanwhile. Within an undivided block."""
    return collection.held_by == nodes.number and not collection.dropped


def let_go(service: ServiceContext, nodes: StoreNodes, collection: Collection) -> None:
    """Takes the mark of this server away, if it is still there; if that fails, `release_left` does so later."""
    service.held.discard(collection.number)
    with suppress(EngineUnavailable):
        for _ in range(_ATTEMPTS):
            if not is_held(nodes, collection) or _release(service, collection, nodes.number):
                break
    note_held(service)


def release_left(service: ServiceContext, nodes: StoreNodes) -> None:
    """Takes away the marks that this server has left, and, if it has the duties, those of servers that have ended. What
    fails is tried again by the next call. EngineUnavailable."""
    if not service.exclusive:
        return
    marked = [each for each in service.catalog.all_collections() if each.held_by]
    living = {nodes.number}
    if nodes.has_duties:
        living = {node.number for node in nodes.all() if node.is_live}
    for collection in marked:
        holder = collection.held_by
        is_left = nodes.has_duties and holder not in living
        if is_left or (holder == nodes.number and collection.number not in service.held):
            _release(service, collection, holder)
    note_held(service)


def _release(service: ServiceContext, collection: Collection, holder: int) -> bool:
    """Takes away the mark of a server; False if another server has changed the catalog. EngineUnavailable."""
    released = False
    with suppress(WriteConflict), Undivided():
        if collection.held_by == holder and not collection.dropped:
            service.catalog.set_holder(collection, 0)
            # What was due meanwhile is in no wheel.
            service.expiry.unarmed.add(collection.number)
            service.hooks.wake_reaper()
        released = True
    return released
