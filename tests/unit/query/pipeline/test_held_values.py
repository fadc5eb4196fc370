"""One document cannot make a stage hold many copies of its long fields."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from mongottl.errors import ErrorCode

Refused = Callable[..., int]

FIELDS = [f"f{number}" for number in range(100)]
TEXT: Any = {"$toUpper": "$t"}
DOCUMENT = {"_id": 1, "t": "x" * (4 << 20), "a": [{"n": number} for number in range(1000)]}


def outputs(value: object) -> dict[str, object]:
    return dict.fromkeys(FIELDS, value)


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ({"$project": outputs("$t")}, 13548),
        ({"$addFields": outputs("$t")}, 13548),
        ({"$addFields": {"a.x": "$t"}}, 13548),
        ({"$project": {"a.x": TEXT}}, 13548),
        ({"$group": {"_id": None, **outputs({"$first": "$t"})}}, ErrorCode.ExceededMemoryLimit),
        ({"$group": {"_id": None, **outputs({"$max": TEXT})}}, ErrorCode.ExceededMemoryLimit),
        ({"$group": {"_id": None, **outputs({"$push": "$t"})}}, ErrorCode.ExceededMemoryLimit),
        (
            {"$group": {"_id": None, **outputs({"$top": {"sortBy": {"_id": 1}, "output": "$t"}})}},
            ErrorCode.ExceededMemoryLimit,
        ),
        (
            {"$bucketAuto": {"groupBy": "$_id", "buckets": 1, "output": outputs({"$first": "$t"})}},
            ErrorCode.ExceededMemoryLimit,
        ),
        (
            {"$setWindowFields": {"sortBy": {"_id": 1}, "output": outputs({"$max": "$t"})}},
            ErrorCode.ExceededMemoryLimit,
        ),
        (
            {
                "$setWindowFields": {
                    "sortBy": {"_id": 1},
                    "output": outputs({"$first": "$t", "window": {"documents": [-1, 1]}}),
                }
            },
            ErrorCode.ExceededMemoryLimit,
        ),
    ],
)
def test_a_stage_that_would_hold_too_much_fails(refused: Refused, stage: dict[str, Any], code: int) -> None:
    assert refused([DOCUMENT], stage) == code


def test_numbers_of_long_values_are_not_counted(aggregate: Callable[..., list[dict[str, Any]]]) -> None:
    length = {"$strLenBytes": TEXT}
    [group] = aggregate([DOCUMENT], {"$group": {"_id": None, **outputs({"$sum": length})}})
    assert group["f0"] == 4 << 20
    [document] = aggregate([DOCUMENT], {"$project": outputs(length)})
    assert document["f99"] == 4 << 20


def test_documents_of_a_window_are_not_counted_together(aggregate: Callable[..., list[dict[str, Any]]]) -> None:
    documents = [{"_id": number, "t": "x" * (1 << 20)} for number in range(70)]
    top = {"$top": {"sortBy": {"_id": 1}, "output": {"$concat": ["$t"] * 4}}}
    found = aggregate(
        documents,
        {"$setWindowFields": {"output": {"top": top}}},
        {"$project": {"n": {"$strLenBytes": "$top"}}},
    )
    assert [document["n"] for document in found] == [4 << 20] * 70


def test_binary_data_counts_as_much_as_text(refused: Refused) -> None:
    documents = [{"_id": number, "b": b"x" * (8 << 20)} for number in range(14)]
    assert refused(documents, {"$group": {"_id": None, "all": {"$push": "$b"}}}) == ErrorCode.ExceededMemoryLimit


def test_groups_of_a_facet_keep_no_documents(aggregate: Callable[..., list[dict[str, Any]]]) -> None:
    branch = [{"$project": {"x": TEXT}}, {"$group": {"_id": None, "n": {"$sum": {"$strLenBytes": "$x"}}}}]
    tracemalloc.start()
    try:
        [document] = aggregate([DOCUMENT], {"$facet": outputs(branch)})
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert document["f0"] == [{"_id": None, "n": 4 << 20}]
