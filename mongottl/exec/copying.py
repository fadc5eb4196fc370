"""Copies of whole collections, as `convertToCapped` and `cloneCollectionAsCapped` make them.

A copy is made into a collection of another name, batch by batch, while others read and write. If the original was
written to meanwhile, the copy begins again; the last attempt lets nobody in between. Then it takes its name.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.options import CollectionOptions
from mongottl.document.types import MISSING
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.liveness import living
from mongottl.exec.writes import insert_copies
from mongottl.storage.interface import MAX_RECORD_ID, NewRecord

# Records of one unit of work, and what their documents take together before the last one.
_BATCH: Final = 256
_BATCH_BYTES: Final = 2 << 20
# Copies that are made while others write, before one that is made alone.
_ATTEMPTS: Final = 3


def copy_as_capped(op: OperationContext, source: Collection, name: str, options: CollectionOptions) -> Steps[None]:
    """Makes a capped collection with the newest documents of another that fit, which keep their age.

    Documents that have expired are not copied, and take no room from others.

    name: of the copy; if the source has it, the copy takes its place. Indexes other than `_id`'s are not copied.
    """
    database = source.database
    temporary = f"tmp.{op.service.object_ids.generate(op.now_s)}.convertToCapped"
    op.catalog.check_new_name(database, temporary)
    # What a capped collection is ordered by is the order of insertion.
    options = options.with_options({"clusteredIndex": MISSING, "expireAfterSeconds": MISSING, "temp": True})
    for attempt in range(_ATTEMPTS + 1):
        made = op.catalog.create_collection(database, temporary, options)
        published = False
        try:
            writes, default_ttl_s = source.writes, source.default_ttl_s
            position = _first_to_copy(op, source, options)
            while not source.dropped:
                records, more = op.recovery_unit.records(source).scan(position, _BATCH, True, _BATCH_BYTES)
                rows: list[NewRecord] = [record[1:] for record in living(source, records, op.service.now_s())]
                if rows:
                    insert_copies(op, made, rows)
                if not more:
                    break
                position = records[-1][0]
                if attempt < _ATTEMPTS:
                    op.check_interrupt()
                    yield None
            unchanged = source.writes == writes and source.default_ttl_s == default_ttl_s
            published = _publish(op, source, made, name, unchanged)
        finally:
            if not published and not made.dropped:
                op.catalog.drop_collection(made)
                op.service.note_write()
        if published:
            return
    raise CommandError(ErrorCode.WriteConflict, f"{source.namespace} kept changing; try again")


def _first_to_copy(op: OperationContext, source: Collection, options: CollectionOptions) -> int:
    """A record that all those that fit and live now come behind: the older ones would have to go again at once."""
    now_s = op.service.now_s()
    store = op.recovery_unit.records(source)
    size = count = 0
    position = 0
    most_documents = options.capped_max_documents
    if store.size_bytes() <= options.capped_size_bytes and (not most_documents or store.count() <= most_documents):
        return 0
    position = MAX_RECORD_ID
    while True:
        records, more = store.scan(position, _BATCH, False, _BATCH_BYTES)
        for record in living(source, records, now_s):
            size += len(record[1])
            count += 1
            if size > options.capped_size_bytes or (most_documents and count > most_documents):
                return record[0]
        if not more:
            return 0
        position = records[-1][0]


def _publish(op: OperationContext, source: Collection, made: Collection, name: str, unchanged: bool) -> bool:
    """Gives the copy its name. False if the source, or what lives in it, has changed since it was copied.

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
    op.service.note_write()
    return True
