"""What drivers decide by is that of the announced version: the reply to hello, buildInfo, logins, labels of errors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import bson
import pytest
from bson import Int64

import mongottl
from mongottl.config import COSMOS_VERSIONS, NEWEST_PATCHES, WIRE_VERSIONS
from mongottl.wire.messages import EXHAUST_ALLOWED, MORE_TO_COME, OpMsg
from tests.drivers.protocol.test_legacy_messages import PASSWORD, USER, log_in, query
from tests.drivers.protocol.test_protocol import Raw
from tests.on_nodes import of_replica_set
from tests.on_store import takes_several_servers
from tests.waiting import PATIENCE_S

Documents = dict[str, Any]
Connect = Callable[..., Raw]

VERSIONS = list(WIRE_VERSIONS)
# The fields of the reply of a member of a replica set to hello by version, each with the first version that has it.
# Written down from MongoDB's reference and the driver specifications, not from the server's table.
ALWAYS = {
    "helloOk",
    "isWritablePrimary",
    "hosts",
    "setName",
    "setVersion",
    "secondary",
    "primary",
    "me",
    "electionId",
    "lastWrite",
    "maxBsonObjectSize",
    "maxMessageSizeBytes",
    "maxWriteBatchSize",
    "localTime",
    "logicalSessionTimeoutMinutes",
    "minWireVersion",
    "maxWireVersion",
    "readOnly",
    "compression",
    "ok",
    "$clusterTime",
    "operationTime",
}
LATER = {
    "4.0": {"saslSupportedMechs"},
    "4.2": {"connectionId"},
    "4.4": {"topologyVersion", "speculativeAuthenticate"},
}
LOGIN = {"auth": True, "user": USER, "password": PASSWORD}
SPECULATIVE = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=ann,r=abc", "db": "admin"}


def fields_of(version: str) -> set[str]:
    since = VERSIONS.index(version)
    return ALWAYS.union(*(names for first, names in LATER.items() if VERSIONS.index(first) <= since))


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[..., mongottl.RunningServer]]:
    """Gives a server with settings, which the tests of this module share."""
    with ExitStack() as stack:
        started: dict[tuple[tuple[str, Any], ...], mongottl.RunningServer] = {}

        def start(**settings: Any) -> mongottl.RunningServer:
            key = tuple(sorted(settings.items()))
            if key not in started:
                started[key] = stack.enter_context(mongottl.start_server(**settings))
            return started[key]

        yield start


@pytest.fixture
def connect(servers: Callable[..., mongottl.RunningServer]) -> Iterator[Connect]:
    """Connects to a server with settings."""
    opened: list[Raw] = []

    def open_one(**settings: Any) -> Raw:
        opened.append(Raw(servers(**settings).port))
        return opened[-1]

    yield open_one
    for raw in opened:
        raw.socket.close()


def hello(raw: Raw, name: str = "hello", user: str = USER, **fields: Any) -> Documents:
    """The whole reply to a hello that asks for all that it can."""
    asks = {
        name: 1,
        "helloOk": True,
        "compression": ["zstd", "zlib"],
        "saslSupportedMechs": f"admin.{user}",
        "speculativeAuthenticate": {**SPECULATIVE, "payload": f"n,,n={user},r=abc".encode()},
        "$db": "admin",
        **fields,
    }
    raw.send(raw.request(asks))
    reply = raw.receive()
    assert isinstance(reply, OpMsg)
    return bson.decode(reply.body)


@of_replica_set
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["hello", "isMaster"])
def test_hello_has_the_fields_of_the_version(connect: Connect, version: str, name: str) -> None:
    reply = hello(connect(server_version=version, **LOGIN), name)
    expected = fields_of(version)
    if name == "isMaster":
        expected = expected - {"isWritablePrimary"} | {"ismaster"}
    assert set(reply) == expected
    assert reply["maxWireVersion"] == WIRE_VERSIONS[version]
    assert "zlib" in reply["compression"]
    assert ("zstd" in reply["compression"]) <= (version not in ("3.6", "4.0"))


@of_replica_set
@pytest.mark.parametrize("version", COSMOS_VERSIONS)
def test_hello_of_an_account_has_the_fields_of_the_version(connect: Connect, version: str) -> None:
    raw = connect(dialect="cosmos", server_version=version, cosmos_account="shop", cosmos_key="c2VjcmV0")
    reply = hello(raw, user="shop")
    assert set(reply) - {"_t"} == fields_of(version) - {"$clusterTime", "operationTime"}
    assert raw.run({"buildInfo": 1, "$db": "admin"})["version"] == f"{version}.0"  # as real accounts


@pytest.mark.parametrize("version", VERSIONS)
def test_build_info_names_the_newest_patch(connect: Connect, version: str) -> None:
    raw = connect(server_version=version)
    info = query(raw, {"buildInfo": 1}, "admin")
    major, minor = map(int, version.split("."))
    assert info["version"] == f"{version}.{NEWEST_PATCHES[version]}"
    assert info["versionArray"] == [major, minor, NEWEST_PATCHES[version], 0]
    assert raw.run({"serverStatus": 1, "$db": "admin"})["version"] == info["version"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wait_for_a_change_of_topology(connect: Connect, version: str) -> None:
    """Older versions ignore the fields that ask for it, and answer at once and once."""
    raw = connect(server_version=version)
    waits = version not in ("3.6", "4.0", "4.2")
    known = raw.run({"hello": 1, "$db": "admin"}).get("topologyVersion")
    assert (known is not None) == waits
    process = {"processId": bson.ObjectId(), "counter": Int64(0)} if known is None else known
    raw.send(
        raw.request(
            {"hello": 1, "topologyVersion": process, "maxAwaitTimeMS": 10 if waits else 3_600_000, "$db": "admin"},
            EXHAUST_ALLOWED,
        )
    )
    reply = raw.receive()
    assert isinstance(reply, OpMsg)
    assert (reply.flags & MORE_TO_COME != 0) == waits
    assert PATIENCE_S < 3600
    nonsense = raw.run({"hello": 1, "topologyVersion": {}, "$db": "admin"}) if not waits else {"ok": 1.0}
    assert nonsense["ok"] == 1.0


@pytest.mark.parametrize("version", VERSIONS)
def test_logins_have_the_mechanisms_of_the_version(connect: Connect, version: str) -> None:
    raw = connect(server_version=version, **LOGIN)
    begun = query(raw, {key: value for key, value in SPECULATIVE.items() if key != "db"}, "admin")
    if version == "3.6":
        assert begun["code"] == 334
    else:
        assert begun["ok"] == 1.0
        assert hello(raw)["saslSupportedMechs"] == ["SCRAM-SHA-1", "SCRAM-SHA-256"]
    assert log_in(raw, lambda command: query(raw, command, "admin"), "SCRAM-SHA-1")["done"] is True
    known = raw.run({"getParameter": 1, "authenticationMechanisms": 1, "$db": "admin"})["authenticationMechanisms"]
    assert ("SCRAM-SHA-256" in known) == (version != "3.6")
    created = raw.run({"createUser": "bob", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"]})
    assert created.get("code") == (40415 if version == "3.6" else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_hello_takes_an_api_version_since_before_there_was_one(connect: Connect, version: str) -> None:
    """Drivers with a declared API version send it in their first hello, before they know the server. Versions before
    5.0 ignore it there, as all fields of hello that they do not know; other commands refuse it."""
    raw = connect(server_version=version)
    old = version in ("3.6", "4.0", "4.2", "4.4")
    for name in ("hello", "isMaster"):
        reply = hello(raw, name, apiVersion="1", apiStrict=name == "hello", apiDeprecationErrors=True)
        assert reply["ok"] == 1.0
    assert hello(raw, apiVersion="7").get("code") == (None if old else 322)
    assert raw.run({"ping": 1, "apiVersion": "1"}).get("code") == (40415 if old else None)


# The labels of errors, each with the first version that has it, and what provokes it.
def retryable_write(raw: Raw) -> Documents:
    session = {"lsid": {"id": bson.Binary(bytes(16), 4)}, "txnNumber": Int64(1)}
    fail = {"mode": {"times": 1}, "data": {"failCommands": ["insert"], "errorCode": 10107}}
    raw.run({"configureFailPoint": "failCommand", **fail, "$db": "admin"})
    return raw.run({"insert": "c", "documents": [{}], **session})


def transient_transaction(raw: Raw) -> Documents:
    session = {"lsid": {"id": bson.Binary(b"\1" * 16, 4)}, "txnNumber": Int64(1), "autocommit": False}
    return raw.run({"find": "c", **session})  # a transaction that has not begun


def resumable_change_stream(raw: Raw) -> Documents:
    return _failed_get_more(raw, 6)


def non_resumable_change_stream(raw: Raw) -> Documents:
    return _failed_get_more(raw, 280)


def _failed_get_more(raw: Raw, code: int) -> Documents:
    raw.run({"insert": "c", "documents": [{}]})
    stream = raw.run({"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    fail = {"mode": {"times": 1}, "data": {"errorCode": code, "closeConnection": False}}
    raw.run({"configureFailPoint": "failGetMoreAfterCursorCheckout", **fail, "$db": "admin"})
    return raw.run({"getMore": Int64(stream["cursor"]["id"]), "collection": "c", "maxTimeMS": 1})


LABELS = [
    ("4.0", "TransientTransactionError", transient_transaction),
    ("4.2", "NonResumableChangeStreamError", non_resumable_change_stream),
    ("4.4", "ResumableChangeStreamError", resumable_change_stream),
    ("4.4", "RetryableWriteError", retryable_write),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("first", "label", "provoke"), LABELS, ids=[label for _, label, _ in LABELS])
def test_errors_have_the_labels_of_the_version(
    connect: Connect, version: str, first: str, label: str, provoke: Callable[[Raw], Documents]
) -> None:
    failed = provoke(connect(server_version=version, enable_test_commands=True))
    assert failed["ok"] == 0.0
    expected = [label] if VERSIONS.index(first) <= VERSIONS.index(version) else None
    assert failed.get("errorLabels") == expected


@pytest.mark.parametrize("version", ["3.6", "4.2", "4.4", "8.2"])
@pytest.mark.parametrize(
    "settings", [{}, LOGIN, {"auth": True}], ids=["without users", "with users", "before the first"]
)
def test_hello_tells_of_a_user_all_or_nothing(connect: Connect, version: str, settings: Documents) -> None:
    """Whether a user exists: both answers or neither. .NET's driver takes no conversation of a mechanism that it was
    not told, and shows an error of its own instead of the server's."""
    reply = hello(connect(server_version=version, **settings), user="nobody")
    told = bool(settings) and version not in ("3.6", "4.2")
    assert ("speculativeAuthenticate" in reply) == told
    assert ("saslSupportedMechs" in reply) == (bool(settings) and version != "3.6")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_login_without_users_is_told_what_to_do(connect: Connect, version: str) -> None:
    raw = connect(server_version=version)
    assert "speculativeAuthenticate" not in hello(raw)
    mechanism = "SCRAM-SHA-1"
    begun = query(raw, {"saslStart": 1, "mechanism": mechanism, "payload": b"n,,n=ann,r=abc"}, "admin")
    nonce = begun["payload"].decode().partition(",")[0]
    proof = {"conversationId": begun["conversationId"], "payload": f"c=biws,{nonce},p=AAAA".encode()}
    failed = query(raw, {"saslContinue": 1, **proof}, "admin")
    assert failed["code"] == 18
    assert "This server has no users" in failed["errmsg"]


