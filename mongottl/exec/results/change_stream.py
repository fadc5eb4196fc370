"""Change streams: events made of the entries of the oplog, through the stages that follow, to a cursor that waits.

    oplog ──► ChangeStream.next_events ──► $match, $project, … ──► StreamPages ──► the cursor's pages

A stream remembers the number of the entry that it reads next, and the operation in it. It ends with an `invalidate`
event when what it watches is gone. Source: MongoDB's "Change Events".
"""

from typing import Final

from mongottl.catalog import change_kinds as kinds
from mongottl.catalog.collection import Collection
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import Date, Int64, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation import oplog as log
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.oplog import OPLOG_NUMBER, Oplog, OplogEntry
from mongottl.exec.plan.express import express_key, express_record
from mongottl.exec.results.aggregation import OperationRun
from mongottl.exec.results.cursors import ClientCursor, Page, PageSource, Tail
from mongottl.exec.results.reading import Pull
from mongottl.exec.results.resume_token import event_token, high_water_mark, parse_token
from mongottl.query.pipeline.change_stream import ChangeStreamSpec, check_following
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.pipeline.stage import StageSpec, open_pipeline
from mongottl.query.update.difference import difference

# Events that one step makes.
_EVENTS_AT_ONCE: Final = 256
_KINDS: Final = {
    log.INSERT: "insert",
    log.DELETE: "delete",
    kinds.CREATE: "create",
    kinds.DROP: "drop",
    kinds.RENAME: "rename",
    kinds.DROP_DATABASE: "dropDatabase",
    kinds.CREATE_INDEXES: "createIndexes",
    kinds.DROP_INDEXES: "dropIndexes",
    kinds.MODIFY: "modify",
}
_EXPANDED: Final = (kinds.CREATE, kinds.CREATE_INDEXES, kinds.DROP_INDEXES, kinds.MODIFY)


