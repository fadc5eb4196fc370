from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.config import MemoryLimits
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import (
    DocumentSource,
    ListSource,
    RunContext,
    drain,
    open_pipeline,
    optimise,
    parse_pipeline,
)

Documents = list[dict[str, Any]]


def run(documents: Documents, *stages: object, batch_size: int = 3) -> Documents:
    """A pipeline's results, the same whether optimised or not."""
    ctx = ParseContext(1_700_000_000_000, namespace="db.c")
    specs = parse_pipeline([bson.encode(s) if isinstance(s, dict) else s for s in stages], ctx)
    raw = [bson.encode(document) for document in documents]
    plain = drain(open_pipeline(specs, ListSource(raw, batch_size), RunContext()))
    assert drain(open_pipeline(optimise(specs, ctx), ListSource(raw, batch_size), RunContext())) == plain
    return [bson.decode(document) for document in plain]


def failure(*stages: object) -> int:
    with pytest.raises(CommandError) as caught:
        run([{"_id": 1}], *stages)
    return caught.value.code


TEN: Documents = [{"_id": i, "k": i % 3, "v": i} for i in range(10)]


def test_match_skip_limit() -> None:
    found = run(TEN, {"$match": {"v": {"$gte": 2}}}, {"$skip": 2}, {"$limit": 3})
    assert [document["_id"] for document in found] == [4, 5, 6]


@pytest.mark.parametrize("limit", [1, 4, 9, 10, 100])
def test_sort_with_and_without_limit(limit: int) -> None:
    found = run(TEN, {"$sort": {"k": -1, "_id": 1}}, {"$limit": limit})
    assert [document["_id"] for document in found] == [2, 5, 8, 1, 4, 7, 0, 3, 6, 9][:limit]


def test_sort_is_stable_across_runs() -> None:
    documents: Documents = [{"_id": i, "k": i % 2} for i in range(20_000)]
    found = run(documents, {"$sort": {"k": 1}}, batch_size=1000)
    assert [document["_id"] for document in found] == [*range(0, 20_000, 2), *range(1, 20_000, 2)]


def test_sort_skip_limit_keeps_the_skip() -> None:
    found = run(TEN, {"$sort": {"_id": -1}}, {"$skip": 2}, {"$skip": 1}, {"$limit": 2})
    assert [document["_id"] for document in found] == [6, 5]


def test_count() -> None:
    assert run(TEN, {"$match": {"k": 0}}, {"$count": "n"}) == [{"n": 4}]
    assert run([], {"$count": "n"}) == []


def test_group() -> None:
    found = run(
        TEN,
        {
            "$group": {
                "_id": "$k",
                "n": {"$sum": 1},
                "s": {"$sum": "$v"},
                "a": {"$avg": "$v"},
                "first": {"$first": "$v"},
                "last": {"$last": "$v"},
                "min": {"$min": "$v"},
                "max": {"$max": "$v"},
                "all": {"$push": "$v"},
                "c": {"$count": {}},
            }
        },
    )
    assert found[0] == {
        "_id": 0,
        "n": 4,
        "s": 18,
        "a": 4.5,
        "first": 0,
        "last": 9,
        "min": 0,
        "max": 9,
        "all": [0, 3, 6, 9],
        "c": 4,
    }
    assert [group["_id"] for group in found] == [0, 1, 2]


def test_group_by_equal_numbers_of_several_types_shows_the_first() -> None:
    documents: Documents = [{"k": 1.0}, {"k": Int64(1)}, {"k": 1}, {"k": None}, {}, {"k": "1"}]
    found = run(documents, {"$group": {"_id": "$k", "n": {"$sum": 1}}})
    assert found == [{"_id": 1.0, "n": 3}, {"_id": None, "n": 2}, {"_id": "1", "n": 1}]
    assert isinstance(found[0]["_id"], float)


def test_group_by_an_object_of_expressions() -> None:
    found = run(TEN, {"$group": {"_id": {"odd": {"$mod": ["$v", 2]}, "no": "$nothing"}, "n": {"$sum": 1}}})
    assert found == [{"_id": {"odd": 0}, "n": 5}, {"_id": {"odd": 1}, "n": 5}]


def test_group_of_everything_and_of_nothing() -> None:
    assert run(TEN, {"$group": {"_id": None, "s": {"$sum": "$v"}}}) == [{"_id": None, "s": 45}]
    assert run([], {"$group": {"_id": None, "s": {"$sum": "$v"}}}) == []


