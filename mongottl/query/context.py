"""The context of parsing. One per operation."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from mongottl.document.collation import Collation
from mongottl.document.freeing import LONG, LongDict
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.metadata import MetadataUse
from mongottl.query.timestamps import ClusterTime, TimestampClock
from mongottl.versions import Features

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts


def _no_scripts(name: str) -> NoReturn:
    raise CommandError(ErrorCode.BadValue, f"{name} is not allowed in this context")


class ParseContext:
    """The context in which a filter, expression, update or pipeline is parsed.

    now_ms: the operation's time, for `$$NOW` and `$currentDate`; milliseconds since the epoch.
    let: the command's `let` variables, already evaluated: name without `$$` to value.
    namespace: "db.collection" of the command, for messages and for stages that read other collections.
    metadata: the metadata that the parsed text reads by `{$meta: …}` and that it provides; parsers add to it.
    runtime_constants: whether `$$NOW` and `$$CLUSTER_TIME` are defined: not while the values of `let` are computed,
    nor in the filters of count, distinct, listCollections, listDatabases and of partial indexes.
    collation: of string comparisons, None for the order of bytes. Nodes store it when they are parsed.
    cluster_time: for `$$CLUSTER_TIME`; None where only the time is known: the first timestamp of its second.
    features: what the announced version of MongoDB has; None if it is the latest one.
    timestamps: generates the timestamps of `$currentDate` and of replacements.
    keeps_empty_timestamps: whether the empty timestamps of a replacement are left as they are.
    takes_near: whether the filter that is parsed is a command's own: only these may have a `$where`, and a `$near`,
    which also sorts the documents.
    open_scripts: called with the name of an operator that runs scripts: the operation's scripts, or the error that
    refuses the operator.
    folding_fails: whether an operator that fails on constant operands is an error of parsing; otherwise it fails at
    each evaluation, as in update pipelines, which MongoDB does not optimise.
    folded_bytes: what the values of operators on constants take that have been computed so far, if they are long.
    folding_error: the error of an operator on its constants, raised when the whole expression has been parsed.
    """

    def __init__(
        self,
        now_ms: int = 0,
        let: dict[str, Value] | None = None,
        namespace: str = "",
        runtime_constants: bool = True,
        collation: Collation | None = None,
        timestamps: TimestampClock | None = None,
        cluster_time: ClusterTime | None = None,
        features: Features | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.let: dict[str, Value] = {} if let is None else let
        self.namespace = namespace
        # Made when it is first asked for: updates by `_id` have none.
        self._metadata: MetadataUse | None = None
        self.runtime_constants = runtime_constants
        self.collation = collation
        self.timestamps: TimestampClock = TimestampClock() if timestamps is None else timestamps
        self.cluster_time = cluster_time
        self.keeps_empty_timestamps = False
        self.features = features
        self.takes_near = False
        self.folding_fails = True
        self.folded_bytes = 0
        self.folding_error: CommandError | None = None
        self.open_scripts: Callable[[str], Scripts] = _no_scripts

    @property
    def metadata(self) -> MetadataUse:
        metadata = self._metadata
        if metadata is None:
            metadata = self._metadata = MetadataUse()
        return metadata

    @metadata.setter
    def metadata(self, metadata: MetadataUse) -> None:
        self._metadata = metadata

    @property
    def reads_metadata(self) -> bool:
        """Whether the parsed text reads metadata."""
        return self._metadata is not None and len(self._metadata.requested) > 0

    def inheriting(self, outer: "ParseContext") -> "ParseContext":
        """This context, with the scripts and the version of MongoDB of the one around it."""
        self.open_scripts = outer.open_scripts
        self.features = outer.features
        return self

    def lacks(self, kind: str, name: str) -> bool:
        """Whether the announced version of MongoDB does not know the operator. kind: that of its registry."""
        return self.features is not None and self.features.lacks(kind, name)

    def advice(self, kind: str, name: str) -> str:
        """The advice for what `lacks` names; "" for what the announced version has."""
        return "" if self.features is None else self.features.advice(kind, name)

    def check_options(self, owner: str, argument: Value) -> None:
        """40415 for a field in the argument of a stage or expression that the announced version does not know, or what
        the dialect says instead, also of lists of operands."""
        if self.features is None:
            return
        if isinstance(argument, bytes):
            self.features.check_options(owner, argument)
        elif isinstance(argument, list):
            self.features.check_operands(owner, argument)

    @property
    def database(self) -> str:
        return self.namespace.split(".", 1)[0]


def with_room_for(let: dict[str, Value], more: int) -> dict[str, Value]:
    """A copy of variables, in a dictionary that is freed in slices if it gets very many with these."""
    if len(let) + more < LONG:
        return dict(let)
    copy: dict[str, Value] = LongDict({})
    for name in let:
        give_way()
        copy[name] = let[name]
    return copy
