"""`$text` and text indexes: what is found, what it scores, what is refused, and how it is explained."""

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

Documents = dict[str, Any]

# The documents and results of MongoDB's own examples.
ARTICLES = [
    {"_id": 1, "subject": "coffee", "author": "xyz", "views": 50},
    {"_id": 2, "subject": "Coffee Shopping", "author": "efg", "views": 5},
    {"_id": 3, "subject": "Baking a cake", "author": "abc", "views": 90},
    {"_id": 4, "subject": "baking", "author": "xyz", "views": 100},
    {"_id": 5, "subject": "Café Con Leche", "author": "abc", "views": 200},
    {"_id": 6, "subject": "Сырники", "author": "jkl", "views": 80},
    {"_id": 7, "subject": "coffee and cream", "author": "efg", "views": 10},
    {"_id": 8, "subject": "Cafe con Leche", "author": "xyz", "views": 10},
]


@pytest.fixture
def articles(database: Database[Documents]) -> Collection[Documents]:
    database.c.create_index([("subject", "text")])
    database.c.insert_many(ARTICLES)
    return database.c


def text(search: str, **options: Any) -> Documents:
    return {"$text": {"$search": search, **{"$" + name: value for name, value in options.items()}}}


def ids(collection: Collection[Documents], filter: Documents) -> list[Any]:
    return sorted(document["_id"] for document in collection.find(filter, {"_id": 1}))


def refusal(call: Callable[[], Any]) -> int | None:
    with pytest.raises(OperationFailure) as refused:
        call()
    return refused.value.code


META: Documents = {"$meta": "textScore"}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (text("coffee"), [1, 2, 7]),
        (text("bake coffee cake"), [1, 2, 3, 4, 7]),
        (text('"coffee shop"'), [2]),
        (text("coffee -shop"), [1, 7]),
        (text('coffee -"and cream"'), [1, 2]),
        (text('"coffee" "cream"'), [7]),
        (text('cake "coffee sho'), [1, 2, 3, 7]),
        (text("coffee-shop"), [1, 2, 7]),
        (text("-coffee"), []),
        (text(""), []),
        (text("and the"), []),
        (text("leche", language="es"), [5, 8]),
        (text("сы́рники CAFÉS"), [5, 6, 8]),
        (text("Coffee", caseSensitive=True), [2]),
        (text('"Café Con Leche"', caseSensitive=True), [5]),
        (text("coffee -Shop", caseSensitive=True), [1, 7]),
        (text("coffee -shop", caseSensitive=True), [1, 7]),
        (text("CAFÉ", diacriticSensitive=True), [5]),
        (text("leches -cafés", diacriticSensitive=True), [8]),
        ({**text("coffee"), "author": "efg"}, [2, 7]),
        ({"$and": [text("coffee"), {"views": {"$gt": 7}}]}, [1, 7]),
        ({"$or": [text("coffee"), {"_id": {"$in": [4, 7]}}]}, [1, 2, 4, 7]),
        ({"$or": [text("coffee"), {"_id": 4}], "views": {"$lt": 60}}, [1, 2, 7]),
    ],
)
def test_searches(articles: Collection[Documents], filter: Documents, expected: list[int]) -> None:
    assert ids(articles, filter) == expected
    assert articles.count_documents(filter) == len(expected)
    assert sorted(articles.distinct("_id", filter)) == expected
    pipeline: list[Documents] = [{"$match": filter}, {"$sort": {"_id": 1}}, {"$project": {"_id": 1}}]
    assert [document["_id"] for document in articles.aggregate(pipeline)] == expected
    scored = articles.find(filter, {"_id": 1, "score": META}).sort([("score", META)])
    assert sorted(document["_id"] for document in scored) == expected


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("coffee", {1: 1.0, 2: 0.75, 7: 0.75}),
        ("bake coffee cake", {1: 1.0, 2: 0.75, 3: 1.5, 4: 1.0, 7: 0.75}),
        ("coffee coffee", {1: 1.0, 2: 0.75, 7: 0.75}),
        ("leche", {5: 2 / 3, 8: 2 / 3}),
    ],
)
def test_scores(articles: Collection[Documents], search: str, expected: dict[int, float]) -> None:
    found = {document["_id"]: document["s"] for document in articles.find(text(search), {"s": META})}
    assert found == pytest.approx(expected)
    pipeline = [{"$match": text(search)}, {"$sort": {"s": META}}, {"$addFields": {"s": META}}]
    by_score = [document["s"] for document in articles.aggregate(pipeline)]
    assert by_score == pytest.approx(sorted(expected.values(), reverse=True))


