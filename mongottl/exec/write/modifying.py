"""Running updates and deletes: which records, in which batches, and what is reported.

A multi-document update is not atomic: each batch is a unit of work, and other operations run between two batches. A
record is updated once, even if the update moves it ahead of the scan (the Halloween problem): see
`PlanStage.set_each_once`.

    stage.next_batch ──► Selection.current ──► a unit of work          others may run
         └──────────── one step, no other operation ─────────────┘  ──────── yield ────────► the next batch

Each record is read, tested against the filter and checked for expiry in the same step in which it is written. Others
run in the middle of that step only while an evaluation takes long (`running.stack`): then the records are checked
again (`_check_after_leaving`). Plans that buffer records (sorts, merges, text searches by score) return older
versions: `Selection.current` reads and tests their records again. So does the code that retries after a WriteConflict,
which may first have to wait for a transaction (`await_transaction`): it does both in an undivided block, since over a
storage engine that waits others could otherwise change the record between them again and again.
"""

from collections.abc import Callable
from typing import TypeVar

from mongottl.catalog.collection import Collection
from mongottl.document.annotated import copy_metadata, plain
from mongottl.document.compare import compare_values
from mongottl.document.interrupt import Undivided, begin_evaluation, end_evaluation
from mongottl.document.types import MISSING, Value
from mongottl.document.validate import validate_document
from mongottl.document.walk import fields, find_field_at, get_value
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.planner import QueryPlan, make_plan, plan_query
from mongottl.exec.stages.stage import PlanStage, check_alive
from mongottl.exec.unit.write_unit import living_now
from mongottl.exec.write.keys_ahead import MOST_OVERTAKEN, KeysAhead
from mongottl.exec.write.waiting import MOST_TOGETHER, await_transaction
from mongottl.exec.write.writes import (
    check_new_id,
    check_size,
    delete_batch,
    insert_document,
    update_record,
    update_records,
    with_new_id,
)
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchDetails, MatchExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression
from mongottl.query.match.tree import AndExpression
from mongottl.query.sort import SortPattern
from mongottl.query.update import UpdateDriver, new_document_for_upsert
from mongottl.storage.errors import CatalogChanged, ClaimedByTransaction, DamagedRecord, WriteConflict
from mongottl.storage.stores import NO_BYTE_LIMIT, Record

T = TypeVar("T")

_MAX_CONFLICTS = 100


class UpdateResult:
    """matched and modified as `n` and `nModified`; upserted_id: `_id` of an inserted document, or MISSING.

    before, after: the document of a single update, or None.
    """

    def __init__(self) -> None:
        self.matched = 0
        self.modified = 0
        self.upserted_id: Value = MISSING
        self.before: bytes | None = None
        self.after: bytes | None = None

    def carry(self, document: bytes) -> None:
        """Copies the metadata of the document that was found to `before` and `after`."""
        if self.before is not None:
            self.before = copy_metadata(document, self.before)
        if self.after is not None:
            self.after = copy_metadata(document, self.after)


class Selection:
    """The records that a write selects: filter, sort, hint.

    natural: 1 or -1 for a sort by `$natural`, else 0. metadata: keywords of `$meta` values to attach to the documents,
    besides those of the sort.
    """

    def __init__(
        self,
        collection: Collection | None,
        match: MatchExpression,
        sort: SortPattern | None,
        hint: Value,
        natural: int = 0,
        metadata: set[str] | None = None,
    ) -> None:
        self.collection = collection
        self.match = match
        self.sort = sort
        self.hint = hint
        self.natural = natural
        self.metadata: set[str] = set() if metadata is None else metadata
        if sort is not None:
            self.metadata = self.metadata.union(sort.metadata)

    def open(self, op: OperationContext, wanted: int = 0) -> PlanStage:
        """Plans and opens the selection. wanted: how many records are needed, 0 for all; sets the first batch size."""
        stage = make_plan(op, self.collection, lambda: self._plan(op, wanted)).open()
        op.note_plan(stage)
        return stage

    def _plan(self, op: OperationContext, wanted: int) -> QueryPlan:
        if self.sort is not None and op.service.dialect.sorts_need_index:
            op.service.dialect.check_sort(self.collection, self.sort, self.match)
        return plan_query(
            op,
            self.collection,
            self.match,
            sort=self.sort,
            natural=self.natural,
            hint=self.hint,
            wanted=wanted,
            metadata=self.metadata,
        )

    def check_shard_key(self, op: OperationContext, many: bool) -> None:
        """`Dialect.check_write_target` for a collection that has a shard key."""
        collection = self.collection
        if collection is not None and collection.shard_key is not None:
            op.service.dialect.check_write_target(collection.shard_key.path.parts, self.match, many)

    def current(self, op: OperationContext, stage: PlanStage, batch: list[Record]) -> list[Record]:
        """The records of the latest batch of `stage` as they are stored now, if they are not expired and still match.

        Each document keeps the metadata that the plan has attached.
        """
        collection = self.collection
        if not batch or collection is None:
            return batch
        if op.was_left:
            check_alive(collection)
        if stage.gives_current_records():
            return living_now(op.service, collection, batch)
        matches = self.match.matches
        records: list[Record] = []
        given = {record[0]: record[1] for record in batch}
        # No byte limit: about as many bytes as in `batch`, which is in memory already.
        stored, _ = op.recovery_unit.known_records(collection).find_records(list(given), NO_BYTE_LIMIT)
        for record in living_now(op.service, collection, stored):
            if matches(record[1]):
                records.append((record[0], copy_metadata(given[record[0]], record[1]), record[2], record[3]))
        if op.was_left:
            check_alive(collection)
            return living_now(op.service, collection, records)
        return records


