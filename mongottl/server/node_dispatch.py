"""Commands of a server that is one of several with the same store (`storage.nodes`).

    before    its place among them is valid, and it knows the present catalog
    after     all others know what the command has changed there; what it has read was true, since the place still is

A command that was made from a catalog which has changed meanwhile is carried out again, if it has not committed
anything, or nothing that matters. What is said by one that only reads, after the place was lost, may be old: it is
answered by an error upon which drivers read again, mostly elsewhere.
"""

from typing import Final

from mongottl.commands import CommandSpec, Reply
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.refreshing import follow_others
from mongottl.exec.service.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.interface import CatalogChanged, StoreUnreachable
from mongottl.storage.nodes import StoreNodes

# Those that come to the same when they are carried out once more after a part of them is done.
_REPEATABLE: Final = frozenset({"collMod", "createIndexes"})


class NodeDispatcher(Dispatcher):
    """nodes: of the store."""

    def __init__(self, service: ServiceContext, log: Log, nodes: StoreNodes) -> None:
        super().__init__(service, log)
        self._nodes = nodes
        follow_others(service)

    def _call(self, spec: CommandSpec, op: OperationContext, request: tuple[Value, ...]) -> Reply:
        if spec.handshake:
            return super()._call(spec, op, request)
        nodes = self._nodes
        while True:
            nodes.begin()
            try:
                reply = super()._call(spec, op, request)
            except CatalogChanged:
                has_committed = nodes.has_committed
                nodes.end()
                if op.session.in_transaction or (has_committed and spec.name not in _REPEATABLE):
                    raise
                continue
            except Exception:
                nodes.end()
                raise
            nodes.end()
            if not nodes.is_valid and not spec.is_write(op.command.body):
                raise StoreUnreachable("this server has lost its place among those of its store")
            return reply
