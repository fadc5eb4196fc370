"""Updates and deletes whose records other operations change between two steps, or during which the clock moves."""

from collections.abc import Iterator
from typing import Any

import pytest

from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.running.stack import Steps
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import KeyRange
from tests.running import START_MS, Document, Running
from tests.steps import run_to_end

START_S = START_MS // 1000
# More than a batch of any scan.
MANY = 600


@pytest.fixture(params=["memory", "sqlite"])
def server(request: pytest.FixtureRequest) -> Running:
    """A server without `ContractEngine`, which would detect a changed record before the engine does."""
    return Running(open_engine(f"{request.param}:"))


def update(filter: Document, change: Any, **options: Any) -> Document:
    return {"update": "c", "updates": [{"q": filter, "u": change, **options}]}


def delete(filter: Document, **options: Any) -> Document:
    return {"delete": "c", "deletes": [{"q": filter, "limit": 0, **options}]}


def timestamps(server: Running, name: str = "c") -> dict[Value, int]:
    """Seconds since the start in which each document was written, by `_id`."""
    records = server.collection(name).store.scan(0, 1_000_000)[0]
    return {get_value(record[1], "_id"): record[2] - START_S for record in records}


def check_indexes(server: Running, name: str = "c") -> None:
    """Every index has exactly the keys of the records that it covers."""
    collection = server.collection(name)
    records = collection.store.scan(0, 1_000_000)[0]
    for index in collection.writable_indexes:
        assert index.data is not None
        covered = [record for record in records if index.covers_record(record[0])]
        expected = sorted((key, record[0]) for record in covered for key in index.keys_of(record[1]))
        assert index.data.scan(KeyRange(b"", b"\xff" * 9), None, 1_000_000)[0] == expected, index.name


def stepped(steps: Steps[Document]) -> Iterator[None]:
    """Yields after each step; discards the reply."""
    for _ in steps:
        yield


def finish(steps: Steps[Document]) -> Document:
    return run_to_end(steps)


def insert_many(server: Running, filter: Document) -> None:
    """Documents `{_id, n: 0, g: 0 or 1, loc: points ever further away, words}` with indexes on all of these.

    filter: that of the write to come; a text index is made only where it needs one.
    """
    server.index({"loc": "2dsphere"})
    server.index({"n": 1})
    server.index({"g": 1, "_id": 1})
    server.index({"h": 1, "_id": 1})
    if "$text" in filter:
        server.index({"words": "text"})
    for start in range(0, MANY, 100):
        server.insert(
            *(
                {
                    "_id": number,
                    "n": 0,
                    "g": number % 2,
                    "h": number % 2,
                    "loc": [number / 1000, 0],
                    "words": "tea " * (1 + number % 3),
                }
                for number in range(start, start + 100)
            )
        )


