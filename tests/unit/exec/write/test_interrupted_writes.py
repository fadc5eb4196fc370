"""A write whose index keys take seconds ends when its operation is to end, and leaves nothing behind."""

from typing import Any

import pytest

from mongottl.commands.crud.write_batch import WriteErrors
from mongottl.errors import CommandError, ErrorCode
from tests.gaps import MAX_GAP_S, measured
from tests.running import Document, Running

TEXT = "some words and others " * (50_000)
OTHER = {"_id": 9, "a": 1}
# Each with the documents that are there before.
WRITES: dict[str, tuple[list[Document], Document]] = {
    "insert": ([], {"insert": "c", "documents": [{"_id": 1, "t": TEXT}]}),
    "insert of several": ([], {"insert": "c", "documents": [{"_id": 1, "t": "a"}, {"_id": 2, "t": TEXT}]}),
    "unordered insert": (
        [],
        {"insert": "c", "documents": [{"_id": 1, "t": "a"}, {"_id": 2, "t": TEXT}, {"_id": 3}], "ordered": False},
    ),
    "insert of long ones": ([], {"insert": "c", "documents": [{"_id": i, "t": TEXT[:60_000]} for i in range(10, 99)]}),
    "update": ([], {"update": "c", "updates": [{"q": {"_id": 9}, "u": {"$set": {"t": TEXT}}}]}),
    "update of several": ([], {"update": "c", "updates": [{"q": {}, "u": {"$set": {"t": TEXT}}, "multi": True}]}),
    "replacement": ([], {"update": "c", "updates": [{"q": {"a": 1}, "u": {"t": TEXT}}]}),
    "update of a long document": (
        [{"_id": 1, "t": TEXT}],
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"t": "b"}}}]},
    ),
    "upsert": ([], {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"t": TEXT}}, "upsert": True}]}),
    "delete": ([{"_id": 1, "t": TEXT}], {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}),
    "delete of several": ([{"_id": 1, "t": TEXT}], {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 0}]}),
    "findAndModify": ([], {"findAndModify": "c", "query": {"_id": 9}, "update": {"t": TEXT}}),
    "findAndModify that removes": (
        [{"_id": 1, "t": TEXT}],
        {"findAndModify": "c", "query": {"_id": 1}, "remove": True},
    ),
    "bulkWrite": (
        [],
        {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"_id": 1, "t": TEXT}}], "nsInfo": [{"ns": "test.c"}]},
    ),
}


@pytest.fixture
def running() -> Running:
    return Running()


def state(running: Running) -> Any:
    collection = running.collection()
    [text] = [index for index in collection.writable_indexes if index.name == "words"]
    found = running.listed({"find": "c", "filter": {"$text": {"$search": "words"}}, "projection": {"_id": 1}})
    return running.ids(), found, text.multikey, text.arrays.paths, collection.store.scan(0, 1000)[0]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_interrupted_while_keys_are_made(running: Running, name: str) -> None:
    before, command = WRITES[name]
    database = "admin" if name == "bulkWrite" else "test"
    running.insert(OTHER)
    running.index({"t": "text"}, "words")
    if before:
        running.insert(*before)
    was = state(running)
    with pytest.raises(CommandError) as caught, measured(3, evaluates=False) as gaps:
        # As the dispatcher does: what is no generator has no check.
        list(running.steps(command, database))
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
    assert gaps.longest_s <= MAX_GAP_S
    assert state(running) == was
    assert "writeErrors" not in running.run(command, database)
    assert state(running) != was


def test_chunks_of_a_batch_that_were_written_stay(running: Running) -> None:
    """As in mongod, whose batch ends with the error, too."""
    running.insert(OTHER)
    running.index({"t": "text"}, "words")
    documents = [{"_id": i, "t": TEXT} for i in range(20, 23)]
    steps = running.steps({"insert": "c", "documents": documents})
    assert next(steps) is None
    first = running.ids()
    assert 20 in first
    with pytest.raises(CommandError), measured(3, evaluates=False):
        list(steps)
    assert running.ids() == first


def test_the_errors_of_a_batch_tell_that_it_is_to_end(running: Running) -> None:
    errors = WriteErrors(running.op())
    errors.add(0, CommandError(ErrorCode.BadValue, ""))
    assert not errors.interrupted
    errors.add(1, CommandError(ErrorCode.MaxTimeMSExpired, ""))
    errors.add(2, CommandError(ErrorCode.BadValue, ""))
    assert errors.interrupted


