"""What an operation costs in request units: a small model, the same for the same operation over the same data.

    point read      1 RU for 1 KB, 10 RU for 100 KB, in a straight line between and beyond
    query           2.8 RU, and 1.5 RU for each index that it reads, 0.035 RU for each KB that it loads, 1 RU for each
                    KB that it returns
    insert          5.5 RU for each KB, rounded up
    replace, update twice an insert of the new document
    delete          an insert of the deleted document
    index entry     1 RU for each that is added or removed; those of `_id` cost nothing
    throttled       0.38 RU for each request or statement that is refused
    at least 1 RU for each request, but for pages of a cursor after the first: pages add up to the whole

The prices of queries are fitted to what accounts have charged; tests/drivers/cosmos/test_charges.py holds the model
against each record, and names those that it does not explain.

What a document costs that is read in order to be changed is part of the change; finding it by another path than its key
is a query. A count without a filter loads all documents, also those that have expired and are not purged yet, which
otherwise cost nothing; reading index entries alone costs no more than looking up. Metadata (collections, indexes) costs
nothing, nor do purges by TTL. All charges are whole numbers of hundredths of a unit.
"""

from typing import Final, NamedTuple

KB: Final = 1024
MB: Final = 1024 * KB


class Price(NamedTuple):
    """hundredths: of a request unit. source: who says so."""

    hundredths: int
    source: str


_COST: Final = "Microsoft's 'Optimize the cost of your requests in Azure Cosmos DB'"
POINT_READ: Final = Price(100, f"{_COST}: a point read of 1 KB is 1 RU")
LARGE_POINT_READ: Final = Price(1000, f"{_COST}: a point read of 100 KB is 10 RU")
_FITTED: Final = "recorded: fitted to charges that github.com/cjoakim/azure-cosmos-db shows of 2023"
QUERY: Final = Price(280, _FITTED)
INDEX_LOOKUP: Final = Price(150, _FITTED)
LOADED_MB: Final = Price(3584, f"{_FITTED}: 0.035 RU for a KB of a scan")
RETURNED_KB: Final = Price(100, f"{_COST}: 1,000 results of 1 KB are 1,000 RU")
INSERTED_KB: Final = Price(550, f"{_COST}: an insert of 1 KB without indexes is 5.5 RU")
REPLACED_KB: Final = Price(1100, f"{_COST}: a replace costs twice as much as an insert")
DELETED_KB: Final = Price(550, "assumed: as an insert")
INDEX_ENTRY: Final = Price(100, "assumed")
THROTTLED: Final = Price(38, "reported by users of spring-data-mongodb")
REQUEST: Final = Price(100, "assumed: nothing is cheaper than a point read")
MODEL: Final = {
    "pointRead": POINT_READ,
    "pointReadOf100KB": LARGE_POINT_READ,
    "query": QUERY,
    "indexLookup": INDEX_LOOKUP,
    "loadedMB": LOADED_MB,
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


def query(queries: int, lookups: int, loaded_bytes: int, returned_bytes: int) -> int:
    """Searching documents. queries: searches that begin. lookups: indexes that they read. loaded_bytes: of documents
    that are loaded, whether or not they match. returned_bytes: of results."""
    begun = queries * QUERY.hundredths + lookups * INDEX_LOOKUP.hundredths
    loaded = _rounded_up(loaded_bytes * LOADED_MB.hundredths, MB)
    return begun + loaded + _rounded_up(returned_bytes * RETURNED_KB.hundredths, KB)


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
