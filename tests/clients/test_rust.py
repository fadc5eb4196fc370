"""The Rust driver."""

from pathlib import Path

import pytest

import mongottl
from tests.clients.conftest import PARTS, REFUSED_COMMANDS, Installed, failed_commands, parts_that_work

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(installed: Installed) -> Path:
    return installed("rust") / "target/debug/client"


def test_an_application(program: Path, own: mongottl.RunningServer) -> None:
    assert parts_that_work([program], own.uri) == PARTS
    assert failed_commands(own) <= REFUSED_COMMANDS


def test_an_application_that_logs_in_over_tls(program: Path, secured: mongottl.RunningServer) -> None:
    assert parts_that_work([program], secured.uri) == [*PARTS, "wrongPassword"]
