"""What parsing depends on besides the text itself. One per operation."""

from mongottl.document.collation import Collation
from mongottl.document.types import Value
from mongottl.errors import CommandError
from mongottl.query.metadata import MetadataUse
from mongottl.query.timestamps import TimestampClock


class ParseContext:
    """The surroundings of a filter, expression, update or pipeline.

    now_ms: the operation's one instant, for `$$NOW` and `$currentDate`; milliseconds since the epoch.
    let: the command's `let` variables, already evaluated: name without `$$` to value.
    namespace: "db.collection" of the command, for messages and for stages that read other collections.
    metadata: what the parsed text reads by `{$meta: …}` and what it brings along; parsers add to it.
    runtime_constants: whether `$$NOW` and `$$CLUSTER_TIME` are there: not while the values of `let` are computed, nor
    in the filters of count, distinct, listCollections, listDatabases and of partial indexes.
    collation: how strings are compared, None for the simple way. Nodes take it over while they are parsed.
    timestamps: where `$currentDate` and replacements take timestamps from.
    folding_fails: whether an operator that cannot take its constants is an error of parsing; otherwise it is one of
    each evaluation, as in update pipelines, which MongoDB does not optimise.
    folding_error: what an operator said of its constants, kept back until the expression around it is parsed.
    """

    def __init__(
        self,
        now_ms: int = 0,
        let: dict[str, Value] | None = None,
        namespace: str = "",
        runtime_constants: bool = True,
        collation: Collation | None = None,
        timestamps: TimestampClock | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.let: dict[str, Value] = {} if let is None else let
        self.namespace = namespace
        self.metadata = MetadataUse()
        self.runtime_constants = runtime_constants
        self.collation = collation
        self.timestamps: TimestampClock = TimestampClock() if timestamps is None else timestamps
        self.folding_fails = True
        self.folding_error: CommandError | None = None

    @property
    def database(self) -> str:
        return self.namespace.split(".", 1)[0]
