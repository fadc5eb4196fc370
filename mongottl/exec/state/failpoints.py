"""Fail points: how drivers' tests make a server fail on purpose.

    {configureFailPoint: "failCommand", mode: {times: 1} | "alwaysOn" | "off",
     data: {failCommands: ["insert"], errorCode: 11602, closeConnection: true, blockConnection: true, blockTimeMS: 20,
            errmsg: "…", errorLabels: ["RetryableWriteError"], writeConcernError: {…}, appName: "…"}}
    {configureFailPoint: "maxTimeAlwaysTimeOut", mode: "alwaysOn"}: every operation with maxTimeMS exceeds it at once
    {configureFailPoint: "onPrimaryTransactionalWrite", mode: …, data: {failBeforeCommitExceptionCode: 1,
     closeConnection: false}}: a statement of a retryable write fails before its commit, or the command is carried out
     but its client gets no answer
    {configureFailPoint: "failGetMoreAfterCursorCheckout", mode: …, data: {errorCode: 6, closeConnection: false}}:
    getMore fails although its cursor was found, and closes it

A dialect may have others (`DIALECT_FAIL_POINTS`).

Fields of `failCommand` that MongoDB does not know are ignored, as there; those that it knows and this server does not
are refused.

Source: the driver specifications' "fail point" page and "Retryable Writes" tests; PyMongo's tests for the second.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.numbers import clamp_to_int, is_true
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode, ProtocolError
from mongottl.exec.state.dialect_fail_point import DialectFailPoint
from mongottl.exec.state.fail_mode import Mode, parse_mode

_MAX_TIME_ALWAYS_TIME_OUT: Final = "maxTimeAlwaysTimeOut"
_TRANSACTIONAL_WRITE: Final = "onPrimaryTransactionalWrite"
_GET_MORE: Final = "failGetMoreAfterCursorCheckout"
# Which dialect has them, in the order in which they are asked; it makes them known by `FailPoints.take`.
DIALECT_FAIL_POINTS: Final = {
    "cosmosUnavailable": "cosmos",
    "cosmosTimeout": "cosmos",
    "cosmosThrottle": "cosmos",
}
# Of failCommand.
_UNSUPPORTED_FIELDS: Final = ("namespace", "threadName", "failLocalClients", "errorExtraInfo")


class FailCommand:
    """An active `failCommand`. labels: the reply's `errorLabels`; None for those that the server adds by default."""

    def __init__(self, data: bytes, mode: Mode) -> None:
        self.mode = mode
        self.commands: set[str] = set()
        self.all_commands = False
        self.error_code: int | None = None
        self.error_message = "Failing command via 'failCommand' failpoint"
        self.close_connection = False
        self.block_s = 0.0
        self.labels: list[str] | None = None
        self.write_concern_error: Value = None
        self.app_name: str | None = None
        for name, value in fields(data):
            self._take(name, value)

    def _take(self, name: str, value: Value) -> None:
        if name == "failCommands" and isinstance(value, list):
            self.commands = {str(command) for command in value}
        elif name == "errorCode" and isinstance(value, (int, float)):
            self.error_code = clamp_to_int(value)
        elif name == "errmsg" and isinstance(value, str):
            self.error_message = value
        elif name == "closeConnection":
            self.close_connection = is_true(value)
        elif name == "blockConnection":
            self.block_s = self.block_s if is_true(value) else -1.0
        elif name == "blockTimeMS" and isinstance(value, (int, float)):
            self.block_s = clamp_to_int(value) / 1000
        elif name == "errorLabels" and isinstance(value, list):
            self.labels = [str(label) for label in value]
        elif name == "writeConcernError":
            self.write_concern_error = value
        elif name == "appName" and isinstance(value, str):
            self.app_name = value
        elif name == "failAllCommands":
            self.all_commands = is_true(value)
        elif name in _UNSUPPORTED_FIELDS:
            raise CommandError(ErrorCode.BadValue, f"failCommand data field '{name}' is not supported")

    def applies_to(self, names: tuple[str, ...], app_name: str) -> bool:
        """Whether a command fails. names: the command's name and aliases; app_name: of its client."""
        if not self.all_commands and self.commands.isdisjoint(names):
            return False
        return (self.app_name is None or self.app_name == app_name) and self.mode.acts()

    def fail(self) -> None:
        """Raises the configured error, or ProtocolError to close the connection; nothing if neither is configured."""
        if self.close_connection:
            raise ProtocolError("failCommand: closeConnection")
        if self.error_code is not None:
            labels = () if self.labels is None else tuple(self.labels)
            raise CommandError(self.error_code, self.error_message, labels=labels)

    def reply_additions(self) -> dict[str, Value]:
        """Fields to add to the reply of a command that does not fail: `writeConcernError` and `errorLabels`."""
        if self.write_concern_error is None:
            return {}
        added: dict[str, Value] = {"writeConcernError": self.write_concern_error}
        if self.labels:
            added["errorLabels"] = list(self.labels)
        return added


