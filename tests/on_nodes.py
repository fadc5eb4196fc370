"""Several servers in the place of each one that a test starts: MONGOTTL_TEST_NODES=3 beside MONGOTTL_TEST_STORE.

They have one store and answer as mongos. The URI names all, and PyMongo has the next one for each operation, but for
cursors and transactions, which it keeps at a node. What tests do with the server itself, such as moving its clock, they
do with the first one. With MONGOTTL_TEST_BALANCER=haproxy besides, URIs name an HAProxy before them instead, with
`loadBalanced=true`; each operation takes a new connection, but for cursors and transactions, which keep one.

A test of what each node has for itself is marked `one_node`: for it the URIs name the first node alone, which has the
others beside it as always.
"""

import base64
import itertools
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import pymongo
import pytest
from pymongo.server_description import ServerDescription

from mongottl import RunningServer
from mongottl.exec.service.service import ServiceContext
from tests.balancer import by_haproxy
from tests.on_store import PREFIX, with_schema

_MARK: Final = "one_node"


def wanted() -> int:
    """How many servers there are in the place of each."""
    return int(os.environ.get("MONGOTTL_TEST_NODES", "1"))


def is_balanced() -> bool:
    """Whether a balancer is named in the place of several nodes."""
    return os.environ.get("MONGOTTL_TEST_BALANCER") == "haproxy"


def one_node(why: str) -> pytest.MarkDecorator:
    """For tests that speak to one node. why: what they look at that each node has for itself."""
    mark: pytest.MarkDecorator = getattr(pytest.mark, _MARK)(why)
    return mark


def no_balancer(why: str) -> pytest.MarkDecorator:
    """For tests that speak to one node in the place of HAProxy, but to all that a URI names. why: what keeps it out."""
    return one_node(why) if is_balanced() else pytest.mark.skipif(False, reason=why)


# For tests that send commands themselves where drivers keep to a node.
own_cursors: Final = one_node("a cursor is its node's, and a getMore that no driver sends may reach another one")
own_fail_points: Final = one_node("a fail point is set on one node")
own_account: Final = one_node("configureCosmos changes the account of one node")
own_units: Final = one_node("request units are counted by the node that has charged them, by the account that it has")
own_parameters: Final = one_node("setParameter sets one node's parameter")
own_operations: Final = one_node("currentOp shows one node's operations")
own_profile: Final = one_node("a profiling level is one node's, and so are its profiled operations")
own_figures: Final = one_node("serverStatus counts what one node has done")
own_page: Final = one_node("a page and its metrics show what their node has done")
own_statistics: Final = one_node("plans and statistics of queries are remembered by the node that has executed them")
own_logins: Final = one_node("a login that no driver makes is of one connection, and others are of other nodes")
own_sessions: Final = one_node("$listLocalSessions shows the sessions of one node")
own_log: Final = one_node("getLog shows one node's log")
own_record_ids: Final = one_node("each node gives record ids from blocks of its own")
own_transactions: Final = one_node(
    "a change of a collection waits for its node's transactions, and conflicts with others"
)
own_times: Final = one_node("operationTime is that of the latest write that a node has made")
own_snapshots: Final = one_node("a snapshot outside of transactions is one node's")


# For tests of what a member of a replica set answers: `tests/golden/mongos.golden` and `test_topology` have a mongos'.
of_replica_set: Final = pytest.mark.skipif(wanted() > 1, reason="several nodes answer as mongos, not as a replica set")

# For tests of what starting and stopping one server does, or of what no other one may do beside it.
alone: Final = pytest.mark.skipif(wanted() > 1, reason="several nodes stand in the place of each server")

# For tests of how far a budget of request units goes.
whole_budget: Final = pytest.mark.skipif(wanted() > 1, reason="each node has its share of a budget of request units")

# For tests of the bound on the oplog.
drops_old_writes: Final = pytest.mark.skipif(wanted() > 1, reason="nodes keep the oplog for five minutes, for retries")
# For tests of `fsync` with `lock`.
locks_all_writes: Final = pytest.mark.skipif(wanted() > 1, reason="fsync with lock is refused where there are nodes")


