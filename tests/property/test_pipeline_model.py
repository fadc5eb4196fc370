"""Random pipelines through `aggregate`, and the same through a slow, obvious model: equal to the byte, in order.

A second collection with the same documents has indexes: there the same must come, in whatever order it may come.
"""

from typing import Any

import bson
import pytest
from bson import Int64
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from mongottl.query import icu
from tests import pipeline_model
from tests.pipeline_model import Document, Documents, Unmodelled
from tests.running import Running

pytestmark = pytest.mark.slow

NAMES = ["a", "b", "n"]
NAN = float("nan")

numbers: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 3),
    st.sampled_from([1.0, 2.5, -0.0, 0.0, NAN, float("inf"), Int64(1), Int64(2), 2**31 - 1, -(2**31)]),
    st.sampled_from([2**53 + 1, Int64(2**63 - 1)]),
)
scalars: st.SearchStrategy[Any] = st.one_of(numbers, st.sampled_from([None, None, True, False, "", "x", "X", "y"]))
flat = st.one_of(scalars, st.dictionaries(st.sampled_from(NAMES), scalars, max_size=2))
values: st.SearchStrategy[Any] = st.one_of(
    flat,
    st.lists(flat, max_size=3),
    st.dictionaries(st.sampled_from(NAMES), st.one_of(flat, st.lists(flat, max_size=2)), max_size=2),
    st.lists(st.lists(flat, max_size=2), max_size=2),
)
# `k` is never an array, so that it may part windows and head compound sorts; `n` is mostly a number.
documents = st.fixed_dictionaries(
    {}, optional={"a": values, "b": values, "n": st.one_of(numbers, numbers, scalars), "k": scalars}
)
collections = st.one_of(st.lists(documents, max_size=2), st.lists(documents, min_size=3, max_size=7))

PATHS = st.sampled_from(["a", "b", "n", "k", "_id", "a.b", "a.n", "b.a", "j", "j.n"])
paths = PATHS.map("$".__add__)
computed: st.SearchStrategy[Any] = st.one_of(
    paths,
    st.sampled_from(["$$ROOT", "$$REMOVE"]),
    scalars.map(lambda value: {"$literal": value}),
    st.lists(paths, max_size=2),
    st.builds(lambda x, y: {"a": x, "b": y}, paths, paths),
    st.builds(lambda x, y: {"$ifNull": [x, y]}, paths, paths),
    st.builds(lambda op, x, y: {op: [x, {"$literal": y}]}, st.sampled_from(["$eq", "$gt", "$lte"]), paths, scalars),
    st.builds(lambda x, y, z: {"$cond": [x, y, z]}, paths, paths, paths),
)
comparisons = st.builds(
    lambda name, operand: {name: operand}, st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), flat
)
conditions: st.SearchStrategy[Any] = st.one_of(
    scalars,
    comparisons,
    st.lists(scalars, max_size=3).map(lambda items: {"$in": items}),
    st.booleans().map(lambda there: {"$exists": there}),
    st.integers(0, 2).map(lambda size: {"$size": size}),
    comparisons.map(lambda condition: {"$not": condition}),
    st.builds(lambda name, value: {"$elemMatch": {name: value}}, st.sampled_from(NAMES), scalars),
)
leaves = st.dictionaries(PATHS, conditions, min_size=1, max_size=2)
filters: st.SearchStrategy[Document] = st.one_of(
    leaves,
    st.builds(
        lambda name, parts: {name: parts}, st.sampled_from(["$and", "$or", "$nor"]), st.lists(leaves, min_size=1)
    ),
    st.builds(lambda op, x, y: {"$expr": {op: [x, {"$literal": y}]}}, st.sampled_from(["$eq", "$gt"]), paths, scalars),
)
accumulators: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda name, value: {name: value},
        st.sampled_from(["$sum", "$avg", "$min", "$max", "$first", "$last", "$push", "$addToSet"]),
        computed.filter(lambda expression: not isinstance(expression, list)),
    ),
    st.just({"$count": {}}),
    st.just({"$sum": 1}),
)
outputs = st.dictionaries(st.sampled_from(["n", "a", "s"]), accumulators, min_size=1, max_size=3)
sort_patterns = st.one_of(
    st.builds(lambda path, direction: {path: direction}, PATHS, st.sampled_from([1, -1])),
    st.dictionaries(st.sampled_from(["k", "a", "n", "_id"]), st.sampled_from([1, -1]), min_size=1, max_size=3),
)
bounds = st.sampled_from(
    [["unbounded", "unbounded"], ["unbounded", "current"], ["current", "unbounded"], [-1, 1], [1, 2], [-3, -2], [0, 0]]
)
windows = st.one_of(
    st.builds(lambda function, window: {**function, "window": {"documents": window}}, accumulators, bounds),
    st.sampled_from([{"$documentNumber": {}}, {"$rank": {}}, {"$denseRank": {}}]),
)