class ChangeStream:
    """The position of one stream in the oplog.

    resume_data: the `_data` of the token with which to go on behind all that was read. ended: whether the stream has
    given its `invalidate` event.
    """

    def __init__(self, op: OperationContext, spec: ChangeStreamSpec) -> None:
        self._spec = spec
        self.ended = False
        self._index = 0
        # Whether the operation at the position has been told, but not the invalidation that follows it.
        self._invalidates = False
        oplog = op.service.oplog
        written = op.service.cluster_clock.operation_time
        if spec.resume is not None:
            self._resume(oplog, spec.resume)
        elif spec.start_at is not None:
            at = (spec.start_at.time, spec.start_at.inc)
            _check_history(oplog, at, False)
            self._number = oplog.number_at(at)
            self.resume_data = high_water_mark(*at)
        else:
            self._number = oplog.end
            self.resume_data = high_water_mark(written.time, written.inc + 1)

    def _resume(self, oplog: Oplog, token: bytes) -> None:
        point = parse_token(token)
        if point.invalidates and not self._spec.starts_after:
            raise CommandError(
                ErrorCode.InvalidResumeToken,
                "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate"
                " notification.",
            )
        at = (point.at.time, point.at.inc)
        _check_history(oplog, at, point.is_event)
        self._number = oplog.number_at(at)
        self.resume_data = str(get_value(token, "_data"))
        if not point.is_event:
            return
        while self._number < oplog.end:
            entry = oplog.entry(self._number)
            if (entry.at_s, entry.at_i) != at:
                break
            if point.operation < entry.first_index + entry.count:
                self._index = point.operation - entry.first_index
                self._invalidates = not point.invalidates and self._invalidation(entry)
                if not self._invalidates:
                    self._step(entry)
                break
            self._number += 1

    def _step(self, entry: OplogEntry) -> None:
        self._index += 1
        if self._index >= entry.count:
            self._number += 1
            self._index = 0

    def next_events(self, op: OperationContext) -> list[bytes]:
        """The next events; empty if there are none yet. ChangeStreamHistoryLost (286)."""
        oplog = op.service.oplog
        if self._number < oplog.first:
            raise _history_lost()
        events: list[bytes] = []
        examined = 0
        while self._number < oplog.end and not self.ended and examined < _EVENTS_AT_ONCE:
            entry = oplog.entry(self._number)
            examined += 1
            if not self._watches(entry):
                self._number += 1
                self._index = 0
                self.resume_data = high_water_mark(entry.at_s, entry.at_i + 1)
                continue
            if self._invalidates:
                self.ended = True
                events.append(self._event(op, entry, True))
                break
            events.append(self._event(op, entry, False))
            self._invalidates = self._invalidation(entry)
            if not self._invalidates:
                self._step(entry)
        return events

    def has_more(self, op: OperationContext) -> bool:
        return self._number < op.service.oplog.end and not self.ended

    def _watches(self, entry: OplogEntry) -> bool:
        spec = self._spec
        if entry.kind in _EXPANDED and not spec.expanded:
            return False
        if not spec.database:
            return entry.database not in ("admin", "config", "local")
        if entry.kind == kinds.RENAME:
            database, _, collection = str(entry.detail).partition(".")
            if database == spec.database and spec.collection in ("", collection):
                return True
        if entry.database != spec.database:
            return False
        return not spec.collection or spec.collection == entry.collection

    def _invalidation(self, entry: OplogEntry) -> bool:
        """Whether what the stream watches is gone with this entry."""
        spec = self._spec
        if spec.collection:
            return entry.kind in (kinds.DROP, kinds.RENAME)
        return bool(spec.database) and entry.kind == kinds.DROP_DATABASE

    def _event(self, op: OperationContext, entry: OplogEntry, invalidate: bool) -> bytes:
        kind = entry.kind
        index = self._index
        spec = self._spec
        document = entry.after[index] if index < len(entry.after) else b""
        before = entry.before[index] if index < len(entry.before) else b""
        key = b""
        if kind in (log.INSERT, log.UPDATE, log.DELETE):
            key = encode({"_id": get_value(document or before, "_id")})
        uuid = None if kind == kinds.DROP_DATABASE else entry.uuid
        self.resume_data = event_token(
            entry.at_s, entry.at_i, entry.first_index + index, invalidate, uuid, key or encode({"o": kind})
        )
        name = _KINDS.get(kind, "")
        replaced = entry.replaced
        if kind == log.UPDATE:
            name = "replace" if replaced else "update"
        event: list[tuple[str, Value]] = [
            ("_id", encode({"_data": self.resume_data})),
            ("operationType", "invalidate" if invalidate else name),
            ("clusterTime", entry.at),
        ]
        if spec.expanded and not invalidate and uuid is not None:
            event.append(("collectionUUID", uuid))
        event.append(("wallTime", Date(entry.wall_ms)))
        if entry.lsid is not None:
            event += [("txnNumber", Int64(entry.txn_number)), ("lsid", entry.lsid)]
        if invalidate:
            return encode_fields(event)
        if kind == log.INSERT or replaced:
            event.append(("fullDocument", document))
        elif kind == log.UPDATE:
            self._add_full_document(op, entry, key, document, event)
        namespace: list[tuple[str, Value]] = [("db", entry.database)]
        if kind != kinds.DROP_DATABASE:
            namespace.append(("coll", entry.collection))
        event.append(("ns", encode_fields(namespace)))
        if key:
            event.append(("documentKey", key))
        if kind == log.UPDATE and not replaced:
            event.append(("updateDescription", difference(before, document, entry.touched).describe(spec.expanded)))
        if before and spec.before_change != "off":
            self._add_before_change(entry, before, event)
        self._add_detail(entry, event)
        return encode_fields(event)

    def _add_detail(self, entry: OplogEntry, event: list[tuple[str, Value]]) -> None:
        """What is told of a change of collections and indexes."""
        if entry.kind == kinds.RENAME:
            database, _, collection = str(entry.detail).partition(".")
            to = encode({"db": database, "coll": collection})
            event.append(("to", to))
            if self._spec.expanded:
                event.append(("operationDescription", encode({"to": to})))
        elif entry.detail is not None:
            event.append(("operationDescription", entry.detail))
        if entry.kind == kinds.CREATE:
            event.append(("nsType", "collection"))

    def _add_full_document(
        self,
        op: OperationContext,
        entry: OplogEntry,
        key: bytes,
        document: bytes,
        event: list[tuple[str, Value]],
    ) -> None:
        wanted = self._spec.full_document
        if wanted == "updateLookup":
            event.append(("fullDocument", _current(op, entry, key)))
        elif wanted != "default":
            if not entry.images and wanted == "required":
                raise _no_image("post", "fullDocument")
            event.append(("fullDocument", document if entry.images else None))

    def _add_before_change(self, entry: OplogEntry, before: bytes, event: list[tuple[str, Value]]) -> None:
        if not entry.images and self._spec.before_change == "required":
            raise _no_image("pre", "fullDocumentBeforeChange")
        event.append(("fullDocumentBeforeChange", before if entry.images else None))