@pytest.mark.parametrize(
    ("document", "weights", "search", "expected"),
    [
        ({"a": "cake"}, {"a": 1}, "cakes", 1.1),
        ({"a": "CAKE"}, {"a": 3}, "cakes", 3.3),
        ({"a": "cakes"}, {"a": 1}, "cake", 1.0),
        ({"a": "cake cake cake"}, {"a": 1}, "cake", 1.75),
        ({"a": "two cakes to go"}, {"a": 1}, "cake", 2 / 3),
        ({"a": "more cakes", "b": "cake pie"}, {"a": 10, "b": 2}, "cake", 10 + 1.5),
        ({"a": ["cake", "pie", "cake pie"]}, {"a": 1}, "cake", 1.1 + 0.75),
        ({"a": "cake pie"}, {"a": 1}, "pie cake", 1.5),
        ({"a": {"b": ["cake pie", {"c": "cake"}]}}, {"$**": 1, "a.b": 2}, "cake", 1.5 + 1.1),
    ],
)
def test_the_score_of_a_term(
    database: Database[Documents], document: Documents, weights: dict[str, int], search: str, expected: float
) -> None:
    database.c.create_index([(path, "text") for path in weights], weights=weights)
    database.c.insert_one(document)
    found = database.c.find_one(text(search), {"s": META})
    assert found is not None
    assert found["s"] == pytest.approx(expected)


def test_scores_are_metadata_of_later_stages(articles: Collection[Documents]) -> None:
    grouped = articles.aggregate([{"$match": text("coffee")}, {"$group": {"_id": META, "n": {"$sum": 1}}}])
    assert {document["_id"]: document["n"] for document in grouped} == {1.0: 1, 0.75: 2}
    behind = [{"$match": text("coffee")}, {"$group": {"_id": "$author"}}, {"$project": {"s": META}}]
    assert refusal(lambda: list(articles.aggregate(behind))) == 40218
    again = [{"$match": text("coffee")}, {"$match": {"$expr": {"$gt": [META, 0.8]}}}]
    assert [document["_id"] for document in articles.aggregate([*again[:1], {"$limit": 9}, *again[1:]])] == [1]


def test_writes_search_too(articles: Collection[Documents]) -> None:
    assert articles.update_many(text("coffee"), {"$set": {"seen": 1}}).modified_count == 3
    best = articles.find_one_and_update(
        text("coffee cream"), {"$set": {"subject": "tea"}}, sort=[("s", META)], projection={"_id": 1, "s": META}
    )
    assert best == {"_id": 7, "s": 1.5}
    assert ids(articles, text("coffee")) == [1, 2]
    assert ids(articles, text("tea")) == [7]
    assert articles.delete_many(text("coffee")).deleted_count == 2
    assert ids(articles, text("coffee shop")) == []


def test_an_index_is_built_over_what_is_there_and_kept_up(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "a": f"word{i % 7} common"} for i in range(700)])
    database.c.create_index([("a", "text")])
    assert database.c.count_documents(text("common")) == 700
    assert database.c.count_documents(text("word3")) == 100
    scored = list(database.c.find(text("word3 word5"), {"s": META}).sort([("s", META), ("_id", 1)]).limit(3))
    assert [document["_id"] for document in scored] == [3, 5, 10]
    database.c.drop_index("a_text")
    assert refusal(lambda: database.c.count_documents(text("common"))) == 27


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ({"$text": "coffee"}, 2),
        ({"$text": {}}, 4),
        ({"$text": {"$search": 1}}, 14),
        ({"$text": {"$search": "a", "$language": 1}}, 14),
        ({"$text": {"$search": "a", "$language": "klingon"}}, 2),
        ({"$text": {"$search": "a", "$caseSensitive": "yes"}}, 14),
        ({"$text": {"$search": "a", "$diacriticSensitive": None}}, 14),
        ({"$text": {"$search": "a", "x": 1}}, 2),
        ({"subject": text("a")}, 2),
        ({"$nor": [text("a")]}, 2),
        ({"$and": [text("a"), text("b")]}, 2),
        ({"$or": [text("a"), {"$and": [text("b"), {"x": 1}]}]}, 2),
        ({"a": {"$elemMatch": text("a")}}, 2),
        ({"a": {"$elemMatch": {"b": 1, **text("a")}}}, 2),
        ({"a": {"$not": text("a")}}, 2),
        ({"$expr": text("a")}, 168),
        ({"$or": [text("a"), {"views": 1}]}, 291),
    ],
)
def test_refused_filters(articles: Collection[Documents], filter: Documents, code: int) -> None:
    assert refusal(lambda: list(articles.find(filter))) == code
    assert refusal(lambda: list(articles.aggregate([{"$match": filter}]))) == code
    assert refusal(lambda: articles.update_many(filter, {"$set": {"x": 1}})) == code


