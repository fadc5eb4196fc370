from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline import (
    STAGES,
    DocumentSource,
    ListSource,
    RunContext,
    drain,
    open_pipeline,
    optimise,
    parse_pipeline,
)

Documents = list[dict[str, Any]]


class Database(RunContext):
    """Collections in memory. indexed: whether joins are told of an index, and so ask for each document."""

    def __init__(self, collections: dict[str, Documents], indexed: bool = False) -> None:
        super().__init__(0)
        self.collections = collections
        self.indexed = indexed
        self.seed = 1

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        assert database == "db"
        documents = [bson.encode(document) for document in self.collections.get(collection, [])]
        if match is not None:
            tree = parse_match(match, ParseContext() if ctx is None else ctx)
            documents = [document for document in documents if tree.matches(document)]
        return ListSource(documents, 2)

    def has_index(self, database: str, collection: str, path: str) -> bool:
        return self.indexed

    def random(self) -> float:
        self.seed = self.seed * 48271 % 2147483647
        return self.seed / 2147483647


def run(documents: Documents, *stages: object, database: RunContext | None = None) -> Documents:
    ctx = ParseContext(0, {}, "db.c")
    specs = optimise(parse_pipeline([bson.encode(s) if isinstance(s, dict) else s for s in stages], ctx), ctx)
    for spec in specs:
        assert isinstance(spec.describe(), bytes)
    source = ListSource([bson.encode(document) for document in documents], 2)
    context = Database({}) if database is None else database
    return [bson.decode(document) for document in drain(open_pipeline(specs, source, context))]


def failure(*stages: object) -> int:
    with pytest.raises(CommandError) as caught:
        run([{"_id": 1, "v": 1}], *stages)
    return caught.value.code


