"""`$changeStream`: its arguments, and which stages may follow it. Its events are made in `exec.results.change_stream`.

Source: MongoDB's documentation of `$changeStream` and of change streams.
"""

from typing import Final

from mongottl.document.bson_field import checked_word, not_a_word, read_stage_options
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.types import Timestamp, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import EVENT_FIELD, OLDEST, POST_IMAGES, SYNTAX

_FULL_DOCUMENT: Final = ("default", "updateLookup", "whenAvailable", "required")
_WITHOUT_IMAGES: Final = ("default", "updateLookup")
_BEFORE_CHANGE: Final = ("off", "whenAvailable", "required")
# Options that are not part of the Stable API, version 1.
_UNSTABLE: Final = (
    "showExpandedEvents",
    "showMigrationEvents",
    "showRawUpdateDescription",
    "showSystemEvents",
    "matchCollectionUUIDForUpdateLookup",
    "allowToRunOnConfigDB",
    "allowToRunOnSystemNS",
)
SPLIT_LARGE_EVENT: Final = "$changeStreamSplitLargeEvent"


class ChangeStreamSpec(StageSpec):
    """`$changeStream`.

    database, collection: what is watched; collection is "" for a database, both are "" for the deployment.
    resume: the token of `resumeAfter` or `startAfter`, as a document. start_at: `startAtOperationTime`.
    expanded, system_events: whether the stream has events of `showExpandedEvents` and `showSystemEvents`. wall_time,
    disambiguates: whether events have `wallTime`, and updates `disambiguatedPaths`.
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
        self.system_events = False
        self.wall_time = True
        self.disambiguates = False

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
        unstable_fields=_UNSTABLE,
        actions=("changeStream", "find"),
        in_transaction=False,
        in_change_stream=True,
    ),
    since=OLDEST,
)
def parse_change_stream(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{fullDocument, fullDocumentBeforeChange, resumeAfter | startAfter | startAtOperationTime, showExpandedEvents,
    allChangesForCluster}`.

    6188500 if it is not a document, 40415 for an unknown option, CommandNotSupported (115) for one of mongod's own
    format of updates, 50865 or 40674 for two starting points, InvalidOptions
    (72) for `allChangesForCluster` elsewhere than on `admin`, InvalidNamespace (73) for the server's own databases and
    collections.
    """
    if not isinstance(argument, bytes):
        raise CommandError(6188500, "$changeStream must take a nested object but found a value of another type")
    given = read_stage_options("$changeStream", argument)
    if given.get("showRawUpdateDescription") is True:
        raise CommandError(
            ErrorCode.CommandNotSupported, "$changeStream option showRawUpdateDescription is not supported"
        )
    cluster = given.get("allChangesForCluster") is True
    database, _, collection = ctx.namespace.partition(".")
    if collection == "$cmd.aggregate":
        collection = ""
    _check_namespace(database, collection, cluster)
    spec = ChangeStreamSpec(argument, "" if cluster else database, collection)
    spec.expanded = given.get("showExpandedEvents") is True
    spec.system_events = given.get("showSystemEvents") is True
    spec.wall_time = not ctx.lacks(EVENT_FIELD, "wallTime")
    spec.disambiguates = spec.expanded and not ctx.lacks(EVENT_FIELD, "disambiguatedPaths")
    for name, value in given.items():
        if name == "fullDocument":
            if value in _FULL_DOCUMENT and value not in _WITHOUT_IMAGES and ctx.lacks(SYNTAX, POST_IMAGES):
                raise not_a_word(f"$changeStream.{name}", str(value), ctx.advice(SYNTAX, POST_IMAGES))
            checked_word(f"$changeStream.{name}", value, _FULL_DOCUMENT)
            spec.full_document = str(value)
        elif name == "fullDocumentBeforeChange":
            checked_word(f"$changeStream.{name}", value, _BEFORE_CHANGE)
            spec.before_change = str(value)
        elif name in ("resumeAfter", "startAfter"):
            assert isinstance(value, bytes)
            if spec.resume is not None:
                raise CommandError(50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage")
            spec.resume = value
            spec.starts_after = name == "startAfter"
        elif name == "startAtOperationTime":
            assert isinstance(value, Timestamp)
            spec.start_at = value
    if spec.resume is not None and spec.start_at is not None:
        raise CommandError(40674, "Only one type of resume option is allowed, but multiple were found.")
    return [spec]


class SplitLargeEventSpec(StageSpec):
    """`$changeStreamSplitLargeEvent`: the stream itself splits what the stages before have made."""

    def __init__(self) -> None:
        self.name = SPLIT_LARGE_EVENT
        self.last_only = True

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return source

    def describe(self) -> Value:
        return encode({self.name: {}})


@stage(
    SPLIT_LARGE_EVENT,
    StageTraits(in_facet=False, nested=False, in_transaction=False, in_change_stream=True, only_in_change_stream=True),
    since=(7, 0),
)
def parse_split_large_event(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{}`. 7182800 for anything else."""
    if argument != EMPTY_DOCUMENT:
        raise CommandError(7182800, f"{SPLIT_LARGE_EVENT} spec should be an empty object")
    return [SplitLargeEventSpec()]


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
