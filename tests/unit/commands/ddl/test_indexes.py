"""createIndexes, listIndexes, dropIndexes: replies, conflicts, and the TTL setting on `_ts`."""

from datetime import UTC
from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.catalog.collection import CollectionIndex
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.errors import CommandError
from tests.running import Running

Spec = dict[str, Any]


@pytest.fixture
def running() -> Running:
    return Running()


def spec(name: str = "a_1", **options: Any) -> Spec:
    return {"key": {"a": 1}, "name": name, **options}


def create(*specs: Spec, **options: Any) -> dict[str, Any]:
    return {"createIndexes": "c", "indexes": list(specs), **options}


@pytest.mark.parametrize("name", ["_ts_1", "x"])
def test_options_that_differ_in_the_words_of_cosmos(name: str) -> None:
    running = Running(dialect="cosmos")
    running.index({"_ts": 1}, expireAfterSeconds=10)
    refusal = running.refusal(
        {"createIndexes": "c", "indexes": [{"key": {"_ts": 1}, "name": name, "expireAfterSeconds": 20}]}
    )
    assert (refusal.code, refusal.message) == (85, "Index with name _ts_1 already exists with different options.")


# createIndexes


def test_creating_an_index_makes_the_collection(running: Running) -> None:
    assert running.run(create(spec())) == {
        "numIndexesBefore": 1,
        "numIndexesAfter": 2,
        "createdCollectionAutomatically": True,
    }
    assert running.run(create(spec("b_1", key={"b": 1}), spec("c_1", key={"c": 1}))) == {
        "numIndexesBefore": 2,
        "numIndexesAfter": 4,
        "createdCollectionAutomatically": False,
    }


def test_existing_indexes_are_not_built_again(running: Running) -> None:
    running.run(create(spec()))
    ident = running.collection().indexes[1].ident
    for again in (spec(), spec(key={"a": 1.0}), spec(background=True)):
        assert running.run(create(again)) == {
            "numIndexesBefore": 2,
            "numIndexesAfter": 2,
            "createdCollectionAutomatically": False,
            "note": "all indexes already exist",
        }
    assert running.collection().indexes[1].ident == ident
    assert running.run(create(spec(), spec("b_1", key={"b": 1})))["numIndexesAfter"] == 3


def test_the_id_index_is_there_already(running: Running) -> None:
    reply = running.run(create({"key": {"_id": 1}, "name": "whatever"}))
    assert reply["note"] == "all indexes already exist"
    assert (reply["numIndexesBefore"], reply["numIndexesAfter"]) == (1, 1)
    assert reply["createdCollectionAutomatically"] is True


@pytest.mark.parametrize(
    ("existing", "requested", "expected"),
    [
        (spec(), spec("other"), 85),
        (spec(), spec(key={"b": 1}), 86),
        (spec(), spec(key={"a": -1}), 86),
        (spec(), spec(unique=True), 86),
        (spec(), spec(sparse=True), 86),
        (spec(), spec(partialFilterExpression={"a": 1}), 86),
        (spec(), spec(expireAfterSeconds=5), 85),
        (spec(expireAfterSeconds=5), spec(expireAfterSeconds=6), 85),
        (spec(expireAfterSeconds=5), spec("other", expireAfterSeconds=6), 85),
    ],
)
def test_indexes_that_clash(running: Running, existing: Spec, requested: Spec, expected: int) -> None:
    running.run(create(existing))
    before = running.listed({"listIndexes": "c"})
    assert running.code(create(requested)) == expected
    assert running.code(create(spec("new", key={"new": 1}), requested)) == expected
    assert running.listed({"listIndexes": "c"}) == before
    # Two indexes of one request may conflict as well; then the collection is not created.
    assert running.code({**create(existing, requested), "createIndexes": "d"}) == expected
    assert [c["name"] for c in running.listed({"listCollections": 1})] == ["c"]


@pytest.mark.parametrize("options", [{"unique": True}, {"sparse": True}, {"partialFilterExpression": {"a": 1}}])
def test_indexes_of_one_key_that_differ_in_kind_stand_side_by_side(running: Running, options: Spec) -> None:
    running.run(create(spec(), spec("other", **options)))
    assert running.index_names() == ["_id_", "a_1", "other"]


