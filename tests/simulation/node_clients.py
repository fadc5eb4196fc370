"""Clients of several nodes: what one has changed on any node, the next request sees on every other one."""

from collections.abc import Generator
from typing import Any, TypeAlias

import bson
from bson import Int64

from tests.simulation.clients import Stage
from tests.simulation.node_world import NodeWorld
from tests.simulation.world import Client, Document, Request

RETRIED = "retried"
RETRIED_COUNTERS = 3
SCHEMAS = "schemas"
# Of errors after which a request is sent again: it was not carried out, or nobody knows. 276: the node has lost its
# place in the midst of an index build.
AGAIN_CODES = (6, 112, 276)
# QueryPlanKilled: another collection has the name now.
REPLACED = 175
# NamespaceNotFound, IndexNotFound, NamespaceExists, BackgroundOperationInProgressForNamespace.
NO_NAMESPACE = 26
NO_INDEX = 27
EXISTS = 48

# What an own collection should be: its indexes by name, with their options; None if there is none.
Schema: TypeAlias = "dict[str, Document] | None"
Replied: TypeAlias = Generator[Request, Document | None, Document]


class RetriedCounts:
    """acknowledged: how often each counter was incremented, by its clients. tries: of how many requests."""

    def __init__(self, world: NodeWorld) -> None:
        self.world = world
        self.random = world.random
        self.acknowledged = [0] * RETRIED_COUNTERS
        self.tries = 0
        self.retries = 0


class RetryableRequest(Request):
    """A retryable write."""

    may_be_given_up = True


def retrier(counts: RetriedCounts) -> Client:
    """Increments counters by retryable writes, each sent again until it is answered: it is then done once."""
    lsid = {"id": bson.Binary(counts.random.randbytes(16), 4)}
    number = 0
    while True:
        number += 1
        places = counts.random.sample(range(RETRIED_COUNTERS), counts.random.randint(1, RETRIED_COUNTERS))
        increment: Document = {"$inc": {"n": 1}}
        statements: list[Document] = [{"q": {"_id": place}, "u": increment} for place in places]
        command: Document = {"update": RETRIED, "updates": statements}
        if counts.random.random() < 0.4:
            del places[1:]
            command = {"findAndModify": RETRIED, "query": {"_id": places[0]}, "update": increment, "new": True}
        command |= {"lsid": lsid, "txnNumber": Int64(number)}
        while True:
            counts.tries += 1
            reply = yield RetryableRequest(command)
            if reply is not None and reply["ok"] and not reply.get("writeErrors"):
                break
            errors = [] if reply is None else reply.get("writeErrors") or [reply]
            assert all(error.get("code") in (*AGAIN_CODES, REPLACED) for error in errors), reply
            counts.retries += 1
        assert reply.get("n", 1) == len(places), reply
        for place in places:
            counts.acknowledged[place] += 1


def capper(stage: Stage) -> Client:
    """Makes the collection with the counters of `retrier` capped, again and again, which keeps what it has."""
    while True:
        for _ in range(stage.random.randrange(10, 40)):
            yield Request({"ping": 1})
        reply = yield Request({"convertToCapped": RETRIED, "size": 1 << 20})
        # The node may have been taken for dead, and its temporary collection dropped.
        assert reply is None or reply["ok"] or reply["code"] in (*AGAIN_CODES, REPLACED), reply


def clock_mover(stage: Stage) -> Client:
    """Moves the clock of all nodes, on any of them."""
    while True:
        for _ in range(stage.random.randrange(10, 40)):
            yield Request({"ping": 1})
        seconds = stage.random.choice([0.3, 1, 1, 2, 5, 20, 100, 86400 * 400])
        yield Request({"advanceClock": seconds}, "admin")