def _check_after_leaving(op: OperationContext, collection: Collection, records: list[Record]) -> None:
    """If others may have run since these records were read: QueryPlanKilled (175) if the collection has been dropped,
    WriteConflict if one of them has expired. Writing them finds out whether they have changed.
    """
    if op.was_left:
        check_alive(collection)
        if len(living_now(op.service, collection, records)) < len(records):
            raise WriteConflict("the document has expired")


def first_record(op: OperationContext, selection: Selection) -> Record | None:
    """The first record of a selection, as it is now."""
    if selection.collection is None:
        return None
    stage = selection.open(op, wanted=1)
    while (batch := stage.next_batch(op)) is not None:
        for i in range(len(batch)):
            current = selection.current(op, stage, batch[i : i + 1])
            if current:
                return current[0]
        op.check_interrupt()
        op.give_way()
    return None


def _plain_record(record: Record) -> Record:
    """The record without metadata, as it is stored."""
    return record[0], plain(record[1]), record[2], record[3]


def update_one(op: OperationContext, selection: Selection, driver: UpdateDriver) -> UpdateResult:
    """Updates the first record of the selection, if there is one."""
    selection.check_shard_key(op, many=False)
    result = UpdateResult()
    overtaken = 0
    while overtaken < _MAX_CONFLICTS:
        record = first_record(op, selection)
        if record is None:
            return result
        assert selection.collection is not None
        found = record[1]
        if selection.metadata:
            record = _plain_record(record)
        conflict: WriteConflict | None = None
        try:
            if overtaken == 0:
                apply_update(op, selection.collection, selection.match, record, driver, result)
            elif not _update_at_once(op, selection.collection, selection.match, record, driver, result, overtaken):
                overtaken += 1
                continue  # it does not match any more
        except WriteConflict as raised:
            conflict = raised
        if conflict is not None:
            overtaken = 0 if await_transaction(op, conflict) else overtaken + 1
            continue
        if selection.metadata:
            result.carry(found)
        return result
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


def apply_update(
    op: OperationContext,
    collection: Collection,
    match: MatchExpression | None,
    record: Record,
    driver: UpdateDriver,
    result: UpdateResult,
    overtaken: int = 0,
) -> None:
    """Updates one record and counts it. An update that changes nothing still restarts the document's lifetime.

    record: read in this step, for example by `Selection.current`. match: may be None if the driver needs no positional
    details. overtaken: how often others have changed it before this update could write it. WriteConflict if the record
    has changed since it was read.
    """
    document, modified = updated_document(match, record, driver)
    is_long = max(len(document), len(record[1])) >= collection.ahead_bytes
    if is_long and overtaken < MOST_OVERTAKEN:
        with KeysAhead() as ahead:
            ahead.make_for_update(collection, record[1], document)
            _store_update(op, collection, record, document, modified, driver, result)
    else:
        _store_update(op, collection, record, document, modified, driver, result)


def _store_update(
    op: OperationContext,
    collection: Collection,
    record: Record,
    document: bytes,
    modified: bool,
    driver: UpdateDriver,
    result: UpdateResult,
) -> None:
    if op.was_left:
        _check_after_leaving(op, collection, [record])
    if modified or (op.service.config.refresh_on_noop and record[2] != op.service.now_s()):
        update_record(op, collection, record, document, driver=driver)
    result.before = record[1]
    result.after = document
    _note_matched(op, result, 1)
    if modified:
        result.modified += 1
        op.service.metrics.documents["updated"] += 1


