"""What the log says of commands: those that have ended, refusals with advice, tests that disturb each other."""

from mongottl.commands import CommandSpec
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.request_units import HUNDREDTHS
from mongottl.server.log import Log
from mongottl.server.refusal_log import Refusal, RefusalLog
from mongottl.server.reset_watch import ResetWatch


class CommandLog:
    """Lines about the commands of one server. reset_watch: None without test commands, and once it has warned."""

    def __init__(self, service: ServiceContext, log: Log) -> None:
        self._service = service
        self._log = log
        self.reset_watch = ResetWatch() if service.config.enable_test_commands else None
        self._refusal_log = RefusalLog()

    def watch_resets(self, spec: CommandSpec, op: OperationContext) -> None:
        """Warns, once, of tests in two processes that reset this server for each other."""
        watch = self.reset_watch
        if watch is None:
            return
        if not spec.restores:
            if spec.is_write(op.command.body):
                watch.note_write(op.client)
            return
        shared = watch.note_reset(op.client, self._service.clients)
        if shared is not None:
            self.reset_watch = None
            self._log.warning(
                "command",
                "Two programs reset this server at the same time, so their tests undo each other's writes",
                f"conn{op.client.connection_id}",
                command=spec.name,
                program=shared.program,
                other=shared.other,
                hint="run the tests one after another, or give each worker its own server: mongottl run --per-worker N",
            )

    def ended(self, name: str, op: OperationContext, error_code: int = 0) -> None:
        """Logs a command at its end. error_code: 0 if it has succeeded."""
        attributes: dict[str, object] = {"command": name, "ns": op.used_namespace or f"{op.database}.$cmd"}
        if op.used_namespace:
            attributes["durationMicros"] = op.elapsed_micros() if error_code else op.profile.used_micros
        if error_code:
            attributes["errCode"] = error_code
        if op.cost.meter is not None:
            attributes["requestCharge"] = op.cost.charge / HUNDREDTHS
        self._log.info("command", "Command", f"conn{op.client.connection_id}", **attributes)

    def refused_statements(self, spec: CommandSpec, op: OperationContext) -> None:
        """Logs what can be done about the statements of a command that were refused."""
        for place, advice in op.profile.statement_errors.advice.items():
            entry = op.profile.statement_errors.entries[place]
            assert isinstance(entry, dict)
            self.refused(Refusal(spec.name, op.used_namespace, int(str(entry["code"])), advice), op.client)

    def refused(self, refusal: Refusal, client: ClientInfo | None) -> None:
        """Logs what the user of this server can do about a refusal, which the reply does not say; see `refusal_log`."""
        times = self._refusal_log.note(refusal, self._service.clock.monotonic_s())
        ctx = "main" if client is None else f"conn{client.connection_id}"
        if times < 0:
            self._log.warning("command", "More refusals are not logged for a minute", ctx)
        elif times:
            attributes: dict[str, object] = {"command": refusal.command}
            if refusal.namespace:
                attributes["ns"] = refusal.namespace
            attributes["error"] = self._service.dialect.code_name(refusal.code)
            if times > 1:
                attributes["times"] = times
            self._log.warning("command", "Command refused", ctx, **attributes, advice=refusal.advice)