@pytest.mark.parametrize("version", ["3.6", "4.0", "4.2", "4.4", "8.2"])
@pytest.mark.parametrize("name", ["hello", "isMaster"])
@pytest.mark.parametrize(
    ("field", "since"),
    [
        ("saslSupportedMechs", (4, 0)),
        ("speculativeAuthenticate", (4, 4)),
        ("topologyVersion", (4, 4)),
        ("maxAwaitTimeMS", (4, 4)),
        ("apiVersion", (5, 0)),
        ("apiStrict", (5, 0)),
    ],
)
def test_hello_ignores_fields_that_the_version_does_not_know(
    connect: Connect, version: str, name: str, field: str, since: tuple[int, int]
) -> None:
    """Whatever their types: a version checks those of its own fields alone."""
    raw = connect(server_version=version)
    refused = tuple(map(int, version.split("."))) >= since
    for value in ([1], True if field != "apiStrict" else 1.5):
        answer = raw.run({name: 1, field: value, "$db": "admin"})
        assert (answer["ok"] == 0.0) == refused, answer


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_tells_its_position_since_4_0(connect: Connect, version: str) -> None:
    """In a patch of 4.0 (SERVER-38408). Drivers then resume by it, and otherwise by the last event's `_id`."""
    raw = connect(server_version=version)
    raw.run({"create": "watched"})
    opened = raw.run({"aggregate": "watched", "pipeline": [{"$changeStream": {}}], "cursor": {}})["cursor"]
    more = {"getMore": opened["id"], "collection": "watched", "maxTimeMS": 1}
    empty = raw.run(more)["cursor"]
    raw.run({"insert": "watched", "documents": [{"_id": bson.ObjectId()}]})
    full = raw.run(more)["cursor"]
    assert len(full["nextBatch"]) == 1
    for cursor in (opened, empty, full):
        assert ("postBatchResumeToken" in cursor) == (version != "3.6")
    raw.run({"killCursors": "watched", "cursors": [opened["id"]]})