def test_refused_surroundings(articles: Collection[Documents]) -> None:
    find: Documents = {"find": "c", "filter": text("coffee")}
    database = articles.database
    for command, code in (
        ({**find, "hint": "subject_text"}, 2),
        ({**find, "hint": {"_id": 1}}, 2),
        ({**find, "sort": {"$natural": 1}}, 2),
        ({**find, "find": "other"}, 27),
        ({"count": "other", "query": text("coffee")}, 27),
        ({"count": "c", "query": text("coffee"), "hint": "subject_text"}, 2),
        ({"create": "d", "validator": text("coffee")}, 2),
        ({"update": "c", "updates": [{"q": {}, "u": {"$set": {"a.$[x]": 1}}, "arrayFilters": [text("a")]}]}, 2),
        ({"update": "c", "updates": [{"q": {}, "u": {"$pull": {"a": text("a")}}}]}, 2),
        ({"find": "c", "projection": {"a": {"$elemMatch": text("a")}}}, 2),
    ):
        reply = database.command(command, check=False)
        errors = reply.get("writeErrors") or [reply]
        assert errors[0]["code"] == code
    assert database.command({**find, "hint": {}})["cursor"]["firstBatch"]
    for pipeline in (
        [{"$project": {"subject": 1}}, {"$match": text("coffee")}],
        [{"$match": text("coffee")}, {"$match": text("cake")}],
        [{"$sort": {"_id": 1}}, {"$match": text("coffee")}],
        [{"$facet": {"a": [{"$match": text("coffee")}]}}],
        [{"$lookup": {"from": "c", "pipeline": [{"$match": {}}, {"$match": text("coffee")}], "as": "j"}}],
    ):
        assert refusal(lambda stages=pipeline: list(articles.aggregate(stages))) == 17313  # type: ignore[misc]


def test_searches_of_other_collections(articles: Collection[Documents]) -> None:
    database = articles.database
    database.outer.insert_one({"_id": 0})
    stages = [{"$match": text("coffee")}, {"$project": {"_id": 1, "s": META}}, {"$sort": {"_id": 1}}]
    expected = [{"_id": 1, "s": 1.0}, {"_id": 2, "s": 0.75}, {"_id": 7, "s": 0.75}]
    joined = database.outer.aggregate([{"$lookup": {"from": "c", "pipeline": stages, "as": "j"}}])
    assert list(joined) == [{"_id": 0, "j": expected}]
    united = database.outer.aggregate([{"$unionWith": {"coll": "c", "pipeline": stages}}])
    assert list(united) == [{"_id": 0}, *expected]


def test_searches_of_views(articles: Collection[Documents]) -> None:
    database = articles.database
    database.command({"create": "whole", "viewOn": "c", "pipeline": []})
    database.command({"create": "part", "viewOn": "c", "pipeline": [{"$match": {"views": {"$lt": 20}}}]})
    database.command({"create": "found", "viewOn": "c", "pipeline": [{"$match": text("coffee")}]})
    assert ids(database.whole, text("coffee")) == [1, 2, 7]
    assert refusal(lambda: ids(database.part, text("coffee"))) == 17313
    assert ids(database.found, {"views": {"$lt": 20}}) == [2, 7]
    assert refusal(lambda: ids(database.found, text("cake"))) == 17313


def test_compound_indexes_need_equalities_in_front(database: Database[Documents]) -> None:
    database.c.create_index([("x", 1), ("a", "text"), ("y", -1)])
    database.c.insert_many(
        [{"_id": 1, "x": 1, "a": "one word", "y": 1}, {"_id": 2, "x": 2, "a": "word", "y": 2}, {"_id": 3, "a": "word"}]
    )
    assert ids(database.c, {"x": 1, **text("word")}) == [1]
    assert ids(database.c, {"x": None, **text("word")}) == [3]
    assert ids(database.c, {"x": {"$in": [2]}, "y": {"$gt": 1}, **text("word")}) == [2]
    for filter in (text("word"), {"x": {"$gt": 0}, **text("word")}, {"x": {"$in": [1, 2]}, **text("word")}):
        assert refusal(lambda filter=filter: ids(database.c, filter)) == 291  # type: ignore[misc]
    assert list(database.c.list_indexes())[1]["key"] == {"x": 1, "_fts": "text", "_ftsx": 1, "y": -1}
    with pytest.raises(WriteError) as refused:
        database.c.insert_one({"x": [1], "a": "word"})
    assert refused.value.code == 201


