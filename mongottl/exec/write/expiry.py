"""Deleting expired documents, and refilling the timing wheel.

Many documents are deleted in the order of their record ids where the engine keeps them on pages of a file (`on_pages`)
and their expiry has another order, as that of sessions, which are refreshed at random. Otherwise each of them would
change pages of its own: of the records, and of the index on `_id`.

    expiry index     (9:00, 71) (9:00, 3008) (9:01, 15) …     the first batch: its ids are scattered
    backlog          15, 71, 98, 103, …, 3008                 up to 65,536 due ids, sorted; batches are taken from it

`ttl.policy` decides from the `_ts` and `ttl` stored with each record whether it is expired; the wheel only has the
times at which to look at a collection. MongoDB's own TTL indexes on date fields use the same wheel and purge; their
documents stay visible until they are purged, as in MongoDB.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex, record_store_ident
from mongottl.catalog.key_ranges import ascending_values
from mongottl.clock import VirtualClock
from mongottl.document.compare import BRACKET_DATE, BRACKET_NUMBER
from mongottl.document.interrupt import Undivided
from mongottl.document.keystring import bracket_range
from mongottl.document.types import INT64_MIN, Date, Int64, Value
from mongottl.exec.operation.transaction_unit import abort_expired
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.due_dates import date_due_ms
from mongottl.exec.service.leaving import end_leaving, is_left_to_another
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.service.stored_clock import change_clock
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.unit.write_unit import CollectionHeld, WriteUnit
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.exec.write.taking import NOT_TAKEN, Taking
from mongottl.storage.errors import (
    CatalogChanged,
    ClaimedByTransaction,
    DamagedRecord,
    EngineUnavailable,
    WriteConflict,
)
from mongottl.storage.interface import Isolation
from mongottl.storage.stores import (
    FIRST_DUE,
    NO_BYTE_LIMIT,
    STORES_AT_ONCE,
    DueRecords,
    ExpiryIndex,
    FetchedEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)
from mongottl.ttl.policy import (
    NO_CUTOFF_S,
    NO_TTL,
    default_cutoff_s,
    expires_at_s,
    is_expired,
    own_cutoff_s,
)

PURGE_BATCH: Final = 256
# Bytes of documents in one batch; the last document may exceed it. Deleting them takes a few milliseconds.
PURGE_BYTES: Final = 2 << 20
# A batch is scattered if the ids in it are this far from each other on average: farther than those of one page.
SCATTERED_BY: Final = 16
# Due ids that are sorted together, 2.5 MB; of a million, several are then on each page. Read in parts of about 1 ms.
BACKLOG: Final = 65_536
_BACKLOG_PART: Final = 2048
REFILL_BATCH: Final = 1000
REFILL_BYTES: Final = 4 << 20
# Seconds from one look at all collections to the next, where servers may have ended that have written to them.
LOOK_EVERY_S: Final = 2.0
_MS_PER_S: Final = 1000
_PURGE_POLL_S: Final = 0.001
# From this limit on, documents that are due after claimed ones are searched without a limit on bytes.
_MAX_CLAIMED_BYTES: Final = 512 << 20


def count_living(records: RecordStore, collection: Collection, now_s: int) -> int:
    """How many of the collection's records are not expired; the time it takes grows with those that are."""
    return records.count_without_due(_cutoffs(collection.default_ttl_s, now_s))


def count_expired(service: ServiceContext, collections: list[Collection], give_way: Callable[[], None]) -> int:
    """How many records of collections are expired and not purged yet. give_way: called between two parts."""
    count = 0
    expiring = [collection for collection in collections if collection.default_ttl_s != NO_TTL]
    at_once = STORES_AT_ONCE if service.engine.suspends else 1  # where each costs a round trip
    for start in range(0, len(expiring), at_once):
        give_way()
        now_s = service.now_s()
        stores = [
            (record_store_ident(collection.number), _cutoffs(collection.default_ttl_s, now_s))
            for collection in expiring[start : start + at_once]
            if not collection.dropped
        ]
        count += sum(service.engine.count_due(stores))
    return count


