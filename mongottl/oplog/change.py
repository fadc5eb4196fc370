"""Changes: what one unit of work has done to a collection, described once by the write that does it.

    unit.record_updated(before, rows, driver) ──► Change            whole documents: for the timing wheel, the meter of
                                                     │              request units, the session of a retryable write
                                                  logged
                                                     ▼
    catalog.set_options(…) ──► catalog_change ──► LoggedChange      what change streams and `local.oplog.rs` need
                                                     │
                                                  described         updates as descriptions, with no documents
                                                     ▼
                                                  OplogEntry        (`entry`), stored and in memory

None of these objects is changed after it was made. There are many of them, and none refers to itself in a circle, so
Python's collector of cycles need not know them (`acyclic`).
"""

from collections.abc import Iterable
from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.catalog.change_kinds import DELETE, INSERT, NOOP, RENAME, UPDATE
from mongottl.catalog.collection import Collection
from mongottl.catalog.view import SYSTEM_VIEWS
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.splice import element, frame
from mongottl.document.types import Value
from mongottl.document.walk import find_field, get_value, skip_value
from mongottl.query.difference import NOT_AMBIGUOUS, difference
from mongottl.storage.stores import NewRecord

# The type and the name of `_id`, with its NUL.
_BEFORE_ID_VALUE: Final = 5
# The same of the last field of an update's description; how one ends whose paths are not ambiguous, as most are.
_PATHS: Final = b"disambiguatedPaths"
_BEFORE_PATHS_VALUE: Final = len(_PATHS) + 2
_NO_PATHS: Final = NOT_AMBIGUOUS + b"\0"
# Memory of each document of a change, in addition to its bytes.
_DOCUMENT_BYTES: Final = 100


@mypyc_attr(acyclic=True, free_list_len=1)
class Change:
    """What a unit of work does to documents of one collection.

    kind: INSERT, UPDATE or DELETE. before: the documents that are updated or deleted, as they were. rows: the records
    that are inserted, or stored by the update, in the order of `before`. replaced: whether the update replaces whole
    documents; touched: the paths that its modifiers name, None if it may change any. expired: how many of the deleted
    documents were expired.
    """

    def __init__(
        self,
        kind: int,
        collection: Collection,
        before: list[bytes],
        rows: list[NewRecord],
        replaced: bool = False,
        touched: tuple[str, ...] | None = None,
        expired: int = 0,
    ) -> None:
        self.kind: Final[int] = kind
        self.collection: Final = collection
        self.before: Final = before
        self.rows: Final = rows
        self.replaced: Final = replaced
        self.touched: Final = touched
        self.expired: Final[int] = expired


@mypyc_attr(acyclic=True)
class LoggedChange:
    """A change as the oplog has it, of documents, or of collections and indexes.

    kind: of `catalog.change_kinds`. database, collection, uuid: of the collection; "" and None where there is none.
    before, after: the documents of each operation; empty where a kind has none. replaced, touched: as in `Change`.
    descriptions: the `updateDescription` of each update that replaces nothing, with `disambiguatedPaths`. is_described:
    whether it has them, if it needs them; see `described`. whole: whether it keeps the documents of updates then.
    shard_field: the root field of the shard key, if `_id` is not unique without it, else empty. images: whether the
    collection keeps images. detail: of a change of collections or indexes.
    """

    def __init__(
        self,
        kind: int,
        database: str,
        collection: str,
        uuid: Value,
        before: tuple[bytes, ...] = (),
        after: tuple[bytes, ...] = (),
        replaced: bool = False,
        touched: tuple[str, ...] | None = None,
        descriptions: tuple[bytes, ...] = (),
        is_described: bool = True,
        whole: bool = False,
        shard_field: bytes = b"",
        images: bool = False,
        detail: Value = None,
    ) -> None:
        self.kind: Final[int] = kind
        self.database: Final = database
        self.collection: Final = collection
        self.uuid: Final = uuid
        self.before: Final = before
        self.after: Final = after
        self.replaced: Final = replaced
        self.touched: Final = touched
        self.descriptions: Final = descriptions
        self.is_described: Final = is_described
        self.whole: Final = whole
        self.shard_field: Final = shard_field
        self.images: Final = images
        self.detail: Final = detail

    @property
    def count(self) -> int:
        """How many operations it has."""
        return max(len(self.before), len(self.after), 1)

    def watched_as(self) -> list[str]:
        """The targets whose change streams may have an event of it: the deployment (""), databases, collections."""
        if self.kind == NOOP:
            return []
        watched = ["", self.database, f"{self.database}.{self.collection}"]
        if self.kind == RENAME:
            database, collection = self.renamed_to()
            watched += [database, f"{database}.{collection}"]
        return watched

    def renamed_to(self) -> tuple[str, str]:
        """The new database and name of the collection that it renames."""
        assert isinstance(self.detail, bytes)
        to = get_value(self.detail, "to")
        assert isinstance(to, bytes)
        return str(get_value(to, "db")), str(get_value(to, "coll"))

    def key_of(self, index: int) -> bytes:
        """`{_id}` of the document of an operation."""
        return _only_id(self.after[index] if index < len(self.after) else self.before[index])

    def described(self) -> "LoggedChange":
        """The change with its updates described, which takes time; itself if they are.

        Unless the documents are kept whole, `before` then has only their `_id`, and the shard key by which a stream
        finds the present document; and `after` only new documents that replace others.
        """
        if self.is_described:
            return self
        before = self.before
        after = self.after
        descriptions: tuple[bytes, ...] = ()
        if not self.replaced:
            pairs = range(len(before))
            descriptions = tuple([difference(before[i], after[i], self.touched).describe(True) for i in pairs])
        if not self.whole:
            before = tuple([_key(document, self.shard_field) for document in before])
            after = after if self.replaced else ()
        return LoggedChange(
            UPDATE,
            self.database,
            self.collection,
            self.uuid,
            before,
            after,
            self.replaced,
            None,
            descriptions,
            True,
            self.whole,
            self.shard_field,
            self.images,
        )

    def description(self, index: int, expanded: bool) -> bytes:
        """The `updateDescription` of an update, once it is `described`. expanded: with `disambiguatedPaths`."""
        whole = self.descriptions[index]
        if expanded:
            return whole
        if whole.endswith(_NO_PATHS):
            return frame(whole[4 : -len(_NO_PATHS)])
        _, paths = find_field(whole, _PATHS)
        return frame(whole[4 : paths - _BEFORE_PATHS_VALUE])

    def size_bytes(self) -> int:
        """Memory of its documents."""
        size = 0
        for document in self.before:
            size += len(document) + _DOCUMENT_BYTES
        for document in self.after:
            size += len(document) + _DOCUMENT_BYTES
        for document in self.descriptions:
            size += len(document) + _DOCUMENT_BYTES
        return size


