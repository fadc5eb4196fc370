"""The engine whose calls are checked, and its units of work."""

from collections.abc import Callable
from functools import partial
from types import TracebackType

from mongottl.document.utf8 import encode_text
from mongottl.storage.contract.calls import Allowed, ContractCalls
from mongottl.storage.contract.checks import check_name
from mongottl.storage.contract.records import ContractRecordStore
from mongottl.storage.contract.sorted_data import ContractSortedData
from mongottl.storage.errors import WriteConflict
from mongottl.storage.forwarding import ForwardingEngine
from mongottl.storage.interface import SavedState, StorageEngine, WriteUnitOfWork
from mongottl.storage.stores import RecordStore, SortedDataInterface


class ContractEngine(ContractCalls, ForwardingEngine):
    """Wraps an engine, and each record store and sorted data that it returns."""

    def __init__(self, inner: StorageEngine) -> None:
        ContractCalls.__init__(self)
        ForwardingEngine.__init__(self, inner)
        self._records: dict[str, ContractRecordStore] = {}
        self._sorted: dict[str, ContractSortedData] = {}
        # The saved states, with the idents and catalog entries of each.
        self._facts: dict[int, tuple[SavedState, tuple[list[str], list[tuple[str, bytes]]]]] = {}

    def forget(self, ident: str) -> None:
        """Asserts from now on that the objects of a dropped ident are not used, unless the unit is rolled back."""
        assert self.unit is not None
        store = self._records.pop(ident, None)
        if store is not None:
            _set_dropped(store, True)
            self.unit.on_rollback(partial(_set_dropped, store, False))
            self.unit.on_rollback(partial(self._records.__setitem__, ident, store))
        data = self._sorted.pop(ident, None)
        if data is not None:
            _set_dropped(data, True)
            self.unit.on_rollback(partial(_set_dropped, data, False))
            self.unit.on_rollback(partial(self._sorted.__setitem__, ident, data))

    def unit_of_work(self) -> WriteUnitOfWork:
        self.require_open("unit_of_work")
        assert self.unit is None, "units of work do not nest"
        return ContractUnitOfWork(self, self.inner.unit_of_work())

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self.require_open("set_commit_listener")
        self.inner.set_commit_listener(listener)

    def set_pause(self, pause: Callable[[], None]) -> None:
        self.require_open("set_pause")
        self.inner.set_pause(pause)

    def idents(self) -> list[str]:
        self.require_open("idents")
        found = self.inner.idents()
        assert len(set(found)) == len(found), "idents: one is there twice"
        return found

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        self.require_unit("create_record_store")
        check_name(ident)
        assert ident not in self.inner.idents(), f"create_record_store: {ident} exists"
        with Allowed("create_record_store"):
            inner = self.inner.create_record_store(ident, is_log)
        assert inner.ident == ident and inner.count() == 0 and inner.size_bytes() == 0
        assert inner.scan(0, 1) == ([], False)
        assert self.inner.record_store(ident) is inner, "record_store: another object than was created"
        store = self.record_store(ident)
        assert self.unit is not None and isinstance(store, ContractRecordStore)
        self.unit.on_rollback(partial(_set_dropped, store, True))
        return store

    def record_store(self, ident: str) -> RecordStore:
        self.require_open("record_store")
        assert ident in self.inner.idents(), f"record_store: there is no {ident}"
        inner = self.inner.record_store(ident)
        store = self._records.get(ident)
        if store is None or store.inner is not inner:
            store = ContractRecordStore(self, inner)
            self._records[ident] = store
        return store

    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        self.require_unit("create_sorted_data")
        check_name(ident)
        assert ident not in self.inner.idents(), f"create_sorted_data: {ident} exists"
        with Allowed("create_sorted_data"):
            inner = self.inner.create_sorted_data(ident, unique, beside)
        assert inner.ident == ident and inner.unique == unique
        assert self.inner.sorted_data(ident, unique) is inner, "sorted_data: another object than was created"
        data = self.sorted_data(ident, unique)
        assert self.unit is not None and isinstance(data, ContractSortedData)
        self.unit.on_rollback(partial(_set_dropped, data, True))
        return data

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        self.require_open("sorted_data")
        assert ident in self.inner.idents(), f"sorted_data: there is no {ident}"
        inner = self.inner.sorted_data(ident, unique)
        assert inner.unique == unique
        data = self._sorted.get(ident)
        if data is None or data.inner is not inner:
            data = ContractSortedData(self, inner)
            self._sorted[ident] = data
        return data

    def drop_ident(self, ident: str) -> None:
        self.require_unit("drop_ident")
        assert ident in self.inner.idents(), f"drop_ident: there is no {ident}"
        with Allowed("drop_ident"):
            self.inner.drop_ident(ident)
        assert ident not in self.inner.idents(), f"drop_ident: {ident} is still there"
        self.forget(ident)

    def drop_some(self, limit: int) -> bool:
        self.require_open("drop_some")
        assert self.unit is None, "drop_some inside a unit of work"
        assert limit > 0
        before = sorted(self.inner.idents())
        with Allowed("drop_some"):
            more = self.inner.drop_some(limit)
        assert sorted(self.inner.idents()) == before, "drop_some changed the idents"
        return more

    def set_cache_bytes(self, most_bytes: int) -> None:
        self.require_open("set_cache_bytes")
        assert most_bytes >= 0
        self.inner.set_cache_bytes(most_bytes)

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        self.require_open("forget_cached")
        assert ident in self.inner.idents(), "forget_cached: no such ident"
        assert after >= 0 and count > 0
        self.inner.forget_cached(ident, after, count)

    @property
    def stored_bytes(self) -> int:
        self.require_open("stored_bytes")
        return self.inner.stored_bytes

    @property
    def unused_bytes(self) -> int:
        self.require_open("unused_bytes")
        unused = self.inner.unused_bytes
        assert 0 <= unused <= self.inner.stored_bytes, "unused_bytes: more than is stored"
        return unused

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        self.require_open("reclaim_some")
        assert self.unit is None, "reclaim_some inside a unit of work"
        assert limit > 0 and keep_bytes >= 0
        before, unused = self._all_facts(), self.inner.unused_bytes
        with Allowed("reclaim_some"):
            given = self.inner.reclaim_some(limit, keep_bytes)
        assert given == unused - self.inner.unused_bytes >= 0, "reclaim_some: another amount than is gone"
        assert self._all_facts() == before, "reclaim_some changed the idents or the catalog"
        return given

    def rewrite(self, proceed: Callable[[], None]) -> int:
        self.require_open("rewrite")
        given = self.inner.rewrite(proceed)
        assert given >= 0 and not self.inner.must_rewrite
        return given

    def clear(self) -> None:
        self.require_unit("clear")
        gone = self.inner.idents()
        with Allowed("clear"):
            self.inner.clear()
        assert not self.inner.idents() and not self.inner.catalog_entries(), "clear left something"
        for ident in gone:
            self.forget(ident)

    def save_state(self) -> SavedState:
        self.require_open("save_state")
        assert self.unit is None, "save_state inside a unit of work"
        assert self.inner.saves_states, "save_state of an engine that saves no states"
        with Allowed("save_state"):
            state = self.inner.save_state()
        self._facts[id(state)] = (state, self._all_facts())
        return state

    def restore_state(self, state: SavedState) -> set[str]:
        self.require_open("restore_state")
        assert self.unit is None, "restore_state inside a unit of work"
        assert id(state) in self._facts, "restore_state of a state that was released, or never saved"
        before = {ident: self.inner.record_store(ident) for ident in self._records}
        kept = {ident: (store, store.count(), store.size_bytes()) for ident, store in before.items()}
        with Allowed("restore_state"):
            changed = self.inner.restore_state(state)
        assert self._all_facts() == self._facts[id(state)][1], "restore_state: something differs from the saved state"
        idents = set(self.inner.idents())
        assert changed <= idents, "restore_state: what has changed is there"
        for ident, (store, count, size) in kept.items():
            if ident in idents and ident not in changed:
                assert self.inner.record_store(ident) is store, "restore_state: another object of the same contents"
                assert (store.count(), store.size_bytes()) == (count, size)
        for ident, wrapped in list(self._records.items()):
            if ident not in idents or self.inner.record_store(ident) is not wrapped.inner:
                _set_dropped(wrapped, True)
                del self._records[ident]
            else:
                wrapped.forget_ids()
        for ident, entries in list(self._sorted.items()):
            if ident not in idents or self.inner.sorted_data(ident, entries.unique) is not entries.inner:
                _set_dropped(entries, True)
                del self._sorted[ident]
        return changed

    def release_state(self, state: SavedState) -> None:
        self.require_open("release_state")
        assert self._facts.pop(id(state), None) is not None, (
            "release_state of a state that was released, or never saved"
        )
        with Allowed("release_state"):
            self.inner.release_state(state)

    def _all_facts(self) -> tuple[list[str], list[tuple[str, bytes]]]:
        return sorted(self.inner.idents()), self.inner.catalog_entries()

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        self.require_open("catalog_entries")
        entries = self.inner.catalog_entries()
        keys = [encode_text(key) for key, _ in entries]
        assert all(keys[i] < keys[i + 1] for i in range(len(keys) - 1)), "catalog_entries: out of order"
        assert all(type(value) is bytes for _, value in entries), "catalog_entries: values are bytes"
        return entries

    def catalog_entry(self, key: str) -> bytes | None:
        self.require_open("catalog_entry")
        check_name(key)
        value = self.inner.catalog_entry(key)
        assert value == dict(self.inner.catalog_entries()).get(key), "catalog_entry: not that of `catalog_entries`"
        return value

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self.require_unit("put_catalog_entry")
        check_name(key)
        assert type(value) is bytes
        with Allowed("put_catalog_entry"):
            self.inner.put_catalog_entry(key, value)

    def delete_catalog_entry(self, key: str) -> None:
        self.require_unit("delete_catalog_entry")
        with Allowed("delete_catalog_entry"):
            self.inner.delete_catalog_entry(key)

    @property
    def durable_number(self) -> int:
        durable = self.inner.durable_number
        assert durable <= self.inner.committed_number, "durable_number: of a commit that has not been made"
        return durable

    def require_room(self) -> None:
        self.require_open("require_room")
        self.inner.require_room()

    def make_room(self) -> bool:
        self.require_open("make_room")
        return self.inner.make_room()

    def flush(self) -> None:
        before = self.inner.committed_number
        with Allowed("flush"):
            self.inner.flush()
        assert self.closed or self.inner.durable_number >= before, "flush: a commit is not durable"

    def maintain(self) -> None:
        with Allowed("maintain"):
            self.inner.maintain()

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        self.require_open("copy_to")
        assert self.inner.can_copy, "copy_to of an engine that has no stored database"
        self.inner.copy_to(path, proceed)

    def statistics(self) -> dict[str, int]:
        self.require_open("statistics")
        return self.inner.statistics()

    def close(self) -> None:
        assert self.unit is None, "close inside a unit of work"
        with Allowed("close"):
            self.inner.close()
        self.closed = True