def _note_matched(op: OperationContext, result: UpdateResult, matched: int) -> None:
    result.matched += matched
    written = op.profile.written
    if written is not None:
        written.matched += matched


def updated_document(match: MatchExpression | None, record: Record, driver: UpdateDriver) -> tuple[bytes, bool]:
    details: MatchDetails | None = None
    begun = begin_evaluation()
    try:
        if match is not None and driver.needs_positional:
            details = MatchDetails()
            match.matches_positional(record[1], details)
        outcome = driver.apply(record[1], details, False)
    except (IndexError, TypeError, ValueError, SystemError):  # the last one of compiled code, for a negative length
        _check_valid(record)
        raise
    finally:
        if begun:
            end_evaluation()
    return outcome.document, outcome.modified


def _check_valid(record: Record) -> None:
    """DamagedRecord for a document that is no valid BSON, as the disk may have changed one that has no checksum."""
    try:
        validate_document(record[1])
    except CommandError as error:
        raise DamagedRecord("its collection", record[0], error.message) from None


def update_many(op: OperationContext, selection: Selection, driver: UpdateDriver) -> UpdateResult:
    """Updates every record of the selection, a batch at a time."""
    result = UpdateResult()
    collection = selection.collection
    if collection is None:
        return result
    selection.check_shard_key(op, many=True)
    stage = selection.open(op)
    stage.set_each_once()
    while (batch := stage.next_batch(op)) is not None:
        records = selection.current(op, stage, batch)
        if selection.metadata:
            records = [_plain_record(record) for record in records]
        if records:
            with KeysAhead() as ahead:
                _update_batch(op, collection, selection.match, records, driver, result, ahead)
        op.check_interrupt()
        op.give_way()
        if op.cost.gate is not None:
            op.cost.gate.go_on()
    return result


def _update_batch(
    op: OperationContext,
    collection: Collection,
    match: MatchExpression,
    records: list[Record],
    driver: UpdateDriver,
    result: UpdateResult,
    ahead: KeysAhead,
) -> None:
    """Updates a batch in one unit of work; if others have changed some of it, as it is then; if that fails, record by
    record up to the one that fails. With a validator that takes long, record by record from the beginning."""
    slow = collection.validator is not None and collection.validator.is_long
    if not slow:
        try:
            if _update_together(op, collection, match, records, driver, result, ahead):
                return
        except ClaimedByTransaction:
            pass  # those before the claimed record need not wait
        except WriteConflict as conflict:

            def update() -> bool:
                latest = _reread_all(op, collection, match, records)
                return not latest or _update_together(op, collection, match, latest, driver, result, None)

            if _together_again(op, conflict, update):
                return
    for record in records:
        if slow:
            op.give_way()
        _apply_to_latest(op, collection, match, record, driver, result)


def _together_again(op: OperationContext, conflict: WriteConflict, write: Callable[[], T]) -> T | None:
    """What `write` returns, which writes a batch as it is now, after a conflict. None if the records are to be written
    one by one.

    After a conflict with other writes nothing else runs here meanwhile, once. While other servers change the catalog it
    is called again: the engine then holds them off.
    """
    for _ in range(MOST_TOGETHER):
        overtaken = isinstance(conflict, CatalogChanged)
        if overtaken:
            await_transaction(op, conflict)
        try:
            if overtaken:
                return write()
            with Undivided():
                return write()
        except CatalogChanged as changed:
            conflict = changed
        except WriteConflict as raised:
            if not overtaken:
                break
            conflict = raised
    return None


def _update_together(
    op: OperationContext,
    collection: Collection,
    match: MatchExpression,
    records: list[Record],
    driver: UpdateDriver,
    result: UpdateResult,
    ahead: KeysAhead | None,
) -> bool:
    """Updates a batch in one unit of work; False if that fails for one of them. WriteConflict."""
    try:
        updated = [updated_document(match, record, driver) for record in records]
    except CommandError as error:
        if is_interruption(error):
            raise
        return False
    return store_together(op, collection, records, updated, driver, result, ahead)