@pytest.mark.parametrize(
    ("specification", "document", "expected"),
    [
        ({"x": "$a"}, {"a": 1}, {"a": 1, "x": 1}),
        ({"a": 5}, {"a": 1, "b": 2}, {"a": 5, "b": 2}),
        ({"a.b": 5}, {"a": {"c": 1}}, {"a": {"c": 1, "b": 5}}),
        ({"a": {"b": 5}}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 5, "c": 2}}),
        ({"a.b": 5}, {"a": [{"b": 1}, 7]}, {"a": [{"b": 5}, {"b": 5}]}),
        ({"a.b": 5}, {"a": 3}, {"a": {"b": 5}}),
        ({"a.b": 5}, {}, {"a": {"b": 5}}),
        ({"a": "$$REMOVE"}, {"a": 1, "b": 2}, {"b": 2}),
        ({"x": "$nothing"}, {"a": 1}, {"a": 1}),
        ({"a": "$b", "b": "$a"}, {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({}, {"a": 1}, {"a": 1}),
    ],
)
def test_add_fields(specification: dict[str, Any], document: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("$addFields", "$set"):
        found = run([document], {name: specification})
        assert found == [expected]
        assert list(found[0]) == list(expected)


@pytest.mark.parametrize(
    ("stage", "documents", "expected"),
    [
        ("$a", [{"_id": 1, "a": [1, 2], "z": 0}], [{"_id": 1, "a": 1, "z": 0}, {"_id": 1, "a": 2, "z": 0}]),
        ("$a", [{"a": 5}, {"a": []}, {"a": None}, {}], [{"a": 5}]),
        ("$a.b", [{"a": {"b": [1, 2], "c": 3}}], [{"a": {"b": 1, "c": 3}}, {"a": {"b": 2, "c": 3}}]),
        (
            {"path": "$a", "preserveNullAndEmptyArrays": True},
            [{"a": []}, {"a": None}, {"x": 1}],
            [{}, {"a": None}, {"x": 1}],
        ),
        (
            {"path": "$a", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": True},
            [{"a": ["x", "y"]}, {"a": 5}, {}],
            [{"a": "x", "i": 0}, {"a": "y", "i": 1}, {"a": 5, "i": None}, {"i": None}],
        ),
        ({"path": "$a", "includeArrayIndex": "p.q"}, [{"a": [1]}], [{"a": 1, "p": {"q": 0}}]),
    ],
)
def test_unwind(stage: object, documents: Documents, expected: Documents) -> None:
    assert run(documents, {"$unwind": stage}) == expected


def test_unwind_gives_a_large_array_in_several_batches() -> None:
    documents: Documents = [{"a": list(range(3000)), "i": i} for i in range(3)]
    found = run(documents, {"$unwind": "$a"})
    assert [document["a"] for document in found] == list(range(3000)) * 3


def test_replace_root_and_with() -> None:
    documents = [{"o": {"x": 1}}]
    assert run(documents, {"$replaceRoot": {"newRoot": "$o"}}) == [{"x": 1}]
    assert run(documents, {"$replaceWith": {"$mergeObjects": ["$o", {"y": 2}]}}) == [{"x": 1, "y": 2}]


def test_project_and_unset() -> None:
    documents = [{"_id": 1, "a": 1, "b": {"c": 2, "d": 3}}]
    assert run(documents, {"$project": {"_id": 0, "s": {"$add": ["$a", "$b.c"]}}}) == [{"s": 3}]
    assert run(documents, {"$unset": ["a", "b.c"]}) == [{"_id": 1, "b": {"d": 3}}]


def test_documents() -> None:
    assert run([], {"$documents": [{"a": 1}, {"a": {"$add": [1, 1]}}]}) == [{"a": 1}, {"a": 2}]


def test_sort_by_count() -> None:
    documents = [{"k": key} for key in "abbccc"]
    expected = [{"_id": "c", "count": 3}, {"_id": "b", "count": 2}, {"_id": "a", "count": 1}]
    assert run(documents, {"$sortByCount": "$k"}) == expected


def test_facet_gives_every_branch_all_documents() -> None:
    documents: Documents = [{"_id": i, "v": i % 3} for i in range(10)]
    found = run(
        documents,
        {
            "$facet": {
                "counts": [{"$sortByCount": "$v"}],
                "first": [{"$limit": 1}],
                "all": [],
                "sum": [{"$group": {"_id": None, "s": {"$sum": "$_id"}}}],
            }
        },
    )
    assert len(found) == 1
    assert found[0]["counts"][0] == {"_id": 0, "count": 4}
    assert found[0]["first"] == [{"_id": 0, "v": 0}]
    assert found[0]["all"] == documents
    assert found[0]["sum"] == [{"_id": None, "s": 45}]


def test_facet_over_nothing() -> None:
    assert run([], {"$facet": {"a": [{"$count": "n"}], "b": []}}) == [{"a": [], "b": []}]


def test_bucket() -> None:
    documents = [{"v": v} for v in (0, 5, 10, 15, 99, "x")]
    stage = {"$bucket": {"groupBy": "$v", "boundaries": [0, 10, 20], "default": "other"}}
    expected = [{"_id": 0, "count": 2}, {"_id": 10, "count": 2}, {"_id": "other", "count": 2}]
    assert run(documents, stage) == expected


def test_bucket_auto() -> None:
    documents = [{"v": v} for v in (1, 1, 1, 2, 3, 4, 5, 6)]
    stage = {"$bucketAuto": {"groupBy": "$v", "buckets": 3, "output": {"n": {"$sum": 1}}}}
    found = run(documents, stage)
    assert found == [
        {"_id": {"min": 1, "max": 2}, "n": 3},
        {"_id": {"min": 2, "max": 5}, "n": 3},
        {"_id": {"min": 5, "max": 6}, "n": 2},
    ]
    alike = run([{"v": 5}, {"v": Int64(5)}, {"v": 5.0}], {"$bucketAuto": {"groupBy": "$v", "buckets": 2}})
    assert [(type(bucket["_id"]["min"]), type(bucket["_id"]["max"])) for bucket in alike] == [(int, float)]
    rounded = run(documents, {"$bucketAuto": {"groupBy": "$v", "buckets": 2, "granularity": "1-2-5"}})
    assert [bucket["_id"] for bucket in rounded] == [{"min": 0.5, "max": 5.0}, {"min": 5.0, "max": 10.0}]


def test_redact() -> None:
    document = {
        "_id": 1,
        "level": 1,
        "open": {"level": 1, "x": 1},
        "closed": {"level": 5, "y": 2},
        "list": [{"level": 5}, {"level": 1, "z": 3}, 4],
    }
    stage = {"$redact": {"$cond": [{"$lte": ["$level", 2]}, "$$DESCEND", "$$PRUNE"]}}
    expected = {"_id": 1, "level": 1, "open": {"level": 1, "x": 1}, "list": [{"level": 1, "z": 3}, 4]}
    assert run([document], stage) == [expected]
    assert run([document], {"$redact": "$$KEEP"}) == [document]
    assert run([document], {"$redact": "$$PRUNE"}) == []


def test_sample_takes_distinct_documents() -> None:
    documents: Documents = [{"_id": i} for i in range(50)]
    chosen = [document["_id"] for document in run(documents, {"$sample": {"size": 10}})]
    assert len(set(chosen)) == 10
    assert chosen != sorted(chosen)
    assert len(run(documents, {"$sample": {"size": 100}})) == 50


@pytest.mark.parametrize(
    ("accumulator", "expected"),
    [
        ({"$firstN": {"input": "$v", "n": 2}}, [3, None]),
        ({"$lastN": {"input": "$v", "n": 2}}, [1, 2]),
        ({"$minN": {"input": "$v", "n": 2}}, [1, 2]),
        ({"$maxN": {"input": "$v", "n": 9}}, [3, 2, 1]),
        ({"$top": {"sortBy": {"v": -1}, "output": "$i"}}, 0),
        ({"$bottom": {"sortBy": {"v": -1}, "output": "$i"}}, 1),
        ({"$topN": {"sortBy": {"v": 1}, "output": ["$i", "$v"], "n": 2}}, [[1, None], [2, 1]]),
        ({"$bottomN": {"sortBy": {"v": 1}, "output": "$i", "n": 2}}, [3, 0]),
        ({"$median": {"input": "$v", "method": "approximate"}}, 2.0),
        ({"$percentile": {"input": "$v", "p": [0.1, 1], "method": "approximate"}}, [1.0, 3.0]),
        ({"$setUnion": {"$cond": [{"$isNumber": "$v"}, ["$v"], []]}}, [3, 1, 2]),
        ({"$concatArrays": {"$ifNull": ["$none", ["$i"]]}}, [0, 1, 2, 3]),
    ],
)
def test_ranked_accumulators(accumulator: object, expected: object) -> None:
    documents = [{"i": 0, "v": 3}, {"i": 1}, {"i": 2, "v": 1}, {"i": 3, "v": 2}]
    assert run(documents, {"$group": {"_id": None, "x": accumulator}}) == [{"_id": None, "x": expected}]


def test_n_may_depend_on_the_group() -> None:
    """On the key itself, if it is a document: `$k`, not `$_id.k`."""
    documents = [{"k": key, "v": v} for v, key in enumerate("abab")]
    n = {"$cond": [{"$eq": ["$k", "a"]}, 1, 2]}
    found = run(documents, {"$group": {"_id": {"k": "$k"}, "x": {"$firstN": {"input": "$v", "n": n}}}})
    assert found == [{"_id": {"k": "a"}, "x": [0]}, {"_id": {"k": "b"}, "x": [1, 3]}]
    found = run(
        documents, {"$group": {"_id": {"k": "$k"}, "x": {"$topN": {"output": "$v", "sortBy": {"v": 1}, "n": n}}}}
    )
    assert found == [{"_id": {"k": "a"}, "x": [0]}, {"_id": {"k": "b"}, "x": [1, 3]}]


@pytest.mark.parametrize("key", ["$k", None, ["$k"]])
def test_n_is_evaluated_on_an_empty_document_where_the_key_is_none(key: object) -> None:
    n = {"$ifNull": ["$k", {"$ifNull": ["$_id", 2]}]}
    found = run(
        [{"k": 1, "v": v} for v in range(3)], {"$group": {"_id": key, "x": {"$lastN": {"input": "$v", "n": n}}}}
    )
    assert [group["x"] for group in found] == [[1, 2]]


FOREIGN: Documents = [
    {"_id": 1, "f": "a"},
    {"_id": 2, "f": ["b", "c"]},
    {"_id": 3, "f": None},
    {"_id": 4},
    {"_id": 5, "f": 1.0},
    {"_id": 6, "f": "a", "w": 9},
]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("local", "joined"),
    [
        ({"l": "a"}, [1, 6]),
        ({"l": "c"}, [2]),
        ({"l": ["b", "a"]}, [1, 2, 6]),
        ({"l": Int64(1)}, [5]),
        ({"l": None}, [3, 4]),
        ({}, [3, 4]),
        ({"l": "zz"}, []),
        ({"l": []}, [3, 4]),
    ],
)
def test_lookup_by_equality(local: dict[str, Any], joined: list[int], indexed: bool) -> None:
    stage = {"$lookup": {"from": "foreign", "localField": "l", "foreignField": "f", "as": "j"}}
    found = run([local], stage, database=Database({"foreign": FOREIGN}, indexed))
    assert [document["_id"] for document in found[0]["j"]] == joined


def test_lookup_by_pipeline_with_variables() -> None:
    stage = {
        "$lookup": {
            "from": "foreign",
            "let": {"least": "$n"},
            "pipeline": [{"$match": {"$expr": {"$gt": ["$_id", "$$least"]}}}, {"$project": {"f": 1}}, {"$limit": 1}],
            "as": "j",
        }
    }
    found = run([{"n": 1}, {"n": 5}, {"n": 9}], stage, database=Database({"foreign": FOREIGN}))
    assert [document["j"] for document in found] == [[{"_id": 2, "f": ["b", "c"]}], [{"_id": 6, "f": "a"}], []]


def test_lookup_by_equality_and_pipeline() -> None:
    stage = {
        "$lookup": {
            "from": "foreign",
            "localField": "l",
            "foreignField": "f",
            "pipeline": [{"$match": {"w": 9}}],
            "as": "j.k",
        }
    }
    found = run([{"l": "a"}], stage, database=Database({"foreign": FOREIGN}))
    assert found == [{"l": "a", "j": {"k": [{"_id": 6, "f": "a", "w": 9}]}}]


def test_union_with() -> None:
    database = Database({"other": [{"_id": 7, "v": 1}, {"_id": 8, "v": 2}]})
    stage = {"$unionWith": {"coll": "other", "pipeline": [{"$match": {"v": 2}}]}}
    assert run([{"_id": 1}], stage, database=database) == [{"_id": 1}, {"_id": 8, "v": 2}]
    assert len(run([{"_id": 1}], {"$unionWith": "other"}, database=database)) == 3


def test_graph_lookup() -> None:
    people: Documents = [
        {"_id": 1, "name": "a"},
        {"_id": 2, "name": "b", "boss": "a"},
        {"_id": 3, "name": "c", "boss": "b"},
        {"_id": 4, "name": "d", "boss": "d"},
    ]
    stage: dict[str, Any] = {
        "from": "people",
        "startWith": "$boss",
        "connectFromField": "boss",
        "connectToField": "name",
        "as": "up",
        "depthField": "depth",
    }
    found = run(people[2:], {"$graphLookup": stage}, database=Database({"people": people}))
    assert [(person["name"], person["depth"]) for person in found[0]["up"]] == [("b", 0), ("a", 1)]
    assert [person["name"] for person in found[1]["up"]] == ["d"]
    limited = run(people[2:3], {"$graphLookup": {**stage, "maxDepth": 0}}, database=Database({"people": people}))
    assert [person["name"] for person in limited[0]["up"]] == ["b"]


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ({"$addFields": 1}, 40272),
        ({"$addFields": {"a.b": 1, "a": 1}}, 40176),
        ({"$addFields": {"a": {"$add": [1, 2], "$multiply": [3, 4]}}}, 40181),
        ({"$set": {"a": {"b": {"$add": [1, 2], "c": 1}}}}, 40181),
        ({"$addFields": {"$a": 1}}, 16410),
        ({"$replaceRoot": 1}, 40229),
        ({"$replaceRoot": {}}, 40414),
        ({"$replaceRoot": {"newRoot": 1}}, 40228),
        ({"$unwind": 1}, 15981),
        ({"$unwind": "a"}, 28818),
        ({"$unwind": {"x": 1}}, 28811),
        ({"$unwind": {}}, 28812),
        ({"$unset": 1}, 31002),
        ({"$unset": []}, 31119),
        ({"$unset": [1]}, 31120),
        ({"$project": 1}, 15969),
        ({"$project": {}}, 51272),
        ({"$facet": 1}, 40169),
        ({"$facet": {"a": 1}}, 40170),
        ({"$facet": {"a": [1]}}, 40171),
        ({"$facet": {"a": [{"$facet": {}}]}}, 40600),
        ({"$facet": {"a": [{"$out": "x"}]}}, 40600),
        ({"$bucket": 1}, 40201),
        ({"$bucket": {}}, 40198),
        ({"$bucket": {"groupBy": "$v", "boundaries": [1]}}, 40192),
        ({"$bucket": {"groupBy": "$v", "boundaries": [1, "x"]}}, 40193),
        ({"$bucket": {"groupBy": "$v", "boundaries": [2, 1]}}, 40194),
        ({"$bucket": {"groupBy": "$v", "boundaries": [5, 6]}}, 40066),
        ({"$bucketAuto": {"groupBy": "$v", "buckets": 0}}, 40243),
        ({"$bucketAuto": {"groupBy": "$v", "buckets": 1, "granularity": "R7"}}, 40257),
        ({"$sortByCount": 1}, 40149),
        ({"$redact": 1}, 17053),
        ({"$sample": {}}, 28749),
        ({"$sample": {"size": 0}}, 28747),
        ({"$lookup": 1}, ErrorCode.FailedToParse),
        ({"$lookup": {"from": "x", "as": "y"}}, ErrorCode.FailedToParse),
        ({"$lookup": {"from": "x", "as": "y", "pipeline": [], "z": 1}}, 40415),
        ({"$lookup": {"from": "x", "as": "y", "pipeline": [{"$out": "z"}]}}, 51047),
        ({"$unionWith": {"coll": "x", "pipeline": [{"$out": "z"}]}}, 31441),
        ({"$graphLookup": {}}, ErrorCode.FailedToParse),
        ({"$group": {"_id": 1, "x": {"$firstN": {"input": 1, "n": 0}}}}, 7548606),
        ({"$group": {"_id": 1, "x": {"$topN": {"sortBy": {"a": 1}, "output": 1}}}}, 5788003),
    ],
)
def test_errors(stage: dict[str, Any], code: int) -> None:
    assert failure(stage) == code


def test_documents_must_come_first() -> None:
    assert failure({"$limit": 1}, {"$documents": []}) == 40602


def test_every_unsupported_stage_is_refused_by_name() -> None:
    for name in STAGES.unsupported_names():
        with pytest.raises(CommandError, match=name.replace("$", r"\$")) as caught:
            run([], {name: {}})
        assert caught.value.code in (ErrorCode.CommandNotSupported, ErrorCode.SearchNotEnabled)


def test_sums_of_decimals_keep_their_digits() -> None:
    documents: Documents = [{"v": Decimal128("0.10")}, {"v": 0.5}, {"v": 1}]
    found = run(documents, {"$group": {"_id": None, "s": {"$sum": "$v"}}})
    assert get_value(bson.encode(found[0]), "s") == Decimal128("1.60")
