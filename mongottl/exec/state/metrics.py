"""Counters of a server, in the groups and names that `serverStatus` shows."""

from typing import Final

from mongottl.exec.state.usage import UsageRegistry

# Calls of commands that do not exist are counted under this name, so that clients cannot add names without limit.
UNKNOWN_COMMAND: Final = "<UNKNOWN>"


class Logins:
    """Attempts to log in by one mechanism."""

    def __init__(self) -> None:
        self.received = 0
        self.successful = 0


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
        # Writes that met another one's change of the same document or unique key.
        self.write_conflicts = 0
        # Operations that wait now: for a transaction, for fsyncUnlock, or for the copy of a collection.
        self.queued_writers = 0
        # Memory set aside for messages that are not answered yet, connections that wait for some, and those that were
        # closed because their clients sent too slowly (`server/incoming`).
        self.incoming_bytes = 0
        self.incoming_waiting = 0
        self.incoming_closed = 0
        # Logins by mechanism.
        self.logins: dict[str, Logins] = {}
        self.usage = UsageRegistry()

    def count_command(self, name: str, operation: str) -> None:
        """Counts a command. operation: its group in `operations`, empty if it counts its statements there itself."""
        if operation:
            self.operations[operation] += 1
        self.commands[name] = self.commands.get(name, 0) + 1

    def count_login(self, mechanism: str, succeeded: bool) -> None:
        """Counts an attempt to log in by a mechanism that the server has."""
        logins = self.logins.setdefault(mechanism, Logins())
        logins.received += 1
        logins.successful += succeeded