NEAR: Document = {"loc": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}
SELECTIONS: dict[str, tuple[Document, Document]] = {
    "near": (NEAR, {}),
    "near and a filter": ({**NEAR, "g": {"$gte": 0}}, {}),
    "collection scan": ({}, {}),
    "natural": ({}, {"hint": {"$natural": -1}}),
    "index that changes": ({"n": {"$lt": 1000}}, {}),
    "hint": ({"g": {"$gte": 0}}, {"hint": {"g": 1, "_id": 1}}),
    "or": ({"$or": [{"g": 0}, {"h": 1}]}, {}),
    "text": ({"$text": {"$search": "tea"}}, {}),
    "_id": ({"_id": {"$gte": 0}}, {}),
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_update_many_loses_no_write_of_others(server: Running, selection: str) -> None:
    filter, options = SELECTIONS[selection]
    insert_many(server, filter)
    steps = server.steps(update(filter, {"$inc": {"n": 1}}, multi=True, **options))
    others = dict.fromkeys(range(MANY), 0)
    turn = 0
    with pytest.raises(StopIteration) as stop:
        while True:
            next(steps)
            turn += 1
            if turn % 4 == 0:
                remainder = turn // 4 % 20
                server.run(update({"_id": {"$mod": [20, remainder]}}, {"$inc": {"n": 1}}, multi=True))
                for number in range(remainder, MANY, 20):
                    others[number] += 1
    assert stop.value.value == {"n": MANY, "nModified": MANY}
    found = {document["_id"]: document["n"] for document in server.listed({"find": "c"})}
    assert found == {number: count + 1 for number, count in others.items()}
    check_indexes(server)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_update_many_leaves_what_no_longer_matches(server: Running, selection: str) -> None:
    """Most documents are deleted, or changed so that they do not match, after the first ones were updated."""
    filter, options = SELECTIONS[selection]
    insert_many(server, filter)
    steps = server.steps(update({**filter, "gone": {"$exists": False}}, {"$inc": {"n": 1}}, multi=True, **options))
    while not server.ids(filter={"n": 1}):
        next(steps)
    first = set(server.ids(filter={"n": 1}))
    moved = range(100, 500)
    server.run(update({"_id": {"$in": list(moved)}}, {"$set": {"gone": True}}, multi=True))
    server.run({"delete": "c", "deletes": [{"q": {"_id": {"$in": list(range(500, 550))}}, "limit": 0}]})
    reply = finish(steps)
    updated = set(server.ids(filter={"n": 1}))
    assert updated - first == {*range(100), *range(550, MANY)} - first
    assert reply["n"] == len(first) + len(updated - first)
    check_indexes(server)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_delete_many_leaves_what_no_longer_matches(server: Running, selection: str) -> None:
    filter, options = SELECTIONS[selection]
    insert_many(server, filter)
    steps = server.steps(delete({**filter, "gone": {"$exists": False}}, **options))
    while server.run({"count": "c"})["n"] == MANY:
        next(steps)
    left = set(server.ids())
    server.run(update({"_id": {"$gte": 100, "$lt": 500}}, {"$set": {"gone": True}}, multi=True))
    reply = finish(steps)
    assert set(server.ids()) == {number for number in left if 100 <= number < 500}
    assert reply["n"] == MANY - len(server.ids())
    check_indexes(server)


ORDERS: dict[str, tuple[Document, Document]] = {
    "sort": ({}, {"sort": {"x": 1}}),
    "sort by index": ({"g": {"$gte": 0}}, {"sort": {"_id": 1}}),
    "merged": ({"$or": [{"g": 0}, {"h": 1}]}, {"sort": {"_id": 1}}),
    "text score": ({"$text": {"$search": "tea"}}, {"sort": {"score": {"$meta": "textScore"}}}),
    "near": (NEAR, {}),
}


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_find_and_modify_takes_the_record_as_it_is(server: Running, order: str, remove: bool) -> None:
    filter, options = ORDERS[order]
    insert_many(server, filter)
    change = {"remove": True} if remove else {"update": {"$inc": {"n": 1}}, "new": True}
    command = {"findAndModify": "c", "query": {**filter, "gone": {"$exists": False}}, **change, **options}
    expected = server.run({**command, "remove": False, "update": {"$set": {"seen": 1}}})["value"]["_id"]
    steps = server.steps(command)
    changes = 0
    with pytest.raises(StopIteration) as stop:
        while True:
            next(steps)
            # The first document changes repeatedly, but remains the first.
            server.run(update({"_id": expected}, {"$inc": {"n": 1, "other": 1}}))
            changes += 1
    value = stop.value.value["value"]
    assert value["_id"] == expected
    assert value.get("other", 0) == changes
    assert value["n"] == changes + (0 if remove else 1)
    check_indexes(server)


@pytest.mark.parametrize("order", ORDERS)
def test_find_and_modify_passes_over_what_no_longer_matches(server: Running, order: str) -> None:
    filter, options = ORDERS[order]
    insert_many(server, filter)
    command = {"findAndModify": "c", "query": {**filter, "gone": {"$exists": False}}, "remove": True, **options}
    steps = server.steps(command)
    gone: set[int] = set()
    with pytest.raises(StopIteration) as stop:
        while True:
            next(steps)
            number = len(gone)
            server.run(update({"_id": number}, {"$set": {"gone": True}}))
            gone.add(number)
    removed = stop.value.value["value"]
    assert "gone" not in removed
    assert len(server.ids()) == MANY - 1
    check_indexes(server)


def test_near_gives_what_has_moved_away_by_its_new_place(server: Running) -> None:
    insert_many(server, {})
    far: Document = {"loc": {"$near": {**NEAR["loc"]["$near"], "$maxDistance": 90_000}}}
    steps = server.steps(update(far, {"$set": {"n": 1}}, multi=True))
    while not server.ids(filter={"n": 1}):
        next(steps)
    first = server.ids(filter={"n": 1})
    assert MANY - 1 not in first
    server.run(update({"_id": MANY - 1}, {"$set": {"loc": [5, 5]}}))
    finish(steps)
    assert server.ids(filter={"n": 1}) == list(range(MANY - 1))


class TestClock:
    """Long writes, with the clock moving between their steps."""

    @pytest.mark.parametrize("selection", SELECTIONS)
    def test_update_many_dates_by_the_write(self, server: Running, selection: str) -> None:
        filter, options = SELECTIONS[selection]
        insert_many(server, filter)
        steps = server.steps(update(filter, {"$inc": {"n": 1}, "$set": {"at": "$$NOW"}}, multi=True, **options))
        elapsed = 0
        expected: dict[Value, int] = {}
        for _ in stepped(steps):
            for number in server.ids(filter={"n": 1}):
                expected.setdefault(number, elapsed)
            server.advance(1)
            elapsed += 1
        for number in range(MANY):
            expected.setdefault(number, elapsed)
        assert timestamps(server) == expected
        assert len(set(expected.values())) > 1

    def test_update_many_does_not_take_another_write_back(self, server: Running) -> None:
        insert_many(server, {})
        steps = server.steps(update({}, {"$inc": {"n": 1}}, multi=True))
        next(steps)
        server.advance(4)
        server.run(update({"_id": MANY - 1}, {"$set": {"heartbeat": 1}}))
        finish(steps)
        assert timestamps(server)[MANY - 1] == 4

    def test_a_clock_that_was_set_back_dates_by_what_it_says(self, server: Running) -> None:
        server.insert({"_id": 1})
        server.advance(-100)
        server.run(update({"_id": 1}, {"$set": {"x": 1}}))
        assert timestamps(server) == {1: -100}

    def test_nothing_that_died_meanwhile_is_brought_back(self, server: Running) -> None:
        server.index({"_ts": 1}, expireAfterSeconds=10)
        insert_many(server, {})
        steps = server.steps(update({}, {"$inc": {"n": 1}}, multi=True))
        next(steps)
        server.advance(10)
        reply = finish(steps)
        assert 0 < reply["n"] < MANY
        assert server.ids() == []

    def test_documents_that_expire_during_a_delete_are_not_counted(self, server: Running) -> None:
        server.index({"_ts": 1}, expireAfterSeconds=10)
        insert_many(server, {})
        steps = server.steps(delete({}))
        next(steps)
        deleted = MANY - server.run({"count": "c"})["n"]
        server.advance(10)
        assert finish(steps) == {"n": deleted}

    def test_find_and_modify_inserts_in_place_of_what_died(self, server: Running) -> None:
        filter, options = ORDERS["sort"]
        server.index({"_ts": 1}, expireAfterSeconds=10)
        insert_many(server, filter)
        command = {"findAndModify": "c", "query": filter, "update": {"$set": {"x": 1}}, "upsert": True, "new": True}
        steps = server.steps({**command, **options})
        next(steps)
        server.advance(10)
        assert finish(steps)["lastErrorObject"]["updatedExisting"] is False
        assert len(server.ids()) == 1

    def test_insert_dates_by_the_write(self, server: Running) -> None:
        steps = server.steps({"insert": "c", "documents": [{"_id": number} for number in range(1200)]})
        for _ in stepped(steps):
            server.advance(3)
        assert sorted(set(timestamps(server).values())) == [0, 3, 6]

    def test_inserts_one_by_one_date_by_the_write(self, server: Running) -> None:
        documents = [{"_id": number % 1100} for number in range(1200)]
        steps = server.steps({"insert": "c", "documents": documents, "ordered": False})
        for _ in stepped(steps):
            server.advance(3)
        found = timestamps(server)
        assert [found[number] for number in (0, 499, 500, 999)] == [0, 0, 3, 3]
        # After the others ran, as after each of them.
        assert [found[number] for number in range(1000, 1100)] == [6 + 3 * number for number in range(100)]

    def test_bulk_write_dates_by_the_write(self, server: Running) -> None:
        operations: list[Document] = [{"insert": 0, "document": {"_id": number}} for number in (1, 2)]
        operations += [
            {"update": 0, "filter": {"_id": 1, "x": None}, "updateMods": {"$set": {"x": 1}}},
            {"update": 0, "filter": {"_id": 3}, "updateMods": {"$set": {"x": 1}}, "upsert": True},
        ]
        steps = server.steps({"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}]}, "admin")
        for _ in stepped(steps):
            server.advance(3)
        written = timestamps(server)
        assert written[2] == 0
        assert 3 <= written[1] < written[3]

    @pytest.mark.parametrize("mode", ["replace", "merge", [{"$set": {"x": "$$new.n"}}]])
    def test_merge_dates_by_the_write(self, server: Running, mode: Any) -> None:
        server.insert(*({"_id": number, "n": number} for number in range(MANY)))
        server.insert(*({"_id": number} for number in range(0, MANY, 2)), into="d")
        pipeline = [{"$merge": {"into": "d", "whenMatched": mode}}]
        steps = server.steps({"aggregate": "c", "pipeline": pipeline, "cursor": {}})
        elapsed = 0
        expected: dict[Value, int] = {}
        known = set(range(0, MANY, 2))
        for _ in stepped(steps):
            for number, at in timestamps(server, "d").items():
                if at or number not in known:
                    expected.setdefault(number, elapsed)
            server.advance(1)
            elapsed += 1
        written = timestamps(server, "d")
        assert len(set(written.values())) > 2
        assert {number: at for number, at in written.items() if at} == {n: at for n, at in expected.items() if at}

    def test_merge_does_not_bring_back_what_died_meanwhile(self, server: Running) -> None:
        server.index({"_ts": 1}, on="d", expireAfterSeconds=10)
        server.insert(*({"_id": number} for number in range(MANY)))
        server.insert(*({"_id": number, "old": True} for number in range(MANY)), into="d")
        steps = server.steps({"aggregate": "c", "pipeline": [{"$merge": "d"}], "cursor": {}})
        while not any(timestamps(server, "d").values()):
            next(steps)
            server.advance(4)
        server.advance(6)
        finish(steps)
        found = server.listed({"find": "d"})
        assert len(found) > MANY / 2
        last = [document for document in found if document["_id"] == MANY - 1]
        assert last == [{"_id": MANY - 1}]

    def test_out_dates_by_the_write(self, server: Running) -> None:
        server.insert(*({"_id": number} for number in range(MANY)))
        server.index({"_ts": 1}, on="d", expireAfterSeconds=1000)
        steps = server.steps({"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}})
        for _ in stepped(steps):
            server.advance(1)
        written = timestamps(server, "d")
        assert len(written) == MANY
        assert len(set(written.values())) > 2
        assert min(written.values()) > 0

    def test_expiry_counts_from_each_write_of_a_long_update(self, server: Running) -> None:
        server.index({"_ts": 1}, expireAfterSeconds=10)
        insert_many(server, {})
        steps = server.steps(update({}, {"$inc": {"n": 1}}, multi=True))
        elapsed = 0
        for _ in stepped(steps):
            server.advance(1)
            elapsed += 1
        last = max(timestamps(server).values())
        assert last > 0
        server.advance(last + 9 - elapsed)
        assert 0 < server.reap() < MANY
        assert server.ids() == [number for number, at in timestamps(server).items() if at == last]
        server.advance(1)
        server.reap()
        assert server.collection().store.count() == 0

    def test_a_capped_collection_makes_room_by_the_instant_of_the_insert(self, server: Running) -> None:
        server.run({"create": "c", "capped": True, "size": 1_000_000, "max": 600})
        server.index({"_ts": 1}, expireAfterSeconds=10)
        steps = server.steps({"insert": "c", "documents": [{"_id": number} for number in range(1000)]})
        next(steps)
        server.advance(10)
        finish(steps)
        assert server.ids() == list(range(500, 1000))

    def test_a_unique_key_of_what_died_meanwhile_is_free(self, server: Running) -> None:
        server.index({"u": 1}, unique=True)
        server.index({"_ts": 1}, expireAfterSeconds=10)
        server.insert({"_id": "old", "u": 999})
        steps = server.steps({"insert": "c", "documents": [{"_id": n, "u": n, "ttl": -1} for n in range(1000)]})
        next(steps)
        server.advance(10)
        assert finish(steps) == {"n": 1000}


@pytest.mark.parametrize("value", [1, [1, 2]])
@pytest.mark.parametrize("filter", [{"n": {"$gte": 0}}, {"$or": [{"n": {"$gte": 0}}, {"m": 1}]}], ids=["index", "or"])
class TestOnce:
    """An update moves records ahead of the scan of the index that it changes, and updates each once."""

    def test_moved_by_the_update(self, server: Running, filter: Document, value: Any) -> None:
        server.index({"n": 1})
        server.index({"m": 1})
        server.insert(*({"_id": number, "n": number if value == 1 else [number, number + 5]} for number in range(MANY)))
        change = {"$inc": {"n": 10_000}} if value == 1 else {"$push": {"n": 10_000}}
        assert server.run(update(filter, change, multi=True)) == {"n": MANY, "nModified": MANY}
        check_indexes(server)

    def test_moved_by_others(self, server: Running, filter: Document, value: Any) -> None:
        server.index({"n": 1})
        server.index({"m": 1})
        server.insert(*({"_id": number, "n": number} for number in range(MANY)))
        steps = server.steps(update(filter, {"$inc": {"k": 1}}, multi=True))
        next(steps)
        moved = update({"_id": {"$lt": 10}}, {"$set": {"n": [10_000] if value == 1 else [0, 20_000]}}, multi=True)
        assert server.run(moved)["nModified"] == 10
        finish(steps)
        assert {document["k"] for document in server.listed({"find": "c"})} == {1}
        check_indexes(server)


BACKWARD: Document = {"hint": {"$natural": -1}}


def upsert_commands(filter: Document, change: Document) -> dict[str, tuple[Document, str]]:
    """One upsert by each command that can, with its database; a backward scan does not find what is inserted later."""
    bulk = {"update": 0, "filter": filter, "updateMods": change, "upsert": True, **BACKWARD}
    return {
        "update": (update(filter, change, upsert=True, **BACKWARD), "test"),
        "findAndModify": (
            {"findAndModify": "c", "query": filter, "update": change, "upsert": True, **BACKWARD},
            "test",
        ),
        "bulkWrite": ({"bulkWrite": 1, "ops": [bulk], "nsInfo": [{"ns": "test.c"}]}, "admin"),
    }


def error_code(steps: Steps[Document]) -> int:
    """The code of the error of a command or of its only statement; 0 if it succeeds."""
    try:
        reply = finish(steps)
    except CommandError as error:
        return error.code
    errors = reply.get("writeErrors") or [one for one in reply.get("cursor", {}).get("firstBatch", []) if not one["ok"]]
    return errors[0]["code"] if errors else 0


@pytest.mark.parametrize("command", ["update", "findAndModify", "bulkWrite"])
class TestUpsertThatLosesToAnInsert:
    """While an upsert looks for a document, another client inserts one with the same unique key."""

    def begin(self, server: Running, command: str, filter: Document, change: Document) -> Steps[Document]:
        server.index({"a": 1, "b": 1}, unique=True, partialFilterExpression={"a": {"$exists": True}})
        server.insert(*({"_id": number} for number in range(MANY)))
        request, database = upsert_commands(filter, change)[command]
        steps = server.steps(request, database)
        next(steps)
        return steps

    @pytest.mark.parametrize("filter", [{"_id": "x"}, {"a": 1, "b": 2}, {"$and": [{"b": {"$eq": 2}}, {"a": 1}]}])
    def test_upsert_updates_the_document_inserted_meanwhile(
        self, server: Running, command: str, filter: Document
    ) -> None:
        steps = self.begin(server, command, filter, {"$inc": {"n": 1}})
        server.insert({"_id": "x", "a": 1, "b": 2, "n": 5})
        assert error_code(steps) == 0
        assert server.listed({"find": "c", "filter": {"_id": "x"}}) == [{"_id": "x", "a": 1, "b": 2, "n": 6}]

    @pytest.mark.parametrize("steps_later", range(8))
    def test_upsert_inserts_if_the_conflicting_document_is_deleted_again(
        self, server: Running, command: str, steps_later: int
    ) -> None:
        steps = self.begin(server, command, {"_id": "x"}, {"$inc": {"n": 1}})
        server.insert({"_id": "x", "n": 5})
        server.insert(*({"_id": number} for number in range(MANY, 2 * MANY)))  # so a second scan takes long as well
        for _ in range(steps_later):
            next(steps, None)
        server.run(delete({"_id": "x"}))
        assert error_code(steps) == 0

    @pytest.mark.parametrize(
        ("filter", "change"),
        [
            ({"_id": "x", "n": 5}, {"$inc": {"m": 1}}),  # other fields than those of the index
            ({"a": 1}, {"$set": {"b": 2}}),
            ({"a": 1, "b": {"$in": [2]}, "n": {"$gt": 1}}, {"$inc": {"m": 1}}),  # more than equalities
            ({"a": 1, "b": 1}, {"$set": {"b": 2}}),  # another key than that of the filter
        ],
    )
    def test_upsert_fails_on_a_duplicate_if_the_filter_is_not_the_key(
        self, server: Running, command: str, filter: Document, change: Document
    ) -> None:
        steps = self.begin(server, command, filter, change)
        server.insert({"_id": "x", "a": 1, "b": 2, "n": 5})
        assert error_code(steps) == 11000


def test_a_multi_upsert_that_loses_to_an_insert_fails(server: Running) -> None:
    server.insert(*({"_id": number} for number in range(MANY)))
    steps = server.steps(update({"_id": "x"}, {"$inc": {"n": 1}}, upsert=True, multi=True, **BACKWARD))
    next(steps)
    server.insert({"_id": "x"})
    assert error_code(steps) == 11000
