"""applyOps: entries of an oplog, which mongorestore has carried out."""

from typing import Any
from uuid import uuid4

import pymongo
import pytest
from bson import Binary, Int64, Regex, Timestamp
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


def apply(database: Database[Documents], *operations: Documents, **options: Any) -> Documents:
    return database.client.admin.command({"applyOps": list(operations), **options})


def on(database: Database[Documents], op: str, document: Documents, **more: Any) -> Documents:
    """An entry for the collection `t`."""
    return {"op": op, "ns": f"{database.name}.t", "o": document, **more}


def command(database: Database[Documents], document: Documents, **more: Any) -> Documents:
    return {"op": "c", "ns": f"{database.name}.$cmd", "o": document, **more}


def failure(database: Database[Documents], *operations: Documents, **options: Any) -> OperationFailure:
    with pytest.raises(OperationFailure) as caught:
        apply(database, *operations, **options)
    return caught.value


def test_inserts_updates_and_deletes(database: Database[Documents]) -> None:
    database.create_collection("t")
    reply = apply(
        database,
        on(database, "i", {"_id": 1, "a": 1, "empty": Timestamp(0, 0)}, o2={"_id": 1}),
        on(database, "i", {"_id": 2, "a": 1}, ts=Timestamp(1, 1), t=Int64(1), v=Int64(2), wall=None),
        on(database, "u", {"$v": 2, "diff": {"u": {"a": 2}}}, o2={"_id": 1}),
        on(database, "u", {"_id": 2, "$odd": True}, o2={"_id": 2}),
        on(database, "i", {"_id": {"a": Regex("a")}}),
        on(database, "d", {"_id": {"a": Regex("a")}}),
        {"op": "n", "ns": "", "o": {"msg": "nothing"}},
    )
    assert reply["applied"] == 7 and reply["results"] == [True] * 7
    assert list(database.t.find()) == [{"_id": 1, "a": 2, "empty": Timestamp(0, 0)}, {"_id": 2, "$odd": True}]
    assert apply(database)["applied"] == 0


def test_apply_ops_skips_entries_that_were_applied_or_whose_document_is_gone(database: Database[Documents]) -> None:
    """A dump may contain what the oplog of its time tells, or lack it, since it was deleted before it was read."""
    database.t.insert_one({"_id": 1, "a": 1, "b": 1})
    apply(
        database,
        on(database, "i", {"_id": 1, "b": 2}),
        on(database, "u", {"_id": 2, "b": 3}, o2={"_id": 2}, b=True),
        on(database, "u", {"$v": 2, "diff": {"u": {"a": 2}}}, o2={"_id": 3}),
        on(database, "d", {"_id": 4}),
        {**on(database, "d", {"_id": 4}), "ns": f"{database.name}.missing"},
        *[command(database, {name: "missing"}) for name in ("drop", "convertToCapped", "emptycapped", "collMod")],
        command(database, {"dropIndexes": "missing", "index": "a_1"}),
        command(database, {"renameCollection": f"{database.name}.missing", "to": f"{database.name}.x"}),
    )
    assert list(database.t.find()) == [{"_id": 1, "b": 2}, {"_id": 2, "b": 3}]


