"""The pytest plugin in runs of its own: found by its entry point, or named with -p where nothing is installed."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mongottl

pytest_plugins = ["pytester"]

SUITE = """
import pymongo
import pytest

@pytest.fixture
def sessions(mongottl_uri):
    with pymongo.MongoClient(mongottl_uri) as client:
        client.shop.sessions.create_index("_ts", expireAfterSeconds=3600)
        yield client.shop.sessions

def test_expires(sessions, mongottl_clock, mongottl_server):
    sessions.insert_one({"_id": "ann"})
    assert mongottl_clock.advance(3598) == 0
    assert sessions.find_one() == {"_id": "ann"}
    assert mongottl_clock.advance(2) == 1
    assert sessions.find_one() is None
    assert mongottl_server.clock is mongottl_clock

@pytest.mark.parametrize("n", [1, 2])
def test_starts_empty(sessions, n):
    assert sessions.insert_one({"_id": 1}).inserted_id == 1
    assert sessions.count_documents({}) == 1
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *arguments: str, path: Path | None = None) -> None:
    """Runs the suite in a process that imports the package from where we have it, and finds plugins on `path` too."""
    home = Path(mongottl.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(entry) for entry in (path, home) if entry is not None))
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=3)


@pytest.mark.slow
def test_by_entry_point(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The metadata of an installed package, made of the project's own, with nothing else to tell pytest."""
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = "\n".join(f"{name} = {module}" for name, module in project["entry-points"]["pytest11"].items())
    metadata = tmp_path / "site" / f"{project['name']}-{mongottl.__version__}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mongottl\nVersion: {mongottl.__version__}\n")
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{points}\n")
    run(pytester, monkeypatch, path=tmp_path / "site")


