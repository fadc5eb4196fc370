"""Loading collections from files: what is written is seen by nobody before all of it is published, whole or not at all.

    op = loading_operation(service, catalog, "shop")
    catalog.create_collection(…)    pending: in no database yet
    load_documents(op, …)           batch by batch, each in a unit of work of its own
    catalog.publish_all()           all collections in one unit of work

If the server ends before that, the next start drops what was loaded, since the stored catalog does not have it. The
oplog gets the creation of the collections, but not the documents: they are where its history begins. They are not
validated, since a collection may hold documents that are older than its validator.
"""

from collections.abc import Sequence

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.namespace import spelled_otherwise
from mongottl.catalog.options import NO_OPTIONS, CollectionOptions
from mongottl.catalog.view import View
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import UNCHECKED
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.unit.loading_unit import LoadingRecoveryUnit
from mongottl.exec.write.writes import insert_batch, insert_document, prepare_document, prepare_documents
from mongottl.storage.errors import DuplicateKey
from mongottl.storage.interface import WriteUnitOfWork


class LoadingCatalog(Catalog):
    """The catalog with the collections that are being loaded, which are in no database yet."""

    def __init__(self, shared: Catalog) -> None:
        self.share(shared)
        self.shared = shared
        self._loaded_here: dict[str, Collection] = {}

    def find(self, database: str, name: str) -> Collection | View | None:
        loaded = self._loaded_here.get(f"{database}.{name}")
        return super().find(database, name) if loaded is None else loaded

    def stored_collection(self, database: str, name: str) -> Collection | None:
        loaded = self._loaded_here.get(f"{database}.{name}")
        return super().stored_collection(database, name) if loaded is None else loaded

    def database_spelled_otherwise(self, database: str) -> str | None:
        stored = super().database_spelled_otherwise(database)
        loaded = [collection.database for collection in self._loaded_here.values()]
        return spelled_otherwise(database, loaded) if stored is None else stored

    def create_collection(
        self, database: str, name: str, options: CollectionOptions = NO_OPTIONS, uuid: bytes | None = None
    ) -> Collection:
        collection = self.shared.create_pending(database, name, options, uuid)
        self._loaded_here[collection.namespace] = collection
        return collection

    def start_indexes(self, collection: Collection, descriptors: Sequence[IndexDescriptor]) -> list[CollectionIndex]:
        return self.shared.start_indexes(collection, descriptors)

    def finish_indexes(
        self,
        collection: Collection,
        built: list[CollectionIndex],
        replaced: CollectionIndex | None = None,
        dropped: Sequence[CollectionIndex] = (),
    ) -> None:
        for index in built:
            index.ready = True
        collection.set_indexes(collection.indexes)

    def publish_all(self) -> None:
        """Puts all loaded collections in their databases, in one unit of work."""
        shared = self.shared
        shared.in_unit(self._publish)
        for collection in self._loaded_here.values():
            shared.published(collection)
        self._loaded_here = {}

    def _publish(self, work: WriteUnitOfWork) -> None:
        for collection in self._loaded_here.values():
            self.shared.publish(collection, work)

    def drop_all(self) -> None:
        """Drops what was loaded and has not been published."""
        for collection in self._loaded_here.values():
            self.shared.drop_pending(collection)
        self._loaded_here = {}


class NotLoaded(Exception):
    """A document of a batch cannot be stored. position: in the batch. reason: what is wrong with it."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def loading_operation(service: ServiceContext, catalog: LoadingCatalog, database: str) -> OperationContext:
    """The operation that creates and fills the collections of a database, and defines its views."""
    op = OperationContext(service, ClientInfo(0, "", ""), database)
    op.catalog = catalog
    op.recovery_unit = LoadingRecoveryUnit(service)
    op.write_options = UNCHECKED
    return op


def load_documents(op: OperationContext, collection: Collection, documents: list[bytes]) -> None:
    """Inserts documents in one unit of work. NotLoaded for the first that cannot be stored."""
    try:
        insert_batch(op, collection, prepare_documents(op, collection, documents))
        return
    except (CommandError, DuplicateKey):
        pass  # one by one, to find out which
    for position, document in enumerate(documents):
        try:
            insert_document(op, collection, prepare_document(op, collection, document))
        except CommandError as error:
            raise NotLoaded(position, error.message) from error