@pytest.mark.parametrize(
    ("before", "diff", "after"),
    [
        ({"a": 1, "b": 1, "c": 1}, {"d": {"a": False, "x": False}, "u": {"b": 2, "y": 3}}, {"b": 2, "c": 1, "y": 3}),
        ({"a": 1, "b": 1}, {"i": {"a": 2, "c": 3}}, {"b": 1, "a": 2, "c": 3}),
        ({"s": {"x": {"y": 1}}, "z": 1}, {"ss": {"sx": {"u": {"y": 2}}}}, {"s": {"x": {"y": 2}}, "z": 1}),
        ({"s": 1}, {"ss": {"u": {"y": 2}}}, {"s": 1}),
        ({"s": [1]}, {"ss": {"u": {"y": 2}}}, {"s": [1]}),
        ({"s": {"a": 1}}, {"ss": {"a": True, "u0": 2}}, {"s": {"a": 1}}),
        ({"l": [1, 2, 3]}, {"sl": {"a": True, "l": 2, "u0": 9}}, {"l": [9, 2]}),
        ({"l": [1]}, {"sl": {"a": True, "u3": {"x": 1}}}, {"l": [1, None, None, {"x": 1}]}),
        ({"l": [{"x": 1}, [1]]}, {"sl": {"a": True, "s0": {"u": {"x": 2}}, "s1": {"a": True, "u1": 2}}}, None),
        ({"l": [{"x": 1}]}, {"sl": {"a": True, "s5": {"u": {"x": 2}}}}, {"l": [{"x": 1}]}),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_diffs(database: Database[Documents], before: Documents, diff: Documents, after: Documents | None) -> None:
    database.t.insert_one({"_id": 1, **before})
    if after is None:
        after = {"l": [{"x": 2}, [1, 2]]}
    for _ in range(2):
        apply(database, on(database, "u", {"$v": 2, "diff": diff}, o2={"_id": 1}))
        found = database.t.find_one()
        assert found is not None and list(found.items()) == list({"_id": 1, **after}.items())


def test_changes_of_collections(database: Database[Documents]) -> None:
    name = database.name
    index = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
    apply(
        database,
        command(database, {"create": "a", "idIndex": index, "validator": {"n": 1}}),
        command(database, {"create": "a", "idIndex": index, "validator": {"n": 1}}),
        command(database, {"collMod": "a", "validator": {}}),
        command(database, {"renameCollection": f"{name}.a", "to": f"{name}.b", "dropTarget": Binary(b"1" * 16, 4)}),
        command(database, {"applyOps": [command(database, {"create": "c"}), command(database, {"drop": "c"})]}),
        command(database, {"convertToCapped": "b", "size": 4096}),
    )
    assert [(info["name"], info["options"]) for info in database.list_collections()] == [
        ("b", {"capped": True, "size": 4096})
    ]
    apply(database, command(database, {"dropDatabase": 1}))
    assert database.list_collection_names() == []


def test_the_uuid_of_a_collection(database: Database[Documents]) -> None:
    uuid, other = Binary(uuid4().bytes, 4), Binary(uuid4().bytes, 4)
    create = command(database, {"create": "t"}, ui=uuid)
    for _ in range(2):
        apply(database, create)
    [info] = database.list_collections()
    assert info["info"]["uuid"] == uuid
    apply(database, on(database, "i", {"_id": 1}, ui=uuid))
    assert failure(database, on(database, "i", {"_id": 1}, ui=other)).code == 26
    assert failure(database, {**create, "ui": other}).code == 48
    assert failure(database, {**create, "o": {"create": "other"}}).code == 48
    database.t.rename("moved")
    apply(database, on(database, "i", {"_id": 2}, ui=uuid))
    assert database.moved.count_documents({}) == 2


def test_commands_for_the_collection_of_a_uuid(database: Database[Documents]) -> None:
    """A collection that was made later under the same name is another one."""
    name = database.name
    uuid, other = Binary(uuid4().bytes, 4), Binary(uuid4().bytes, 4)
    apply(database, command(database, {"create": "t"}, ui=uuid))
    database.t.insert_one({"_id": 1})
    database.t.create_index("a")
    apply(
        database,
        command(database, {"drop": "t"}, ui=other),
        command(database, {"emptycapped": "t"}, ui=other),
        command(database, {"convertToCapped": "t", "size": 4096}, ui=other),
        command(database, {"collMod": "t", "validator": {"a": 1}}, ui=other),
        command(database, {"dropIndexes": "t", "index": "a_1"}, ui=other),
        command(database, {"renameCollection": f"{name}.t", "to": f"{name}.x"}, ui=other),
    )
    assert [(info["name"], info["options"]) for info in database.list_collections()] == [("t", {})]
    assert database.t.count_documents({}) == 1 and "a_1" in database.t.index_information()
    database.t.rename("moved")
    database.t.insert_one({"_id": 2})
    apply(
        database,
        command(database, {"dropIndexes": "t", "index": "a_1"}, ui=uuid),
        command(database, {"renameCollection": f"{name}.t", "to": f"{name}.x"}, ui=uuid),
    )
    assert "a_1" not in database.x.index_information()
    apply(database, command(database, {"drop": "moved"}, ui=uuid))
    assert database.list_collection_names() == ["t"]


def test_the_first_error_ends_it(database: Database[Documents]) -> None:
    database.t.create_index("a", unique=True)
    error = failure(database, *[on(database, "i", {"_id": number, "a": number // 2}) for number in range(3)])
    assert error.code == 11000 and error.details is not None
    assert (error.details["applied"], error.details["results"]) == (2, [True, False])
    assert database.t.count_documents({}) == 1


def test_a_replacement_of_a_missing_document_does_not_end_it(database: Database[Documents]) -> None:
    database.create_collection("t")
    replace = on(database, "u", {"_id": 2, "a": 1}, o2={"_id": 2})
    error = failure(database, on(database, "i", {"_id": 1}), replace, on(database, "i", {"_id": 3}), allowAtomic=False)
    assert error.code == 8 and error.details is not None
    assert (error.details["applied"], error.details["results"]) == (3, [True, False, True])
    assert list(database.t.find()) == [{"_id": 1}, {"_id": 3}]


@pytest.mark.parametrize("value", [None, True, 0, "x", [], {}, Regex("a")])
def test_fields_that_are_ignored(database: Database[Documents], value: Any) -> None:
    database.create_collection("t")
    insert = on(database, "i", {"_id": 1}, unknown=value, h=value)
    assert apply(database, insert, allowAtomic=value, unknown=value)["applied"] == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"prepare": False}, 2),
        ({"prepare": 1}, 14),
        ({"partialTxn": False}, 31056),
        ({"count": True}, 14),
        ({"count": 1}, 31240),
        ({"preCondition": []}, 6711600),
        ({"alwaysUpsert": True}, 6711601),
        ({"alwaysUpsert": 0}, 14),
        ({"alwaysUpsert": False}, None),
        ({"alwaysUpsert": None, "prepare": None, "partialTxn": None, "count": None}, None),
    ],
)
def test_options_of_earlier_versions(database: Database[Documents], options: Documents, code: int | None) -> None:
    if code is None:
        assert apply(database, **options)["applied"] == 0
    else:
        assert failure(database, **options).code == code


@pytest.mark.parametrize("value", [None, True, 1, "x", {}, [None], [1]])
def test_the_operations_are_an_array_of_documents(database: Database[Documents], value: Any) -> None:
    with pytest.raises(OperationFailure) as caught:
        database.client.admin.command({"applyOps": value})
    assert caught.value.code == 14


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"op": "x", "o": {"_id": 1}}, 9),
        ({"op": 1, "o": {"_id": 1}}, 14),
        ({"op": None, "o": {"_id": 1}}, 14),
        ({"op": "i", "o": {"_id": 1}, "ns": 1}, 14),
        ({"op": "i", "o": [1]}, 14),
        ({"op": "u", "o": {"a": 1}, "o2": 1}, 14),
        ({"op": "u", "o": {"a": 1}}, 14),
        ({"op": "u", "o": {"a": 1}, "o2": {"_id": 1}, "b": 1}, 14),
        ({"op": "i", "o": {"_id": 1}, "fromMigrate": 1}, 14),
        ({"op": "i", "o": {"_id": 1}, "ts": 1}, 14),
        ({"op": "i", "o": {"_id": 1}, "wall": 1}, 14),
        ({"op": "i", "o": {"a": 1}}, 4),
        ({"op": "u", "o": {"a": 1}, "o2": {}}, 4),
        ({"op": "d", "o": {"a": 1}}, 4),
        ({"op": "i", "o": {"_id": 1}, "ns": "nowhere.t"}, 26),
        ({"op": "u", "o": {"_id": 1}, "o2": {"_id": 1}, "ns": "nowhere.t"}, 26),
        ({"op": "i", "o": {"_id": 1}, "ns": "t"}, 73),
        ({"op": "i", "o": {"_id": 1}, "ns": "local.oplog.rs"}, 73),
        ({"op": "u", "o": {"$v": 1, "$set": {"a": 1}}, "o2": {"_id": 1}}, 9),
        ({"op": "u", "o": {"$v": 2}, "o2": {"_id": 1}}, 9),
        ({"op": "u", "o": {"$v": 2, "diff": {"x": {}}}, "o2": {"_id": 1}}, 9),
        ({"op": "u", "o": {"$v": 2, "diff": {"u": {"_id": 2}}}, "o2": {"_id": 1}}, 66),
        ({"op": "u", "o": {"$v": 2, "diff": {"sl": {"a": True, "u99999999999": 1}}}, "o2": {"_id": 1}}, 34),
        ({"op": "u", "o": {"$v": 2, "diff": {"sl": {"a": True, "l": -1}}}, "o2": {"_id": 1}}, 9),
        ({"op": "u", "o": {"$v": 2, "diff": {"sl": {"a": True, "l": True}}}, "o2": {"_id": 1}}, 9),
        ({"op": "u", "o": {"$v": 2, "diff": {"sl": {"a": True, "l": "1"}}}, "o2": {"_id": 1}}, 9),
        ({"op": "i", "o": {"_id": 1}, "ui": "x"}, 207),
        ({"op": "i", "o": {"_id": 1}, "ui": Binary(b"1" * 16, 3)}, 207),
        ({"op": "c", "o": {"create": "x"}, "ns": "d.$cmd", "ui": Binary(b"1234", 4)}, 207),
        ({"op": "c", "o": {"createIndexes": "t", "v": 2, "key": {"a": 1}, "name": "a_1"}, "ns": "d.$cmd"}, 115),
        ({"op": "c", "o": {"ping": 1}, "ns": "d.$cmd"}, 2),
        ({"op": "c", "o": {"create": 1}, "ns": "d.$cmd"}, 73),
        ({"op": "c", "o": {"applyOps": 1}, "ns": "d.$cmd"}, 14),
        ({"op": "i"}, 14),
    ],
)
def test_entries_that_are_refused(database: Database[Documents], entry: Documents, code: int) -> None:
    database.t.insert_one({"_id": 1, "l": [1, 2]})
    assert failure(database, {"ns": f"{database.name}.t", **entry}).code == code
    assert list(database.t.find()) == [{"_id": 1, "l": [1, 2]}]


