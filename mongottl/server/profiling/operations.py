"""Profiled operations: their documents in `system.profile`, and the log lines of slow ones.

    {op: "query", ns: "shop.orders", command: {find: "orders", filter: {…}, $db: "shop"}, nreturned: 3,
     keysExamined: 3, docsExamined: 3, planSummary: "IXSCAN { a: 1 }", responseLength: 512, protocol: "op_msg",
     millis: 12, ts: <date>, client: "127.0.0.1", appName: "…",
     allUsers: [{user, db}], user: "ann@shop"}

Each statement of an update or delete has a document of its own, with its own time and the command's comment, as in
MongoDB; one that was not executed, since an earlier one has failed, has none. The documents to insert are left out.
Unlike MongoDB's, the documents have an `_id`, since every collection has an index of it.

Source: MongoDB's manual, "Database Profiler Output".
"""

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

from mongottl.commands import CommandSpec
from mongottl.commands.access import ANYONE, USERS
from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.render import render_logged
from mongottl.document.types import STRING, Date, Int64, Value
from mongottl.document.walk import ElementCursor, fields, get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.observation import SlowCommand
from mongottl.exec.state.profiler import EVERYTHING, OFF, SLOW_ONLY
from mongottl.exec.state.request_units import HUNDREDTHS
from mongottl.server.log import Log
from mongottl.server.profiling.entries import (
    MAX_LOGGED_BYTES,
    TRUNCATED,
    described_client,
    described_reads,
    described_time,
    described_writes,
    sent_documents,
    shortened_command,
    store,
)
from mongottl.storage.errors import StorageError

# Characters of a slow command that the page shows.
_MAX_LISTED: Final = 400
# And of the names in it, by which those that differ in values alone are counted.
_MAX_SHAPE: Final = 4000
_OF_DRIVERS: Final = frozenset({"lsid", "txnNumber"})
# What says nothing about the operation, or is in another field.
_LEFT_OUT: Final = frozenset({b"$clusterTime", b"$client", b"documents"})


def is_profiled(spec: CommandSpec, op: OperationContext) -> bool:
    """Whether a command is about data: those that everybody may run, such as ping, are not profiled."""
    return bool(op.used_namespace) or spec.writes or spec.access not in (ANYONE, USERS)


def note_operation(service: ServiceContext, log: Log, spec: CommandSpec, op: OperationContext, reply: bytes) -> None:
    """Profiles a command that has ended, and logs it if it was slow, as the settings of its database say."""
    if not is_profiled(spec, op):
        return
    if op.profile.statement_runs:
        from mongottl.exec.results.statement_runs import end_statements  # imported with the first batch

        end_statements(op)
    if op.profile.statement_runs and spec.name == "bulkWrite":
        from mongottl.server.profiling.bulk_writes import profile_runs  # imported with the first profiled bulkWrite

        profile_runs(service, log, op)
    profiler = service.profiler
    settings = profiler.of(op.database)
    micros = op.working_micros()  # a change stream that waits for events is not slow
    if profiler.query_stats.rate_limit and get_value(reply, "ok") == 1.0:
        from mongottl.commands.crud.query_stats import note_query  # imported once queries are recorded

        note_query(spec, op, reply, micros)
    tree = settings.tree
    slow = tree is not None or (micros >= profiler.slow_micros and profiler.takes_sample())
    if not slow and settings.level != EVERYTHING:
        return
    entries = _described(service, spec, op, reply, micros)
    if tree is not None:
        entries = (entry for entry in entries if tree.matches(entry.document))
    first_entry = next(entries, None)
    if first_entry is None:
        return
    first = first_entry.document
    if slow:
        if service.observation is not None:
            shape = _shape(get_value(first, "command"))[:_MAX_SHAPE]
            service.observation.record_slow(_slow_command(service, op, first, micros), shape)
        _log_slow(log, spec, op, first, micros)
    if settings.level == OFF or op.profile.began_s < settings.since_s:
        return
    least_micros = profiler.slow_micros if settings.level == SLOW_ONLY and tree is None else 0
    entries = itertools.chain([first_entry], entries)
    try:
        store(service, op, op.database, (entry.document for entry in entries if entry.micros >= least_micros))
    except StorageError as error:
        log.error("storage", "The storage engine failed", command="profile", error=str(error))


