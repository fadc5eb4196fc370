"""The server's log on standard error: readable lines, or one JSON object a line with mongod's field names.

    2026-05-04T12:00:00.123Z I NETWORK   [conn1] Connection accepted  {"remote": "127.0.0.1:50123"}
    {"t":{"$date":"2026-05-04T12:00:00.123+00:00"},"s":"I","c":"NETWORK","id":22943,"ctx":"conn1","msg":"Connection…",…}

Log lines have the time of the machine's clock, not of a clock that tests move.

A pipe that is not read does not block the server: lines wait in a bounded buffer. Lines for which it has no room are
dropped and counted, and a line reports their number as soon as there is room again.

Source: the field names are those of MongoDB's manual, "Log Messages".
"""

import io
import json
import os
import select
import sys
import traceback
from collections import deque
from typing import Final, TextIO

from mongottl.clock import Clock, SystemClock, iso_date
from mongottl.config import LogSettings

_RECENT_LINES: Final = 1024
# Characters of all these lines, which fit into a reply of `getLog`, and of one text of a line.
_MAX_RECENT_SIZE: Final = 8 * 1024 * 1024
_MAX_TEXT_SIZE: Final = 16 * 1024
# The limit of log lines that wait until the log is read.
_MAX_WAITING_BYTES: Final = 1024 * 1024
# What a pipe that is ready to be written to takes without blocking (POSIX's PIPE_BUF on Linux; elsewhere less).
_PIPE_BYTES: Final = getattr(select, "PIPE_BUF", 512)
_INFO: Final = "I"
_WARNING: Final = "W"
_ERROR: Final = "E"

# A number for each message, to filter by: mongod's where it logs the same event, else ours, above 9,900,000.
MESSAGE_IDS: Final[dict[str, int]] = {
    "Connection accepted": 22943,
    "Connection ended": 22944,
    "Waiting for connections": 23016,
    "Successfully authenticated": 5286306,
    "Authentication failed": 5286307,
    "The user exists already; its password is not changed": 9900060,
    "Access control is off: everybody who can reach this address may read and change everything": 22120,
    "Cannot start": 9900001,
    "Stopping": 9900002,
    "Stopped": 9900003,
    "Worker started": 9900094,
    "Worker ended": 9900095,
    "PostgreSQL has ended; it is started again": 9900096,
    "PostgreSQL did not start": 9900097,
    "Request units": 9900005,
    "Connections are limited": 9900004,
    "Unknown environment variable": 9900006,
    "Documents are stored ahead of the clock, and expire later": 9900007,
    "Commits are lost: the log is damaged before them, or was not all on disk at a power failure": 9900008,
    "A standby that takes the place of the primary may lack acknowledged writes": 9900093,
    "Other users of this machine can read the data folder": 9900009,
    "Protocol error": 9900010,
    "Connection failed": 9900011,
    "Cannot accept connections": 9900012,
    "Connection refused: too many open connections": 9900013,
    "Connection refused: too many open files": 9900026,
    "Connection refused: too many new connections": 9900019,
    "TLS handshake failed": 9900014,
    "TLS ended before the first byte": 9900018,
    "Connection closed: its client sends a message too slowly": 9900025,
    "A request of the page failed": 9900015,
    "The page could not be made": 9900016,
    "A request for the certificate failed": 9900017,
    "Internal error": 9900020,
    "The storage engine failed": 9900030,
    "The store does not answer": 9900092,
    "What another server asks for has failed": 9900098,
    "A stored record is damaged": 9900035,
    "Cannot write to disk; the server will try again": 9900031,
    "The disk is full: only what deletes is written until there is room": 9900033,
    "There is room on the disk again": 9900034,
    "A flush failed, writes are refused; restart the server": 9900032,
    "TTL deletion failed; the server will try again": 9900040,
    "TTL deletion has stopped: the storage engine failed": 9900041,
    "TTL deletion leaves out a damaged record": 9900042,
    "Loaded": 9900070,
    "Not loaded": 9900071,
    "Files without a database's folder": 9900072,
    "Document would fail validation": 20294,
    "The option sparse has no effect in Cosmos DB": 9900080,
    "Slow query": 51803,
    "Command refused": 9900090,
    "More refusals are not logged for a minute": 9900091,
    "Idle cursors are closed, since all together hold too much": 9900023,
    "Two programs reset this server at the same time, so their tests undo each other's writes": 9900045,
    "Command": 9900021,
    "Output of a script": 9900022,
    "Log lines were dropped: nobody read the log": 9900050,
}


