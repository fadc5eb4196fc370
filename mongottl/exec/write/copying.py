"""convertToCapped and cloneCollectionAsCapped: copy existing documents into a capped collection.

The copy is made into a temporary collection, batch by batch, while others read and write. If the source was written to
meanwhile, the copy starts again; during the last attempts, new commands that write to the source wait (see
`ServiceContext.exclusive`). At the end the temporary collection is renamed.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.options import CollectionOptions
from mongottl.document.interrupt import Undivided
from mongottl.document.types import MISSING
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.write.expiry import due_by_policy
from mongottl.exec.write.writes import insert_copies
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
    temporary = f"tmp.{op.service.object_ids.generate(op.now_s)}.convertToCapped"
    # A capped collection has the order of insertion, so it cannot be clustered.
    options = options.with_options({"clusteredIndex": MISSING, "expireAfterSeconds": MISSING, "temp": True})
    for _ in range(_ATTEMPTS):
        if _copy_once(op, source, temporary, name, options):
            return
    namespace = source.namespace
    while namespace in op.service.exclusive:  # two copies of one collection
        op.check_interrupt()
        op.wait(_POLL_S)
    op.service.exclusive.add(namespace)
    try:
        for _ in range(_EXCLUSIVE_ATTEMPTS):
            if _copy_once(op, source, temporary, name, options):
                return
    finally:
        op.service.exclusive.discard(namespace)
    raise CommandError(ErrorCode.WriteConflict, f"{namespace} kept changing; try again")


def _copy_once(op: OperationContext, source: Collection, temporary: str, name: str, options: CollectionOptions) -> bool:
    """One attempt to copy; whether it succeeded and the copy was renamed."""
    with Undivided():
        op.catalog.check_new_name(source.database, temporary)
        made = op.catalog.create_collection(source.database, temporary, options)
    published = False
    try:
        writes, default_ttl_s = _writes_to(source), source.default_ttl_s
        position = _first_to_copy(op, source, options)
        while not (source.dropped or made.dropped):
            records, more = op.recovery_unit.records(source).scan(position, _BATCH, True, _BATCH_BYTES)
            rows: list[NewRecord] = [record[1:] for record in unexpired(source, records, op.service.now_s())]
            if rows:
                insert_copies(op, made, rows)
            if not more:
                break
            position = records[-1][0]
            op.check_interrupt()
            op.give_way()
        # Documents that have expired since they were copied must be deleted here, since the copy has no TTL.
        while True:
            with Undivided():
                expired: list[Record] = []
                if not made.dropped:
                    expired = due_by_policy(op.recovery_unit.records(made), source, op.service.now_s())
                if not expired:
                    unchanged = _writes_to(source) == writes and source.default_ttl_s == default_ttl_s
                    published = _publish(op, source, made, name, unchanged)
            if not expired:
                break
            unit = op.recovery_unit.write(made)
            with unit:
                unit.delete(expired)
                unit.commit()
            if len(expired) >= _BATCH:
                op.check_interrupt()
                op.give_way()
    finally:
        with Undivided():
            if not published and not made.dropped:
                op.catalog.drop_collection(made)
    return published


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


def _publish(op: OperationContext, source: Collection, made: Collection, name: str, unchanged: bool) -> bool:
    """Renames the copy to its final name. False if the source has changed since it was copied (`unchanged`).

    QueryPlanKilled (175) if one of them is gone.
    """
    if source.dropped or made.dropped:
        raise CommandError(ErrorCode.QueryPlanKilled, f"collection dropped: {source.namespace}")
    if not unchanged:
        return False
    database = source.database
    target = op.catalog.lookup(database, name)
    if target is not None and target is not source:
        raise CommandError(ErrorCode.NamespaceExists, f"a collection '{database}.{name}' already exists")
    if target is not None:
        op.service.cursors.close_where_namespace(target.namespace)
    op.catalog.rename_collection(made, database, name, target)
    return True
