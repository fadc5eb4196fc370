"""The account against which rows of tables are run."""

from typing import Any

import mongottl
from tests.drivers.answers import TableClient, check
from tests.drivers.cosmos.facts.facts import Fact

ADMIN = (
    *("abortTransaction", "advanceClock", "buildInfo", "configureCosmos", "configureFailPoint", "listDatabases"),
    "setParameter",
)
FAIL_POINTS = ("cosmosThrottle", "cosmosTimeout", "cosmosUnavailable")


class Account:
    """A client of a server whose clock stands at a whole second unless a row moves it."""

    def __init__(self, running: mongottl.RunningServer) -> None:
        self._running = running
        self._client = TableClient(running.uri)
        self._defaults = self._admin({"configureCosmos": {}})["was"]
        self.close = self._client.close

    def run(self, fact: Fact) -> None:
        self._running.clock.advance(2 - self._running.clock.now().microsecond / 1_000_000)
        if fact.settings is not None:
            assert self._admin({"configureCosmos": fact.settings})["ok"]
        for command, answer in fact.steps:
            reply = self._admin(command) if next(iter(command)) in ADMIN else self._client.command(command, "shop")
            check(reply, answer)

    def reset(self) -> None:
        self._admin({"configureCosmos": self._defaults | {"allow": ["missing-features"]}})
        self._admin({"setParameter": 1, "ttlMonitorEnabled": True})
        self._admin({"configureCosmos": self._defaults})
        for name in FAIL_POINTS:
            self._admin({"configureFailPoint": name, "mode": "off"})
        self._client.command({"dropDatabase": 1}, "shop")

    def _admin(self, command: dict[str, Any]) -> dict[str, Any]:
        return self._client.command(command, "admin")
