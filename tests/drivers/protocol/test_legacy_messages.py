"""The messages of before OP_MSG: what old drivers send, to servers that announce an old version and to others.

The C# driver logs in by OP_QUERY whatever the server announces, since it does not know the server yet; drivers of
before 2018 send all their commands so.
"""

import base64
import hashlib
import hmac
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import bson
import pytest
from bson import Int64

import mongottl
from mongottl.wire.encode import encode_op_query
from mongottl.wire.messages import MAX_LEGACY_SIZE, OpReply
from tests.drivers.protocol.test_protocol import Raw, message

Documents = dict[str, Any]
Connect = Callable[[str], Raw]

QUERY_FAILURE = 2
# Versions that are announced: those before 5.1 take every command by OP_QUERY.
OLD = ("3.6", "4.0", "4.2", "4.4", "5.0")
NEW = ("6.0", "7.0", "8.0", "8.2")
# mongod takes these by OP_QUERY in every version.
ALWAYS = (
    "_isSelf",
    "authenticate",
    "buildInfo",
    "buildinfo",
    "hello",
    "isMaster",
    "ismaster",
    "saslContinue",
    "saslStart",
)
USER, PASSWORD = "ann", "secret"


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
def connect(servers: Callable[..., mongottl.RunningServer]) -> Iterator[Callable[..., Raw]]:
    """Connects to a server with settings."""
    opened: list[Raw] = []

    def open_one(**settings: Any) -> Raw:
        opened.append(Raw(servers(**settings).port))
        return opened[-1]

    yield open_one
    for raw in opened:
        raw.socket.close()


def query(raw: Raw, command: Documents, database: str = "test", flags: int = 0) -> Documents:
    """Runs a command by OP_QUERY."""
    raw.request_id += 1
    raw.send(encode_op_query(raw.request_id, f"{database}.$cmd", bson.encode(command), flags=flags))
    reply = raw.receive()
    assert isinstance(reply, OpReply)
    assert (reply.response_to, reply.cursor_id, reply.starting_from) == (raw.request_id, 0, 0)
    assert reply.flags == 8  # AwaitCapable, and no QueryFailure: drivers look for a command's failure in its reply
    [document] = reply.documents
    return bson.decode(document)


@pytest.mark.parametrize("version", [*OLD, *NEW])
def test_the_commands_of_a_beginning_come_by_op_query_to_every_version(
    connect: Callable[..., Raw], version: str
) -> None:
    raw = connect(server_version=version)
    for name in ALWAYS:
        reply = query(raw, {name: 1}, "admin")
        # Those that need further fields name the first of them.
        assert reply["ok"] == 1.0 or reply["code"] == 40414, (name, reply)
    taken = query(raw, {"ping": 1}).get("code") is None
    assert taken == (version in OLD)


@pytest.mark.parametrize("version", NEW)
def test_other_commands_are_refused_by_versions_since_5_1(connect: Callable[..., Raw], version: str) -> None:
    raw = connect(server_version=version)
    for command in ({"find": "c"}, {"nonsense": 1}, {"$query": {"ping": 1}}):
        assert query(raw, command)["code"] == 352
    assert raw.run({"ping": 1})["ok"] == 1.0


