"""Loading the folder of `--load` at start: collections, their indexes and documents, views, users and roles.

All files are read before anything is seen, so the server starts with all of it or not at all. A collection or view that
exists already, in a data directory that was loaded before, is left as it is.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from mongottl.catalog.collection import Collection
from mongottl.catalog.index import ID_INDEX_NAME
from mongottl.catalog.options import CollectionOptions
from mongottl.catalog.view import View
from mongottl.commands import COMMANDS
from mongottl.commands.ddl.create import CreateRequest, create_view, parse_options
from mongottl.commands.ddl.indexes import CreateIndexesRequest, create_requested
from mongottl.commands.request import GenericArguments
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import MISSING
from mongottl.document.walk import fields, get_value
from mongottl.dump.errors import DumpError
from mongottl.dump.folder import DEFAULT_DATABASE, CollectionFiles, DumpFolder
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.refreshing import carry_out
from mongottl.exec.results.views import drop_view
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.write.loading import LoadingCatalog, NotLoaded, load_documents, loading_operation
from mongottl.security.accounts import DATABASE, ROLES, USERS
from mongottl.server.log import Log

T = TypeVar("T")


async def load_folder(service: ServiceContext, folder: str, log: Log) -> None:
    """Loads a folder. DumpError for a file that cannot be loaded; nothing of the folder is then stored."""
    try:
        with closing(_Loading(service, log).steps(DumpFolder(Path(folder)))) as steps:
            for _ in steps:
                await trio.lowlevel.checkpoint()
    except DumpError as error:
        raise DumpError(f"cannot load {error}") from error


class _Loading:
    def __init__(self, service: ServiceContext, log: Log) -> None:
        self._service = service
        self._log = log
        self._catalog = LoadingCatalog(service.catalog)
        self._views: list[tuple[CollectionFiles, View]] = []
        self._documents = 0
        self._collections = 0

    def _carry_out(self, step: Callable[[], T]) -> T:
        """`carry_out`, since other servers of the same store may change its catalog meanwhile. DumpError if they have
        taken this one for dead, and may have dropped what it has loaded."""
        nodes = self._service.engine.shared_nodes

        def kept() -> T:
            if nodes is not None:
                nodes.keep_place()
                if not nodes.has_kept_place:
                    raise DumpError("the server has lost its place among those of its store meanwhile; start it again")
            return step()

        return carry_out(self._service.engine, kept)

    def steps(self, folder: DumpFolder) -> Generator[None]:
        """Loads the folder, a batch of documents a step."""
        began_s = self._service.clock.monotonic_s()
        for path in folder.not_read:
            self._log.info("storage", "Not loaded", path=path, why="not meant for loading")
        if folder.outside:
            names = [path.name for path in folder.outside]
            self._log.info("storage", "Files without a database's folder", files=names, database=DEFAULT_DATABASE)
        try:
            for files in folder.collections:
                yield from self._load(files)
            self._define_views()
        except BaseException:
            carry_out(self._service.engine, self._catalog.drop_all)
            raise
        elapsed_ms = int((self._service.clock.monotonic_s() - began_s) * 1000)
        self._log.info(
            "storage",
            "Loaded",
            folder=folder.path,
            collections=self._collections,
            documents=self._documents,
            views=len(self._views),
            durationMillis=elapsed_ms,
        )

    def _load(self, files: CollectionFiles) -> Iterator[None]:
        if self._service.catalog.find(files.database, files.name) is not None:
            self._log.info("storage", "Not loaded", path=files.path, why=f"{files.namespace} exists already")
            return
        op = loading_operation(self._service, self._catalog, files.database)
        try:
            collection = self._create(op, files)
        except CommandError as error:
            raise DumpError(f"{files.path}: {error.message}") from error
        if collection is None:
            return
        self._collections += 1
        for batch in files.batches():
            try:
                self._carry_out(partial(load_documents, op, collection, batch.documents))
            except NotLoaded as error:
                raise DumpError(f"{files.documents}, {batch.place(error.position)}: {error.reason}") from error
            self._documents += len(batch.documents)
            yield

    def _create(self, op: OperationContext, files: CollectionFiles) -> Collection | None:
        """The new collection with its indexes; None for a view, which is defined when all collections are there."""
        catalog = self._catalog
        name = files.name
        if (files.database, name) not in ((DATABASE, USERS), (DATABASE, ROLES)):
            catalog.check_new_name(files.database, name)
        if files.metadata is None:
            return self._carry_out(partial(catalog.create_collection, files.database, name))
        described = [("create", name), *fields(files.metadata.options)]
        request = CreateRequest._make(_parsed("create", encode_fields(described)))
        options = parse_options(op, request)
        if request.view_on is not None:
            if files.documents is not None and next(files.batches(), None) is not None:
                raise DumpError(f"{files.documents}: {files.namespace} is a view, which has no documents of its own")
            if files.metadata.indexes:
                raise DumpError(f"{files.path}: {files.namespace} is a view, which has no indexes")
            self._views.append((files, _view(files, request, options)))
            return None
        collection = self._carry_out(partial(catalog.create_collection, files.database, name, options))
        specs = [
            _with_collation(spec, collection) for spec in files.metadata.indexes if not _is_made_with_collection(spec)
        ]
        if specs:
            wanted = CreateIndexesRequest._make(
                _parsed("createIndexes", encode_fields([("createIndexes", name), ("indexes", specs)]))
            )
            self._carry_out(partial(create_requested, op, wanted, with_collection=True))
        return collection

    def _define_views(self) -> None:
        """Defines the views, and publishes the collections. Views may be in a collection that exists already."""
        defined: list[tuple[OperationContext, View]] = []
        try:
            for files, view in self._views:
                op = loading_operation(self._service, self._catalog, files.database)
                try:
                    self._carry_out(partial(create_view, op, view, None))
                except CommandError as error:
                    raise DumpError(f"{files.path}: {error.message}") from error
                defined.append((op, view))
            self._carry_out(self._catalog.publish_all)
        except BaseException:
            for op, view in defined:
                drop_view(op, view)
            raise


def _parsed(command: str, body: bytes) -> list[Any]:
    """The values of a request's fields. CommandError for a field that the command does not have."""
    return COMMANDS[command].parser.parse(body, [], GenericArguments())


def _view(files: CollectionFiles, request: CreateRequest, options: CollectionOptions) -> View:
    assert request.view_on is not None
    pipeline: list[object] = [] if request.pipeline is None else [*request.pipeline]
    return View(files.database, files.name, request.view_on, pipeline, options.collation)


def _with_collation(spec: bytes, collection: Collection) -> bytes:
    """The specification of an index as `createIndexes` wants it: there the collation of the collection is the default,
    while in a list of indexes one without collation compares bytes."""
    if collection.collation is None or get_value(spec, "collation") is not MISSING:
        return spec
    return encode_fields([*fields(spec), ("collation", encode({"locale": "simple"}))])


def _is_made_with_collection(spec: bytes) -> bool:
    """Whether an index is there as soon as its collection is: that on `_id`, clustered or not."""
    return get_value(spec, "clustered") is True or get_value(spec, "name") == ID_INDEX_NAME