def test_languages_of_documents_and_subdocuments(database: Database[Documents]) -> None:
    """The example of MongoDB's page on the language of text indexes."""
    database.c.create_index([("original", "text"), ("translation.quote", "text")])
    database.c.insert_one(
        {
            "_id": 1,
            "language": "portuguese",
            "original": "A sorte protege os audazes.",
            "translation": [
                {"language": "english", "quote": "Fortune favors the bold."},
                {"language": "spanish", "quote": "La suerte protege a los audaces."},
            ],
        }
    )
    database.c.insert_one({"_id": 2, "original": "Is this a dagger which I see before me.", "idioma": "english"})
    for search, language, expected in (
        ("audaces", "spanish", [1]),
        ("audazes", "pt", [1]),
        ("favored", "english", [1]),
        ("daggers", "", [2]),
        ("the", "none", []),
        ("protege", "none", []),
    ):
        assert ids(database.c, text(search, language=language)) == expected, search
    for bad, code in ((1, 17261), ("klingon", 17262)):
        with pytest.raises(WriteError) as refused:
            database.c.insert_one({"language": bad, "original": "x"})
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("specification", "code"),
    [
        ({"weights": {"a": 0}}, 67),
        ({"weights": {"a": -1}}, 67),
        ({"weights": {"a": 100000}}, 67),
        ({"weights": {"a": "1"}}, 67),
        ({"weights": {"a..b": 1}}, 67),
        ({"weights": {"$a": 1}}, 67),
        ({"weights": "a"}, 67),
        ({"weights": ["a"]}, 67),
        ({"weights": 1}, 14),
        ({"default_language": "klingon"}, 67),
        ({"default_language": 1}, 14),
        ({"language_override": ""}, 67),
        ({"language_override": "$x"}, 67),
        ({"language_override": "a.b"}, 67),
        ({"language_override": 1}, 14),
        ({"textIndexVersion": 4}, 67),
        ({"textIndexVersion": "3"}, 14),
        ({"key": {"a": "text", "x": 1, "b": "text"}}, 67),
        ({"key": {"a": 1}, "weights": {"a": 1}}, 67),
        ({"key": {"_ftsx": 1, "a": "text"}}, 67),
        ({"key": {"_fts": 1, "a": "text"}}, 67),
        ({"key": {"a": "text", "b": "hashed"}}, 67),
    ],
)
def test_refused_indexes(database: Database[Documents], specification: Documents, code: int) -> None:
    index = {"key": {"a": "text"}, "name": "i", **specification}
    assert refusal(lambda: database.command({"createIndexes": "c", "indexes": [index]})) == code


@pytest.mark.parametrize(
    ("specification", "key", "weights"),
    [
        ({"key": {"a": "text"}}, {"_fts": "text", "_ftsx": 1}, {"a": 1}),
        ({"key": {"b": "text", "a": "text"}}, {"_fts": "text", "_ftsx": 1}, {"a": 1, "b": 1}),
        ({"key": {"$**": "text"}, "weights": {"a.b": 9}}, {"_fts": "text", "_ftsx": 1}, {"$**": 1, "a.b": 9}),
        ({"key": {"a": "text"}, "weights": {"b": 2.9}}, {"_fts": "text", "_ftsx": 1}, {"a": 1, "b": 2}),
        ({"key": {"_fts": "text", "_ftsx": 1}, "weights": {"a": 5}}, {"_fts": "text", "_ftsx": 1}, {"a": 5}),
        ({"key": {"x": 1, "a": "text"}, "weights": {"x": 2}}, {"x": 1, "_fts": "text", "_ftsx": 1}, {"a": 1, "x": 2}),
        ({"key": {"a": "text", "x": 1}, "weights": "$**"}, {"_fts": "text", "_ftsx": 1, "x": 1}, {"$**": 1, "a": 1}),
    ],
)
def test_specifications_as_they_are_listed(
    database: Database[Documents], specification: Documents, key: Documents, weights: Documents
) -> None:
    database.command({"createIndexes": "c", "indexes": [{"name": "i", **specification}]})
    listed = list(database.c.list_indexes())[1]
    assert listed == {
        "v": 2,
        "key": key,
        "name": "i",
        "weights": weights,
        "default_language": "english",
        "language_override": "language",
        "textIndexVersion": 3,
    }
    assert list(listed["key"]) == list(key)
    assert list(listed["weights"]) == list(weights)
    again = {**listed, "key": dict(listed["key"]), "weights": dict(listed["weights"])}
    assert database.command({"createIndexes": "c", "indexes": [again]})["numIndexesAfter"] == 2


