"""Tables of tests: commands, and what their rows expect of the replies."""

import re
from typing import Any

from bson import Int64

from tests.drivers.wire_client import WireClient

Document = dict[str, Any]
# In place of a value in an answer: the reply does not have the field.
ABSENT: Any = object()
# In place of a value in a command: the id of the cursor that was opened last.
CURSOR: Any = object()


class TableClient(WireClient):
    """One connection that runs the commands of tables."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._cursor = Int64(0)

    def command(self, command: Document, database: str = "test") -> Document:
        command = {name: self._cursor if value is CURSOR else value for name, value in command.items()}
        reply = super().command(command, database)
        if "cursor" in reply and reply["cursor"]["id"]:
            self._cursor = Int64(reply["cursor"]["id"])
        return reply


def value_at(reply: Any, path: str) -> Any:
    """The value at a dotted path, whose numbers name elements of arrays; ABSENT if there is none."""
    found = reply
    for name in path.split("."):
        if isinstance(found, list):
            found = found[int(name)] if int(name) < len(found) else ABSENT
        else:
            found = found.get(name, ABSENT) if isinstance(found, dict) else ABSENT
    return found


def check(reply: Document, answer: Document) -> None:
    """Asserts that a reply is as a row of a table says.

    answer: dotted paths to what is there: a value, a pattern that the whole text matches, a type, or ABSENT. The path
    "" is the whole reply.
    """
    for path, expected in answer.items():
        found = value_at(reply, path) if path else reply
        if isinstance(expected, re.Pattern):
            assert isinstance(found, str) and expected.fullmatch(found), (path, found, reply)
        elif isinstance(expected, type):
            assert type(found) is expected, (path, found, reply)
        elif expected is ABSENT:
            assert found is ABSENT, (path, found, reply)
        else:
            assert found == expected, (path, found, reply)
