"""Waiting for what a server, another thread or another process does in its own time, on however slow a machine."""

import time
from collections.abc import Callable
from typing import Any, Final

import pymongo
from pymongo.errors import ServerSelectionTimeoutError

# Longer than anything here takes on a machine that is many times slower, and busy: what lasts longer hangs.
PATIENCE_S: Final = 120.0


def until(condition: Callable[[], object], otherwise: str = "it did not happen") -> None:
    """Returns when the condition is true. Fails with the text `otherwise` if it never is."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, otherwise
        time.sleep(0.002)  # leaves the processor to those who are waited for


def until_connected(client: "pymongo.MongoClient[dict[str, Any]]") -> None:
    """Returns when the client knows its server, also if it has little time to select one.

    Such clients are for servers that end: they give up soon when their server has gone, but also while they connect to
    it on a busy machine.
    """

    def answers() -> bool:
        try:
            client.admin.command("ping")
        except ServerSelectionTimeoutError:
            return False
        return True

    until(answers, "the server was not found")