class SchemaClient:
    """Makes, changes, renames and drops collections of its own, of which it then knows all, and asks any node for it.

    names: of the collections. An answer that does not come leaves open whether the change was made: it is found out
    by dropping the database, which is repeated until it is answered. A change of a node that was killed may be known to
    others only after an acknowledged one: so something is created first.
    """

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.random = stage.random
        self.database = f"{SCHEMAS}{number}"
        self.names = ("a", "b")
        self.known: dict[str, Schema] = {}
        self.documents: dict[str, int] = {}
        self.capped: set[str] = set()
        self.changes = 0
        self.checks = 0
        self._created = 0

    def run(self) -> Client:
        yield from self.forget()
        habits = [self.create, self.index, self.index, self.index, self.drop_index, self.change_ttl, self.rename]
        habits += [self.drop, self.insert, self.insert, self.make_capped]
        while True:
            done = yield from self.random.choice(habits)()
            if not done:
                yield from self.find_out()
            else:
                self.changes += 1
            for _ in range(self.random.randrange(1, 3)):
                yield from self.random.choice([self.check_collections, self.check_indexes, self.check_reads])()

    def find_out(self) -> Client:
        done = False
        while not done:
            self._created += 1
            done = yield from self.change({"create": f"new_{self._created}"})
        yield from self.forget()

    def forget(self) -> Client:
        """Begins anew, with nothing."""
        while True:
            reply = yield Request({"dropDatabase": 1}, self.database)
            if reply is not None and reply["ok"]:
                break
            assert reply is None or reply["code"] in AGAIN_CODES, reply
        self.known = dict.fromkeys(self.names)
        self.documents = dict.fromkeys(self.names, 0)
        self.capped.clear()

    # Changes: each gives whether it is known what it has done

    def change(self, command: Document, refusal: int = 0, database: str = "") -> Generator[Request, Any, bool]:
        """refusal: the code with which it must be refused; 0 for none."""
        reply = yield Request(command, database or self.database)
        if reply is None or reply.get("code") in AGAIN_CODES:
            return False
        if "convertToCapped" in command and reply.get("code") == REPLACED:
            return False  # by a node that was taken for dead, whose temporary collection was dropped
        assert reply.get("code", 0) == refusal, f"{command} was answered {reply}; there is {self.known}"
        return True

    def create(self) -> Generator[Request, Any, bool]:
        name = self.random.choice(self.names)
        done = yield from self.change({"create": name}, EXISTS if name in self.capped else 0)
        if done and self.known[name] is None:
            self.known[name] = {}
        return done

    def index(self) -> Generator[Request, Any, bool]:
        name = self.random.choice(self.names)
        spec: Document = self.random.choice(
            [
                {"key": {"x": 1}, "name": "x_1"},
                {"key": {"y": 1}, "name": "y_1", "unique": True},
                {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600},
            ]
        )
        known = self.known[name]
        if known is not None and spec["name"] in known:
            return True
        done = yield from self.change({"createIndexes": name, "indexes": [spec]})
        if done:
            self.known[name] = {**(known or {}), spec["name"]: spec}
        return done

    def drop_index(self) -> Generator[Request, Any, bool]:
        name = self.random.choice(self.names)
        known = self.known[name]
        index = self.random.choice(["x_1", "y_1"])
        refusal = NO_NAMESPACE if known is None else 0 if index in known else NO_INDEX
        done = yield from self.change({"dropIndexes": name, "index": index}, refusal)
        if done and known is not None:
            known.pop(index, None)
        return done

    def change_ttl(self) -> Generator[Request, Any, bool]:
        name = self.random.choice(self.names)
        known = self.known[name]
        if known is None or "at_1" not in known:
            return True
        seconds = self.random.choice([60, 120, 7200])
        done = yield from self.change({"collMod": name, "index": {"name": "at_1", "expireAfterSeconds": seconds}})
        if done:
            known["at_1"] = {**known["at_1"], "expireAfterSeconds": seconds}
        return done

    def rename(self) -> Generator[Request, Any, bool]:
        source, target = self.random.sample(self.names, 2)
        refusal = NO_NAMESPACE if self.known[source] is None else EXISTS if self.known[target] is not None else 0
        command = {"renameCollection": f"{self.database}.{source}", "to": f"{self.database}.{target}"}
        done = yield from self.change(command, refusal, "admin")
        if done and not refusal:
            self.known[target], self.known[source] = self.known[source], None
            self.documents[target], self.documents[source] = self.documents[source], 0
            if source in self.capped:
                self.capped.remove(source)
                self.capped.add(target)
        return done

    def drop(self) -> Generator[Request, Any, bool]:
        name = self.random.choice(self.names)
        done = yield from self.change({"drop": name})
        if done:
            self.known[name] = None
            self.documents[name] = 0
            self.capped.discard(name)
        return done

    def make_capped(self) -> Generator[Request, Any, bool]:
        """It keeps its documents, and loses its indexes."""
        name = self.random.choice(self.names)
        refusal = NO_NAMESPACE if self.known[name] is None else 0
        done = yield from self.change({"convertToCapped": name, "size": 1 << 20}, refusal)
        if done and not refusal:
            self.known[name] = {}
            self.capped.add(name)
        return done

    def insert(self) -> Generator[Request, Any, bool]:
        """A document whose array makes the index on `x` one of several keys."""
        name = self.random.choice(self.names)
        self.stage.token += 1
        document = {"x": self.random.choice([1, [1, 2]]), "y": self.stage.token}
        reply = yield Request({"insert": name, "documents": [document]}, self.database)
        if reply is None or reply.get("code") in AGAIN_CODES:
            return False
        assert reply["ok"] and reply["n"] == 1, f"{reply}; there is {self.known}"
        self.known[name] = self.known[name] or {}
        self.documents[name] += 1
        return True

    # Checks, on any node

    def check_collections(self) -> Client:
        reply = yield Request({"listCollections": 1, "nameOnly": True}, self.database)
        if reply is None:
            return
        assert reply["ok"], reply
        found = {entry["name"] for entry in reply["cursor"]["firstBatch"]}
        expected = {name for name, known in self.known.items() if known is not None}
        assert found == expected, f"a node lists {found}; there is {expected}"
        self.checks += 1

    def check_indexes(self) -> Client:
        name = self.random.choice(self.names)
        known = self.known[name]
        reply = yield Request({"listIndexes": name}, self.database)
        if reply is None:
            return
        if known is None:
            assert reply.get("code") == NO_NAMESPACE, reply
            return
        assert reply["ok"], reply
        found = {index["name"]: index for index in reply["cursor"]["firstBatch"]}
        assert found.keys() == {"_id_", *known}, f"a node lists {found}; there is {known}"
        for index, spec in known.items():
            assert found[index].get("expireAfterSeconds") == spec.get("expireAfterSeconds"), f"{found}, not {known}"
        self.checks += 1

    def check_reads(self) -> Client:
        name = self.random.choice(self.names)
        known = self.known[name]
        command: Document = {"find": name, "filter": {"x": 1}}
        hinted = self.random.random() < 0.5
        if hinted and known is not None:
            command["hint"] = "x_1"
        reply = yield Request(command, self.database)
        if reply is None:
            return
        if hinted and known is not None and "x_1" not in known:
            assert reply.get("code") == 2, f"an index was used that was dropped: {reply}"
            return
        assert reply["ok"], f"{command}: {reply}; there is {self.known}"
        found = len(reply["cursor"]["firstBatch"])
        assert found == self.documents[name], f"{command}: {found} found, not {self.documents[name]}"
        self.checks += 1