@pytest.mark.parametrize(
    ("values", "total", "average"),
    [
        ([1, 2], 3, 1.5),
        ([2**31 - 1, 1], Int64(2**31), 1073741824.0),
        ([Int64(2**63 - 1), 1], 2.0**63, 2.0**62),
        ([1, "x", None, 2.5], 3.5, 1.75),
        (["x"], 0, None),
        ([bson.Decimal128("1.10"), 2], bson.Decimal128("3.10"), bson.Decimal128("1.55")),
        ([0.1] * 10, 1.0, 0.1),  # compensated
        ([float("inf"), 1], float("inf"), float("inf")),
    ],
)
def test_sum_and_average_types(values: list[object], total: object, average: object) -> None:
    found = run([{"v": v} for v in values], {"$group": {"_id": None, "s": {"$sum": "$v"}, "a": {"$avg": "$v"}}})
    assert bson.encode(found[0]) == bson.encode({"_id": None, "s": total, "a": average})


def test_accumulators_over_missing_values() -> None:
    found = run(
        [{"x": 1}, {"v": None}, {"v": 2}, {"v": 2.0}, {"v": [1]}],
        {
            "$group": {
                "_id": None,
                "push": {"$push": "$v"},
                "set": {"$addToSet": "$v"},
                "first": {"$first": "$v"},
                "min": {"$min": "$v"},
                "max": {"$max": "$v"},
                "none": {"$max": "$w"},
                "pop": {"$stdDevPop": "$v"},
                "samp": {"$stdDevSamp": "$x"},
            }
        },
    )
    assert found == [
        {
            "_id": None,
            "push": [None, 2, 2.0, [1]],
            "set": [None, 2, [1]],
            "first": None,
            "min": 2,
            "max": [1],
            "none": None,
            "pop": 0.0,
            "samp": None,
        }
    ]


def test_merge_objects() -> None:
    documents: Documents = [{"o": {"a": 1, "b": 2}}, {}, {"o": None}, {"o": {"a": {"x": 1}, "c": 3}}]
    found = run(documents, {"$group": {"_id": None, "m": {"$mergeObjects": "$o"}}})
    assert list(found[0]["m"].items()) == [("a", {"x": 1}), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        ([{"$foo": 1}], 40324),
        ([{"$match": {}, "$limit": 1}], 40323),
        ([{}], 40323),
        ([7], ErrorCode.TypeMismatch),
        ([{"$match": 1}], 15959),
        ([{"$sort": 1}], 15973),
        ([{"$sort": {}}], 15976),
        ([{"$skip": -1}], 5107200),
        ([{"$skip": "1"}], 5107200),
        ([{"$skip": 1.5}], 5107200),
        ([{"$limit": 0}], 15958),
        ([{"$limit": -1}], 5107201),
        ([{"$limit": "1"}], 5107201),
        ([{"$count": 1}], 40156),
        ([{"$count": ""}], 40157),
        ([{"$count": "$a"}], 40158),
        ([{"$count": "a.b"}], 40160),
        ([{"$count": "_id"}], 9039800),
        ([{"$group": 1}], 15947),
        ([{"$group": {}}], 15955),
        ([{"$group": {"_id": 1, "x": 1}}], 40234),
        ([{"$group": {"_id": 1, "x": {"$sum": 1, "$avg": 1}}}], 40238),
        ([{"$group": {"_id": 1, "x": {"$foo": 1}}}], 15952),
        ([{"$group": {"_id": 1, "x": {"$sum": [1, 2]}}}], 40237),
        ([{"$group": {"_id": 1, "x.y": {"$sum": 1}}}], 40235),
        ([{"$group": {"_id": 1, "$x": {"$sum": 1}}}], 40236),
        ([{"$group": {"_id": 1, "x": {"$mergeObjects": 5}}}], 5911200),
        ([{"$limit": 1}] * 1001, 7749501),
    ],
)
def test_errors(stages: list[object], code: int) -> None:
    assert failure(*stages) == code


class CountingSource(DocumentSource):
    """Remembers how often it was asked."""

    def __init__(self, batches: int) -> None:
        self.asked = 0
        self.closed = False
        self._batches = batches

    def next_batch(self) -> list[bytes] | None:
        self.asked += 1
        return [bson.encode({"v": self.asked})] * 4 if self.asked <= self._batches else None

    def close(self) -> None:
        self.closed = True