class _Entry(NamedTuple):
    """What is profiled: the document, and how long it took."""

    document: bytes
    micros: int


def _described(
    service: ServiceContext, spec: CommandSpec, op: OperationContext, reply: bytes, micros: int
) -> Iterator[_Entry]:
    """The entries of a command: one, or one for each statement that was executed, between which others run."""
    described: dict[str, Value] = {
        "op": "remove" if spec.counter == "delete" else spec.counter,
        "ns": op.used_namespace or f"{op.database}.$cmd",
    }
    body = spec.shown(op)
    statements = _statements(spec, op)
    outcome: dict[str, Value] = {**_outcome(reply), "responseLength": len(reply), "protocol": "op_msg"}
    ending: dict[str, Value] = {
        "ts": Date(service.clock.now_ms()),
        "client": op.client.host,
        **described_client(op),
    }
    kind = _kind_of_write(spec, op)
    if op.profile.statement_runs and statements:
        for run in op.profile.statement_runs:
            described["command"] = shortened_command(_statement(statements[run.first], body))
            numbers = {**described_reads(run.keys, run.documents), **described_writes(kind, run.written)}
            time = described_time(run.micros, run.summary)
            yield _Entry(encode({**described, **numbers, **outcome, **time, **ending}), run.micros)
            op.give_way()
        return
    from mongottl.exec.results.statement_runs import summarise_reads  # imported with the first profiled operation

    by_id = "IDHACK" if spec.counter == "command" else "EXPRESS_IXSCAN { _id: 1 }"
    summary, keys, documents = summarise_reads(op, by_id)
    ending = {**outcome, **described_time(micros, summary), **ending}
    if len(statements) <= 1:  # else none of them was executed, or nothing is profiled
        ending = {**described_reads(keys, documents), **_written(op, kind, reply), **_returned(reply), **ending}
    for command in [_statement(statement, body) for statement in statements] or [_command(body)]:
        yield _Entry(encode({**described, "command": shortened_command(command), **ending}), micros)
        op.give_way()


def _kind_of_write(spec: CommandSpec, op: OperationContext) -> str:
    """insert, update or delete; empty for other commands, and for a bulkWrite, whose statements have their own."""
    if spec.name == "findAndModify":
        return "delete" if get_value(op.command.body, "remove") is True else "update"
    return spec.counter if spec.counts_statements else ""


def _written(op: OperationContext, kind: str, reply: bytes) -> dict[str, Value]:
    """The numbers of documents that it has changed. A command that failed has them only if it has changed some."""
    written = op.profile.written
    if written is None or not kind or (get_value(reply, "ok") == 0.0 and not written.any):
        return {}
    return described_writes(kind, written)


def _statements(spec: CommandSpec, op: OperationContext) -> list[bytes]:
    """The statements of an update or delete; empty for other commands."""
    return sent_documents(op, spec.statements_field) if spec.statements_field else []


def _statement(statement: bytes, body: bytes) -> bytes:
    """A statement as MongoDB shows it: a hint by name as `{$hint: name}`, and with the comment of its command."""
    shown = DocumentBuilder()
    cursor = ElementCursor(statement, 0)
    while cursor.next():
        if cursor.type_code == STRING and cursor.name_is(b"hint"):
            shown.append("hint", {"$hint": cursor.decoded()})
        else:
            shown.append_raw_element(cursor.raw_element())
    cursor = ElementCursor(body, 0)
    while cursor.next():
        if cursor.name_is(b"comment"):
            shown.append_raw_element(cursor.raw_element())
            break
    return shown.finish()