@pytest.mark.slow
def test_by_name(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    run(pytester, monkeypatch, "-p", "mongottl.pytest_plugin")


SHOP = """
import mongottl
import pymongo
import pytest

@pytest.fixture(scope="module")
def shop(mongottl_request_units):
    with mongottl.start_server(dialect="cosmos") as server, pymongo.MongoClient(server.uri) as client:
        yield client.shop
        mongottl_request_units.add(server)

def test_one(mongottl_cosmos):
    with pymongo.MongoClient(mongottl_cosmos.uri) as client:
        client.shop.orders.insert_one({"_id": 1})

def test_another(mongottl_cosmos):
    with pymongo.MongoClient(mongottl_cosmos.uri) as client, mongottl_cosmos.throttle("find", times=1):
        client.shop.orders.insert_one({"_id": 1})
        with pytest.raises(pymongo.errors.OperationFailure):
            client.shop.orders.find_one()

def test_with_a_server_of_its_own(shop):
    assert shop.carts.find_one() is None
"""
SPENT = [
    r"command +namespace +requests +request units +throttled",
    r"insert +shop\.orders +2 +11 +0",
    r"find +shop\.carts +1 +1 +0",
    r"find +shop\.orders +1 +0\.38 +1",
    r"total +4 +12\.38 +1",
]


def run_shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> pytest.RunResult:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.syspath_prepend(Path(mongottl.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    pytester.makepyfile(SHOP)
    result = pytester.runpytest_subprocess("-p", "mongottl.pytest_plugin", "-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=3)
    return result


@pytest.mark.slow
def test_request_units_of_a_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = run_shop(pytester, monkeypatch)
    silent.stdout.no_fnmatch_line("*request units*")
    shown = run_shop(pytester, monkeypatch, "--mongottl-request-units")
    shown.stdout.re_match_lines([r"=+ mongottl request units =+", *SPENT])
    assert (silent.ret, shown.ret) == (0, 0)


@pytest.mark.slow
def test_a_run_that_may_cost_no_more(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeini("[pytest]\nmongottl_request_units = true\nmongottl_max_request_units = 12.38\n")
    assert run_shop(pytester, monkeypatch).ret == 0
    exceeded = run_shop(pytester, monkeypatch, "--mongottl-max-request-units=12")
    assert exceeded.ret == 1
    exceeded.stdout.re_match_lines([*SPENT, "more than the 12 request units that are allowed"])


@pytest.mark.slow
def test_a_run_in_several_processes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    several = ["-p", "xdist", "-n", "2", "--mongottl-request-units"]
    run_shop(pytester, monkeypatch, *several).stdout.re_match_lines(SPENT)
    assert run_shop(pytester, monkeypatch, *several, "--mongottl-max-request-units=12").ret == 1


@pytest.mark.slow
def test_unused_plugin_imports_neither_server_nor_trio(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin alone imports neither the server nor trio."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(mongottl.__file__).parents[1]))
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "mongottl.pytest_plugin" in sys.modules
            assert "trio" not in sys.modules
            assert "mongottl.server" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-p", "mongottl.pytest_plugin").assert_outcomes(passed=1)


# Names that pytest has since 8.1 or later.
LATER = ("HIDDEN_PARAM", "RaisesExc", "RaisesGroup", "SubtestReport", "Subtests", "TerminalReporter")


def test_pytest_8_can_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of pytest imports the plugin where the package is installed, whether it uses it or not."""
    monkeypatch.setenv("PYTHONPATH", str(Path(mongottl.__file__).parents[1]))
    code = f"import pytest\nfor name in {LATER}: vars(pytest).pop(name, None)\nimport mongottl.pytest_plugin"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


MARKED = """
import pymongo
import pytest

pytestmark = pytest.mark.mongottl(server_version="5.0", now="2026-01-01")

def version(server):
    with pymongo.MongoClient(server.uri) as client:
        return client.server_info()["version"][:3], server.clock.now().year

def test_of_the_module(mongottl_server):
    assert version(mongottl_server) == ("5.0", 2026)
    assert mongottl_server.clock.frozen

@pytest.mark.mongottl(now="2030-05-04", frozen=False)
class TestOthers:
    def test_of_the_class(self, mongottl_server):
        assert version(mongottl_server) == ("5.0", 2030)
        assert not mongottl_server.clock.frozen

    @pytest.mark.mongottl(server_version="6.0", data_dir=True)
    def test_of_its_own(self, mongottl_server, tmp_path):
        assert version(mongottl_server) == ("6.0", 2030)
        assert list((tmp_path / "mongottl").iterdir())

@pytest.mark.mongottl(data_dir=True)
class TestFolders:
    @pytest.mark.mongottl(data_dir=False)
    def test_in_memory_again(self, mongottl_server, tmp_path):
        assert not list(tmp_path.iterdir())
        mongottl_server.save()

@pytest.mark.mongottl(storage_engine="sqlite", dialect="mongodb")
def test_of_another_engine(mongottl_server, mongottl_session):
    assert mongottl_server is not mongottl_session
    with pymongo.MongoClient(mongottl_server.uri) as client:
        client.shop.orders.insert_one({})

@pytest.mark.mongottl(dialect="mongodb", server_version="6.0")
def test_that_the_fixture_decides(mongottl_server, mongottl_cosmos):
    assert mongottl_cosmos.throttle("insert").__enter__() is None
    with pytest.raises(Exception, match="needs the dialect cosmos"):
        mongottl_server.throttle("insert").__enter__()

@pytest.mark.mongottl(cosmos_backup="continuous", cosmos_capability=["EnableMongo16MBDocumentSupport"])
def test_cosmos(mongottl_cosmos):
    with pymongo.MongoClient(mongottl_cosmos.uri) as client:
        was = client.admin.command("configureCosmos", {})["was"]
    assert was["backup"] == "continuous"
    assert was["capabilities"] == ["EnableMongo16MBDocumentSupport"]
"""


SAME_PORT = """
import pytest

@pytest.mark.mongottl(port={port})
def test_shared(mongottl_server): assert mongottl_server.port == {port}

@pytest.mark.mongottl(port={port})
def test_shared_again(mongottl_server): pass

@pytest.mark.mongottl(port={port}, dialect="cosmos")
def test_other_settings(mongottl_server): pass

@pytest.mark.mongottl(port={port}, shared=False)
def test_of_its_own(mongottl_server): pass

@pytest.mark.mongottl(web_port={port})
def test_page(mongottl_server): pass

@pytest.mark.mongottl(port={taken})
def test_of_others(mongottl_server): pass
"""


FOLDERS = """
import pytest

@pytest.mark.parametrize("run", [1, 2])
def test_of_its_own(mongottl_server, tmp_path, run):
    assert list((tmp_path / "mongottl").iterdir())

def test_that_shares(mongottl_session): pass
"""


WRONGLY_MARKED = """
import pytest

@pytest.mark.mongottl("cosmos")
def test_by_place(mongottl_server): pass

@pytest.mark.mongottl(dialetc="cosmos")
def test_misspelt(mongottl_server): pass

@pytest.mark.mongottl(dialect="Cosmos")
def test_wrong(mongottl_server): pass

@pytest.mark.mongottl(data_dir=True, shared=True)
def test_shared_files(mongottl_server): pass

@pytest.mark.mongottl(shared="yes")
def test_no_switch(mongottl_server): pass

@pytest.mark.mongottl(load="nowhere")
def test_no_files(mongottl_server): pass

@pytest.mark.mongottl(tls_cert="nowhere.pem")
def test_no_certificate(mongottl_server): pass
"""


@pytest.mark.slow
def test_settings_of_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """By marks of a module, a class and a test, and by pytest's configuration."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(mongottl.__file__).parents[1]))
    pytester.makeini(
        "[pytest]\naddopts = -p mongottl.pytest_plugin -p no:cacheprovider --strict-markers -W error\n"
        "mongottl =\n    dialect = mongodb\n    server_version = 4.4\n    frozen = yes"
        "\n    quiet = yes\n"
    )
    pytester.makepyfile(MARKED)
    pytester.runpytest_subprocess().assert_outcomes(passed=7)
    pytester.makepyfile(WRONGLY_MARKED)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=7)
    said = result.stdout.str()
    assert "the mark mongottl takes settings by name, such as dialect='cosmos': ('cosmos',)" in said
    assert "there is no setting dialetc; did you mean dialect?" in said
    assert "dialect: one of mongodb, cosmos is needed, not 'Cosmos'" in said
    assert "shared: only for data in memory" in said
    assert "shared: True or False is needed, not 'yes'" in said
    assert "the settings of mongottl: cannot load nowhere: there is no such folder" in said
    assert "the settings of mongottl: cannot use the certificate nowhere.pem: No such file or directory" in said
    assert "servers.py" not in said and "During handling" not in said  # no traceback
    pytester.makeini("[pytest]\naddopts = -p mongottl.pytest_plugin\nmongottl =\n    colour = blue\n")
    result = pytester.runpytest_subprocess()
    assert result.errlines == ["ERROR: pytest's setting mongottl: 'colour = blue': there is no such setting", ""]


@pytest.mark.slow
def test_a_folder_for_each_test_by_configuration(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(mongottl.__file__).parents[1]))
    pytester.makeini(
        "[pytest]\naddopts = -p mongottl.pytest_plugin -p no:cacheprovider\nmongottl =\n    data_dir = true\n"
    )
    pytester.makepyfile(FOLDERS)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=1)
    assert "data_dir = true is a folder for each test" in result.stdout.str()
    assert not (pytester.path / "true").exists()


@pytest.mark.slow
def test_tests_that_want_the_same_port(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(mongottl.__file__).parents[1]))
    with mongottl.start_server() as free, mongottl.start_server() as taken:
        ports = {"port": free.port, "taken": taken.port}
        free.stop()
        pytester.makepyfile(SAME_PORT.format(**ports))
        result = pytester.runpytest_subprocess("-p", "mongottl.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=4)
    said = [line for line in result.outlines if line.startswith("E  ") and "cannot listen on" in line]
    for line in said[:3]:
        assert f"cannot listen on 127.0.0.1:{ports['port']}: Address already in use: tests with other settings" in line
    assert said[3].endswith(f"cannot listen on 127.0.0.1:{ports['taken']}: Address already in use")


SHARED = """
import contextlib
import itertools
import time
import pymongo
import pytest

def databases(client):
    return set(client.list_database_names()) - {"admin", "config", "local"}

@pytest.fixture(scope="session")
def client(mongottl_session):
    with pymongo.MongoClient(mongottl_session.uri) as client:
        client.shop.orders.create_index("_ts", expireAfterSeconds=100)
        client.shop.orders.insert_many([{"_id": n} for n in range(3)])
        yield client

@pytest.mark.parametrize("run", [1, 2])
def test_saves_a_state(client, mongottl_server, run):
    assert "of a test" not in mongottl_server.states
    mongottl_server.save("of a test")

def test_changes(client, mongottl_server, mongottl_session):
    assert mongottl_server is mongottl_session
    client.shop.orders.delete_one({"_id": 1})
    client.drop_database("shop")
    client.other.things.insert_one({})
    mongottl_server.clock.advance(1000)

def test_that_they_are_undone(client, mongottl_server, mongottl_clock):
    assert databases(client) == {"shop"}
    mongottl_clock.advance(99)
    assert client.shop.orders.count_documents({}) == 3
    mongottl_clock.advance(1)
    assert client.shop.orders.count_documents({}) == 0

def test_which_stops_it(client, mongottl_server):
    mongottl_server.stop()

def test_then_it_runs_again_and_is_empty(mongottl_server, mongottl_uri):
    with pymongo.MongoClient(mongottl_uri) as client:
        assert databases(client) == set()

@pytest.mark.parametrize("run", range(4))
def test_which_shuts_it_down(mongottl_server, run):
    with pymongo.MongoClient(mongottl_server.uri, serverSelectionTimeoutMS=100) as client:
        client.shop.orders.insert_one({"_id": 1})
        with contextlib.suppress(pymongo.errors.AutoReconnect):
            client.admin.command("shutdown")
    assert not mongottl_server.running

@pytest.mark.parametrize("run", [1, 2])
def test_which_drops_all_states(mongottl_server, mongottl_uri, run):
    with pymongo.MongoClient(mongottl_uri) as client:
        assert databases(client) == set()
        client.shop.orders.insert_one({})
    for name in mongottl_server.states:
        mongottl_server.drop(name)

def test_which_starts_it_again(mongottl_server):
    mongottl_server.stop()
    mongottl_server.start()
    with pymongo.MongoClient(mongottl_server.uri) as client:
        client.shop.orders.insert_one({})

def test_is_empty(mongottl_server, mongottl_cosmos):
    assert mongottl_cosmos is not mongottl_server
    for server in (mongottl_server, mongottl_cosmos):
        with pymongo.MongoClient(server.uri) as client:
            assert databases(client) == set()
            client.shop.orders.insert_one({})

def test_is_empty_again(mongottl_server, mongottl_cosmos):
    for server in (mongottl_server, mongottl_cosmos):
        with pymongo.MongoClient(server.uri) as client:
            assert databases(client) == set()
    assert mongottl_cosmos.request_units().total < 1

@pytest.mark.mongottl(shared=False)
def test_of_its_own(mongottl_server, mongottl_session):
    assert mongottl_server is not mongottl_session

PASSED = []

@pytest.mark.parametrize("n", range(100))
def test_time(n, mongottl_server):
    PASSED.append(time.perf_counter())

def test_which_it_has_taken():
    assert len(PASSED) == 100
    # The shortest: what others do on this machine only makes a test longer.
    shortest_s = min(later - earlier for earlier, later in itertools.pairwise(PASSED))
    print(f"{shortest_s * 1000:.2f} ms a test")
"""


@pytest.mark.slow
def test_tests_share_a_server_that_is_the_same_for_each(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(mongottl.__file__).parents[1]))
    pytester.makepyfile(SHARED)
    result = pytester.runpytest_subprocess(
        "-p", "mongottl.pytest_plugin", "-p", "no:cacheprovider", "-W", "error", "-rP"
    )
    result.assert_outcomes(passed=117)
    (told,) = [line for line in result.outlines if line.endswith("ms a test")]
    assert float(told.split()[0]) < 20, told
