"""The pytest plugin in runs of its own: found by its entry point, or named with -p where nothing is installed."""

import os
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
    mongottl_clock.freeze()
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
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = "\n".join(f"{name} = {module}" for name, module in project["entry-points"]["pytest11"].items())
    metadata = tmp_path / "site" / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mongottl\nVersion: {project['version']}\n")
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{points}\n")
    run(pytester, monkeypatch, path=tmp_path / "site")


@pytest.mark.slow
def test_by_name(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    run(pytester, monkeypatch, "-p", "mongottl.pytest_plugin")


@pytest.mark.slow
def test_who_does_not_use_it_does_not_pay(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
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
