"""convertToCapped and cloneCollectionAsCapped: copy existing documents into a capped collection.

The copy is made into a temporary collection, batch by batch, while others read and write. If the source was written to
meanwhile, the copy starts again; during the last attempts, new commands that write to the source wait (see
`ServiceContext.exclusive`). At the end the temporary collection is renamed.

Where several servers may have the same store, what others write is not noticed so. There all writes to the source wait
from the beginning, on all servers (`exec.service.holding`).
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.options import CollectionOptions
from mongottl.document.interrupt import Undivided
from mongottl.document.types import MISSING
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.holding import hold, is_held, let_go
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.unit.write_unit import CollectionHeld
from mongottl.exec.write.expiry import due_by_policy
from mongottl.exec.write.waiting import await_transaction, drop_temporary, until_unchanged
from mongottl.exec.write.writes import insert_copies
from mongottl.storage.errors import CatalogChanged, WriteConflict
from mongottl.storage.nodes import StoreNodes
from mongottl.storage.stores import MAX_RECORD_ID, NewRecord, Record

# Records of one unit of work, and the bytes of their documents; the last document may exceed them.
_BATCH: Final = 256
_BATCH_BYTES: Final = 2 << 20
# Attempts while others write, and then attempts while new writes wait; writes that were already running may go on.
_ATTEMPTS: Final = 3
_EXCLUSIVE_ATTEMPTS: Final = 3
_POLL_S: Final = 0.005


def copy_as_capped(op: OperationContext, source: Collection, name: str, options: CollectionOptions) -> None:
    """Makes a capped collection with the newest documents of `source` that fit; they keep their `_ts`.

    Expired documents are not copied and do not count towards the size.

    name: of the copy; if it is the source's name, the copy replaces the source. Only the index on `_id` is copied.
    """
    wanted = _Copy(op, source, name, options)
    namespace = source.namespace
    nodes = op.service.engine.shared_nodes
    if nodes is not None:
        for _ in range(_EXCLUSIVE_ATTEMPTS):
            if _copy_held(op, nodes, wanted):
                return
        raise CommandError(ErrorCode.WriteConflict, f"{namespace} kept changing; try again")
    for _ in range(_ATTEMPTS):
        if _copy_once(op, wanted):
            return
    while namespace in op.service.exclusive:  # two copies of one collection
        op.check_interrupt()
        op.wait(_POLL_S)
    op.service.exclusive.add(namespace)
    try:
        for _ in range(_EXCLUSIVE_ATTEMPTS):
            if _copy_once(op, wanted):
                return
    finally:
        op.service.exclusive.discard(namespace)
    raise CommandError(ErrorCode.WriteConflict, f"{namespace} kept changing; try again")


class _Copy:
    """What is to be made. name: of the copy; is_replacement: whether it takes the place of its source. temporary, made:
    the name of the collection until then, and the latest one."""

    def __init__(self, op: OperationContext, source: Collection, name: str, options: CollectionOptions) -> None:
        self.source = source
        self.name = name
        self.is_replacement: bool = name == source.name
        self.temporary = f"tmp.{op.service.object_ids.generate(op.now_s)}.convertToCapped"
        # A capped collection has the order of insertion, so it cannot be clustered.
        self.options: CollectionOptions = options.with_options(
            {"clusteredIndex": MISSING, "expireAfterSeconds": MISSING, "temp": True}
        )
        self._op = op
        self.made: Collection | None = None

    def make(self) -> None:
        catalog = self._op.catalog
        database = self.source.database
        catalog.check_new_name(database, self.temporary)
        self.made = catalog.create_collection(database, self.temporary, self.options)


def _copy_held(op: OperationContext, nodes: StoreNodes, wanted: _Copy) -> bool:
    """`_copy_once` while no server writes to the source. CollectionHeld, CatalogChanged: the command, of which nothing
    is left, is to be carried out again."""
    source = wanted.source
    has_committed = nodes.has_committed
    with Undivided():
        if source.dropped:
            raise _gone(source)
        if source.held_by:
            raise CollectionHeld(source)
        hold(op.service, nodes, source)
    copied = False
    try:
        nodes.settle()
        copied = _copy_once(op, wanted)
    finally:
        let_go(op.service, nodes, source)
        if not copied and not has_committed:
            nodes.disregard_commits()
    return copied


def _copy_once(op: OperationContext, wanted: _Copy) -> bool:
    """One attempt to copy; whether it succeeded and the copy was renamed."""
    source = wanted.source
    until_unchanged(op, wanted.make)
    made = wanted.made
    assert made is not None
    ending = _Ending(op, wanted, made)
    try:
        position = _first_to_copy(op, source, wanted.options)
        while not (source.dropped or made.dropped):
            records, more = op.recovery_unit.records(source).scan(position, _BATCH, True, _BATCH_BYTES)
            rows: list[NewRecord] = [record[1:] for record in unexpired(source, records, op.service.now_s())]
            if rows:
                _insert(op, made, rows)
            if not more:
                break
            position = records[-1][0]
            op.check_interrupt()
            op.give_way()
        # Documents that have expired since they were copied must be deleted here, since the copy has no TTL.
        while True:
            until_unchanged(op, ending.attempt)
            expired = ending.expired
            if not expired:
                break
            _delete(op, made, expired)
            if len(expired) >= _BATCH:
                op.check_interrupt()
                op.give_way()
    finally:
        if not ending.published:
            drop_temporary(op, made)
    return ending.published


class _Ending:
    """The end of an attempt. published: whether the copy was renamed. expired: what it has to delete before."""

    def __init__(self, op: OperationContext, wanted: _Copy, made: Collection) -> None:
        self._op = op
        self._wanted = wanted
        self._made = made
        self._writes = _writes_to(wanted.source)
        self._default_ttl_s = wanted.source.default_ttl_s
        self.published = False
        self.expired: list[Record] = []

    def attempt(self) -> None:
        """Renames the copy, unless it has documents that have expired, or the source has changed. In an undivided
        block. QueryPlanKilled (175) if one of them is gone."""
        op, source, made = self._op, self._wanted.source, self._made
        self.expired = []
        if not made.dropped:
            self.expired = due_by_policy(op.recovery_unit.records(made), source, op.service.now_s())
        if self.expired:
            return
        nodes = op.service.engine.shared_nodes
        if source.dropped or (made.dropped and nodes is None):
            raise _gone(source)
        if nodes is not None and (made.dropped or not is_held(nodes, source)):
            return  # this server was taken for dead
        if _writes_to(source) == self._writes and source.default_ttl_s == self._default_ttl_s:
            _publish(op, self._wanted, made)
            self.published = True


def _insert(op: OperationContext, made: Collection, rows: list[NewRecord]) -> None:
    while True:
        conflict: WriteConflict | None = None
        try:
            insert_copies(op, made, rows)
        except CatalogChanged as raised:
            conflict = raised
        if conflict is None:
            return
        await_transaction(op, conflict)


def _delete(op: OperationContext, made: Collection, expired: list[Record]) -> None:
    """Deletes documents of the copy; those that another server has kept from that are found again."""
    try:
        unit = op.recovery_unit.write(made)
        with unit:
            unit.delete(expired)
            unit.commit()
    except CatalogChanged as conflict:
        await_transaction(op, conflict)


def _writes_to(source: Collection) -> int:
    """A number that changes with each write that the copy must repeat, but not with purges of expired documents."""
    return source.writes if source.date_ttl_indexes else source.writes - source.purges


def _first_to_copy(op: OperationContext, source: Collection, options: CollectionOptions) -> int:
    """The record id after which to begin, so that older documents that do not fit are not copied; 0 for all. The newest
    one is copied whatever its size is, as a capped collection takes it."""
    now_s = op.service.now_s()
    store = op.recovery_unit.records(source)
    size = count = 0
    position = 0
    max_documents = options.capped_max_documents
    if store.size_bytes() <= options.capped_size_bytes and (not max_documents or store.count() <= max_documents):
        return 0
    position = MAX_RECORD_ID
    while not source.dropped:
        records, more = store.scan(position, _BATCH, False, _BATCH_BYTES)
        for record in unexpired(source, records, now_s):
            size += len(record[1])
            count += 1
            if count > 1 and (size > options.capped_size_bytes or (max_documents and count > max_documents)):
                return record[0]
        if not more:
            break
        position = records[-1][0]
        op.check_interrupt()
        op.give_way()
    return 0


def _publish(op: OperationContext, wanted: _Copy, made: Collection) -> None:
    """Renames the copy to its final name. QueryPlanKilled (175) if what it replaces has another name now."""
    source = wanted.source
    database = source.database
    target = op.catalog.lookup(database, wanted.name)
    if wanted.is_replacement and target is not source:
        raise _gone(source)
    if target is not None and not wanted.is_replacement:
        raise CommandError(ErrorCode.NamespaceExists, f"a collection '{database}.{wanted.name}' already exists")
    if target is not None:
        op.service.cursors.close_where_namespace(target.namespace)
    op.catalog.rename_collection(made, database, wanted.name, target)


def _gone(source: Collection) -> CommandError:
    return CommandError(ErrorCode.QueryPlanKilled, f"collection dropped: {source.namespace}")