@of_replica_set
@pytest.mark.parametrize("version", VERSIONS)
def test_server_status_has_the_fields_of_the_version(connect: Connect, version: str) -> None:
    raw = connect(server_version=version)
    at = VERSIONS.index(version)
    for command in ("serverStatus", "getDiagnosticData"):
        found = raw.run({command: 1, "$db": "admin"})
        status = found if command == "serverStatus" else found["data"]["serverStatus"]
        primary = "isWritablePrimary" if at >= VERSIONS.index("5.0") else "ismaster"
        assert status["repl"][primary] is True
        assert len({"isWritablePrimary", "ismaster"} & set(status["repl"])) == 1
        for first, section, field in [
            ("4.0", status["connections"], "active"),
            ("4.4", status["repl"], "topologyVersion"),
            ("4.4", status, "defaultRWConcern"),
            ("5.0", status, "catalogStats"),
        ]:
            assert (field in section) == (at >= VERSIONS.index(first)), field


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "topology",
    [pytest.param("replicaSet", marks=of_replica_set), pytest.param("sharded", marks=takes_several_servers)],
)
def test_create_of_what_exists_succeeds_since_7_0(connect: Connect, version: str, topology: str) -> None:
    """On a mongos since 4.0, of time series since 7.1 (SERVER-60064, SERVER-76547)."""
    raw = connect(server_version=version, topology=topology)
    since = VERSIONS.index("4.0" if topology == "sharded" else "7.0")
    at = VERSIONS.index(version)
    cases: list[tuple[Documents, bool]] = [
        ({"create": "made"}, at >= since),
        ({"create": "limited", "capped": True, "size": 4096}, at >= since),
        ({"create": "seen", "viewOn": "made", "pipeline": []}, at >= since),
        ({"create": "measured", "timeseries": {"timeField": "at"}}, at >= VERSIONS.index("8.0")),
    ]
    for command, succeeds in cases:
        if "timeseries" in command and at < VERSIONS.index("5.0"):
            continue
        raw.run({"drop": command["create"]})
        assert raw.run(command)["ok"] == 1.0
        again = raw.run(command)
        assert again.get("code", 0) == (0 if succeeds else 48), again
        assert succeeds or "already exists" in again["errmsg"]
        # With other options it fails in every version.
        assert raw.run({"create": command["create"], "validator": {"a": 1}})["code"] == 48


