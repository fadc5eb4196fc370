"""The documents that a `bulkWrite` leaves in `system.profile`: of each operation, in the database of its collection.

    {op: "bulkWrite", ns: "shop.orders", command: {update: 1, filter: {…}, updateMods: {…}}, keysExamined: 1,
     docsExamined: 1, nMatched: 1, nModified: 1, millis: 2, planSummary: "EXPRESS_IXSCAN { _id: 1 }",
     ts: <date>, …}

Inserts into one collection that are executed together have one document, with `command: {insert: 1, documents: […]}`.

Source: bulk_write_profile.js among the tests of MongoDB 8.0, for the fields.
"""

from mongottl.document.build import encode
from mongottl.document.types import Date, Value
from mongottl.document.walk import first_field_name, get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.profiler import EVERYTHING, OFF
from mongottl.server.log import Log
from mongottl.server.profiling.entries import (
    described_client,
    described_reads,
    described_time,
    described_writes,
    sent_documents,
    shortened_command,
    store,
)
from mongottl.storage.errors import StorageError


def profile_runs(service: ServiceContext, log: Log, op: OperationContext) -> None:
    """Profiles the operations of a `bulkWrite` that has ended, as the settings of their databases say."""
    operations = sent_documents(op, "ops")
    namespaces = [str(get_value(described, "ns")) for described in sent_documents(op, "nsInfo")]
    for run in op.profile.statement_runs:
        first = operations[run.first]
        namespace = namespaces[_namespace_index(first)]
        database = namespace.partition(".")[0]
        settings = service.profiler.of(database)
        if settings.level == OFF or op.profile.began_s < settings.since_s:
            continue
        if settings.tree is None and settings.level != EVERYTHING and not _is_taken(service, run.micros):
            continue
        document = encode(
            {
                "op": "bulkWrite",
                "ns": namespace,
                "command": shortened_command(_command(operations[run.first : run.end])),
                **described_reads(run.keys, run.documents),
                **described_writes(first_field_name(first), run.written),
                "protocol": "op_msg",
                **described_time(run.micros, run.summary),
                "ts": Date(service.clock.now_ms()),
                "client": op.client.host,
                **described_client(op),
            }
        )
        if settings.tree is None or settings.tree.matches(document):
            try:
                store(service, op, database, [document])
            except StorageError as error:
                log.error("storage", "The storage engine failed", command="profile", error=str(error))
                return
        op.give_way()


def _namespace_index(operation: bytes) -> int:
    """The place of its namespace in `nsInfo`."""
    index = get_value(operation, first_field_name(operation))
    assert isinstance(index, (int, float))  # of any type of number; it was executed
    return int(index)


def _is_taken(service: ServiceContext, micros: int) -> bool:
    return micros >= service.profiler.slow_micros and service.profiler.takes_sample()


def _command(operations: list[bytes]) -> bytes:
    """An operation as it was sent; inserts as one with their documents."""
    first = operations[0]
    if first_field_name(first) != "insert":
        return first
    documents: list[Value] = [get_value(operation, "document") for operation in operations]
    return encode({"insert": get_value(first, "insert"), "documents": documents})
