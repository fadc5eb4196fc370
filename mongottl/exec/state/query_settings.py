"""Query settings that an administrator has set for a query shape (setQuerySettings), by `queryShapeHash`.

    settings = op.service.settings.query_settings.get(hash)     None if there are none for this shape
    settings.reject                                    queries of this shape fail: QueryRejectedBySettings (411)
    settings.allowed_indexes("db", "coll")             names and key patterns, or None if not restricted

They are kept in memory and lost at a restart.
"""

from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value


class IndexHints:
    """The indexes that queries of the shape may use in one collection: names, raw key patterns, "$natural"."""

    def __init__(self, database: str, collection: str, allowed: list[Value]) -> None:
        self.database = database
        self.collection = collection
        self.allowed = allowed


class QuerySettings:
    """The settings of one query shape.

    query: the raw representative query, None if the settings were set by hash. shape: its debug shape, None likewise.
    framework: stored and returned, without effect. comment: a one-element tuple, None for none.
    """

    def __init__(self, shape_hash: str, query: bytes | None) -> None:
        self.shape_hash = shape_hash
        self.query = query
        self.shape: bytes | None = None
        self.hints: list[IndexHints] = []
        self.framework: str | None = None
        self.reject: bool | None = None
        self.comment: tuple[Value] | None = None

    def is_default(self) -> bool:
        return not self.hints and self.framework is None and not self.reject

    def allowed_indexes(self, database: str, collection: str) -> list[Value] | None:
        for hints in self.hints:
            give_way()
            if hints.database == database and hints.collection == collection:
                return hints.allowed
        return None

    def describe(self) -> dict[str, Value]:
        """The settings as setQuerySettings takes and returns them."""
        described: dict[str, Value] = {}
        if self.hints:
            index_hints: list[Value] = list_for(len(self.hints))
            for hints in self.hints:
                give_way()
                namespace: dict[str, Value] = {"db": hints.database, "coll": hints.collection}
                index_hints.append({"ns": namespace, "allowedIndexes": hints.allowed})
            described["indexHints"] = index_hints
        if self.framework is not None:
            described["queryFramework"] = self.framework
        if self.reject is not None:
            described["reject"] = self.reject
        if self.comment is not None:
            described["comment"] = self.comment[0]
        return described

    def entry(self) -> dict[str, Value]:
        """The document of `$querySettings`: shape hash, representative query, settings."""
        described: dict[str, Value] = {"queryShapeHash": self.shape_hash}
        if self.query is not None:
            described["representativeQuery"] = self.query
        described["settings"] = self.describe()
        return described
