"""Change streams of Cosmos DB: events from its change feed, which has the latest version of each document.

    {_id: <token>, fullDocument, ns: {db, coll}, documentKey: {_id}}

Each document that was changed since the last read yields one event, with its latest version; deleted and expired
documents yield none. All events that were read at once have the same token, that after the last.
No source shows the documentKey of a sharded collection; that it is without the shard key, which MongoDB's has, is
assumed.

Source: Microsoft's "Change streams in Azure Cosmos DB's API for MongoDB" and "Change feed modes".
"""

from mongottl.catalog.collection import Collection
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.dialect.cosmos.change_feed import (
    BARE_WATCH,
    check_pipeline,
    feed_token,
    position_of,
    without_operation_types,
)
from mongottl.dialect.cosmos.provisioning import not_found
from mongottl.document.build import DocumentBuilder, encode
from mongottl.document.types import Value, type_code_of, type_name
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.express import express_key, express_record, partition_key
from mongottl.exec.results.change_stream import ChangeStream, checked_spec, stream_cursor
from mongottl.exec.results.cursors import ClientCursor
from mongottl.oplog.entry import OplogEntry
from mongottl.query.pipeline.change_stream import ChangeStreamSpec
from mongottl.query.pipeline.stage import StageSpec

_TOLD = ("insert", "update", "replace")
_DATABASE_WATCH = "database-watch"
_GONE = ("drop", "rename", "dropDatabase", "invalidate")


def is_of_feed(account: Account, named: Value) -> bool:
    """Whether a change stream has the events of the change feed: those of a collection. named: the `aggregate` field.

    TypeMismatch (14; the code is assumed) for a stream of a database or of the deployment, which the feed does not
    have. If that is allowed, it has MongoDB's events.
    """
    if not isinstance(named, str) and account.refuses(_DATABASE_WATCH):
        found = type_name(type_code_of(named))
        raise CommandError(
            ErrorCode.TypeMismatch,
            f"Expected type string but found {found}.",
            advice=advice("A change stream is of one collection", "watch each of them", allow(_DATABASE_WATCH)),
        )
    return isinstance(named, str)


def feed_pipeline(
    op: OperationContext, account: Account, name: str, collection: Collection | None, pipeline: list[Value]
) -> list[Value]:
    """The pipeline with which the change stream of a collection runs. collection: None if there is none.

    BadValue (2) for another pipeline than the one that Cosmos DB takes, unless the account allows it, NamespaceNotFound
    (26) without the collection, which cannot be allowed: the feed and its tokens are of one collection.
    """
    if account.refuses(BARE_WATCH):
        check_pipeline(pipeline)
    if collection is None:
        raise missing_collection(op.database, name)
    return without_operation_types(pipeline)


def open_change_feed(op: OperationContext, collection: Collection, specs: list[StageSpec]) -> ClientCursor:
    """A cursor of a pipeline that begins with `$changeStream`. IllegalOperation (20) for stages that may not follow."""
    feed = ChangeFeed(op, checked_spec(op, specs), collection)
    return stream_cursor(op, collection.namespace, feed, specs[1:])


class ChangeFeed(ChangeStream):
    """A change stream of one collection."""

    def __init__(self, op: OperationContext, spec: ChangeStreamSpec, collection: Collection) -> None:
        if spec.resume is not None:
            spec.resume = encode({"_data": position_of(spec.resume, collection.uuid)})
        spec.full_document = "updateLookup"
        super().__init__(op, spec, False)
        self._collection = collection
        # The position before the events that were read last.
        self._before = self.resume_data

    def next_events(self, op: OperationContext, most: int) -> list[bytes]:
        """The next events, no more than `most`. NamespaceNotFound (26) once the collection is dropped."""
        self._before = self.resume_data
        collection = self._collection
        # By their keys in the collection.
        latest: dict[bytes, bytes] = {}
        for event in super().next_events(op, most):
            kind = get_value(event, "operationType")
            if kind in _GONE:
                raise missing_collection(collection.database, collection.name)
            key = _key_of(collection, event)
            if key is None:
                continue  # gone
            latest.pop(key, None)
            if kind in _TOLD:
                latest[key] = event
        token = feed_token(collection.uuid, self.resume_data)
        made: list[bytes] = []
        for key, event in latest.items():
            record = express_record(op, collection, key)
            if record is not None:
                builder = DocumentBuilder()
                builder.append_named(b"_id", token)
                builder.append_named(b"fullDocument", record[1])
                builder.append_named(b"ns", get_value(event, "ns"))
                builder.append_named(b"documentKey", get_value(event, "documentKey"))
                made.append(builder.finish())
        return made

    def _watches(self, entry: OplogEntry) -> bool:
        """Not of changes of an earlier collection with this name."""
        return entry.change.uuid == self._collection.uuid and super()._watches(entry)

    def token(self, gave_all: bool, last_given: bytes) -> bytes:
        """A token of Cosmos DB's form; before the events that were read last while not all of them are given."""
        return feed_token(self._collection.uuid, self.resume_data if gave_all else self._before)


def missing_collection(database: str, name: str) -> CommandError:
    """NamespaceNotFound (26): change streams are of collections that exist. Its words are assumed."""
    return not_found(f"collection {database}.{name}")


def _key_of(collection: Collection, event: bytes) -> bytes | None:
    """The key by which the document of an event is found; None if that is gone.

    Where `_id` is only unique together with the shard key, that is in the document alone, which deletions do not have.
    """
    key = get_value(event, "documentKey")
    assert isinstance(key, bytes)
    found = express_key(collection, key)
    if found is None:
        document = get_value(event, "fullDocument")
        if isinstance(document, bytes):
            found = partition_key(collection, document)
    return found
