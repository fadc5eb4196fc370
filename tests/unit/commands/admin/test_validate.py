"""validate, validateDBMetadata and dataSize."""

from typing import Any

import pytest
from bson import Decimal128, Int64

from mongottl.storage.contract.sorted_data import ContractSortedData
from mongottl.storage.stores import KeyRange
from tests.running import Running


@pytest.fixture
def running() -> Running:
    made = Running()
    made.insert(*({"_id": i, "a": i % 10, "b": [i, i + 1]} for i in range(600)))
    made.index({"a": 1})
    made.index({"b": 1})
    return made


def test_a_whole_collection(running: Running) -> None:
    reply = running.run({"validate": "c", "full": True, "unknown": 1})
    assert reply["ns"] == "test.c"
    assert reply["valid"]
    assert reply["nrecords"] == 600
    assert reply["nIndexes"] == 3
    assert reply["keysPerIndex"] == {"_id_": 600, "a_1": 600, "b_1": 1200}
    assert reply["indexDetails"]["b_1"] == {"valid": True, "spec": {"v": 2, "key": {"b": 1}, "name": "b_1"}}
    assert (reply["errors"], reply["warnings"], reply["repairMode"]) == ([], [], "None")


def test_details_have_the_specifications_that_listindexes_shows(running: Running) -> None:
    running.index({"t": "text"}, default_language="german")
    running.index({"p": "2dsphere"})
    running.index({"u": 1}, sparse=True, collation={"locale": "de"})
    listed = running.listed({"listIndexes": "c"})
    details = running.run({"validate": "c"})["indexDetails"]
    assert {name: detail["spec"] for name, detail in details.items()} == {spec["name"]: spec for spec in listed}


def test_expired_documents_do_not_count(running: Running) -> None:
    running.run({"update": "c", "updates": [{"q": {"_id": {"$gte": 100}}, "u": {"$set": {"ttl": 5}}, "multi": True}]})
    running.run({"collMod": "c", "validator": {"a": {"$lt": 9}}})
    running.index({"_ts": 1}, expireAfterSeconds=-1)
    running.advance(5)
    reply = running.run({"validate": "c"})
    assert reply["valid"]
    assert reply["nrecords"] == 100
    assert reply["keysPerIndex"] == {"_id_": 100, "a_1": 100, "b_1": 200, "_ts_1": 0}
    assert reply["nNonCompliantDocuments"] == 10


def test_missing_and_extra_entries(running: Running) -> None:
    index = running.collection().index_named("a_1")
    assert index is not None
    assert index.data is not None
    [(key, rid), *_] = index.data.scan(KeyRange(b"", b"\xff"), None, 1)[0]
    with running.engine.unit_of_work() as work:
        index.data.remove([(key, rid)])
        index.data.insert([(key, 2)])
        work.commit()
    reply = running.run({"validate": "c"})
    assert not reply["valid"]
    assert reply["missingIndexEntries"] == [{"indexName": "a_1", "recordId": rid}]
    assert reply["extraIndexEntries"] == [{"indexName": "a_1", "recordId": 2}]
    valid = {name: details["valid"] for name, details in reply["indexDetails"].items()}
    assert valid == {"_id_": True, "a_1": False, "b_1": True}
    assert len(reply["errors"]) == 2


def test_documents_that_fail_the_validator_are_a_warning(running: Running) -> None:
    running.run({"collMod": "c", "validator": {"a": {"$lt": 9}}})
    reply = running.run({"validate": "c"})
    assert reply["valid"]
    assert reply["nNonCompliantDocuments"] == 60
    assert len(reply["warnings"]) == 1


def test_writes_in_between_do_no_harm(running: Running) -> None:
    steps = running.steps({"validate": "c"})
    for i in range(1000, 1004):
        next(steps)
        running.insert({"_id": i, "a": i, "b": i})
        running.run({"delete": "c", "deletes": [{"q": {"_id": i - 700}, "limit": 1}]})
    with pytest.raises(StopIteration) as caught:
        while True:
            next(steps)
    assert caught.value.value["valid"]