def test_one_text_index_is_all_there_can_be(articles: Collection[Documents]) -> None:
    for index, code in (
        ({"key": {"author": "text"}, "name": "author_text"}, 85),
        ({"key": {"author": "text"}, "name": "subject_text"}, 85),
        ({"key": {"subject": "text"}, "name": "other"}, 85),
        ({"key": {"subject": "text"}, "name": "subject_text", "default_language": "none"}, 85),
        ({"key": {"x": 1, "author": "text"}, "name": "x_author"}, 67),
    ):
        command = {"createIndexes": "c", "indexes": [index]}
        assert refusal(lambda command=command: articles.database.command(command)) == code  # type: ignore[misc]
    hide = {"collMod": "c", "index": {"keyPattern": {"subject": "text"}, "hidden": True}}
    assert refusal(lambda: articles.database.command(hide)) == 27
    articles.database.command({"collMod": "c", "index": {"name": "subject_text", "hidden": True}})
    assert refusal(lambda: ids(articles, text("coffee"))) == 291


@pytest.mark.parametrize(
    "index",
    [
        {"key": {"a.$**": "text"}},
        {"key": {"x": 1, "a.b.$**": "text"}},
        {"key": {"r.$id": "text"}},
        {"key": {"$x": "text"}},
        {"key": {"a": "text"}, "weights": {"b.$**": 2}},
        {"key": {"a": "text"}, "weights": {"r.$id": 2}},
        {"key": {"a.$**": "text"}, "textIndexVersion": 2},
    ],
)
def test_wildcards_below_a_path_are_refused(database: Database[Documents], index: Documents) -> None:
    command = {"createIndexes": "c", "indexes": [{"name": "t", **index}]}
    assert refusal(lambda: database.command(command)) == 67


def test_earlier_versions(database: Database[Documents]) -> None:
    database.c.create_index([("$**", "text")], textIndexVersion=2, default_language="none")
    database.c.insert_many([{"_id": 1, "a": {"b": {"c": "café"}}}, {"_id": 2, "a": [{"x": "tea"}, "tea"]}])
    assert ids(database.c, text("tea")) == [2]
    assert ids(database.c, text("café")) == [1]
    assert ids(database.c, text("cafe")) == []


def test_partial_and_sparse_text_indexes(database: Database[Documents]) -> None:
    database.c.create_index([("a", "text")], partialFilterExpression={"n": {"$gt": 1}})
    database.c.insert_many([{"_id": n, "n": n, "a": "word"} for n in range(4)])
    assert ids(database.c, {"n": {"$gt": 2}, **text("word")}) == [3]
    assert refusal(lambda: ids(database.c, text("word"))) in (27, 291)


def stages(plan: Documents) -> list[str]:
    found = [plan["stage"]]
    for inner in [plan["inputStage"]] if "inputStage" in plan else plan.get("inputStages", []):
        found.extend(stages(inner))
    return found


def test_explained(articles: Collection[Documents]) -> None:
    def explained(command: Documents) -> Documents:
        reply: Documents = articles.database.command({"explain": command, "verbosity": "executionStats"})
        return reply

    find: Documents = {"find": "c", "filter": text("coffee cake -shop")}
    reply = explained(find)
    plan = reply["queryPlanner"]["winningPlan"]
    assert stages(plan) == ["TEXT_MATCH", "FETCH", "OR", "IXSCAN", "IXSCAN"]
    assert plan["parsedTextQuery"] == {
        "terms": ["cake", "coffe"],
        "negatedTerms": ["shop"],
        "phrases": [],
        "negatedPhrases": [],
    }
    assert (plan["indexName"], plan["indexPrefix"], plan["textIndexVersion"]) == ("subject_text", {}, 3)
    assert reply["queryPlanner"]["parsedQuery"]["$text"]["$language"] == "english"
    stats = reply["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (3, 4, 4)
    assert stats["executionStages"]["docsRejected"] == 1
    scored = explained({**find, "projection": {"s": META}})["queryPlanner"]["winningPlan"]
    assert stages(scored) == ["PROJECTION_DEFAULT", "TEXT_MATCH", "TEXT_OR", "IXSCAN", "IXSCAN"]
    single = explained({"find": "c", "filter": {**text("coffee"), "views": 5}})["queryPlanner"]["winningPlan"]
    assert stages(single) == ["FETCH", "TEXT_MATCH", "FETCH", "IXSCAN"]