def test_a_limit_stops_reading() -> None:
    source = CountingSource(1000)
    specs = parse_pipeline([bson.encode({"$limit": 6})], ParseContext())
    assert len(drain(open_pipeline(specs, source, RunContext()))) == 6
    assert source.asked == 2
    assert source.closed


def test_group_has_its_own_view_of_some_values_and_errors() -> None:
    documents: Documents = [{"v": bson.MinKey()}, {"v": bson.Code("f")}]
    group = {"$group": {"_id": "$v", "last": {"$last": "$v"}, "all": {"$push": "$v"}}}
    [least, code] = documents
    assert run(documents, group) == [
        {"_id": value["v"], "last": value["v"], "all": [value["v"]]} for value in (least, code)
    ]
    wrapped = {"": bson.MinKey()}
    assert run(documents, group, {"$match": {}}) == [
        {"_id": wrapped, "last": wrapped, "all": [wrapped]},
        {"_id": "f", "last": "f", "all": ["f"]},
    ]
    assert failure({"$group": {"_id": None, "x": {"$sum": {"$divide": ["$_id", 0]}}}}) == 4848401
    assert failure({"$group": {"_id": {"$mod": ["$_id", 0]}}}) == 4848403
    assert failure({"$group": {"_id": None, "x": {"$sum": ["$_id"]}}}) == 40237


@pytest.mark.parametrize("stage", [{"$sort": {"v": 1}}, {"$group": {"_id": "$v"}}, {"$count": "n"}])
def test_blocking_stages_take_one_batch_per_call(stage: dict[str, Any]) -> None:
    source = CountingSource(3)
    opened = open_pipeline(parse_pipeline([bson.encode(stage)], ParseContext()), source, RunContext())
    for asked in (1, 2, 3):
        assert opened.next_batch() == []
        assert source.asked == asked
    assert opened.next_batch() or opened.next_batch()


def test_sort_and_group_keep_to_the_memory_limit() -> None:
    documents = [bson.encode({"_id": i, "v": "x" * 100}) for i in range(100)]
    for stage in ({"$sort": {"v": 1}}, {"$group": {"_id": "$_id"}}):
        specs = parse_pipeline([bson.encode(stage)], ParseContext())
        limited = RunContext(limits=MemoryLimits(sort_bytes=1000, group_bytes=1000))
        with pytest.raises(CommandError) as caught:
            drain(open_pipeline(specs, ListSource(documents), limited))
        assert caught.value.code == ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed


def test_optimise_merges_and_coalesces() -> None:
    ctx = ParseContext()
    stages: Documents = [{"$match": {"a": 1}}, {"$match": {"b": 2}}, {"$sort": {"a": 1}}, {"$skip": 3}, {"$limit": 5}]
    specs = optimise(parse_pipeline([bson.encode(stage) for stage in stages], ctx), ctx)
    described = [bson.decode(value) for value in (spec.describe() for spec in specs) if isinstance(value, bytes)]
    assert described == [
        {"$match": {"$and": [{"a": 1}, {"b": 2}]}},
        {"$sort": {"sortKey": {"a": 1}, "limit": 8}},
        {"$skip": 3},
        {"$limit": 5},
    ]


def test_a_match_goes_before_a_sort_that_has_no_limit() -> None:
    ctx = ParseContext(namespace="db.c")

    def names(*stages: dict[str, Any]) -> list[str]:
        return [spec.name for spec in optimise(parse_pipeline([bson.encode(stage) for stage in stages], ctx), ctx)]

    match = {"$match": {"k": 1}}
    assert names({"$sort": {"v": 1}}, match) == ["$match", "$sort"]
    assert names(match, {"$sort": {"v": 1}}, {"$sort": {"k": 1}}, match) == ["$match", "$sort", "$sort"]
    assert names({"$sort": {"v": 1}}, {"$limit": 3}, match) == ["$sort", "$match"]
    assert run(TEN, {"$sort": {"v": -1}}, match) == [TEN[7], TEN[4], TEN[1]]
    assert run(TEN, {"$sort": {"v": -1}}, {"$limit": 3}, match) == [TEN[7]]