def test_apply_ops_is_run_on_admin_with_any_validation(database: Database[Documents]) -> None:
    database.create_collection("t", validator={"a": 1})
    insert = on(database, "i", {"_id": 1, "a": 2})
    assert failure(database, insert).code == 121
    apply(database, insert, bypassDocumentValidation=True)
    with pytest.raises(OperationFailure, match="admin"):
        database.command({"applyOps": [insert]})


def test_documents_begin_to_live_anew() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        shop = client.shop
        shop.t.create_index("_ts", name="ttl", expireAfterSeconds=100)
        shop.t.insert_many([{"_id": number} for number in range(3)])
        server.clock.advance(90)
        apply(
            shop,
            on(shop, "i", {"_id": 0}),
            on(shop, "u", {"$v": 2, "diff": {"u": {"a": 1}}}, o2={"_id": 1}),
            on(shop, "i", {"_id": 5, "ttl": 20}),
        )
        server.clock.advance(10)
        assert [document["_id"] for document in shop.t.find().sort("_id")] == [0, 1, 5]
        server.clock.advance(10)
        assert [document["_id"] for document in shop.t.find().sort("_id")] == [0, 1]


def test_apply_ops_needs_privileges_on_everything() -> None:
    with mongottl.start_server(auth=True, user="root", password="s") as server:
        with Client(server.uri) as client:
            for role in ("restore", "readWriteAnyDatabase", "read"):
                client.admin.command("createUser", role, pwd="s", roles=[role])
            anything = {"resource": {"anyResource": True}, "actions": ["anyAction"]}
            client.admin.command("createRole", "all", privileges=[anything], roles=[])
            client.admin.command("createUser", "all", pwd="s", roles=["all"])
            client.shop.create_collection("t")

        def may(user: str, *operations: Documents) -> bool:
            with Client(f"mongodb://{user}:s@127.0.0.1:{server.port}/") as client:
                try:
                    apply(client.shop, *operations)
                except OperationFailure as error:
                    assert error.code == 13
                    return False
                return True

        with Client(server.uri) as client:
            shop = client.shop
            insert, delete = on(shop, "i", {"_id": 1}), on(shop, "d", {"_id": 1})
            create = command(shop, {"create": "other"}, ui=Binary(uuid4().bytes, 4))
            # The role is enough for mongorestore --preserveUUID, but not for --oplogReplay, as in MongoDB.
            assert may("restore", create)
            assert not may("restore", insert)
            assert may("readWriteAnyDatabase", insert, delete)
            assert not may("readWriteAnyDatabase", create)
            for operation in (insert, delete, create, command(shop, {"applyOps": [insert]})):
                assert not may("read", operation)
                assert may("all", operation)
            # The privileges are those on the collection that has the UUID.
            shop.create_collection("secret")
            uuids = {info["name"]: info["info"]["uuid"] for info in shop.list_collections()}
            on_t = {"resource": {"db": "shop", "collection": "t"}, "actions": ["insert", "update", "remove"]}
            drop_t = {"resource": {"db": "shop", "collection": "t"}, "actions": ["dropCollection"]}
            by_uuid = {"resource": {"cluster": True}, "actions": ["useUUID", "forceUUID"]}
            client.admin.command("createRole", "one", privileges=[on_t, drop_t, by_uuid], roles=[])
            client.admin.command("createUser", "one", pwd="s", roles=["one"])
            for operation in (insert, delete, command(shop, {"drop": "t"})):
                assert not may("one", {**operation, "ui": uuids["secret"]})
                assert may("one", {**operation, "ui": uuids["t"]})
