"""What an operation costs in request units: a small model, the same for the same operation over the same data.

    point read      1 RU for 1 KB, 10 RU for 100 KB, in a straight line between and beyond
    query           half a unit for each KB that it loads, half a unit for each KB that it returns
    insert          5.5 RU for each KB, rounded up
    replace, update twice an insert of the new document
    delete          an insert of the deleted document
    index entry     1 RU for each that is added or removed; those of `_id` cost nothing
    throttled       0.38 RU for each request or statement that is refused
    at least 1 RU for each request, but for pages of a cursor after the first: pages add up to the whole

What a document costs that is read in order to be changed is part of the change. A count without a filter loads all
documents, also those that have expired and are not purged yet, which otherwise cost nothing; reading index entries
alone costs nothing. Metadata (collections, indexes) costs nothing, nor do purges by TTL. All charges are whole numbers
of hundredths of a unit.
"""

from typing import Final, NamedTuple

KB: Final = 1024


class Price(NamedTuple):
    """hundredths: of a request unit. source: who says so."""

    hundredths: int
    source: str


_COST: Final = "Microsoft's 'Optimize the cost of your requests in Azure Cosmos DB'"
POINT_READ: Final = Price(100, f"{_COST}: a point read of 1 KB is 1 RU")
LARGE_POINT_READ: Final = Price(1000, f"{_COST}: a point read of 100 KB is 10 RU")
LOADED_KB: Final = Price(50, "assumed: half of what 1,000 results of 1 KB cost, 1,000 RU, in the same article")
RETURNED_KB: Final = Price(50, "assumed: the other half; a count costs as much as a scan, as users report")
INSERTED_KB: Final = Price(550, f"{_COST}: an insert of 1 KB without indexes is 5.5 RU")
REPLACED_KB: Final = Price(1100, f"{_COST}: a replace costs twice as much as an insert")
DELETED_KB: Final = Price(550, "assumed: as an insert")
INDEX_ENTRY: Final = Price(100, "assumed")
THROTTLED: Final = Price(38, "reported by users of spring-data-mongodb")
REQUEST: Final = Price(100, "assumed: nothing is cheaper than a point read")
MODEL: Final = {
    "pointRead": POINT_READ,
    "pointReadOf100KB": LARGE_POINT_READ,
    "loadedKB": LOADED_KB,
    "returnedKB": RETURNED_KB,
    "insertedKB": INSERTED_KB,
    "replacedKB": REPLACED_KB,
    "deletedKB": DELETED_KB,
    "indexEntry": INDEX_ENTRY,
    "throttled": THROTTLED,
    "request": REQUEST,
}


def point_read(size_bytes: int) -> int:
    """Reading one document by its `_id`."""
    if size_bytes <= KB:
        return POINT_READ.hundredths
    rise = LARGE_POINT_READ.hundredths - POINT_READ.hundredths
    return POINT_READ.hundredths + _rounded_up((size_bytes - KB) * rise, 99 * KB)


def query(loaded_bytes: int, returned_bytes: int) -> int:
    """Loading documents, whether or not they match, and returning results."""
    return _rounded_up(loaded_bytes * LOADED_KB.hundredths + returned_bytes * RETURNED_KB.hundredths, KB)


def insert(size_bytes: int, index_entries: int) -> int:
    """Inserting a document. index_entries: those that are added, without that of `_id`."""
    return _kilobytes(size_bytes) * INSERTED_KB.hundredths + index_entries * INDEX_ENTRY.hundredths


def replace(size_bytes: int, index_entries: int) -> int:
    """Changing a document. size_bytes: of the new one. index_entries: those that are added or removed."""
    return _kilobytes(size_bytes) * REPLACED_KB.hundredths + index_entries * INDEX_ENTRY.hundredths


def delete(size_bytes: int, index_entries: int) -> int:
    """Deleting a document. index_entries: those that are removed, without that of `_id`."""
    return _kilobytes(size_bytes) * DELETED_KB.hundredths + index_entries * INDEX_ENTRY.hundredths


def _kilobytes(size_bytes: int) -> int:
    return _rounded_up(size_bytes, KB)


def _rounded_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
