"""Which files of a folder belong to which collection.

    FOLDER/shop/carts.bson                     documents of shop.carts (.gz: packed, here and below)
    FOLDER/shop/carts.metadata.json            its options and indexes
    FOLDER/shop/orders.json, .jsonl, .ndjson   documents of shop.orders
    FOLDER/orders.json                         without a database's folder: test.orders
    FOLDER/prelude.json, shop/prelude.json     about the dump itself; not read
    FOLDER/config, FOLDER/local                state of the server that was dumped; not read
    FOLDER/.name                               hidden files; not read

Everything else is an error, so that no file is left out by mistake. Names are as `mongodump` escapes them: `%2F` stands
for a slash; a name that is too long for a file's is in the metadata.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from mongottl.dump.batches import Batch, DumpFile, in_batches
from mongottl.dump.bson_file import bson_documents
from mongottl.dump.errors import DumpError
from mongottl.dump.json_file import json_documents
from mongottl.dump.metadata import Metadata

# Where the collections of files without a database's folder go.
DEFAULT_DATABASE: Final = "test"
_METADATA: Final = ".metadata.json"
_BSON: Final = ".bson"
_JSON: Final = (".json", ".jsonl", ".ndjson")
_PACKED: Final = ".gz"
_PRELUDE: Final = "prelude.json"
_OPLOG: Final = "oplog.bson"
# Databases in which a server keeps its own state.
_NOT_READ: Final = ("config", "local")
# The version of the stored users; nothing depends on it here.
_NOT_LOADED: Final = (("admin", "system.version"),)
_BUCKETS: Final = "system.buckets."
# Begins the files of `mongodump --db NAME --dumpDbUsersAndRoles`.
_USERS_OF_DATABASE: Final = "$admin."


class CollectionFiles:
    """The files of one collection: documents and metadata, one of which may be None."""

    def __init__(self, database: str, name: str, documents: Path | None, metadata: Metadata | None) -> None:
        self.database = database
        self.name = name
        self.namespace = f"{database}.{name}"
        self.documents = documents
        self.metadata = metadata

    @property
    def path(self) -> Path:
        """The file that errors about the collection name."""
        if self.metadata is not None:
            return self.metadata.path
        assert self.documents is not None
        return self.documents

    def batches(self) -> Iterator[Batch]:
        """The documents. DumpError."""
        if self.documents is None:
            return
        file = DumpFile(self.documents)
        try:
            if _unpacked_name(self.documents).endswith(_BSON):
                yield from in_batches("byte", bson_documents(file))
            else:
                yield from in_batches("line", json_documents(file))
        finally:
            file.close()


class DumpFolder:
    """A folder that was looked through. collections: in the order of their names. not_read: what was left out as not
    meant for loading. outside: files of collections without a database's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.collections: list[CollectionFiles] = []
        self.not_read: list[Path] = []
        self.outside: list[Path] = []
        if not path.is_dir():
            raise DumpError(f"{path}: {'not a folder' if path.exists() else 'there is no such folder'}")
        files: list[Path] = []
        for entry in _entries(path):
            if not entry.is_dir():
                if _unpacked_name(entry) == _OPLOG:
                    raise DumpError(f"{entry}: the oplog of a dump is not replayed; use mongorestore --oplogReplay")
                files.append(entry)
            elif entry.name in _NOT_READ:
                self.not_read.append(entry)
            else:
                self._add_database(entry.name, _entries(entry))
        self.outside = self._add_database(DEFAULT_DATABASE, files)
        self.collections.sort(key=lambda files: (files.database, files.name))
        for one, next_one in zip(self.collections, self.collections[1:], strict=False):
            if one.namespace == next_one.namespace:
                raise DumpError(f"{one.path} and {next_one.path} are both for {one.namespace}")

    def _add_database(self, database: str, entries: list[Path]) -> list[Path]:
        """Adds the collections of a database; their files."""
        metadata: dict[str, Path] = {}
        documents: dict[str, Path] = {}
        for entry in entries:
            name = _unpacked_name(entry)
            if entry.is_dir():
                raise DumpError(f"{entry}: a folder within the folder of a database")
            if name == _PRELUDE:
                self.not_read.append(entry)
                continue
            kind, stem = _kind_of(entry, name)
            known = metadata if kind == _METADATA else documents
            if stem in known:
                raise DumpError(f"{known[stem]} and {entry} are both for collection {stem} of database {database}")
            known[stem] = entry
        for stem in sorted(metadata.keys() | documents.keys()):
            self._add(database, stem, documents.get(stem), metadata.get(stem))
        return sorted([*metadata.values(), *documents.values()])

    def _add(self, database: str, stem: str, documents: Path | None, metadata: Path | None) -> None:
        described = None if metadata is None else Metadata(metadata)
        name = stem if described is None or not described.name else described.name
        path = metadata if documents is None else documents
        assert path is not None
        if (database, name) in _NOT_LOADED:
            self.not_read.append(path)
            return
        if name.startswith(_USERS_OF_DATABASE):
            raise DumpError(f"{path}: users and roles of a single database are not loaded; mongorestore restores them")
        if name.startswith(_BUCKETS):
            raise DumpError(
                f"{path}: the buckets of a time series collection are not loaded; mongoexport writes its"
                " measurements, which can be"
            )
        self.collections.append(CollectionFiles(database, name, documents, described))


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, by name, without hidden files. DumpError if it cannot be read."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DumpError(f"{folder}: {error.strerror or error}") from error


def _unpacked_name(path: Path) -> str:
    return path.name.removesuffix(_PACKED)


def _kind_of(path: Path, name: str) -> tuple[str, str]:
    """The suffix of a file's name and what it is of, unescaped. DumpError for a file of another kind."""
    for suffix in (_METADATA, _BSON, *_JSON):
        stem = name.removesuffix(suffix)
        if stem != name and stem:
            try:
                return suffix, unquote(stem, errors="strict")
            except UnicodeDecodeError as error:
                raise DumpError(f"{path}: its name is not escaped UTF-8") from error
    kinds = ", ".join((_BSON, *_JSON))
    raise DumpError(f"{path}: neither {kinds} nor {_METADATA} (.gz); hidden files are not read")
