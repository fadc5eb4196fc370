"""The documents that a `bulkWrite` leaves in `system.profile`: of each operation, in the database of its collection.

    {op: "bulkWrite", ns: "shop.orders", command: {update: 1, filter: {…}, updateMods: {…}}, nMatched: 1, nModified: 1,
     millis: 2, ts: <date>, client: "127.0.0.1", …}

Inserts into one collection that are executed together have one document, with `command: {insert: 1, documents: […]}`.
The numbers are those of the reply, if it has the results of the operations.

Source: bulk_write_profile.js among the tests of MongoDB 8.0, for the fields.
"""

from mongottl.document.build import encode
from mongottl.document.types import Date, Value
from mongottl.document.walk import first_field_name, get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.profiler import EVERYTHING, OFF
from mongottl.server.log import Log
from mongottl.server.profiling.entries import described_client, sent_documents, shortened_command, store
from mongottl.storage.interface import StorageError


def profile_runs(service: ServiceContext, log: Log, op: OperationContext, reply: bytes) -> None:
    """Profiles the operations of a `bulkWrite` that has ended, as the settings of their databases say."""
    operations = sent_documents(op, "ops")
    namespaces = [str(get_value(described, "ns")) for described in sent_documents(op, "nsInfo")]
    results = _results(reply)
    ends = [start for _, _, start in op.profile.statement_runs[1:]] + [op.working_micros()]
    for (first, end, start), end_micros in zip(op.profile.statement_runs, ends, strict=True):
        namespace = namespaces[_namespace_index(operations[first])]
        database = namespace.partition(".")[0]
        settings = service.profiler.of(database)
        micros = end_micros - start
        if settings.level == OFF or op.profile.began_s < settings.since_s:
            continue
        if settings.tree is None and settings.level != EVERYTHING and not _is_taken(service, micros):
            continue
        document = encode(
            {
                "op": "bulkWrite",
                "ns": namespace,
                "command": shortened_command(_command(operations[first:end])),
                **_counts(operations[first], [results[at] for at in range(first, end) if at in results]),
                "protocol": "op_msg",
                "millis": micros // 1000,
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


def _results(reply: bytes) -> dict[int, bytes]:
    """The results of operations in the first batch of the reply, by the places of the operations."""
    cursor = get_value(reply, "cursor")
    batch = get_value(cursor, "firstBatch") if isinstance(cursor, bytes) else None
    found: dict[int, bytes] = {}
    for result in batch if isinstance(batch, list) else []:
        place = get_value(result, "idx") if isinstance(result, bytes) else None
        if isinstance(place, int) and isinstance(result, bytes):
            found[int(place)] = result
    return found


def _counts(operation: bytes, results: list[bytes]) -> dict[str, Value]:
    """The numbers of documents; none without results, as with `errorsOnly`."""
    if not results:
        return {}
    kind = first_field_name(operation)
    numbers = [get_value(result, "n") for result in results]
    n = sum(number for number in numbers if isinstance(number, int))
    if kind == "insert":
        return {"ninserted": n}
    if kind == "delete":
        return {"ndeleted": n}
    is_upsert = isinstance(get_value(results[0], "upserted"), bytes)
    modified = get_value(results[0], "nModified")
    counts: dict[str, Value] = {"nMatched": 0 if is_upsert else n, "nModified": modified}
    return {**counts, "nUpserted": 1} if is_upsert else counts
