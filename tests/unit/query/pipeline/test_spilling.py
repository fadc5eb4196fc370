"""Stages that go on in temporary files give what they give in memory."""

import random
from pathlib import Path
from typing import Any

import bson
import pytest

from mongottl.config import MemoryLimits
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.state.temporary_files import TemporaryFiles
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import ListSource, RunContext, drain, open_pipeline, parse_pipeline
from mongottl.query.pipeline.group import GroupSource

Document = dict[str, Any]


def limits_of(limit_bytes: int) -> MemoryLimits:
    return MemoryLimits(
        sort_bytes=limit_bytes,
        group_bytes=limit_bytes,
        bucket_auto_bytes=limit_bytes,
        window_bytes=limit_bytes,
        push_bytes=1 << 20,
        add_to_set_bytes=1 << 20,
    )


def documents_of(count: int, groups: int) -> list[bytes]:
    numbers = random.Random(7)
    return [
        bson.encode({"_id": i, "k": numbers.randrange(groups), "v": numbers.randrange(100), "s": "x" * (i % 50)})
        for i in range(count)
    ]


def run(documents: list[bytes], stages: list[Document], context: RunContext) -> list[Document]:
    specs = parse_pipeline([bson.encode(stage) for stage in stages], ParseContext())
    return [bson.decode(document) for document in drain(open_pipeline(specs, ListSource(documents), context))]


GROUP_FIELDS: dict[str, Document] = {
    "n": {"$sum": 1},
    "mean": {"$avg": "$v"},
    "first": {"$first": "$_id"},
    "last": {"$last": "$_id"},
    "least": {"$min": "$v"},
    "all": {"$push": "$_id"},
    "set": {"$addToSet": "$v"},
    "two": {"$firstN": {"input": "$_id", "n": 2}},
    "top": {"$topN": {"output": "$_id", "sortBy": {"v": -1, "_id": 1}, "n": 3}},
    "merged": {"$mergeObjects": {"a": "$v"}},
    "middle": {"$median": {"input": "$v", "method": "approximate"}},
}


@pytest.mark.parametrize("fields", [["n", "mean", "first", "last", "least"], list(GROUP_FIELDS), []])
@pytest.mark.parametrize("groups", [1500, 40])
@pytest.mark.parametrize("limit_bytes", [80_000, 20_000])
def test_group(tmp_path: Path, fields: list[str], groups: int, limit_bytes: int) -> None:
    documents = documents_of(2500, groups)
    stage = {"$group": {"_id": {"k": "$k"}, **{name: GROUP_FIELDS[name] for name in fields}}}
    spilling = RunContext(limits=limits_of(limit_bytes), space=TemporaryFiles(str(tmp_path)))
    in_memory = {document["_id"]["k"]: document for document in run(documents, [stage], RunContext())}
    on_disk = run(documents, [stage], spilling)
    assert len(on_disk) == len(in_memory)
    assert {document["_id"]["k"]: document for document in on_disk} == in_memory


def test_group_by_a_field_whose_values_compare_equal(tmp_path: Path) -> None:
    documents = [bson.encode({"k": i % 500 if i % 2 else float(i % 500)}) for i in range(4000)]
    stage = {"$group": {"_id": "$k", "n": {"$sum": 1}}}
    spilling = RunContext(limits=limits_of(20_000), space=TemporaryFiles(str(tmp_path)))
    counts = {document["_id"]: document["n"] for document in run(documents, [stage], spilling)}
    assert counts == dict.fromkeys(range(500), 8)


def test_group_statistics_and_close(tmp_path: Path) -> None:
    specs = parse_pipeline([bson.encode({"$group": {"_id": "$_id"}})], ParseContext())
    spilling = RunContext(limits=limits_of(10_000), space=TemporaryFiles(str(tmp_path)))
    source = open_pipeline(specs, ListSource(documents_of(2000, 10)), spilling)
    assert isinstance(source, GroupSource)
    while not source.next_batch():
        pass
    assert source.spilled.spills > 0
    assert source.spilled.records > 1000
    assert source.spilled.bytes > 50_000
    source.close()
    source.close()


@pytest.mark.parametrize("accumulator", ["$push", "$addToSet"])
def test_one_group_that_is_too_large(tmp_path: Path, accumulator: str) -> None:
    documents = [bson.encode({"_id": i, "s": f"{i:08d}" * 100}) for i in range(3000)]
    stage = {"$group": {"_id": None, "all": {accumulator: "$s"}}}
    with pytest.raises(CommandError) as refused:
        run(documents, [stage], RunContext(limits=limits_of(100_000), space=TemporaryFiles(str(tmp_path))))
    assert refused.value.code == ErrorCode.ExceededMemoryLimit
    assert accumulator in refused.value.message
    with pytest.raises(CommandError) as refused:
        run(documents, [stage], RunContext(limits=limits_of(100_000)))
    assert refused.value.code == ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed


WINDOW = {
    "$setWindowFields": {
        "partitionBy": "$k",
        "sortBy": {"v": 1},
        "output": {"sum": {"$sum": "$v", "window": {"documents": [-2, "current"]}}, "place": {"$documentNumber": {}}},
    }
}


@pytest.mark.parametrize(
    "stages",
    [
        [{"$sort": {"v": -1, "_id": 1}}],
        [{"$sort": {"s": 1}}, {"$limit": 1700}],
        [{"$sortByCount": "$k"}, {"$sort": {"count": 1, "_id": 1}}],
        [{"$bucketAuto": {"groupBy": "$v", "buckets": 7}}],
        [{"$bucketAuto": {"groupBy": "$v", "buckets": 5, "granularity": "1-2-5"}}],
        [{"$bucketAuto": {"groupBy": "$_id", "buckets": 3000, "output": {"first": {"$first": "$v"}}}}],
        [WINDOW],
    ],
    ids=["sort", "sort-limit", "sort-by-count", "bucket-auto", "granularity", "many-buckets", "window"],
)
def test_others(tmp_path: Path, stages: list[Document]) -> None:
    documents = documents_of(1500, 30)
    spilling = RunContext(limits=limits_of(20_000), space=TemporaryFiles(str(tmp_path)))
    assert run(documents, stages, spilling) == run(documents, stages, RunContext())
    with pytest.raises(CommandError) as refused:
        run(documents, stages, RunContext(limits=limits_of(5_000)))
    assert refused.value.code == ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed


@pytest.mark.parametrize("size", [20, 1000])
def test_one_large_partition(tmp_path: Path, size: int) -> None:
    """Frames that reach far ahead and far back, over documents that are not all in memory."""
    documents = [bson.encode({"_id": i, "v": i * 7919 % 997, "s": "x" * size}) for i in range(1300)]
    output = {
        "wide": {"$sum": "$v", "window": {"documents": [-40, 30]}},
        "near": {"$avg": "$v", "window": {"range": [-1, 1]}},
        "rank": {"$denseRank": {}},
        "far": {"$shift": {"output": "$_id", "by": 900, "default": -1}},
    }
    stages: list[Document] = [{"$setWindowFields": {"sortBy": {"v": 1}, "output": output}}, {"$unset": "s"}]
    limits = MemoryLimits(window_bytes=100_000)
    spilling = RunContext(limits=limits, space=TemporaryFiles(str(tmp_path)))
    assert run(documents, stages, spilling) == run(documents, stages, RunContext())
    with pytest.raises(CommandError) as refused:
        run(documents, stages, RunContext(limits=limits))
    assert refused.value.code == ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed
