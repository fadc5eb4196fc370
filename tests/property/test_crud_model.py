"""Random reads and writes against a slow, obvious model, on three servers at once: with plain indexes, without, and
with unique ones alone. The unique index on `u` is on all of them, since it decides what a write may do.

Where several documents would do, the command says by a sort which one it means, so that plans may differ.
"""

import copy
from typing import Any, TypeAlias

import bson
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.errors import CommandError
from tests.running import Running

Documents: TypeAlias = dict[str, Any]

IDS = st.integers(0, 7)
NUMBERS = st.integers(0, 3)
VALUES = st.one_of(NUMBERS, st.none(), st.lists(NUMBERS, max_size=3), st.sampled_from(["x", 1.0]))


def values_of(document: Documents, name: str) -> list[Any]:
    """What a condition on a field may be met by: the value, and the elements of an array."""
    if name not in document:
        return [None]
    value = document[name]
    return [value, *value] if isinstance(value, list) else [value]


def meets(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$in":
        return value in operand
    if not isinstance(value, (int, float)):
        return False
    return bool(value > operand if operator == "$gt" else value <= operand)


def matches(document: Documents, filter: Documents) -> bool:
    for name, condition in filter.items():
        operator, operand = next(iter(condition.items()))
        if not any(meets(value, operator, operand) for value in values_of(document, name)):
            return False
    return True


class Refused(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


class Model:
    """Documents by `_id`; `u` is unique among those that have it."""

    def __init__(self) -> None:
        self.documents: dict[int, Documents] = {}

    def select(self, filter: Documents) -> list[Documents]:
        """What matches, by `_id`."""
        return [self.documents[key] for key in sorted(self.documents) if matches(self.documents[key], filter)]

    def put(self, document: Documents) -> None:
        for other in self.documents.values():
            if other["_id"] != document["_id"] and "u" in document and other.get("u", document) == document["u"]:
                raise Refused(11000)
        self.documents[document["_id"]] = document

    def insert(self, document: Documents) -> None:
        if document["_id"] in self.documents:
            raise Refused(11000)
        self.put({"_id": document["_id"], **copy.deepcopy(document)})

    def insert_many(self, documents: list[Documents], ordered: bool) -> Documents:
        inserted = 0
        errors: list[tuple[int, int]] = []
        for place, document in enumerate(documents):
            try:
                self.insert(document)
                inserted += 1
            except Refused as refused:
                errors.append((place, refused.code))
                if ordered:
                    break
        return {"n": inserted, "errors": errors}

    def changed(self, document: Documents, update: Any) -> tuple[Documents, bool]:
        """A document after an update, and whether that counts as a modification."""
        new = copy.deepcopy(document)
        if isinstance(update, list):
            new["n"] = len(document)
            return new, new != document
        operator = next(iter(update))
        if not operator.startswith("$"):
            return {"_id": document["_id"], **copy.deepcopy(update)}, True
        name, operand = next(iter(update[operator].items()))
        if operator == "$set":
            new[name] = copy.deepcopy(operand)
        elif operator == "$unset":
            new.pop(name, None)
        elif operator == "$inc":
            new[name] = new.get(name, 0) + operand
        elif operator == "$push":
            new.setdefault(name, []).append(operand)
        elif operator == "$pull" and name in new:
            new[name] = [item for item in new[name] if item != operand]
        # 1 and 1.0 are not the same to $set.
        return new, bson.encode(new) != bson.encode(document)

    def update(self, filter: Documents, update: Any, multi: bool, upsert: bool) -> Documents:
        chosen = self.select(filter)
        if not multi:
            chosen = chosen[:1]
        modified = 0
        for document in chosen:
            new, counts = self.changed(document, update)
            self.put(new)
            modified += counts
        if chosen or not upsert:
            return {"n": len(chosen), "modified": modified, "upserted": None}
        made = self.upserted(filter, update)
        self.insert(made)
        return {"n": 1, "modified": 0, "upserted": made["_id"]}

    def upserted(self, filter: Documents, update: Any) -> Documents:
        return self.changed({"_id": filter["_id"]["$eq"]}, update)[0]

    def find_and_modify(self, filter: Documents, update: Any, remove: bool, new: bool, upsert: bool) -> Any:
        chosen = self.select(filter)[:1]
        if remove:
            for document in chosen:
                del self.documents[document["_id"]]
            return chosen[0] if chosen else None
        self.update(filter, update, False, upsert)
        if chosen:
            return self.documents[chosen[0]["_id"]] if new else chosen[0]
        return self.documents[filter["_id"]["$eq"]] if new and upsert else None

    def delete(self, filter: Documents) -> int:
        chosen = self.select(filter)
        for document in chosen:
            del self.documents[document["_id"]]
        return len(chosen)


by_id = st.builds(lambda value: {"_id": {"$eq": value}}, IDS)
filters = st.one_of(
    by_id,
    st.builds(lambda value: {"_id": {"$gt": value}}, IDS),
    st.builds(lambda value: {"u": {"$eq": value}}, NUMBERS),
    st.builds(lambda value: {"a": {"$eq": value}}, st.one_of(NUMBERS, st.none())),
    st.builds(lambda value: {"a": {"$gt": value}}, NUMBERS),
    st.builds(lambda values: {"a": {"$in": values}}, st.lists(NUMBERS, max_size=3)),
    st.builds(lambda a, n: {"a": {"$eq": a}, "n": {"$lte": n}}, NUMBERS, NUMBERS),
    st.just({}),
)
plain_updates = st.one_of(
    st.builds(lambda value: {"$set": {"a": value}}, VALUES),
    st.builds(lambda value: {"$inc": {"n": value}}, st.integers(-1, 2)),
    st.just({"$unset": {"a": ""}}),
    st.builds(lambda value: {"$push": {"l": value}}, NUMBERS),
    st.builds(lambda value: {"$pull": {"l": value}}, NUMBERS),
    st.just([{"$set": {"n": {"$size": {"$objectToArray": "$$ROOT"}}}}]),
)
# What may meet the unique index is done to one document at a time: how far a failed update of many came depends on its
# plan.
single_updates = st.one_of(
    plain_updates,
    st.builds(lambda value: {"$set": {"u": value}}, NUMBERS),
    st.just({"$unset": {"u": ""}}),
    st.builds(lambda a, u: {"a": a, "u": u}, VALUES, NUMBERS),
    st.builds(lambda a: {"a": a}, VALUES),
)
documents = st.fixed_dictionaries({"_id": IDS}, optional={"a": VALUES, "n": NUMBERS, "u": NUMBERS})
operations = st.one_of(
    st.tuples(st.just("insert"), st.lists(documents, min_size=1, max_size=4), st.booleans()),
    st.tuples(st.just("update"), filters, single_updates),
    st.tuples(st.just("update many"), filters, plain_updates),
    st.tuples(st.just("upsert"), by_id, single_updates),
    st.tuples(st.just("batch"), st.lists(st.tuples(by_id, single_updates), min_size=1, max_size=4), st.booleans()),
    st.tuples(st.just("modify"), filters, single_updates, st.booleans()),
    st.tuples(st.just("modify or insert"), by_id, single_updates, st.booleans()),
    st.tuples(st.just("take"), filters),
    st.tuples(st.just("delete"), filters),
    st.tuples(st.just("delete one"), by_id),
    st.tuples(st.just("read"), filters),
)
SORT: Documents = {"_id": 1}


def errors_of(reply: Documents) -> list[tuple[int, int]]:
    return [(entry["index"], entry["code"]) for entry in reply.get("writeErrors", [])]


def run_update(server: Running, statements: list[Documents], ordered: bool) -> Documents:
    reply = server.run({"update": "c", "updates": statements, "ordered": ordered})
    upserted = [entry["_id"] for entry in reply.get("upserted", [])]
    return {"n": reply["n"], "modified": reply["nModified"], "upserted": upserted, "errors": errors_of(reply)}


def expected_update(model: Model, statements: list[Documents], ordered: bool) -> Documents:
    total: Documents = {"n": 0, "modified": 0, "upserted": [], "errors": []}
    for place, one in enumerate(statements):
        try:
            done = model.update(one["q"], one["u"], one.get("multi", False), one.get("upsert", False))
        except Refused as refused:
            total["errors"].append((place, refused.code))
            if ordered:
                break
            continue
        total["n"] += done["n"]
        total["modified"] += done["modified"]
        if done["upserted"] is not None:
            total["upserted"].append(done["upserted"])
    return total


def statements_of(operation: tuple[Any, ...]) -> tuple[list[Documents], bool]:
    kind = operation[0]
    if kind == "batch":
        return [{"q": q, "u": u, "upsert": place % 2 == 0} for place, (q, u) in enumerate(operation[1])], operation[2]
    one: Documents = {"q": operation[1], "u": operation[2]}
    if kind == "update":
        one["sort"] = SORT
    elif kind == "update many":
        one["multi"] = True
    else:
        one["upsert"] = True
    return [one], True


def expected(model: Model, operation: tuple[Any, ...]) -> Any:
    """What the model makes of an operation."""
    kind, subject = operation[0], operation[1]
    if kind == "insert":
        return model.insert_many(subject, operation[2])
    if kind in ("update", "update many", "upsert", "batch"):
        return expected_update(model, *statements_of(operation))
    if kind in ("modify", "modify or insert"):
        try:
            return model.find_and_modify(subject, operation[2], False, operation[3], kind == "modify or insert")
        except Refused as refused:
            return refused.code
    if kind == "take":
        return model.find_and_modify(subject, None, True, False, False)
    if kind == "read":
        found = model.select(subject)
        return found, len(found)
    return model.delete(subject)


def carried_out(server: Running, operation: tuple[Any, ...]) -> Any:
    """What a server makes of it, in the model's terms."""
    kind, subject = operation[0], operation[1]
    if kind == "insert":
        reply = server.run({"insert": "c", "documents": subject, "ordered": operation[2]})
        return {"n": reply["n"], "errors": errors_of(reply)}
    if kind in ("update", "update many", "upsert", "batch"):
        return run_update(server, *statements_of(operation))
    modify: Documents = {"findAndModify": "c", "query": subject, "sort": SORT}
    if kind in ("modify", "modify or insert"):
        modify.update(update=operation[2], new=operation[3], upsert=kind == "modify or insert")
        try:
            return server.run(modify)["value"]
        except CommandError as error:
            return error.code
    if kind == "take":
        return server.run({**modify, "remove": True})["value"]
    if kind == "read":
        found = server.run({"find": "c", "filter": subject, "sort": SORT})["cursor"]["firstBatch"]
        return found, server.run({"count": "c", "query": subject})["n"]
    limit = 1 if kind == "delete one" else 0
    return server.run({"delete": "c", "deletes": [{"q": subject, "limit": limit}]})["n"]


def server_with(*keys: Documents) -> Running:
    server = Running()
    unique: Documents = {"key": {"u": 1}, "name": "u_1", "unique": True, "sparse": True}
    plain = [{"key": key, "name": "_".join(map(str, key))} for key in keys]
    server.run({"createIndexes": "c", "indexes": [unique, *plain]})
    return server


@settings(max_examples=150, deadline=None)
@given(st.lists(operations, min_size=1, max_size=14))
def test_reads_and_writes_equal_the_model(history: list[tuple[Any, ...]]) -> None:
    model = Model()
    servers = [server_with(), server_with({"a": 1}, {"n": -1}), server_with({"a": -1, "n": 1}, {"l": 1, "_id": 1})]
    for operation in history:
        wanted = copy.deepcopy(expected(model, operation))
        for server in servers:
            assert carried_out(server, operation) == wanted, operation
    stored = [[*document.items()] for document in model.select({})]
    for server in servers:
        found = server.run({"find": "c", "sort": SORT})["cursor"]["firstBatch"]
        assert [[*document.items()] for document in found] == stored
        by_unique = server.run({"find": "c", "filter": {"u": {"$gte": 0}}, "hint": "u_1", "sort": SORT})
        assert [d["_id"] for d in by_unique["cursor"]["firstBatch"]] == [d["_id"] for d in model.select({}) if "u" in d]
