"""Fail points of the dialect `cosmos`: what Cosmos DB does at random, a test provokes.

    {configureFailPoint: "cosmosThrottle", mode: {skip, times} | "alwaysOn" | "off",
     data: {commands: ["insert"], namespace: "shop.orders", appName: "…", item: 3,
            retryAfterMs: 34, form: "single" | "batch" | "noHint" | "bare"}}   16500
    {configureFailPoint: "cosmosTimeout", …, data: {…, form: "plain" | "rateLimited" | "notRateLimited"}}    50
    {configureFailPoint: "cosmosUnavailable", …}                               1, ServiceUnavailable (503)

Without `commands`, all that read and write documents fail. `item` is the statement of a batch that fails, 0 if it is
not given; a batch that has no such statement does not fail and is not counted. An ordered batch stops there, an
unordered one goes on, and the error is one of its `writeErrors`. A throttled getMore of a change stream gets an empty
page.

They act whatever the account's capabilities are: with DisableRateLimitingResponses, too, cosmosThrottle answers 16500.
"""

from collections.abc import Container
from typing import Final

from mongottl.dialect.cosmos.advice import advice
from mongottl.dialect.cosmos.throttling import (
    DEFAULT_RETRY_AFTER_MS,
    FORMS,
    TIMEOUT_TEXTS,
    throttled,
    timed_out,
    unavailable,
)
from mongottl.document.bson_field import unknown_field, wrong_type
from mongottl.document.numbers import whole_int32
from mongottl.document.render import render_value
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.state.dialect_fail_point import DialectFailPoint
from mongottl.exec.state.fail_mode import Mode

THROTTLE: Final = "cosmosThrottle"
TIMEOUT: Final = "cosmosTimeout"
UNAVAILABLE: Final = "cosmosUnavailable"
FAIL_POINTS: Final = (UNAVAILABLE, TIMEOUT, THROTTLE)


class CosmosFailPoint(DialectFailPoint):
    """An active fail point. name: one of `FAIL_POINTS`. item: the statement of a batch that fails.

    command_names: what `commands` may name. 40415 for an unknown field of `data`, TypeMismatch (14), BadValue (2) for
    what no command could match, and for a number that is negative or not whole.
    """

    def __init__(self, name: str, data: bytes, mode: Mode, command_names: Container[str]) -> None:
        super().__init__(name, mode)
        self._commands: list[str] | None = None
        self._namespace: str | None = None
        self._app_name: str | None = None
        self._form = ""
        self._retry_after_ms = DEFAULT_RETRY_AFTER_MS
        for field, value in fields(data):
            self._take(field, value, command_names)

    def _take(self, field: str, value: Value, command_names: Container[str]) -> None:
        if field == "commands":
            self._commands = self._checked_commands(value, command_names)
        elif field == "namespace":
            self._namespace = self._checked_string(field, value)
            if "." not in self._namespace:
                raise self._wrong_value(field, value, "<database>.<collection>")
        elif field == "appName":
            self._app_name = self._checked_string(field, value)
        elif field == "item":
            self.item = self._checked_number(field, value)
        elif field == "retryAfterMs" and self.name == THROTTLE:
            self._retry_after_ms = self._checked_number(field, value)
        elif field == "form" and self.name != UNAVAILABLE:
            forms: tuple[str, ...] = FORMS if self.name == THROTTLE else tuple(TIMEOUT_TEXTS)
            self._form = self._checked_string(field, value)
            if self._form not in forms:
                raise self._wrong_value(field, value, f"one of {', '.join(forms)}")
        else:
            raise unknown_field(self._path(field))

    def _checked_commands(self, value: Value, command_names: Container[str]) -> list[str]:
        commands = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(commands) < len(value):
            raise wrong_type(self._path("commands"), value, "array of strings")
        if not commands:
            raise CommandError(ErrorCode.BadValue, f"{self._path('commands')} names no command")
        for command in commands:
            if command not in command_names:
                raise CommandError(
                    ErrorCode.BadValue, f"{self._path('commands')}: there is no command '{command}' that could fail"
                )
        return commands

    def _checked_string(self, field: str, value: Value) -> str:
        if not isinstance(value, str):
            raise wrong_type(self._path(field), value, "string")
        return value

    def _checked_number(self, field: str, value: Value) -> int:
        if not is_number(value):
            raise wrong_type(self._path(field), value, "number")
        number = whole_int32(value)
        if number is None or number < 0:
            raise self._wrong_value(field, value, "a whole number of at least 0")
        return number

    def _wrong_value(self, field: str, value: Value, expected: str) -> CommandError:
        text = f"{self._path(field)} is {render_value(value)}, but must be {expected}"
        return CommandError(ErrorCode.BadValue, text)

    def _path(self, field: str) -> str:
        return f"{self.name}.data.{field}"

    def acts_on(
        self, names: tuple[str, ...], on_documents: bool, namespace: str, app_name: str, statements: int
    ) -> bool:
        if not on_documents if self._commands is None else not any(name in self._commands for name in names):
            return False
        if self._namespace is not None and self._namespace != namespace:
            return False
        if self._app_name is not None and self._app_name != app_name:
            return False
        return self.item < statements and self.mode.acts()

    def error(self, operation: str, usual_form: str) -> CommandError:
        what_helps = advice(f"The fail point {self.name} is set", "switch it off by configureFailPoint")
        if self.name == UNAVAILABLE:
            return unavailable(what_helps)
        if self.name == TIMEOUT:
            return timed_out(self._form or "plain", what_helps)
        return throttled(operation, self._form or usual_form, self._retry_after_ms, what_helps)
