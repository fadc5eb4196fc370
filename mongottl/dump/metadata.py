"""A collection's options and indexes, as `mongodump` writes them: NAME.metadata.json, one object of Extended JSON.

{"options": {…}, "indexes": [{"v": 2, "key": {…}, "name": …}, …], "uuid": …, "collectionName": …, "type": …}
"""

from pathlib import Path
from typing import Final

from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.dump.batches import DumpFile
from mongottl.dump.json_file import json_documents

_KNOWN: Final = frozenset({"options", "indexes", "uuid", "collectionName", "type"})


class Metadata:
    """options: of `create`. indexes: their specifications. name: of the collection, empty if the file does not say it.

    DumpError for what is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.options = EMPTY_DOCUMENT
        self.indexes: list[bytes] = []
        self.name = ""
        file = DumpFile(path)
        try:
            found = [document for document, _ in json_documents(file)]
        finally:
            file.close()
        if len(found) != 1:
            raise file.error(f"one object is needed, not {len(found)}")
        for name, value in fields(found[0]):
            if name not in _KNOWN:
                raise file.error(f"there is no {name} in the metadata of a collection")
            if not self._take(name, value):
                raise file.error(f"the value of {name} has the wrong type")

    def _take(self, name: str, value: Value) -> bool:
        """Takes one field; whether it has the right type."""
        if name == "options" and isinstance(value, bytes):
            self.options = value
        elif name == "indexes" and isinstance(value, list):
            self.indexes = [index for index in value if isinstance(index, bytes)]
            return len(self.indexes) == len(value)
        elif name == "collectionName" and isinstance(value, str):
            self.name = value
        else:
            return name in ("uuid", "type") or (value is None and name in ("options", "indexes"))
        return True
