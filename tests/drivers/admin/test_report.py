"""`mongottl report`: what a running server has counted, as a table or as JSON, and why it cannot be had."""

import json
import socket
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.cli import main
from tests.on_nodes import own_figures

pytestmark = own_figures

Client = pymongo.MongoClient[dict[str, Any]]

TABLE = """\
command   namespace     requests   request units   throttled
insert    shop.orders          3           11.76           2
find      shop.carts           2               2           0
total                          5           13.76           2
"""


@pytest.fixture
def spent(cosmos: mongottl.RunningServer, account: Client) -> mongottl.RunningServer:
    """A server whose requests have cost something."""
    cosmos.request_units(reset=True)
    with cosmos.throttle("insert", times=1, item=1), pytest.raises(pymongo.errors.BulkWriteError):
        account.shop.orders.insert_many([{"_id": 1}, {"_id": 2}])
    with cosmos.throttle("insert", times=1), pytest.raises(pymongo.errors.WriteError):
        account.shop.orders.insert_one({"_id": 3})
    account.shop.orders.insert_one({"_id": 4})
    for _ in range(2):
        account.shop.carts.find_one({"_id": 1})
    return cosmos


def test_a_table(spent: mongottl.RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", spent.uri]) == 0
    assert capsys.readouterr().out == TABLE


def test_as_json_and_from_zero(spent: mongottl.RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--json", "--reset", spent.uri]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "total": 13.76,
        "requests": 5,
        "throttled": 2,
        "operations": [
            {"command": "insert", "ns": "shop.orders", "requests": 3, "charge": 11.76, "throttled": 2},
            {"command": "find", "ns": "shop.carts", "requests": 2, "charge": 2.0, "throttled": 0},
        ],
    }
    assert main(["report", spent.uri]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["total", "0", "0", "0"]]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says on standard error, in one line behind the log of a server, when it fails."""
    assert main(["report", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    said = captured.err.splitlines()[-1]
    assert said.startswith("mongottl report: ")
    assert captured.err.count("mongottl report") == 1
    return said


def test_another_dialect(server: mongottl.RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert "counts no request units: the server does not stand for Cosmos DB" in refusal(capsys, server.uri)


def test_another_server(server: mongottl.RunningServer, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {"failCommands": ["getRequestUnits"], "errorCode": 59}  # as all others answer
    client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=unknown)
    assert "the server is not mongottl: " in refusal(capsys, server.uri)


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        uri = f"mongodb://ann:secret@127.0.0.1:{closed.getsockname()[1]}/"
        silent = refusal(capsys, uri, "--timeout", "0.2")
    for said in (silent, refusal(capsys, uri, "--timeout", "0.2")):
        assert "no answer: " in said
        assert "secret" not in said
    assert "report: Invalid URI scheme" in refusal(capsys, "http://127.0.0.1/")


def test_a_login_that_is_wrong_or_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop") as account:
        host = account.uri.rpartition("@127.0.0.1")[2].partition("/")[0]
        assert "the user may not ask: " in refusal(capsys, f"mongodb://127.0.0.1{host}/")
        assert "the user may not ask: " in refusal(capsys, f"mongodb://shop:wrong@127.0.0.1{host}/")
        assert "the user may not ask: " in refusal(capsys, account.read_only_uri or "")
        assert main(["report", account.uri]) == 0
    assert capsys.readouterr().out.startswith("command")
