"""Reading a view is reading a collection with the results of its pipeline, whatever is asked of it.

The collection is made by `$out`, so that what is compared is how queries are joined to a view's stages, and no more.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.query_samples import Samples
from tests.running import Document, Running


def stages(samples: Samples) -> list[Document]:
    """A pipeline that keeps `_id`s apart."""
    possible: list[Document] = [
        {"$match": samples.filter()},
        {"$addFields": {"d": {"$ifNull": ["$c", "none"]}}},
        {"$project": {"a": 1, "c": 1}},
        {"$unset": "b"},
        {"$sort": {"c": 1, "_id": -1}},
        {"$limit": 7},
        {"$skip": 2},
        {"$group": {"_id": "$c", "n": {"$sum": 1}, "a": {"$min": "$_id"}}},
    ]
    return samples.random.sample(possible, samples.random.randint(0, 3))


def normal(documents: list[Any]) -> list[str]:
    """Comparable, NaN included."""
    return [repr(document) for document in documents]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_a_view_reads_like_its_results(seed: int) -> None:
    samples = Samples(seed, arrays=True)
    server = Running(ContractEngine(open_engine("memory:")))
    server.insert(*({"_id": number, **samples.document()} for number in range(12)))
    if samples.chance(0.5):
        server.index({"c": 1})
    first, second = stages(samples), stages(samples)
    # Without an order of their own, limits would cut off other documents.
    first.insert(0, {"$sort": {"_id": 1}})
    server.run({"create": "below", "viewOn": "c", "pipeline": first})
    server.run({"create": "v", "viewOn": "below", "pipeline": second})
    server.run({"aggregate": "c", "pipeline": [*first, *second, {"$out": "copy"}], "cursor": {}})
    for _ in range(5):
        filter = samples.filter()
        find: Document = {"filter": filter, "sort": {"_id": 1}, "batchSize": 2}
        if samples.chance(0.5):
            find |= {"skip": 1, "limit": 3}
        if samples.chance(0.5):
            find |= {"projection": {"a": 1, "e": {"$type": "$c"}}}
        assert normal(server.listed({"find": "v", **find})) == normal(server.listed({"find": "copy", **find}))
        query = {"query": filter}
        assert server.run({"count": "v", **query}) == server.run({"count": "copy", **query})
        distinct = {"key": "c", **query}
        values = [server.run({"distinct": of, **distinct})["values"] for of in ("v", "copy")]
        assert normal(values[0]) == normal(values[1])
    joined = []
    for other in ("v", "copy"):
        lookup = {"from": other, "localField": "c", "foreignField": "a", "as": "found"}
        sizes = [{"$sort": {"_id": 1}}, {"$lookup": lookup}, {"$project": {"n": {"$size": "$found"}}}]
        joined.append(server.listed({"aggregate": "c", "pipeline": sizes, "cursor": {}}))
    assert normal(joined[0]) == normal(joined[1])