class FailTransactionalWrite:
    """An active `onPrimaryTransactionalWrite`. close_connection: whether the client gets no answer to the command, of
    which the other statements are carried out nevertheless.

    error_code: of the error before the commit; None to let the write be committed.
    """

    def __init__(self, data: bytes, mode: Mode) -> None:
        self.mode = mode
        self.close_connection = True
        self.error_code: int | None = None
        for name, value in fields(data):
            if name == "closeConnection":
                self.close_connection = is_true(value)
            elif name == "failBeforeCommitExceptionCode" and isinstance(value, (int, float)):
                self.error_code = clamp_to_int(value)
            else:
                raise CommandError(ErrorCode.BadValue, f"{_TRANSACTIONAL_WRITE} data field '{name}' is not supported")

    def fail(self) -> None:
        """Raises the configured error, if there is one."""
        if self.error_code is not None:
            raise CommandError(self.error_code, f"Failing write for {_TRANSACTIONAL_WRITE} failpoint")


_NAMES: Final = frozenset({"failCommand", _MAX_TIME_ALWAYS_TIME_OUT, _TRANSACTIONAL_WRITE, _GET_MORE})
# Makes the fail point of a name, with its `data` and its mode.
FailPointMaker: TypeAlias = Callable[[str, bytes, Mode], DialectFailPoint]


class FailPointSetting:
    """All fail points of a server at one time. counts: `times` and `skip` of each of them."""

    def __init__(
        self,
        transactional_write: FailTransactionalWrite | None,
        fail_command: FailCommand | None,
        fail_get_more: FailCommand | None,
        time_out: Mode | None,
        of_dialect: list[DialectFailPoint],
    ) -> None:
        self.transactional_write = transactional_write
        self.fail_command = fail_command
        self.fail_get_more = fail_get_more
        self.time_out = time_out
        self.of_dialect = of_dialect
        modes: list[Mode] = [point.mode for point in of_dialect]
        if transactional_write is not None:
            modes.append(transactional_write.mode)
        if fail_command is not None:
            modes.append(fail_command.mode)
        if fail_get_more is not None:
            modes.append(fail_get_more.mode)
        if time_out is not None:
            modes.append(time_out)
        self.counts: list[tuple[Mode, int | None, int]] = [(mode, mode.times, mode.skip) for mode in modes]


