"""Tests do not depend on how fast a machine is, or on what else it does.

What happens in its own time is waited for by `tests.waiting`, whose limit only ends what hangs. A test that reads the
machine's clock, or sleeps, is listed here with what makes it hold on a slow and busy machine. A server of a test
listens on a free port, since another process may have MongoDB's.
"""

import ast
import re

import pytest

from tests.architecture.test_imports import ROOT
from tests.waiting import PATIENCE_S

TESTS = ROOT / "tests"
CLOCK = {"monotonic", "perf_counter", "process_time", "sleep", "time", "time_ns"}
READS_THE_CLOCK = {
    "drivers/storage/test_backup.py": "one of several backups has to be fast enough",
    "drivers/storage/test_kills.py": "when a server is killed is to differ",
    "drivers/process/test_process.py": "one of several servers has to stop in time, and rest in one of many intervals",
    "drivers/protocol/test_protocol.py": "no less than a time, which a slow machine makes longer",
    "drivers/storage/test_saved_states.py": "within ten minutes",
    "drivers/storage/test_store_failover.py": "sooner than a server gives up a connection that says nothing",
    "drivers/storage/test_store_fleet.py": "a document is there until a moment, and not from another one on",
    "drivers/storage/test_store_several.py": "most of several changes have to be known sooner than at the next renewal",
    "drivers/ttl/test_under_load.py": "in seconds of CPU",
    "drivers/web/test_http.py": "within PATIENCE_S",
    "fuzz/cli.py": "the time that the user gives it",
    "fuzz/world.py": "ends a random command that takes long, whose answer may be any",
    "unit/test_clock.py": "tests the machine's clock",
    "waiting.py": "the limit of what hangs",
}


CLOCK_CALL = re.compile(r"\btime\s*\.")
LIMITED_CALL = re.compile(r"\btimeout\s*=|\.\s*(join|wait|result|fail_after)\(\s*[\d.]")


def files() -> list[str]:
    return sorted(str(file.relative_to(TESTS)) for file in TESTS.rglob("*.py"))


def calls(file: str, form: re.Pattern[str]) -> list[ast.Call]:
    """The calls of a file; none if its source has nothing of this form, because parsing takes long."""
    source = (TESTS / file).read_text(encoding="utf-8")
    if not form.search(source):
        return []
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]


def reads_the_clock(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in CLOCK
        and isinstance(function.value, ast.Name)
        and function.value.id == "time"
    )


def limits(call: ast.Call) -> list[float]:
    """The numbers that limit how long a call waits for something: `timeout`, or the argument of a thread's methods."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("join", "wait", "result", "fail_after"):
        given += call.args[:1]
    return [
        each.value
        for each in given
        if isinstance(each, ast.Constant) and isinstance(each.value, int | float) and not isinstance(each.value, bool)
    ]


def test_only_listed_tests_read_the_clock() -> None:
    found = {file for file in files() if any(map(reads_the_clock, calls(file, CLOCK_CALL)))}
    assert found == set(READS_THE_CLOCK)


def test_timeouts_of_tests_are_at_least_patience_s() -> None:
    impatient = [
        f"{file}:{call.lineno}"
        for file in files()
        for call in calls(file, LIMITED_CALL)
        for limit in limits(call)
        if limit < PATIENCE_S
    ]
    assert impatient == [], "take PATIENCE_S"


def name_of(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def configurations_without_a_port(source: str) -> list[int]:
    """The lines with configurations for which a server listens on MongoDB's port: in a file that starts servers, those
    that are kept, or given to what starts one."""
    if "ServerConfig" not in source:
        return []
    tree = ast.parse(source)
    starts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) in ("start_server", "open_server")
    ]
    if not starts:
        return []
    given = [argument for start in starts for argument in start.args]
    given += [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    return [
        config.lineno
        for config in given
        if isinstance(config, ast.Call)
        and name_of(config.func) == "ServerConfig"
        and all(keyword.arg not in ("port", None) for keyword in config.keywords)
    ]


def test_servers_listen_on_free_ports() -> None:
    found = {file: configurations_without_a_port((TESTS / file).read_text(encoding="utf-8")) for file in files()}
    assert [file for file, lines in found.items() if lines] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("config = ServerConfig(quiet=True)\nmongottl.start_server(config)", [1]),
        ("mongottl.start_server(mongottl.ServerConfig(quiet=True))", [1]),
        ("mongottl.start_server(ServerConfig(port=0))", []),
        ("mongottl.start_server(ServerConfig(**settings))", []),
        ("mongottl.start_server(quiet=True)", []),
        ("config = ServerConfig()", []),
    ],
)
def test_the_check_of_ports(code: str, found: list[int]) -> None:
    assert configurations_without_a_port(code) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("time.sleep(1)", (True, [])),
        ("clock.monotonic()", (False, [])),
        ("thread.join(5)", (False, [5])),
        ("run(x, timeout=0.5)", (False, [0.5])),
        ("run(x, timeout=PATIENCE_S)", (False, [])),
        ("', '.join(names)", (False, [])),
    ],
)
def test_the_checks_of_times(code: str, found: tuple[bool, list[float]]) -> None:
    if found != (False, []):
        assert CLOCK_CALL.search(code) or LIMITED_CALL.search(code)
    statement = ast.parse(code).body[0]
    assert isinstance(statement, ast.Expr)
    call = statement.value
    assert isinstance(call, ast.Call)
    assert (reads_the_clock(call), limits(call)) == found
