"""Finds the command that a message names, if the announced version has it, and what the log needs of a refused one."""

from typing import Final

from mongottl.commands import COMMANDS, UNSUPPORTED_COMMANDS, CommandSpec
from mongottl.commands.registry import SEARCH_COMMANDS, UNSUPPORTED_REASONS
from mongottl.document.types import BOOL, STRING
from mongottl.document.walk import ElementCursor
from mongottl.errors import CommandError, ErrorCode
from mongottl.versions import COMMAND, NOT_SUPPORTED, Features, unknown_command

# Number of fields of a refused command that are looked at. No command has as many that mean something.
_MOST_FIELDS: Final = 100


class CommandLookup:
    """The commands of one server. features: what the announced version has; None if it has everything."""

    def __init__(self, features: Features | None, takes_test_commands: bool) -> None:
        self._features = features
        self._takes_test_commands = takes_test_commands

    def find(self, name: str) -> CommandSpec:
        """The command of a name that a client has sent. CommandNotFound (59), CommandNotSupported (115)."""
        spec = COMMANDS.get(name)
        if spec is not None:
            if spec.test_only and not self._takes_test_commands:
                raise unknown_command(name, "; it is there with --enable-test-commands")
            if not spec.test_only:
                self._check_features(name, spec.name)
            return spec
        self._check_features(name, name)
        if name in UNSUPPORTED_COMMANDS:
            reason = UNSUPPORTED_REASONS.get(name)
            text = f"Command {name} not supported"
            code = ErrorCode.SearchNotEnabled if name in SEARCH_COMMANDS else ErrorCode.CommandNotSupported
            raise CommandError(code, f"{text}: {reason}" if reason else text)
        features = self._features
        raise unknown_command(name) if features is None else features.unknown_command(name)

    def _check_features(self, name: str, command: str) -> None:
        """CommandNotFound (59), or CommandNotSupported (115) in the dialect `cosmos`, for a command that the announced
        version does not have. name: as the client wrote it."""
        features = self._features
        if features is not None and features.lacks(COMMAND, command):
            refused = features.refused_command(name)
            refused.advice = features.advice(COMMAND, command) if command in COMMANDS else NOT_SUPPORTED
            raise refused


def check_op_query(name: str) -> None:
    """UnsupportedOpQueryCommand (352) unless a server of every version takes the command by OP_QUERY."""
    spec = COMMANDS.get(name)
    if spec is None or not spec.by_op_query:
        raise CommandError(
            ErrorCode.UnsupportedOpQueryCommand,
            f"Unsupported OP_QUERY command: {name}. The client driver may require an upgrade.",
        )


def named_collection(name: str, body: bytes) -> str:
    """The collection that a command names, as `<database>.<collection>`; "" for none."""
    spec = COMMANDS.get(name)
    if spec is None or not spec.names_collection:
        return ""
    collection = ElementCursor(body, 0)
    database = _early_field(body, b"$db")
    if not collection.next() or collection.type_code != STRING or database is None or database.type_code != STRING:
        return ""
    return f"{database.decoded()}.{collection.decoded()}"


def asks_help(body: bytes) -> bool:
    """Whether a command that cannot be parsed asks for its help."""
    asked = _early_field(body, b"help")
    return asked is not None and asked.type_code == BOOL and asked.decoded() is True


def _early_field(body: bytes, name: bytes) -> ElementCursor | None:
    """The field of this name, if it is among the first ones: the millions that a command may have are not looked at
    once more, nor is any of them decoded, only to log its refusal. Anyone may send them, before a login, too."""
    cursor = ElementCursor(body, 0)
    for _ in range(_MOST_FIELDS):
        if not cursor.next():
            break
        if cursor.name_is(name):
            return cursor
    return None
