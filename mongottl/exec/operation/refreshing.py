"""Taking over what other servers of the same store have changed: collections, users, settings, the clock.

Called when the engine has read it, while no unit of work is open (`storage.nodes`). Cursors and commands of this server
go on as beside a command of this server that had changed the same. Transactions that use a collection which has changed
are aborted: what they have written was made for the old one. Their clients begin them again.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from mongottl.catalog.collection import Collection, record_store_ident
from mongottl.catalog.entries import is_collection_key
from mongottl.document.interrupt import Undivided
from mongottl.exec.operation.transaction_unit import abort, abort_expired
from mongottl.exec.service.holding import note_held, release_left
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.service.stored_clock import take_clock
from mongottl.storage.errors import CatalogChanged, WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.nodes import CatalogChange, StoreNodes
from mongottl.ttl.policy import NO_TTL

T = TypeVar("T")


def carry_out(engine: StorageEngine, step: Callable[[], T]) -> T:
    """What a step of the start returns, which reads and changes the catalog before there are operations: it is carried
    out again where other servers have changed that meanwhile, by commands or at their own start. EngineUnavailable."""
    while True:
        try:
            return step()
        except CatalogChanged:
            nodes = engine.nodes
            assert nodes is not None
            nodes.catch_up()


def known_to_all(service: ServiceContext, step: Callable[[], T]) -> T:
    """What a step returns that changes the catalog, outside of commands: all servers of the store know the change then.
    It is carried out again where others have changed the catalog meanwhile, before it has committed anything. Within an
    operation that may wait."""
    nodes = service.engine.shared_nodes
    if nodes is None:
        return step()
    while True:
        nodes.begin()
        try:
            return step()
        except CatalogChanged:
            if nodes.has_committed:
                raise
        finally:
            nodes.end()


def follow_others(service: ServiceContext) -> None:
    """Has a server take over what others change, if its engine can share its data."""
    nodes = service.engine.shared_nodes
    if nodes is not None:
        nodes.follow(partial(refresh, service))
        note_held(service)
        if nodes.found_others:
            take_clock(service)  # which may have been moved since this server has begun to start


def refresh(service: ServiceContext, change: CatalogChange) -> None:
    refreshed = service.catalog.refresh(change, service.stacks.let_ask)
    for collection in refreshed.gone:
        service.metrics.usage.remove(collection.namespace)
        service.cursors.close_where_namespace(collection.namespace)
    for namespace in refreshed.renamed:
        service.cursors.close_where_namespace(namespace, "collection renamed")
    for collection in refreshed.changed:
        if collection.default_ttl_s != NO_TTL or collection.date_ttl_indexes:
            service.expiry.unarmed.add(collection.number)
    if service.exclusive or any(collection.held_by for collection in refreshed.changed):
        note_held(service)
    _abort_users(service, [*refreshed.gone, *refreshed.changed], change.dropped)
    if all(is_collection_key(key) for key in change.before):
        return
    service.accounts.invalidate()
    service.cluster_parameters.reload()
    service.write_block.reload()
    service.databases.reload()
    service.settings.reload()
    if take_clock(service, change.before):
        abort_expired(service)
        service.note_clock_change()


def clear_up(service: ServiceContext) -> None:
    """Drops what servers have left which are taken for dead: indexes that they have been building, stores of
    transactions, marks of copies; and the indexes and marks that this server has left itself. What fails is tried again
    by the next call; to be called now and then by the server that does so for all (`StoreNodes.has_duties`), and by one
    where collections are held or that has left indexes. EngineUnavailable."""
    nodes = service.engine.shared_nodes
    if nodes is None:
        return
    release_left(service, nodes)
    if nodes.has_duties:
        nodes.clear_up()
        if nodes.has_left:
            _drop_left(service, nodes)
    _drop_left_indexes(service, nodes)


def _drop_left_indexes(service: ServiceContext, nodes: StoreNodes) -> None:
    """Drops indexes that nobody goes on to build: of this server, and, if it has the duties, of those that have
    ended."""
    building = [
        (collection, index)
        for collection in service.catalog.all_collections()
        for index in collection.indexes
        if index.builder
    ]
    service.left_indexes &= {index.ident for _, index in building}
    if not building:
        return
    ended: set[int] = set()
    if nodes.has_duties:
        living = {node.number for node in nodes.all() if node.is_live}
        ended = {index.builder for _, index in building} - living - {nodes.number}
    for collection, index in building:
        if index.ident in service.left_indexes or index.builder in ended:
            with suppress(WriteConflict), Undivided():
                if index in collection.indexes and not index.ready and not collection.dropped:
                    service.catalog.remove_indexes(collection, [index])


def _drop_left(service: ServiceContext, nodes: StoreNodes) -> None:
    """Drops the stores that are in no collection, and temporary collections, of servers that have ended: nobody puts
    them in one any more, or renames them."""
    left = nodes.left_of([*service.catalog.unowned_idents(), *service.catalog.temporary_idents()])
    with suppress(WriteConflict), Undivided():
        if left:
            # If it is made from an old catalog nothing is dropped.
            service.catalog.drop_left(left)
        nodes.has_left = False


def _abort_users(service: ServiceContext, changed: list[Collection], dropped: list[str]) -> None:
    """Aborts the transactions that have named one of these collections, or have created one with a store that was
    dropped, since this server was taken for dead: those with a statement under way at its end."""
    numbers = {collection.number for collection in changed}
    for transaction in service.transactions.open():
        lost = [each for each in transaction.pending.values() if record_store_ident(each.number) in dropped]
        for collection in lost:
            collection.mark_dropped()
        if lost or not numbers.isdisjoint(transaction.collections):
            if transaction.busy:
                transaction.expired = True
            else:
                abort(service, transaction)
