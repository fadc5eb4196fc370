"""The errors of a batch in one reply, with as many details as fit; and what runs between its statements."""

import pytest

from mongottl.commands.crud.write_batch import MAX_ERROR_BYTES, MAX_ONE_ERROR_BYTES, WriteErrors
from mongottl.document.build import encode
from mongottl.errors import CommandError, ErrorCode
from tests.running import Document, Running


def duplicate(size: int) -> CommandError:
    """The error of a duplicate key of so many characters."""
    key = "x" * size
    details: dict[str, object] = {"keyPattern": {"_id": 1}, "keyValue": {"_id": key}}
    return CommandError(ErrorCode.DuplicateKey, f"E11000 duplicate key error dup key: {key}", details)


def test_an_error_that_is_too_large_by_itself() -> None:
    errors = WriteErrors(Running().op())
    large, small = errors.add(0, duplicate(MAX_ONE_ERROR_BYTES // 2)), errors.add(1, duplicate(3))
    assert isinstance(large, dict)
    assert isinstance(small, dict)
    assert set(large) == {"index", "code", "errmsg"}
    assert len(large["errmsg"]) == 1024 + 3
    assert large["errmsg"].startswith("E11000 duplicate key error dup key: xxx")
    assert small["keyValue"] == {"_id": "xxx"}


def test_any_failures_fit_a_reply() -> None:
    errors = WriteErrors(Running().op())
    errors.add(0, duplicate(MAX_ERROR_BYTES // 2 - 1000))
    errors.add(1, duplicate(MAX_ONE_ERROR_BYTES // 2 - 1000))
    for i in range(2, 100_000):
        errors.add(i, duplicate(1000))
    assert len(errors.entries) == 100_000
    assert len(encode(errors.add_to({"n": 0}))) < 16 * 1024 * 1024


@pytest.mark.parametrize(("also", "times"), [({}, 2), ({"n": 0}, 249)], ids=["together", "one by one"])
def test_others_may_run_between_the_statements_of_a_batch(also: Document, times: int) -> None:
    running = Running()
    running.insert(*({"_id": i, "n": 0} for i in range(250)))
    updates = [{"q": {"_id": i, **also}, "u": {"$set": {"a": 1}}} for i in range(250)]
    deletes = [{"q": {"_id": i, **also}, "limit": 1} for i in range(250)]
    assert sum(1 for _ in running.steps({"update": "c", "updates": updates})) >= times
    assert running.ids(filter={"a": 1}) == list(range(250))
    assert sum(1 for _ in running.steps({"delete": "c", "deletes": deletes})) >= times
    assert running.ids() == []


@pytest.mark.parametrize(
    "command",
    [
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 2}}, "upsert": True}]},
        {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"n": 2}}, "upsert": True},
    ],
)
def test_an_upsert_of_a_document_that_a_clock_set_back_brings_to_life(command: Document) -> None:
    running = Running()
    running.clock.set_wall(2_000_000_000_000)
    spec = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 2}
    running.run({"createIndexes": "c", "indexes": [spec]})
    running.insert({"_id": 1, "n": 1})
    running.clock.advance(5)
    upsert = running.steps(command)
    next(upsert)  # it has found nothing
    running.clock.advance(-5)
    with pytest.raises(StopIteration):
        next(upsert)
    assert running.listed({"find": "c"}) == [{"_id": 1, "n": 2}]


@pytest.mark.parametrize(
    ("documents", "ordered", "refused", "made"),
    [
        ([{"_id": [1]}], True, 1, False),
        ([{"_id": [1]}, {"_id": 1}], True, 1, False),
        ([{"_id": [1]}, {"_id": [2]}], False, 2, False),
        ([{"_id": [1]}, {"_id": 1}], False, 1, True),
        ([{"_id": 1}, {"_id": [1]}], True, 1, True),
    ],
)
@pytest.mark.parametrize("bulk", [False, True])
def test_a_refused_first_document_makes_no_collection(
    documents: list[Document], ordered: bool, refused: int, made: bool, bulk: bool
) -> None:
    running = Running()
    if bulk:
        operations = [{"insert": 0, "document": document} for document in documents]
        command: Document = {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}], "ordered": ordered}
        assert running.run(command, "admin")["nErrors"] == refused
    else:
        reply = running.run({"insert": "c", "documents": documents, "ordered": ordered})
        assert len(reply["writeErrors"]) == refused
    assert [listed["name"] for listed in running.listed({"listCollections": 1})] == (["c"] if made else [])
