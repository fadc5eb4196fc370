"""A client that follows the database by a change stream, which it resumes again and again.

Every event comes once and in its order, those of a transaction together, whatever happens to the server and to the
cursor; and the events since the beginning, applied one after another, make exactly what is stored.
"""

from typing import Any

import bson
from bson import Int64, Timestamp

from tests.oplog_replay import Data
from tests.simulation.world import Client, Document, Request, World

CURSOR_NOT_FOUND = 43
QUERY_PLAN_KILLED = 175
STORAGE_FAILED = 96
BEGINNING = Timestamp(1, 1)


class Follower:
    """data: what the events make, by namespace and encoded `_id`. token: of the last event, or of a later moment."""

    def __init__(self, world: World, faulty: bool) -> None:
        self.world = world
        self.random = world.random
        self.allowed = (CURSOR_NOT_FOUND, QUERY_PLAN_KILLED, *((STORAGE_FAILED,) if faulty else ()))
        self.power_cuts = 0
        self.resumed = 0
        self.events = 0
        self.begin()

    def begin(self) -> None:
        self.data: Data = {}
        self.token: Document | None = None
        self.last_event = ""
        self.last_transaction: tuple[bytes, int] | None = None
        self.transactions: set[tuple[bytes, int]] = set()

    def opening(self) -> Document:
        """The command that opens the stream at the beginning, or where it was left."""
        start: Document = {"startAtOperationTime": BEGINNING}
        if self.token is not None:
            self.resumed += 1
            start = {self.random.choice(["resumeAfter", "startAfter"]): self.token}
        cursor: Document = {} if self.random.random() < 0.3 else {"batchSize": self.random.randrange(6)}
        return {"aggregate": 1, "pipeline": [{"$changeStream": start}], "cursor": cursor}

    def follow(self) -> Client:
        while True:
            if self.world.power_cuts > self.power_cuts:  # it has lost what the stream may have shown
                self.power_cuts = self.world.power_cuts
                self.begin()
            runs = self.world.crashes
            reply = yield Request(self.opening())
            while reply is not None and self.world.crashes == runs and self.read(reply):
                if self.random.random() < 0.1:
                    break  # leaves the cursor, and opens another one where this one was
                more: Document = {"getMore": Int64(reply["cursor"]["id"]), "collection": "$cmd.aggregate"}
                if self.random.random() < 0.5:
                    more["batchSize"] = self.random.randrange(1, 6)
                if self.random.random() < 0.7:
                    more["maxTimeMS"] = self.random.choice([1, 20, 500])
                reply = yield Request(more)

    def read(self, reply: Document) -> bool:
        """Takes the events of a reply; whether it was none that ends the cursor."""
        if not reply["ok"]:
            assert reply["code"] in self.allowed, reply
            return False
        cursor = reply["cursor"]
        for event in cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]:
            self.take(event)
        self.token = cursor["postBatchResumeToken"]
        assert self.token is not None and self.last_event <= self.token["_data"], reply
        return True

    def take(self, event: Document) -> None:
        token = event["_id"]["_data"]
        assert self.last_event < token, f"{event} came after {self.last_event}"
        self.last_event = token
        self.token = event["_id"]
        self.events += 1
        transaction = (bytes(event["lsid"]["id"]), event["txnNumber"]) if "txnNumber" in event else None
        if transaction != self.last_transaction:
            assert transaction not in self.transactions, f"{event} came apart from the rest of its transaction"
            self.last_transaction = transaction
            if transaction is not None:
                self.transactions.add(transaction)
        self.apply(event)

    def apply(self, event: Document) -> None:
        kind = event["operationType"]
        if kind in ("rename", "drop"):
            return  # a copy takes the place of what it is a copy of, or is given up (`node_clients.capper`)
        held = self.data.setdefault(f"{event['ns']['db']}.{event['ns']['coll']}", {})
        key = bson.encode({"": event["documentKey"]["_id"]})
        assert (key in held) == (kind != "insert"), f"{event} does not fit {held.get(key)}"
        if kind == "delete":
            del held[key]
        elif kind == "update":
            held[key] = updated(held[key], event["updateDescription"])
        else:
            held[key] = event["fullDocument"]

    def check(self) -> None:
        """After the end of the simulation: reads what is left, and compares with what is stored."""
        self.compare(self.world.ask(self.rest()))

    def rest(self) -> Document:
        """The command that reads what is left."""
        if self.world.power_cuts > self.power_cuts:
            self.begin()
        return self.opening() | {"cursor": {"batchSize": 1_000_000}}

    def compare(self, reply: Document) -> None:
        """Takes what was left, and compares with what is stored."""
        assert self.read(reply)
        for collection in self.world.service.catalog.all_collections():
            if collection.namespace.startswith("sim."):
                stored = [bson.decode(record[1]) for record in collection.store.scan(0, 1_000_000)[0]]
                followed = self.data.get(collection.namespace, {})
                assert followed == {bson.encode({"": document["_id"]}): document for document in stored}


def updated(document: Document, description: Document) -> Document:
    """What an `updateDescription` makes of a document."""
    changed: Document = bson.decode(bson.encode(document))
    for truncated in description["truncatedArrays"]:
        holder, name = place(changed, truncated["field"])
        del holder[name][truncated["newSize"] :]
    for path in description["removedFields"]:
        holder, name = place(changed, path)
        del holder[name]
    for path, value in description["updatedFields"].items():
        holder, name = place(changed, path)
        if isinstance(holder, list) and name == len(holder):
            holder.append(value)
        else:
            holder[name] = value
    return changed


def place(document: Document, path: str) -> tuple[Any, Any]:
    """The container of the value at a path, and its name or index there."""
    holder: Any = document
    *names, last = path.split(".")
    for name in names:
        holder = holder[int(name) if isinstance(holder, list) else name]
    return holder, int(last) if isinstance(holder, list) else last
