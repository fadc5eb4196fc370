"""How a dialect carries out commands otherwise than MongoDB, where a check or a text of `Dialect` is not enough.

class DocumentDB(Dialect, CommandHooks): overrides what it does otherwise
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.commands.registry import CommandSpec, Reply
from mongottl.config import DIALECTS
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext

if TYPE_CHECKING:  # what a server does not import before the first query
    from mongottl.exec.plan.planner import QueryPlan
    from mongottl.exec.results.cursors import ClientCursor
    from mongottl.query.match import MatchExpression
    from mongottl.query.pipeline.stage import StageSpec


class Gateway(ABC):
    """What runs the commands of one server, to count or to refuse them."""

    @abstractmethod
    def execute(self, spec: CommandSpec, op: OperationContext, arguments: Any) -> Reply:
        """What the command's function returns, unless the command is refused; CommandError if it is."""
        raise NotImplementedError


class FirstUsers(ABC):
    """The users that a dialect has made at the start, whose whole login the connection string has.

    name: of both. password: of the one that may do everything. reader_password: of the one that may read.
    """

    def __init__(self, name: str, password: str, reader_password: str) -> None:
        self.name = name
        self.password = password
        self.reader_password = reader_password

    @abstractmethod
    def uri_options(self, replica_set: str | None, is_encrypted: bool) -> list[str]:
        """The options of the connection string. replica_set: None for a server without one."""
        raise NotImplementedError


class PlannedFind(NamedTuple):
    """A find that is to be explained. described: its parsed filter, as explain shows it."""

    plan: "QueryPlan"
    match: "MatchExpression"
    described: Value
    collection: Collection | None


class CommandHooks:
    """Each does what MongoDB does."""

    def gateway(self, service: ServiceContext) -> Gateway | None:
        """What runs the commands of a server, asked when it starts; None to call their functions. A fast path that
        needs no stack is only taken without one."""
        return None

    def units_per_s(self, service: ServiceContext, holder: str) -> int:
        """How much may be spent of a budget in each second; 0 for one that is not there any more. holder: as it was
        given to `Observation.spend`."""
        return 0

    def first_users(self, service: ServiceContext) -> FirstUsers | None:
        """Makes the users that the settings of the dialect name, or gives them their passwords; None without. OSError
        if they cannot be made."""
        return None

    def stream_pipeline(
        self, op: OperationContext, named: Value, name: str, collection: Collection | None, pipeline: list[Value]
    ) -> list[Value]:
        """The pipeline with which a change stream runs, or an error for one that is refused.

        named: the field `aggregate`. name: of the collection. collection: None if there is none. pipeline: as sent.
        """
        return pipeline

    def open_stream(
        self,
        op: OperationContext,
        named: Value,
        name: str,
        collection: Collection | None,
        stages: "list[StageSpec]",
    ) -> "ClientCursor":
        """The cursor of a change stream. stages: those of `stream_pipeline`, parsed; see there for the others."""
        from mongottl.exec.results.change_stream import open_change_stream

        return open_change_stream(op, f"{op.database}.{name}", stages)

    def explain_find(
        self, op: OperationContext, name: str, filter: bytes, command: bytes, plan: Callable[[], PlannedFind]
    ) -> Reply | None:
        """The reply to explain of a find; None for MongoDB's.

        name: of the collection. filter, command: as sent. plan: plans the find, with the errors of the query itself.
        """
        return None


_MONGODB: Final = CommandHooks()


def hooks_of(service: ServiceContext) -> CommandHooks:
    """The hooks of a server's dialect."""
    dialect: object = service.dialect
    return dialect if isinstance(dialect, CommandHooks) else _MONGODB


def wrong_dialect(name: str) -> CommandError:
    """CommandNotSupported (115) for what the server has in the dialect `name` alone."""
    text = f"the server does not stand for {DIALECTS[name].title}: --dialect {name}"
    return CommandError(ErrorCode.CommandNotSupported, text)