@pytest.mark.parametrize("version", VERSIONS)
def test_indexes_are_listed_with_their_namespace_before_4_4(connect: Connect, version: str) -> None:
    """Static models of old drivers have it (DRIVERS-731)."""
    raw = connect(server_version=version)
    raw.run({"drop": "indexed"})
    raw.run({"createIndexes": "indexed", "indexes": [{"key": {"a": 1}, "name": "a_1", "sparse": True}]})
    named: Documents = {"ns": "test.indexed"} if VERSIONS.index(version) < VERSIONS.index("4.4") else {}
    first, second = raw.run({"listIndexes": "indexed"})["cursor"]["firstBatch"]
    assert first == {"v": 2, "key": {"_id": 1}, "name": "_id_", **named}
    assert second == {"v": 2, "key": {"a": 1}, "name": "a_1", **named, "sparse": True}
    assert list(second) == ["v", "key", "name", *named, "sparse"]
    listed = raw.run({"listCollections": 1, "filter": {"name": "indexed"}})["cursor"]["firstBatch"]
    assert listed[0]["idIndex"] == first
    # What is listed can be given back.
    assert raw.run({"createIndexes": "indexed", "indexes": [second]})["note"] == "all indexes already exist"


UPDATES: list[tuple[Documents, int]] = [
    ({"a": 1, "$b": 1}, 52),
    ({"a": {"$b": 1}}, 52),
    ({"a": [{"b": {"$c": 1}}]}, 52),
    ({"$set": {"a": {"$b": 1}}}, 52),
    ({"$set": {"a": [{"$b": 1}]}}, 52),
    ({"$setOnInsert": {"a": {"$b": 1}}}, 52),
    # Those of a DBRef, and what stores nothing of the operand.
    ({"a": {"$ref": "c", "$id": 1, "$db": "d"}}, 0),
    ({"$set": {"a": {"$ref": "c", "$id": 1}}}, 0),
    ({"$push": {"b": {"$each": [1]}}}, 0),
    ({"$push": {"b": {"$each": [{"c": 1}], "$slice": -9, "$sort": {"c": 1}}}}, 0),
    ({"$addToSet": {"b": {"$each": [{"$ref": "c", "$id": 1}]}}}, 0),
    ({"$pull": {"b": {"$in": [1]}}}, 0),
    # What they add to arrays.
    ({"$push": {"b": {"c": {"$d": 1}}}}, 52),
    ({"$push": {"b": {"$each": [{"c": {"$d": 1}}]}}}, 52),
    ({"$addToSet": {"b": {"c": [{"$d": 1}]}}}, 52),
    ({"$addToSet": {"b": {"$each": [1, {"$d": 1}]}}}, 52),
    ({"$currentDate": {"d": {"$type": "date"}}}, 0),
]