def test_the_messages_of_clashes_show_both_indexes(running: Running) -> None:
    running.run(create(spec()))
    message = running.refusal(create(spec(key={"b": 1}))).message
    assert message.startswith("An existing index has the same name as the requested index.")
    assert 'Requested index: { v: 2, key: { b: 1 }, name: "a_1" }' in message
    assert 'existing index: { v: 2, key: { a: 1 }, name: "a_1" }' in message
    assert running.refusal(create(spec("x"))).message == "Index already exists with a different name: a_1"


def test_the_same_index_twice_in_one_request(running: Running) -> None:
    assert running.code(create(spec(), spec())) == 68
    assert running.listed({"listCollections": 1}) == []


def test_at_most_64_indexes(running: Running) -> None:
    specs = [spec(f"f{number}", key={f"f{number}": 1}) for number in range(64)]
    assert running.code(create(*specs)) == 67
    assert running.run(create(*specs[:63]))["numIndexesAfter"] == 64
    assert running.code(create(specs[63])) == 67
    assert running.run(create(*specs[:63]))["note"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (create(), 2),
        ({"createIndexes": "c"}, 40414),
        ({"createIndexes": "c", "indexes": {}}, 14),
        ({"createIndexes": "c", "indexes": [1]}, 14),
        ({"createIndexes": "c", "indexes": [{}]}, 9),
        ({**create(spec()), "createIndexes": ""}, 73),
        ({**create(spec()), "createIndexes": "a$b"}, 73),
        ({**create(spec()), "createIndexes": "system.x"}, 73),
        ({**create(spec()), "createIndexes": 1}, 73),
        (create(spec(unknown=1)), 197),
        (create(spec(), spec("b", key={})), 67),
        (create(spec(), unknown=1), 40415),
        (create(spec(), commitQuorum={}), 9),
        (create(spec(), commitQuorum=True), 9),
        (create(spec(), commitQuorum=""), 9),
        (create(spec(), commitQuorum=-1), 9),
        (create(spec(), commitQuorum=51), 9),
        (create(spec(storageEngine=1)), 14),
        (create(spec(storageEngine={})), 67),
        (create(spec(storageEngine={"wiredTiger": 1})), 2),
        (create(spec(storageEngine={"memory": 1})), 2),
        (create(spec(storageEngine={"mmapv1": {}})), 72),
        (create(spec(storageEngine={"other": {}})), 72),
    ],
)
def test_bad_requests_change_nothing(running: Running, command: dict[str, Any], expected: int) -> None:
    assert running.code(command) == expected
    assert running.listed({"listCollections": 1}) == []
    assert running.engine.idents() == []


@pytest.mark.parametrize("quorum", [None, 0, 1, 1.0, "majority", "votingMembers"])
def test_commit_quorums_that_one_member_can_meet(running: Running, quorum: Any) -> None:
    running.run(create(spec(), commitQuorum=quorum))
    assert running.index_names() == ["_id_", "a_1"]


def test_commit_quorums_that_one_member_cannot_meet(running: Running) -> None:
    running.run(create(spec("empty", key={"b": 1}), commitQuorum=2))  # there is nothing to wait for
    running.insert({"_id": 1})
    assert running.code(create(spec(), commitQuorum=2)) == 278
    assert running.code(create(spec(), commitQuorum="dc")) == 79
    running.run(create(spec("empty", key={"b": 1}), commitQuorum=2))  # nor here
    assert running.index_names() == ["_id_", "empty"]


def test_indexes_that_are_being_built(running: Running) -> None:
    running.insert(*[{"_id": number, "a": number} for number in range(600)])
    steps = running.steps(create(spec()))
    next(steps)
    [_, building] = running.listed({"listIndexes": "c", "includeBuildUUIDs": True})
    assert building["spec"]["name"] == "a_1"
    uuid = building["buildUUID"]
    [ready, building] = running.listed({"listIndexes": "c", "includeIndexBuildInfo": True})
    assert ready == {"spec": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}
    assert building["indexBuildInfo"] == {"buildUUID": uuid}
    change = {"setIndexCommitQuorum": "c", "indexNames": ["a_1"], "commitQuorum": "majority"}
    assert running.run(change) == {}
    assert running.code({**change, "indexNames": ["a_1", "b_1"]}) == 27
    for _ in steps:
        pass
    assert running.code(change) == 27
    assert running.code({**change, "commitQuorum": 3}) == 278
    assert running.code({**change, "indexNames": [1]}) == 14
    assert running.code({**change, "setIndexCommitQuorum": "none"}) == 26
    both = {"listIndexes": "c", "includeBuildUUIDs": True, "includeIndexBuildInfo": True}
    assert running.code(both) == 72


