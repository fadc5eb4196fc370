"""The tables that commands, settings and log messages are kept in."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import mongottl
from mongottl import commands
from mongottl.commands import COMMANDS, FAMILIES, UNSUPPORTED_COMMANDS
from mongottl.commands.registry import STABLE_API, UNSUPPORTED_REASONS
from mongottl.dialect.cosmos import REFUSED_COMMANDS, REPLY_TYPES
from mongottl.server.log import MESSAGE_IDS

PACKAGE = Path(__file__).resolve().parent.parent.parent / "mongottl"

# What drivers, shells and the TTL articles use: the commands that this server is never without.
PROMISED = """
    hello isMaster ping buildInfo connectionStatus whatsmyuri hostInfo getParameter getCmdLineOpts getLog serverStatus
    listCommands listDatabases listCollections create drop dropDatabase collMod renameCollection createIndexes
    listIndexes dropIndexes collStats dbStats insert find getMore killCursors update delete findAndModify count distinct
    aggregate explain startSession endSessions refreshSessions killSessions advanceClock freezeClock configureFailPoint
""".split()


@pytest.mark.parametrize("name", PROMISED)
def test_promised_commands_are_there(name: str) -> None:
    assert COMMANDS[name].name == name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_documented(name: str) -> None:
    spec = COMMANDS[name]
    assert spec.help.endswith(".")
    assert len(spec.help) > 10
    assert spec.family in {family.__name__.rpartition(".")[2] for family in FAMILIES}


def test_every_module_with_commands_is_a_family() -> None:
    """`FAMILIES` is what the decorators run through: a module that is missing there has no commands at run time."""
    decorated = set()
    for module in pkgutil.iter_modules(commands.__path__):
        tree = ast.parse((PACKAGE / "commands" / f"{module.name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(called, ast.Name) and called.id == "command":
                        decorated.add(module.name)
    assert decorated == {family.__name__.rpartition(".")[2] for family in FAMILIES}
    assert list(FAMILIES) == sorted(FAMILIES, key=lambda family: family.__name__)


def test_tables_of_names_name_commands() -> None:
    known = set(COMMANDS) | UNSUPPORTED_COMMANDS
    assert set(COMMANDS).isdisjoint(UNSUPPORTED_COMMANDS)
    assert known >= STABLE_API
    assert set(UNSUPPORTED_REASONS) <= UNSUPPORTED_COMMANDS
    assert set(COMMANDS) >= REFUSED_COMMANDS
    assert set(REPLY_TYPES) <= set(COMMANDS)


def test_exports() -> None:
    for name in mongottl.__all__:
        assert getattr(mongottl, name) is not None
    assert sorted(mongottl.__all__) == mongottl.__all__
    with pytest.raises(AttributeError):
        _ = mongottl.nothing


def test_typing_marker_is_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()


def logged_messages() -> set[str]:
    """The messages that the source logs, by the calls of Log's methods."""
    methods = ("info", "warning", "error", "exception", "startup_warning")
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in methods
                and ast.unparse(node.func.value).endswith("log")
                and len(node.args) >= 2
                and isinstance(node.args[1], ast.Constant)
            ):
                found.add(str(node.args[1].value))
    return found


def test_every_log_message_has_a_number_of_its_own() -> None:
    assert logged_messages() == set(MESSAGE_IDS)
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)


def test_modules_import_alone() -> None:
    """No module needs another to have been imported before it."""
    for module in pkgutil.walk_packages(mongottl.__path__, "mongottl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