class ContractUnitOfWork(WriteUnitOfWork):
    def __init__(self, engine: ContractEngine, inner: WriteUnitOfWork) -> None:
        self._engine = engine
        self._inner = inner
        self._entered = False

    def __enter__(self) -> WriteUnitOfWork:
        assert not self._entered, "a unit of work is entered once"
        assert self._engine.unit is None, "units of work do not nest"
        self._engine.check_logged = None
        with Allowed("unit of work"):
            self._inner.__enter__()
        self._entered = True
        self._engine.unit = self._inner
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered, "a unit of work was left before it was entered"
        self._engine.unit = None
        with Allowed("unit of work"):
            self._inner.__exit__(kind, error, trace)

    def commit(self) -> None:
        self._engine.require_unit("commit")
        try:
            with Allowed("commit", WriteConflict):
                self._inner.commit()
        finally:
            self._engine.unit = None
        if self._engine.check_logged is not None:
            self._engine.check_logged()

    def on_commit(self, action: Callable[[], None]) -> None:
        self._engine.require_unit("on_commit")
        self._inner.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._engine.require_unit("on_rollback")
        self._inner.on_rollback(action)


def _set_dropped(wrapper: ContractRecordStore | ContractSortedData, dropped: bool) -> None:
    wrapper.dropped = dropped