def test_numbers_of_a_2d_index_are_listed_in_their_types_and_kept_as_they_were(running: Running) -> None:
    running.run(create(spec("p", key={"p": "2d"}, bits=20.0, min=-100, max=Int64(100))))
    [_, listed] = running.listed({"listIndexes": "c"})
    assert [(type(listed[name]), listed[name]) for name in ("bits", "min", "max")] == [
        (int, 20),
        (float, -100.0),
        (float, 100.0),
    ]
    stages = {"aggregate": "c", "pipeline": [{"$indexStats": {}}, {"$match": {"name": "p"}}], "cursor": {}}
    [kept] = running.listed(stages)
    assert [(type(kept["spec"][name]), kept["spec"][name]) for name in ("bits", "min", "max")] == [
        (float, 20.0),
        (int, -100),
        (Int64, 100),
    ]


@pytest.mark.slow
def test_keys_that_a_document_may_have() -> None:
    spec = bson.encode({"key": {"a": 1}, "name": "a_1"})
    index = CollectionIndex(parse_index_spec(spec), "", None, False)
    with pytest.raises(CommandError) as caught:
        index.keys_of(bson.encode({"a": list(range(100_001))}))
    assert caught.value.code == 201
    assert len(index.keys_of(bson.encode({"a": [7] * 100_001}))) == 1


def test_reindex_is_for_standalone_servers(running: Running) -> None:
    assert running.code({"reIndex": "c"}) == 20


def test_when_the_count_of_accesses_began(running: Running) -> None:
    running.advance(5)
    made_ms = running.clock.now_ms()
    running.insert({"_id": 1, "a": 1})
    running.advance(5)
    running.run(create(spec()))
    pipeline = [{"$indexStats": {}}, {"$sort": {"name": 1}}]
    since = [
        found["accesses"]["since"] for found in running.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    ]
    assert [int(when.timestamp() * 1000) for when in since] == [made_ms, made_ms + 5000]


def test_an_index_of_version_1_may_have_odd_values(running: Running) -> None:
    running.run(create(spec("odd", key={"a": True}, v=1)))
    assert running.code(create(spec("worse", key={"a": {}}, v=1))) == 67
    assert running.code(create(spec("wild", key={"$**": 1}, v=1))) == 67


def test_options_of_the_command(running: Running) -> None:
    running.run(create(spec(unknown=1), ignoreUnknownIndexOptions=True, commitQuorum="majority"))
    assert running.index_names() == ["_id_", "a_1"]


# The TTL setting.


def ttl(seconds: Any, name: str = "_ts_1", direction: int = 1) -> Spec:
    return {"key": {"_ts": direction}, "name": name, "expireAfterSeconds": seconds}


@pytest.mark.parametrize("dialect", ["mongodb", "cosmos"])
def test_the_default_ttl_of_a_collection(dialect: str) -> None:
    running = Running(dialect=dialect)
    running.insert({"_id": 1}, {"_id": 2, "ttl": 20})
    assert running.run(create(ttl(10)))["numIndexesAfter"] == 2
    shown = {"v": 1, "ns": "test.c"} if dialect == "cosmos" else {"v": 2}
    assert running.listed({"listIndexes": "c"})[1] == {**shown, **ttl(10)}
    running.advance(10)
    assert running.ids() == [2]
    assert running.reap() == 1
    assert running.run(create(ttl(10.0)))["note"]
    running.advance(10)
    assert running.ids() == []


