"""Commits of transactions, beside what others do while the engine waits: at each place where a commit is left."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from mongottl.exec.operation.snapshot_reads import enter
from mongottl.exec.operation.transaction_unit import begin
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.write.commit import commit_transaction
from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import SnapshotConflict
from mongottl.storage.opening import open_engine
from tests.running import Document, Running
from tests.steps import run_to_end, steps_of
from tests.suspending import SuspendingEngine

INSERT: Final[Document] = {"insert": "made", "documents": [{"_id": 1}]}


class Waiting(Running):
    """A service whose operations are left at calls of the engine while `commits` runs one."""

    def __init__(self) -> None:
        engine = SuspendingEngine(ContractEngine(open_engine("memory:")), random.Random(1), 0.0)
        super().__init__(engine)
        engine.suspension.stacks = self.service.stacks
        self.suspension = engine.suspension
        self.insert({"_id": 1, "n": 0})

    def transaction(self, number: int, *statements: Document) -> Transaction:
        """A transaction of a session of its own, which has run these statements."""
        transaction = begin(self.service, b"session %d" % number, 1)
        for statement in statements:
            run_to_end(self.start(statement, transaction=transaction))
        return transaction

    def commits(self, transaction: Transaction, place: int, others: Callable[[], object]) -> bool:
        """Commits a transaction. others: called the `place`th time that the commit is left; whether it is left so
        often."""
        self.suspension.rate = 1.0
        steps = steps_of(self.service.stacks.begin(lambda: commit_transaction(self.op(), transaction)))
        left = 0
        try:
            while True:
                next(steps)
                if left == place:
                    self.suspension.rate = 0.0
                    others()
                left += 1
        except StopIteration:
            return left > place
        finally:
            self.suspension.rate = 0.0


def test_a_snapshot_that_is_opened_while_a_commit_waits_does_not_show_it() -> None:
    place = 0
    while True:
        running = Waiting()
        update = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 7}}}]}
        reader = running.op()
        if not running.commits(running.transaction(1, update), place, partial(enter, reader, None)):
            break
        store = reader.recovery_unit.records(running.collection())
        assert [record[1] for record in store.scan(0, 10)[0]] == [running.encoded({"_id": 1, "n": 0})], place
        assert running.listed({"find": "c"}) == [{"_id": 1, "n": 7}]
        place += 1
    assert place > 0


def test_a_collection_that_others_make_while_a_commit_waits_is_not_made_twice() -> None:
    place = 0
    while True:
        running = Waiting()
        first, second = running.transaction(1, INSERT), running.transaction(2, INSERT)

        try:
            left = running.commits(first, place, partial(commit_transaction, running.op(), second))
        except SnapshotConflict:
            left = True
        if not left:
            break
        assert first.in_progress and not second.in_progress, place
        assert running.ids("made") == [1]
        assert running.run({"validate": "made"})["valid"], place
        place += 1
    assert place > 0


def test_a_commit_of_what_others_have_created_is_a_conflict() -> None:
    running = Waiting()
    transaction = running.transaction(1, INSERT)
    running.insert({"_id": 2}, into="made")
    with pytest.raises(SnapshotConflict):
        commit_transaction(running.op(), transaction)
    assert running.ids("made") == [2]
