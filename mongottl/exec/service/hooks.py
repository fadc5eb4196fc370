"""What the server's core asks of the shell around it: lines for the log, and what only the shell can do.

Each does nothing until the shell has set it.
"""

from collections.abc import Callable

from mongottl.exec.running.client import ClientInfo
from mongottl.exec.sessions.cursor_registry import OpenCursor
from mongottl.storage.errors import DamagedRecord


def _nothing() -> None:
    pass


def _at_once(function: Callable[[], None]) -> None:
    function()


def _no_lines(name: str) -> list[str] | None:
    return None


def _no_document(client: ClientInfo, namespace: str, document: bytes, info: bytes) -> None:
    pass


def _no_sparse(client: ClientInfo, namespace: str, name: str) -> None:
    pass


def _no_login(client: ClientInfo, mechanism: str, user: str, failure: str) -> None:
    pass


def _no_cursor(cursor: OpenCursor) -> None:
    pass


def _no_text(line: str) -> None:
    pass


def _no_record(error: DamagedRecord) -> None:
    pass


class ServerHooks:
    """The functions of one server."""

    def __init__(self) -> None:
        # For getLog: the latest lines of the log of this name, None for an unknown name.
        self.log_lines: Callable[[str], list[str] | None] = _no_lines
        # Logs a document that fails its collection's validator: client, namespace, document, errInfo.
        self.log_invalid_document: Callable[[ClientInfo, str, bytes, bytes], None] = _no_document
        # Logs that `sparse` has no effect, in the dialect `cosmos`: client, namespace, name of the index.
        self.log_ignored_sparse: Callable[[ClientInfo, str, str], None] = _no_sparse
        # Logs a login: client, mechanism, user, and why it failed, "" if it has not.
        self.log_login: Callable[[ClientInfo, str, str, str], None] = _no_login
        # Logs that a cursor was closed to make room.
        self.log_ended_cursor: Callable[[OpenCursor], None] = _no_cursor
        # Logs a line that a script has printed.
        self.log_script_output: Callable[[str], None] = _no_text
        # Called when a purge has found a damaged record, which is left where it is.
        self.log_damaged_record: Callable[[DamagedRecord], None] = _no_record
        # Called when a command has found the disk full.
        self.note_full_disk: Callable[[], None] = _nothing
        # Reads the files of the server's certificate again. OSError, with a text, if they cannot be used.
        self.rotate_certificates: Callable[[], None] = _nothing
        # Stops the server, as a signal does.
        self.request_stop: Callable[[], None] = _nothing
        # Has a function called, now or soon, that may wait for the storage engine, though the caller must not.
        self.run_aside: Callable[[Callable[[], None]], None] = _at_once
        # Called when there may be more to read in the log of a store: wakes who looks for change streams.
        self.wake_log_follower: Callable[[], None] = _nothing
        # Called when the wheel's earliest due second has changed or the clock was moved: wakes the reaper.
        self.wake_reaper: Callable[[], None] = _nothing