def stage(name: str, argument: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return argument.map(lambda value: {name: value})


unwound = st.one_of(
    paths,
    st.fixed_dictionaries(
        {"path": paths},
        optional={"preserveNullAndEmptyArrays": st.booleans(), "includeArrayIndex": st.sampled_from(["i", "n"])},
    ),
)
shaping = st.one_of(
    stage("$match", filters),
    stage("$set", st.dictionaries(st.sampled_from(["a", "n", "j", "a.b", "j.n"]), computed, min_size=1, max_size=1)),
    stage("$addFields", st.dictionaries(st.sampled_from(["a", "b", "n", "j"]), computed, min_size=1, max_size=3)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "k", "n", "b.a", "_id"]), st.just(1), min_size=1)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "k", "n", "b.a", "_id"]), st.just(0), min_size=1)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "k", "n", "j"]), computed, min_size=1, max_size=3)),
    stage("$unset", st.sampled_from(["a", "a.b", ["n", "b"], "j"])),
    stage("$unwind", unwound),
    stage("$unwind", unwound),
    stage("$replaceWith", paths.map(lambda path: {"x": path, "n": "$n", "a": "$a"})),
    stage("$replaceRoot", st.just({"newRoot": {"$ifNull": ["$none", "$$ROOT"]}})),
    stage("$sort", sort_patterns),
    stage("$sort", sort_patterns),
    stage("$skip", st.integers(0, 3)),
    stage("$limit", st.integers(1, 5)),
)
grouping = st.one_of(
    stage("$group", st.builds(lambda key, output: {"_id": key, **output}, computed, outputs)),
    stage("$count", st.sampled_from(["n", "a"])),
    stage("$sortByCount", paths),
    stage(
        "$bucket",
        st.fixed_dictionaries(
            {
                "groupBy": paths,
                "boundaries": st.sampled_from([[0, 1], [-1.5, 1, Int64(3)], ["", "x"]]),
                "default": st.sampled_from(["other", None, 9]),
            },
            optional={"output": outputs},
        ).filter(lambda argument: argument["default"] != "other" or argument["boundaries"] != ["", "x"]),
    ),
    stage(
        "$bucketAuto",
        st.fixed_dictionaries({"groupBy": paths, "buckets": st.integers(1, 4)}, optional={"output": outputs}),
    ),
    stage(
        "$setWindowFields",
        st.fixed_dictionaries(
            {
                "sortBy": st.sampled_from([{"k": 1}, {"n": 1}, {"_id": -1}]),
                "output": st.dictionaries(st.sampled_from(["n", "w"]), windows, min_size=1),
            },
            optional={"partitionBy": st.sampled_from([None, "$k", {"$eq": ["$n", "$k"]}])},
        ),
    ),
)
inner = st.lists(st.one_of(shaping, stage("$match", st.just({"$expr": {"$eq": ["$n", "$$x"]}}))), max_size=2)
equalities = st.builds(
    lambda local, foreign: {"from": "other", "localField": local, "foreignField": foreign, "as": "j"}, PATHS, PATHS
)
joins = st.one_of(
    stage("$unionWith", st.just("other")),
    stage("$unionWith", st.lists(shaping, max_size=2).map(lambda stages: {"coll": "other", "pipeline": stages})),
    stage(
        "$lookup",
        st.fixed_dictionaries(
            {"from": st.just("other"), "localField": PATHS, "foreignField": PATHS, "as": st.just("j")}
        ),
    ),
    stage("$lookup", inner.map(lambda stages: {"from": "other", "let": {"x": "$n"}, "pipeline": stages, "as": "j"})),
    stage(
        "$lookup",
        st.builds(
            lambda join, stages: {**join, "let": {"x": "$n"}, "pipeline": stages},
            *(equalities, inner),
        ),
    ),
    stage(
        "$facet",
        st.dictionaries(
            st.sampled_from(["a", "j"]), st.lists(st.one_of(shaping, grouping), max_size=2), min_size=1, max_size=2
        ),
    ),
)
pipelines = st.lists(st.one_of(shaping, shaping, grouping, joins), min_size=1, max_size=4)