def test_writes_of_another_server_between_two_statements_are_no_fault(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers of one store write also while one of them is in an undivided block."""
    index = running.collection().index_named("a_1")
    assert index is not None
    assert index.data is not None
    all_keys = KeyRange(b"", b"\xff")
    [(key, rid), *_] = index.data.scan(all_keys, None, 1)[0]
    scan = ContractSortedData.scan

    def scan_before(
        self: ContractSortedData, key_range: KeyRange, *limits: Any
    ) -> tuple[list[tuple[bytes, int]], bool]:
        """As before an entry of record 2 was deleted, if all is read."""
        entries, more = scan(self, key_range, *limits)
        if self is index.data and len(entries) > 1 and entries[0] == (key, rid):
            entries = [(key, rid), (key, 2), *[entry for entry in entries[1:] if entry != (key, 2)]]
        return entries, more

    monkeypatch.setattr(ContractSortedData, "scan", scan_before)
    reply = running.run({"validate": "c"})
    assert (reply["valid"], reply["extraIndexEntries"]) == (True, [])
    assert reply["keysPerIndex"] == {"_id_": 600, "a_1": 600, "b_1": 1200}


def steps_of(running: Running) -> int:
    """Validates a collection; how many steps that takes."""
    taken = 0
    steps = running.steps({"validate": "c"})
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assert stop.value["valid"]
            return taken
        taken += 1


def entries_read(running: Running, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many index entries validate reads in all."""
    read = 0
    scan = ContractSortedData.scan
    find_exact = ContractSortedData.find_exact

    def counted_scan(self: ContractSortedData, *arguments: Any) -> Any:
        nonlocal read
        found = scan(self, *arguments)
        read += len(found)
        return found

    def counted_find(self: ContractSortedData, keys: list[bytes]) -> Any:
        nonlocal read
        found = find_exact(self, keys)
        read += len(found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ContractSortedData, "scan", counted_scan)
        patched.setattr(ContractSortedData, "find_exact", counted_find)
        steps_of(running)
    return read


@pytest.mark.parametrize("value", [0, list(range(50))])
def test_work_grows_with_the_entries(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many documents share a key, and where they have many."""
    work = []
    for size in (50, 200):
        running = Running()
        running.index({"a": 1})
        running.insert(*({"_id": i, "a": value} for i in range(size)))
        work.append(entries_read(running, monkeypatch))
    assert work[1] <= 4.1 * work[0]


def test_others_run_within_a_batch(running: Running) -> None:
    running.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    running.insert(*({"_id": i, "s": "x" * 100_000} for i in range(20)))
    assert steps_of(running) >= 20
    running.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    running.insert({"_id": 0, "b": list(range(5000))})
    assert steps_of(running) >= 19


def test_a_record_that_changes_while_its_entries_are_sought(running: Running) -> None:
    running.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    running.insert({"_id": 0, "b": list(range(2000))})
    steps = running.steps({"validate": "c"})
    next(steps)
    next(steps)
    running.run({"update": "c", "updates": [{"q": {"_id": 0}, "u": {"$set": {"b": [-1]}}}]})
    with pytest.raises(StopIteration) as caught:
        while True:
            next(steps)
    assert caught.value.value["valid"]


def test_extra_entries_among_many_equal_keys(running: Running) -> None:
    index = running.collection().index_named("b_1")
    assert index is not None
    assert index.data is not None
    [(key, _)] = index.data.scan(KeyRange(b"", b"\xff"), None, 1)[0]
    with running.engine.unit_of_work() as work:
        index.data.insert([(key, 100), (key, 100_000)])
        work.commit()
    reply = running.run({"validate": "c"})
    assert reply["missingIndexEntries"] == []
    assert reply["extraIndexEntries"] == [
        {"indexName": "b_1", "recordId": 100},
        {"indexName": "b_1", "recordId": 100_000},
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"metadata": True, "full": True}, 72),
        ({"metadata": 1, "checkBSONConformance": "x"}, 72),
        ({"metadata": True, "background": True}, 72),
        ({"checkBSONConformance": True, "repair": True}, 72),
        ({"repair": True}, 72),
        ({"fixMultikey": 1}, 72),
    ],
)
def test_options_of_validate_that_are_refused(running: Running, options: dict[str, Any], code: int) -> None:
    assert running.code({"validate": "c", **options}) == code


def test_validate_refuses_views_and_missing_collections(running: Running) -> None:
    running.run({"create": "v", "viewOn": "c", "pipeline": []})
    assert running.code({"validate": "v"}) == 166
    assert running.code({"validate": "none"}) == 26
    assert running.code({"validate": 1}) == 73
    assert running.run({"validate": "c", "metadata": True})["valid"]


def metadata(database: str | None = None, **api: Any) -> dict[str, Any]:
    return {"validateDBMetadata": 1, "apiParameters": {"version": "1", **api}, "db": database}


def test_validate_db_metadata_lists_violations_of_the_stable_api(running: Running) -> None:
    running.index({"z": 1}, "sparse", sparse=True)
    running.run({"create": "v", "viewOn": "c", "pipeline": [{"$indexStats": {}}]})
    expected = [
        {
            "ns": "test.c",
            "code": 323,
            "codeName": "APIStrictError",
            "errmsg": "The index with name sparse is not allowed in API version 1.",
        },
        {
            "ns": "test.v",
            "code": 323,
            "codeName": "APIStrictError",
            "errmsg": "stage $indexStats is not allowed in API Version 1",
        },
    ]
    assert running.run(metadata(strict=True)) == {"apiVersionErrors": expected}
    assert running.run({**metadata("test", strict=True), "collection": "v"}) == {"apiVersionErrors": expected[1:]}
    assert running.run(metadata("none", strict=True)) == {"apiVersionErrors": []}
    assert running.run(metadata("test", strict=False)) == {"apiVersionErrors": []}


@pytest.mark.parametrize(
    ("name", "code"), [("", 28539), ("a.b", 73), ("a\0b", 73), ("x" * 64, 73), ("a b", 13280), ("a/b", 13280)]
)
def test_names_that_no_database_has(running: Running, name: str, code: int) -> None:
    assert running.code(metadata(name)) == code


def test_the_size_of_data(running: Running) -> None:
    reply = running.run({"dataSize": "test.c"})
    assert reply["numObjects"] == 600
    assert isinstance(reply["size"], Int64)
    assert reply["size"] == running.run({"collStats": "c"})["size"]
    assert reply["estimate"] is False
    part = running.run({"dataSize": "test.c", "keyPattern": {"a": 1}, "min": {"a": 2}, "max": {"a": 4}})
    assert part["numObjects"] == 120
    assert part["size"] == reply["size"] // 5
    assert running.run({"dataSize": "test.c", "min": {"_id": 5}, "max": {"_id": 7}})["numObjects"] == 2
    assert running.run({"dataSize": "test.none"})["size"] == 0


@pytest.mark.parametrize(
    ("options", "objects", "reached"),
    [
        # Counting stops at the first document above a limit.
        ({"maxObjects": 10}, 11, True),
        ({"maxObjects": Decimal128("10")}, 11, True),
        ({"maxObjects": 600}, 600, False),
        ({"maxObjects": 599}, 600, True),
        ({"maxObjects": 0, "maxSize": 0}, 600, False),
        ({"maxObjects": None, "maxSize": None}, 600, False),
        ({"maxSize": 1}, 1, True),
        ({"maxSize": 1 << 40}, 600, False),
        ({"maxSize": 1, "maxObjects": 10}, 1, True),
        ({"maxObjects": 10, "estimate": True}, 600, False),
        ({"maxObjects": 10, "min": {"_id": 5}, "max": {"_id": 7}}, 2, False),
        ({"maxObjects": 1, "min": {"_id": 5}, "max": {"_id": 8}}, 2, True),
        ({"maxObjects": 1, "min": {"_id": 5}, "max": {"_id": 8}, "estimate": True}, 2, True),
    ],
)
def test_sizes_up_to_a_limit(running: Running, options: dict[str, Any], objects: int, reached: bool) -> None:
    reply = running.run({"dataSize": "test.c", **options})
    whole = running.run({"dataSize": "test.c"})
    assert reply["numObjects"] == objects
    assert reply["size"] == whole["size"] // 600 * objects
    assert reply.get("maxReached", False) is reached


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"dataSize": None}, 40414),
        ({"dataSize": 1}, 14),
        ({"dataSize": "c"}, 73),
        ({"dataSize": "test.c", "keyPattern": 1}, 14),
        ({"dataSize": "test.c", "estimate": "x"}, 14),
        ({"dataSize": "test.c", "maxSize": "1"}, 14),
        ({"dataSize": "test.c", "maxObjects": True}, 14),
        ({"dataSize": "test.c", "min": {"a": 1}}, 2),
        ({"dataSize": "test.c", "min": {"z": 1}, "max": {"z": 2}}, 96),
    ],
)
def test_data_sizes_that_are_refused(running: Running, options: dict[str, Any], code: int) -> None:
    assert running.code(options) == code