def _command(body: bytes) -> bytes:
    shown = DocumentBuilder()
    cursor = ElementCursor(body, 0)
    while cursor.next():
        if cursor.name_bytes() not in _LEFT_OUT:
            shown.append_raw_element(cursor.raw_element())
    return shown.finish()


def _returned(reply: bytes) -> dict[str, Value]:
    """How many documents the reply has, and whether its cursor has more."""
    from mongottl.exec.results.cursors import cursor_of  # imported with the first operation that is noted

    counts: dict[str, Value] = {}
    cursor = cursor_of(reply)
    if cursor is not None:
        if cursor.identifier:
            counts["cursorid"] = Int64(cursor.identifier)
        else:
            counts["cursorExhausted"] = True
        if cursor.returned is not None:
            counts["nreturned"] = cursor.returned
    return counts


def _outcome(reply: bytes) -> dict[str, Value]:
    """`ok: 0` and the error of a command that failed."""
    code = get_value(reply, "code")
    if get_value(reply, "ok") != 0.0 or not isinstance(code, int):
        return {}
    return {
        "ok": 0,
        "errMsg": get_value(reply, "errmsg"),
        "errName": get_value(reply, "codeName"),
        "errCode": code,
    }


def _slow_command(service: ServiceContext, op: OperationContext, document: bytes, micros: int) -> SlowCommand:
    """A slow command as the page lists it."""
    command = get_value(document, "command")
    summary = get_value(document, "planSummary")
    error = get_value(document, "errName")
    return SlowCommand(
        service.clock.now_ms(),
        str(get_value(document, "op")),
        str(get_value(document, "ns")),
        micros,
        summary if isinstance(summary, str) else "",
        _listed(command)[:_MAX_LISTED] if isinstance(command, bytes) else "",
        op.client.app_name,
        error if isinstance(error, str) else "",
    )


def _shape(value: Value) -> str:
    """The names in a value. Arrays are shown by the different shapes of their elements."""
    if isinstance(value, bytes):
        return f"{{{','.join([f'{name}:{_shape(inner)}' for name, inner in fields(value)])}}}"
    if isinstance(value, list):
        return f"[{','.join(dict.fromkeys([_shape(inner) for inner in value]))}]"
    return "?"


def _listed(command: bytes) -> str:
    """A command as text, without what drivers add to every one."""
    text = get_value(command, TRUNCATED)
    if isinstance(text, str):
        return text
    listed = [(n, v) for n, v in fields(command) if not n.startswith("$") and n not in _OF_DRIVERS]
    return render_logged(encode_fields(listed))


def _log_slow(log: Log, spec: CommandSpec, op: OperationContext, document: bytes, micros: int) -> None:
    attributes: dict[str, object] = {"type": "command", "ns": get_value(document, "ns")}
    if op.client.app_name:
        attributes["appName"] = op.client.app_name
    command = get_value(document, "command")
    text = render_logged(command) if isinstance(command, bytes) else ""
    attributes["command"] = text if len(text) <= MAX_LOGGED_BYTES else f"{text[:MAX_LOGGED_BYTES]}..."
    summary = get_value(document, "planSummary")
    if isinstance(summary, str):
        attributes["planSummary"] = summary
    for name in ("keysExamined", "docsExamined", "nreturned"):
        number = get_value(document, name)
        if isinstance(number, int):
            attributes[name] = int(number)
    if op.cost.meter is not None:
        attributes["requestCharge"] = op.cost.charge / HUNDREDTHS
    attributes["reslen"] = get_value(document, "responseLength")
    attributes["remote"] = op.client.remote
    attributes["protocol"] = "op_msg"
    attributes["durationMillis"] = micros // 1000
    log.info("command", "Slow query", f"conn{op.client.connection_id}", **attributes)
