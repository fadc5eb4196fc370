"""Fail points of the dialect `cosmos`: what Cosmos DB does at random, a test provokes.

    {configureFailPoint: "cosmosThrottle", mode: {skip, times} | "alwaysOn" | "off",
     data: {commands: ["insert"], namespace: "shop.orders", appName: "…", item: 3,
            retryAfterMs: 34, form: "single" | "batch" | "noHint"}}            16500
    {configureFailPoint: "cosmosTimeout", …, data: {…, form: "plain" | "rateLimited" | "notRateLimited"}}    50
    {configureFailPoint: "cosmosUnavailable", …}                               1, ServiceUnavailable (503)

Without `commands`, all that read and write documents fail. `item` is the statement of a batch that fails, 0 if it is
not given; a batch that has no such statement does not fail and is not counted. An ordered batch stops there, an
unordered one goes on. Code 50 is an error of the whole command, after the statements before `item` are done; the others
are one of its `writeErrors`. A throttled getMore of a change stream gets an empty page.

They act whatever the account's capabilities are: with DisableRateLimitingResponses, too, cosmosThrottle answers 16500.
"""

from typing import Final

from mongottl.dialect.cosmos.throttling import (
    BATCH,
    DEFAULT_RETRY_AFTER_MS,
    FORMS,
    SINGLE,
    TIMEOUT_TEXTS,
    throttled,
    timed_out,
    unavailable,
)
from mongottl.document.numbers import clamp_to_int
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.fail_mode import Mode

THROTTLE: Final = "cosmosThrottle"
TIMEOUT: Final = "cosmosTimeout"
UNAVAILABLE: Final = "cosmosUnavailable"
# In the order in which they are asked.
COSMOS_FAIL_POINTS: Final = (UNAVAILABLE, TIMEOUT, THROTTLE)


class CosmosFailPoint:
    """An active fail point. name: one of `COSMOS_FAIL_POINTS`. item: the statement of a batch that fails."""

    def __init__(self, name: str, data: bytes, mode: Mode) -> None:
        self.name = name
        self.mode = mode
        self.item = 0
        self._commands: list[str] | None = None
        self._namespace: str | None = None
        self._app_name: str | None = None
        self._form = ""
        self._retry_after_ms = DEFAULT_RETRY_AFTER_MS
        for field, value in fields(data):
            self._take(field, value)

    def _take(self, field: str, value: Value) -> None:
        """BadValue (2) for an unknown field or a value that is not allowed."""
        if field == "commands" and isinstance(value, list) and all(isinstance(command, str) for command in value):
            self._commands = [str(command) for command in value]
        elif field == "namespace" and isinstance(value, str):
            self._namespace = value
        elif field == "appName" and isinstance(value, str):
            self._app_name = value
        elif field == "item" and isinstance(value, (int, float)) and value >= 0:
            self.item = clamp_to_int(value)
        elif field == "retryAfterMs" and self.name == THROTTLE and isinstance(value, (int, float)) and value >= 0:
            self._retry_after_ms = clamp_to_int(value)
        elif field == "form" and value in self._forms():
            self._form = str(value)
        else:
            raise CommandError(ErrorCode.BadValue, f"{self.name}: data field '{field}' is unknown or has a wrong value")

    def _forms(self) -> list[str]:
        if self.name == THROTTLE:
            return list(FORMS)
        return list(TIMEOUT_TEXTS) if self.name == TIMEOUT else []

    def acts_on(
        self, names: tuple[str, ...], on_documents: bool, namespace: str, app_name: str, statements: int
    ) -> bool:
        """Whether a command is to fail now, which counts as one of its times.

        names: of the command, with its aliases. on_documents: whether it reads or writes documents. statements: of a
        batch, 1 for other commands.
        """
        if not on_documents if self._commands is None else not any(name in self._commands for name in names):
            return False
        if self._namespace is not None and self._namespace != namespace:
            return False
        if self._app_name is not None and self._app_name != app_name:
            return False
        return self.item < statements and self.mode.acts()

    def error(self, operation: str, statements: int) -> CommandError:
        """The error of the command, or of its statement `item`. operation: see `throttled`."""
        if self.name == UNAVAILABLE:
            return unavailable()
        if self.name == TIMEOUT:
            return timed_out(self._form or "plain")
        return throttled(operation, self._form or (BATCH if statements > 1 else SINGLE), self._retry_after_ms)
