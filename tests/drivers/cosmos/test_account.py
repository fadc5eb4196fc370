"""The Cosmos DB account that a server stands for: its options, and `configureCosmos`."""

from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import own_account

pytestmark = own_account

Client = pymongo.MongoClient[dict[str, Any]]
DEFAULTS = {
    "capabilities": [],
    "backup": "periodic",
    "allow": [],
    "throughput": "metered",
    "refuse": [],
    "batchText": "batch",
}


def configure(client: Client, **settings: Any) -> dict[str, Any]:
    was: dict[str, Any] = client.admin.command("configureCosmos", settings)["was"]
    return was


def test_the_state_before_is_told_and_can_be_restored(account: Client) -> None:
    assert configure(account, allow=["bare-watch"], backup="continuous") == DEFAULTS
    was = configure(account, capabilities=["EnableMongo16MBDocumentSupport"])
    assert was == DEFAULTS | {"allow": ["bare-watch"], "backup": "continuous"}
    assert configure(account, **was) == was | {"capabilities": ["EnableMongo16MBDocumentSupport"]}
    assert configure(account) == was


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"capabilities": ["EnableMagic"]}, 2, "there is no capability 'EnableMagic'"),
        ({"allow": ["everything"]}, 2, "there is no refusal 'everything'"),
        ({"allow": ["hello"], "refuse": ["hello"]}, 2, "hello cannot be both allowed and refused"),
        ({"refuse": ["bare-watch"]}, 2, "there is no behaviour 'bare-watch'"),
        ({"refuse": "hello"}, 14, "configureCosmos.refuse"),
        ({"batchText": "long"}, 2, "there is no text of batches 'long'"),
        ({"backup": "daily"}, 2, "there is no backup 'daily'"),
        ({"throughput": "much"}, 2, "there is no throughput 'much'"),
        ({"capabilities": ["EnableTtlOnCustomPath"], "backup": "continuous"}, 2, "continuous backup"),
        ({"backup": 5}, 14, "configureCosmos.backup"),
        ({"allow": "bare-watch"}, 14, "configureCosmos.allow"),
        ({"allow": [5]}, 14, "configureCosmos.allow"),
        ({"colour": "blue"}, 40415, "configureCosmos.colour"),
    ],
)
def test_configure_cosmos_refuses_invalid_settings_and_changes_nothing(
    account: Client, settings: dict[str, Any], code: int, text: str
) -> None:
    with pytest.raises(OperationFailure, match=text) as caught:
        account.admin.command("configureCosmos", settings)
    assert caught.value.code == code
    assert configure(account) == DEFAULTS


def test_an_account_that_can_do_retryable_writes(account: Client) -> None:
    with Client(str(account.address and f"mongodb://{account.address[0]}:{account.address[1]}")) as client:
        with pytest.raises(OperationFailure, match="Retryable writes are not supported"):
            client.shop.orders.insert_one({"_id": 1})
        configure(account, capabilities=["EnableMongoRetryableWrites"])
        assert client.shop.orders.insert_one({"_id": 1}).inserted_id == 1


def test_options_of_the_start() -> None:
    with (
        mongottl.start_server(
            dialect="cosmos",
            cosmos_capability=("EnableTtlOnCustomPath",),
            cosmos_allow=("bare-watch", "collection-info"),
            cosmos_refuse=("hello",),
            cosmos_batch_text="single",
        ) as running,
        Client(running.uri) as client,
    ):
        assert configure(client) == DEFAULTS | {
            "capabilities": ["EnableTtlOnCustomPath"],
            "allow": ["bare-watch", "collection-info"],
            "refuse": ["hello"],
            "batchText": "single",
        }


def test_only_in_the_dialect_cosmos(client: Client) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.admin.command("configureCosmos", {})
    assert caught.value.code == 115
