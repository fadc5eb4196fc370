"""$lookup, $graphLookup and $unwind: how much one call does."""

from typing import Any

import bson
import pytest

from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline import DocumentSource, ListSource, RunContext, open_pipeline, parse_pipeline


class Counted(DocumentSource):
    """Documents in batches of ten, and how many batches were asked for."""

    def __init__(self, run: "Foreign", documents: list[bytes]) -> None:
        self._run = run
        self._source = ListSource(documents, 10)

    def next_batch(self) -> list[bytes] | None:
        self._run.asked += 1
        return self._source.next_batch()


class Foreign(RunContext):
    """A foreign collection of 5,000 documents."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self._documents = [bson.encode({"_id": n}) for n in range(5000)]

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        return Counted(self, self._documents)


def test_one_call_asks_a_foreign_collection_a_bounded_number_of_times() -> None:
    """Others run between two calls, however much there is to join to each document."""
    ctx = ParseContext(0, None, "test.outer")
    run = Foreign()
    stages = [bson.encode({"$lookup": {"from": "inner", "pipeline": [{"$count": "n"}], "as": "found"}})]
    outer = ListSource([bson.encode({"_id": n}) for n in range(4)])
    source = open_pipeline(parse_pipeline(list(stages), ctx), outer, run)
    joined: list[bytes] = []
    while True:
        before = run.asked
        batch = source.next_batch()
        assert run.asked - before <= 16
        if batch is None:
            break
        joined.extend(batch)
    assert [bson.decode(doc) for doc in joined] == [{"_id": n, "found": [{"n": 5000}]} for n in range(4)]
    assert run.asked == 4 * 501


class Nodes(RunContext):
    """A chain of 300 documents, each with an edge to the next two; how often it is asked."""

    def __init__(self, indexed: bool) -> None:
        super().__init__()
        self.indexed = indexed
        self.asked = self.opened = self.closed = 0
        self._documents = [bson.encode({"_id": i, "to": [i + 1, i + 2]}) for i in range(300)]

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        assert match is not None
        tree = parse_match(match, ParseContext())
        self.opened += 1
        return CountedNodes(self, [document for document in self._documents if tree.matches(document)])

    def has_index(self, database: str, collection: str, path: str) -> bool:
        return self.indexed


class CountedNodes(DocumentSource):
    def __init__(self, run: Nodes, documents: list[bytes]) -> None:
        self._run = run
        self._source = ListSource(documents, 1)

    def next_batch(self) -> list[bytes] | None:
        self._run.asked += 1
        return self._source.next_batch()

    def close(self) -> None:
        self._run.closed += 1


@pytest.mark.parametrize("indexed", [False, True])
def test_a_graph_search_is_done_in_steps(indexed: bool) -> None:
    stage = {
        "from": "n",
        "startWith": 0,
        "connectFromField": "to",
        "connectToField": "_id",
        "as": "all",
        "depthField": "depth",
    }
    run = Nodes(indexed)
    specs = parse_pipeline([bson.encode({"$graphLookup": stage})], ParseContext(namespace="db.c"))
    opened = open_pipeline(specs, ListSource([bson.encode({"_id": 1}), bson.encode({"_id": 2})], 2), run)
    found: list[bytes] = []
    while True:
        before = run.asked
        batch = opened.next_batch()
        if batch is None:
            break
        assert run.asked - before <= 8
        found.extend(batch)
    assert [len(bson.decode(document)["all"]) for document in found] == [300, 300]
    assert {node["_id"]: node["depth"] for node in bson.decode(found[0])["all"]}[299] == 150
    assert run.opened == run.closed > 300


@pytest.mark.parametrize("path", ["a", "d.a"])
def test_a_long_array_is_unwound_in_pieces(path: str) -> None:
    array = list(range(5000))
    documents: list[dict[str, Any]] = [
        {"_id": 0, "a": array, "x": "y"},
        {"_id": 1, "a": []},
        {"_id": 2, "a": [7]},
        {"_id": 3, "a": array[:1500], "x": "z" * 50_000},
    ]
    if path == "d.a":
        documents = [{"_id": document["_id"], "d": {**document}} for document in documents]
    stage = {"path": "$" + path, "includeArrayIndex": "at", "preserveNullAndEmptyArrays": True}
    specs = parse_pipeline([bson.encode({"$unwind": stage})], ParseContext(namespace="db.c"))
    opened = open_pipeline(specs, ListSource([bson.encode(document) for document in documents], 4), RunContext())
    found: list[tuple[int, int]] = []
    while (batch := opened.next_batch()) is not None:
        assert len(batch) <= 2048
        assert sum(len(document) for document in batch) < 9 << 20
        for document in (bson.decode(raw) for raw in batch):
            found.append((document["_id"], document["at"]))
            if document["at"] is not None and document["_id"] != 2:
                assert (document if path == "a" else document["d"])["a"] == document["at"]
    assert found == [*((0, i) for i in array), (1, None), (2, 0), *((3, i) for i in range(1500))]
