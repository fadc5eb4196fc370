"""Several servers in the place of each one that a test starts: MONGOTTL_TEST_NODES=3 beside MONGOTTL_TEST_STORE.

They have one store and answer as mongos; the URI names all, so that drivers choose one for each operation. What tests
do with the server itself, such as moving its clock, they do with the first one.
"""

import os
import uuid
from dataclasses import replace

from mongottl import RunningServer
from tests.on_store import PREFIX, with_schema


def wanted() -> int:
    """How many servers there are in the place of each."""
    return int(os.environ.get("MONGOTTL_TEST_NODES", "1"))


def serve_by_nodes(count: int) -> None:
    """Has servers without a folder, and with the default topology, started `count` times, in a store of their own."""
    start, stop = RunningServer.start, RunningServer.stop
    others: dict[int, list[RunningServer]] = {}

    def start_all(self: RunningServer) -> RunningServer:
        config = self._config
        if self.running or config.data_dir is not None or config.store is not None:
            return start(self)
        store = with_schema(PREFIX + uuid.uuid4().hex[:12])
        shared = replace(config, store=store, storage_engine="auto", topology="sharded")
        self._config = shared
        try:
            start(self)
        finally:
            self._config = config
        others[id(self)] = [
            start(RunningServer(replace(shared, port=0, web_port=None, load=None, user=None, password=None)))
            for _ in range(count - 1)
        ]
        hosts = [f"127.0.0.1:{each.port}" for each in (self, *others[id(self)])]
        self.uri = self.uri.replace(hosts[0], ",".join(hosts))
        return self

    def stop_all(self: RunningServer) -> None:
        for other in others.pop(id(self), []):
            stop(other)
        stop(self)

    RunningServer.start = start_all  # type: ignore[method-assign]
    RunningServer.stop = stop_all  # type: ignore[method-assign]
