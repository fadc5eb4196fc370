"""The tables that commands, settings and log messages are kept in."""

import ast
import importlib
import importlib.util
import pkgutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bson
import pytest

import mongottl
from mongottl.commands import COMMANDS, FAMILIES, UNSUPPORTED_COMMANDS
from mongottl.commands.access import ANYONE
from mongottl.commands.families import module_of
from mongottl.commands.registry import UNSUPPORTED_REASONS, Reply, command
from mongottl.commands.request import fields_of
from mongottl.dialect.cosmos.replies import REPLY_TYPES
from mongottl.exec.operation.context import OperationContext
from mongottl.query.pipeline import STAGES
from mongottl.server.log import MESSAGE_IDS
from tests.children import ended_after
from tests.waiting import PATIENCE_S

PACKAGE = Path(__file__).resolve().parent.parent.parent / "mongottl"

# What drivers, shells and the TTL articles use: the commands that this server is never without.
PROMISED = """
    hello isMaster ping buildInfo connectionStatus whatsmyuri hostInfo getParameter getCmdLineOpts getLog serverStatus
    listCommands listDatabases listCollections create drop dropDatabase collMod renameCollection createIndexes
    listIndexes dropIndexes collStats dbStats insert find getMore killCursors update delete findAndModify count distinct
    aggregate explain startSession endSessions refreshSessions killSessions advanceClock freezeClock configureFailPoint
""".split()

# The modules of commands that every server imports when it starts; the others are imported at their first command.
LOADED_AT_START = ("admin.handshake",)
# What no server needs that has been started without options and has answered a ping: these, and what is in them.
LATE_MODULES = (
    "mongottl.catalog.index_kinds.table",
    "mongottl.exec.plan",
    "mongottl.exec.results",
    "mongottl.exec.stages",
    "mongottl.exec.write.writes",
    "mongottl.geometry",
    "mongottl.query.expr",
    "mongottl.query.fulltext",
    "mongottl.query.match",
    "mongottl.query.pipeline",
    "mongottl.query.projection",
    "mongottl.query.update",
    "mongottl.dialect.cosmos",
    "mongottl.storage.sqlite",
    "sqlite3",
)


@pytest.mark.parametrize("name", PROMISED)
def test_promised_commands_are_there(name: str) -> None:
    assert COMMANDS[name].name == name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_documented(name: str) -> None:
    spec = COMMANDS[name]
    assert spec.help.endswith(".")
    assert len(spec.help) > 10
    assert spec.function.__module__ in {
        module_of(family) for family, names in FAMILIES.items() if name in names.split()
    }


