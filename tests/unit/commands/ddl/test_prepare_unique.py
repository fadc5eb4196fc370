"""prepareUnique: an index that refuses new duplicates, and its conversion to a unique one."""

from typing import Any

import pytest

from tests.running import Running


@pytest.fixture
def running() -> Running:
    made = Running()
    made.insert({"_id": 1, "a": 1}, {"_id": 2, "a": 1}, {"_id": 3, "a": 2})
    made.index({"a": 1}, prepareUnique=True)
    return made


def change(**fields: Any) -> dict[str, Any]:
    return {"collMod": "c", "index": {"name": "a_1", **fields}}


def options_of(running: Running) -> dict[str, Any]:
    [spec] = [index for index in running.listed({"listIndexes": "c"}) if index["name"] == "a_1"]
    return {name: value for name, value in spec.items() if name not in ("v", "key", "name")}


def written(reply: dict[str, Any]) -> Any:
    return [error["code"] for error in reply.get("writeErrors", [])] or reply["n"]


def insert(running: Running, *documents: dict[str, Any], ordered: bool = True) -> Any:
    return written(running.run({"insert": "c", "documents": list(documents), "ordered": ordered}))


def update(running: Running, filter: dict[str, Any], changes: dict[str, Any]) -> Any:
    return written(running.run({"update": "c", "updates": [{"q": filter, "u": changes}]}))


def test_prepare_unique_keeps_duplicates_and_refuses_new_ones(running: Running) -> None:
    assert options_of(running) == {"prepareUnique": True}
    assert insert(running, {"_id": 4, "a": 2}) == [11000]
    assert insert(running, {"_id": 4, "a": 3}, {"_id": 5, "a": 3}, {"_id": 6, "a": 4}, ordered=False) == [11000]
    assert running.ids() == [1, 2, 3, 4, 6]
    assert update(running, {"_id": 3}, {"$set": {"a": 1}}) == [11000]
    assert update(running, {"_id": 2}, {"$set": {"b": 1}}) == 1
    assert update(running, {"_id": 2}, {"$set": {"a": 9}}) == 1


def test_a_document_may_have_its_own_key_twice(running: Running) -> None:
    assert insert(running, {"_id": 4, "a": [7, 7, 8]}) == 1
    assert insert(running, {"_id": 5, "a": [8]}) == [11000]


def test_an_expired_document_gives_way(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=5)
    running.run({"setParameter": 1, "ttlMonitorEnabled": False}, "admin")
    running.advance(5)
    assert insert(running, {"_id": 4, "a": 2}) == 1
    assert running.ids() == [4]


def test_conversion(running: Running) -> None:
    error = running.refusal(change(unique=True))
    assert error.code == 359
    assert error.details == {"violations": [{"ids": [1, 2]}]}
    assert running.refusal({**change(unique=True), "dryRun": True}).code == 359
    running.run({"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]})
    assert running.run({**change(unique=True), "dryRun": True}) == {}
    assert options_of(running) == {"prepareUnique": True}
    assert running.run(change(unique=True)) == {"unique_new": True}
    assert options_of(running) == {"unique": True}
    assert insert(running, {"_id": 4, "a": 2}) == [11000]
    assert insert(running, {"_id": 4, "a": 4}) == 1
    assert running.run(change(unique=True)) == {}
    assert running.ids(filter={"a": 4}) == [4]


def test_the_mark_comes_and_goes() -> None:
    running = Running()
    running.index({"a": 1})
    assert running.run(change(prepareUnique=False)) == {}
    assert running.run(change(prepareUnique=True)) == {"prepareUnique_old": False, "prepareUnique_new": True}
    assert running.run(change(prepareUnique=1)) == {}
    assert insert(running, {"_id": 1, "a": 1}, {"_id": 2, "a": 1}) == [11000]
    assert running.run(change(prepareUnique=0)) == {"prepareUnique_old": True, "prepareUnique_new": False}
    assert insert(running, {"_id": 2, "a": 1}) == 1


def test_a_converted_index_is_unique_after_a_restart(running: Running) -> None:
    running.run({"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]})
    running.run(change(unique=True))
    again = Running(running.engine)
    assert options_of(again) == {"unique": True}
    assert insert(again, {"_id": 4, "a": 2}) == [11000]


@pytest.mark.parametrize(("key", "code"), [({"a": "hashed"}, 16764), ({"$**": 1}, 67)])
def test_kinds_that_cannot_be_unique(key: dict[str, Any], code: int) -> None:
    running = Running()
    assert running.code({"createIndexes": "c", "indexes": [{"key": key, "name": "a_1", "prepareUnique": True}]}) == code
    running.index(key, "a_1")
    assert running.code(change(prepareUnique=True)) == code


def test_other_options_tell_equivalent_indexes_apart() -> None:
    running = Running()
    running.index({"a": 1})
    create = {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1", "prepareUnique": True}]}
    assert running.code(create) == 85