@pytest.mark.parametrize("version", ["4.2", "8.2"])
def test_the_message_alone_names_the_database(connect: Callable[..., Raw], version: str) -> None:
    raw = connect(server_version=version)
    raw.run({"create": "elsewhere", "$db": "other"})
    commands: list[Documents] = [{"hello": 1}, {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=a,r=b"}]
    if version in OLD:
        commands += [{"drop": "elsewhere"}, {"find": "elsewhere"}]
    for command in commands:
        assert query(raw, {**command, "$db": "other"})["code"] == 40621
        assert query(raw, {"$query": {**command, "$db": "other"}})["code"] == 40621
        assert query(raw, {"$query": command, "$db": "other"})["code"] == 40621
    assert raw.run({"listCollections": 1, "$db": "other"})["cursor"]["firstBatch"][0]["name"] == "elsewhere"


@pytest.mark.parametrize("version", OLD)
def test_every_command_comes_by_op_query_to_versions_before_5_1(connect: Callable[..., Raw], version: str) -> None:
    raw = connect(server_version=version)
    name = f"by_{version}".replace(".", "_")
    inserted = query(raw, {"insert": name, "documents": [{"_id": i} for i in range(5)], "writeConcern": {"w": 1}})
    assert (inserted["n"], inserted["ok"]) == (5, 1.0)
    updated = query(raw, {"update": name, "updates": [{"q": {"_id": 0}, "u": {"$set": {"x": 1}}}]})
    assert (updated["n"], updated["nModified"]) == (1, 1)
    found = query(raw, {"find": name, "filter": {}, "batchSize": 2})["cursor"]
    assert [document["_id"] for document in found["firstBatch"]] == [0, 1]
    more = query(raw, {"getMore": found["id"], "collection": name})["cursor"]
    assert ([document["_id"] for document in more["nextBatch"]], more["id"]) == ([2, 3, 4], 0)
    assert query(raw, {"insert": name, "documents": [{"_id": 1}]})["writeErrors"][0]["code"] == 11000
    unknown = query(raw, {"nonsense": 1})
    assert (unknown["ok"], unknown["code"]) == (0.0, 59)
    assert query(raw, {"count": name}) == {**query(raw, {"count": name}), "n": 5, "ok": 1.0}
    assert query(raw, {"listCollections": 1}, "nowhere")["cursor"]["ns"] == "nowhere.$cmd.listCollections"


@pytest.mark.parametrize("wrapper", ["$query", "query"])
def test_a_command_may_be_wrapped_for_a_read_preference(connect: Callable[..., Raw], wrapper: str) -> None:
    raw = connect(server_version="4.2")
    wrapped = {wrapper: {"count": "missing"}, "$readPreference": {"mode": "secondaryPreferred"}}
    assert query(raw, wrapped, flags=4)["n"] == 0
    assert query(raw, {**wrapped, "$maxTimeMS": 100})["code"] == 72
    assert query(raw, {wrapper: 1})["code"] == 59


def test_op_query_checks_its_document(connect: Callable[..., Raw]) -> None:
    raw = connect(server_version="4.2")
    for document in (
        bson.encode({"$query": {"ping": 1}}).replace(
            bson.encode({"ping": 1}), struct.pack("<i", 200) + b"\x10ping\0" * 2
        )[:32],
        bson.encode({"ping": 1, "comment": "abcd"}).replace(b"abcd\0", b"abcde"),
        bson.encode({"ping": 1, "comment": {"x": 1}}).replace(b"\x10x", b"\x66x"),
    ):
        whole = struct.pack("<i", len(document)) + document[4:-1] + b"\0"
        raw.send(encode_op_query(1, "test.$cmd", whole))
        assert raw.reply()["code"] == 22, document
    assert query(raw, {"ping": 1})["ok"] == 1.0


@pytest.mark.slow
def test_a_long_op_query_is_a_command_as_any_other(connect: Callable[..., Raw]) -> None:
    raw = connect(server_version="4.2")
    documents = [{"_id": i, "x": "x" * 1_000_000} for i in range(15)]
    assert query(raw, {"insert": "long", "documents": documents})["n"] == 15
    assert query(raw, {"count": "long"})["n"] == 15
    # A longer one than a document is refused by its header, before the rest is read.
    raw.send(struct.pack("<iiii", MAX_LEGACY_SIZE + 1, 1, 0, 2004))
    assert raw.is_closed()


def kill(*cursor_ids: int) -> bytes:
    return message(struct.pack("<ii", 0, len(cursor_ids)) + struct.pack(f"<{len(cursor_ids)}q", *cursor_ids), 2007)


def open_cursor(raw: Raw, name: str, **fields: Any) -> int:
    raw.run({"insert": name, "documents": [{} for _ in range(5)], **fields})
    cursor_id: int = raw.run({"find": name, "batchSize": 2, **fields})["cursor"]["id"]
    assert cursor_id
    return cursor_id


@pytest.mark.parametrize("version", OLD)
def test_op_kill_cursors(connect: Callable[..., Raw], version: str) -> None:
    raw = connect(server_version=version)
    first, second, third = (open_cursor(raw, "killed") for _ in range(3))
    raw.send(kill(first, 4711, third))
    codes = [raw.run({"getMore": Int64(one), "collection": "killed"}).get("code") for one in (first, second, third)]
    assert codes == [43, None, 43]


@pytest.mark.parametrize("version", NEW)
def test_op_kill_cursors_is_refused_by_versions_since_5_1(connect: Callable[..., Raw], version: str) -> None:
    raw = connect(server_version=version)
    cursor_id = open_cursor(raw, "kept")
    breaks = connect(server_version=version)
    breaks.send(kill(cursor_id))
    assert breaks.is_closed()
    assert raw.run({"getMore": Int64(cursor_id), "collection": "kept"})["ok"] == 1.0


def test_nobody_kills_the_cursors_of_others(connect: Callable[..., Raw]) -> None:
    settings = {"server_version": "4.2", "auth": True, "user": USER, "password": PASSWORD}
    owner, stranger = connect(**settings), connect(**settings)
    log_in(owner, run=lambda command: owner.run({**command, "$db": "admin"}))
    cursor_id = open_cursor(owner, "guarded")
    stranger.send(kill(cursor_id))
    assert query(stranger, {"ping": 1})["ok"] == 1.0
    assert owner.run({"getMore": Int64(cursor_id), "collection": "guarded"})["ok"] == 1.0
    assert query(stranger, {"find": "guarded"})["code"] == 13


@pytest.mark.parametrize("version", ["4.2", "8.2"])
def test_legacy_reads_are_refused_and_the_error_names_old_drivers(connect: Callable[..., Raw], version: str) -> None:
    raw = connect(server_version=version)
    get_more = message(struct.pack("<i", 0) + b"test.c\0" + struct.pack("<iq", 2, 5), 2005)
    for request_id, sent in (
        (3, encode_op_query(3, "test.things", bson.encode({}), limit=2)),
        (4, encode_op_query(4, "admin.$cmd.sys.inprog", bson.encode({}))),
        (7, get_more),
    ):
        raw.send(sent)
        reply = raw.receive()
        assert isinstance(reply, OpReply)
        assert (reply.response_to, reply.flags, reply.cursor_id) == (request_id, 8 | QUERY_FAILURE, 0)
        document = bson.decode(reply.documents[0])
        assert (document["ok"], document["code"]) == (0.0, 352)
        assert document["$err"] == document["errmsg"]
        assert "before MongoDB 3.6" in document["$err"]
    assert raw.run({"ping": 1})["ok"] == 1.0


@pytest.mark.parametrize(("opcode", "name"), [(2001, "OP_UPDATE"), (2002, "OP_INSERT"), (2006, "OP_DELETE")])
def test_legacy_writes_close_the_connection_and_the_log_names_old_drivers(
    connect: Callable[..., Raw], servers: Callable[..., mongottl.RunningServer], opcode: int, name: str
) -> None:
    raw, other = connect(server_version="4.2"), connect(server_version="4.2")
    raw.send(message(struct.pack("<i", 0) + b"test.c\0" + bson.encode({"_id": 1}), opcode))
    assert raw.is_closed()
    lines = other.run({"getLog": "global", "$db": "admin"})["log"]
    assert any(f"{name} ({opcode}) is not supported" in line and "before MongoDB 3.6" in line for line in lines)


def log_in(
    raw: Raw, run: Callable[[Documents], Documents], mechanism: str = "SCRAM-SHA-256", last: str = ""
) -> Documents:
    """Logs in with the three exchanges of SCRAM; the last reply. last: what the empty exchange repeats."""
    digest, secret = hashlib.sha256, PASSWORD.encode()
    if mechanism == "SCRAM-SHA-1":
        secret = hashlib.md5(f"{USER}:mongo:{PASSWORD}".encode()).hexdigest().encode()
        digest = hashlib.sha1
    first = f"n={USER},r={base64.b64encode(os.urandom(24)).decode()}"
    begun = run({"saslStart": 1, "mechanism": mechanism, "payload": f"n,,{first}".encode(), "autoAuthorize": 1})
    assert begun["done"] is False, begun
    answer = begun["payload"].decode()
    nonce, salt, iterations = (part.partition("=")[2] for part in answer.split(","))
    salted = hashlib.pbkdf2_hmac(digest().name, secret, base64.b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", digest().name)
    final = f"c=biws,r={nonce}"
    signature = hmac.digest(digest(client_key).digest(), f"{first},{answer},{final}".encode(), digest().name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    conversation = {"saslContinue": 1, "conversationId": begun["conversationId"]}
    proved = run({**conversation, "payload": f"{final},p={proof}".encode()})
    assert proved["done"] is False, proved
    repeated = {"": b"", "signature": proved["payload"], "noise": b"\xff" * 100}[last]
    return run({**conversation, "payload": repeated})


@pytest.mark.parametrize(
    ("version", "mechanism"), [("3.6", "SCRAM-SHA-1"), ("8.2", "SCRAM-SHA-1"), ("8.2", "SCRAM-SHA-256")]
)
@pytest.mark.parametrize("last", ["", "signature", "noise"])
def test_the_last_exchange_of_a_login_is_not_looked_at(
    connect: Callable[..., Raw], version: str, mechanism: str, last: str
) -> None:
    """As mongod; the Java driver 3.x repeats the server's signature there."""
    settings = {"server_version": version, "auth": True, "user": USER, "password": PASSWORD}
    raw = connect(**settings)
    assert log_in(raw, lambda command: query(raw, command, "admin"), mechanism, last)["done"] is True
    users = raw.run({"connectionStatus": 1})["authInfo"]["authenticatedUsers"]
    assert users == [{"user": USER, "db": "admin"}]


def test_a_login_that_has_not_proved_the_password_does_not_end(connect: Callable[..., Raw]) -> None:
    raw = connect(auth=True, user=USER, password=PASSWORD)
    begun = query(raw, {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=ann,r=abc"}, "admin")
    assert (
        query(raw, {"saslContinue": 1, "conversationId": begun["conversationId"], "payload": b""}, "admin")["code"]
        == 18
    )
    assert raw.run({"find": "c"})["code"] == 13
