"""`mongottl emulator`: connection strings of Cosmos DB's emulator work, once clients trust the certificate.

The key, the ports and the path of the certificate are those that Microsoft published for the emulator.
"""

import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl
from mongottl.cli.trust import RECIPES, STORE_PASSWORD
from tests.drivers.process.test_process import COMMAND, Process, spawn
from tests.environment import without_settings

__all__ = ["spawn"]
Client = pymongo.MongoClient[dict[str, Any]]
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

pytest.importorskip("trustme")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def emulator(spawn: Callable[..., Process], tmp_path: Path) -> tuple[Process, int]:
    """A running emulator, and the port of its certificate."""
    port = free_port()
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    command = [*COMMAND, "emulator"]
    return spawn("--certificate-port", str(port), environment=environment, command=command), port


def told(process: Process, beginning: str) -> str:
    """What follows `beginning` in the first line of output that begins so."""
    assert process.popen.stdout is not None
    for line in process.popen.stdout:
        if line.strip().startswith(beginning):
            return line.strip().removeprefix(beginning)
    raise AssertionError(f"no line begins with {beginning!r}")


def test_the_connection_string_of_the_emulator_connects(emulator: tuple[Process, int]) -> None:
    process, _ = emulator
    uri = f"mongodb://localhost:{quote(KEY, safe='')}@localhost:{process.port}/admin?ssl=true&retrywrites=false"
    assert "mongodb" + told(process, "mongodb") == uri
    ca_file = told(process, "The certificate that clients have to trust: ").partition(",")[0]
    with Client(uri, tlsCAFile=ca_file) as client:
        sessions = client.shop.sessions
        sessions.create_index("_ts", expireAfterSeconds=3600)
        sessions.insert_one({"_id": 1})
        client.admin.command("advanceClock", 3600)
        assert sessions.find_one() is None
        # The dialect is Cosmos DB's: no index serves this sort.
        sessions.insert_one({"_id": 1})
        with pytest.raises(OperationFailure) as caught:
            sessions.find().sort("at").to_list()
        assert caught.value.code == 2


def test_the_first_line_ends_with_a_uri_that_works_as_it_stands(emulator: tuple[Process, int]) -> None:
    with Client(emulator[0].uri) as client:
        assert client.admin.command("ping")["ok"] == 1


def test_the_certificate_is_fetched_where_scripts_look_for_it(emulator: tuple[Process, int]) -> None:
    process, port = emulator
    url = f"https://localhost:{port}/_explorer/emulator.pem"
    assert told(process, "The certificate that clients have to trust: ").partition(", also at ")[2] == url
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    with urllib.request.urlopen(url, context=unchecked) as response:
        pem = response.read().decode()
    # Whoever trusts it is not asked again.
    trusting = ssl.create_default_context(cadata=pem)
    with urllib.request.urlopen(url, context=trusting) as response:
        assert response.read().decode() == pem
    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(f"https://localhost:{port}/other", context=trusting)
    assert caught.value.code == 404
    caught.value.close()
    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, b"x"), context=trusting)
    assert caught.value.code == 405
    caught.value.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (10_255, "cosmos", "localhost", KEY, True, True, 8081)),
        ({"port": 27_017}, (27_017, "cosmos", "localhost", KEY, True, True, 8081)),
        ({"cosmos_key": "b3duCg=="}, (10_255, "cosmos", "localhost", "b3duCg==", True, True, 8081)),
        ({"cosmos_key_file": "keys"}, (10_255, "cosmos", "localhost", None, True, True, 8081)),
        ({"cosmos_account": "shop"}, (10_255, "cosmos", "shop", KEY, True, True, 8081)),
        ({"tls_cert": "a.pem"}, (10_255, "cosmos", "localhost", KEY, False, True, 8081)),
        ({"tls_self_signed": False}, (10_255, "cosmos", "localhost", KEY, False, True, None)),
        ({"enable_test_commands": False}, (10_255, "cosmos", "localhost", KEY, True, False, 8081)),
        ({"certificate_port": 0}, (10_255, "cosmos", "localhost", KEY, True, True, None)),
    ],
)
def test_every_default_of_the_emulator_can_be_changed(options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    from mongottl.config import config_from

    texts = {field: str(value).lower() if isinstance(value, bool) else str(value) for field, value in options.items()}
    config = config_from({"emulator": "true", **texts})
    fields = (config.port, config.dialect, config.cosmos_account, config.cosmos_key, config.tls_self_signed)
    assert (*fields, config.enable_test_commands, config.certificate_port) == expected


def test_a_server_of_a_test_suite_can_be_an_emulator() -> None:
    with mongottl.start_server(emulator=True, tls_self_signed=False) as server:
        assert quote(KEY, safe="") in server.uri
        with Client(server.uri) as client:
            client.shop.orders.insert_one({"_id": 1})


def test_ports_that_are_taken_are_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            [*COMMAND, "emulator", "--port", "0", "--certificate-port", port],
            capture_output=True,
            text=True,
            env=without_settings(XDG_CACHE_HOME=str(tmp_path)),
        )
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; --certificate-port N takes" in ended.stderr