def store_together(
    op: OperationContext,
    collection: Collection,
    records: list[Record],
    updated: list[tuple[bytes, bool]],
    driver: UpdateDriver,
    result: UpdateResult,
    ahead: KeysAhead | None,
    positions: list[int] | None = None,
) -> bool:
    """Stores updated documents in one unit of work, and counts them; False if that fails for one of them.

    records: as they were read. updated: of each the document, and whether it is another one. driver: one that has made
    them, for the oplog. ahead: makes the keys of long documents, if given. positions: those of the statements of a
    batch that update one record each. WriteConflict.
    """
    refresh = op.service.config.refresh_on_noop
    changes: list[tuple[Record, bytes]] = []
    written: list[int] = []
    modified = 0
    try:
        if ahead is not None and _some_are_long(collection, records, updated):
            for record, (document, _) in zip(records, updated, strict=True):
                ahead.make_for_update(collection, record[1], document)
        unit = op.recovery_unit.write(collection)
        _check_after_leaving(op, collection, records)
        for place, (document, changed) in enumerate(updated):
            record = records[place]
            if changed or (refresh and record[2] != unit.now_s):
                changes.append((record, document))
                if positions is not None:
                    written.append(positions[place])
            if changed:
                modified += 1
        if unit.retryable_write is not None and positions is not None:
            unit.retryable_write.begin_together(written)
        update_records(op, unit, changes, driver)
    except CommandError as error:
        if is_interruption(error):
            raise
        return False
    _note_matched(op, result, len(records))
    result.modified += modified
    op.service.metrics.documents["updated"] += modified
    return True


def _some_are_long(collection: Collection, records: list[Record], updated: list[tuple[bytes, bool]]) -> bool:
    for record, (document, _) in zip(records, updated, strict=True):
        if max(len(record[1]), len(document)) >= collection.ahead_bytes:
            return True
    return False


def _apply_to_latest(
    op: OperationContext,
    collection: Collection,
    match: MatchExpression,
    record: Record,
    driver: UpdateDriver,
    result: UpdateResult,
) -> None:
    """`apply_update` with retries: after a WriteConflict the record is read again; skipped if it no longer matches."""
    overtaken = 0
    latest: Record | None = record
    while latest is not None and overtaken < _MAX_CONFLICTS:
        try:
            if overtaken == 0:
                apply_update(op, collection, match, latest, driver, result)
            else:
                _update_at_once(op, collection, match, latest, driver, result, overtaken)
            return
        except WriteConflict as raised:
            conflict = raised
        if await_transaction(op, conflict):
            overtaken = 0
            latest = _reread(op, collection, match, latest)
        else:
            overtaken += 1
    if latest is None:
        return
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


def _update_at_once(
    op: OperationContext,
    collection: Collection,
    match: MatchExpression,
    record: Record,
    driver: UpdateDriver,
    result: UpdateResult,
    overtaken: int,
) -> bool:
    """`apply_update` of a record as it is now, which nobody changes in between; False if it does not match any more."""
    with Undivided():
        current = _reread(op, collection, match, record)
        if current is None:
            return False
        apply_update(op, collection, match, current, driver, result, overtaken)
        return True


def _reread(op: OperationContext, collection: Collection, match: MatchExpression, record: Record) -> Record | None:
    """The record as it is stored now, or None if it was deleted, is expired or no longer matches.

    QueryPlanKilled (175) if the collection was dropped meanwhile.
    """
    check_alive(collection)
    current = op.recovery_unit.records(collection).find_record(record[0])
    if current is None or not match.matches(current[1]) or not living_now(op.service, collection, [current]):
        return None
    _check_after_leaving(op, collection, [])
    return current


def _reread_all(
    op: OperationContext, collection: Collection, match: MatchExpression, records: list[Record]
) -> list[Record]:
    """`_reread` of several records; about as many bytes as they have."""
    check_alive(collection)
    ids = [record[0] for record in records]
    stored, _ = op.recovery_unit.records(collection).find_records(ids, NO_BYTE_LIMIT)
    found = [record for record in living_now(op.service, collection, stored) if match.matches(record[1])]
    _check_after_leaving(op, collection, [])
    return found


def upsert(
    op: OperationContext, collection: Collection, driver: UpdateDriver, match: MatchExpression, context: ParseContext
) -> UpdateResult:
    """Inserts the new document of an update with `upsert: true` that matched nothing."""
    document = document_of_upsert(op, collection, driver, match, context)
    _check_after_leaving(op, collection, [])
    insert_document(op, collection, document)
    op.service.metrics.documents["inserted"] += 1
    return result_of_upsert(document)


def document_of_upsert(
    op: OperationContext, collection: Collection, driver: UpdateDriver, match: MatchExpression, context: ParseContext
) -> bytes:
    """The new document of an update with `upsert: true`. Others may run meanwhile if it takes long."""
    begun = begin_evaluation()
    try:
        document = new_document_for_upsert(driver, match, context)
    finally:
        if begun:
            end_evaluation()
    type_code, pos = find_field_at(document, 0, b"_id")
    if type_code == 0:
        document = with_new_id(op, document)
    else:
        check_new_id(op, document, int(type_code), int(pos))
    check_size(op, collection, document)
    return document


