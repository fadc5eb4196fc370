"""The dialect `cosmos` by the tables of `facts`, under each version of Cosmos DB."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure
from pymongo.uri_parser import parse_uri

import mongottl
from tests.drivers.answers import Document, TableClient, check
from tests.drivers.cosmos.facts import metadata, requests
from tests.drivers.cosmos.facts.account import Account
from tests.drivers.cosmos.facts.facts import VERSIONS, Fact, refused
from tests.on_nodes import of_replica_set, own_account, whole_budget

Client = pymongo.MongoClient[dict[str, Any]]

FACTS = [*metadata.FACTS, *requests.FACTS]
# Those that are shown by what a driver connects to, further down.
BY_CONNECTIONS = {47, 49}
# The others, and why no test of a server can show them.
NOT_SHOWN = {
    16: "An account has no limit for all of its throughput; the answer is known for another API alone.",
    17: "Databases with throughput are not counted; the answer is known for another API alone.",
    26: "What people do in their tests instead of a fail point.",
    27: "A failure of a driver, seen by one user.",
    30: "Accounts have no levels of consistency here, of which two double the charges of reads. A point read of 10 KB,"
    " roughly 1 RU there, costs 1.82 RU: it lies on the line between the charges of 1 KB and of 100 KB.",
    32: "The account is one with throughput that is provisioned, not serverless.",
    38: "A defect of another emulator.",
    43: "Collections have no limit of 20 GB.",
    50: "How others set up MongoDB in their tests.",
    51: "Wishes for other emulators.",
}
UNAUTHORIZED = re.compile(
    r"Error=13, Details='Response status code does not indicate success: Unauthorized \(401\); .*"
)
KEY = "c2VjcmV0+key/with=signs=="


# A server of 7.0 that keeps its data in files; the others have them in memory.
STORED = "7.0 stored"


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Account]]:
    """For each version, and `STORED`."""
    with ExitStack() as stack:
        opened = {}
        for name in (*VERSIONS, STORED):
            version, _, stored = name.partition(" ")
            folder = str(tmp_path_factory.mktemp("data")) if stored else None
            running = stack.enter_context(
                mongottl.start_server(dialect="cosmos", server_version=version, data_dir=folder)
            )
            opened[name] = Account(running)
            stack.callback(opened[name].close)
        yield opened


# What several nodes answer otherwise.
OTHERWISE_ON_NODES = {
    "hello": of_replica_set,
    "serverStatus where what is missing is allowed": of_replica_set,
    "a second begins with the whole budget": whole_budget,
    "nothing is saved for later seconds": whole_budget,
}


def _row(fact: Fact, name: str) -> Any:
    return pytest.param(fact, name, id=f"{fact.number}-{fact.what}-{name}", marks=OTHERWISE_ON_NODES.get(fact.what, ()))


ROWS = [_row(fact, version) for fact in FACTS for version in fact.versions]
ROWS += [_row(fact, STORED) for fact in FACTS if "7.0" in fact.versions]


@own_account
@pytest.mark.parametrize(("fact", "name"), ROWS)
def test_fact(accounts: dict[str, Account], fact: Fact, name: str) -> None:
    try:
        accounts[name].run(fact)
    finally:
        accounts[name].reset()


def test_all_entries_are_there() -> None:
    shown = {fact.number for fact in FACTS} | BY_CONNECTIONS
    assert sorted([*shown, *NOT_SHOWN]) == list(range(1, 52))


@of_replica_set
def test_46_hello_before_the_login() -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop", cosmos_key=KEY) as running:
        client = TableClient(running.uri)
        check(client.command({"hello": 1}, "admin"), {"ok": 1, "setName": "globaldb"})
        check(client.command({"find": "orders"}, "shop"), {"code": 13, "codeName": "Unauthorized"})
        client.close()


WRITES: list[Document] = [
    {"insert": "orders", "documents": [{"_id": 2}]},
    {"update": "orders", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
    {"delete": "orders", "deletes": [{"q": {}, "limit": 0}]},
    {"findAndModify": "orders", "query": {}, "remove": True},
    {"aggregate": "orders", "pipeline": [{"$out": "copies"}], "cursor": {}},
    {"createIndexes": "orders", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
    {"create": "others"},
    {"drop": "orders"},
    {"dropDatabase": 1},
]
READS: list[Document] = [
    {"find": "orders"},
    {"aggregate": "orders", "pipeline": [{"$match": {"_id": 1}}], "cursor": {}},
    {"count": "orders"},
    {"distinct": "orders", "key": "_id"},
    {"listCollections": 1},
    {"listIndexes": "orders"},
]


def test_47_a_read_only_key_reads_and_writes_nothing() -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop", cosmos_key=KEY) as running:
        assert running.read_only_uri is not None
        with Client(running.uri) as owner, Client(running.read_only_uri) as reader:
            owner.shop.orders.insert_one({"_id": 1})
            for command in WRITES:
                with pytest.raises(OperationFailure) as caught:
                    reader.shop.command(command)
                assert caught.value.details is not None
                check({**caught.value.details}, refused(13, "Unauthorized", UNAUTHORIZED))
            for command in READS:
                check(reader.shop.command(command), {"ok": 1})
            assert list(owner.shop.orders.find()) == [{"_id": 1}]


def test_49_the_connection_string_of_testers(tmp_path: Any) -> None:
    pytest.importorskip("trustme")
    with mongottl.start_server(
        dialect="cosmos", cosmos_account="localhost", cosmos_key=KEY, tls_self_signed=True, data_dir=str(tmp_path)
    ) as running:
        user = running.uri.partition("@")[0]
        assert parse_uri(running.uri)["username"] == "localhost"
        options = "tls=true&tlsInsecure=true&retrywrites=false&directConnection=true"
        with Client(f"{user}@localhost:{running.port}/admin?{options}") as client:
            assert client.shop.command({"customAction": "CreateDatabase"})["ok"] == 1
            assert client.shop.command({"customAction": "CreateCollection", "collection": "orders"})["ok"] == 1
            assert client.shop.list_collection_names() == ["orders"]