class FailPoints:
    """The fail points of a server: `failCommand`, `maxTimeAlwaysTimeOut`, `onPrimaryTransactionalWrite`,
    `failGetMoreAfterCursorCheckout`, and those of the dialect.

    of_dialect: the active ones of `DIALECT_FAIL_POINTS`, in that order.
    """

    def __init__(self) -> None:
        self._transactional_write: FailTransactionalWrite | None = None
        self._fail_command: FailCommand | None = None
        self._fail_get_more: FailCommand | None = None
        self._time_out: Mode | None = None
        self.of_dialect: list[DialectFailPoint] = []
        self._makers: dict[str, FailPointMaker] = {}
        self.entered = 0

    def take(self, name: str, make: FailPointMaker) -> None:
        """Makes a fail point of the dialect known."""
        self._makers[name] = make

    def configure(self, name: str, mode: Value, data: bytes) -> None:
        """Sets or clears a fail point. BadValue (2) for an invalid mode, FailedToParse (9) for an unknown name; the
        errors of the dialect's for their data."""
        make = self._makers.get(name)
        if name not in _NAMES and make is None:
            raise CommandError(ErrorCode.FailedToParse, f"the fail point '{name}' is not supported")
        active = parse_mode(mode)
        if make is not None:
            others = [point for point in self.of_dialect if point.name != name]
            if active is not None:
                others.append(make(name, data, active))
            order = list(DIALECT_FAIL_POINTS)
            self.of_dialect = sorted(others, key=lambda point: order.index(point.name))
        elif name == _MAX_TIME_ALWAYS_TIME_OUT:
            self._time_out = active
        elif name == _TRANSACTIONAL_WRITE:
            self._transactional_write = None if active is None else FailTransactionalWrite(data, active)
        elif name == _GET_MORE:
            self._fail_get_more = None if active is None else FailCommand(data, active)
            if self._fail_get_more is not None:
                self._fail_get_more.error_message = f"Hit failpoint '{_GET_MORE}'"
        else:
            self._fail_command = None if active is None else FailCommand(data, active)

    def setting(self) -> "FailPointSetting":
        """What is set, and how often it has still to act, for `restore`."""
        return FailPointSetting(
            self._transactional_write, self._fail_command, self._fail_get_more, self._time_out, list(self.of_dialect)
        )

    def restore(self, setting: "FailPointSetting") -> None:
        """Sets all fail points as they were."""
        self._transactional_write = setting.transactional_write
        self._fail_command = setting.fail_command
        self._fail_get_more = setting.fail_get_more
        self._time_out = setting.time_out
        self.of_dialect = list(setting.of_dialect)
        for mode, times, skip in setting.counts:
            mode.times = times
            mode.skip = skip

    def fails_commands(self) -> bool:
        """Whether `failCommand` is set, for whichever commands."""
        return self._fail_command is not None

    def triggered(self, names: tuple[str, ...], app_name: str) -> FailCommand | None:
        """How a command is to fail, or None. names, app_name: see `FailCommand.applies_to`."""
        active = self._fail_command
        if active is None or "configureFailPoint" in names or not active.applies_to(names, app_name):
            return None
        self.entered += 1
        return active

    def triggered_of_dialect(
        self, names: tuple[str, ...], on_documents: bool, namespace: str, app_name: str, statements: int
    ) -> DialectFailPoint | None:
        """How a fail point of the dialect makes a command fail, or None. Arguments: see `DialectFailPoint.acts_on`."""
        for point in self.of_dialect:
            if point.acts_on(names, on_documents, namespace, app_name, statements):
                self.entered += 1
                return point
        return None

    def fail_get_more(self) -> None:
        """Raises what `failGetMoreAfterCursorCheckout` is configured to."""
        active = self._fail_get_more
        if active is not None and active.mode.acts():
            self.entered += 1
            active.fail()

    @property
    def watches_statements(self) -> bool:
        """Whether `transactional_write` counts the statements of retryable writes, each of which it may make fail."""
        return self._transactional_write is not None

    def transactional_write(self) -> FailTransactionalWrite | None:
        """How the statement of a retryable write that is about to be committed is to fail, or None."""
        active = self._transactional_write
        if active is None or not active.mode.acts():
            return None
        self.entered += 1
        return active

    def times_out(self) -> bool:
        """Whether maxTimeAlwaysTimeOut makes an operation with a time limit fail now."""
        if self._time_out is None or not self._time_out.acts():
            return False
        self.entered += 1
        return True