def run_trust(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "mongottl", "trust", *arguments],
        capture_output=True,
        text=True,
        env=without_settings(**environment),
    )


def test_trust_names_the_certificate_that_the_emulator_has_made(emulator: tuple[Process, int], tmp_path: Path) -> None:
    ca_file = told(emulator[0], "The certificate that clients have to trust: ").partition(",")[0]
    for language in RECIPES:
        ended = run_trust(language, XDG_CACHE_HOME=str(tmp_path))
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith(f"{language}:\n")
        assert ca_file in ended.stdout
    assert run_trust(XDG_CACHE_HOME=str(tmp_path)).stdout.count(":\n") >= len(RECIPES)


def test_trust_takes_the_certificate_for_another_name(spawn: Callable[..., Process], tmp_path: Path) -> None:
    """The one that is made for an account's own host name lies elsewhere than the one for this machine."""
    account = ("--dialect", "cosmos", "--cosmos-account", "shop", "--tls-self-signed", "--port", "0")
    caches = {"XDG_CACHE_HOME": str(tmp_path)}
    environment = {**caches, "MONGOTTL_COSMOS_KEY": KEY}
    here = spawn(*account, environment=environment)
    named = spawn(*account, "--advertise-host", "shop.mongo.cosmos.azure.com:10255", environment=environment)
    files = [process.uri.partition("tlsCAFile=")[2] for process in (here, named)]
    assert files[0] in run_trust("python", **caches).stdout
    assert files[1] not in run_trust("python", **caches).stdout
    assert files[1] in run_trust("python", "--certificate", files[1], **caches).stdout


def test_trust_says_that_there_is_no_certificate_yet(tmp_path: Path) -> None:
    ended = run_trust("java", XDG_CACHE_HOME=str(tmp_path))
    assert ended.returncode == 1
    assert "start the server once, or name it by --certificate" in ended.stderr
    assert run_trust("cobol").returncode == 2


@pytest.mark.skipif(shutil.which("keytool") is None, reason="no JDK here")
def test_the_trust_store_is_one_for_java(emulator: tuple[Process, int], tmp_path: Path) -> None:
    ca_file = told(emulator[0], "The certificate that clients have to trust: ").partition(",")[0]
    store = tmp_path / "store.p12"
    ended = run_trust("java", "--certificate", ca_file, "--trust-store", str(store))
    assert ended.returncode == 0, ended.stderr
    listing = ["keytool", "-list", "-keystore", str(store), "-storepass", STORE_PASSWORD]
    assert "trustedCertEntry" in subprocess.run(listing, capture_output=True, text=True, check=True).stdout
