"""`$changeStream`: its arguments, and which stages may follow it. Its events are made in `exec.results.change_stream`.

Source: MongoDB's documentation of `$changeStream` and of change streams.
"""

from typing import Final

from mongottl.document.bson_field import checked_word, unknown_field, wrong_type
from mongottl.document.build import encode
from mongottl.document.types import Timestamp, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage

_FULL_DOCUMENT: Final = ("default", "updateLookup", "whenAvailable", "required")
_BEFORE_CHANGE: Final = ("off", "whenAvailable", "required")
_FLAGS: Final = frozenset(
    (
        "allChangesForCluster",
        "showExpandedEvents",
        "showMigrationEvents",
        "showRawUpdateDescription",
        "showSystemEvents",
        "matchCollectionUUIDForUpdateLookup",
        "allowToRunOnConfigDB",
        "allowToRunOnSystemNS",
    )
)
_NOT_THERE: Final = ("showRawUpdateDescription", "showSystemEvents")


class ChangeStreamSpec(StageSpec):
    """`$changeStream`.

    database, collection: what is watched; collection is "" for a database, both are "" for the deployment.
    resume: the token of `resumeAfter` or `startAfter`, as a document. start_at: `startAtOperationTime`.
    """

    def __init__(self, argument: bytes, database: str, collection: str) -> None:
        self.name = "$changeStream"
        self.first_only = True
        self.argument: Final = argument
        self.database: Final = database
        self.collection: Final = collection
        self.full_document = "default"
        self.before_change = "off"
        self.resume: bytes | None = None
        self.starts_after = False
        self.start_at: Timestamp | None = None
        self.expanded = False

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        """The events come from the server's oplog: it opens the stage itself."""
        return source

    def describe(self) -> Value:
        return encode({"$changeStream": self.argument})


@stage(
    "$changeStream",
    StageTraits(
        in_facet=False,
        nested=False,
        collectionless=True,
        read_levels=frozenset(("majority",)),
        actions=("changeStream", "find"),
        in_transaction=False,
        in_change_stream=True,
    ),
)
def parse_change_stream(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{fullDocument, fullDocumentBeforeChange, resumeAfter | startAfter | startAtOperationTime, showExpandedEvents,
    allChangesForCluster}`.

    50808 if it is not a document, 40415 for an unknown field, 50865 or 40674 for two starting points, InvalidOptions
    (72) for `allChangesForCluster` elsewhere than on `admin`, InvalidNamespace (73) for the server's own databases and
    collections.
    """
    if not isinstance(argument, bytes):
        raise CommandError(50808, "$changeStream stage expects a document as argument.")
    given = dict(fields(argument))
    cluster = _flags(given).get("allChangesForCluster", False)
    database, _, collection = ctx.namespace.partition(".")
    if collection == "$cmd.aggregate":
        collection = ""
    _check_namespace(database, collection, cluster)
    spec = ChangeStreamSpec(argument, "" if cluster else database, collection)
    spec.expanded = given.get("showExpandedEvents") is True
    for name, value in given.items():
        if name == "fullDocument":
            checked_word(f"$changeStream.{name}", value, _FULL_DOCUMENT)
            spec.full_document = str(value)
        elif name == "fullDocumentBeforeChange":
            checked_word(f"$changeStream.{name}", value, _BEFORE_CHANGE)
            spec.before_change = str(value)
        elif name in ("resumeAfter", "startAfter"):
            if not isinstance(value, bytes):
                raise wrong_type(f"$changeStream.{name}", value, "object")
            if spec.resume is not None:
                raise CommandError(50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage")
            spec.resume = value
            spec.starts_after = name == "startAfter"
        elif name == "startAtOperationTime":
            if not isinstance(value, Timestamp):
                raise wrong_type(f"$changeStream.{name}", value, "timestamp")
            spec.start_at = value
    if spec.resume is not None and spec.start_at is not None:
        raise CommandError(40674, "Only one type of resume option is allowed, but multiple were found.")
    return [spec]


def _flags(given: dict[str, Value]) -> dict[str, bool]:
    """The boolean options. 40415 for a field that no option has, CommandNotSupported (115) for what is not there."""
    found: dict[str, bool] = {}
    for name, value in given.items():
        if name in _FLAGS:
            if not isinstance(value, bool):
                raise wrong_type(f"$changeStream.{name}", value, "bool")
            if value and name in _NOT_THERE:
                raise CommandError(ErrorCode.CommandNotSupported, f"$changeStream option {name} is not supported")
            found[name] = value
        elif name not in (
            "fullDocument",
            "fullDocumentBeforeChange",
            "resumeAfter",
            "startAfter",
            "startAtOperationTime",
        ):
            raise unknown_field(f"$changeStream.{name}")
    return found


def _check_namespace(database: str, collection: str, cluster: bool) -> None:
    if cluster:
        if database != "admin" or collection:
            raise CommandError(
                ErrorCode.InvalidOptions,
                "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with"
                f" no collection name; found {database}.{collection or '$cmd.aggregate'}",
            )
        return
    if database in ("admin", "config", "local"):
        raise CommandError(
            ErrorCode.InvalidNamespace, f"$changeStream may not be opened on the internal {database} database"
        )
    if collection.startswith("system."):
        raise CommandError(
            ErrorCode.InvalidNamespace,
            f"$changeStream may not be opened on the internal {database}.{collection} collection",
        )


def check_following(specs: list[StageSpec]) -> None:
    """IllegalOperation (20) for a stage that may not follow `$changeStream`."""
    for spec in specs:
        if not spec.traits.in_change_stream:
            raise CommandError(ErrorCode.IllegalOperation, f"{spec.name} is not permitted in a $changeStream pipeline")