class _Nodes:
    """The further servers in the place of one, and their balancer, by its id; and whether URIs name them now."""

    others: Final[dict[int, list[RunningServer]]] = {}
    balancers: Final[dict[int, tuple[int, ExitStack]]] = {}
    are_named = True


def begin(item: pytest.Item) -> None:
    """Before a test and its fixtures."""
    _Nodes.are_named = item.get_closest_marker(_MARK) is None


def nodes_of(server: RunningServer) -> list[ServiceContext]:
    """What each server has that stands in the place of one."""
    return [each._thread.server.service for each in (server, *_Nodes.others.get(id(server), ()))]


def node_uris(server: RunningServer) -> list[str]:
    """A URI for each server that stands in the place of one."""
    uri: str = server.__dict__["uri"]
    return [uri, *(uri.replace(_host(server), _host(other)) for other in _Nodes.others.get(id(server), ()))]


def _host(server: RunningServer) -> str:
    return f"127.0.0.1:{server.port}"


def _turns() -> Callable[[Sequence[ServerDescription]], Sequence[ServerDescription]]:
    """What gives a driver one of the servers that it knows, another one each time."""
    turns = itertools.count()

    def choose(servers: Sequence[ServerDescription]) -> Sequence[ServerDescription]:
        known = sorted(servers, key=lambda server: server.address)
        return [known[next(turns) % len(known)]] if known else []

    return choose


def serve_by_nodes(count: int) -> None:
    """Has servers without a folder, and with the default topology, started `count` times, in a store of their own."""
    start, stop = RunningServer.start, RunningServer.stop

    def start_all(self: RunningServer) -> RunningServer:
        config = self._config
        if self.running or config.data_dir is not None or config.store is not None:
            return start(self)
        store = with_schema(PREFIX + uuid.uuid4().hex[:12])
        key = config.cosmos_key
        if config.cosmos_account and not key and not config.cosmos_key_file:
            key = base64.b64encode(os.urandom(64)).decode()  # a single server would make one
        shared = replace(config, store=store, storage_engine="auto", topology="sharded", cosmos_key=key)
        self._config = shared
        try:
            start(self)
        finally:
            self._config = config
        alike = replace(shared, port=0, web_port=None, load=None, user=None, password=None)
        _Nodes.others[id(self)] = [start(RunningServer(alike)) for _ in range(count - 1)]
        if is_balanced():
            with ExitStack() as stack:
                ports = [self.port, *(other.port for other in _Nodes.others[id(self)])]
                port = stack.enter_context(by_haproxy(ports, "roundrobin"))
                _Nodes.balancers[id(self)] = port, stack.pop_all()
        return self

    def stop_all(self: RunningServer) -> None:
        if id(self) in _Nodes.balancers:
            _Nodes.balancers.pop(id(self))[1].close()
        for other in _Nodes.others.pop(id(self), []):
            stop(other)
        stop(self)

    def get_uri(self: RunningServer) -> str:
        uri: str = self.__dict__["uri"]
        if _Nodes.are_named and id(self) in _Nodes.balancers:
            uri = uri.replace(_host(self), f"127.0.0.1:{_Nodes.balancers[id(self)][0]}")
            uri = f"{uri}{'&' if '?' in uri else '?'}loadBalanced=true"
            return uri if "maxIdleTimeMS" in uri else f"{uri}&maxIdleTimeMS=0.001"
        others = _Nodes.others.get(id(self), []) if _Nodes.are_named else []
        return uri.replace(_host(self), ",".join(map(_host, (self, *others))))

    def set_uri(self: RunningServer, uri: str) -> None:
        self.__dict__["uri"] = uri

    connect = pymongo.MongoClient.__init__

    def connect_to_all(self: "pymongo.MongoClient[Any]", *arguments: Any, **options: Any) -> None:
        connect(self, *arguments, **{"server_selector": _turns(), **options})

    pymongo.MongoClient.__init__ = connect_to_all  # type: ignore[method-assign]
    RunningServer.start = start_all  # type: ignore[method-assign]
    RunningServer.stop = stop_all  # type: ignore[method-assign]
    RunningServer.uri = property(get_uri, set_uri)  # type: ignore[assignment]
