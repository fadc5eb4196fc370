"""Random commands, saves and restores on a server in memory and on a model beside it: copies of dicts.

After every step the server has the model's documents in their order, in every index, and exactly their number; and a
purge leaves exactly the living ones.
"""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.restoring import save_initial
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from mongottl.ttl.policy import NO_TTL
from tests.running import START_MS, Document, Running

names = st.sampled_from(["a", "b", "c"])
ids = st.integers(0, 9)
values = st.integers(0, 3)
lifetimes = st.sampled_from([None, None, -1, 2, 5])
states = st.sampled_from(["one", "two"])


class Model:
    """collections: documents by `_id`, in natural order, each with the second of its last write. defaults: the default
    TTL of each collection, NO_TTL for none. indexes: the names of each collection's indexes on `v`."""

    def __init__(self) -> None:
        self.now_s = START_MS // 1000
        self.collections: dict[str, dict[int, tuple[Document, int]]] = {}
        self.defaults: dict[str, int] = {}
        self.indexed: dict[str, bool] = {}

    def living(self, name: str) -> dict[int, Document]:
        default = self.defaults.get(name, NO_TTL)
        found = {}
        for key, (document, ts) in self.collections.get(name, {}).items():
            ttl = document.get("ttl", default)
            if default == NO_TTL or ttl == -1 or ts + ttl > self.now_s:
                found[key] = document
        return found

    def make(self, name: str) -> dict[int, tuple[Document, int]]:
        self.defaults.setdefault(name, NO_TTL)
        self.indexed.setdefault(name, False)
        return self.collections.setdefault(name, {})

    def drop_expired(self, name: str) -> None:
        if name in self.collections:
            living = self.living(name)
            self.collections[name] = {key: held for key, held in self.collections[name].items() if key in living}


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.running = Running(ContractEngine(open_engine("memory:")))
        self.running.service.config.enable_test_commands = True
        save_initial(self.running.service)
        self.model = Model()
        self.saved: dict[str, Model] = {}

    def teardown(self) -> None:
        self.running.engine.close()

    @initialize(lives=st.lists(lifetimes, max_size=6), seconds=st.sampled_from([-1, 3, 8]))
    def fill(self, lives: list[int | None], seconds: int) -> None:
        self.expire("a", seconds)
        self.insert("a", [(n, n, ttl) for n, ttl in enumerate(lives)])
        self.save("one")

    @rule(name=names, new=st.lists(st.tuples(ids, values, lifetimes), max_size=6))
    def insert(self, name: str, new: list[tuple[int, int, int | None]]) -> None:
        """Some of them have an `_id` that exists: the batch ends there, after a unit of work that is rolled back."""
        if not new:
            return
        documents: list[Document] = [
            {"_id": key, "v": [value, value + 1]} | ({} if ttl is None else {"ttl": ttl}) for key, value, ttl in new
        ]
        reply = self.running.run({"insert": name, "documents": documents})
        held = self.model.make(name)
        count = 0
        for document in documents:
            if document["_id"] in self.model.living(name):
                break
            held.pop(document["_id"], None)
            held[document["_id"]] = (document, self.model.now_s)
            count += 1
        assert (reply["n"], "writeErrors" in reply) == (count, count < len(documents))

    @rule(name=names, below=ids, value=values)
    def update(self, name: str, below: int, value: int) -> None:
        change = {"q": {"_id": {"$lt": below}}, "u": {"$set": {"v": value}}, "multi": True}
        reply = self.running.run({"update": name, "updates": [change]})
        found = [key for key in self.model.living(name) if key < below]
        assert reply["n"] == len(found)
        for key in found:
            document = {**self.model.collections[name][key][0], "v": value}
            self.model.collections[name][key] = (document, self.model.now_s)

    @rule(name=names, below=ids)
    def delete(self, name: str, below: int) -> None:
        reply = self.running.run({"delete": name, "deletes": [{"q": {"_id": {"$lt": below}}, "limit": 0}]})
        found = [key for key in self.model.living(name) if key < below]
        assert reply["n"] == len(found)
        for key in found:
            del self.model.collections[name][key]

    @rule(name=names)
    def drop(self, name: str) -> None:
        if name in self.model.collections:
            self.running.run({"drop": name})
            for part in (self.model.collections, self.model.defaults, self.model.indexed):
                part.pop(name)

    @rule(name=names, to=names)
    def rename(self, name: str, to: str) -> None:
        if name in self.model.collections and name != to:
            self.running.run({"renameCollection": f"test.{name}", "to": f"test.{to}", "dropTarget": True}, "admin")
            parts: tuple[dict[str, Any], ...] = (self.model.collections, self.model.defaults, self.model.indexed)
            for part in parts:
                part[to] = part.pop(name)

    @rule(name=names)
    def index(self, name: str) -> None:
        self.running.index({"v": 1}, on=name)
        self.model.make(name)
        self.model.indexed[name] = True

    @rule(name=names)
    def drop_index(self, name: str) -> None:
        if self.model.indexed.get(name):
            self.running.run({"dropIndexes": name, "index": "v_1"})
            self.model.indexed[name] = False

    @rule(name=names, seconds=st.sampled_from([-1, 3, 8]))
    def expire(self, name: str, seconds: int) -> None:
        if self.model.defaults.get(name, NO_TTL) == NO_TTL:
            self.running.index({"_ts": 1}, on=name, expireAfterSeconds=seconds)
        else:
            changed = {"keyPattern": {"_ts": 1}, "expireAfterSeconds": seconds}
            self.running.run({"collMod": name, "index": changed})
        self.model.make(name)
        self.model.defaults[name] = seconds

    @rule(seconds=st.integers(1, 4))
    def advance(self, seconds: int) -> None:
        self.running.advance(seconds)
        self.model.now_s += seconds

    @rule(seconds=st.sampled_from([0, 1, 4, 9]))
    def purge(self, seconds: int) -> None:
        self.advance(seconds)
        self.running.reap()
        for name in list(self.model.collections):
            self.model.drop_expired(name)
            assert self.running.collection(name).store.count() == len(self.model.collections[name])

    @rule(limit=st.integers(1, 50))
    def free(self, limit: int) -> None:
        self.running.engine.drop_some(limit)

    @rule(state=states)
    def save(self, state: str) -> None:
        self.running.run({"saveState": state}, "admin")
        self.saved[state] = copy.deepcopy(self.model)

    @rule(state=states)
    def restore_after_a_purge(self, state: str) -> None:
        self.purge(9)
        self.restore(state)
        self.purge(9)

    @rule(state=states)
    def restore(self, state: str) -> None:
        if state in self.saved:
            self.running.run({"restoreState": state}, "admin")
            self.model = copy.deepcopy(self.saved[state])
        else:
            assert self.running.code({"restoreState": state}, "admin") == ErrorCode.NoSuchKey

    @rule(state=states)
    def forget(self, state: str) -> None:
        if state in self.saved:
            self.running.run({"dropState": state}, "admin")
            del self.saved[state]

    @rule()
    def reset(self) -> None:
        self.running.run({"resetState": 1}, "admin")
        self.model = Model()

    @invariant()
    def the_server_has_what_the_model_has(self) -> None:
        listed = self.running.listed({"listCollections": 1})
        assert sorted(found["name"] for found in listed) == sorted(self.model.collections)
        assert self.running.service.now_s() == self.model.now_s
        for name in self.model.collections:
            expected = list(self.model.living(name).values())
            hints: list[Document] = [{"$natural": 1}, {"_id": 1}] + ([{"v": 1}] if self.model.indexed[name] else [])
            for hint in hints:
                found = self.running.listed({"find": name, "hint": hint})
                if hint != {"$natural": 1}:
                    found.sort(key=lambda document: document["_id"])
                    expected.sort(key=lambda document: document["_id"])
                assert found == expected
            if not self.model.indexed[name]:
                with pytest.raises(CommandError):
                    self.running.run({"find": name, "hint": "v_1"})


@pytest.mark.slow
def test_a_server_that_is_saved_and_restored_is_its_model() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
