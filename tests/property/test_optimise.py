"""A pipeline gives the same documents in the same order, rewritten or not."""

from typing import Any

import bson
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline import (
    DocumentSource,
    ListSource,
    RunContext,
    drain,
    open_pipeline,
    optimise,
    parse_pipeline,
)

Document = dict[str, Any]

NAMES = ["a", "b", "c"]
PATHS = ["a", "b", "c", "_id", "a.b", "a.c", "b.a", "b.c", "a.0", "a.0.b", "a.b.c", "n", "n.a", "j.a", "j.k", "j"]

scalars = st.one_of(st.integers(0, 3), st.sampled_from([None, True, 1.0, "x", "y"]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)),
    max_leaves=5,
)
documents = st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=3), max_size=8)

conditions = st.one_of(
    scalars,
    st.builds(lambda op, value: {op: value}, st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), scalars),
    st.builds(lambda items: {"$in": items}, st.lists(scalars, max_size=3)),
    st.builds(lambda there: {"$exists": there}, st.booleans()),
    st.builds(lambda kind: {"$type": kind}, st.sampled_from(["int", "number", "array", "object", "null"])),
    st.builds(lambda size: {"$size": size}, st.integers(0, 2)),
    st.builds(lambda name, value: {"$elemMatch": {name: value}}, st.sampled_from(NAMES), scalars),
    st.builds(lambda value: {"$not": {"$gt": value}}, st.integers(0, 3)),
)
leaves = st.dictionaries(st.sampled_from(PATHS), conditions, min_size=1, max_size=2)
expressions = st.builds(
    lambda op, path, value: {"$expr": {op: ["$" + path, value]}},
    st.sampled_from(["$eq", "$gt", "$lte"]),
    st.sampled_from(["a", "b", "_id", "a.b", "n"]),
    scalars,
)
filters = st.one_of(
    leaves,
    expressions,
    st.builds(
        lambda op, parts: {op: parts},
        st.sampled_from(["$and", "$or", "$nor"]),
        st.lists(leaves, min_size=1, max_size=3),
    ),
)
fields = st.sampled_from(NAMES)
computed = st.one_of(
    st.sampled_from(["$a", "$b", "$a.b", "$$ROOT", "$n"]), st.builds(lambda value: {"$literal": value}, scalars)
)


def stage(name: str, argument: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.builds(lambda value: {name: value}, argument)


stages = st.one_of(
    stage("$match", filters),
    stage("$match", filters),
    stage("$match", filters),
    stage("$project", st.dictionaries(st.sampled_from(["a", "b", "a.b", "b.c", "_id"]), st.just(1), min_size=1)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "b", "a.b", "b.c", "_id"]), st.just(0), min_size=1)),
    stage("$project", st.dictionaries(st.sampled_from(["a", "b", "n", "n.a"]), computed, min_size=1)),
    stage("$set", st.dictionaries(st.sampled_from(["a", "b", "n", "a.b", "n.a"]), computed, min_size=1)),
    stage("$unset", st.sampled_from(["a", "b", "a.b", "n"])),
    stage("$unwind", st.sampled_from(["$a", "$b", "$a.b", "$j"])),
    stage(
        "$unwind",
        st.fixed_dictionaries({"path": st.sampled_from(["$a", "$a.b", "$j"])}).flatmap(
            lambda base: st.sampled_from(
                [{**base, "preserveNullAndEmptyArrays": True}, {**base, "includeArrayIndex": "n"}]
            )
        ),
    ),
    stage("$sort", st.dictionaries(st.sampled_from(["a", "b", "_id"]), st.sampled_from([1, -1]), min_size=1)),
    stage("$skip", st.integers(0, 3)),
    stage("$limit", st.integers(1, 6)),
    stage("$group", st.builds(lambda key: {"_id": key, "n": {"$sum": 1}}, st.sampled_from(["$a", "$b", None]))),
    stage("$group", st.just({"_id": {"a": "$a", "b": "$b"}, "c": {"$push": "$c"}})),
    stage("$unionWith", st.just("other")),
    st.just({"$lookup": {"from": "other", "localField": "a", "foreignField": "k", "as": "j"}}),
    st.just(
        {
            "$lookup": {
                "from": "other",
                "let": {"x": "$b"},
                "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$x"]}}}, {"$project": {"_id": 0}}],
                "as": "j",
            }
        }
    ),
)

OTHER = [bson.encode({"_id": 10 + i, "k": i % 3, "a": [i, 1] if i % 2 else i, "b": {"c": i}}) for i in range(4)]


class Database(RunContext):
    def __init__(self, indexed: bool) -> None:
        super().__init__(0)
        self.indexed = indexed

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        if match is None:
            return ListSource(OTHER, 2)
        tree = parse_match(match, ParseContext() if ctx is None else ctx)
        return ListSource([document for document in OTHER if tree.matches(document)], 2)

    def has_index(self, database: str, collection: str, path: str) -> bool:
        return self.indexed


@settings(max_examples=400, deadline=None)
@given(documents, st.lists(stages, min_size=2, max_size=6), st.booleans())
def test_optimised_pipelines_give_the_same(rows: list[Document], pipeline: list[Document], indexed: bool) -> None:
    raw = [bson.encode({"_id": i, **row}) for i, row in enumerate(rows)]
    ctx = ParseContext(0, None, "db.c")
    try:
        specs = parse_pipeline([bson.encode(written) for written in pipeline], ctx)
        plain = drain(open_pipeline(specs, ListSource(raw, 3), Database(indexed)))
    except CommandError:
        assume(False)
        raise
    rewritten = optimise(specs, ctx)
    found = drain(open_pipeline(rewritten, ListSource(raw, 3), Database(indexed)))
    assert [bson.decode(document) for document in found] == [bson.decode(document) for document in plain]
    assert found == plain
    for spec in rewritten:
        assert isinstance(spec.describe(), bytes)
