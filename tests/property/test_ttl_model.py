"""Random writes, changes of the default, clock steps, purges and restarts against a slow model of the TTL rules.

What must hold: a document is visible until the second at which it expires, and not from then on. The same holds for
each page of cursors that are open meanwhile, whatever they have read ahead.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

import mongottl
from tests.ttl_model import OFF, lives_s

MOST_IDS = 8
IDS = st.integers(0, MOST_IDS - 1)
SECONDS = st.sampled_from([1, 1, 2, 3, 5, 20, 10**6])
TTLS = st.one_of(
    st.none(),
    st.sampled_from([-1, 0, 1, 2, 3, 5, 8, 2.0, 2.5, -2, "3", True, 2147483647]),
)
DEFAULTS = st.sampled_from([-1, 1, 2, 3, 5, 10, 2147483647])

# Ways to read the collection so that each document is given once. Documents have their `_id` as `k`, which is indexed,
# and as `u`, which is not.
FINDS: list[dict[str, Any]] = [
    {},
    {"filter": {"u": {"$gte": 0}}},
    {"sort": {"k": 1}},
    {"sort": {"k": -1}},
    {"sort": {"u": 1}},
    {"sort": {"u": -1}, "limit": 100},
    {"filter": {"$or": [{"k": {"$lt": 5}}, {"_id": {"$gte": 3}}]}},
    {"filter": {"$or": [{"k": {"$lt": 5}}, {"k": {"$gte": 3}, "u": {"$gte": 0}}]}, "sort": {"k": 1}},
    {"projection": {"_id": 0, "k": 1}, "hint": "k_1"},
]
PIPELINES: list[list[dict[str, Any]]] = [
    [],
    [{"$match": {"u": {"$gte": 0}}}, {"$project": {"u": 1}}],
    [{"$sort": {"u": 1}}, {"$skip": 0}],
    [{"$addFields": {"x": 1}}],
    [{"$addFields": {"x": "$u"}}, {"$sort": {"x": -1}}],
    [{"$unwind": "$list"}, {"$match": {"list": 1}}],
    [{"$unwind": "$list"}, {"$sort": {"u": 1, "list": 1}}, {"$match": {"list": 1}}],
    [{"$redact": "$$KEEP"}],
    [{"$match": {"_id": -1}}, {"$unionWith": "documents"}],
    [{"$match": {"_id": -1}}, {"$unionWith": {"coll": "documents", "pipeline": [{"$set": {"x": 1}}]}}],
    [{"$lookup": {"from": "documents", "localField": "u", "foreignField": "u", "as": "same"}}],
    [{"$lookup": {"from": "documents", "localField": "k", "foreignField": "k", "as": "same"}}, {"$unwind": "$same"}],
    [{"$setWindowFields": {"sortBy": {"u": 1}, "output": {"x": {"$documentNumber": {}}}}}],
]
WAYS: list[dict[str, Any]] = [
    *({"find": "documents", "batchSize": 2, **find} for find in FINDS),
    *({"aggregate": "documents", "pipeline": pipeline, "cursor": {"batchSize": 2}} for pipeline in PIPELINES),
]


@dataclass
class Reading:
    """An open cursor. lasting: the documents that have lived all the time since it was opened. given: what came.

    judged: whether nothing was read while TTL was off, which pipelines do not judge again.
    """

    command: dict[str, Any]
    cursor_id: int
    lasting: set[int]
    given: list[int] = field(default_factory=list)
    judged: bool = True


@pytest.fixture(scope="module", autouse=True)
def recursion_limit() -> None:
    """The first server raises Python's; Hypothesis does not want that to happen while it runs a test."""
    with mongottl.start_server():
        pass


class Model:
    """Documents by `_id` as (ttl, second of the last write); purged ones are forgotten, expired ones may return."""

    def __init__(self) -> None:
        self.now_s = 0
        self.default = OFF
        self.documents: dict[int, tuple[Any, int]] = {}

    def alive(self, key: int) -> bool:
        if key not in self.documents:
            return False
        ttl, written_s = self.documents[key]
        lives = lives_s(ttl, self.default)
        return lives is None or self.now_s < written_s + lives

    def purge(self) -> None:
        self.documents = {key: value for key, value in self.documents.items() if self.alive(key)}


class TTLMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mongottl-test-"))
        self.model = Model()
        self.held = False
        self.readings: list[Reading] = []
        self.start()

    def start(self) -> None:
        self.context = mongottl.start_server(data_dir=str(self.folder / "data"))
        self.server = self.context.__enter__()
        self.client: MongoClient[dict[str, Any]] = MongoClient(self.server.uri)
        self.collection = self.client["db"]["documents"]
        # Far in the future: a restarted server begins at the real time, when nothing of this can be due yet.
        target_s = self.model.now_s + 4_000_000_000
        self.move_clock(target_s - self.server.clock.now().timestamp())

    def stop(self) -> None:
        self.client.close()
        self.context.__exit__(None, None, None)

    def move_clock(self, seconds: float) -> None:
        """Moves the server's clock, and returns when what has expired was purged, unless the reaper is held."""
        self.server.clock.advance(seconds)

    def teardown(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def wrote(self, key: int, ttl: Any) -> None:
        self.model.documents[key] = (ttl, self.model.now_s)

    @staticmethod
    def document(key: int, ttl: Any) -> dict[str, Any]:
        arrays = [0, 1] if key % 2 else 0  # which one index cannot hold both
        made = {"_id": key, "k": key, "u": key, "list": [0, 1], "p": arrays, "q": arrays}
        return made if ttl is None else {**made, "ttl": ttl}

    @initialize()
    def create(self) -> None:
        self.client["db"].create_collection("documents")
        self.collection.create_index("k")

    @rule(key=IDS, ttl=TTLS)
    def insert(self, key: int, ttl: Any) -> None:
        try:
            self.collection.insert_one(self.document(key, ttl))
            assert not self.model.alive(key)
            self.wrote(key, ttl)
        except DuplicateKeyError:
            assert self.model.alive(key)

    @rule(keys=st.lists(IDS, unique=True, min_size=2), ttl=TTLS)
    def insert_many(self, keys: list[int], ttl: Any) -> None:
        taken = {key for key in keys if self.model.alive(key)}
        try:
            self.collection.insert_many([self.document(key, ttl) for key in keys], ordered=False)
            assert not taken
        except BulkWriteError as error:
            assert {keys[failed["index"]] for failed in error.details["writeErrors"]} == taken
        for key in keys:
            if key not in taken:
                self.wrote(key, ttl)

    @rule(key=IDS, ttl=TTLS, upsert=st.booleans())
    def replace(self, key: int, ttl: Any, upsert: bool) -> None:
        result = self.collection.replace_one({"_id": key}, self.document(key, ttl), upsert=upsert)
        assert result.matched_count == (1 if self.model.alive(key) else 0)
        if self.model.alive(key) or upsert:
            self.wrote(key, ttl)

    @rule(keys=st.lists(IDS, unique=True))
    def touch(self, keys: list[int]) -> None:
        living = [key for key in keys if self.model.alive(key)]
        result = self.collection.update_many({"_id": {"$in": keys}}, {"$inc": {"n": 1}})
        assert result.matched_count == len(living)
        for key in living:
            self.wrote(key, self.model.documents[key][0])

    @rule(keys=st.lists(IDS, unique=True), ttl=TTLS)
    def set_ttl(self, keys: list[int], ttl: Any) -> None:
        living = [key for key in keys if self.model.alive(key)]
        change = {"$unset": {"ttl": 1}} if ttl is None else {"$set": {"ttl": ttl}}
        assert self.collection.update_many({"_id": {"$in": keys}}, change).matched_count == len(living)
        for key in living:
            self.wrote(key, ttl)

    @rule(key=IDS)
    def delete(self, key: int) -> None:
        assert self.collection.delete_one({"_id": key}).deleted_count == (1 if self.model.alive(key) else 0)
        if self.model.alive(key):
            del self.model.documents[key]

    @rule(default=DEFAULTS)
    def set_default(self, default: int) -> None:
        if self.model.default == OFF:
            self.collection.create_index("_ts", expireAfterSeconds=default)
        else:
            self.client["db"].command(
                {"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": default}}
            )
        self.model.default = default
        if not self.held:
            self.move_clock(0)
            self.model.purge()

    @precondition(lambda self: self.model.default != OFF)
    @rule()
    def drop_default(self) -> None:
        self.collection.drop_index("_ts_1")
        self.model.default = OFF

    @rule(seconds=SECONDS)
    def advance(self, seconds: int) -> None:
        self.model.now_s += seconds
        self.move_clock(seconds)
        if not self.held:
            self.model.purge()

    @rule(held=st.booleans())
    def hold_reaper(self, held: bool) -> None:
        self.client.admin.command({"setParameter": 1, "ttlMonitorEnabled": not held})
        self.held = held
        if not held:
            self.move_clock(0)
            self.model.purge()

    @rule()
    def build_index(self) -> None:
        """Builds an index that refuses documents with an odd `_id`, but deletes expired ones instead of failing."""
        try:
            self.collection.create_index([("p", 1), ("q", 1)])
        except OperationFailure as error:
            assert error.code == 171
            assert any(self.model.alive(key) for key in range(1, MOST_IDS, 2))
            return
        assert not any(self.model.alive(key) for key in range(1, MOST_IDS, 2))
        self.collection.drop_index("p_1_q_1")
        for key in range(1, MOST_IDS, 2):
            self.model.documents.pop(key, None)

    @rule()
    def copy(self) -> None:
        """Copies into a capped collection with just enough room for the documents that are not expired."""
        living = list(self.collection.find())
        size = sum(len(bson.encode(document)) for document in living)
        self.client["db"].command({"cloneCollectionAsCapped": "documents", "toCollection": "copy", "size": size or 1})
        copied = sorted(document["_id"] for document in self.client["db"]["copy"].find())
        self.client["db"].drop_collection("copy")
        assert copied == [key for key in range(MOST_IDS) if self.model.alive(key)]

    @rule()
    def validate(self) -> None:
        living = sum(self.model.alive(key) for key in range(MOST_IDS))
        reply = self.client["db"].command("validate", "documents")
        assert (reply["valid"], reply["nrecords"]) == (True, living)
        assert (reply["keysPerIndex"]["_id_"], reply["keysPerIndex"]["k_1"]) == (living, living)

    @rule(command=st.sampled_from(WAYS))
    def open_cursor(self, command: dict[str, Any]) -> None:
        living = {key for key in self.model.documents if self.model.alive(key)}
        reply = self.client["db"].command(command)["cursor"]
        reading = Reading(command, reply["id"], living)
        self.readings.append(reading)
        self.take(reading, reply["firstBatch"], reply["id"])

    @precondition(lambda self: self.readings)
    @rule(place=st.integers(0, 100), pages=st.integers(1, 3))
    def read_on(self, place: int, pages: int) -> None:
        reading = self.readings[place % len(self.readings)]
        for _ in range(pages):
            if reading in self.readings:
                command = {"getMore": reading.cursor_id, "collection": "documents", "batchSize": 2}
                reply = self.client["db"].command(command)["cursor"]
                self.take(reading, reply["nextBatch"], reply["id"])

    @rule(
        command=st.sampled_from(WAYS),
        before=SECONDS,
        keys=st.lists(IDS, unique=True),
        ttl=st.one_of(st.just("kept"), TTLS),
        after=SECONDS,
        again=st.booleans(),
    )
    def read_slowly(
        self, command: dict[str, Any], before: int, keys: list[int], ttl: Any, after: int, again: bool
    ) -> None:
        """A cursor over all documents, some of which are written between two of its pages."""
        missing = [key for key in range(MOST_IDS) if not self.model.alive(key)]
        if missing:
            self.collection.insert_many([self.document(key, None) for key in missing])
        for key in missing:
            self.wrote(key, None)
        self.open_cursor(command)
        self.advance(before)
        self.same_documents()
        if ttl == "kept":
            self.touch(keys)
        else:
            self.set_ttl(keys, ttl)
        self.advance(after)
        self.same_documents()
        while again and self.readings:
            self.read_on(0, 1)

    def take(self, reading: Reading, documents: list[dict[str, Any]], cursor_id: int) -> None:
        keys = [document["_id"] if "_id" in document else document["k"] for document in documents]
        reading.judged = reading.judged and (self.model.default != OFF or "find" in reading.command)
        if reading.judged:
            assert [key for key in keys if not self.model.alive(key)] == []
        reading.given += keys
        if cursor_id == 0:
            self.readings.remove(reading)
            assert sorted(key for key in reading.given if key in reading.lasting) == sorted(reading.lasting)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        """After a crash the files are as they stood at that moment."""
        if crash:
            shutil.copytree(self.folder / "data", self.folder / "crashed")
        self.stop()
        if crash:
            shutil.rmtree(self.folder / "data")
            (self.folder / "crashed").rename(self.folder / "data")
        self.start()
        self.held = False
        self.readings = []
        self.move_clock(0)
        self.model.purge()

    @invariant()
    def same_documents(self) -> None:
        alive = sorted(key for key in self.model.documents if self.model.alive(key))
        for reading in self.readings:
            reading.lasting.intersection_update(alive)
            reading.judged = reading.judged and (self.model.default != OFF or "find" in reading.command)
        assert [document["_id"] for document in self.collection.find().sort("_id")] == alive
        assert self.collection.estimated_document_count() == len(alive)
        assert self.collection.count_documents({"_id": {"$gte": 0}}) == len(alive)


TestTTL = TTLMachine.TestCase
TestTTL.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
