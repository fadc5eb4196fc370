"""What a commit leaves in the oplog, whether it is of a statement, of a transaction, or of the catalog."""

from typing import Any

import bson
import pytest

from mongottl.catalog import change_kinds as kinds
from mongottl.document.types import Timestamp
from mongottl.exec.service.commit_log import CommittedTransaction
from mongottl.exec.sessions.sessions import Session
from mongottl.exec.write.writes import insert_document
from mongottl.oplog.change import Change, LoggedChange
from mongottl.oplog.entry import OplogEntry
from mongottl.oplog.statements import INSERTED
from mongottl.ttl.policy import NO_TTL
from tests.running import START_MS, Running

LSID = bson.encode({"id": 1})


def insertion(*ids: int) -> LoggedChange:
    return LoggedChange(kinds.INSERT, "d", "c", None, after=tuple(bson.encode({"_id": number}) for number in ids))


def entries_from(running: Running, number: int) -> list[OplogEntry]:
    oplog = running.service.oplog
    return [oplog.entry(each) for each in range(number, oplog.end)]


def committed(running: Running, changes: list[LoggedChange], **more: Any) -> list[OplogEntry]:
    """The entries of a commit that logs these changes."""
    end = running.service.oplog.end
    with running.service.engine.unit_of_work() as work:
        running.service.commit_log.commit(work, [], changes, START_MS, **more)
        assert running.service.oplog.end == end + len(changes)
    return entries_from(running, end)


def test_each_change_of_a_statement_has_a_time_of_its_own() -> None:
    running = Running()
    first, second = committed(running, [insertion(1), insertion(2)])
    assert (first.at_s, first.at_i + 1) == (second.at_s, second.at_i)
    assert running.service.cluster_clock.operation_time == second.at
    assert (first.lsid, first.first_index, first.following, first.wall_ms) == (None, 0, 0, START_MS)


def test_the_changes_of_a_transaction_share_a_time_and_are_numbered() -> None:
    running = Running()
    before = running.service.cluster_clock.operation_time
    entries = committed(
        running, [insertion(1, 2), insertion(3), insertion(4)], transaction=CommittedTransaction(LSID, 7, lambda: None)
    )
    assert {(entry.at_s, entry.at_i) for entry in entries} == {(before.time, before.inc + 3)}
    assert [entry.first_index for entry in entries] == [0, 2, 3]
    assert [entry.following for entry in entries] == [2, 1, 0]
    assert {(entry.lsid, entry.txn_number) for entry in entries} == {(LSID, 7)}


def test_a_commit_without_changes_has_a_time_and_no_entry() -> None:
    running = Running()
    before = running.service.cluster_clock.operation_time
    assert committed(running, []) == []
    assert running.service.cluster_clock.operation_time == Timestamp(before.time, before.inc + 1)


def test_nothing_is_appended_by_a_commit_that_fails() -> None:
    running = Running()
    end = running.service.oplog.end
    with running.service.engine.unit_of_work() as work:
        work.commit()
        with pytest.raises(Exception, match="unit of work"):
            running.service.commit_log.commit(work, [], [insertion(1)], START_MS)
    assert running.service.oplog.end == end


def test_a_commit_arms_the_wheel_for_its_rows_and_wakes_the_reaper() -> None:
    running = Running()
    running.run({"create": "c"})
    running.index({"_ts": 1}, expireAfterSeconds=5)
    collection = running.collection()
    woken: list[int] = []
    service = running.service
    service.hooks.wake_reaper = lambda: woken.append(service.expiry.wheel.next_due_s() or 0)
    start_s = START_MS // 1000
    rows = [(bson.encode({"_id": 1}), start_s, NO_TTL), (bson.encode({"_id": 2}), start_s, 3)]
    writes = collection.writes
    with service.engine.unit_of_work() as work:
        service.commit_log.commit(work, [Change(kinds.INSERT, collection, [], rows)], [], START_MS)
    assert woken == [start_s + 5, start_s + 3]
    assert collection.writes == writes + 1


def test_a_commit_that_fails_arms_nothing() -> None:
    running = Running()
    running.run({"create": "c"})
    running.index({"_ts": 1}, expireAfterSeconds=5)
    rows = [(bson.encode({"_id": 1}), START_MS // 1000, 3)]
    with running.service.engine.unit_of_work() as work:
        work.commit()
        change = Change(kinds.INSERT, running.collection(), [], rows)
        with pytest.raises(Exception, match="unit of work"):
            running.service.commit_log.commit(work, [change], [], START_MS)
    assert running.service.expiry.wheel.next_due_s() is None


def test_a_change_of_the_catalog_is_appended_once_the_catalog_has_committed() -> None:
    running = Running()
    collection = running.service.catalog.create_collection("d", "c")
    end = running.service.oplog.end
    with running.service.engine.unit_of_work() as work:
        running.service.commit_log.log_catalog_change(work, kinds.DROP, collection, None)
        assert running.service.oplog.end == end
        work.commit()
    with running.service.engine.unit_of_work() as work:
        running.service.commit_log.log_catalog_change(work, kinds.DROP, collection, None)
    assert [entry.change.kind for entry in entries_from(running, end)] == [kinds.DROP]


def session_of(running: Running) -> Session:
    return running.service.sessions.touch(b"k", 0, 0.0)


def insert_into_capped(running: Running, number: int, txn_number: int) -> None:
    """An insert as statement 0 of a retryable write."""
    op = running.op()
    write = running.service.sessions.begin_write(session_of(running), txn_number)
    op.recovery_unit.retryable_write = write
    write.begin_inserts(0)
    collection = running.service.catalog.lookup("test", "c")
    assert collection is not None
    insert_document(op, collection, bson.encode({"_id": number, "x": "x" * 3000}))


def test_an_insert_that_displaces_expired_documents_is_remembered() -> None:
    running = Running()
    running.run({"create": "c", "capped": True, "size": 4096})
    running.index({"_ts": 1}, expireAfterSeconds=5)
    insert_into_capped(running, 1, 1)
    running.service.expiry.is_enabled = False
    running.advance(6)
    insert_into_capped(running, 2, 2)
    assert running.service.metrics.ttl_deleted_documents == 1
    assert [one.kind for one in session_of(running).history.executed] == [INSERTED]


def test_updates_are_described_once_and_take_the_place_of_their_documents() -> None:
    running = Running()
    running.insert({"_id": 1, "n": 0, "x": "x" * 10_000})
    running.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]})
    oplog = running.service.oplog
    number = oplog.end - 1
    size = oplog.size_bytes
    assert len(oplog.entry(number).change.before[0]) > 10_000
    described = oplog.described(number)
    assert oplog.described(number) is described is oplog.entry(number)
    assert bson.decode(described.change.description(0, False))["updatedFields"] == {"n": 1}
    assert described.change.before == (bson.encode({"_id": 1}),)
    assert size - oplog.size_bytes > 19_000
