"""No stage, accumulator or window function goes on for long without a check, whatever number of documents, fields or
elements a client sends.

Each registered one has examples, or stands among those whose work does not grow with what a client sends.
"""

import functools
from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.build_info import is_compiled
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import check_interrupt
from mongottl.query.context import ParseContext
from mongottl.query.expr import parse_expression
from mongottl.query.pipeline import ListSource, open_pipeline, optimise, parse_pipeline
from mongottl.query.pipeline.accumulators import ACCUMULATORS
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.group import GroupSpec
from mongottl.query.pipeline.project import parse_unset
from mongottl.query.pipeline.reshape import FieldTree
from mongottl.query.pipeline.stage import STAGES
from mongottl.query.pipeline.window.function import WINDOW_FUNCTIONS
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s
from tests.unit.query.pipeline.conftest import NOW_MS, InMemory

pytestmark = pytest.mark.slow

LENGTH = ELEMENTS
NUMBERS = [*range(LENGTH)]
FIELDS = [f"f{number}" for number in NUMBERS]
MANY_FIELDS = [f"f{number}" for number in range(10 * LENGTH)]
WIDE_OUTPUT = MANY_FIELDS[: 60_000 if is_compiled() else 20_000]
MANY = ELEMENTS // 10  # documents
COUNTED = {"$sum": 1}
LONG: dict[str, Any] = {
    "a": NUMBERS,
    "docs": [{"n": number} for number in NUMBERS],
    "wide": dict.fromkeys(FIELDS, 1),
}
COMPUTED: dict[str, Any] = {field: {"$add": ["$n", 1]} for field in FIELDS}
FEW: dict[str, Any] = {"$limit": 3}
BY_N: dict[str, Any] = {"n": 1}


def grouped(accumulator: dict[str, Any]) -> list[dict[str, Any]]:
    """Over many documents, and over elements that are as long as a document may be."""
    return [{"$group": {"_id": {"$mod": ["$n", 2]}, "v": accumulator}}]


def windowed(function: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"$setWindowFields": {"sortBy": BY_N, "output": {"v": function}}}]


