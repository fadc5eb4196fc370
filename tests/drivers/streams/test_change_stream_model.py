"""Change streams against a model: events rebuild the collection, and a stream resumed behind any event tells the rest.

Random updates by modifiers and pipelines, transactions and index builds run on few documents, so that updates meet
arrays, numeric field names and missing paths. A seed reproduces a run.
"""

import copy
import random
from typing import Any

import pytest
from pymongo.change_stream import ChangeStream
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import PyMongoError

Documents = dict[str, Any]
OPTIONS: Documents = {
    "show_expanded_events": True,
    "full_document": "required",
    "full_document_before_change": "required",
    "max_await_time_ms": 1,
}
OPERATIONS = 120
RESUMES = 8


class Writer:
    """Writes at random; many of its updates fail, and change nothing."""

    def __init__(self, coll: Collection[Documents], seed: int) -> None:
        self.coll = coll
        self.random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        kind = self.random.random()
        if kind < 0.4 or depth > 2:
            return self.random.choice([0, 1, 2, "x", None, True, 1.5])
        if kind < 0.7:
            return {self.random.choice("ab01"): self.value(depth + 1) for _ in range(self.random.randint(0, 3))}
        return [self.value(depth + 1) for _ in range(self.random.randint(0, 4))]

    def path(self) -> str:
        below = [self.random.choice("ab012") for _ in range(self.random.randint(0, 2))]
        return ".".join([self.random.choice("ab"), *below])

    def update(self) -> Any:
        path, value = self.path(), self.value()
        return self.random.choice(
            [
                {"$set": {path: value}},
                {"$set": {f"{path}.$[]": value}},
                {"$unset": {path: 1}},
                {"$inc": {path: 1}},
                {"$push": {path: {"$each": [1, 2], "$position": self.random.randint(0, 2)}}},
                {"$push": {path: {"$each": [value], "$slice": -2}}},
                {"$pop": {path: self.random.choice([1, -1])}},
                {"$pull": {path: value}},
                {"$addToSet": {path: value}},
                {"$rename": {"a": "c"}},
                [{"$set": {path: {"$literal": value}}}],
                [{"$unset": path}],
                [{"$set": {"a": {"$literal": value}, "b": {"$literal": self.value()}}}],
            ]
        )

    def write(self) -> None:
        key = self.random.randint(0, 6)
        kind = self.random.random()
        coll = self.coll
        if kind < 0.2:
            coll.replace_one({"_id": key}, {"a": self.value(), "b": self.value()}, upsert=True)
        elif kind < 0.25:
            coll.delete_one({"_id": key})
        elif kind < 0.35:
            with coll.database.client.start_session() as session, session.start_transaction():
                coll.update_many({}, self.update(), session=session)
                coll.delete_one({"_id": key}, session=session)
                coll.insert_one({"_id": key, "a": self.value()}, session=session)
        elif kind < 0.4:
            coll.update_many({}, self.update())
        elif kind < 0.45:
            coll.create_index("z")
            coll.drop_indexes()
        elif kind < 0.5:
            coll.database.other.insert_one({})
        else:
            coll.update_one({"_id": key}, self.update())


def described(before: Documents, description: Documents) -> Documents:
    """A document after the update that an `updateDescription` tells of."""
    after = copy.deepcopy(before)
    ambiguous = description["disambiguatedPaths"]

    def place(path: str) -> tuple[Any, Any]:
        parts = ambiguous.get(path) or path.split(".")
        node: Any = after
        for part in parts[:-1]:
            node = node[int(part) if isinstance(node, list) else part]
        return node, int(parts[-1]) if isinstance(node, list) else parts[-1]

    for item in description["truncatedArrays"]:
        node, last = place(item["field"])
        del node[last][item["newSize"] :]
    for path in description["removedFields"]:
        node, last = place(path)
        del node[last]
    for path, value in description["updatedFields"].items():
        node, last = place(path)
        if isinstance(node, list) and last == len(node):
            node.append(value)
        else:
            node[last] = value
    return after


def rest_of(stream: "ChangeStream[Documents]") -> list[Documents]:
    events = []
    while (event := stream.try_next()) is not None:
        events.append(event)
    return events


@pytest.mark.parametrize("seed", range(4))
def test_events_rebuild_the_collection(database: Database[Documents], seed: int) -> None:
    coll = database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    writer = Writer(coll, seed)
    with coll.watch(**OPTIONS) as stream:
        for _ in range(OPERATIONS):
            try:
                writer.write()
            except PyMongoError as error:
                assert getattr(error, "code", None) != 1, error  # InternalError
        events = rest_of(stream)
    model: dict[int, Documents] = {}
    for event in events:
        kind = event["operationType"]
        if "documentKey" not in event:
            continue
        key = event["documentKey"]["_id"]
        assert event.get("fullDocumentBeforeChange") == model.pop(key, None)
        if kind == "update":
            assert described(event["fullDocumentBeforeChange"], event["updateDescription"]) == event["fullDocument"]
        if kind != "delete":
            model[key] = event["fullDocument"]
    assert model == {document["_id"]: document for document in coll.find()}
    resume_anywhere(coll, events, writer.random)


def resume_anywhere(coll: Collection[Documents], events: list[Documents], choose: random.Random) -> None:
    """Resumes behind random events, in pages of random size, and once more by the token of a page."""
    for _ in range(RESUMES):
        index = choose.randrange(len(events))
        token = events[index]["_id"]
        with coll.watch(resume_after=token, batch_size=choose.choice([1, 3, 1000]), **OPTIONS) as stream:
            told = [event for _ in range(choose.randint(0, 5)) if (event := stream.try_next()) is not None]
            token = stream.resume_token
        with coll.watch(start_after=token, **OPTIONS) as stream:
            assert told + rest_of(stream) == events[index + 1 :]
