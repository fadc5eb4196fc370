"""Builds the events of a change stream from entries of the oplog.

    {_id: {_data: <resume token>}, operationType, clusterTime, [collectionUUID], wallTime, [txnNumber, lsid],
     [fullDocument], ns, [nsType], [to], [documentKey], [updateDescription], [fullDocumentBeforeChange],
     [operationDescription], [stateBeforeChange]}

Documents, keys and descriptions are copied into the event as the entry has them, undecoded. Views are documents of
`system.views`: events of writes there are those of the views.

Source: MongoDB's "Change Events".
"""

import struct
from typing import Final

from mongottl.catalog import change_kinds as kinds
from mongottl.catalog.collection import Collection
from mongottl.catalog.view import SYSTEM_VIEWS
from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.splice import element
from mongottl.document.types import MISSING, TIMESTAMP, Date, Int64, Value
from mongottl.document.walk import ElementCursor, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.express import express_key, express_record, partition_key
from mongottl.exec.results.resume_token import EventIdentity, token_document, token_of
from mongottl.oplog.change import LoggedChange
from mongottl.oplog.entry import OplogEntry
from mongottl.query.pipeline.change_stream import ChangeStreamSpec

_pack_time: Final = struct.Struct("<II").pack
_TYPES: Final = {
    kinds.INSERT: "insert",
    kinds.UPDATE: "update",
    kinds.DELETE: "delete",
    kinds.CREATE: "create",
    kinds.DROP: "drop",
    kinds.RENAME: "rename",
    kinds.DROP_DATABASE: "dropDatabase",
    kinds.CREATE_INDEXES: "createIndexes",
    kinds.DROP_INDEXES: "dropIndexes",
    kinds.MODIFY: "modify",
}
# Of writes to `system.views`.
_VIEW_TYPES: Final = {kinds.INSERT: "create", kinds.UPDATE: "modify", kinds.DELETE: "drop"}
_INTERNAL: Final = ("admin", "config", "local")
# Only with `showExpandedEvents`.
_EXPANDED: Final = (kinds.CREATE, kinds.CREATE_INDEXES, kinds.DROP_INDEXES, kinds.MODIFY)


def is_watched(spec: ChangeStreamSpec, change: LoggedChange) -> bool:
    """Whether a stream has events of a change, and in that case of all its operations."""
    if change.kind == kinds.NOOP:
        return False
    if change.kind in _EXPANDED and not spec.expanded:
        return False
    if not spec.database:
        return change.database not in _INTERNAL and _is_shown(spec, change)
    if change.kind == kinds.RENAME and _is_renamed_to(change, spec.database, spec.collection):
        return True
    if change.database != spec.database:
        return False
    return spec.collection == change.collection if spec.collection else _is_shown(spec, change)


def _is_shown(spec: ChangeStreamSpec, change: LoggedChange) -> bool:
    """Whether a stream that is not on one collection has events for the collection of a change."""
    if not change.collection.startswith("system."):
        return True
    return spec.system_events or (spec.expanded and _is_of_view(change))


def _is_of_view(change: LoggedChange) -> bool:
    return change.collection == SYSTEM_VIEWS and change.kind in _VIEW_TYPES


def _is_renamed_to(change: LoggedChange, database: str, collection: str) -> bool:
    """Whether the new name of a renamed collection is the given one; for collection "", whether it is in a database."""
    to = change.renamed_to()
    return to[0] == database and collection in ("", to[1])


def _invalidates(spec: ChangeStreamSpec, change: LoggedChange) -> bool:
    """Whether what the stream watches is gone with a change that it has events of."""
    if spec.collection:
        return change.kind in (kinds.DROP, kinds.RENAME)
    return bool(spec.database) and change.kind == kinds.DROP_DATABASE