# By name, pipelines over many documents, the first of which has the fields of `LONG` that they name.
ACCUMULATED: dict[str, list[Any]] = {
    "$addToSet": [grouped({"$addToSet": "$n"}), grouped({"$addToSet": "$a"})],
    "$avg": [grouped({"$avg": "$n"})],
    "$bottom": [grouped({"$bottom": {"sortBy": BY_N, "output": "$n"}})],
    "$bottomN": [grouped({"$bottomN": {"sortBy": BY_N, "output": "$n", "n": MANY}})],
    "$concatArrays": [grouped({"$concatArrays": "$a"}), grouped({"$concatArrays": ["$n"]})],
    "$count": [grouped({"$count": {}})],
    "$first": [grouped({"$first": "$a"})],
    "$firstN": [grouped({"$firstN": {"input": "$n", "n": MANY}})],
    "$last": [grouped({"$last": "$docs"})],
    "$lastN": [grouped({"$lastN": {"input": "$n", "n": MANY}})],
    "$max": [grouped({"$max": "$a"}), grouped({"$max": "$wide"})],
    "$maxN": [grouped({"$maxN": {"input": "$n", "n": MANY}})],
    "$median": [grouped({"$median": {"input": "$n", "method": "approximate"}})],
    "$mergeObjects": [grouped({"$mergeObjects": "$wide"}), grouped({"$mergeObjects": "$$ROOT"})],
    "$min": [grouped({"$min": "$a"})],
    "$minN": [grouped({"$minN": {"input": "$n", "n": MANY}})],
    "$percentile": [grouped({"$percentile": {"input": "$n", "p": [0.5] * 1_000, "method": "approximate"}})],
    "$push": [grouped({"$push": "$n"}), grouped({"$push": "$docs"})],
    "$setUnion": [grouped({"$setUnion": "$a"}), grouped({"$setUnion": ["$n"]})],
    "$stdDevPop": [grouped({"$stdDevPop": "$n"})],
    "$stdDevSamp": [grouped({"$stdDevSamp": "$n"})],
    "$sum": [grouped({"$sum": "$n"})],
    "$top": [grouped({"$top": {"sortBy": BY_N, "output": "$n"}})],
    "$topN": [grouped({"$topN": {"sortBy": BY_N, "output": "$n", "n": MANY}})],
}
WINDOWS: dict[str, list[Any]] = {
    "$covariancePop": [windowed({"$covariancePop": ["$n", "$n"]})],
    "$covarianceSamp": [windowed({"$covarianceSamp": ["$n", "$n"], "window": {"documents": [-1_000, 1_000]}})],
    "$denseRank": [windowed({"$denseRank": {}})],
    "$derivative": [windowed({"$derivative": {"input": "$n"}, "window": {"documents": [-1_000, 1_000]}})],
    "$documentNumber": [windowed({"$documentNumber": {}})],
    "$expMovingAvg": [windowed({"$expMovingAvg": {"input": "$n", "N": 1_000}})],
    "$integral": [windowed({"$integral": {"input": "$n"}, "window": {"documents": [-1_000, 1_000]}})],
    "$linearFill": [windowed({"$linearFill": "$few"})],
    "$locf": [windowed({"$locf": "$few"})],
    "$minMaxScaler": [
        windowed({"$minMaxScaler": {"input": "$n"}, "window": {"documents": [-1_000, 1_000]}}),
        windowed({"$minMaxScaler": {"input": "$n"}}),
    ],
    "$rank": [windowed({"$rank": {}})],
    "$shift": [windowed({"$shift": {"output": "$n", "by": 1}})],
}
OVER_FRAMES: dict[str, list[Any]] = {
    "sum over a frame": windowed({"$sum": "$n", "window": {"documents": [-1_000, 1_000]}}),
    "push over a frame": windowed({"$push": "$n", "window": {"documents": [-1_000, 1_000]}}),
    "set over a frame": windowed({"$addToSet": "$n", "window": {"range": [-100, 100]}}),
    "push of all": windowed({"$push": "$n"}),
    "frame that begins with all": [
        {"$set": {"n": {"$literal": 1}}},
        {"$setWindowFields": {"sortBy": BY_N, "output": {"v": {"$sum": "$n", "window": {"range": [0, 5]}}}}},
    ],
    "few of nulls": windowed({"$linearFill": "$none"}),
}
STAGED: dict[str, list[Any]] = {
    "$addFields": [[FEW, {"$addFields": COMPUTED}], [{"$addFields": {"a": 1}}], [{"$addFields": {"docs.x": 1}}]],
    "$bucket": [
        [{"$bucket": {"groupBy": "$n", "boundaries": [*range(MANY + 1)]}}],
        [FEW, {"$bucket": {"groupBy": "$n", "boundaries": [0, 1, 5], "output": dict.fromkeys(WIDE_OUTPUT, COUNTED)}}],
    ],
    "$bucketAuto": [
        [{"$bucketAuto": {"groupBy": "$n", "buckets": MANY}}],
        [FEW, {"$bucketAuto": {"groupBy": "$n", "buckets": 2, "output": dict.fromkeys(WIDE_OUTPUT, COUNTED)}}],
    ],
    "$count": [[{"$count": "n"}]],
    "$densify": [
        [{"$densify": {"field": "n", "range": {"step": 0.1, "bounds": "full"}}}],
        [
            {"$project": {"part": "$n", "n": {"$literal": 1}}},
            {"$densify": {"field": "n", "partitionByFields": ["part"], "range": {"step": 1, "bounds": "full"}}},
        ],
        [
            FEW,
            {
                "$densify": {
                    "field": "n" * 1_000_000,
                    "partitionByFields": WIDE_OUTPUT[:5_000],
                    "range": {"step": 1, "bounds": "full"},
                }
            },
        ],
    ],
    "$documents": [[{"$documents": NUMBERS}], [{"$documents": [{"n": number} for number in NUMBERS]}]],
    "$facet": [
        [{"$facet": {field: [{"$match": {"n": -1}}] for field in FIELDS[:100]}}],
        [FEW, {"$facet": {field: [{"$match": {"n": -1}}] for field in WIDE_OUTPUT[:20_000]}}],
    ],
    "$fill": [
        [{"$fill": {"sortBy": BY_N, "output": {"few": {"method": "linear"}}}}],
        [FEW, {"$fill": {"sortBy": BY_N, "output": {field: {"method": "locf"} for field in WIDE_OUTPUT}}}],
        [FEW, {"$fill": {"partitionByFields": MANY_FIELDS[:100_000], "output": {"few": {"method": "locf"}}}}],
    ],
    "$graphLookup": [
        [
            FEW,
            {
                "$graphLookup": {
                    "from": "other",
                    "startWith": "$a",
                    "connectFromField": "next",
                    "connectToField": "n",
                    "as": "found",
                }
            },
        ]
    ],
    "$group": [
        [{"$group": {"_id": "$n"}}],
        [{"$group": {"_id": "$a"}}],
        [{"$group": {"_id": "$wide"}}],
        [FEW, {"$group": {"_id": None, **{field: {"$sum": 1} for field in MANY_FIELDS[:50_000]}}}],
    ],
    "$limit": [[{"$limit": MANY}]],
    "$lookup": [
        [{"$lookup": {"from": "other", "localField": "a", "foreignField": "n", "as": "found"}}],
        [{"$lookup": {"from": "other", "localField": "n", "foreignField": "n", "as": "found"}}],
        [FEW, {"$lookup": {"from": "other", "pipeline": [{"$match": {"n": {"$gt": 5}}}], "as": "found"}}],
        [
            {"$limit": 1},
            {"$lookup": {"from": "other", "let": dict.fromkeys(MANY_FIELDS, "$n"), "pipeline": [], "as": "found"}},
        ],
    ],
    "$match": [[{"$match": {"a": -1}}], [{"$match": {"n": {"$in": [-number for number in NUMBERS]}}}]],
    "$project": [
        [FEW, {"$project": COMPUTED}],
        [FEW, {"$project": dict.fromkeys(FIELDS, 1)}],
        [{"$project": {"docs.n": 1}}],
        [{"$project": {"docs.n": 0}}],
        [FEW, {"$project": {"wide": dict.fromkeys(FIELDS, 0)}}],
        [{"$project": {"docs": {"x": "$n"}}}],
    ],
    "$redact": [
        [{"$redact": {"$cond": [{"$eq": ["$n", -1]}, "$$PRUNE", "$$DESCEND"]}}, {"$match": {"docs": -1}}],
        [{"$redact": {"$cond": [{"$eq": ["$wide", -1]}, "$$PRUNE", "$$DESCEND"]}}],
    ],
    "$replaceRoot": [[{"$replaceRoot": {"newRoot": {"x": "$wide"}}}]],
    "$replaceWith": [[{"$replaceWith": {"$mergeObjects": ["$$ROOT", "$wide"]}}]],
    "$sample": [[{"$sample": {"size": MANY // 2}}]],
    "$set": [
        [{"$set": {"docs.n": 5}}],
        [FEW, {"$set": {f"wide.{field}": 2 for field in FIELDS}}],
    ],
    "$setWindowFields": [
        [{"$setWindowFields": {"partitionBy": "$a", "sortBy": BY_N, "output": {"v": {"$sum": "$n"}}}}],
        [{"$setWindowFields": {"sortBy": BY_N, "output": {field: {"$sum": "$n"} for field in FIELDS[:1_000]}}}],
        [FEW, {"$setWindowFields": {"sortBy": BY_N, "output": {key: {"$sum": "$n"} for key in WIDE_OUTPUT}}}],
        [
            {"$limit": 1},
            {"$setWindowFields": {"sortBy": BY_N, "output": {key: {"$denseRank": {}} for key in WIDE_OUTPUT}}},
        ],
    ],
    "$skip": [[{"$skip": MANY - 1}]],
    "$sort": [[{"$sort": {"n": -1}}], [{"$sort": {"a": 1}}], [{"$sort": {"docs.n": -1, "n": 1}}]],
    "$sortByCount": [[{"$sortByCount": "$n"}]],
    "$unionWith": [[{"$unionWith": "other"}]],
    "$unset": [[FEW, {"$unset": FIELDS}], [{"$unset": "docs.n"}]],
    "$unwind": [[{"$unwind": "$a"}], [{"$unwind": {"path": "$docs", "includeArrayIndex": "i"}}, {"$count": "n"}]],
}
# Scripts run in processes of their own.
ELSEWHERE = {"$accumulator"}
# Answers from the server's metadata, events of change streams, writes and searches, which `exec` does.
BY_THE_SERVER = {
    *("$changeStream", "$changeStreamSplitLargeEvent", "$collStats", "$currentOp", "$geoNear", "$indexStats"),
    *("$listClusterCatalog", "$listLocalSessions", "$listSampledQueries", "$listSessions", "$merge", "$out"),
    *("$planCacheStats", "$querySettings", "$queryStats", "$rankFusion"),
}
CASES: dict[str, list[Any]] = {
    **{f"{name} {i}": each for name, examples in ACCUMULATED.items() for i, each in enumerate(examples)},
    **{f"{name} {i}": each for name, examples in WINDOWS.items() for i, each in enumerate(examples)},
    **{f"{name} stage {i}": each for name, examples in STAGED.items() for i, each in enumerate(examples)},
    **OVER_FRAMES,
}


@functools.cache
def documents_with(fields: tuple[str, ...]) -> list[bytes]:
    few = [{"n": number, **({"few": number} if number % 100 == 0 else {})} for number in range(MANY)]
    found = [bson.encode(document) for document in few]
    return [bson.encode({"n": 0, "few": 0, **{name: LONG[name] for name in fields}}), *found[1:]]


def test_every_accumulator_and_stage_has_examples() -> None:
    assert ACCUMULATED.keys() | ELSEWHERE == set(ACCUMULATORS.names())
    assert WINDOWS.keys() == set(WINDOW_FUNCTIONS.names())
    assert STAGED.keys() | BY_THE_SERVER == set(STAGES.names())


@pytest.mark.parametrize("name", CASES)
def test_no_pipeline_stalls_others(name: str) -> None:
    assert longest_stall_s(computation(name)) <= STALL_S


VERY_MANY = 40 * LENGTH if LENGTH < 100_000 else 10 * LENGTH
NAMED = LongList(f"f{number}" for number in range(VERY_MANY))


def described_tree() -> Callable[[], object]:
    tree = FieldTree()
    one = parse_expression("$n", ParseContext(NOW_MS))
    for name in NAMED:
        tree.add(name, one, None)
    return tree.describe


def described_group() -> Callable[[], object]:
    group = parse_pipeline([bson.encode({"$group": {"_id": None, "v": {"$sum": 1}}})], ParseContext(NOW_MS))[0]
    assert isinstance(group, GroupSpec)
    return GroupSpec(group.key, LongList(group.accumulators * VERY_MANY), None).describe


# What is done with a stage that has very many parts, but for its parsing as a whole and its opening.
PARTS: dict[str, Callable[[], Callable[[], object]]] = {
    "description of $addFields": described_tree,
    "description of $group": described_group,
    "paths of $unset": lambda: lambda: parse_unset(NAMED, ParseContext(NOW_MS)),
    "what $addFields changes": lambda: lambda: Effect(NAMED),
}


@pytest.mark.parametrize("name", PARTS)
def test_no_part_of_a_stage_stalls_others(name: str) -> None:
    compute = PARTS[name]()
    assert longest_stall_s(compute) <= STALL_S


def computation(name: str) -> Callable[[], object]:
    stages = CASES[name]
    text = repr(stages)[:2_000]
    documents = documents_with(tuple(name for name in LONG if f"'{name}" in text or f"${name}" in text))
    run = InMemory({"other": [{"n": number, "next": number + 1} for number in range(1_000)]})
    raw: list[Any] = [bson.encode(stage) for stage in stages]

    def compute() -> object:
        namespace = "db.$cmd.aggregate" if "$documents" in stages[0] else "db.c"
        ctx = ParseContext(NOW_MS, namespace=namespace)
        specs = optimise(parse_pipeline(raw, ctx), ctx)
        source = open_pipeline(specs, ListSource(documents), run)
        found: list[bytes] = []
        while (batch := source.next_batch()) is not None:
            found.extend(batch)
            check_interrupt()  # as between the batches of an operation
        return specs, found

    return compute
