"""The latest entries in memory."""

import os
import sys

import pytest

from mongottl.document.types import Timestamp
from mongottl.oplog.entry import INSERT, OplogEntry
from mongottl.oplog.log import Oplog


def appended(oplog: Oplog, second: int, documents: list[bytes]) -> OplogEntry:
    entry = OplogEntry(INSERT, "shop", "carts", None, [], documents)
    entry.set_time(Timestamp(second, 1), second * 1000)
    oplog.append(entry)
    return entry


@pytest.mark.parametrize("count", [2, 5, 30])
def test_documents_of_dropped_entries_are_freed(count: int) -> None:
    oplog = Oplog(100_000, 0)
    documents = [os.urandom(60_000) for _ in range(count)]
    held = [sys.getrefcount(document) for document in documents]
    for second, document in enumerate(documents, 1):
        appended(oplog, second, [document])
    assert [sys.getrefcount(document) for document in documents][:-1] == held[:-1]
    assert (oplog.first, oplog.end) == (count - 1, count)


def test_an_entry_that_is_dropped_while_it_is_read_keeps_its_documents() -> None:
    oplog = Oplog(100_000, 0)
    entry = appended(oplog, 1, [b"1" * 60_000])
    appended(oplog, 2, [b"2" * 60_000])
    assert oplog.first == 1
    assert entry.after == (b"1" * 60_000,)