def _check_history(oplog: Oplog, at: tuple[int, int], is_event: bool) -> None:
    """ChangeStreamHistoryLost (286) if entries behind a starting point are gone."""
    if at < oplog.floor or (at == oplog.floor and not is_event):
        raise _history_lost()


def _history_lost() -> CommandError:
    return CommandError(
        ErrorCode.ChangeStreamHistoryLost,
        "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
    )


def _no_image(which: str, option: str) -> CommandError:
    return CommandError(
        ErrorCode.NoMatchingDocument,
        f"Change stream was configured to require a {which}-image for all update, delete and replace events"
        f" ({option}: 'required'), but the {which}-image was not found for an event",
    )


def _current(op: OperationContext, entry: OplogEntry, key: bytes) -> Value:
    """The document of a key as it is now, or null."""
    collection = op.catalog.find(entry.database, entry.collection)
    if not isinstance(collection, Collection) or collection.uuid != entry.uuid:
        return None
    found = express_key(collection, key)
    record = None if found is None else express_record(op, collection, found)
    return None if record is None else record[1]


class _Head(DocumentSource):
    """The events that the next stages take now."""

    def __init__(self) -> None:
        self.events: list[bytes] = []

    def next_batch(self) -> list[bytes] | None:
        if not self.events:
            return None
        events = self.events
        self.events = []
        return events


class StreamPages(PageSource):
    """Pages of a change stream. waiting: events that did not fit into the last page."""

    def __init__(self, op: OperationContext, spec: ChangeStreamSpec, rest: list[StageSpec]) -> None:
        self.stream = ChangeStream(op, spec)
        self._pull = Pull(op, True, False)
        self._head = _Head()
        run = OperationRun(self._pull, None, rest, set(), None)
        self._documents = open_pipeline(rest, self._head, run)
        self._changes_events = bool(rest)
        self._waiting: list[bytes] = []
        self._position = 0
        self._last_given = ""

    def fill(self, op: OperationContext, page: Page) -> bool:
        self._pull.op = op
        if self._position >= len(self._waiting):
            self._head.events = self.stream.next_events(op)
            tokens = {get_value(event, "_id") for event in self._head.events} if self._changes_events else set()
            self._waiting = []
            self._position = 0
            while (batch := self._documents.next_batch()) is not None:
                self._waiting += batch
            if self._changes_events and any(get_value(event, "_id") not in tokens for event in self._waiting):
                raise CommandError(
                    ErrorCode.ChangeStreamFatalError,
                    "Encountered an event whose _id field, which contains the resume token, was modified by the"
                    " pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that"
                    " point. Only transformations that retain the unmodified _id field are allowed.",
                )
        while self._position < len(self._waiting):
            event = self._waiting[self._position]
            if not page.add(event):
                return True
            self._position += 1
            token = get_value(event, "_id")
            self._last_given = str(get_value(token, "_data")) if isinstance(token, bytes) else ""
        return self.stream.has_more(op)

    def resume_data(self) -> str:
        """The `_data` of the token behind all that the pages so far have given or left out."""
        return self._last_given if self._position < len(self._waiting) else self.stream.resume_data


class StreamTail(Tail):
    """The state of a change stream's cursor: it waits for the oplog, and is closed behind an `invalidate`."""

    def __init__(self, pages: StreamPages) -> None:
        super().__init__(OPLOG_NUMBER, True)
        self._pages = pages

    @property
    def is_dead(self) -> bool:
        return self._pages.stream.ended

    def resume_data(self) -> str:
        return self._pages.resume_data()


def open_change_stream(op: OperationContext, namespace: str, specs: list[StageSpec]) -> ClientCursor:
    """A cursor of a pipeline that begins with `$changeStream`. IllegalOperation (20) for stages that may not follow."""
    spec = specs[0]
    assert isinstance(spec, ChangeStreamSpec)
    check_following(specs[1:])
    pages = StreamPages(op, spec, specs[1:])
    cursor = ClientCursor(namespace, pages, op.session_key, op.service.clock.monotonic_s())
    cursor.tail = StreamTail(pages)
    cursor.outlives_collection = True
    return cursor
