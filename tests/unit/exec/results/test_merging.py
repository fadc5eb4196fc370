"""Results of `$merge` that are written together."""

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.errors import CommandError, ErrorCode
from tests.running import Document, Running

MODES: list[Document] = [
    {},
    {"whenMatched": "replace"},
    {"whenMatched": "keepExisting"},
    {"whenMatched": "replace", "whenNotMatched": "discard"},
    {"whenMatched": "merge", "whenNotMatched": "fail"},
    {"whenMatched": "fail"},
    {"whenMatched": [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}]},
    {"collation": {"locale": "en", "strength": 2}},
]
# Some are equal, some of them only under a collation.
ids = st.one_of(st.integers(0, 3), st.sampled_from([1.0, 2.5, "a", "A", "b", bson.ObjectId(b"x" * 12)]))
documents = st.fixed_dictionaries({"_id": ids}, optional={"a": st.integers(0, 3), "$b": st.just(1), "c": st.just("x")})


def merge(server: Running, batch: list[Document], modes: Document) -> int:
    """Merges documents into the collection `target`; the code of the error, 0 if there is none."""
    options = {"collation": modes["collation"]} if "collation" in modes else {}
    stage = {"into": "target", **{name: value for name, value in modes.items() if name != "collation"}}
    pipeline = [{"$documents": [{"$literal": document} for document in batch]}, {"$merge": stage}]
    command = {"aggregate": 1, "pipeline": pipeline, "cursor": {}, **options}
    try:
        server.run(command)
    except CommandError as error:
        return error.code
    return 0


def stored(server: Running) -> list[bytes]:
    return sorted(map(bson.encode, server.listed({"find": "target"})))


def running(there: list[Document], modes: Document) -> Running:
    server = Running()
    options = {"collation": modes["collation"]} if "collation" in modes else {}
    server.run({"create": "target", **options})
    if there:
        server.run({"insert": "target", "documents": there, "ordered": False})
    return server


@given(st.lists(documents, max_size=5), st.lists(documents, max_size=6), st.sampled_from(MODES))
def test_a_batch_is_merged_as_one_document_after_the_other(
    there: list[Document], batch: list[Document], modes: Document
) -> None:
    together = running(there, modes)
    code = merge(together, batch, modes)
    single = running(there, modes)
    codes = [merge(single, [document], modes) for document in batch]
    assert stored(together) == stored(single)
    assert code == next(filter(None, codes), 0)


def counted(server: Running, batch: list[Document], modes: Document) -> int:
    """How many units of work merging these documents takes."""
    before = server.engine.committed_number
    assert merge(server, batch, modes) == 0
    return server.engine.committed_number - before


def test_results_that_match_are_one_unit_of_work_and_others_another() -> None:
    server = running([{"_id": number} for number in range(20)], {})
    batch: list[Document] = [{"_id": number, "a": number} for number in range(40)]
    assert counted(server, batch, {}) == 2
    assert counted(server, batch, {"whenMatched": "keepExisting"}) == 0
    batch = [{**document, "b": 1} for document in batch]
    assert counted(server, batch, {"whenMatched": "replace"}) == 1
    assert server.listed({"find": "target", "sort": {"_id": 1}}) == batch
    assert counted(server, [{"_id": number} for number in range(50, 90)], {"whenMatched": "fail"}) == 1
    assert server.service.metrics.documents["inserted"] == 20 + 20 + 40
    # A target that is to be made is another one.
    server.run({"drop": "target"})
    assert counted(server, batch, {"whenNotMatched": "discard"}) == 0
    assert counted(server, batch, {}) == 2


@pytest.mark.parametrize(
    ("there", "batch", "code", "expected"),
    [
        # One of those that are inserted has the key of another one, or of one that is there.
        ([], [{"_id": 1, "k": 1}, {"_id": 2, "k": 1}, {"_id": 3, "k": 3}], ErrorCode.DuplicateKey, {1: 1, 3: 3}),
        ([{"_id": 9, "k": 3}], [{"_id": 1, "k": 1}, {"_id": 2, "k": 3}], ErrorCode.DuplicateKey, {1: 1, 9: 3}),
        # One of those that are updated; the others are, and what matches none is inserted.
        (
            [{"_id": 1, "k": 1}, {"_id": 2, "k": 2}],
            [{"_id": 1, "k": 7}, {"_id": 2, "k": 7}, {"_id": 3, "k": 3}],
            ErrorCode.DuplicateKey,
            {1: 7, 2: 2, 3: 3},
        ),
        ([{"_id": 1, "k": 1}], [{"_id": 1, "k": -1}, {"_id": 2, "k": 2}], 121, {1: 1, 2: 2}),
        ([{"_id": 1, "k": 1}], [{"_id": 1, "k": 5}, {"_id": 2, "k": -1}, {"_id": 3, "k": 3}], 121, {1: 5, 3: 3}),
    ],
)
def test_writable_results_are_written_before_the_error_is_raised(
    there: list[Document], batch: list[Document], code: int, expected: dict[int, int]
) -> None:
    server = running(there, {})
    server.index({"k": 1}, on="target", unique=True)
    server.run({"collMod": "target", "validator": {"k": {"$gte": 0}}})
    assert merge(server, batch, {}) == code
    assert {document["_id"]: document["k"] for document in server.listed({"find": "target"})} == expected


def test_results_without_an_equal_id_are_found_by_other_fields() -> None:
    server = running([{"_id": 1, "k": 1}, {"_id": 2, "k": 2}], {})
    server.index({"k": 1}, on="target", unique=True)
    assert merge(server, [{"_id": 1, "k": 1, "a": 5}, {"_id": 7, "k": 7}], {"on": "k"}) == 0
    assert server.listed({"find": "target", "sort": {"_id": 1}}) == [
        {"_id": 1, "k": 1, "a": 5},
        {"_id": 2, "k": 2},
        {"_id": 7, "k": 7},
    ]