def test_every_module_with_commands_is_a_family() -> None:
    """`FAMILIES` tells which module has a command: a module that is missing there has none at run time."""
    decorated = set()
    for path in [*(PACKAGE / "commands").rglob("*.py"), *(PACKAGE / "dialect").rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(called, ast.Name) and called.id == "command":
                        decorated.add(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    assert decorated == {module_of(family) for family in FAMILIES}
    assert list(FAMILIES) == sorted(FAMILIES)
    names = " ".join(FAMILIES.values()).split()
    assert len(names) == len(set(names))


def test_a_command_is_refused_that_its_family_does_not_name() -> None:
    def unlisted(op: OperationContext, request: Any) -> Reply:
        return {}

    with pytest.raises(ValueError, match=r"command nobodyHasThis of .* is missing in commands/families\.py"):
        command("nobodyHasThis", COMMANDS["ping"].request, access=ANYONE, help="Nothing.")(unlisted)
    with pytest.raises(ValueError, match="command ping is registered twice"):
        command("ping", COMMANDS["ping"].request, access=ANYONE, help="Nothing.")(unlisted)
    assert COMMANDS.get("nobodyHasThis") is None
    with pytest.raises(KeyError):
        COMMANDS["nobodyHasThis"]


def test_the_first_ping_imports_neither_queries_commands_nor_what_settings_ask_for() -> None:
    """Its imports are what a process takes from its start to its first answer, and most of the memory that it uses."""
    program = """
import atexit, sys
from mongottl.cli import main
atexit.register(lambda: print(*sys.modules))
sys.exit(main(["--port", "0"]))
"""
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with ended_after(server):
        assert server.stdout is not None
        address = urlsplit(server.stdout.readline().split()[-1])
        body = bson.encode({"ping": 1, "$db": "admin"})
        message = (len(body) + 21).to_bytes(4, "little") + bytes(8) + (2013).to_bytes(4, "little") + bytes(5) + body
        with socket.create_connection((address.hostname, address.port)) as client:
            client.sendall(message)
            assert client.recv(4096)
        server.terminate()
        loaded = set(server.communicate(timeout=PATIENCE_S)[0].split())
    assert server.returncode == 0
    families = {module_of(family) for family in FAMILIES}
    assert loaded & families == {f"mongottl.commands.{module}" for module in LOADED_AT_START}
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{late}." for late in LATE_MODULES))] == []


def test_tables_of_names_name_commands() -> None:
    assert set(COMMANDS).isdisjoint(UNSUPPORTED_COMMANDS)
    assert set(UNSUPPORTED_REASONS) <= UNSUPPORTED_COMMANDS
    assert set(REPLY_TYPES) <= set(COMMANDS)


# What is true of a command or stage is declared with it (`@command`, `@stage`). Lists of their names may stand in these
# modules alone.
LISTS_OF_NAMES = {
    "commands/registry.py": "the table of commands, with those that are refused by name",
    "dialect/cosmos/change_feed.py": "the only pipeline that another product takes",
    "dialect/cosmos/replies.py": "a dialect's tables say how another product answers",
    "exec/plan/shape.py": "stages whose argument is an ordered list of fields",
}


def lists_of_names(source: str) -> list[str]:
    """Literal collections of two or more strings, all of them names of commands or all of stages, as code.

    Tables from a name to a function or class are no such lists: they say what is done, not what is true.
    """
    tables = (set(COMMANDS) | UNSUPPORTED_COMMANDS, {*STAGES.names(), *STAGES.unsupported_names()})
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            text = node.func.value
            names = text.value.split() if isinstance(text, ast.Constant) and isinstance(text.value, str) else []
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            try:
                names = [str(name) for name in ast.literal_eval(node)]
            except (TypeError, ValueError):
                continue
        else:
            continue
        if len(set(names)) > 1 and any(table.issuperset(names) for table in tables):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_facts_of_commands_and_stages_stand_on_their_declarations() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        lists = lists_of_names(path.read_text(encoding="utf-8"))
        if lists:
            found[path.relative_to(PACKAGE).as_posix()] = lists
    assert {name: lists for name, lists in found.items() if name not in LISTS_OF_NAMES} == {}
    assert set(found) == set(LISTS_OF_NAMES)


def test_lists_of_names_are_found() -> None:
    assert lists_of_names('x = name in ("find", "getMore")')
    assert lists_of_names('x = frozenset("$match $limit".split())')
    assert lists_of_names('x = {"find": (b"max", b"min"), "create": (b"capped",)}')
    assert not lists_of_names('x = {"find": plan_find, "create": plan_create}')
    assert not lists_of_names('x = ("find", "something")')


def test_facts_of_commands_agree() -> None:
    for spec in COMMANDS.values():
        if spec.silent or spec.retryable:
            assert spec.writes
        if spec.writes or spec.writes_if is not None:
            assert spec.takes_write_concern
        assert not (spec.writes and spec.may_be_abandoned)
        fields = {field.name for field in fields_of(spec.request)}
        assert fields.issuperset(spec.unstable_fields)
        assert spec.stable or not spec.unstable_fields


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
                and (ast.unparse(node.func.value).endswith("log") or path.name == "log.py")
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
    no_psycopg = importlib.util.find_spec("psycopg") is None
    for module in pkgutil.walk_packages(mongottl.__path__, "mongottl."):
        if no_psycopg and module.name.startswith("mongottl.storage.postgresql."):  # a part of the extra `test`
            continue
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_a_list_of_commands_imports_their_modules_in_steps() -> None:
    """Others run in between. In a process of its own, since this one has imported them."""
    program = "from tests.running import Running; print(len(list(Running().steps({'listCommands': 1}))))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(found.stdout) > len(FAMILIES) / 2