def is_logged(collection: Collection, renamed: bool = False) -> bool:
    """Whether the writes of a collection are in the oplog: not the server's own, nor those of `$out` before its end.

    renamed: whether it is being renamed, which is the end of `$out`.
    """
    if collection.database in ("local", "config") or (collection.options.temporary and not renamed):
        return False
    return not collection.name.startswith("system.") or collection.name in (SYSTEM_VIEWS, "system.js")


def logged(change: Change) -> LoggedChange | None:
    """A change of documents for the oplog; None if it is not logged, as an update that has only changed `_ts`.

    Without images only the `_id` of what is deleted is kept, and of what is updated once that is `described`.
    """
    collection = change.collection
    if not is_logged(collection) or collection.time_series is not None:
        return None
    kind = change.kind
    images = collection.options.records_images
    # The events of views have the documents of `system.views`.
    whole = images or collection.name == SYSTEM_VIEWS
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()
    shard_field = b""
    if kind == INSERT:
        rows = change.rows
        after = (rows[0][0],) if len(rows) == 1 else tuple([row[0] for row in rows])
    elif kind == DELETE:
        before = tuple(change.before) if whole else only_ids(change.before)
    else:
        before, after = _changed_documents(change)
        if not before:
            return None
        if collection.shard_key is not None and not collection.shard_key.ids_are_unique:
            shard_field = collection.shard_key.path.part_bytes[0]
    return LoggedChange(
        kind,
        collection.database,
        collection.name,
        collection.uuid,
        before,
        after,
        change.replaced,
        change.touched,
        (),
        kind != UPDATE,
        whole,
        shard_field,
        images,
    )


def _changed_documents(change: Change) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The documents before and after an update, without those of which it has changed only `_ts`."""
    old = change.before
    rows = change.rows
    if len(rows) == 1:
        new = rows[0][0]
        return ((), ()) if old[0] == new else ((old[0],), (new,))
    changed = [index for index in range(len(rows)) if old[index] != rows[index][0]]
    return tuple([old[index] for index in changed]), tuple([rows[index][0] for index in changed])


def catalog_change(kind: int, collection: Collection, detail: Value) -> LoggedChange | None:
    """A change of a collection or its indexes for the oplog; None if it is not logged. detail: see `change_kinds`."""
    if not is_logged(collection, kind == RENAME):
        return None
    return LoggedChange(kind, collection.database, collection.name, collection.uuid, detail=detail)


def no_operation(detail: bytes = EMPTY_DOCUMENT) -> LoggedChange:
    """An entry of the oplog without an operation. detail: its `o`."""
    return LoggedChange(NOOP, "", "", None, detail=detail)


def only_ids(documents: Iterable[bytes]) -> tuple[bytes, ...]:
    """`{_id}` of each document."""
    return tuple([_only_id(document) for document in documents])


def _key(document: bytes, shard_field: bytes) -> bytes:
    """`{_id}` of a document, with the root field of the shard key if it is given."""
    if not shard_field or shard_field == b"_id":
        return _only_id(document)
    type_code, value = find_field(document, shard_field)
    if type_code == 0:
        return _only_id(document)
    found = element(type_code, shard_field, document[value : skip_value(document, type_code, value)])
    return frame(_only_id(document)[4:-1] + found)


def _only_id(document: bytes) -> bytes:
    """`{_id}` of a document, its bytes as they are: this runs for each document that is deleted. Empty without one."""
    type_code, value = find_field(document, b"_id")
    if type_code == 0:
        return EMPTY_DOCUMENT
    return frame(document[value - _BEFORE_ID_VALUE : skip_value(document, type_code, value)])
