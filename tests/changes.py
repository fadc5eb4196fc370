"""Changes and entries of the oplog for tests that have no server."""

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.change_kinds import DELETE, INSERT, UPDATE
from mongottl.catalog.collection import Collection
from mongottl.document.types import BinData, Value
from mongottl.document.walk import get_value
from mongottl.oplog.change import Change, LoggedChange
from mongottl.oplog.entry import OplogEntry, TransactionPart
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import NewRecord
from mongottl.ttl.policy import NEVER

UUID = BinData(bytes(range(16)), 4)
COLLECTION: Collection = Catalog(open_engine("memory:")).create_collection("d", "c")


def rows_of(*documents: bytes) -> list[NewRecord]:
    return [(document, 0, NEVER) for document in documents]


def inserted(*documents: bytes) -> Change:
    return Change(INSERT, COLLECTION, [], rows_of(*documents))


def updated(before: bytes, after: bytes) -> Change:
    return Change(UPDATE, COLLECTION, [before], rows_of(after))


def deleted(*documents: bytes) -> Change:
    return Change(DELETE, COLLECTION, list(documents), [])


def entry_of(
    change: LoggedChange, second: int = 5, increment: int = 1, part: TransactionPart | None = None
) -> OplogEntry:
    """The entry of a change at a second of both clocks."""
    return OplogEntry(change, second, increment, second * 1000, part)


def insert_entry(second: int, documents: list[bytes], uuid: Value = UUID) -> OplogEntry:
    return entry_of(LoggedChange(INSERT, "d", "c", uuid, after=tuple(documents)), second)


def id_of(entry: OplogEntry, index: int = 0) -> Value:
    """The `_id` of the document of an operation."""
    return get_value(entry.change.key_of(index), "_id")


def update_change(before: bytes, after: bytes, replaced: bool = False, whole: bool = False) -> LoggedChange:
    return LoggedChange(
        UPDATE, "d", "c", UUID, (before,), (after,), replaced, is_described=False, whole=whole, images=whole
    )
