"""The order of a purge where records are kept on pages: by record id, if the order of expiry scatters them."""

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Binary, Int64

from mongottl.catalog.collection import Collection
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.write.expiry import PURGE_BATCH, SCATTERED_BY, reap_due
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import MAX_RECORD_ID, NO_BYTE_LIMIT
from mongottl.wire.messages import OpMsg
from tests.steps import begin, run_to_end

Document = dict[str, Any]
COUNT = 4500
assert COUNT > PURGE_BATCH * (SCATTERED_BY + 1)
TRANSACTION: Document = {
    "lsid": {"id": Binary(bytes(16), 4)},
    "txnNumber": Int64(1),
    "autocommit": False,
}


class Setup:
    """A dispatcher over a data folder whose collection `c` expires by a default, by `ttl`, or by a date."""

    def __init__(self, data: Path) -> None:
        self.clock = VirtualClock()
        self.clock.freeze()
        self.engine = open_engine(f"sqlite:{data}")
        self.service = ServiceContext(ServerConfig(), self.clock, self.engine)
        self.service.stacks.times.together_s = 0.0
        self.dispatcher = Dispatcher(self.service, Log(quiet=True, stream=io.StringIO()))

    def run(self, command: Document, database: str = "test") -> Document:
        message = OpMsg(1, 0, 0, bson.encode({**command, "$db": database}), [])
        outcome = self.dispatcher.handle(message, ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2"))
        reply: Document = bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))
        assert reply["ok"] == 1, reply
        assert not reply.get("writeErrors"), reply
        return reply

    def fill(self, how: str, in_order: bool = False) -> None:
        """Documents whose expiry has nothing to do with the order of their ids, unless `in_order`; all are then due."""
        index: Document = {"key": {"_ts": 1}, "name": "ttl", "expireAfterSeconds": 1000}
        if how == "date":
            index = {
                "key": {"at": 1},
                "name": "ttl",
                "expireAfterSeconds": 0,
                "partialFilterExpression": {"gone": True},
            }
        self.run({"createIndexes": "c", "indexes": [index]})
        numbers = list(range(COUNT))
        if not in_order:
            random.Random(1).shuffle(numbers)
        documents: list[Document] = [{"_id": n, "seconds": numbers[n] // 10} for n in range(COUNT)]
        now_ms = self.clock.now_ms()
        for document in documents:
            if how == "own":
                document["ttl"] = 1 + document["seconds"]
            elif how == "date":
                document["gone"] = True
                document["at"] = bson.datetime_ms.DatetimeMS(now_ms + document["seconds"] * 1000)
        for start in range(0, COUNT, 1000):
            self.run({"insert": "c", "documents": documents[start : start + 1000]})
        if how == "default":  # as if each had been written in its own second
            self.clock.advance(COUNT // 10)
            records, _ = self.collection.store.scan(0, MAX_RECORD_ID, True, NO_BYTE_LIMIT)
            refreshed = [(r[0], r[1], r[2] + numbers[r[0] - 1] // 10, r[3]) for r in records]
            with self.engine.unit_of_work() as unit:
                self.collection.store.update_records(records, refreshed)
                unit.commit()
        self.clock.advance(1_000_000)

    @property
    def collection(self) -> Collection:
        found = self.service.catalog.lookup("test", "c")
        assert found is not None
        return found

    def left(self) -> set[int]:
        """Ids of the records, which are one more than those of the documents."""
        return {record[0] for record in self.collection.store.scan(0, MAX_RECORD_ID, True, NO_BYTE_LIMIT)[0]}


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path / "data")
    yield made
    made.engine.close()


def batches(
    setup: Setup, after_batch: Callable[[int], None] = lambda number: None
) -> Iterator[tuple[set[int], set[int]]]:
    """Purges; the ids of the records that each batch has deleted, and of those that are left.

    after_batch: called with the number of each batch, from 0 on.
    """
    before = setup.left()
    number = 0
    for _ in begin(setup.service, lambda: reap_due(setup.service)):
        left = setup.left()
        if left != before:
            yield before - left, left
            after_batch(number)
            number += 1
        before = setup.left()


@pytest.mark.parametrize("how", ["default", "own", "date"])
def test_scattered_documents_are_purged_in_the_order_of_their_ids(setup: Setup, how: str) -> None:
    setup.fill(how)
    (first, _), *following = batches(setup)
    assert max(first) - min(first) > PURGE_BATCH * SCATTERED_BY
    assert len(following) == -(-(COUNT - PURGE_BATCH) // PURGE_BATCH)
    for deleted, left in following:
        assert len(deleted) <= PURGE_BATCH
        assert not left or max(deleted) < min(left)
    assert setup.left() == set()


@pytest.mark.parametrize("how", ["own", "date"])
def test_documents_in_order_are_purged_by_their_expiry(setup: Setup, how: str) -> None:
    setup.fill(how, in_order=True)
    for number, (deleted, _) in enumerate(batches(setup)):
        assert deleted == set(range(1 + number * PURGE_BATCH, 1 + min(COUNT, (number + 1) * PURGE_BATCH)))


@pytest.mark.parametrize("how", ["default", "own", "date"])
def test_purge_keeps_documents_that_are_changed_while_it_runs(setup: Setup, how: str) -> None:
    setup.fill(how)
    setup.run({"setParameter": 1, "transactionLifetimeLimitSeconds": 3_000_000}, "admin")  # the clock is moved below
    by_date = how == "date"
    later = bson.datetime_ms.DatetimeMS(setup.clock.now_ms() + 1000)
    changes: list[Document] = [
        {"$set": {"gone": False} if by_date else {"ttl": -1}},
        {"$set": {"at": later} if by_date else {"ttl": 2_000_000}},
    ]
    changed: list[int] = []

    def change(number: int) -> None:
        if number != 2:
            return
        stored = sorted(setup.left())[-3:]
        ids = [record_id - 1 for record_id in stored]
        # What has expired by `_ts` is invisible to commands, so this is written as a moment before.
        setup.clock.advance(-1_000_000)
        updates = [{"q": {"_id": n}, "u": u} for n, u in zip(ids, changes, strict=False)]
        assert setup.run({"update": "c", "updates": updates})["nModified"] == 2
        updates = [{"q": {"_id": ids[2]}, "u": {"$set": {"n": 1}}}]
        setup.run({"update": "c", "updates": updates, "startTransaction": True, **TRANSACTION})
        setup.clock.advance(1_000_000)
        changed.extend(stored)

    purged = sum(len(deleted) for deleted, _ in batches(setup, change))
    assert purged == COUNT - 3
    assert sorted(setup.left()) == changed
    setup.run({"abortTransaction": 1, **TRANSACTION}, "admin")
    assert reap_due(setup.service) == 1
    assert sorted(setup.left()) == changed[:2]


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("command", [{"drop": "c"}, {"dropIndexes": "c", "index": "ttl"}], ids=["drop", "dropIndexes"])
def test_purge_ends_when_its_collection_or_index_is_dropped(setup: Setup, command: Document, step: int) -> None:
    setup.fill("date")
    steps = begin(setup.service, lambda: reap_due(setup.service))
    for _ in range(step):
        next(steps)
    setup.run(command)
    run_to_end(steps)
    if "dropIndexes" in command:
        assert COUNT - 3 * PURGE_BATCH <= len(setup.left()) < COUNT