def _cutoffs(default_ttl_s: int, now_s: int) -> dict[ExpiryIndex, int]:
    """The seconds up to which records are expired, by the expiry indexes that have such records."""
    cutoffs: dict[ExpiryIndex, int] = {}
    if default_ttl_s == NO_TTL:
        return cutoffs
    cutoff_s = default_cutoff_s(default_ttl_s, now_s)
    if cutoff_s != NO_CUTOFF_S:
        cutoffs[ExpiryIndex.BY_DEFAULT] = int(cutoff_s)
    own_s = own_cutoff_s(default_ttl_s, now_s)
    if own_s != NO_CUTOFF_S:
        cutoffs[ExpiryIndex.BY_OWN] = int(own_s)
    return cutoffs


def reap_due(service: ServiceContext, everywhere: bool = False) -> int:
    """Deletes all documents that are due now; how many. Does nothing while TTL deletion is paused. everywhere: whether
    all collections are looked at, since other servers may have written what the wheel of this one does not have.

    Waits for a purge that is already running, so that afterwards nothing that was due at the start is left. Ends
    early if a saved state is about to be restored.
    """
    while service.expiry.purging:
        service.stacks.wait(Wait(_PURGE_POLL_S))
    if not service.expiry.is_enabled:
        return 0
    deleted = 0
    service.expiry.purging = True
    purged_all = True
    numbers: list[int] = []
    try:
        for number in list(service.expiry.unarmed):
            _arm_all(service, number)
            if _must_end(service):
                return deleted
            service.expiry.unarmed.discard(number)
        if everywhere:
            deleted += _reap_everywhere(service)
        while service.expiry.is_enabled and not _must_end(service):
            now_s = service.clock.now_ms() // _MS_PER_S
            due = service.expiry.wheel.advance_to(now_s)
            if not due:
                break
            service.metrics.ttl_passes += 1
            numbers = list(dict.fromkeys(key for _, key in due))
            purged_all = False
            for number in numbers:
                deleted += _purge_collection(service, number)
                if service.clock.now_ms() // _MS_PER_S < now_s:
                    # The clock was set back meanwhile: what the wheel returned as due may not be due any more.
                    rearm_collection(service, number)
            if _must_end(service):
                break
            purged_all = True
    finally:
        service.expiry.purging = False
        if not purged_all:
            # The wheel no longer contains what it has returned.
            service.expiry.unarmed.update(numbers)
    return deleted


def reap_for_all(service: ServiceContext) -> int:
    """`reap_due` of a server that may be one of several with the same store: one of them looks now and then for what
    was written by those that have ended, and is in no wheel."""
    nodes = service.engine.nodes
    if nodes is None or not nodes.has_duties:
        return reap_due(service)
    now_s = service.clock.monotonic_s()
    looks = now_s >= service.expiry.look_at_s
    if looks:
        service.expiry.look_at_s = now_s + LOOK_EVERY_S
    return reap_due(service, everywhere=looks)


def _reap_everywhere(service: ServiceContext) -> int:
    deleted = 0
    expiring = [
        collection
        for collection in service.catalog.all_collections()
        if collection.default_ttl_s != NO_TTL or collection.date_ttl_indexes
    ]
    for start in range(0, len(expiring), STORES_AT_ONCE):
        if not service.expiry.is_enabled or _must_end(service):
            break
        for number in _numbers_with_due(service, expiring[start : start + STORES_AT_ONCE]):
            if not service.expiry.is_enabled or _must_end(service):
                break
            deleted += _purge_collection(service, number)
            service.stacks.give_way()
        service.stacks.give_way()
    return deleted