LONG_LIST = list(range(200_000))
# What `$expr` computes for a short document takes as long as for a long one.
SUM = {"$reduce": {"input": {"$range": [0, "$n"]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}
# Each with the fields of a document for which it takes long.
VALIDATORS: dict[str, tuple[Document, Document]] = {
    "expression": ({"$expr": {"$gte": [{"$sum": {"$map": {"input": "$a", "in": "$$this"}}}, 0]}}, {"a": LONG_LIST}),
    "expression that fails": ({"$expr": {"$in": [-1, {"$map": {"input": "$a", "in": "$$this"}}]}}, {"a": LONG_LIST}),
    "expression over a short document": ({"$expr": {"$gte": [SUM, 0]}}, {"n": 100_000}),
    "schema": ({"$jsonSchema": {"properties": {"a": {"items": {"minimum": 0}}}}}, {"a": LONG_LIST}),
    "schema that fails": ({"$jsonSchema": {"properties": {"a": {"not": {"items": {"minimum": 0}}}}}}, {"a": LONG_LIST}),
    "distinct items": ({"$jsonSchema": {"properties": {"a": {"uniqueItems": True}}}}, {"a": LONG_LIST}),
    "filter": ({"a": {"$not": {"$elemMatch": {"$lt": 0}}}}, {"a": LONG_LIST}),
}
VALIDATED: dict[str, Any] = {
    "insert": lambda fields: {"insert": "c", "documents": [{"_id": 1, **fields}]},
    "insert of several": lambda fields: {"insert": "c", "documents": [{"_id": 1, **fields}, {"_id": 2, **fields}]},
    "update": lambda fields: {"update": "c", "updates": [{"q": {"_id": 9}, "u": {"$set": fields}}]},
    "update of several": lambda fields: {"update": "c", "updates": [{"q": {}, "u": {"$set": fields}, "multi": True}]},
    "upsert": lambda fields: {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": fields}, "upsert": True}]},
    "findAndModify": lambda fields: {"findAndModify": "c", "query": {"_id": 9}, "update": fields},
    "bulkWrite": lambda fields: {
        "bulkWrite": 1,
        "ops": [{"insert": 0, "document": {"_id": 1, **fields}}],
        "nsInfo": [{"ns": "test.c"}],
    },
}


@pytest.mark.parametrize("kind", VALIDATORS)
@pytest.mark.parametrize("name", VALIDATED)
def test_a_write_is_interrupted_while_its_document_is_validated(running: Running, name: str, kind: str) -> None:
    validator, fields = VALIDATORS[kind]
    command = VALIDATED[name](fields)
    database = "admin" if name == "bulkWrite" else "test"
    running.insert(OTHER)
    running.run({"collMod": "c", "validator": validator})
    was = running.collection().store.scan(0, 1000)[0]
    with pytest.raises(CommandError) as caught, measured(5, evaluates=False) as gaps:
        list(running.steps(command, database))
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
    assert gaps.longest_s <= MAX_GAP_S
    assert running.collection().store.scan(0, 1000)[0] == was


@pytest.mark.parametrize("moderate", [False, True])
def test_an_update_of_a_long_document_is_interrupted_while_it_is_validated(running: Running, moderate: bool) -> None:
    validator, fields = VALIDATORS["expression"]
    running.insert({"_id": 9, **fields})
    running.run({"collMod": "c", "validator": validator, "validationLevel": "moderate" if moderate else "strict"})
    was = running.collection().store.scan(0, 1000)[0]
    with pytest.raises(CommandError), measured(5, evaluates=False) as gaps:
        list(running.steps({"update": "c", "updates": [{"q": {"_id": 9}, "u": {"$set": {"b": 1}}}]}))
    assert gaps.longest_s <= MAX_GAP_S
    assert running.collection().store.scan(0, 1000)[0] == was


COMPUTED = {"$set": {"sum": SUM}}


@pytest.mark.parametrize(
    "command",
    [
        {"update": "c", "updates": [{"q": {"_id": 9}, "u": [COMPUTED]}]},
        {"findAndModify": "c", "query": {"_id": 9}, "update": [COMPUTED]},
        {"find": "c", "filter": {"_id": 9}, "projection": {"sum": SUM}},
    ],
)
def test_expressions_of_a_command_by_id_are_interrupted(running: Running, command: Document) -> None:
    running.insert({"_id": 9, "n": 100_000})
    was = running.collection().store.scan(0, 1000)[0]
    with pytest.raises(CommandError), measured(3, evaluates=False) as gaps:
        list(running.steps(command))
    assert gaps.longest_s <= MAX_GAP_S
    assert running.collection().store.scan(0, 1000)[0] == was


@pytest.mark.parametrize("change", [{"update": {"$set": {"b": 1}}}, {"remove": True}], ids=["update", "remove"])
def test_projection_of_a_find_and_modify_is_interrupted(running: Running, change: Document) -> None:
    """The document is written by then: it is projected afterwards."""
    running.insert({"_id": 9, "n": 100_000})
    command = {"findAndModify": "c", "query": {"_id": 9}, **change, "fields": {"sum": SUM}}
    with pytest.raises(CommandError), measured(3, evaluates=False) as gaps:
        list(running.steps(command))
    assert gaps.longest_s <= MAX_GAP_S
