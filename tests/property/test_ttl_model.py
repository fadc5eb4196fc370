"""Random writes, changes of the default, clock steps, purges and restarts against a slow model of the TTL rules.

The law: no document is visible at or after its instant, and none vanishes before.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, DuplicateKeyError

import mongottl

IDS = st.integers(0, 7)
TTLS = st.one_of(
    st.none(),
    st.sampled_from([-1, 0, 1, 2, 3, 5, 8, 2.0, 2.5, -2, "3", True, 2147483647]),
)
DEFAULTS = st.sampled_from([-1, 1, 2, 3, 5, 10, 2147483647])
OFF = 0


def lives_s(ttl: Any, default: int) -> int | None:
    """Seconds from the last write, or None for ever: the rules as the articles tell them."""
    if default == OFF:
        return None
    meaningful = isinstance(ttl, (int, float)) and not isinstance(ttl, bool) and ttl == int(ttl)
    if meaningful and (ttl == -1 or 1 <= ttl <= 2147483647):
        return None if ttl == -1 else int(ttl)
    return None if default == -1 else default


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
        self.start()

    def start(self) -> None:
        self.context = mongottl.start_server(data_dir=str(self.folder / "data"))
        self.server = self.context.__enter__()
        self.client: MongoClient[dict[str, Any]] = MongoClient(self.server.uri)
        self.collection = self.client["db"]["documents"]
        self.server.clock.freeze()
        # Far in the future: a restarted server begins at the real time, when nothing of this can be due yet.
        target_s = self.model.now_s + 4_000_000_000
        self.server.clock.advance(target_s - self.server.clock.now().timestamp())

    def stop(self) -> None:
        self.client.close()
        self.context.__exit__(None, None, None)

    def teardown(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def wrote(self, key: int, ttl: Any) -> None:
        self.model.documents[key] = (ttl, self.model.now_s)

    @staticmethod
    def document(key: int, ttl: Any) -> dict[str, Any]:
        return {"_id": key} if ttl is None else {"_id": key, "ttl": ttl}

    @initialize()
    def create(self) -> None:
        self.client["db"].create_collection("documents")

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

    @rule(keys=st.lists(IDS, unique=True, min_size=1))
    def touch(self, keys: list[int]) -> None:
        living = [key for key in keys if self.model.alive(key)]
        result = self.collection.update_many({"_id": {"$in": keys}}, {"$inc": {"n": 1}})
        assert result.matched_count == len(living)
        for key in living:
            self.wrote(key, self.model.documents[key][0])

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
            self.server.clock.advance(0)
            self.model.purge()

    @precondition(lambda self: self.model.default != OFF)
    @rule()
    def drop_default(self) -> None:
        self.collection.drop_index("_ts_1")
        self.model.default = OFF

    @rule(seconds=st.sampled_from([1, 1, 2, 3, 5, 20, 10**6]))
    def advance(self, seconds: int) -> None:
        self.model.now_s += seconds
        self.server.clock.advance(seconds)
        if not self.held:
            self.model.purge()

    @rule(held=st.booleans())
    def hold_reaper(self, held: bool) -> None:
        self.client.admin.command({"setParameter": 1, "ttlMonitorEnabled": not held})
        self.held = held
        if not held:
            self.server.clock.advance(0)
            self.model.purge()

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
        self.server.clock.advance(0)
        self.model.purge()

    @invariant()
    def same_documents(self) -> None:
        alive = sorted(key for key in self.model.documents if self.model.alive(key))
        assert [document["_id"] for document in self.collection.find().sort("_id")] == alive
        assert self.collection.estimated_document_count() == len(alive)
        assert self.collection.count_documents({"_id": {"$gte": 0}}) == len(alive)


TestTTL = TTLMachine.TestCase
TestTTL.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
