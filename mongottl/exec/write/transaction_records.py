"""config.transactions: what each session has written last, for users and tools to read.

    {_id: {id: <UUID>, uid: <digest>}, txnNum: 7, lastWriteOpTime: {ts, t: 1}, lastWriteDate}

and `state: "committed"` if that was a transaction.

The sessions themselves know it (`exec.sessions.retryable_writes`). The collection is brought up to date before a
command that names it, so that no write has to pay for it.

Source: MongoDB's manual, "Config Database".
"""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.sessions.retryable_writes import WriteHistory
from mongottl.exec.sessions.session_ids import shown_id
from mongottl.exec.write.writes import delete_batch, insert_document, update_record
from mongottl.storage.errors import WriteConflict

DATABASE: Final = "config"
NAME: Final = "transactions"
_AT_ONCE: Final = 200
_SCAN_BYTES: Final = 1 << 20
_TERM: Final = 1


def publish(op: OperationContext) -> None:
    """Makes config.transactions what the sessions know, in steps. It is created if there is something to show."""
    wanted: dict[bytes, bytes] = {}
    for session in op.service.sessions.known():
        document = _described(session.history)
        if document is not None:
            wanted[shown_id(session.key)] = document
    with Undivided():
        collection = op.catalog.lookup(DATABASE, NAME)
        if collection is None:
            if not wanted:
                return
            collection = op.catalog.create_collection(DATABASE, NAME)
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
        insert_document(op, collection, document)
        if done % _AT_ONCE == 0:
            op.give_way()


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