def _numbers_with_due(service: ServiceContext, collections: list[Collection]) -> list[int]:
    """The numbers of those of some collections in which documents are due, and maybe of others. They are asked for
    together: where many collections have TTL, most of them have nothing that is due."""
    now_ms = service.clock.now_ms()
    with_numbers = service.dialect.numbers_are_dates
    numbers: list[int] = []
    stores: list[DueRecords] = []
    numbers_of_keys: list[int] = []
    keys: list[tuple[str, bool, KeyRange]] = []
    for collection in collections:
        if collection.dropped:
            continue
        cutoffs = _cutoffs(collection.default_ttl_s, now_ms // _MS_PER_S)
        if cutoffs:
            numbers.append(collection.number)
            stores.append((record_store_ident(collection.number), cutoffs))
        for index in collection.date_ttl_indexes:
            if index.ready and index.has_keys:
                for key_range in _date_ranges(index, now_ms, with_numbers):
                    numbers_of_keys.append(collection.number)
                    keys.append((index.ident, index.has_unique_keys, key_range))
    found = zip(numbers, service.engine.have_due(stores) if stores else [], strict=True)
    due = {number for number, is_due in found if is_due}
    for number, is_due in zip(numbers_of_keys, service.engine.have_keys(keys) if keys else [], strict=True):
        if is_due:
            due.add(number)
    return [collection.number for collection in collections if collection.number in due]


def _date_ranges(index: CollectionIndex, now_ms: int, with_numbers: bool) -> list[KeyRange]:
    """The keys of a date-field TTL index with which documents are due. with_numbers: see `date_due_ms`."""
    expire_after_s = index.descriptor.expire_after_s
    assert expire_after_s is not None
    cutoff_ms = now_ms - expire_after_s * _MS_PER_S
    descending = index.descriptor.descending[0]
    ranges = [ascending_values(Date(INT64_MIN), Date(cutoff_ms), descending)]
    if with_numbers:
        ranges.append(ascending_values(float(INT64_MIN), Int64(cutoff_ms), descending))
    return ranges


def move_clock(service: ServiceContext, change: Callable[[VirtualClock], object]) -> int:
    """Moves the clock, of all servers of the store, and keeps where it stands. Aborts the transactions that have
    outlived their time, purges everything that is due, and wakes what waits for a time; how many documents were purged
    meanwhile, by whomever of this server. ValueError of the change."""
    change_clock(service, change)
    nodes = service.engine.shared_nodes
    before = service.metrics.ttl_deleted_documents
    service.expiry.moves += 1
    try:
        if nodes is not None:
            nodes.settle()  # nobody sees any more what is deleted now
        abort_expired(service)
        while service.expiry.arming and service.stacks.present is not None:
            service.stacks.wait(Wait(_PURGE_POLL_S))  # until the wheel has all that may be due
        if nodes is not None:
            _reap_for_others(service)
        else:
            before = service.metrics.ttl_deleted_documents
            reap_due(service)
            _reap_dates(service)
    finally:
        service.expiry.moves -= 1
        if nodes is not None and not service.expiry.moves:
            end_leaving(nodes)
    service.note_clock_change()
    return service.metrics.ttl_deleted_documents - before


def _reap_for_others(service: ServiceContext) -> None:
    """Purges everything that is due, of all servers, or waits until one has done so that has moved the clock since."""
    while True:
        while is_left_to_another(service):
            service.stacks.wait(Wait(_PURGE_POLL_S))
        try:
            reap_due(service, everywhere=True)
            _reap_dates(service)
        except CatalogChanged:
            continue  # what is deleted is found anew
        if not is_left_to_another(service):
            return


def _reap_dates(service: ServiceContext) -> None:
    """Deletes the documents whose date, of which milliseconds count, has passed since the present second began.

    The wheel returns them at the end of that second, to which a clock that stands still does not come.
    """
    while service.expiry.purging:
        service.stacks.wait(Wait(_PURGE_POLL_S))
    service.expiry.purging = True
    try:
        for collection in service.catalog.all_collections():
            if not service.expiry.is_enabled or _must_end(service):
                break
            if collection.date_ttl_indexes:
                _purge_collection(service, collection.number)
                service.stacks.give_way()
    finally:
        service.expiry.purging = False


def _must_end(service: ServiceContext) -> bool:
    """Whether a saved state is about to be restored, or another server has moved the clock, so that what runs ends at
    its next step.

    A function, since mypy takes an attribute that was False for False until it is assigned here, and mypyc would leave
    out what follows when another task has set it between two steps.
    """
    return service.restoring or is_left_to_another(service)


def _purge_collection(service: ServiceContext, number: int) -> int:
    """Deletes a collection's expired records in bounded batches; not those of one that a server copies, which is looked
    at again when that has ended."""
    try:
        with KeysAhead() as ahead:
            return _purge_batches(service, number, ahead)
    except CollectionHeld:
        return 0


def _purge_batches(service: ServiceContext, number: int, ahead: KeysAhead) -> int:
    recovery_unit = RecoveryUnit(service)
    deleted = 0
    backlog: list[int] = []
    done = 0
    taking = Taking(service, recovery_unit, ahead)
    while True:
        collection = service.catalog.by_number(number)
        if collection is None or collection.held_by or _must_end(service):
            return deleted
        at_once = taking.take(collection)
        if at_once > 0:
            collection.purges += 1
            deleted += at_once
            service.stacks.give_way()
            continue
        if taking.has_locked:
            service.expiry.wheel.arm(number, service.now_s() + 1)  # to look again
            service.hooks.wake_reaper()
        from_backlog = done < len(backlog)
        records: list[Record] = []
        begun = done
        with Undivided():  # what is due when it is read is deleted before others can change that
            if collection.dropped or _must_end(service):  # while an engine has waited here
                return deleted
            if from_backlog:
                try:
                    stored = recovery_unit.records(collection)
                    found, taken = stored.find_records(backlog[done : done + PURGE_BATCH], PURGE_BYTES)
                    done += taken
                    records = _still_due(service, collection, stored, found)
                except DamagedRecord:
                    done = len(backlog)  # the rest is found by its expiry, where damaged records are left out
            else:
                with_numbers = service.dialect.numbers_are_dates
                try:
                    records = _due_records(
                        recovery_unit,
                        collection,
                        service.clock.now_ms(),
                        service.isolation,
                        with_numbers,
                        by_policy=at_once == NOT_TAKEN,
                    )
                except DamagedRecord as error:
                    service.hooks.log_damaged_record(error)
                    return deleted  # nothing else is due here
                if not records:
                    return deleted
            missing = [
                record[1]
                for record in records
                if len(record[1]) >= collection.ahead_bytes and ahead.lacks(collection.writable_indexes, record[1])
            ]
            if records and not missing:
                try:
                    _delete_batch(recovery_unit.write(collection), records)
                except ClaimedByTransaction:
                    return deleted  # its end arms the wheel again
                except WriteConflict as conflict:
                    if service.engine.shared_nodes is None:
                        # No record has changed: the disk was full, and the engine has made room for deletions.
                        _delete_batch(recovery_unit.write(collection), records)
                    elif isinstance(conflict, CatalogChanged):
                        raise
                    else:  # another server has deleted or changed one of them: those that are due are found again
                        done = begun
                        records = []
        if missing:
            done = begun
            for document in missing:
                ahead.make(collection.writable_indexes, document)
        if missing or not records:
            service.stacks.give_way()
            continue
        ahead.forget()
        collection.purges += 1
        deleted += len(records)
        scattered = not from_backlog and _are_scattered(recovery_unit.records(collection), records)
        service.stacks.give_way()
        if scattered and not collection.dropped:
            backlog = _due_ids(service, recovery_unit, collection)
            done = 0


def _are_scattered(stored: RecordStore, records: list[Record]) -> bool:
    """Whether the records of a full batch are far from each other in a store that keeps its records on pages."""
    if not stored.on_pages or len(records) < PURGE_BATCH:
        return False
    ids = [record[0] for record in records]
    return max(ids) - min(ids) > SCATTERED_BY * len(ids)


def _due_ids(service: ServiceContext, unit: RecoveryUnit, collection: Collection) -> list[int]:
    """Ids of records that are due now, ascending, at most about BACKLOG, some more than once. What has changed
    them when they are deleted is for `_still_due` to find."""
    now_ms = service.clock.now_ms()
    now_s = now_ms // _MS_PER_S
    found: list[int] = []
    stored = unit.records(collection)
    default = collection.default_ttl_s
    for by, last_s in (
        (ExpiryIndex.BY_DEFAULT, default_cutoff_s(default, now_s)),
        (ExpiryIndex.BY_OWN, own_cutoff_s(default, now_s)),
    ):
        if last_s == NO_CUTOFF_S:
            continue
        after = FIRST_DUE
        while len(found) < BACKLOG and not collection.dropped and not _must_end(service):
            entries = stored.due_entries(by, after, last_s, _BACKLOG_PART)
            found.extend(sorted([entry[1] for entry in entries]))
            service.stacks.give_way()
            if len(entries) < _BACKLOG_PART:
                break
            after = entries[-1]
    for index in list(collection.date_ttl_indexes):
        expire_after_s = index.descriptor.expire_after_s
        if expire_after_s is None:
            continue
        descending = index.descriptor.descending[0]
        key_range = ascending_values(Date(INT64_MIN), Date(now_ms - expire_after_s * _MS_PER_S), descending)
        position: tuple[bytes, int] | None = None
        while len(found) < BACKLOG and not collection.dropped and not _must_end(service):
            if not index.ready or index not in collection.date_ttl_indexes:
                break
            keys, more = unit.index(index).scan(key_range, position, _BACKLOG_PART, PURGE_BYTES)
            found.extend(sorted([key[1] for key in keys]))
            service.stacks.give_way()
            if not more:
                break
            position = keys[-1]
    found.sort()  # sorted parts are merged, which takes a third of the time
    return found


def _still_due(
    service: ServiceContext, collection: Collection, stored: RecordStore, records: list[Record]
) -> list[Record]:
    """Those of some records that are due and that no open transaction has written, each once. stored: their store."""
    now_ms = service.clock.now_ms()
    with_numbers = service.dialect.numbers_are_dates
    each_once = list({record[0]: record for record in records}.values())
    due = [record for record in each_once if _is_due(collection, record, now_ms, with_numbers)]
    return service.isolation.unclaimed(stored, due)


def _is_due(collection: Collection, record: Record, now_ms: int, with_numbers: bool) -> bool:
    default = collection.default_ttl_s
    if default != NO_TTL and is_expired(record[2], record[3], default, now_ms // _MS_PER_S):
        return True
    for index in collection.date_ttl_indexes:
        if not index.ready or not index.takes(record[1]):
            continue
        due_ms = date_due_ms(index, record[1], with_numbers)
        if due_ms is not None and due_ms <= now_ms:
            return True
    return False


def _delete_batch(unit: WriteUnit, records: list[Record]) -> None:
    """Deletes expired records in a unit of work."""
    with unit:
        unit.delete(records, expired=True)
        unit.commit()


def _due_records(
    unit: RecoveryUnit, collection: Collection, now_ms: int, isolation: Isolation, with_numbers: bool, by_policy: bool
) -> list[Record]:
    """A batch of records that are expired now, by the policy or by a date-field TTL index; empty if there are none.
    by_policy: whether those by the policy are looked for.

    What open transactions have written is left out; their end arms the wheel again. Damaged records are left out, too;
    DamagedRecord if no others are due.
    """
    damaged: DamagedRecord | None = None
    try:
        if by_policy:
            records = due_by_policy(unit.records(collection), collection, now_ms // _MS_PER_S, isolation)
            if records:
                return records
    except DamagedRecord as error:
        damaged = error
    for index in collection.date_ttl_indexes:
        if not index.ready:
            continue
        try:
            records = _due_by_date(unit, collection, index, now_ms, isolation, with_numbers)
            if records:
                return records
        except DamagedRecord as error:
            damaged = error
    if damaged is not None:
        raise damaged
    return []


def due_by_policy(
    stored: RecordStore, collection: Collection, now_s: int, isolation: Isolation | None = None
) -> list[Record]:
    """A batch of records that are expired by the policy; empty if there are none. DamagedRecord if only damaged ones
    are.

    isolation: with the transactions whose records are left out.
    """
    default = collection.default_ttl_s
    if default == NO_TTL:
        return []
    records: list[Record] = []
    damaged: DamagedRecord | None = None
    cutoff_s = default_cutoff_s(default, now_s)
    if cutoff_s != NO_CUTOFF_S:
        try:
            records = _unclaimed_batch(partial(stored.due, ExpiryIndex.BY_DEFAULT, cutoff_s), stored, isolation)
        except DamagedRecord as error:
            damaged = error
    own_s = own_cutoff_s(default, now_s)
    if not records and own_s != NO_CUTOFF_S:
        records = _unclaimed_batch(partial(stored.due, ExpiryIndex.BY_OWN, own_s), stored, isolation)
    if not records and damaged is not None:
        raise damaged
    # The expiry indexes only find candidates; the policy decides.
    return [record for record in records if is_expired(record[2], record[3], default, now_s)]


def _unclaimed_batch(
    first_due: Callable[[int, int], list[Record]], stored: RecordStore, isolation: Isolation | None
) -> list[Record]:
    """A batch of due records that no open transaction has written; empty if there are none.

    first_due: gives the first records within a limit on their number and one on their bytes. The second is raised for
    as long as all of them are claimed, so that the others are found after them.
    """
    claimed = 0 if isolation is None else isolation.count_claimed(stored.ident)
    if isolation is None or claimed == 0:
        return first_due(PURGE_BATCH, PURGE_BYTES)
    max_bytes = PURGE_BYTES
    while True:
        found = first_due(PURGE_BATCH + claimed, max_bytes)
        unclaimed = isolation.unclaimed(stored, found)
        if unclaimed or max_bytes == NO_BYTE_LIMIT:
            return unclaimed[:PURGE_BATCH]
        # An engine may return less than the limit allows; only a read without a limit proves that no others exist.
        max_bytes = 16 * max_bytes if max_bytes < _MAX_CLAIMED_BYTES else NO_BYTE_LIMIT


def _due_by_date(
    unit: RecoveryUnit,
    collection: Collection,
    index: CollectionIndex,
    now_ms: int,
    isolation: Isolation,
    with_numbers: bool,
) -> list[Record]:
    """A batch of records that are due by a date-field TTL index. with_numbers: see `date_due_ms`."""
    expire_after_s = index.descriptor.expire_after_s
    assert expire_after_s is not None
    cutoff_ms = now_ms - expire_after_s * _MS_PER_S
    found = _due_between(unit, collection, index, Date(INT64_MIN), Date(cutoff_ms), isolation)
    if found or not with_numbers:
        return found
    return _due_between(unit, collection, index, float(INT64_MIN), Int64(cutoff_ms), isolation, now_ms)


def _due_between(
    unit: RecoveryUnit,
    collection: Collection,
    index: CollectionIndex,
    first: Value,
    last: Value,
    isolation: Isolation,
    numbers_at_ms: int | None = None,
) -> list[Record]:
    """A batch of records with a key of the index from `first` to `last`, in ascending order, both inclusive. Damaged
    ones are left out; DamagedRecord if there are no others.

    numbers_at_ms: for keys that are numbers, the present time, at which the records must be due; decimals among them do
    not count.
    """
    key_range = ascending_values(first, last, index.descriptor.descending[0])
    found: dict[int, Record] = {}
    stored = unit.records(collection)
    entries = unit.index(index)
    position: tuple[bytes, int] | None = None
    more = True
    damaged: DamagedRecord | None = None
    while more and not found:
        try:
            rows, more = entries.scan_fetch(stored, key_range, position, PURGE_BATCH, PURGE_BYTES)
        except DamagedRecord as error:
            damaged = error
            rows, position, more = _undamaged(entries, stored, key_range, position, PURGE_BATCH)
        for key, rid, document, ts_s, ttl_s in rows:
            position = (key, rid)
            if numbers_at_ms is not None:
                due_ms = date_due_ms(index, document, with_numbers=True)
                if due_ms is None or due_ms > numbers_at_ms:
                    continue
            found[rid] = (rid, document, ts_s, ttl_s)
        if found:
            found = {record[0]: record for record in isolation.unclaimed(stored, list(found.values()))}
    if not found and damaged is not None:
        raise damaged
    return list(found.values())


def _undamaged(
    entries: SortedDataInterface,
    stored: RecordStore,
    key_range: KeyRange,
    after: tuple[bytes, int] | None,
    limit: int,
) -> tuple[list[FetchedEntry], tuple[bytes, int] | None, bool]:
    """As `SortedDataInterface.scan_fetch` without damaged records, each read by itself; with the last entry read."""
    found: list[FetchedEntry] = []
    size = 0
    keys, more = entries.scan(key_range, after, limit, PURGE_BYTES)
    for key, rid in keys:
        after = (key, rid)
        try:
            record = stored.find_record(rid)
        except DamagedRecord:
            continue
        if record is not None:
            found.append((key, rid, record[1], record[2], record[3]))
            size += len(record[1])
        if size >= PURGE_BYTES:
            return found, after, True
    return found, after, more


def refill_wheel(service: ServiceContext) -> None:
    """Arms the wheel with the expiry times of all collections; used at start."""
    for collection in service.catalog.all_collections():
        rearm_collection(service, collection.number)


def rearm_collection(service: ServiceContext, number: int) -> None:
    """Replaces one collection's entries in the wheel: at start, and when its default TTL was changed.

    If storage fails meanwhile, the reaper repeats it before its next purge (`ServiceContext.unarmed`).
    """
    complete = False
    try:
        _arm_all(service, number)
        complete = not _must_end(service)
    except (EngineUnavailable, WriteConflict):
        pass
    finally:
        if not complete:
            service.expiry.unarmed.add(number)
    service.hooks.wake_reaper()


def _arm_all(service: ServiceContext, number: int) -> None:
    """Fills the wheel with one collection's expiry times; not with all if a saved state is about to be restored."""
    service.expiry.arming += 1
    try:
        _arm_collection(service, number)
    finally:
        service.expiry.arming -= 1


def _arm_collection(service: ServiceContext, number: int) -> None:
    service.expiry.wheel.disarm_all(number)
    unit = RecoveryUnit(service)
    after_s = NO_CUTOFF_S
    while (collection := service.catalog.by_number(number)) is not None and collection.default_ttl_s > 0:
        seconds = unit.records(collection).due_seconds(ExpiryIndex.BY_DEFAULT, after_s, REFILL_BATCH)
        for ts_s in seconds:
            service.expiry.wheel.arm(number, expires_at_s(ts_s, NO_TTL, collection.default_ttl_s))
        if len(seconds) < REFILL_BATCH:
            break
        after_s = seconds[-1]
        service.stacks.give_way()
        if _must_end(service):
            return
    after_s = NO_CUTOFF_S
    while (collection := service.catalog.by_number(number)) is not None and collection.default_ttl_s != NO_TTL:
        seconds = unit.records(collection).due_seconds(ExpiryIndex.BY_OWN, after_s, REFILL_BATCH)
        for due_s in seconds:
            service.expiry.wheel.arm(number, due_s)
        if len(seconds) < REFILL_BATCH:
            break
        after_s = seconds[-1]
        service.stacks.give_way()
        if _must_end(service):
            return
    _rearm_dates(service, unit, number)


def _rearm_dates(service: ServiceContext, unit: RecoveryUnit, number: int) -> None:
    """Arms the wheel for the date-field TTL indexes: one pass over each index, in steps."""
    collection = service.catalog.by_number(number)
    if collection is None:
        return
    for index in list(collection.date_ttl_indexes):
        position: tuple[bytes, int] | None = None
        descending = index.descriptor.descending[0]
        bracket_low, bracket_high = bracket_range(BRACKET_DATE, descending)
        if service.dialect.numbers_are_dates:
            # From the one to the other, with what lies between them.
            number_low, number_high = bracket_range(BRACKET_NUMBER, descending)
            bracket_low = min(bracket_low, number_low)
            bracket_high = max(bracket_high, number_high)
        key_range = KeyRange(bracket_low, bracket_high)
        while index.ready and not collection.dropped and index.has_keys and not _must_end(service):
            entries = unit.index(index)
            stored = unit.records(collection)
            try:
                batch, more = entries.scan_fetch(stored, key_range, position, REFILL_BATCH, REFILL_BYTES)
                if batch:
                    position = (batch[-1][0], batch[-1][1])
            except DamagedRecord as error:
                service.hooks.log_damaged_record(error)
                batch, position, more = _undamaged(entries, stored, key_range, position, REFILL_BATCH)
            for _, _, document, _, _ in batch:
                service.expiry.arm_date(collection, index, document)
            if not more:
                break
            service.stacks.give_way()
