"""Views: the result of a pipeline over another collection or view, computed when they are read.

The views of a database are the documents of its collection `system.views`, as in mongod: a write there changes them at
once, and dropping that collection drops them all.

    {_id: "<database>.<name>", viewOn: "<collection or view>", pipeline: [ … ], collation: { … }}
"""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.compare import compare_values
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode

SYSTEM_VIEWS: Final = "system.views"


class View:
    """The definition of a view.

    view_on: the name of a collection or view of the same database, which need not exist. pipeline: its stages, as
    given.
    collation: None for the simple collation.
    """

    def __init__(self, database: str, name: str, view_on: str, pipeline: list[Value], collation: bytes | None) -> None:
        self.database = database
        self.name = name
        self.namespace = f"{database}.{name}"
        self.view_on = view_on
        self.pipeline = pipeline
        self.collation = collation

    def definition(self) -> bytes:
        """Its document in `system.views`."""
        return encode_fields([("_id", self.namespace), *self._options()])

    def options(self) -> bytes:
        """Its options as listCollections shows them."""
        return encode_fields(self._options())

    def _options(self) -> list[tuple[str, Value]]:
        options: list[tuple[str, Value]] = [("viewOn", self.view_on), ("pipeline", self.pipeline)]
        if self.collation is not None:
            options.append(("collation", self.collation))
        return options

    def is_same(self, other: "View") -> bool:
        """Whether another view has the same definition."""
        return compare_values(self.definition(), other.definition()) == 0


def view_of(database: str, definition: bytes) -> View:
    """The view that a document of `system.views` defines. InvalidViewDefinition (182) if it defines none."""
    name = ""
    view_on = ""
    pipeline: list[Value] | None = None
    collation: bytes | None = None
    known = True
    for key, value in fields(definition):
        if key == "_id" and isinstance(value, str):
            owner, _, name = value.partition(".")
            known = known and owner == database
        elif key == "viewOn" and isinstance(value, str):
            view_on = value
        elif key == "pipeline" and isinstance(value, list):
            pipeline = value
        elif key == "collation" and isinstance(value, bytes):
            collation = value
        else:
            known = False
    if not known or name == "" or view_on == "" or pipeline is None:
        raise CommandError(
            ErrorCode.InvalidViewDefinition,
            f"found invalid view definition {name or '(without a name)'} while reading '{database}.{SYSTEM_VIEWS}'",
        )
    return View(database, name, view_on, pipeline, collation)
