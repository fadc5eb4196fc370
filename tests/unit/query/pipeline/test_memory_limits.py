"""The memory of stages: batches of bounded bytes, and limits that are checked before the memory is taken."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
import pytest

from mongottl.config import MemoryLimits
from mongottl.errors import CommandError
from mongottl.exec.state.temporary_files import TemporaryFiles
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline import DocumentSource, ListSource, RunContext, open_pipeline, optimise, parse_pipeline
from mongottl.query.pipeline.source import BATCH_BYTES
from mongottl.query.spill import SpillSpace

Document = dict[str, Any]

KB = 1 << 10
MB = 1 << 20
NOW_MS = 1_700_000_000_000


class CountedSource(DocumentSource):
    """Documents of another collection, and how many bytes of them were read."""

    def __init__(self, run: "OtherCollections", documents: list[bytes]) -> None:
        self._documents = ListSource(documents, 16)
        self._run = run

    def next_batch(self) -> list[bytes] | None:
        batch = self._documents.next_batch()
        for document in batch or []:
            self._run.read_bytes += len(document)
        return batch


class OtherCollections(RunContext):
    """Each name is a collection of the same documents. scans: how often one was opened."""

    def __init__(self, documents: list[Document], limits: MemoryLimits, space: SpillSpace | None) -> None:
        super().__init__(0, limits, space)
        self._documents = [bson.encode(document) for document in documents]
        self.read_bytes = 0
        self.scans = 0

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        self.scans += 1
        documents = self._documents
        if match is not None:
            tree = parse_match(match, ParseContext() if ctx is None else ctx)
            documents = [document for document in documents if tree.matches(document)]
        return CountedSource(self, documents)

    def random(self) -> float:
        return 0.5


def opened(
    documents: list[Document],
    stages: list[Document],
    foreign: list[Document] | None = None,
    limits: MemoryLimits | None = None,
    space: SpillSpace | None = None,
) -> tuple[DocumentSource, OtherCollections]:
    ctx = ParseContext(NOW_MS, namespace="db.c")
    specs = optimise(parse_pipeline([bson.encode(stage) for stage in stages], ctx), ctx)
    run = OtherCollections(foreign or [], limits or MemoryLimits(), space)
    return open_pipeline(specs, ListSource([bson.encode(document) for document in documents]), run), run


def batches(source: DocumentSource) -> Iterator[list[bytes]]:
    while (batch := source.next_batch()) is not None:
        yield batch


def refusal(*arguments: Any, **options: Any) -> CommandError:
    source, _ = opened(*arguments, **options)
    with pytest.raises(CommandError) as refused:
        for _ in batches(source):
            pass
    return refused.value


LOOKUP: Document = {"$lookup": {"from": "o", "localField": "k", "foreignField": "k", "as": "j"}}
PIPELINE: Document = {"$lookup": {"from": "o", "pipeline": [{"$match": {"k": 1}}], "as": "j"}}
TEN_KB = "x" * 10 * KB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stages", "count"),
    [
        ([{"$addFields": {"y": {"$concat": ["$x"] * 20}}}], 256),
        ([{"$project": {"y": {"$concat": ["$x"] * 20}}}], 256),
        ([{"$replaceWith": {"y": {"$concat": ["$x"] * 20}}}], 256),
        ([LOOKUP], 256),
        ([PIPELINE], 256),
        ([LOOKUP, {"$unwind": "$j"}], 256 * 20),
        ([PIPELINE, {"$unwind": "$j"}], 256 * 20),
        ([{"$addFields": {"i": {"$range": [0, 20]}}}, {"$unwind": "$i"}], 256 * 20),
        ([{"$densify": {"field": "_id", "partitionByFields": ["x"], "range": {"step": 0.25, "bounds": "full"}}}], 1021),
        ([{"$limit": 32}, {"$setWindowFields": {"output": {"all": {"$push": "$x"}}}}], 32),
        ([{"$group": {"_id": "$_id", "y": {"$push": {"$concat": ["$x"] * 20}}}}], 256),
    ],
    ids=lambda value: str(value)[:60],
)
def test_batches_have_a_few_megabytes(stages: list[Document], count: int) -> None:
    """256 documents of 10 KB come at once, and 20 others belong to each."""
    source, _ = opened(
        [{"_id": i, "k": 1, "x": TEN_KB} for i in range(256)],
        stages,
        foreign=[{"_id": i, "k": 1, "x": TEN_KB} for i in range(20)],
    )
    given = 0
    for batch in batches(source):
        assert sum(map(len, batch)) <= BATCH_BYTES + max(map(len, batch), default=0)
        given += len(batch)
    assert given == count


@pytest.mark.parametrize("lookup", [LOOKUP, PIPELINE, {"$lookup": {**LOOKUP["$lookup"], **PIPELINE["$lookup"]}}])
def test_a_lookup_reads_no_more_than_one_document_may_have(lookup: Document) -> None:
    limits = MemoryLimits(lookup_document_bytes=MB, lookup_table_bytes=1)
    foreign = [{"_id": i, "k": 1, "x": TEN_KB} for i in range(1000)]
    source, run = opened([{"_id": 1, "k": 1}], [lookup], foreign, limits)
    with pytest.raises(CommandError) as refused:
        for _ in batches(source):
            pass
    assert refused.value.code == 4568
    assert run.read_bytes <= 2 * MB
    # Unwound, there is no such document.
    source, _ = opened([{"_id": 1, "k": 1}], [lookup, {"$unwind": "$j"}], foreign, limits)
    assert sum(len(batch) for batch in batches(source)) == 1000


def test_a_table_counts_its_keys() -> None:
    """Documents of 22 bytes take some three hundred in a table."""
    foreign = [{"_id": i, "k": i} for i in range(1000)]
    for limit_kb, scans in [(1000, 1), (200, 1), (1, 4)]:
        limits = MemoryLimits(lookup_table_bytes=limit_kb * KB)
        source, run = opened([{"_id": i, "k": i} for i in range(10)], [LOOKUP], foreign, limits)
        found = [bson.decode(document) for batch in batches(source) for document in batch]
        assert [document["j"][0]["_id"] for document in found] == list(range(10))
        assert run.scans == scans


def test_beyond_its_table_a_lookup_reads_once_for_each_batch() -> None:
    count = 1000
    foreign: list[Document] = [{"_id": i, "k": i % count} for i in range(3 * count)]
    outer: list[Document] = [{"_id": i, "k": i} for i in range(count)]
    outer[300]["k"] = [5, 7, 999]
    outer[301]["k"] = []
    del outer[302]["k"]
    outer[303]["k"] = [1, [2]]
    outer[304]["k"] = bson.Regex("x")
    expected = {i: [i, i + count, i + 2 * count] for i in range(count)}
    expected[300] = sorted(expected[5] + expected[7] + expected[999])
    expected.update({301: [], 302: [], 303: expected[1], 304: []})
    limits = MemoryLimits(lookup_table_bytes=400 * KB)
    source, run = opened(outer, [LOOKUP], foreign, limits)
    found = [bson.decode(document) for batch in batches(source) for document in batch]
    assert {document["_id"]: [joined["_id"] for joined in document["j"]] for document in found} == expected
    # Four batches, and what null, arrays within arrays and regular expressions need; equal values share a query.
    assert run.scans == 4 + 3
    source, run = opened(outer, [LOOKUP, {"$unwind": "$j"}], foreign, limits)
    pairs = [(document["_id"], document["j"]["_id"]) for document in map(bson.decode, flattened(source))]
    assert pairs == [(i, joined) for i in range(count) for joined in expected[i]]
    assert run.scans == 4 + 3


def flattened(source: DocumentSource) -> list[bytes]:
    return [document for batch in batches(source) for document in batch]


def test_tables_of_smaller_parts() -> None:
    """The documents of one value take 100 KB: two or three values fit into a table, and sometimes none does."""
    foreign: list[Document] = [{"_id": i, "k": i % 16, "x": TEN_KB} for i in range(160)]
    foreign += [{"_id": -i, "k": 5, "x": TEN_KB} for i in range(1, 31)]
    source, run = opened(
        [{"_id": i, "k": i} for i in range(16)], [LOOKUP], foreign, MemoryLimits(lookup_table_bytes=350 * KB)
    )
    found = [bson.decode(document) for document in flattened(source)]
    assert [len(document["j"]) for document in found] == [10 if i != 5 else 40 for i in range(16)]
    assert all(joined["k"] == document["_id"] for document in found for joined in document["j"])
    assert run.scans <= 8


def test_a_facet_s_branches_share_a_limit() -> None:
    documents = [{"_id": i, "x": TEN_KB} for i in range(50)]
    stages: list[Document] = [{"$facet": {"a": [{"$skip": 1}], "b": [{"$skip": 1}]}}]
    assert refusal(documents, stages, limits=MemoryLimits(facet_bytes=600 * KB)).code == 4031700
    source, _ = opened(documents, stages, limits=MemoryLimits(facet_bytes=1200 * KB))
    assert sum(len(batch) for batch in batches(source)) == 1


def test_a_graph_lookup_counts_the_values_that_it_asks_for() -> None:
    graph = {"from": "o", "startWith": "$_id", "connectFromField": "to", "connectToField": "_id", "as": "r"}
    foreign = [{"_id": 1, "to": list(range(10_000, 20_000))}]
    assert refusal([{"_id": 1}], [{"$graphLookup": graph}], foreign, MemoryLimits(graph_lookup_bytes=MB)).code == 40099
    source, _ = opened([{"_id": 1}], [{"$graphLookup": graph}], foreign, MemoryLimits(graph_lookup_bytes=2 * MB))
    assert sum(len(batch) for batch in batches(source)) == 1


def test_partitions_of_densify() -> None:
    densify = {"field": "n", "partitionByFields": ["p"], "range": {"step": 1, "bounds": "partition"}}
    documents = [{"_id": i, "n": 1, "p": f"{i}{TEN_KB}"} for i in range(50)]
    refused = refusal(documents, [{"$densify": densify}], limits=MemoryLimits(densify_bytes=500 * KB))
    assert (refused.code, refused.message) == (6007200, f"$densify exceeded memory limit of {500 * KB}")


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ({"$bucketAuto": {"groupBy": "$k", "buckets": 1, "output": {"all": {"$push": "$x"}}}}, 146),
        ({"$bucketAuto": {"groupBy": "$k", "buckets": 1, "output": {"all": {"$addToSet": "$x"}}}}, 146),
        ({"$bucket": {"groupBy": "$k", "boundaries": [0, 2], "output": {"all": {"$push": "$x"}}}}, 146),
        ({"$setWindowFields": {"output": {"all": {"$push": "$x"}}}}, 5414201),
        ({"$setWindowFields": {"output": {"all": {"$addToSet": "$x"}}}}, 5414201),
    ],
    ids=str,
)
def test_accumulators_fail_above_their_memory_limit(stage: Document, code: int, tmp_path: Path) -> None:
    limits = MemoryLimits(push_bytes=500 * KB, add_to_set_bytes=500 * KB, window_bytes=500 * KB)
    documents = [{"_id": i, "k": 1, "x": f"{i}{TEN_KB}"} for i in range(100)]
    space = TemporaryFiles(str(tmp_path))
    assert refusal(documents, [stage], limits=limits, space=space).code == code
    roomy = replace(limits, push_bytes=4 * MB, add_to_set_bytes=4 * MB, window_bytes=4 * MB)
    source, _ = opened(documents, [stage], limits=roomy, space=space)
    assert sum(len(batch) for batch in batches(source)) in (1, 100)


@pytest.mark.parametrize("accumulator", ["$last", "$max"])
def test_values_that_become_larger(accumulator: str) -> None:
    """Each group begins with a short text and ends with a long one."""
    documents = [{"_id": i, "k": i % 50, "x": "y" + (TEN_KB if i >= 50 else "")} for i in range(100)]
    group = {"$group": {"_id": "$k", "x": {accumulator: "$x"}}}
    assert refusal(documents, [group], limits=MemoryLimits(group_bytes=200 * KB)).code == 292
    source, _ = opened(documents, [group], limits=MemoryLimits(group_bytes=MB))
    assert sum(len(batch) for batch in batches(source)) == 50


@pytest.mark.slow
@pytest.mark.parametrize("accumulator", [{"$lastN": {"n": 2, "input": "$x"}}, {"$maxN": {"n": 2, "input": "$x"}}])
def test_accumulators_of_a_few_large_values_hold_no_more(accumulator: Document) -> None:
    """They drop values that cannot be in the result before these reach the limit."""
    documents = [{"_id": i, "x": f"{i:03}" + "x" * MB} for i in range(20)]
    source, _ = opened(documents, [{"$group": {"_id": 1, "x": accumulator}}], limits=MemoryLimits(push_bytes=18 * MB))
    (found,) = [bson.decode(document) for batch in batches(source) for document in batch]
    assert sorted(text[:3] for text in found["x"]) == ["018", "019"]


def test_samples_go_on_in_files(tmp_path: Path) -> None:
    documents = [{"_id": i, "x": TEN_KB} for i in range(100)]
    limits = MemoryLimits(sort_bytes=100 * KB)
    assert refusal(documents, [{"$sample": {"size": 90}}], limits=limits).code == 292
    source, _ = opened(documents, [{"$sample": {"size": 90}}], limits=limits, space=TemporaryFiles(str(tmp_path)))
    assert sum(len(batch) for batch in batches(source)) == 90
