"""pytest fixtures that come with the installed package.

def test_session_expires(mongottl_uri, mongottl_clock):
    with pymongo.MongoClient(mongottl_uri) as client:
        sessions = client.shop.sessions
        sessions.create_index("_ts", expireAfterSeconds=3600)
        sessions.insert_one({"_id": 1})
        mongottl_clock.advance(3600)
        assert sessions.find_one() is None

The mark `mongottl` chooses settings for a test, a class or a module, and pytest's setting of that name for all of them:

@pytest.mark.mongottl(dialect="cosmos", data_dir=True, now="2026-01-01")

[tool.pytest.ini_options]
mongottl = ["dialect = cosmos", "server_version = 6.0"]

With --mongottl-request-units the summary has what the requests to servers of the dialect `cosmos` would have cost, by
command and namespace; --mongottl-max-request-units fails a run that costs more. Both can be set in the configuration
file, with underscores.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from mongottl.pytest_plugin.servers import NAME, Servers, ini_settings
from mongottl.pytest_plugin.spent_units import SpentUnits

if TYPE_CHECKING:
    from mongottl.server.thread import RunningServer, ServerClock

_SPENT = pytest.StashKey[SpentUnits]()
_SERVERS = pytest.StashKey[Servers]()
_SENT = "mongottl_request_units"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mongottl")
    shown = "show what the requests to Cosmos DB would have cost, by command and namespace"
    limit = "fail the run if its requests cost more request units than that"
    group.addoption("--mongottl-request-units", action="store_true", help=shown)
    group.addoption("--mongottl-max-request-units", metavar="N", help=limit)
    parser.addini(NAME, "settings of mongottl's servers, a line `name = value` for each", "linelist")
    parser.addini("mongottl_request_units", shown, type="bool", default=False)
    parser.addini("mongottl_max_request_units", limit, default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{NAME}(**settings): settings of mongottl's server; data_dir=True for a folder of the test."
    )
    config.stash[_SERVERS] = Servers(config)
    if config.getini(NAME):
        ini_settings(config)  # a mistake ends the run here, instead of failing each test
    config.stash[_SPENT] = SpentUnits(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_SERVERS].stop()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    spent = session.config.stash[_SPENT]
    # In a process of pytest-xdist that runs a part of the tests: what it sends to the one that has started it.
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_SENT] = spent.rows()
    elif exitstatus == pytest.ExitCode.OK and spent.excess():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Called by pytest-xdist when a process that runs tests has ended."""
    rows = getattr(node, "workeroutput", {}).get(_SENT)
    if rows:
        node.config.stash[_SPENT].add_rows(rows)


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    spent = terminalreporter.config.stash[_SPENT]
    report = spent.report()
    if report is None or not spent.is_asked_for:
        return
    from mongottl.server.units_table import units_table

    terminalreporter.section("mongottl request units")
    for line in units_table(report):
        terminalreporter.write_line(line)
    if spent.excess():
        terminalreporter.write_line(f"more than the {spent.limit:g} request units that are allowed", red=True)


@pytest.fixture(scope="session")
def mongottl_session(pytestconfig: pytest.Config) -> "RunningServer":
    """The server that tests share, for what is stored once for many of them: `mongottl_server` is the same one, and
    what a test changes is undone after it. It has the settings of pytest's configuration."""
    return pytestconfig.stash[_SERVERS].shared(ini_settings(pytestconfig))


@pytest.fixture
def mongottl_server(request: pytest.FixtureRequest) -> Iterator["RunningServer"]:
    """A server in memory whose time stands still until the test moves it. What the test changes is undone after it.

    Tests with the same settings share it. Those with `data_dir` or `shared=False` have one of their own.
    """
    with request.config.stash[_SERVERS].for_test(request, {}) as server:
        yield server


@pytest.fixture
def mongottl_cosmos(request: pytest.FixtureRequest, mongottl_request_units: SpentUnits) -> Iterator["RunningServer"]:
    """As `mongottl_server`, of the dialect `cosmos`: it refuses what Azure Cosmos DB refuses, and has `throttle` and
    `request_units`."""
    with request.config.stash[_SERVERS].for_test(request, {"dialect": "cosmos"}) as server:
        server.request_units(reset=True)
        yield server
        mongottl_request_units.add(server)


@pytest.fixture(scope="session")
def mongottl_request_units(pytestconfig: pytest.Config) -> SpentUnits:
    """What the requests of the run have cost. A fixture that starts a server of its own adds it at the end of its work:
    `mongottl_request_units.add(server)`."""
    return pytestconfig.stash[_SPENT]


@pytest.fixture
def mongottl_uri(mongottl_server: "RunningServer") -> str:
    """The connection string of `mongottl_server`."""
    return mongottl_server.uri


@pytest.fixture
def mongottl_clock(mongottl_server: "RunningServer") -> "ServerClock":
    """The clock of `mongottl_server`: `advance(seconds)`, `set(time)`, `freeze()`, `now()`."""
    return mongottl_server.clock
