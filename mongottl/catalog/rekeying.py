"""Rebuilds the keys of collated indexes when the server starts with another version of ICU.

The keys of a collated index contain ICU's sort keys, and those of two versions cannot be compared. So the catalog
stores with such an index the version of ICU that made its keys. (mongod refuses to start in that case.)
"""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.storage.errors import DataDirectoryError, DuplicateKey
from mongottl.storage.interface import StorageEngine

_RECORDS_AT_ONCE = 1000
_BYTES_AT_ONCE = 16 << 20


def rekey(engine: StorageEngine, collection: Collection, index: CollectionIndex, ident: str) -> None:
    """Fills new sorted data with the collection's keys, sets it as that of the index, and drops the old. Inside a unit
    of work. ident: of the new data.

    DataDirectoryError if two records have the same key in a unique index under this version.
    """
    data = engine.create_sorted_data(ident, index.sorted_data.unique, collection.store.ident)
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
