"""What commands set for all operations: the defaults of read and write concern, query settings, index filters.

Where several servers may have the same store it is kept there, in one catalog entry, and so it is that of all of them;
else it is kept in memory, and lost when the server stops. What a mongos has for itself is a server's own here, too:
fail points, profiling, parameters.
"""

from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.plan_memory import IndexFilter
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Date, Timestamp, Value
from mongottl.document.walk import fields, get_value
from mongottl.exec.state.query_settings import IndexHints, QuerySettings

# Where the catalog has it.
_ENTRY: Final = "sharedSettings"


class ConcernDefaults:
    """The defaults set by setDefaultRWConcern, as raw documents; None where not set.

    updated_ms, updated_at: wall time and cluster time of the last change; 0 and None for never.
    """

    def __init__(self) -> None:
        self.read: bytes | None = None
        self.write: bytes | None = None
        self.updated_ms = 0
        self.updated_at: Timestamp | None = None


class SharedSettings:
    """concerns: the defaults of concerns. query_settings: by queryShapeHash. Index filters are in the collections.

    is_shared: whether other servers may have the same store.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog: Final = catalog
        self.is_shared: Final = catalog.engine.shared_nodes is not None
        self.concerns: Final = ConcernDefaults()
        self.query_settings: dict[str, QuerySettings] = {}
        self.reload()

    def reload(self) -> None:
        """Reads what is stored, if it is."""
        stored = self._catalog.server_entry(_ENTRY) if self.is_shared else None
        if stored is None:
            return
        concerns = self.concerns
        updated = get_value(stored, "updated")
        at = get_value(stored, "updatedAt")
        concerns.read = _document(get_value(stored, "read"))
        concerns.write = _document(get_value(stored, "write"))
        concerns.updated_ms = updated.ms if isinstance(updated, Date) else 0
        concerns.updated_at = at if isinstance(at, Timestamp) else None
        found = [_settings(each) for each in _documents(get_value(stored, "querySettings"))]
        self.query_settings = {settings.shape_hash: settings for settings in found}
        filters: dict[int, dict[str, IndexFilter]] = {}
        for each in _documents(get_value(stored, "indexFilters")):
            number, shape, query, sort, projection, collation, indexes = [value for _, value in fields(each)]
            assert isinstance(number, int) and isinstance(shape, str) and isinstance(indexes, list)
            assert isinstance(query, bytes) and isinstance(sort, bytes)
            assert isinstance(projection, bytes) and isinstance(collation, bytes)
            filters.setdefault(number, {})[shape] = IndexFilter(query, sort, projection, collation, indexes)
        self._catalog.set_index_filters(filters)

    def save(self) -> None:
        """Stores what a command has just changed, if that is for all servers; else it is what is stored again."""
        if not self.is_shared:
            return
        try:
            with Undivided():
                self._catalog.save_server_entry(_ENTRY, self._entry())
        except BaseException:
            self.reload()
            raise

    def _entry(self) -> bytes:
        concerns = self.concerns
        settings: list[Value] = [_described(each) for each in self.query_settings.values()]
        filters: list[Value] = [
            {
                "number": number,
                "shape": shape,
                "query": known.query,
                "sort": known.sort,
                "projection": known.projection,
                "collation": known.collation,
                "indexes": known.indexes,
            }
            for number, by_shape in self._catalog.index_filters().items()
            for shape, known in by_shape.items()
        ]
        entry: dict[str, Value] = {
            "read": concerns.read,
            "write": concerns.write,
            "updated": Date(concerns.updated_ms),
            "updatedAt": concerns.updated_at,
            "querySettings": settings,
            "indexFilters": filters,
        }
        return encode(entry)


def _described(settings: QuerySettings) -> dict[str, Value]:
    hints: list[Value] = [
        {"db": hints.database, "coll": hints.collection, "allowed": hints.allowed} for hints in settings.hints
    ]
    return {
        "hash": settings.shape_hash,
        "query": settings.query,
        "shape": settings.shape,
        "hints": hints,
        "framework": settings.framework,
        "reject": settings.reject,
        "comment": [] if settings.comment is None else [settings.comment[0]],
    }


def _settings(stored: bytes) -> QuerySettings:
    shape_hash, query, shape, hints, framework, reject, comment = [value for _, value in fields(stored)]
    assert isinstance(shape_hash, str) and isinstance(comment, list)
    settings = QuerySettings(shape_hash, _document(query))
    settings.shape = _document(shape)
    for each in _documents(hints):
        database, collection, allowed = [value for _, value in fields(each)]
        assert isinstance(database, str) and isinstance(collection, str) and isinstance(allowed, list)
        settings.hints.append(IndexHints(database, collection, allowed))
    settings.framework = framework if isinstance(framework, str) else None
    settings.reject = reject if isinstance(reject, bool) else None
    settings.comment = (comment[0],) if comment else None
    return settings


def _document(value: Value) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _documents(value: Value) -> list[bytes]:
    return [each for each in value if isinstance(each, bytes)] if isinstance(value, list) else []
