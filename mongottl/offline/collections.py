"""Checks the records and the index entries of one collection against each other."""

from collections.abc import Iterator
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.entry_sums import EntrySums, has_entry
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.catalog.view import SYSTEM_VIEWS, view_of
from mongottl.document.render import render_value
from mongottl.document.validate import validate_document
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.stores import KeyEntry, Record
from mongottl.ttl.policy import meaningful_ttl_s

# Records or entries that are read at once, and their bytes.
_BATCH: Final = 1000
_BATCH_BYTES: Final = 4 << 20


class CollectionCheck:
    """The check of one collection. skipped: indexes whose keys cannot be compared here.

    records, entries: how many were read. `faults` gives a line for each fault.
    """

    def __init__(self, collection: Collection, skipped: list[CollectionIndex]) -> None:
        self._collection = collection
        self._indexes = [index for index in collection.indexes if index.has_keys and index not in skipped]
        self._sums = {index.name: EntrySums() for index in self._indexes}
        # Records that are no valid documents, so that their keys are not known.
        self._invalid: set[int] = set()
        # Indexes whose entry in the catalog lacks something; that is reported once for each.
        self._lacking: set[str] = set()
        self.records = 0
        self.entries = 0

    def faults(self) -> Iterator[str]:
        collection = self._collection
        try:
            for record in self._all_records():
                self.records += 1
                for fault in self._faults_of(record):
                    yield f"{collection.namespace}, record {record[0]}: {fault}"
        except EngineUnavailable as error:
            yield f"{collection.namespace}: its records cannot be read, nor be compared with its indexes: {error}"
            return
        for index in self._indexes:
            try:
                for fault in self._entry_faults(index):
                    yield f"{collection.namespace}, index {index.name}{fault}"
            except EngineUnavailable as error:
                yield f"{collection.namespace}, index {index.name}: its entries cannot be read: {error}"

    def _all_records(self) -> Iterator[Record]:
        after = 0
        more = True
        while more:
            records, more = self._collection.store.scan(after, _BATCH, True, _BATCH_BYTES)
            if records:
                after = records[-1][0]
            yield from records

    def _all_entries(self, index: CollectionIndex) -> Iterator[KeyEntry]:
        after: KeyEntry | None = None
        more = True
        while more:
            entries, more = index.sorted_data.scan(ALL_KEYS, after, _BATCH, _BATCH_BYTES)
            if entries:
                after = entries[-1]
            yield from entries

    def _faults_of(self, record: Record) -> Iterator[str]:
        """The faults of a record itself; adds the entries that it should have to the sums."""
        rid, document, _, ttl_s = record
        try:
            validate_document(document)
        except CommandError as error:
            self._invalid.add(rid)
            yield f"no valid document: {error.message}"
            return
        wanted_ttl_s = int(meaningful_ttl_s(document))
        if ttl_s != wanted_ttl_s:
            yield f"{_shown_id(document)}the expiry index has ttl {ttl_s}, the document says {wanted_ttl_s}"
        if self._collection.name == SYSTEM_VIEWS:
            try:
                view_of(self._collection.database, document)
            except CommandError as error:
                yield error.message
        for index in self._indexes:
            sums = self._sums[index.name]
            try:
                keys = index.keys_of(document)
            except CommandError as error:
                yield f"{_shown_id(document)}index {index.name} cannot have it: {error.message}"
                continue
            if index.name not in self._lacking and index.became_multikey():
                self._lacking.add(index.name)
                yield f"{_shown_id(document)}the catalog does not know its arrays or types in index {index.name}"
            for key in dict.fromkeys(keys):
                sums.add(key, rid)

    def _entry_faults(self, index: CollectionIndex) -> Iterator[str]:
        """Compares all entries with those that the records should have; where they differ, says which."""
        sums = self._sums[index.name]
        for key, rid in self._all_entries(index):
            self.entries += 1
            sums.subtract(key, rid)
        if not sums.differ():
            return
        found = False
        for record in self._all_records():
            rid, document = record[0], record[1]
            if rid in self._invalid or not sums.differ_at(rid):
                continue
            for key in dict.fromkeys(_keys_of(index, document)):
                if not has_entry(index.sorted_data, key, rid):
                    found = True
                    yield f", record {rid}: {_shown_id(document)}its entry is missing"
        for key, rid in self._all_entries(index):
            if rid in self._invalid or not sums.differ_at(rid):
                continue
            stored = self._collection.store.find_record(rid)
            if stored is None:
                found = True
                yield f", record {rid}: there is an entry, but no such record"
            elif key not in _keys_of(index, stored[1]):
                found = True
                yield f", record {rid}: {_shown_id(stored[1])}there is an entry that it should not have"
        if not found and not self._invalid:
            yield ": an entry is stored twice"


def _keys_of(index: CollectionIndex, document: bytes) -> list[bytes]:
    try:
        return index.keys_of(document)
    except CommandError:
        return []


def _shown_id(document: bytes) -> str:
    """`_id … : `, for the beginning of a line."""
    return f"_id {render_value(get_value(document, '_id'))}: "