def numbered(rows: Documents, first: int = 0) -> Documents:
    return [{"_id": first + i, **row} for i, row in enumerate(rows)]


def filled(running: Running, name: str, rows: Documents) -> None:
    running.run({"create": name})
    if rows:
        running.insert(*rows, into=name)


def aggregate(running: Running, name: str, pipeline: list[Document], **options: Any) -> Documents:
    return running.listed({"aggregate": name, "pipeline": pipeline, "cursor": {}, **options})


INDEXES: list[Document] = [{"k": 1}, {"a": 1}, {"n": -1, "k": 1}, {"b.a": 1}, {"a.n": 1, "_id": 1}]
# Sorts without ties, so that results have one order whatever the plan is.
ORDERS: list[Document] = [{"_id": 1}, {"_id": -1}, {"k": 1, "_id": 1}, {"k": -1, "_id": 1}]


def modelled(pipeline: list[Document], rows: Documents, others: Documents) -> Documents:
    try:
        return pipeline_model.run(pipeline, rows, {"other": others})
    except Unmodelled:
        assume(False)
        raise


def check(rows: Documents, others: Documents, pipeline: list[Document], indexed: bool) -> None:
    """Compares `aggregate` with the model. indexed: whether the first collection has indexes."""
    rows, others = numbered(rows), numbered(others, 5)
    expected = modelled(pipeline, rows, others)
    event("something" if expected else "nothing")
    running = Running()
    filled(running, "c", rows)
    filled(running, "other", others)
    for key in INDEXES if indexed else []:
        running.index(key)
    found = aggregate(running, "c", pipeline)
    assert [bson.encode(document) for document in found] == [bson.encode(document) for document in expected]


@settings(max_examples=100, deadline=None)
@given(collections, collections, pipelines)
def test_pipelines_equal_the_model(rows: Documents, others: Documents, pipeline: list[Document]) -> None:
    check(rows, others, pipeline, False)


@settings(max_examples=50, deadline=None)
@given(collections, st.lists(filters, max_size=1), st.sampled_from(ORDERS), pipelines)
def test_indexes_change_nothing(
    rows: Documents, filters: list[Document], order: Document, pipeline: list[Document]
) -> None:
    check(rows, [], [*({"$match": filter} for filter in filters), {"$sort": order}, *pipeline], True)


changing = st.one_of(
    stage("$set", st.dictionaries(st.sampled_from(["a", "n", "j", "a.b", "j.n"]), computed, min_size=1, max_size=1)),
    stage("$addFields", st.dictionaries(st.sampled_from(["a", "b", "n", "j"]), computed, min_size=1, max_size=2)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "k", "n", "b.a", "_id"]), st.just(1), min_size=1)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "k", "n", "b.a", "_id"]), st.just(0), min_size=1)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "k", "n", "j"]), computed, min_size=1, max_size=2)),
    stage("$unset", st.sampled_from(["a", "a.b", ["n", "b"], "_id"])),
    stage("$replaceWith", paths.map(lambda path: {"x": path, "n": "$n", "a": "$a"})),
    stage("$replaceRoot", st.just({"newRoot": {"$ifNull": ["$none", "$$ROOT"]}})),
)