class Log:
    """Writes log lines, and keeps the latest ones for `getLog`.

    ctx: the connection that a line is about, as `conn7`, or `main` for the server itself.
    """

    def __init__(
        self, form: str = "text", quiet: bool = False, stream: TextIO | None = None, verbosity: int = 0
    ) -> None:
        self._json = form == "json"
        self.settings = LogSettings(quiet, verbosity)
        self._stream = stream
        self._clock: Clock = SystemClock()
        self._recent: deque[str] = deque()
        self._recent_size = 0
        self._startup_warnings: list[str] = []
        self._waiting = bytearray()
        self.dropped_lines = 0
        self.internal_errors = 0

    def info(self, component: str, message: str, ctx: str = "main", **attributes: object) -> None:
        if not self.settings.quiet:
            self._write(_INFO, component, message, ctx, attributes)

    def warning(self, component: str, message: str, ctx: str = "main", **attributes: object) -> None:
        self._write(_WARNING, component, message, ctx, attributes)

    def error(self, component: str, message: str, ctx: str = "main", **attributes: object) -> None:
        self._write(_ERROR, component, message, ctx, attributes)

    def exception(
        self, component: str, message: str, error: BaseException, ctx: str = "main", **attributes: object
    ) -> None:
        """Logs an unexpected exception with its trace; it is always a defect of mongottl."""
        self.internal_errors += 1
        attributes["trace"] = "".join(traceback.format_exception(error))
        self._write(_ERROR, component, message, ctx, attributes)

    def startup_warning(self, component: str, message: str, **attributes: object) -> None:
        """Logs a warning that shells show when they connect."""
        self._startup_warnings.append(self._write(_WARNING, component, message, "main", attributes))

    def lines(self, name: str) -> list[str] | None:
        """The latest lines of `global`, the warnings of the start, or None for an unknown name."""
        if name == "global":
            return list(self._recent)
        return list(self._startup_warnings) if name == "startupWarnings" else None

    def _write(self, severity: str, component: str, message: str, ctx: str, attributes: dict[str, object]) -> str:
        """Writes one line; its JSON form."""
        date = iso_date(self._clock.now_ms())
        entry: dict[str, object] = {
            "t": {"$date": f"{date}+00:00"},
            "s": severity,
            "c": component.upper(),
            "id": MESSAGE_IDS[message],
            "ctx": ctx,
            "msg": message,
        }
        for name, value in attributes.items():
            if isinstance(value, str) and len(value) > _MAX_TEXT_SIZE and name != "trace":
                attributes[name] = f"{value[:_MAX_TEXT_SIZE]}..."
        if attributes:
            entry["attr"] = attributes
        as_json = json.dumps(entry, default=str, separators=(",", ":"))
        self._keep(as_json)
        line = as_json if self._json else _as_text(date, severity, component, message, ctx, attributes)
        if self.dropped_lines and self.drain():
            dropped, self.dropped_lines = self.dropped_lines, 0
            self.warning("control", "Log lines were dropped: nobody read the log", lines=dropped)
        self._put(line + "\n")
        return as_json

    def _keep(self, line: str) -> None:
        self._recent.append(line)
        self._recent_size += len(line)
        while len(self._recent) > _RECENT_LINES or self._recent_size > _MAX_RECENT_SIZE:
            self._recent_size -= len(self._recent.popleft())

    def _put(self, line: str) -> None:
        stream = sys.stderr if self._stream is None else self._stream
        try:
            if _descriptor_of(stream) < 0:
                stream.write(line)
                stream.flush()
                return
        except (OSError, ValueError):
            return  # the log is not read any more; that must not stop the server
        data = line.encode("utf-8", "backslashreplace")
        if len(self._waiting) + len(data) > _MAX_WAITING_BYTES and not self.drain():
            self.dropped_lines += 1
            return
        self._waiting += data
        self.drain()

    def drain(self, wait_s: float = 0.0) -> bool:
        """Writes the waiting lines that can be written now, or within `wait_s` seconds; whether none is left."""
        stream = sys.stderr if self._stream is None else self._stream
        waiting = self._waiting
        try:
            descriptor = _descriptor_of(stream)
            while waiting and descriptor >= 0 and _is_ready(descriptor, wait_s):
                written = os.write(descriptor, waiting[:_PIPE_BYTES])
                del waiting[:written]
        except (OSError, ValueError):
            waiting.clear()
        return not waiting


def _descriptor_of(stream: TextIO) -> int:
    """The file descriptor that a stream writes to, where it can be asked whether it is ready; else -1."""
    if not hasattr(select, "poll"):
        return -1
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return -1


def _is_ready(descriptor: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(wait_s * 1000))


def _as_text(date: str, severity: str, component: str, message: str, ctx: str, attributes: dict[str, object]) -> str:
    shown = {name: value for name, value in attributes.items() if name != "trace"}
    extra = "  " + json.dumps(shown, default=str) if shown else ""
    trace = f"\n{attributes['trace']}" if "trace" in attributes else ""
    return f"{date}Z {severity} {component.upper():9} [{ctx}] {message}{extra}{trace}"
