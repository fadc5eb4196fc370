"""insert: see `write_batch`."""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.commands.access import needing, write_needs
from mongottl.commands.crud.write_batch import (
    WriteErrors,
    check_batch,
    collection_for_insert,
    collection_for_write,
    ends_command,
    number_statements,
    refused_by_uuid,
    with_retried,
)
from mongottl.commands.crud.write_requests import InsertRequest
from mongottl.commands.registry import Reply, command
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.running.gate import Gate
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.write.taken_keys import Taken, may_be_divided, taken
from mongottl.exec.write.waiting import MOST_TOGETHER, await_transaction
from mongottl.exec.write.writes import insert_batch, insert_document, prepare_document, prepare_documents
from mongottl.security.privileges import Need
from mongottl.storage.errors import CatalogChanged, ClaimedByTransaction, DuplicateKey, WriteConflict

# Documents of one unit of work, and their bytes; the last document may exceed them. Other clients run between two.
INSERT_CHUNK: Final = 500
INSERT_BYTES: Final = 2 << 20


def _insert_needs(op: OperationContext, request: InsertRequest) -> list[Need]:
    return write_needs(op.database, request.collection, ["insert"], request.bypass)


def _inserts_one_record(op: OperationContext, request: InsertRequest) -> bool:
    """Whether an insert is of one document, and so is expected to need no stack. Not in `config` and `local`: see
    `server.waits`."""
    return len(request.documents) == 1 and op.database != "config" and op.database != "local"


@command(
    "insert",
    InsertRequest,
    access=needing(_insert_needs),
    help="Inserts documents.",
    writes=True,
    counter="insert",
    silent=True,
    retryable=True,
    stable=True,
    raw_data=True,
    latency="writes",
    in_transaction=True,
    is_prompt=_inserts_one_record,
)
def insert(op: OperationContext, request: InsertRequest) -> Reply:
    """Inserts documents; those without `_id` get an ObjectId. Duplicate keys are `writeErrors` with code 11000.

    A collection that does not exist is made by the first document that `prepare_document` accepts, as in mongod, so a
    batch whose documents are all refused makes none.
    """
    documents = request.documents
    check_batch(op, len(documents))
    op.write_options = write_options(request.bypass, request.keep_empty_timestamps)
    write = number_statements(op, "insert", len(documents), request.statement_id, request.statement_ids)
    refused = refused_by_uuid(
        op, "insert", request.collection_uuid, request.collection, len(documents), request.ordered
    )
    if refused is not None:
        return refused
    collection = collection_for_insert(op, request.collection)
    if len(documents) == 1 and (write is None or not write.is_retry):
        reply = _insert_one(op, request, collection, write)
        if reply is not None:
            return reply
    op.service.stacks.require()
    return _insert_many(op, request, write)


def _insert_one(
    op: OperationContext, request: InsertRequest, collection: Collection | None, write: RetryableWrite | None
) -> dict[str, Value] | None:
    """The reply to the insert of a single document; None if it must wait for a transaction, or find its collection
    again, as `_insert_many` does."""
    if write is not None:
        write.begin_inserts(0)
    try:
        prepared = prepare_document(op, collection, request.documents[0])
        if collection is None:
            collection = collection_for_write(op, request.collection)
        insert_document(op, collection, prepared)
        op.service.metrics.documents["inserted"] += 1
        op.count_statements("insert")
        return {"n": 1}
    except ClaimedByTransaction:
        return None
    except CommandError as error:
        if _was_dropped(collection, error):
            return None
        if ends_command(op, error):
            raise
        errors = WriteErrors(op)
        errors.add(0, error)
        op.count_statements("insert")
        return errors.add_to({"n": 0})


def _insert_many(op: OperationContext, request: InsertRequest, write: RetryableWrite | None) -> Reply:
    documents = request.documents
    errors = WriteErrors(op)
    inserted = 0
    start = 0
    gate = op.cost.gate
    while start < len(documents):
        if gate is None:
            chunk = next_chunk(documents, start)
        else:
            chunk = documents[start : start + 1]
            if not _is_admitted(op, gate, start, errors):
                if request.ordered:
                    break
                start += 1
                continue
        # While it waited, or others ran between two chunks, they may have dropped the collection or renamed it.
        collection = collection_for_insert(op, request.collection)
        if write is not None and write.is_retry:
            chunk = chunk[: write.count_new(start, len(chunk))]
            if not chunk:
                retried = write.pass_executed(start, min(len(documents) - start, INSERT_CHUNK))
                inserted += retried
                start += retried
                op.give_way()
                continue
        inserted += insert_chunk(op, request.collection, collection, chunk, start, request.ordered, errors)
        start += len(chunk)
        if errors.interrupted or (errors.entries and request.ordered):
            break
        op.give_way()
        if start < len(documents) and _is_interrupted(op, start, errors):
            break
    op.service.metrics.documents["inserted"] += inserted
    return with_retried(write, errors.add_to({"n": inserted}))


def _is_interrupted(op: OperationContext, index: int, errors: WriteErrors) -> bool:
    """Whether the insert at this position is the first one for which there is no time left: then its error is added."""
    try:
        op.check_interrupt()
    except CommandError as error:
        if ends_command(op, error):
            raise
        errors.add(index, error)
        return True
    return False