@pytest.mark.parametrize("version", ["3.6", "4.2", "4.4", "5.0", "8.2"])
def test_fields_with_a_dollar_are_stored_since_5_0(connect: Connect, version: str) -> None:
    raw = connect(server_version=version)
    old = version in ("3.6", "4.2", "4.4")
    raw.run({"drop": "dollars"})
    refused = raw.run({"insert": "dollars", "documents": [{"_id": 1, "$a": 1}, {"_id": 2}], "ordered": False})
    errors = [error["code"] for error in refused.get("writeErrors", [])]
    assert (errors, refused["n"]) == (([2], 1) if old else ([], 2))
    if old:
        assert refused["writeErrors"][0]["errmsg"] == "Document can't have $ prefixed field names: $a"
    # Inside of the root inserts take them in every version.
    assert raw.run({"insert": "dollars", "documents": [{"_id": 3, "a": {"$b": 1}}]})["n"] == 1
    for update, code in UPDATES:
        answer = raw.run({"update": "dollars", "updates": [{"q": {"_id": 2}, "u": update}]})
        if code and not old:
            # Since 5.0 they are refused at the root of a replacement alone.
            code = 52 if "$b" in update else 0
        assert [error["code"] for error in answer.get("writeErrors", [])] == ([code] if code else []), (update, answer)
        replaced = raw.run({"findAndModify": "dollars", "query": {"_id": 2}, "update": update})
        assert replaced.get("code", 0) == code, (update, replaced)
    if version != "3.6":  # which has no updates by pipelines
        for stages in (
            [{"$set": {"a": {"$literal": {"$b": 1}}}}],
            [{"$replaceWith": {"$literal": {"a": [{"$b": 1}]}}}],
        ):
            answer = raw.run({"update": "dollars", "updates": [{"q": {"_id": 2}, "u": stages}]})
            assert [error["code"] for error in answer.get("writeErrors", [])] == ([52] if old else []), (stages, answer)
        # What an update leaves as it is may have been inserted.
        answer = raw.run({"update": "dollars", "updates": [{"q": {"_id": 3}, "u": [{"$set": {"a": "$a"}}]}]})
        assert (answer["n"], answer["nModified"]) == (1, 0)
    upsert = {"q": {"_id": 9}, "u": {"a": {"$b": 1}}, "upsert": True}
    answer = raw.run({"update": "dollars", "updates": [upsert]})
    assert bool(answer.get("writeErrors")) == old


