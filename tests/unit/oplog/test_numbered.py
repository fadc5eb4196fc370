"""The latest entries in memory."""

import os
import sys

import pytest

from mongottl.catalog.catalog import Catalog
from mongottl.document.build import encode
from mongottl.document.interrupt import begin_evaluation, check_often, clear_check, set_check
from mongottl.document.types import Timestamp
from mongottl.oplog.entry import OplogEntry
from mongottl.oplog.numbered import NumberedOplog
from mongottl.oplog.rows import OplogRows
from mongottl.storage.opening import open_engine
from tests.changes import entry_of, insert_entry, update_change


def appended(oplog: NumberedOplog, second: int, documents: list[bytes]) -> OplogEntry:
    entry = insert_entry(second, documents)
    oplog.append(entry)
    return entry


@pytest.mark.parametrize("count", [2, 5, 30])
def test_documents_of_dropped_entries_are_freed(count: int) -> None:
    oplog = NumberedOplog(100_000, 0)
    documents = [os.urandom(60_000) for _ in range(count)]
    held = [sys.getrefcount(document) for document in documents]
    for second, document in enumerate(documents, 1):
        appended(oplog, second, [document])
    assert [sys.getrefcount(document) for document in documents][:-1] == held[:-1]
    assert (oplog.first, oplog.end) == (count - 1, count)


def test_an_entry_that_is_dropped_while_it_is_read_keeps_its_documents() -> None:
    oplog = NumberedOplog(100_000, 0)
    entry = appended(oplog, 1, [b"1" * 60_000])
    appended(oplog, 2, [b"2" * 60_000])
    assert oplog.first == 1
    assert entry.change.after == (b"1" * 60_000,)


@pytest.mark.parametrize("count", [10, 3_000])
def test_an_entry_that_is_dropped_while_it_is_described_is_not_put_back(count: int) -> None:
    """Others run while the arrays of an update are compared."""
    oplog = NumberedOplog(100_000, 0)
    before, after = (encode({"_id": 1, "a": [number] * 1000}) for number in range(2))
    oplog.append(entry_of(update_change(before, after), 1))
    others: list[OplogEntry] = []

    def append_others() -> None:
        if not others:
            others.extend(appended(oplog, second, [bytes(40_000)]) for second in range(2, 2 + count))

    check_often()
    set_check(append_others)
    begin_evaluation()
    try:
        described = oplog.described(0)
    finally:
        clear_check()
        check_often(False)
    assert described.change.is_described
    kept = [oplog.entry(number) for number in range(oplog.first, oplog.end)]
    assert kept == others[-len(kept) :]
    assert oplog.size_bytes == sum(entry.size_bytes() for entry in kept)


def test_a_stored_update_is_kept_in_memory_as_it_was_stored() -> None:
    engine = open_engine("memory:")
    oplog = NumberedOplog(1 << 20, 0, OplogRows(Catalog(engine), Timestamp(1, 1), 1 << 20, 0))
    before, after = (encode({"_id": 1, "n": number, "x": "x" * 10_000}) for number in range(2))
    with engine.unit_of_work() as work:
        entry = oplog.put(entry_of(update_change(before, after)), work)
        work.commit()
    oplog.append(entry)
    assert oplog.described(0) is oplog.entry(0) is entry
    assert entry.change.before == (encode({"_id": 1}),)
    assert entry.size_bytes() < 1000