@pytest.mark.parametrize("other", [ttl(11), ttl(-1), ttl(10, "other"), ttl(11, "other"), ttl(11, "down", -1)])
def test_another_default_is_a_conflict(running: Running, other: Spec) -> None:
    running.run(create(ttl(10)))
    assert running.code(create(other)) == 85
    assert running.collection().default_ttl_s == 10
    assert running.index_names() == ["_id_", "_ts_1"]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (ttl(0), 2),
        (ttl(-2), 2),
        (ttl(2.5), 2),
        (ttl(2**31), 2),
        (ttl("10"), 14),
        ({"key": {"_ts": 1, "a": 1}, "name": "x", "expireAfterSeconds": 10}, 67),
        ({"key": {"_ts": "hashed"}, "name": "x", "expireAfterSeconds": 10}, 67),
        ({**ttl(10), "unique": True}, 67),
    ],
)
@pytest.mark.parametrize("dialect", ["mongodb", "cosmos"])
def test_a_bad_default_changes_nothing(dialect: str, bad: Spec, expected: int) -> None:
    running = Running(dialect=dialect)
    if dialect == "cosmos" and bad["key"] == {"_ts": "hashed"}:
        expected = 115  # there are no hashed indexes
    assert running.code(create(spec(), bad)) == expected
    assert running.listed({"listCollections": 1}) == []
    running.run(create(ttl(10)))
    assert running.code(create(bad)) == expected
    assert running.collection().default_ttl_s == 10


def test_a_default_that_comes_with_an_index_that_fails_is_not_set(running: Running) -> None:
    running.insert({"_id": 1, "a": 1}, {"_id": 2, "a": 1})
    assert running.code(create(ttl(10), spec(unique=True))) == 11000
    assert running.collection().default_ttl_s == 0
    assert running.index_names() == ["_id_"]
    running.advance(100)
    assert running.ids() == [1, 2]


def test_an_index_on_a_field_named_ts_of_the_client(running: Running) -> None:
    running.insert({"_id": 1, "_ts": 5}, {"_id": 2})
    running.index({"_ts": 1})
    assert running.ids(filter={"_ts": 5}) == [1]
    assert running.code(create(ttl(10))) == 85
    running.run({"dropIndexes": "c", "index": "_ts_1"})
    running.run(create(ttl(10)))
    assert running.ids(filter={"_ts": 5}) == [1]


def test_dates_expire_in_the_default_dialect(running: Running) -> None:
    running.run(create({"key": {"when": 1}, "name": "when_1", "expireAfterSeconds": 3600}))
    assert [index.name for index in running.collection().date_ttl_indexes] == ["when_1"]


def test_dates_do_not_expire_in_cosmos() -> None:
    running = Running(dialect="cosmos")
    error = running.refusal(create(ttl(10), {"key": {"when": 1}, "name": "when_1", "expireAfterSeconds": 3600}))
    assert error.code == 2
    assert error.message == "The 'expireAfterSeconds' option is supported on '_ts' field only."
    assert running.listed({"listCollections": 1}) == []


def test_documents_already_due_are_purged_when_a_ttl_index_is_created(running: Running) -> None:
    running.insert(*({"_id": i, "ttl": 5} for i in range(600)))
    running.advance(5)
    assert running.reap() == 0
    running.run(create(ttl(-1)))
    assert running.ids() == []
    assert running.reap() == 600


def test_dropping_the_default_switches_ttl_off(running: Running) -> None:
    for index in ("_ts_1", {"_ts": 1}, ["_ts_1"], "*"):
        running.insert({"_id": str(index)})
        running.run(create(ttl(10)))
        running.advance(10)
        assert running.ids() == []
        running.run({"dropIndexes": "c", "index": index})
        assert running.ids() == [str(index)]  # not purged yet, so it becomes visible again
        assert running.service.expiry.wheel.next_due_s() is None
        assert running.reap() == 0
        running.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})


def test_dropping_the_default_leaves_a_date_index_at_work(running: Running) -> None:
    running.run(create(ttl(10), {"key": {"when": 1}, "name": "when_1", "expireAfterSeconds": 5}))
    from datetime import datetime

    now = datetime.fromtimestamp(running.clock.now_ms() / 1000, tz=UTC)
    running.insert({"_id": 1, "when": now})
    running.run({"dropIndexes": "c", "index": "_ts_1"})
    assert running.service.expiry.wheel.next_due_s() is not None
    running.advance(6)
    assert running.reap() == 1


# listIndexes