@pytest.mark.parametrize("version", VERSIONS)
def test_hashes_of_index_keys_are_in_the_newest_patches_since_4_2(connect: Connect, version: str) -> None:
    raw = connect(server_version=version)
    raw.run({"insert": "hashed", "documents": [{"_id": 1, "a": 1}]})
    stage = {"$project": {"h": {"$toHashedIndexKey": "$a"}}}
    answer = raw.run({"aggregate": "hashed", "pipeline": [stage], "cursor": {}})
    assert (answer["ok"] == 1.0) == (version not in ("3.6", "4.0")), answer


def merge(raw: Raw, document: Documents, **options: Any) -> Documents:
    """Merges one document into `merged`, which has a document 1, and a document 3 with a dollar inside."""
    raw.run({"drop": "merged"})
    raw.run({"insert": "merged", "documents": [{"_id": 1, "kept": 1}, {"_id": 3, "a": {"$b": 1}}]})
    raw.run({"drop": "one"})
    raw.run({"insert": "one", "documents": [{}]})
    stages = [{"$replaceWith": {"$literal": document}}, {"$merge": {"into": "merged", **options}}]
    return raw.run({"aggregate": "one", "pipeline": stages, "cursor": {}})


@pytest.mark.parametrize("version", ["4.2", "4.4", "5.0", "8.2"])
@pytest.mark.parametrize("matched", ["replace", "merge", "keepExisting", [{"$set": {"b": 1}}]], ids=str)
def test_merge_stores_fields_with_a_dollar_since_5_0(connect: Connect, version: str, matched: Any) -> None:
    """They were updates by a replacement, by `$set`, `$setOnInsert` or a pipeline, and upserts of the same."""
    raw = connect(server_version=version)
    old = version in ("4.2", "4.4")
    for document in ({"$a": 1}, {"a": {"$b": 1}}, {"a": [{"b": {"$c": 1}}]}):
        answer = merge(raw, {"_id": 1, **document}, whenMatched=matched)
        refused = old and matched in ("replace", "merge")
        assert answer.get("code", 0) == (52 if refused else 0), (document, answer)
        answer = merge(raw, {"_id": 2, **document}, whenMatched=matched)
        assert answer.get("code", 0) == (52 if old else 0), (document, answer)
        if matched != "keepExisting":  # which always inserts
            assert merge(raw, {"_id": 2, **document}, whenMatched=matched, whenNotMatched="discard")["ok"] == 1.0
    # What is there already may have been inserted; it is only in the result of a pipeline that it counts.
    answer = merge(raw, {"_id": 3, "c": 1}, whenMatched=matched)
    assert answer.get("code", 0) == (52 if old and isinstance(matched, list) else 0), answer
    # Inserts refuse them at the root alone.
    inserted = merge(raw, {"_id": 2, "$a": 1}, whenMatched="fail")
    assert inserted.get("code", 0) == (2 if old else 0)
    assert merge(raw, {"_id": 2, "a": {"$b": 1}}, whenMatched="fail")["ok"] == 1.0
