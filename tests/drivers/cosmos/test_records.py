"""The dialect `cosmos` by the tables of `facts.records`: what accounts have answered."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymongo
import pytest

import mongottl
from mongottl.config.cosmos_choices import VARIANTS
from tests.drivers.answers import TableClient, check
from tests.drivers.cosmos.facts.account import Account
from tests.drivers.cosmos.facts.facts import GUID, VERSIONS, Fact, refused
from tests.drivers.cosmos.facts.records import OTHERS, RECORDS
from tests.on_nodes import no_balancer

KEY = "c2VjcmV0+key/with=signs=="
# Of Azure's emulator.
EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
# Those that are shown by what happens before a login, further down.
BY_CONNECTIONS = {54, 105, 111}
# Those that `test_charges` shows.
CHARGES = {68, 69, 70, 71, 72, 73, 74, 75}
# The others, and why they are not replayed.
NOT_SHOWN = {
    22: "Probably of an account of 3.2, which is not offered.",
    62: "The quota of a serverless account: accounts have no quota of storage here.",
    82: "Of 2019; whether a version that is offered answers so is not known.",
    83: "Of 3.4, which is not offered.",
    100: "The cause was not found.",
    104: "Of an account of 3.2, which is not offered.",
}


@pytest.fixture(scope="module")
def accounts() -> Iterator[dict[str, Account]]:
    with ExitStack() as stack:
        opened = {}
        for version in VERSIONS:
            running = stack.enter_context(mongottl.start_server(dialect="cosmos", server_version=version))
            opened[version] = Account(running)
            stack.callback(opened[version].close)
        yield opened


def _rows(facts: list[Fact]) -> list[Any]:
    return [
        pytest.param(fact, version, id=f"{fact.number}-{fact.what}-{version}")
        for fact in facts
        for version in fact.versions
    ]


@pytest.mark.parametrize(("record", "version"), _rows(RECORDS))
def test_record(accounts: dict[str, Account], record: Fact, version: str) -> None:
    try:
        accounts[version].run(record)
    finally:
        accounts[version].reset()


@pytest.mark.parametrize(("fact", "version"), _rows(OTHERS))
def test_where_accounts_differ(accounts: dict[str, Account], fact: Fact, version: str) -> None:
    try:
        accounts[version].run(fact)
    finally:
        accounts[version].reset()


def test_all_records_are_there() -> None:
    shown = {fact.number for fact in RECORDS} | BY_CONNECTIONS | CHARGES
    assert sorted([*shown, *NOT_SHOWN]) == list(range(1, 112))


def test_every_variant_is_switched() -> None:
    """Each is on in one row and off in another: by its version, or by the settings."""
    rows = [*RECORDS, *OTHERS]
    for name, variant in VARIANTS.items():
        switched = [fact for fact in rows if name in [*(fact.settings or {}).get("refuse", ())]]
        allowed = [fact for fact in rows if name in [*(fact.settings or {}).get("allow", ())]]
        assert switched if not variant.versions else allowed, name


def test_54_and_105_commands_before_the_login() -> None:
    with mongottl.start_server(
        dialect="cosmos", cosmos_account="shop", cosmos_key=KEY, cosmos_refuse=("hello",)
    ) as running:
        client = TableClient(running.uri)
        text = "Command Hello not supported prior to authentication"
        check(client.command({"hello": 1}, "admin"), refused(115, "CommandNotSupported", text))
        check(client.command({"isMaster": 1, "helloOk": True}, "admin"), {"ok": 1, "ismaster": True})
        words = re.compile(rf"Not Authenticated\.  ConnectionId {GUID}  ActivityId: [0-9a-f]{{8}}(-0000){{3}}-0{{12}}")
        check(client.command({"find": "orders"}, "shop"), refused(13, "Unauthorized", words))
        client.close()


@no_balancer("drivers send it hello")
def test_drivers_log_in_where_there_is_no_hello() -> None:
    """They begin with isMaster; one that is told `helloOk` would go on with hello."""
    with (
        mongottl.start_server(
            dialect="cosmos", cosmos_account="shop", cosmos_key=KEY, cosmos_refuse=("hello",)
        ) as running,
        pymongo.MongoClient[dict[str, Any]](running.uri, heartbeatFrequencyMS=500) as client,
    ):
        client.shop.orders.insert_one({"_id": 1})
        assert client.shop.orders.find_one() == {"_id": 1}
        with pytest.raises(pymongo.errors.OperationFailure, match=r"Command hello not supported\."):
            client.admin.command("hello")
        assert "helloOk" not in client.admin.command({"isMaster": 1, "helloOk": True})


def test_111_the_connection_string_of_the_emulator(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    with mongottl.start_server(
        dialect="cosmos",
        cosmos_account="localhost",
        cosmos_key=EMULATOR_KEY,
        tls_self_signed=True,
        data_dir=str(tmp_path),
    ) as running:
        uri = f"mongodb://localhost:{quote(EMULATOR_KEY, safe='')}@localhost:{running.port}/admin?ssl=true"
        with pymongo.MongoClient[dict[str, Any]](uri, tlsInsecure=True, retryWrites=False) as client:
            client.shop.orders.insert_one({"_id": 1})
            assert client.shop.orders.find_one() == {"_id": 1}
