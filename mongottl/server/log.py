"""The server's log on standard error: readable lines, or one JSON object a line with mongod's field names.

    2026-05-04T12:00:00.123Z I network   Connection accepted  {"remote": "127.0.0.1:50123"}
    {"t":{"$date":"2026-05-04T12:00:00.123Z"},"s":"I","c":"NETWORK","ctx":"conn1","msg":"Connection accepted","attr":{…}}

Log lines are dated by the machine's own clock, not by a clock that tests move: they tell when something really happened.
"""

import json
import sys
import traceback
from collections import deque
from typing import Final, TextIO

from mongottl.clock import Clock, SystemClock

_RECENT_LINES: Final = 1024
_INFO: Final = "I"
_WARNING: Final = "W"
_ERROR: Final = "E"


def iso_date(ms: int) -> str:
    """`2026-05-04T12:00:00.123Z`."""
    from datetime import UTC, datetime  # kept out of the start of the server

    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


class Log:
    """Writes log lines, and keeps the latest ones for `getLog`."""

    def __init__(self, form: str = "text", quiet: bool = False, stream: TextIO | None = None) -> None:
        self._json = form == "json"
        self._quiet = quiet
        self._stream = stream
        self._clock: Clock = SystemClock()
        self.recent: deque[str] = deque(maxlen=_RECENT_LINES)
        self.startup_warnings: list[str] = []
        self.internal_errors = 0

    def info(self, component: str, message: str, **attributes: object) -> None:
        self._write(_INFO, component, message, attributes)

    def warning(self, component: str, message: str, **attributes: object) -> None:
        self._write(_WARNING, component, message, attributes)

    def error(self, component: str, message: str, **attributes: object) -> None:
        self._write(_ERROR, component, message, attributes)

    def exception(self, component: str, message: str, error: BaseException, **attributes: object) -> None:
        """An unexpected exception, with its trace: always a mistake of ours."""
        self.internal_errors += 1
        attributes["trace"] = "".join(traceback.format_exception(error))
        self._write(_ERROR, component, message, attributes)

    def lines(self, name: str) -> list[str] | None:
        """The latest lines of `global`, the warnings of the start, or None for an unknown name."""
        if name == "global":
            return list(self.recent)
        return list(self.startup_warnings) if name == "startupWarnings" else None

    def _write(self, severity: str, component: str, message: str, attributes: dict[str, object]) -> None:
        if self._quiet and severity == _INFO:
            return
        date = iso_date(self._clock.now_ms())
        entry = {"t": {"$date": date}, "s": severity, "c": component.upper(), "ctx": "main", "msg": message}
        if attributes:
            entry["attr"] = attributes
        as_json = json.dumps(entry, default=str)
        self.recent.append(as_json)
        if self._json:
            line = as_json
        else:
            trace = attributes.pop("trace", "")
            extra = "  " + json.dumps(attributes, default=str) if attributes else ""
            line = f"{date} {severity} {component:9} {message}{extra}"
            if trace:
                line += f"\n{trace}"
        stream = sys.stderr if self._stream is None else self._stream
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads the log any more; that must not stop the server