@settings(max_examples=50, deadline=None)
@given(collections, filters, st.lists(changing, min_size=1, max_size=3))
def test_updates_by_pipelines_equal_the_model(rows: Documents, filter: Document, pipeline: list[Document]) -> None:
    """Documents keep their `_id`, whatever the pipeline leaves of it, and it stays the first field."""
    rows = numbered(rows)
    chosen = modelled([{"$match": filter}], rows, [])
    expected = {row["_id"]: row for row in rows}
    modified = 0
    for row in chosen:
        [new] = modelled(pipeline, [row], [])
        expected[row["_id"]] = {"_id": row["_id"], **new}
        # As with a replacement, a result without `_id` counts as a change even where only that was missing.
        modified += bson.encode(new) != bson.encode(row)
    running = Running()
    filled(running, "c", rows)
    reply = running.run({"update": "c", "updates": [{"q": filter, "u": pipeline, "multi": True}]})
    assert (reply["n"], reply["nModified"]) == (len(chosen), modified)
    found = running.listed({"find": "c"})
    assert [bson.encode(document) for document in found] == [bson.encode(row) for row in expected.values()]


graphs = st.builds(
    lambda start, source, target, depth: {
        "from": "other",
        "startWith": start,
        "connectFromField": source,
        "connectToField": target,
        **({} if depth is None else {"maxDepth": depth}),
        "depthField": "d",
        "as": "j",
    },
    *(computed, PATHS, PATHS, st.sampled_from([None, None, 0, 1, 2])),
)


@settings(max_examples=50, deadline=None)
@given(
    collections,
    collections,
    st.one_of(stage("$lookup", equalities), stage("$graphLookup", graphs)),
    st.booleans(),
    st.sampled_from([100 << 20, 1000, 500, 1]),
)
def test_joins_find_the_same_with_an_index_and_in_little_memory(
    rows: Documents, others: Documents, join: Document, indexed: bool, table_bytes: int
) -> None:
    """In what order joined documents come is open: they are compared by `_id`."""
    rows, others = numbered(rows), numbered(others, 5)
    expected = modelled([join], rows, others)
    running = Running()
    running.service.limits.lookup_table_bytes = table_bytes
    filled(running, "c", rows)
    filled(running, "other", others)
    [argument] = join.values()
    target = argument.get("connectToField", argument.get("foreignField"))
    if indexed and target != "_id":
        running.index({target: 1}, on="other")
    found = aggregate(running, "c", [join])
    for document in [*found, *expected]:
        document["j"] = sorted(document["j"], key=lambda joined: int(joined["_id"]))
    assert [bson.encode(document) for document in found] == [bson.encode(document) for document in expected]


def folded(value: Any) -> Any:
    """The same with one form for the texts that a collation of strength 2 takes for equal."""
    if isinstance(value, dict):
        return {name: folded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [folded(item) for item in value]
    return "x" if value == "X" else value


@pytest.mark.skipif(not icu.is_available(), reason="ICU is not installed")
@settings(max_examples=50, deadline=None)
@given(collections, collections, pipelines)
def test_a_collation_takes_cases_for_equal(rows: Documents, others: Documents, pipeline: list[Document]) -> None:
    """What is folded behind a collated pipeline is what a plain one gives for folded documents."""
    rows, others = numbered(rows), numbered(others, 5)
    expected = modelled(folded(pipeline), folded(rows), folded(others))
    running = Running()
    filled(running, "c", rows)
    filled(running, "other", others)
    found = aggregate(running, "c", pipeline, collation={"locale": "en", "strength": 2})
    assert [bson.encode(folded(document)) for document in found] == [bson.encode(document) for document in expected]
