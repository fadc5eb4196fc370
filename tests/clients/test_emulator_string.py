"""The emulator's connection string, as `mongottl emulator` prints it, in drivers of other languages.

Nothing is added to it: the drivers trust the certificate by what `mongottl trust LANGUAGE` says. With the key as
portals show it, they refuse the string, each by the words that docs/cosmos.md tells.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pymongo
import pytest
from pymongo.errors import InvalidURI, OperationFailure

from tests.clients.conftest import HERE, LIMIT_S, Installed, parts_that_work
from tests.drivers.cosmos.test_emulator import KEY, emulator, run_trust, told
from tests.drivers.process.test_process import Process, spawn

__all__ = ["emulator", "spawn"]

pytestmark = pytest.mark.slow

EMULATOR_PARTS = ["ttlIndex", "insertAndFind", "expire", "sortWithoutIndex", "unencodedKey"]


@pytest.fixture
def uri(emulator: tuple[Process, int]) -> str:
    """The string that the server prints: the account's key is percent-encoded, and no option names a certificate."""
    printed = "mongodb" + told(emulator[0], "mongodb")
    assert printed.endswith(f"%3D%3D@localhost:{emulator[0].port}/admin?ssl=true&retrywrites=false")
    return printed


def advice(language: str, folder: Path) -> str:
    """What `mongottl trust` says of the certificate that the server keeps in this folder."""
    ended = run_trust(language, XDG_CACHE_HOME=str(folder))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def exported(language: str, folder: Path) -> dict[str, str]:
    """The variable that `mongottl trust` names for those who leave the URI as it is."""
    ((name, value),) = re.findall(r"export (\w+)=(.*)", advice(language, folder))
    return {name: value}


def test_pymongo_refuses_the_key_as_portals_show_it(uri: str) -> None:
    as_portals_show_it = unquote(uri)
    assert f":{KEY}@" in as_portals_show_it
    with pytest.raises(InvalidURI, match="Bad database name"):
        pymongo.MongoClient[dict[str, Any]](as_portals_show_it)


def test_pymongo_reads_a_plus_as_a_space(uri: str, tmp_path: Path) -> None:
    """So the key's has to be encoded, while other drivers leave it as it is."""
    (ca_file,) = exported("python", tmp_path).values()
    with pymongo.MongoClient[dict[str, Any]](uri.replace("%3D", "="), tlsCAFile=ca_file) as client:
        assert client.admin.command("ping")["ok"] == 1
    with (
        pymongo.MongoClient[dict[str, Any]](uri.replace("%2B", "+"), tlsCAFile=ca_file) as client,
        pytest.raises(OperationFailure) as caught,
    ):
        client.admin.command("ping")
    assert caught.value.code == 18


def test_node(installed: Installed, uri: str, tmp_path: Path) -> None:
    variables = {"NODE_PATH": str(installed("node") / "node_modules"), **exported("node", tmp_path)}
    assert parts_that_work(["node", HERE / "node" / "emulator.js"], uri, **variables) == EMULATOR_PARTS


def test_go(installed: Installed, uri: str, tmp_path: Path) -> None:
    installed("go")
    program = tmp_path / "program"
    subprocess.run(["go", "build", "-o", program, "./emulator"], cwd=HERE / "go", check=True)
    assert parts_that_work([program], uri, **exported("go", tmp_path)) == EMULATOR_PARTS


def store_by_keytool(said: str, folder: Path) -> None:
    (command,) = re.findall(r"^ *(keytool (?:.*\\\n)*.*)$", said, re.M)
    subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)


def store_by_mongottl(said: str, folder: Path) -> None:
    ((certificate, store),) = re.findall(r"mongottl trust java --certificate (.*) --trust-store (.*)", said)
    ended = run_trust("java", "--certificate", certificate, "--trust-store", str(folder / store))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("make_store", [store_by_keytool, store_by_mongottl])
def test_java(installed: Installed, uri: str, tmp_path: Path, make_store: Callable[[str, Path], None]) -> None:
    # A copy: Maven writes reports into the project, where another run of these tests may do so at the same time.
    project = Path(shutil.copytree(installed("java"), tmp_path / "project"))
    said = advice("java", tmp_path)
    make_store(said, project)
    (options,) = re.findall(r"-Djavax.*", said)
    ended = subprocess.run(
        ["mvn", "--quiet", "--batch-mode", "--offline", "test", "-Dtest=EmulatorTest", f"-DargLine={options}"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "EMULATOR_URI": uri},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = ElementTree.parse(project / "target" / "surefire-reports" / "TEST-EmulatorTest.xml")
    passed = {case.attrib["name"] for case in report.iter("testcase") if case.find("skipped") is None}
    assert passed == {"sessionsExpire", "refusesTheKeyAsPortalsShowIt"}
