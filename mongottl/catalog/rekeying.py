"""Index keys whose strings another version of ICU has ordered: they are made anew when the server starts.

The keys of a collated index are ICU's, and those of two versions do not compare. So the catalogue keeps with such an
index the version that made its keys. (mongod refuses to start in that case.)
"""

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.storage.interface import DataDirectoryError, DuplicateKey, StorageEngine

_RECORDS_AT_ONCE = 1000
_BYTES_AT_ONCE = 16 << 20


def rekey(engine: StorageEngine, collection: Collection, index: IndexEntry, ident: str) -> None:
    """Fills new sorted data under this ident with the collection's keys, and gives it to the index. Inside a unit of
    work; the old data is dropped.

    DataDirectoryError where two records have the same key in a unique index now.
    """
    assert index.data is not None
    data = engine.create_sorted_data(ident, index.data.unique)
    after = 0
    more = True
    while more:
        records, more = collection.store.scan(after, _RECORDS_AT_ONCE, True, _BYTES_AT_ONCE)
        if records:
            after = records[-1][0]
        try:
            data.insert([(key, record[0]) for record in records for key in index.keys_of(record[1])])
        except DuplicateKey as error:
            raise DataDirectoryError(
                f"two documents of {collection.namespace} have the same key in its index {index.name}, by the collation"
                " of the ICU that is installed: start with the ICU that made the data, and drop the index or one of"
                " the documents"
            ) from error
    engine.drop_ident(index.ident)
    index.ident = ident
    index.data = data
