"""The catalog as the engine stores it: what its catalog entries say.

    "17"       a collection (`Collection.entry_document`), by its number
    "clock"    …and every other name: an entry of the server itself

It is read at start, after a saved state was restored, and by `mongottl check`.
"""

from typing import Final

from mongottl.catalog.array_paths import ARRAYS_SOMEWHERE, ArrayPaths
from mongottl.catalog.collection import Collection, CollectionIndex, record_store_ident
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.options import CollectionOptions
from mongottl.document.types import BinData, Value
from mongottl.document.walk import fields_by_name, get_value
from mongottl.errors import CommandError
from mongottl.query.icu import icu_version
from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import SortedDataInterface

# The record store of `exec.sessions.stored_sessions`, which belongs to no collection.
SESSIONS_IDENT: Final = "sessions"
# How the idents of the stored oplog begin (`oplog.rows`).
OPLOG_IDENT: Final = "oplog-"


def collection_key(number: int) -> str:
    """The key of the entry of a collection."""
    return str(number)


def is_collection_key(key: str) -> bool:
    """Whether an entry is that of a collection, rather than of the server itself."""
    return key.isdigit()


def collection_entries(engine: StorageEngine) -> tuple[dict[str, bytes], list[str]]:
    """The entries of collections by key, and the keys of those of temporary ones, which are not kept."""
    kept: dict[str, bytes] = {}
    temporary: list[str] = []
    for key, entry in engine.catalog_entries():
        if is_collection_key(key):
            if _is_temporary(entry):
                temporary.append(key)
            else:
                kept[key] = entry
    return kept, temporary


def _is_temporary(entry: bytes) -> bool:
    options = get_value(entry, "options")
    return isinstance(options, bytes) and get_value(options, "temp") is True


def _stored_arrays(index: dict[str, Value]) -> ArrayPaths:
    """The multikey paths of an index in its catalog entry; entries of the oldest versions do not have the paths."""
    paths = index.get("multikeyPaths")
    if isinstance(paths, list):
        return ArrayPaths(frozenset([str(path) for path in paths]))
    return ARRAYS_SOMEWHERE if index["multikey"] else ArrayPaths(frozenset())


def _stored_type_bits(index: dict[str, Value]) -> int:
    """The type bits of an index in its catalog entry; -1 in entries of the oldest versions, which do not have them.

    Older versions called the field `kinds`; it is renamed when the entry is next written.
    """
    type_bits = index.get("typeBits", index.get("kinds"))
    return type_bits if isinstance(type_bits, int) else -1


def stored_collection(
    engine: StorageEngine,
    entry: bytes,
    outdated: list[tuple[Collection, CollectionIndex]],
    known: CollectionOptions | None = None,
) -> Collection:
    """The collection of a stored catalog entry; appends indexes whose keys must be rebuilt to `outdated`.

    known: the options that it had before, if it was known; it keeps them if they are still the same.
    DataDirectoryError for a collation when ICU is not installed.
    """
    try:
        return _read_entry(engine, entry, outdated, known)
    except CommandError as error:
        raise DataDirectoryError(f"{get_value(entry, 'ns')}: {error.message}") from error


def _read_entry(
    engine: StorageEngine,
    entry: bytes,
    outdated: list[tuple[Collection, CollectionIndex]],
    known: CollectionOptions | None,
) -> Collection:
    stored = fields_by_name(entry)
    namespace = str(stored["ns"])
    database, _, name = namespace.partition(".")
    uuid = stored["uuid"]
    raw_options = stored["options"]
    number = stored["number"]
    indexes = stored["indexes"]
    assert isinstance(uuid, BinData)
    assert isinstance(raw_options, bytes)
    assert isinstance(number, int)
    assert isinstance(indexes, list)
    options = known if known is not None and known.raw == raw_options else CollectionOptions(raw_options)
    store = engine.record_store(record_store_ident(number))
    collection = Collection(database, name, number, uuid.data, options, store)
    holder = stored.get("heldBy", 0)
    assert isinstance(holder, int)
    collection.held_by = int(holder)
    loaded: list[CollectionIndex] = []
    for item in indexes:
        assert isinstance(item, bytes)
        index = fields_by_name(item)
        spec = index["spec"]
        assert isinstance(spec, bytes)
        descriptor = IndexDescriptor(spec)
        ident = str(index["ident"])
        data: SortedDataInterface | None = None
        if not descriptor.is_ttl_setting:
            unique = descriptor.unique or (descriptor.is_id and collection.has_unique_ids)
            data = engine.sorted_data(ident, unique)
        builder = index.get("builder", 0)
        assert isinstance(builder, int)
        loaded.append(
            CollectionIndex(descriptor, ident, data, not builder, _stored_arrays(index), _stored_type_bits(index))
        )
        if builder:
            loaded[-1].announce(builder)
        if descriptor.collation is not None and data is not None and index.get("icu") != icu_version():
            outdated.append((collection, loaded[-1]))
    collection.set_indexes(loaded)
    return collection
