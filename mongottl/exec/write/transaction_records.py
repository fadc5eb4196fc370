"""config.transactions: what each session has written last, for users and tools to read.

    {_id: {id: <UUID>, uid: <digest>}, txnNum: 7, lastWriteOpTime: {ts, t: 1}, lastWriteDate}

and `state: "committed"` if that was a transaction.

The sessions themselves know it (`exec.sessions.retryable_writes`), and the oplog of a store knows of those of its other
servers. The collection is brought up to date before a command that names it, so that no write has to pay for it.

Source: MongoDB's manual, "Config Database".
"""

from contextlib import suppress
from functools import partial
from typing import Final

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
from mongottl.exec.write.writes import delete_batch, insert_document, update_record
from mongottl.oplog.positioned import PositionedOplog
from mongottl.storage.errors import WriteConflict

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
        for record in records:
            after = record[0]
            lsid = get_value(record[1], "_id")
            document = wanted.pop(lsid, None) if isinstance(lsid, bytes) else None
            try:
                if document is None:
                    delete_batch(op, collection, [record])
                elif document != record[1]:
                    update_record(op, collection, record, document)
            except WriteConflict:
                continue  # a client writes to it, too
        op.give_way()
    for done, document in enumerate(wanted.values()):
        if collection.dropped:
            return
        with suppress(DuplicateKeyError):  # another server has published it meanwhile
            insert_document(op, collection, document)
        if done % _AT_ONCE == 0:
            op.give_way()


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
