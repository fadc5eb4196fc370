"""Databases, collections and views by name, as the catalog has them now."""

from typing import Any, Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import (
    MAX_NAMESPACE_BYTES,
    MONGODB_NAMING,
    check_database_name,
    check_new_collection_name,
    spelled_otherwise,
)
from mongottl.catalog.plan_memory import IndexFilter
from mongottl.catalog.view import SYSTEM_VIEWS, View, view_of
from mongottl.document.freeing import LongDict, LongList, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.storage.errors import DamagedRecord
from mongottl.storage.stores import Record

# Records read at once where all are wanted.
_RECORDS_PER_SCAN: Final = 256
# What reading the definition of a view takes, in the units of `give_way`.
_VIEW_WORK: Final = 8
_BYTES_PER_SCAN: Final = 16 << 20
# Where MongoDB keeps the measurements of a time series collection.
BUCKETS: Final = "system.buckets."


def no_buckets(series: Collection) -> CommandError:
    """CommandNotSupported (115). An empty answer would be worse: a dump would have no measurements, and say nothing."""
    return CommandError(
        ErrorCode.CommandNotSupported,
        f"the time-series collection {series.namespace} has no buckets here: its measurements are documents of its own,"
        " which mongoexport and mongoimport copy",
    )


def _by_name(places: list[Any]) -> list[Any]:
    """Collections or views, ordered by their names."""
    named = LongDict({})
    for place in places:
        give_way()
        named[place.name] = place
    ordered = list_for(len(named))
    for name in sort_in_parts(list(named)):
        give_way()
        ordered.append(named[name])
    return ordered