class EntryEvents:
    """Makes the events of one entry, whose change is `described`, for one stream.

    count: its operations. invalidates: whether an `invalidate` event follows. data: the `_data` of the latest token.
    """

    def __init__(self, spec: ChangeStreamSpec, entry: OplogEntry) -> None:
        change = entry.change
        self.invalidates = _invalidates(spec, change)
        self.count: int = change.count
        # The document key of the latest operation, and which one that was.
        self._latest_key = b""
        self._latest_index: int = -1
        self.data = ""
        self._spec = spec
        self._entry = entry
        self._change = change
        self._of_view = _is_of_view(change) and not spec.system_events
        kind = _TYPES[change.kind]
        if self._of_view:
            kind = _VIEW_TYPES[change.kind]
        elif change.kind == kinds.UPDATE and change.replaced:
            kind = "replace"
        self._kind = kind
        self._uuid: Value = None if change.kind == kinds.DROP_DATABASE or self._of_view else change.uuid
        self._is_write = change.kind in (kinds.INSERT, kinds.UPDATE, kinds.DELETE) and not self._of_view
        member = "documentKey"
        if not self._is_write:
            member = "operationDescription"
            if change.detail is None and not (self._of_view and change.kind != kinds.DELETE):
                member = ""
        self._identity = EventIdentity(entry.at_s, entry.at_i, kind, self._uuid, member)
        self._head: bytes = self._elements_of_all(kind, True)
        namespace: list[tuple[str, Value]] = [("db", change.database)]
        if change.kind != kinds.DROP_DATABASE:
            namespace.append(("coll", change.collection))
        self._namespace: bytes = encode({"ns": encode_fields(namespace)})[4:-1]

    def identity(self, index: int, invalidate: bool) -> bytes:
        """What identifies an event, or the invalidation that follows it. index: of its operation in the entry."""
        found = self._identity.of(self._entry.first_index + index, invalidate, self._identifier(index))
        self.data = token_of(found)
        return found

    def _identifier(self, index: int) -> Value:
        if self._is_write:
            return self._key(index)
        return _view_options(self._view(index)) if self._of_view else self._description()

    def _key(self, index: int) -> bytes:
        if index != self._latest_index:
            self._latest_index = index
            self._latest_key = self._change.key_of(index)
        return self._latest_key

    def _view(self, index: int) -> bytes:
        """The document of `system.views`."""
        return self._after(index) or self._before(index)

    def _after(self, index: int) -> bytes:
        after = self._change.after
        return after[index] if index < len(after) else b""

    def _before(self, index: int) -> bytes:
        before = self._change.before
        return before[index] if index < len(before) else b""

    def _description(self) -> Value:
        """The `operationDescription` of a change of collections and indexes; None if it has none."""
        detail = self._change.detail
        if self._change.kind == kinds.MODIFY:
            assert isinstance(detail, bytes)
            return get_value(detail, "operationDescription")
        return detail

    def _elements_of_all(self, kind: str, of_operation: bool) -> bytes:
        """The elements that all events of the entry have after their token. kind: their `operationType`."""
        entry = self._entry
        head = DocumentBuilder()
        head.append_named(b"operationType", kind)
        head.append_raw_element(element(TIMESTAMP, b"clusterTime", _pack_time(entry.at_i, entry.at_s)))
        if self._spec.expanded and of_operation and self._uuid is not None:
            head.append_named(b"collectionUUID", self._uuid)
        if self._spec.wall_time:
            head.append_named(b"wallTime", Date(entry.wall_ms))
        if entry.lsid is not None:
            head.append_named(b"txnNumber", Int64(entry.txn_number))
            head.append_named(b"lsid", entry.lsid)
        return head.finish()[4:-1]

    def _begin_event(self, index: int, invalidate: bool) -> DocumentBuilder:
        """An event with its token."""
        self.identity(index, invalidate)
        event = DocumentBuilder()
        event.append_named(b"_id", token_document(self.data))
        return event

    def invalidate(self, index: int) -> bytes:
        """The event that ends the stream."""
        event = self._begin_event(index, True)
        event.append_raw_element(self._elements_of_all("invalidate", False))
        return event.finish()

    def event(self, op: OperationContext, index: int) -> bytes:
        """The event of an operation. NoMatchingDocument (47) if an image is required and not there."""
        event = self._begin_event(index, False)
        event.append_raw_element(self._head)
        if self._of_view:
            self._add_view(self._view(index), event)
        elif self._is_write:
            self._add_write(op, index, event)
        else:
            self._add_change(event)
        return event.finish()

    def _add_change(self, event: DocumentBuilder) -> None:
        """Adds what is special of a change of collections or indexes."""
        change = self._change
        event.append_raw_element(self._namespace)
        description = self._description()
        if change.kind == kinds.CREATE:
            series = isinstance(description, bytes) and get_value(description, "timeseries") is not MISSING
            event.append_named(b"nsType", "timeseries" if series else "collection")
        if change.kind == kinds.RENAME:
            assert isinstance(description, bytes)
            event.append_named(b"to", get_value(description, "to"))
        if description is not None and self._spec.expanded:
            event.append_named(b"operationDescription", description)
        if change.kind == kinds.MODIFY:
            assert isinstance(change.detail, bytes)
            event.append_named(b"stateBeforeChange", get_value(change.detail, "stateBeforeChange"))

    def _add_view(self, view: bytes, event: DocumentBuilder) -> None:
        """Adds what is special of a change of a view."""
        database, _, name = str(get_value(view, "_id")).partition(".")
        event.append_named(b"ns", encode({"db": database, "coll": name}))
        kind = self._change.kind
        if kind == kinds.INSERT:
            event.append_named(b"nsType", "view")
        if kind != kinds.DELETE:
            event.append_named(b"operationDescription", _view_options(view))

    def _add_write(self, op: OperationContext, index: int, event: DocumentBuilder) -> None:
        """Adds what is special of a change of a document."""
        spec = self._spec
        change = self._change
        document = self._after(index)
        before = self._before(index)
        key = self._key(index)
        updated = change.kind == kinds.UPDATE and not change.replaced
        if updated:
            self._add_full_document(op, key, document, before, event)
        elif change.kind != kinds.DELETE:
            event.append_named(b"fullDocument", document)
        event.append_raw_element(self._namespace)
        event.append_named(b"documentKey", key)
        if updated:
            event.append_named(b"updateDescription", change.description(index, spec.disambiguates))
        if before and spec.before_change != "off":
            kept = self._has_images(op)
            if not kept and spec.before_change == "required":
                raise _no_image("pre", "fullDocumentBeforeChange")
            event.append_named(b"fullDocumentBeforeChange", before if kept else None)

    def _has_images(self, op: OperationContext) -> bool:
        """Whether the collection kept images, and they are not older than `preAndPostImages.expireAfterSeconds`."""
        return self._change.images and op.service.cluster_parameters.has_image(self._entry.wall_ms, op.now_ms)

    def _add_full_document(
        self, op: OperationContext, key: bytes, document: bytes, before: bytes, event: DocumentBuilder
    ) -> None:
        wanted = self._spec.full_document
        if wanted == "updateLookup":
            event.append_named(b"fullDocument", _current(op, self._change, key, document or before))
        elif wanted != "default":
            kept = self._has_images(op)
            if not kept and wanted == "required":
                raise _no_image("post", "fullDocument")
            event.append_named(b"fullDocument", document if kept else None)


def _view_options(view: bytes) -> bytes:
    """The options of a view in its events: its document without `_id`."""
    options = DocumentBuilder()
    cursor = ElementCursor(view, 0)
    while cursor.next():
        if not cursor.name_is(b"_id"):
            options.append_raw_element(cursor.raw_element())
    return options.finish()


def _no_image(which: str, option: str) -> CommandError:
    return CommandError(
        ErrorCode.NoMatchingDocument,
        f"Change stream was configured to require a {which}-image for all update, delete and replace events"
        f" ({option}: 'required'), but the {which}-image was not found for an event",
    )


def _current(op: OperationContext, change: LoggedChange, key: bytes, document: bytes) -> Value:
    """The document of a key as it is now, or null. document: an earlier version of it, or its key with the shard key's
    field."""
    collection = op.catalog.find(change.database, change.collection)
    if not isinstance(collection, Collection) or collection.uuid != change.uuid:
        return None
    found = express_key(collection, key) or partition_key(collection, document)
    record = None if found is None else express_record(op, collection, found)
    return None if record is None else record[1]