def result_of_upsert(document: bytes) -> UpdateResult:
    """document: the one that was inserted."""
    result = UpdateResult()
    result.matched = 1
    result.upserted_id = get_value(document, "_id")
    result.after = document
    return result


def is_key_of_filter(error: DuplicateKeyError, match: MatchExpression) -> bool:
    """Whether the unique key that another document has already is exactly what the filter of an upsert asks for.

    The filter must consist of equalities alone, on the fields of the index and no others, with the values of the key.
    Then the other document matches the filter, and an upsert that lost to its insert can update it.

    Source: MongoDB's manual, db.collection.updateOne, "Upsert with Duplicate Values".
    """
    key = error.key_value
    if key is None:
        return False
    pairs: list[tuple[str, Value]] = fields(key)
    children = match.children if isinstance(match, AndExpression) else [match]
    if len(children) != len(pairs):
        return False
    equal: dict[str, Value] = {}
    for child in children:
        if not isinstance(child, ComparisonExpression) or child.operator != EQ or child.path.dotted in equal:
            return False
        equal[child.path.dotted] = child.value
    return all(name in equal and compare_values(equal[name], value) == 0 for name, value in pairs)


def delete_one(op: OperationContext, selection: Selection) -> bytes | None:
    """Deletes the first record of the selection; its document, or None if there was none."""
    selection.check_shard_key(op, many=False)
    overtaken = 0
    while overtaken < _MAX_CONFLICTS:
        record = first_record(op, selection)
        if record is None:
            return None
        assert selection.collection is not None
        try:
            if overtaken == 0:
                plain_record = _plain_record(record) if selection.metadata else record
                delete_batch(op, selection.collection, [plain_record])
                document = record[1]
            else:
                deleted = _delete_at_once(op, selection.collection, selection.match, record, overtaken)
                if deleted is None:
                    overtaken += 1
                    continue
                document = copy_metadata(record[1], deleted[1]) if selection.metadata else deleted[1]
            op.service.metrics.documents["deleted"] += 1
            return document
        except WriteConflict as raised:
            conflict = raised
        overtaken = 0 if await_transaction(op, conflict) else overtaken + 1
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


def delete_many(op: OperationContext, selection: Selection) -> int:
    """Deletes every record of the selection, a batch at a time; how many."""
    collection = selection.collection
    if collection is None:
        return 0
    selection.check_shard_key(op, many=True)
    deleted = 0
    stage = selection.open(op)
    stage.set_each_once()
    while (batch := stage.next_batch(op)) is not None:
        records = selection.current(op, stage, batch)
        if records:
            gone = _delete_all(op, collection, selection.match, records)
            deleted += gone
            op.service.metrics.documents["deleted"] += gone
        op.check_interrupt()
        op.give_way()
        if op.cost.gate is not None:
            op.cost.gate.go_on()
    return deleted


def _delete_all(op: OperationContext, collection: Collection, match: MatchExpression, batch: list[Record]) -> int:
    """Deletes a batch in one unit of work; after a WriteConflict record by record, those that still match. How many."""
    try:
        delete_batch(op, collection, batch)
        return len(batch)
    except ClaimedByTransaction:
        pass  # those before the claimed record need not wait
    except WriteConflict as conflict:

        def delete() -> int:
            latest = _reread_all(op, collection, match, batch)
            if latest:
                delete_batch(op, collection, latest, MOST_OVERTAKEN)
            return len(latest)

        together = _together_again(op, conflict, delete)
        if together is not None:
            return together
    deleted = 0
    for record in batch:
        deleted += _delete_latest(op, collection, match, record)
    return deleted


def _delete_latest(op: OperationContext, collection: Collection, match: MatchExpression, record: Record) -> int:
    overtaken = 0
    while overtaken < _MAX_CONFLICTS:
        try:
            if overtaken:
                return 0 if _delete_at_once(op, collection, match, record, overtaken) is None else 1
            current = _reread(op, collection, match, record)
            if current is None:
                return 0
            delete_batch(op, collection, [current])
            return 1
        except WriteConflict as raised:
            conflict = raised
        overtaken = 0 if await_transaction(op, conflict) else overtaken + 1
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


def _delete_at_once(
    op: OperationContext, collection: Collection, match: MatchExpression, record: Record, overtaken: int
) -> Record | None:
    """Deletes a record as it is now, which nobody changes in between, and returns it; None if it does not match any
    more."""
    with Undivided():
        current = _reread(op, collection, match, record)
        if current is not None:
            delete_batch(op, collection, [current], overtaken)
        return current