class NamedCollections:
    """The collections of a catalog, for lookups. What changes them is in `Catalog`.

    naming: the rules for names.
    """

    def __init__(self) -> None:
        self.naming = MONGODB_NAMING
        self._databases: dict[str, dict[str, Collection]] = {}
        self._by_number: dict[int, Collection] = {}

    def lookup(self, database: str, name: str, time_series: bool = False) -> Collection | None:
        """The collection, or None if there is none of that name. CommandNotSupportedOnView (166) for a view.

        time_series: whether it may be a time series collection, which in mongod is a view over its buckets.
        """
        found = self.find(database, name)
        if isinstance(found, Collection) and found.time_series is not None and not time_series:
            raise CommandError(
                ErrorCode.CommandNotSupportedOnView, f"Namespace {found.namespace} is a timeseries collection"
            )
        if isinstance(found, View):
            raise CommandError(
                ErrorCode.CommandNotSupportedOnView, f"Namespace {found.namespace} is a view, not a collection"
            )
        return found

    def find(self, database: str, name: str) -> Collection | View | None:
        """The collection or view of that name, or None; for commands that accept views. CommandNotSupported (115) for
        the buckets of a time series collection, which it does not have here."""
        collections = self._databases.get(database)
        if collections is None:
            return None
        found = collections.get(name)
        if found is not None:
            return found
        if name.startswith(BUCKETS):
            series = collections.get(name[len(BUCKETS) :])
            if series is not None and series.time_series is not None:
                raise no_buckets(series)
        return self.view(database, name)

    def view(self, database: str, name: str) -> View | None:
        """The view of that name, or None. InvalidViewDefinition (182) if its stored definition is not valid."""
        record = self.view_record(database, name)
        return None if record is None else view_of(database, record[1])

    def view_record(self, database: str, name: str) -> Record | None:
        """The record of `system.views` that defines a view."""
        if name == SYSTEM_VIEWS or len(name) > MAX_NAMESPACE_BYTES:
            return None
        return self.record_by_id(database, SYSTEM_VIEWS, f"{database}.{name}")

    def views(self, database: str) -> list[View]:
        """The database's views by name; an evaluation is left meanwhile. InvalidViewDefinition (182) if a stored
        definition is not valid."""
        found: list[View] = LongList()
        for record in self.all_records(database, SYSTEM_VIEWS):
            give_way(_VIEW_WORK)
            found.append(view_of(database, record[1]))
        return _by_name(found)

    def view_count(self, database: str) -> int:
        """How many views the database has."""
        collection = self.stored_collection(database, SYSTEM_VIEWS)
        return 0 if collection is None else collection.store.count()

    def stored_collection(self, database: str, name: str) -> Collection | None:
        """The collection of that name, or None; views are not looked for."""
        collections = self._databases.get(database)
        return None if collections is None else collections.get(name)

    def record_by_id(self, database: str, name: str, record_id: str) -> Record | None:
        """The record with this `_id` of a collection of the system, as it is now; None if there is none."""
        collection = self.stored_collection(database, name)
        index = None if collection is None else collection.id_index
        if collection is None or index is None or index.data is None:
            return None
        return index.data.fetch_exact(collection.store, encode_value(record_id))

    def version_of(self, database: str, name: str) -> tuple[int, int]:
        """Two numbers that change when records of the collection do, or when it is made or dropped."""
        collection = self.stored_collection(database, name)
        return (0, 0) if collection is None else (collection.number, collection.writes)

    def all_records(self, database: str, name: str) -> list[Record]:
        """The records of a collection of the system, as they are now; none if it does not exist."""
        collection = self.stored_collection(database, name)
        found: list[Record] = []
        position = 0
        while collection is not None:
            batch, more = collection.store.scan(position, _RECORDS_PER_SCAN, True, _BYTES_PER_SCAN)
            found.extend(batch)
            if not more:
                break
            position = batch[-1][0]
        return found

    def by_number(self, number: int) -> Collection | None:
        return self._by_number.get(number)

    def with_namespace(self, error: DamagedRecord) -> DamagedRecord:
        """The same error with the namespace of its collection for the ident of the store, if there is one."""
        for collection in self.all_collections():
            if collection.store.ident == error.ident:
                return DamagedRecord(collection.namespace, error.record_id, error.reason)
        return error

    def database_names(self) -> list[str]:
        return sorted(self._databases)

    def database_spelled_otherwise(self, database: str) -> str | None:
        """An existing database whose name differs from `database` in case only, or None."""
        return spelled_otherwise(database, self._databases)

    def collections(self, database: str) -> list[Collection]:
        """The database's collections by name; none if it does not exist. An evaluation is left meanwhile: what is
        dropped then may be among them, and is not what is made."""
        return _by_name(list(self._databases.get(database, {}).values()))

    def places(self, database: str) -> list[Collection | View]:
        """The database's collections and views by name; an evaluation is left meanwhile, as by `collections`."""
        views = self.views(database)
        collections = self.collections(database)
        return _by_name([*collections, *views]) if views else [*collections]

    def with_uuid(self, database: str, uuid: Value) -> Collection | None:
        """The collection of a database that has this UUID, or None."""
        for collection in self._databases.get(database, {}).values():
            if collection.uuid == uuid:
                return collection
        return None

    def has_collections(self, database: str) -> bool:
        return bool(self._databases.get(database))

    def all_collections(self) -> list[Collection]:
        return list(self._by_number.values())

    def check_new_name(self, database: str, name: str) -> None:
        """InvalidNamespace (73) or DatabaseDifferCase (13297) unless a collection of this name may be made."""
        check_database_name(database, self.naming)
        check_new_collection_name(database, name, self.naming)
        self.naming.check_new(name)
        other = self.database_spelled_otherwise(database)
        if other is not None:
            raise CommandError(
                ErrorCode.DatabaseDifferCase,
                f"db already exists with different case already have: [{other}] trying to create [{database}]",
            )

    def index_filters(self) -> dict[int, dict[str, IndexFilter]]:
        """The index filters that are set, by the number of the collection and the shape of the query."""
        found: dict[int, dict[str, IndexFilter]] = {}
        for collection in self._by_number.values():
            if collection.plan_memory.filters:
                found[collection.number] = dict(collection.plan_memory.filters)
        return found

    def set_index_filters(self, filters: dict[int, dict[str, IndexFilter]]) -> None:
        """Sets all index filters to what `index_filters` has returned."""
        for number, collection in self._by_number.items():
            wanted = filters.get(number)
            if wanted is not None or collection.plan_memory.filters:
                collection.plan_memory.filters = {} if wanted is None else dict(wanted)
                collection.plan_memory.forget_plans(None)
