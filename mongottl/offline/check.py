"""Whether everything in a data directory is as it should be: `mongottl check`.

    pages         SQLite's own check, which covers the expiry indexes, too
    log           commits after a damaged place, where SQLite stops reading
    stores        their tables and counters, and the checksums of their records
    catalog       collections, options, indexes, and the stores that they name
    collections   every document is BSON, and every index has the entries of its records and no others
    oplog         segments and entries without gaps, in the order of their times

A byte that has changed within a value that no index has is found by the record's checksum. Records that were written in
a folder of format 1 have none until they are updated.
"""

import re
from collections.abc import Iterator
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex, record_store_ident
from mongottl.catalog.entries import OPLOG_IDENT, SESSIONS_IDENT, is_collection_key, stored_collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.document.validate import validate_document
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.offline.collections import CollectionCheck
from mongottl.offline.oplog_check import FORM_ERRORS, OplogCheck
from mongottl.storage.errors import DataDirectoryError, EngineUnavailable
from mongottl.storage.opening import folder_uri, open_stored_data
from mongottl.storage.stored_data import StoredData

_IDENT: Final = re.compile(r"\b(?:collection|index)_\d+\b")
_OPLOG_ENTRY: Final = "oplog"


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 document`, `2 documents`, `1,000 entries`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


class DataCheck:
    """The check of one data directory. notes: what is no fault, but was not checked or will be removed.

    collections, records, entries (of indexes), oplog_entries: how many were checked.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.notes: list[str] = []
        self.collections = 0
        self.records = 0
        self.entries = 0
        self.oplog_entries = 0
        # Namespaces and index names by idents.
        self._names: dict[str, str] = {}
        # The idents that have a store.
        self._stored: set[str] = set()

    def faults(self) -> Iterator[str]:
        """A line for each fault, as it is found. DataDirectoryError if the directory cannot be opened, or is in use."""
        state = open_stored_data(folder_uri(self._path))
        try:
            # The names of collections are known when the catalog has been read, which needs the pages.
            structure = list(state.structure_faults())
            if state.engine is None:
                yield from structure
                return
            try:
                entries = state.engine.catalog_entries()
            except EngineUnavailable as error:
                yield from structure
                yield f"catalog: it cannot be read: {error}"
                return
            collections: list[tuple[Collection, list[CollectionIndex]]] = []
            catalog = list(self._catalog_faults(state, entries, collections))
            for fault in [*structure, *catalog, *state.counter_faults(), *state.sum_faults()]:
                yield _IDENT.sub(self._named, fault)
            for collection, outdated in collections:
                if collection.store.ident in state.unreadable:
                    continue
                untyped = [e for e in collection.indexes if e.has_keys and e.sorted_data.ident in state.unreadable]
                yield from self._collection_faults(collection, [*outdated, *untyped])
            oplog = OplogCheck(state.engine, dict(entries).get(_OPLOG_ENTRY), state.unreadable)
            yield from oplog.faults()
            self.oplog_entries = oplog.entries
        finally:
            state.close()

    def _named(self, match: re.Match[str]) -> str:
        return self._names.get(match[0], match[0])

    def _catalog_faults(
        self,
        state: StoredData,
        entries: list[tuple[str, bytes]],
        collections: list[tuple[Collection, list[CollectionIndex]]],
    ) -> Iterator[str]:
        """Appends the collections that can be checked, with those of their indexes that cannot."""
        engine = state.engine
        assert engine is not None
        self._stored.update(engine.idents())
        used: dict[str, str] = {}
        for key, entry in entries:
            try:
                validate_document(entry)
            except CommandError as error:
                yield f"catalog, entry {key}: no valid document: {error.message}"
                continue
            if not is_collection_key(key):
                continue  # of the server itself
            found = list(self._entry_faults(key, entry, used))
            yield from found
            if found:
                continue
            outdated: list[tuple[Collection, CollectionIndex]] = []
            try:
                collection = stored_collection(engine, entry, outdated)
            except (DataDirectoryError, *FORM_ERRORS) as error:
                yield f"catalog, entry {key}: {type(error).__name__}: {error}"
                continue
            for _, index in outdated:
                self.notes.append(
                    f"{collection.namespace}, index {index.name}: its entries were not checked: they were made with"
                    " another version of ICU, and the next start of the server rebuilds them"
                )
            collections.append((collection, [index for _, index in outdated]))
        for ident in sorted(self._stored - used.keys()):
            if ident != SESSIONS_IDENT and not ident.startswith(OPLOG_IDENT):
                held = ""
                if ident.startswith(record_store_ident(0)[:-1]) and ident not in state.unreadable:
                    held = f", with {counted(engine.record_store(ident).count(), 'document')},"
                self.notes.append(f"{ident}{held} belongs to no collection; the next start of the server removes it")

    def _entry_faults(self, key: str, entry: bytes, used: dict[str, str]) -> Iterator[str]:
        """What is wrong with the catalog's entry of a collection, and the stores that it names.

        used: the idents and namespaces of the entries before, with whom they belong to.
        """
        namespace = get_value(entry, "ns")
        number = get_value(entry, "number")
        indexes = get_value(entry, "indexes")
        if not isinstance(namespace, str) or not isinstance(number, int) or not isinstance(indexes, list):
            yield f"catalog, entry {key}: a collection without name, number or indexes"
            return
        if number != int(key):
            yield f"catalog, entry {key}: {namespace} has number {number}"
        if namespace in used:
            yield f"catalog: two collections are called {namespace}"
        used[namespace] = namespace
        yield from self._store_faults(record_store_ident(number), namespace, used)
        for position, item in enumerate(indexes):
            spec = get_value(item, "spec") if isinstance(item, bytes) else None
            if not isinstance(item, bytes) or not isinstance(spec, bytes):
                yield f"catalog, {namespace}: the index at place {position} has no specification"
                continue
            try:
                descriptor = IndexDescriptor(spec)
            except FORM_ERRORS as error:
                yield f"catalog, {namespace}: the index at place {position} cannot be read: {error}"
                continue
            ident = get_value(item, "ident")
            if not descriptor.name:
                yield f"catalog, {namespace}: the index at place {position} has no name"
            elif not isinstance(ident, str):
                yield f"catalog, {namespace}: the index {descriptor.name} has no store"
            elif not descriptor.is_ttl_setting:  # that has no entries
                yield from self._store_faults(ident, f"{namespace}, index {descriptor.name}", used)

    def _store_faults(self, ident: str, named: str, used: dict[str, str]) -> Iterator[str]:
        """What is wrong with the store of a collection or an index."""
        self._names[ident] = named
        if ident in used:
            yield f"catalog: {named} has the same store as {used[ident]}"
        used[ident] = named
        if ident not in self._stored:
            yield f"catalog: {named} has a store that is missing"

    def _collection_faults(self, collection: Collection, outdated: list[CollectionIndex]) -> Iterator[str]:
        check = CollectionCheck(collection, outdated)
        yield from check.faults()
        self.collections += 1
        self.records += check.records
        self.entries += check.entries
