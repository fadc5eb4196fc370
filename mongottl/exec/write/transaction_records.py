"""config.transactions: what each session has written last, for users and tools to read.

    {_id: {id: <UUID>, uid: <digest>}, txnNum: 7, lastWriteOpTime: {ts, t: 1}, lastWriteDate}

and `state: "committed"` if that was a transaction.

The sessions themselves know it (`exec.sessions.retryable_writes`), and the oplog of a store knows of those of its other
servers. The collection is brought up to date before a command that names it, so that no write has to pay for it.

Source: MongoDB's manual, "Config Database".
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from mongottl.catalog.collection import Collection
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import get_value
from mongottl.errors import DuplicateKeyError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.refreshing import known_to_all
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.retryable_writes import WriteHistory
from mongottl.exec.sessions.session_ids import shown_id
from mongottl.exec.sessions.stored_sessions import add_logged
from mongottl.exec.write.waiting import together
from mongottl.exec.write.writes import delete_batch, insert_batch, insert_document, update_records
from mongottl.oplog.positioned import PositionedOplog
from mongottl.storage.errors import DuplicateKey, WriteConflict
from mongottl.storage.stores import Record

T = TypeVar("T")

DATABASE: Final = "config"
NAME: Final = "transactions"
_AT_ONCE: Final = 200
_SCAN_BYTES: Final = 1 << 20
_TERM: Final = 1


def publish(op: OperationContext) -> None:
    """Makes config.transactions what the sessions know, in steps. It is created if there is something to show."""
    wanted: dict[bytes, bytes] = {}
    for history in _histories(op.service):
        document = _described(history)
        if document is not None:
            wanted[shown_id(history.key)] = document
    collection = known_to_all(op.service, partial(_collection, op, len(wanted) > 0))
    if collection is None:
        return
    after = 0
    more = True
    while more and not collection.dropped:
        records, more = op.recovery_unit.records(collection).scan(after, _AT_ONCE, True, _SCAN_BYTES)
        old: list[Record] = []
        changed: list[tuple[Record, bytes]] = []
        for record in records:
            after = record[0]
            lsid = get_value(record[1], "_id")
            document = wanted.pop(lsid, None) if isinstance(lsid, bytes) else None
            if document is None:
                old.append(record)
            elif document != record[1]:
                changed.append((record, document))
        _write(op, old, partial(delete_batch, op, collection))
        _write(op, changed, partial(_update, op, collection))
        op.give_way()
    new = list(wanted.values())
    for start in range(0, len(new), _AT_ONCE):
        if collection.dropped:
            return
        _write(op, new[start : start + _AT_ONCE], partial(_insert, op, collection))
        op.give_way()


def _write(op: OperationContext, items: list[T], write: Callable[[list[T]], None]) -> None:
    """Writes items together; one by one if that fails, and without those that a client or another server has written
    meanwhile."""

    def write_all() -> bool:
        write(items)
        return True

    if items and not together(op, write_all, DuplicateKey, DuplicateKeyError, WriteConflict):
        for item in items if len(items) > 1 else []:
            _write(op, [item], write)


def _insert(op: OperationContext, collection: Collection, documents: list[bytes]) -> None:
    if len(documents) > 1:
        insert_batch(op, collection, documents)
    else:
        insert_document(op, collection, documents[0])


def _update(op: OperationContext, collection: Collection, changes: list[tuple[Record, bytes]]) -> None:
    update_records(op, op.recovery_unit.write(collection), changes, None)


def _histories(service: ServiceContext) -> list[WriteHistory]:
    found = {session.key: session.history for session in service.sessions.known()}
    oplog = service.oplog
    if service.settings.is_shared and isinstance(oplog, PositionedOplog):
        logged: dict[bytes, WriteHistory] = {}
        add_logged(logged, oplog, oplog.first)
        for key, history in logged.items():
            known = found.get(key)
            if known is None or known.txn_number <= history.txn_number:
                found[key] = history
    return list(found.values())


def _collection(op: OperationContext, is_needed: bool) -> Collection | None:
    """The collection, which is made if it is needed."""
    with Undivided():
        collection = op.catalog.lookup(DATABASE, NAME)
        if collection is None and is_needed:
            collection = op.catalog.create_collection(DATABASE, NAME)
        return collection


def _described(history: WriteHistory) -> bytes | None:
    at = history.written_at
    if at is None:
        return None
    described: dict[str, Value] = {
        "_id": shown_id(history.key),
        "txnNum": Int64(history.txn_number),
        "lastWriteOpTime": encode({"ts": at.timestamp, "t": Int64(_TERM)}),
        "lastWriteDate": Date(history.written_ms),
    }
    if history.is_committed_transaction:
        described["state"] = "committed"
    return encode(described)