def test_indexes_are_listed_id_first(running: Running) -> None:
    running.run(create(spec("z", key={"z": -1}), spec("b", key={"b": 1, "c": -1}, unique=True)))
    reply = running.run({"listIndexes": "c"})["cursor"]
    assert reply["ns"] == "test.c"
    assert reply["id"] == 0
    assert reply["firstBatch"] == [
        {"v": 2, "key": {"_id": 1}, "name": "_id_"},
        {"v": 2, "key": {"z": -1}, "name": "z"},
        {"v": 2, "key": {"b": 1, "c": -1}, "name": "b", "unique": True},
    ]


def test_indexes_come_in_pages(running: Running) -> None:
    running.run(create(*(spec(f"f{number}", key={f"f{number}": 1}) for number in range(5))))
    cursor = running.run({"listIndexes": "c", "cursor": {"batchSize": 2}})["cursor"]
    assert [index["name"] for index in cursor["firstBatch"]] == ["_id_", "f0"]
    more = running.run({"getMore": Int64(cursor["id"]), "collection": "c", "batchSize": 3})["cursor"]
    assert [index["name"] for index in more["nextBatch"]] == ["f1", "f2", "f3"]
    more = running.run({"getMore": Int64(cursor["id"]), "collection": "c"})["cursor"]
    assert ([index["name"] for index in more["nextBatch"]], more["id"]) == (["f4"], 0)


def test_build_information(running: Running) -> None:
    running.run({"create": "c"})
    listed = running.listed({"listIndexes": "c", "includeIndexBuildInfo": True})
    assert listed == [{"spec": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}]
    assert running.code({"listIndexes": "c", "includeIndexBuildInfo": True, "includeBuildUUIDs": True}) == 72


def test_indexes_of_nothing(running: Running) -> None:
    assert running.code({"listIndexes": "none"}) == 26
    assert running.code({"listIndexes": ""}) == 73


# dropIndexes


@pytest.mark.parametrize(
    ("index", "left"),
    [
        ("a_1", ["_id_", "b_-1", "ab"]),
        ({"a": 1}, ["_id_", "b_-1", "ab"]),
        ({"a": 1.0}, ["_id_", "b_-1", "ab"]),
        ({"b": -1}, ["_id_", "a_1", "ab"]),
        ({"a": 1, "b": 1}, ["_id_", "a_1", "b_-1"]),
        (["ab", "a_1"], ["_id_", "b_-1"]),
        ([], ["_id_", "a_1", "b_-1", "ab"]),
        ("*", ["_id_"]),
        (["*"], ["_id_"]),
    ],
)
def test_dropping_indexes(running: Running, index: Any, left: list[str]) -> None:
    running.run(create(spec(), spec("b_-1", key={"b": -1}), spec("ab", key={"a": 1, "b": 1})))
    assert running.run({"dropIndexes": "c", "index": index})["nIndexesWas"] == 4
    assert running.index_names() == left
    assert len(running.engine.idents()) == 1 + len(left)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("none", 27),
        ({"a": -1}, 27),
        ({}, 27),
        (["a_1", "none"], 27),
        ("_id_", 72),
        ({"_id": 1}, 72),
        (["a_1", "_id_"], 72),
        ({"u": 1}, 181),
        (1, 14),
        (None, 14),
        ([1], 14),
        ([{"a": 1}], 14),
    ],
)
def test_drops_that_are_refused_change_nothing(running: Running, index: Any, expected: int) -> None:
    running.run(create(spec(), spec("u", key={"u": 1}), spec("u2", key={"u": 1}, unique=True)))
    assert running.code({"dropIndexes": "c", "index": index}) == expected
    assert running.index_names() == ["_id_", "a_1", "u", "u2"]


def test_drops_that_name_nothing(running: Running) -> None:
    assert running.code({"dropIndexes": "none", "index": "*"}) == 26
    running.run({"create": "c"})
    assert running.code({"dropIndexes": "c"}) == 40414
    assert running.run({"deleteIndexes": "c", "index": "*"})["nIndexesWas"] == 1


def test_a_cursor_on_a_dropped_index_dies(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(2000)))
    running.run(create(spec()))
    cursor = running.run({"find": "c", "filter": {"a": {"$gte": 0}}, "hint": "a_1", "batchSize": 5})["cursor"]
    running.run({"dropIndexes": "c", "index": "a_1"})
    assert running.code({"getMore": Int64(cursor["id"]), "collection": "c", "batchSize": 1500}) == 175
