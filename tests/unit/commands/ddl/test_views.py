"""Views: definitions, reads, and refused operations. Source: MongoDB's "Views" pages."""

import bson
import pytest

from mongottl.storage.opening import open_engine
from tests.running import Document, Running
from tests.steps import run_to_end


@pytest.fixture
def server() -> Running:
    running = Running()
    running.insert(
        {"_id": 1, "x": 10, "y": "a", "tags": ["p", "q"]},
        {"_id": 2, "x": 20, "y": "b", "tags": ["q"]},
        {"_id": 3, "x": 30, "y": "a", "tags": []},
        {"_id": 4, "x": 40, "y": "b"},
    )
    return running


def create(server: Running, name: str, view_on: str, *pipeline: Document) -> None:
    assert server.run({"create": name, "viewOn": view_on, "pipeline": list(pipeline)}) == {}


@pytest.fixture
def big(server: Running) -> Running:
    """A server with a view `big` of the documents from 2 on, without `tags`."""
    create(server, "big", "c", {"$match": {"x": {"$gte": 20}}}, {"$unset": "tags"})
    return server


class TestReading:
    def test_find(self, big: Running) -> None:
        assert big.listed({"find": "big"}) == [
            {"_id": 2, "x": 20, "y": "b"},
            {"_id": 3, "x": 30, "y": "a"},
            {"_id": 4, "x": 40, "y": "b"},
        ]

    @pytest.mark.parametrize(
        ("options", "ids"),
        [
            ({"filter": {"y": "b"}}, [2, 4]),
            ({"filter": {"tags": "q"}}, []),
            ({"sort": {"x": -1}}, [4, 3, 2]),
            ({"sort": {"x": -1}, "skip": 1}, [3, 2]),
            ({"sort": {"x": -1}, "skip": 1, "limit": 1}, [3]),
            ({"filter": {"x": {"$gt": 20}}, "projection": {"_id": 1}}, [3, 4]),
            ({"batchSize": 1}, [2, 3, 4]),
            ({"batchSize": 2, "singleBatch": True}, [2, 3]),
            ({"filter": {"$expr": {"$eq": ["$y", "$$v"]}}, "let": {"v": "a"}}, [3]),
            ({"sort": {"$natural": -1}}, [4, 3, 2]),
            ({"hint": {"$natural": -1}}, [4, 3, 2]),
            ({"hint": "_id_", "sort": {"_id": -1}}, [4, 3, 2]),
        ],
    )
    def test_find_with_options(self, big: Running, options: Document, ids: list[int]) -> None:
        assert [document["_id"] for document in big.listed({"find": "big", **options})] == ids

    def test_projection(self, big: Running) -> None:
        command = {"find": "big", "filter": {"_id": 2}, "projection": {"_id": 0, "z": {"$add": ["$x", 1]}}}
        assert big.listed(command) == [{"z": 21}]

    @pytest.mark.parametrize(
        ("query", "n"),
        [
            ({}, 3),
            ({"query": {"y": "b"}}, 2),
            ({"query": {"y": "z"}}, 0),
            ({"skip": 1}, 2),
            ({"limit": 2}, 2),
            ({"limit": -2}, 2),
            ({"skip": 2, "limit": 5}, 1),
        ],
    )
    def test_count(self, big: Running, query: Document, n: int) -> None:
        assert big.run({"count": "big", **query}) == {"n": n}

    def test_distinct(self, big: Running) -> None:
        assert big.run({"distinct": "big", "key": "y"}) == {"values": ["a", "b"]}
        assert big.run({"distinct": "big", "key": "x", "query": {"y": "b"}}) == {"values": [20, 40]}
        assert big.run({"distinct": "big", "key": "tags"}) == {"values": []}

    def test_distinct_of_arrays(self, server: Running) -> None:
        create(server, "all", "c")
        assert server.run({"distinct": "all", "key": "tags"}) == {"values": ["p", "q"]}

    def test_aggregate(self, big: Running) -> None:
        pipeline: list[Document] = [{"$group": {"_id": "$y", "n": {"$sum": "$x"}}}, {"$sort": {"_id": 1}}]
        assert big.listed({"aggregate": "big", "pipeline": pipeline, "cursor": {}}) == [
            {"_id": "a", "n": 30},
            {"_id": "b", "n": 60},
        ]

    def test_let_is_for_the_query_alone(self, big: Running) -> None:
        pipeline = [{"$match": {"$expr": {"$gt": ["$x", "$$least"]}}}, {"$project": {"_id": 1}}]
        command = {"aggregate": "big", "pipeline": pipeline, "cursor": {}, "let": {"least": 30}}
        assert big.listed(command) == [{"_id": 4}]

    def test_view_on_a_view(self, big: Running) -> None:
        create(big, "top", "big", {"$project": {"x": 1}}, {"$match": {"x": {"$lt": 40}}})
        assert big.listed({"find": "top"}) == [{"_id": 2, "x": 20}, {"_id": 3, "x": 30}]
        assert big.run({"count": "top"}) == {"n": 2}

    def test_joins_read_views(self, big: Running) -> None:
        lookup = {"$lookup": {"from": "big", "localField": "y", "foreignField": "y", "as": "found"}}
        pipeline = [{"$match": {"_id": 1}}, lookup, {"$project": {"found._id": 1}}]
        assert big.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}}) == [{"_id": 1, "found": [{"_id": 3}]}]

    def test_lookup_with_pipeline_on_a_view(self, big: Running) -> None:
        inner = [{"$match": {"$expr": {"$gt": ["$x", "$$x"]}}}, {"$project": {"_id": 1}}]
        lookup = {"$lookup": {"from": "big", "let": {"x": "$x"}, "pipeline": inner, "as": "found"}}
        pipeline = [{"$match": {"_id": 3}}, lookup, {"$project": {"found": 1}}]
        assert big.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}}) == [{"_id": 3, "found": [{"_id": 4}]}]

    def test_union_with_a_view(self, big: Running) -> None:
        union = {"$unionWith": {"coll": "big", "pipeline": [{"$match": {"y": "b"}}]}}
        pipeline = [{"$match": {"_id": 1}}, union, {"$project": {"_id": 1}}]
        command = {"aggregate": "c", "pipeline": pipeline, "cursor": {"batchSize": 1}}
        assert big.listed(command) == [{"_id": 1}, {"_id": 2}, {"_id": 4}]

    def test_graph_lookup_on_a_view(self, server: Running) -> None:
        server.insert({"_id": 1, "next": 2}, {"_id": 2, "next": 3}, {"_id": 3, "next": 1, "hidden": True}, into="g")
        create(server, "shown", "g", {"$match": {"hidden": {"$exists": False}}})
        graph = {
            "from": "shown",
            "startWith": "$next",
            "connectFromField": "next",
            "connectToField": "_id",
            "as": "reached",
        }
        pipeline = [{"$match": {"_id": 1}}, {"$graphLookup": graph}, {"$project": {"reached._id": 1}}]
        assert server.listed({"aggregate": "g", "pipeline": pipeline, "cursor": {}}) == [
            {"_id": 1, "reached": [{"_id": 2}]}
        ]

    def test_joins_in_the_view(self, server: Running) -> None:
        server.insert({"_id": "a", "name": "first"}, {"_id": "b", "name": "second"}, into="names")
        join = {"$lookup": {"from": "names", "localField": "y", "foreignField": "_id", "as": "named"}}
        create(server, "named", "c", join, {"$project": {"name": {"$first": "$named.name"}}})
        assert server.listed({"find": "named", "filter": {"name": "second"}}) == [
            {"_id": 2, "name": "second"},
            {"_id": 4, "name": "second"},
        ]

    def test_a_view_on_nothing_is_empty(self, server: Running) -> None:
        create(server, "none", "nothing", {"$match": {"x": 1}})
        assert server.listed({"find": "none"}) == []
        assert server.run({"count": "none"}) == {"n": 0}
        server.insert({"_id": 1, "x": 1}, into="nothing")
        assert server.ids("none") == [1]

    def test_now_is_that_of_the_reading(self, server: Running) -> None:
        create(server, "dated", "c", {"$match": {"_id": 1}}, {"$project": {"at": "$$NOW"}})
        first = server.listed({"find": "dated"})[0]["at"]
        server.advance(60)
        assert (server.listed({"find": "dated"})[0]["at"] - first).total_seconds() == 60

    def test_out_from_a_view(self, big: Running) -> None:
        big.run({"aggregate": "big", "pipeline": [{"$out": "copy"}], "cursor": {}})
        assert big.ids("copy") == [2, 3, 4]

    def test_index_stats_are_those_of_the_collection(self, server: Running) -> None:
        create(server, "all", "c")
        found = server.listed({"aggregate": "all", "pipeline": [{"$indexStats": {}}], "cursor": {}})
        assert [index["name"] for index in found] == ["_id_"]

    def test_stages_that_must_come_first(self, big: Running) -> None:
        assert big.code({"aggregate": "big", "pipeline": [{"$indexStats": {}}], "cursor": {}}) == 40602

    def test_text_can_only_come_first(self, big: Running) -> None:
        big.index({"y": "text"}, "t")
        create(big, "all", "c")
        assert big.ids("all", {"$text": {"$search": "b"}}) == [2, 4]
        assert big.code({"find": "big", "filter": {"$text": {"$search": "b"}}}) == 17313

    def test_more_pages_are_asked_of_the_view(self, big: Running) -> None:
        cursor = big.run({"find": "big", "batchSize": 1})["cursor"]
        assert cursor["ns"] == "test.big"
        assert big.code({"getMore": bson.Int64(cursor["id"]), "collection": "c"}) == 13
        more = big.run({"getMore": bson.Int64(cursor["id"]), "collection": "big"})["cursor"]
        assert [document["_id"] for document in more["nextBatch"]] == [3, 4]

    def test_explain_shows_the_plan_below(self, big: Running) -> None:
        big.index({"x": 1})
        reply = big.run({"explain": {"find": "big", "filter": {"y": "a"}}, "verbosity": "queryPlanner"})
        planner = reply["stages"][0]["$cursor"]["queryPlanner"]
        assert planner["namespace"] == "test.c"
        assert planner["winningPlan"]["inputStage"]["indexName"] == "x_1"

    @pytest.mark.parametrize("command", [{"count": "big"}, {"distinct": "big", "key": "x"}])
    def test_explain_of_other_commands(self, big: Running, command: Document) -> None:
        reply = big.run({"explain": command, "verbosity": "queryPlanner"})
        assert reply["stages"][0]["$cursor"]["queryPlanner"]["namespace"] == "test.c"


