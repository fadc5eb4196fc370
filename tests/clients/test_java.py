"""The Java driver, in an application's JUnit tests."""

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest

import mongottl
from tests.clients.conftest import LIMIT_S, REFUSED_COMMANDS, Installed, failed_commands

pytestmark = pytest.mark.slow

CASES = {"connects", "crud", "ttl", "transactions", "changeStreams", "gridFS", "errorShapes", "wrongPassword"}


@pytest.fixture
def project(installed: Installed, tmp_path: Path) -> Path:
    """A copy: Maven writes reports into the project, where another run of these tests may do so at the same time."""
    return Path(shutil.copytree(installed("java"), tmp_path / "project"))


def run_tests(project: Path, uri: str, **environment: str) -> set[str]:
    """Runs the JUnit tests; the names of those that passed. The others were skipped."""
    ended = subprocess.run(
        ["mvn", "--quiet", "--batch-mode", "--offline", "test"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "MONGODB_URI": uri, **environment},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = ElementTree.parse(project / "target" / "surefire-reports" / "TEST-ApplicationTest.xml")
    return {case.attrib["name"] for case in report.iter("testcase") if len(case.findall("skipped")) == 0}


def test_an_application(project: Path, own: mongottl.RunningServer) -> None:
    assert run_tests(project, own.uri) == CASES - {"wrongPassword"}
    assert failed_commands(own) <= REFUSED_COMMANDS


def test_an_application_that_logs_in_over_tls(project: Path, secured: mongottl.RunningServer) -> None:
    # The driver takes the authority's file from its caller, not from the URI.
    (authority,) = parse_qs(urlsplit(secured.uri).query)["tlsCAFile"]
    assert run_tests(project, secured.uri, MONGODB_CA=authority) == CASES