def _is_admitted(op: OperationContext, gate: Gate, index: int, errors: WriteErrors) -> bool:
    """Whether the insert at this position may be executed; if it may not, its error is added."""
    try:
        gate.admit(index)
    except CommandError as error:
        if ends_command(op, error):
            raise
        errors.add(index, error)
        return False
    return True


def next_chunk(documents: list[bytes], start: int) -> list[bytes]:
    """The documents from `start` on for one unit of work: at most INSERT_CHUNK, until INSERT_BYTES are reached."""
    chunk = documents[start : start + INSERT_CHUNK]
    if sum(map(len, chunk)) <= INSERT_BYTES:
        return chunk
    size = 0
    for count, document in enumerate(chunk, 1):
        size += len(document)
        if size >= INSERT_BYTES:
            return chunk[:count]
    return chunk


def insert_chunk(
    op: OperationContext,
    name: str,
    collection: Collection | None,
    chunk: list[bytes],
    start: int,
    ordered: bool,
    errors: WriteErrors,
    is_divided: bool = False,
) -> int:
    """Inserts a chunk in one unit of work, or one by one if that fails, with the errors of single documents.

    How many were inserted. collection: see `collection_for_insert`. is_divided: whether it is part of a chunk whose
    keys were looked at.
    """
    write = op.recovery_unit.retryable_write
    if write is not None:
        write.begin_inserts(start)
    prepared: list[bytes] = []
    overtaken = 0
    while overtaken < MOST_TOGETHER:
        changed: CatalogChanged | None = None
        try:
            prepared = prepare_documents(op, collection, chunk)
            if collection is None or overtaken:
                collection = collection_for_write(op, name)
            if collection.time_series is not None:
                prepared = collection.time_series.in_bucket_order(prepared)
            insert_batch(op, collection, prepared)
            op.count_statements("insert", len(chunk))
            return len(chunk)
        except CatalogChanged as raised:
            changed = raised
        except (CommandError, DuplicateKey, WriteConflict) as error:
            if isinstance(error, CommandError) and is_interruption(error) and ends_command(op, error):
                raise
        if changed is None:
            break
        overtaken += 1
        await_transaction(op, changed)
    if len(chunk) > 1 and not is_divided and prepared and collection is not None and may_be_divided(op, collection):
        found = _find_taken(op, collection, prepared)
        if found:
            return _insert_around(op, name, collection, chunk, start, ordered, errors, found)
    return _insert_one_by_one(op, name, collection, chunk, start, ordered, errors)


def _find_taken(op: OperationContext, collection: Collection, prepared: list[bytes]) -> Taken:
    """What `taken` finds; nothing if the inserts have to find out themselves why they fail."""
    try:
        return taken(op, collection, prepared)
    except CommandError as error:
        if is_interruption(error) and ends_command(op, error):
            raise
        return {}


def _insert_around(
    op: OperationContext,
    name: str,
    collection: Collection,
    chunk: list[bytes],
    start: int,
    ordered: bool,
    errors: WriteErrors,
    found: Taken,
) -> int:
    """Inserts the documents between those that are `found`, together."""
    inserted = 0
    position = 0
    places = [*sorted(found), len(chunk)]
    for place in places:
        if position < place:
            part = chunk[position:place]
            inserted += insert_chunk(op, name, collection, part, start + position, ordered, errors, is_divided=True)
        if place == len(chunk) or errors.interrupted or (errors.entries and ordered):
            break
        error = found[place]
        if error is None:
            inserted += _insert_one_by_one(
                op, name, collection, chunk[place : place + 1], start + place, ordered, errors
            )
        else:
            op.count_statements("insert")
            errors.add(start + place, error)
        if errors.interrupted or (ordered and errors.entries):
            break
        position = place + 1
        op.give_way()
    return inserted


def _insert_one_by_one(
    op: OperationContext,
    name: str,
    collection: Collection | None,
    documents: list[bytes],
    start: int,
    ordered: bool,
    errors: WriteErrors,
) -> int:
    inserted = 0
    write = op.recovery_unit.retryable_write
    for index, document in enumerate(documents):
        if write is not None:
            write.begin_inserts(start + index)
        op.count_statements("insert")
        try:
            _insert_when_free(op, name, prepare_document(op, collection, document))
            inserted += 1
        except CommandError as error:
            if ends_command(op, error):
                raise
            errors.add(start + index, error)
            if ordered or errors.interrupted:
                break
        op.give_way()
    return inserted


def _insert_when_free(op: OperationContext, name: str, document: bytes) -> None:
    """Inserts a prepared document, after the transactions that have written one of its unique keys, into the collection
    that has the name then."""
    while True:
        collection: Collection | None = None
        try:
            collection = collection_for_write(op, name)
            return insert_document(op, collection, document)
        except WriteConflict as conflict:
            await_transaction(op, conflict)
        except CommandError as error:
            if not _was_dropped(collection, error):
                raise
            op.check_interrupt()
            op.give_way()


def _was_dropped(collection: Collection | None, error: CommandError) -> bool:
    """Whether an insert has failed because others have dropped its collection before it could write."""
    return collection is not None and collection.dropped and error.code == ErrorCode.QueryPlanKilled