class TestExpiry:
    def test_expired_documents_are_not_seen_through_a_view(self, server: Running) -> None:
        server.run({"createIndexes": "c", "indexes": [{"key": {"_ts": 1}, "name": "t", "expireAfterSeconds": 10}]})
        create(server, "all", "c")
        create(server, "sums", "c", {"$group": {"_id": "$y", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}})
        server.advance(5)
        server.insert({"_id": 5, "x": 50, "y": "a"})
        server.advance(5)
        assert server.ids("all") == [5]
        assert server.run({"count": "all"}) == {"n": 1}
        assert server.run({"distinct": "all", "key": "x"}) == {"values": [50]}
        assert server.listed({"find": "sums"}) == [{"_id": "a", "n": 1}]
        pipeline = [
            {"$documents": [{"y": "a"}]},
            {"$lookup": {"from": "all", "localField": "y", "foreignField": "y", "as": "found"}},
        ]
        found = server.listed({"aggregate": 1, "pipeline": pipeline, "cursor": {}})
        assert [document["_id"] for document in found[0]["found"]] == [5]

    def test_documents_that_expire_between_pages_are_left_out(self, server: Running) -> None:
        server.run({"createIndexes": "c", "indexes": [{"key": {"_ts": 1}, "name": "t", "expireAfterSeconds": 10}]})
        create(server, "all", "c", {"$project": {"x": 1}})
        cursor = server.run({"find": "all", "batchSize": 1})["cursor"]
        server.advance(10)
        more = server.run({"getMore": bson.Int64(cursor["id"]), "collection": "all"})["cursor"]
        assert more["nextBatch"] == []

    def test_documents_joined_by_a_view_expire_too(self, server: Running) -> None:
        server.insert({"_id": "a"}, {"_id": "b"}, into="d")
        server.run({"createIndexes": "d", "indexes": [{"key": {"_ts": 1}, "name": "t", "expireAfterSeconds": 10}]})
        join = {"from": "d", "localField": "y", "foreignField": "_id", "as": "d"}
        create(server, "joined", "c", {"$lookup": join}, {"$unwind": "$d"})
        lookup = {"from": "joined", "localField": "y", "foreignField": "y", "as": "found"}
        pipeline = [{"$lookup": lookup}, {"$project": {"n": {"$size": "$found"}}}]
        cursor = server.run({"aggregate": "c", "pipeline": pipeline, "cursor": {"batchSize": 1}})["cursor"]
        assert cursor["firstBatch"] == [{"_id": 1, "n": 2}]
        server.advance(10)
        more = server.run({"getMore": bson.Int64(cursor["id"]), "collection": "c"})["cursor"]
        assert more["nextBatch"][-1] == {"_id": 4, "n": 0}


