"""The memory engine: idents, catalog entries, saved states, and dropping in steps.

Nothing is stored outside this process, so there is nothing to flush or to maintain. Freeing a million records takes a
tenth of a second, which `drop_some` spreads over many calls.
"""

from collections.abc import Callable

from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.interface import Isolation, SavedState, StorageEngine, WriteUnitOfWork
from mongottl.storage.memory.contents import Contents
from mongottl.storage.memory.records import MemoryRecordStore, RecordContents
from mongottl.storage.memory.sorted_data import MemorySortedData, SortedContents
from mongottl.storage.memory.units import MemoryUnits, Undo
from mongottl.storage.opening import storage_engine
from mongottl.storage.snapshot.isolation import PatchIsolation
from mongottl.storage.stores import RecordStore, SortedDataInterface
from mongottl.storage.unit_of_work import EngineUnitOfWork


class MemoryState(SavedState):
    """The contents of all idents, and the catalog entries, at one time. released: whether it cannot be restored any
    more."""

    def __init__(
        self, records: dict[str, RecordContents], entries: dict[str, SortedContents], catalog: dict[str, bytes]
    ) -> None:
        self.records = records
        self.entries = entries
        self.catalog = catalog
        self.released = False


class MemoryEngine(StorageEngine):
    def __init__(self) -> None:
        self.name = "memory"
        self._isolation = PatchIsolation()
        self._units = MemoryUnits()
        self._records: dict[str, MemoryRecordStore] = {}
        self._sorted: dict[str, MemorySortedData] = {}
        self._catalog: dict[str, bytes] = {}
        # What is too large to be freed at once; `drop_some` releases what these have, since a unit may put them back.
        self._dropped: list[MemoryRecordStore | MemorySortedData] = []

    def unit_of_work(self) -> WriteUnitOfWork:
        return EngineUnitOfWork(self._units)

    @property
    def isolation(self) -> Isolation:
        return self._isolation

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self._units.commit_listener = listener

    def idents(self) -> list[str]:
        self._units.require_open()
        return [*self._records, *self._sorted]

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        self._check_new(ident)
        store = MemoryRecordStore(self._units, ident)
        self._units.log(_UndoIdent(self, ident, None, None))
        self._records[ident] = store
        return store

    def record_store(self, ident: str) -> RecordStore:
        return self._records[ident]

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        self._check_new(ident)
        data = MemorySortedData(self._units, ident, unique)
        self._units.log(_UndoIdent(self, ident, None, None))
        self._sorted[ident] = data
        return data

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        data = self._sorted[ident]
        if data.unique != unique:
            raise ValueError(f"{ident} was created with unique={data.unique}")
        return data

    def drop_ident(self, ident: str) -> None:
        self._units.require_unit()
        store = self._records.pop(ident, None)
        if store is not None:
            self._units.log(_UndoIdent(self, ident, store, None))
            if not store.is_small():
                self._dropped.append(store)
            return
        data = self._sorted.pop(ident)
        self._units.log(_UndoIdent(self, ident, None, data))
        if not data.is_small():
            self._dropped.append(data)

    def drop_some(self, limit: int) -> bool:
        self._units.require_open()
        released = self._units.released
        if self._dropped:
            self._dropped.pop().clear()
        elif released:
            contents = released[-1]
            if contents.origin is not None:
                contents.leave_to_origin()  # a step of its own: it takes up to a millisecond for a million records
            elif not contents.drop(limit):
                released.pop()
        return bool(self._dropped or released)

    @property
    def saves_states(self) -> bool:
        return True

    def save_state(self) -> SavedState:
        """In the time of a step for each ident, whatever it has."""
        self._require_no_unit()
        records = {ident: store.save() for ident, store in self._records.items()}
        entries = {ident: data.save() for ident, data in self._sorted.items()}
        return MemoryState(records, entries, self._catalog.copy())

    def restore_state(self, state: SavedState) -> set[str]:
        """In the time of a step for each ident, whatever it has."""
        self._require_no_unit()
        assert isinstance(state, MemoryState) and not state.released
        changed: set[str] = set()
        records: dict[str, MemoryRecordStore] = {}
        for ident, contents in state.records.items():
            store = self._records.pop(ident, None)
            if store is None:
                store = MemoryRecordStore(self._units, ident)
            if store.restore(contents):
                changed.add(ident)
            records[ident] = store
        entries: dict[str, MemorySortedData] = {}
        for ident, held in state.entries.items():
            data = self._sorted.get(ident)
            if data is None or data.unique != held.unique:
                data = MemorySortedData(self._units, ident, held.unique)
            else:
                del self._sorted[ident]
            if data.restore(held):
                changed.add(ident)
            entries[ident] = data
        self._dropped += [store for store in self._records.values() if not store.is_small()]
        self._dropped += [data for data in self._sorted.values() if not data.is_small()]
        self._records = records
        self._sorted = entries
        self._catalog = state.catalog.copy()
        return changed

    def release_state(self, state: SavedState) -> None:
        assert isinstance(state, MemoryState) and not state.released
        state.released = True
        held: list[Contents] = [*state.records.values(), *state.entries.values()]
        for contents in held:
            self._units.release(contents)
        state.records = {}
        state.entries = {}

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        self._units.require_open()
        # Names of collections are valid UTF-8, whose order is that of code points.
        return sorted(self._catalog.items())

    def catalog_entry(self, key: str) -> bytes | None:
        self._units.require_open()
        return self._catalog.get(key)

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self._units.require_unit()
        self._units.log(_UndoCatalog(self, key, self._catalog.get(key)))
        self._catalog[key] = value

    def delete_catalog_entry(self, key: str) -> None:
        self._units.require_unit()
        held = self._catalog.pop(key, None)
        if held is not None:
            self._units.log(_UndoCatalog(self, key, held))

    @property
    def committed_number(self) -> int:
        return self._units.commit_count

    def statistics(self) -> dict[str, int]:
        """`database_bytes` is an estimate: documents, keys and what they take around them."""
        self._units.require_open()
        size = 0
        for store in self._records.values():
            size += store.estimated_bytes()
        for data in self._sorted.values():
            size += data.estimated_bytes()
        return {
            "commits": self._units.commit_count,
            "rollbacks": self._units.rollback_count,
            "idents": len(self._records) + len(self._sorted),
            "dropped_idents": len(self._dropped) + len(self._units.released),
            "database_bytes": size,
        }

    def close(self) -> None:
        if self._units.in_unit():
            self._units.rollback()
        self._units.close()
        self._records = {}
        self._sorted = {}
        self._catalog = {}
        self._dropped = []
        self._units.released = []

    def restore_ident(self, ident: str, store: MemoryRecordStore | None, data: MemorySortedData | None) -> None:
        """Puts back what was dropped under the ident, or removes what was created."""
        if store is not None:
            self._records[ident] = store
            if store in self._dropped:
                self._dropped.remove(store)
        elif data is not None:
            self._sorted[ident] = data
            if data in self._dropped:
                self._dropped.remove(data)
        elif self._records.pop(ident, None) is None:
            del self._sorted[ident]

    def restore_catalog_entry(self, key: str, value: bytes | None) -> None:
        if value is None:
            del self._catalog[key]
        else:
            self._catalog[key] = value

    def _require_no_unit(self) -> None:
        self._units.require_open()
        if self._units.in_unit():
            raise RuntimeError("a state is saved and restored outside units of work")

    def _check_new(self, ident: str) -> None:
        self._units.require_unit()
        if ident in self._records or ident in self._sorted:
            raise ValueError(f"ident {ident} exists")


class _UndoIdent(Undo):
    """Undoes the creation or the drop of an ident. store, data: what was dropped; both None if it was created."""

    def __init__(
        self, engine: MemoryEngine, ident: str, store: MemoryRecordStore | None, data: MemorySortedData | None
    ) -> None:
        self._engine = engine
        self._ident = ident
        self._store = store
        self._data = data

    def undo(self) -> None:
        self._engine.restore_ident(self._ident, self._store, self._data)


class _UndoCatalog(Undo):
    def __init__(self, engine: MemoryEngine, key: str, before: bytes | None) -> None:
        self._engine = engine
        self._key = key
        self._before = before

    def undo(self) -> None:
        self._engine.restore_catalog_entry(self._key, self._before)


@storage_engine("memory")
def open_memory(address: str) -> StorageEngine:
    """Opens the memory engine. DataDirectoryError if there is an address, for it would keep nothing there."""
    if address:
        raise DataDirectoryError(f"the memory engine cannot use a data directory: {address}")
    return MemoryEngine()
