"""Counters of a server, in the groups and names that `serverStatus` shows."""

from typing import Final

from mongottl.exec.operation.usage import UsageRegistry

# Calls of commands that do not exist are counted under this name, so that clients cannot add names without limit.
UNKNOWN_COMMAND: Final = "<UNKNOWN>"


class Metrics:
    """Plain counters; they only grow."""

    def __init__(self) -> None:
        self.operations: dict[str, int] = {
            "insert": 0, "query": 0, "update": 0, "delete": 0, "getmore": 0, "command": 0,
        }  # fmt: skip
        self.documents: dict[str, int] = {"deleted": 0, "inserted": 0, "returned": 0, "updated": 0}
        self.ttl_passes = 0
        self.ttl_deleted_documents = 0
        self.connections_current = 0
        self.connections_created = 0
        self.connections_rejected = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.asserts_user = 0
        self.asserts_internal = 0
        self.commands: dict[str, int] = {}
        self.failed_commands: dict[str, int] = {}
        self.usage = UsageRegistry()
