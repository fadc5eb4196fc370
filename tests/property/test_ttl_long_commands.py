"""Long commands: between their steps the clock moves, documents expire and are purged, and other clients write.

What must hold: the lifetime of a document that a step writes begins in the second of that step, no step makes a
document disappear that is not expired, and expired documents make no index build and no copy fail.
"""

from typing import Any

import bson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mongottl.errors import CommandError
from mongottl.exec.running.stack import Steps
from mongottl.exec.write.expiry import reap_due
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import Record
from mongottl.ttl.policy import is_expired
from tests.running import Document, Running, hurried_clock

COUNT = 600
DEFAULT_S = 5
# Documents by the remainder of their number.
TTLS = [None, None, 1, 3, -1, 8, 100]
NUMBERS = st.integers(0, COUNT - 1)
BY_NUMBER = {"createIndexes": "c", "indexes": [{"key": {"number": 1}, "name": "number_1", "unique": True}]}
BY_PLACE = {"createIndexes": "c", "indexes": [{"key": {"loc": "2dsphere"}, "name": "loc_2dsphere"}]}
COPY = {"cloneCollectionAsCapped": "c", "toCollection": "copy", "size": 1 << 20}
MERGE = {"$merge": {"into": "c", "whenNotMatched": "discard"}}
LONG: list[Document] = [
    {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"writes": 1}}, "multi": True}]},
    {"update": "c", "updates": [{"q": {"number": {"$gte": 0}}, "u": {"$set": {"ttl": 2}}, "multi": True}]},
    {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"n": {"$add": ["$number", 1]}}}], "multi": True}]},
    # A document that expires after it was read must not be stored again: another one may have its number by then.
    {"aggregate": "c", "pipeline": [{"$set": {"writes": -1}}, MERGE], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$sort": {"n": 1}}, {"$merge": "other"}], "cursor": {}},
    {"delete": "c", "deletes": [{"q": {"writes": {"$gt": 1}}, "limit": 0}]},
    BY_NUMBER,
    BY_PLACE,
    COPY,
]


class LongCommands(RuleBasedStateMachine):
    """At most one long command runs at a time, and short ones run between its steps.

    For each number there is at most one document that is not expired; expired ones with other `_id`s may be stored.
    A document whose `loc` is not a geometry expires within a second.
    """

    def __init__(self) -> None:
        super().__init__()
        # The number of steps, on which the rules depend, must be the same when an example is run again.
        self.server = Running(open_engine("memory:"), clock=hurried_clock(0.0001))
        self.inserted = 0
        self.command: Document = {}
        self.steps: Steps[Document] | None = None
        # Ids of the records that have not expired since the long command began, and whether it may fail.
        self.lasting: set[int] = set()
        self.may_fail = False

    @initialize()
    def fill(self) -> None:
        for name in ("c", "other"):
            index = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": DEFAULT_S}
            self.server.run({"createIndexes": name, "indexes": [index]})
        self.insert_new(list(range(COUNT)))

    @property
    def now_s(self) -> int:
        return self.server.clock.now_ms() // 1000

    def records(self, name: str = "c") -> dict[int, Record]:
        records, _ = self.server.collection(name).store.scan(0, 1_000_000)
        return {record[0]: record for record in records}

    def living(self, name: str = "c") -> dict[int, Record]:
        now_s = self.now_s
        return {
            rid: record
            for rid, record in self.records(name).items()
            if not is_expired(record[2], record[3], DEFAULT_S, now_s)
        }

    def insert_new(self, numbers: list[int]) -> None:
        documents: list[Document] = []
        # A geospatial index refuses a `loc` that is not a geometry, also while it is being built.
        placed = self.server.collection().index_named("loc_2dsphere") is not None
        for number in numbers:
            self.inserted += 1
            ttl = TTLS[number % len(TTLS)]
            made: Document = {"_id": self.inserted, "number": number, "loc": [1, 2]}
            if ttl == 1 and not placed:
                made["loc"] = "nowhere"
            documents.append(made if ttl is None else {**made, "ttl": ttl})
        if documents:
            assert self.server.run({"insert": "c", "documents": documents})["n"] == len(documents)

    def decoded(self, record: Record) -> dict[str, Any]:
        return bson.decode(record[1])

    @rule(seconds=st.sampled_from([1, 1, 2, 3, 6, 10]))
    def advance(self, seconds: int) -> None:
        self.server.clock.advance(seconds)

    @rule()
    def reap(self) -> None:
        reap_due(self.server.service)

    @rule(numbers=st.lists(NUMBERS, max_size=20))
    def touch(self, numbers: list[int]) -> None:
        update = {"q": {"number": {"$in": numbers}, "ttl": {"$ne": 1}}, "u": {"$inc": {"writes": 1}}, "multi": True}
        self.server.run({"update": "c", "updates": [update]})

    @rule(start=NUMBERS, most=st.sampled_from([1, 5, 300]))
    def replace_expired(self, start: int, most: int) -> None:
        """Inserts documents for numbers whose documents are expired, purged or not."""
        taken = {self.decoded(record)["number"] for record in self.living().values()}
        self.insert_new([number for number in range(start, COUNT) if number not in taken][:most])

    @precondition(lambda self: self.steps is None)
    @rule(command=st.sampled_from(LONG))
    def begin(self, command: Document) -> None:
        self.server.run({"drop": "copy"})
        if "createIndexes" in command:
            name = command["indexes"][0]["name"]
            if self.server.collection().index_named(name) is not None:
                self.server.run({"dropIndexes": "c", "index": name})
        self.command = command
        self.lasting = set(self.living())
        bad = any(self.decoded(record)["loc"] == "nowhere" for record in self.living().values())
        self.may_fail = command is BY_PLACE and bad
        self.steps = None
        try:
            outcome = self.server.start(command)
        except CommandError as error:
            self.check_failure(error)
        else:
            self.steps = outcome if not isinstance(outcome, dict) else None

    def check_failure(self, error: CommandError) -> None:
        assert self.command is BY_PLACE and self.may_fail, error

    @precondition(lambda self: self.steps is not None)
    @rule(count=st.integers(1, 3))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.steps is not None:
                self.one_step(self.steps)

    def one_step(self, steps: Steps[Document]) -> None:
        before = self.records()
        living = set(self.living())
        other = self.records("other")
        try:
            next(steps)
        except StopIteration:
            self.steps = None
        except CommandError as error:
            self.steps = None
            self.check_failure(error)
        after = self.records()
        if "delete" not in self.command:
            assert living <= set(self.living()), "a step took documents that live"
        for old, new in ((before, after), (other, self.records("other"))):
            for rid, record in new.items():
                if rid not in old or old[rid][1] != record[1]:
                    assert record[2] == self.now_s, "what a step writes counts from another second"
        if self.steps is None and self.command is COPY:
            self.check_copy()

    def check_copy(self) -> None:
        copied = {self.decoded(record)["_id"] for record in self.records("copy").values()}
        stored = self.records()
        assert {self.decoded(stored[rid])["_id"] for rid in self.lasting if rid in stored} <= copied

    @invariant()
    def note_the_living(self) -> None:
        if self.steps is not None:
            self.lasting.intersection_update(self.living())


TestLongCommands = LongCommands.TestCase
TestLongCommands.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