class TestRefusals:
    @pytest.mark.parametrize(
        "command",
        [
            {"insert": "big", "documents": [{"_id": 9}]},
            {"update": "big", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
            {"update": "big", "updates": [{"q": {"_id": 9}, "u": {"$set": {"a": 1}}, "upsert": True}]},
            {"delete": "big", "deletes": [{"q": {}, "limit": 0}]},
            {"findAndModify": "big", "query": {}, "remove": True},
            {"createIndexes": "big", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
            {"dropIndexes": "big", "index": "*"},
            {"listIndexes": "big"},
            {"collStats": "big"},
            {"aggregate": "c", "pipeline": [{"$out": "big"}], "cursor": {}},
            {"aggregate": "c", "pipeline": [{"$merge": "big"}], "cursor": {}},
            {"convertToCapped": "big", "size": 1000},
            {"aggregate": "big", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}},
        ],
    )
    def test_commands_on_collections_refuse_a_view(self, big: Running, command: Document) -> None:
        assert big.code(command) == 166

    @pytest.mark.parametrize(
        "options",
        [
            {"tailable": True},
            {"tailable": True, "awaitData": True},
            {"noCursorTimeout": True},
            {"allowPartialResults": True},
            {"oplogReplay": True},
            {"returnKey": True},
            {"showRecordId": True},
        ],
    )
    def test_find_on_a_view_refuses_options_without_an_aggregation_form(self, big: Running, options: Document) -> None:
        assert big.code({"find": "big", **options}) == 168

    @pytest.mark.parametrize(
        "projection", [{"tags.$": 1}, {"tags": {"$slice": 1}}, {"tags": {"$elemMatch": {"$eq": 1}}}]
    )
    def test_projections_of_find_alone(self, big: Running, projection: Document) -> None:
        assert big.code({"find": "big", "filter": {"tags": 1}, "projection": projection}) != 0

    def test_a_count_with_a_limit_of_nothing(self, big: Running) -> None:
        assert big.code({"count": "big", "limit": 0}) == 15958

    def test_out_with_time_series(self, big: Running) -> None:
        out = {"db": "test", "coll": "big", "timeseries": {"timeField": "t"}}
        assert big.code({"aggregate": "c", "pipeline": [{"$out": out}], "cursor": {}}) == 7268700

    def test_renaming(self, big: Running) -> None:
        rename = {"renameCollection": "test.big", "to": "test.other"}
        assert big.code(rename, "admin") == 166
        assert big.code({"renameCollection": "test.c", "to": "test.big"}, "admin") == 48
        assert big.code({"renameCollection": "test.system.views", "to": "test.d"}, "admin") == 20


class TestDefinitions:
    def test_listing(self, big: Running) -> None:
        listed = big.listed({"listCollections": 1, "filter": {"type": "view"}})
        assert listed == [
            {
                "name": "big",
                "type": "view",
                "options": {
                    "viewOn": "c",
                    "pipeline": [{"$match": {"x": {"$gte": 20}}}, {"$unset": "tags"}],
                },
                "info": {"readOnly": True},
            }
        ]
        names = [entry["name"] for entry in big.listed({"listCollections": 1, "nameOnly": True})]
        assert names == ["big", "c", "system.views"]

    def test_system_views(self, big: Running) -> None:
        assert big.listed({"find": "system.views", "projection": {"pipeline": 0}}) == [
            {"_id": "test.big", "viewOn": "c"}
        ]

    def test_definitions_do_not_expire(self, big: Running) -> None:
        for key in ("_ts", "when"):
            index = {"key": {key: 1}, "name": "t", "expireAfterSeconds": 1}
            assert big.code({"createIndexes": "system.views", "indexes": [index]}) == 67

    def test_creating_again(self, big: Running) -> None:
        same = {"create": "big", "viewOn": "c", "pipeline": [{"$match": {"x": {"$gte": 20}}}, {"$unset": "tags"}]}
        assert big.run(same) == {}
        assert big.code({**same, "pipeline": []}) == 48
        assert big.code({**same, "viewOn": "d"}) == 48
        assert big.code({"create": "big"}) == 48
        assert big.code({"create": "c", "viewOn": "d"}) == 48

    def test_dropping(self, big: Running) -> None:
        assert big.run({"drop": "big"}) == {"ns": "test.big"}
        assert big.listed({"listCollections": 1, "filter": {"type": "view"}}) == []
        assert big.listed({"find": "big"}) == []
        big.insert({"_id": 1}, into="big")
        assert big.ids("big") == [1]

    def test_dropping_system_views_drops_them_all(self, big: Running) -> None:
        assert big.run({"drop": "system.views"}) == {"nIndexesWas": 1, "ns": "test.system.views"}
        assert big.listed({"find": "big"}) == []

    def test_dropping_the_database(self, big: Running) -> None:
        big.run({"dropDatabase": 1})
        assert big.listed({"listCollections": 1}) == []

    def test_a_database_of_views_alone(self, server: Running) -> None:
        assert server.run({"create": "v", "viewOn": "nothing"}, "other") == {}
        assert server.run({"dbStats": 1}, "other")["views"] == 1

    def test_changing(self, big: Running) -> None:
        assert big.run({"collMod": "big", "pipeline": [{"$match": {"_id": 1}}]}) == {}
        assert big.ids("big") == [1]
        assert big.run({"collMod": "big", "viewOn": "nothing"}) == {}
        assert big.ids("big") == []
        assert big.run({"collMod": "big"}) == {}

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"viewOn": "big"}, 5),
            ({"viewOn": ""}, 2),
            ({"viewOn": "$c"}, 73),
            ({"viewOn": ".c"}, 73),
            ({"viewOn": "a\0b"}, 73),
            ({"viewOn": 1}, 14),
            ({"pipeline": {}}, 14),
            ({"pipeline": [1]}, 14),
            ({"pipeline": [{"$nonsense": 1}]}, 40324),
            ({"pipeline": [{"$out": "d"}]}, 167),
            ({"pipeline": [{"$lookup": {"from": "big", "pipeline": [], "as": "a"}}]}, 5),
            ({"index": {"name": "_id_", "hidden": True}}, 72),
        ],
    )
    def test_changes_that_are_refused(self, big: Running, change: Document, code: int) -> None:
        assert big.code({"collMod": "big", **change}) == code
        assert big.ids("big") == [2, 3, 4]

    def test_a_long_source(self, big: Running) -> None:
        assert big.run({"collMod": "big", "viewOn": "a" * (16 << 20)}) == {}
        assert big.ids("big") == []

    def test_a_collection_has_no_pipeline(self, server: Running) -> None:
        assert server.code({"collMod": "c", "viewOn": "d"}) == 72
        assert server.code({"collMod": "c", "pipeline": []}) == 72

    @pytest.mark.parametrize(
        ("definition", "code"),
        [
            ({"viewOn": "v"}, 5),
            ({"viewOn": ""}, 2),
            ({"viewOn": "$x"}, 73),
            ({"pipeline": []}, 72),
            ({"viewOn": "c", "pipeline": [{"$merge": "d"}]}, 167),
            ({"viewOn": "c", "pipeline": [{"$out": "d"}]}, 167),
            ({"viewOn": "c", "pipeline": [{"$match": {"$nonsense": 1}}]}, 2),
            ({"viewOn": "c", "pipeline": [{"$unionWith": "v"}]}, 5),
            (
                {
                    "viewOn": "c",
                    "pipeline": [
                        {
                            "$graphLookup": {
                                "from": "v",
                                "startWith": 1,
                                "connectFromField": "a",
                                "connectToField": "b",
                                "as": "c",
                            }
                        }
                    ],
                },
                5,
            ),
            ({"viewOn": "c", "pipeline": [{"$facet": {"a": [{"$unionWith": {"coll": "v"}}]}}]}, 5),
        ],
    )
    def test_definitions_that_are_refused(self, server: Running, definition: Document, code: int) -> None:
        assert server.code({"create": "v", **definition}) == code
        assert "v" not in [entry["name"] for entry in server.listed({"listCollections": 1})]

    def test_cycles(self, server: Running) -> None:
        create(server, "v1", "v3")
        create(server, "v2", "v1")
        assert server.code({"create": "v3", "viewOn": "v2"}) == 5
        assert server.code({"create": "v3", "viewOn": "c", "pipeline": [{"$unionWith": "v2"}]}) == 5
        create(server, "v3", "c")
        assert server.ids("v2") == [1, 2, 3, 4]

    def test_depth(self, server: Running) -> None:
        create(server, "v1", "c")
        for depth in range(2, 21):
            create(server, f"v{depth}", f"v{depth - 1}")
        assert server.ids("v20") == [1, 2, 3, 4]
        assert server.code({"create": "v21", "viewOn": "v20"}) == 165
        assert server.code({"collMod": "v1", "viewOn": "other", "pipeline": [{"$unionWith": "v1"}]}) == 5
        create(server, "below", "c")
        assert server.code({"collMod": "v1", "viewOn": "below"}) == 165

    def test_written_definitions_count_at_once(self, server: Running) -> None:
        create(server, "v", "c")
        server.insert({"_id": "test.w", "viewOn": "c", "pipeline": [{"$match": {"_id": 1}}]}, into="system.views")
        assert server.ids("w") == [1]
        server.insert({"_id": "test.bad", "viewOn": "c"}, into="system.views")
        assert server.code({"find": "bad"}) == 182
        for name, below in (("circle", "round"), ("round", "circle")):
            server.insert({"_id": f"test.{name}", "viewOn": below, "pipeline": []}, into="system.views")
        assert server.code({"find": "circle"}) == 165


def test_views_survive_a_restart(tmp_path: object) -> None:

    engine = open_engine(f"sqlite:{tmp_path}")
    server = Running(engine)
    server.insert({"_id": 1}, {"_id": 2})
    create(server, "v", "c", {"$match": {"_id": 2}})
    engine.close()
    again = Running(open_engine(f"sqlite:{tmp_path}"))
    assert again.ids("v") == [2]
    assert again.code({"insert": "v", "documents": [{"_id": 3}]}) == 166
    again.engine.close()


def test_reading_a_view_lets_others_run() -> None:
    server = Running()
    server.insert(*({"_id": number} for number in range(2000)))
    create(server, "v", "c", {"$match": {"_id": {"$gte": 0}}})
    steps = server.steps({"count": "v"})
    assert next(steps) is None
    assert run_to_end(steps) == {"n": 2000}
