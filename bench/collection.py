"""The few commands on a whole collection that the workloads need, by raw socket or by a driver's interface.

Servers are measured by raw socket, because drivers refuse old servers, and because the driver's own CPU time would be
measured, too. The driver's interface is for mongomock, which has no socket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.collection import Collection

from bench.load import Connection, Document

Documents = list[dict[str, Any]]
DriverCollection = Collection[dict[str, Any]]


class BulkCollection(ABC):
    """One collection. Counts are of documents; an unexpected reply raises an error."""

    @abstractmethod
    def find(self, query: Document, sort: Mapping[str, int] | None = None, limit: int = 0) -> Documents: ...

    @abstractmethod
    def read_to_end(self) -> int:
        """How many documents a cursor over the whole collection gives, by default batch sizes."""

    @abstractmethod
    def aggregate(self, pipeline: Sequence[Document]) -> Documents: ...

    @abstractmethod
    def update_many(self, query: Document, update: Document) -> int:
        """How many were modified."""

    @abstractmethod
    def delete_many(self, query: Document) -> int: ...

    @abstractmethod
    def create_index(self, field: str) -> None: ...

    def count(self, query: Document) -> int:
        """By the pipeline that drivers send for count_documents."""
        groups = self.aggregate([{"$match": query}, {"$group": {"_id": 1, "n": {"$sum": 1}}}])
        return int(groups[0]["n"]) if groups else 0


class WireCollection(BulkCollection):
    """By raw socket, on a connection that the caller closes."""

    def __init__(self, connection: Connection, database: str, name: str) -> None:
        self._connection = connection
        self._database = database
        self._name = name

    def _run(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._connection.command({**body, "$db": self._database})

    def _all(self, reply: dict[str, Any]) -> Documents:
        cursor = reply["cursor"]
        documents: Documents = cursor["firstBatch"]
        while cursor["id"]:
            cursor = self._run({"getMore": cursor["id"], "collection": self._name})["cursor"]
            documents += cursor["nextBatch"]
        return documents

    def find(self, query: Document, sort: Mapping[str, int] | None = None, limit: int = 0) -> Documents:
        body: dict[str, Any] = {"find": self._name, "filter": query}
        if sort:
            body["sort"] = sort
        if limit:
            body["limit"] = limit
        return self._all(self._run(body))

    def read_to_end(self) -> int:
        """Reads without decoding the documents, which would take the client longer than the server."""
        body: dict[str, Any] = {"find": self._name, "filter": {}}
        name, count = "firstBatch", 0
        while True:
            cursor = self._connection.raw_command({**body, "$db": self._database})["cursor"]
            count += len(cursor[name])
            if not cursor["id"]:
                return count
            body, name = {"getMore": cursor["id"], "collection": self._name}, "nextBatch"

    def aggregate(self, pipeline: Sequence[Document]) -> Documents:
        return self._all(self._run({"aggregate": self._name, "pipeline": pipeline, "cursor": {}}))

    def update_many(self, query: Document, update: Document) -> int:
        updates = [{"q": query, "u": update, "multi": True}]
        return int(self._run({"update": self._name, "updates": updates})["nModified"])

    def delete_many(self, query: Document) -> int:
        return int(self._run({"delete": self._name, "deletes": [{"q": query, "limit": 0}]})["n"])

    def create_index(self, field: str) -> None:
        self._run({"createIndexes": self._name, "indexes": [{"key": {field: 1}, "name": f"{field}_1"}]})


class LibraryCollection(BulkCollection):
    """By a driver's interface."""

    def __init__(self, collection: DriverCollection) -> None:
        self._collection = collection

    def find(self, query: Document, sort: Mapping[str, int] | None = None, limit: int = 0) -> Documents:
        cursor = self._collection.find(query)
        if sort:
            cursor = cursor.sort(list(sort.items()))
        return list(cursor.limit(limit) if limit else cursor)

    def read_to_end(self) -> int:
        return sum(1 for _ in self._collection.find())

    def aggregate(self, pipeline: Sequence[Document]) -> Documents:
        return list(self._collection.aggregate(list(pipeline)))

    def update_many(self, query: Document, update: Document) -> int:
        return self._collection.update_many(query, update).modified_count

    def delete_many(self, query: Document) -> int:
        return self._collection.delete_many(query).deleted_count

    def create_index(self, field: str) -> None:
        self._collection.create_index(field)
