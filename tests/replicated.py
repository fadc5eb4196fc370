"""Two PostgreSQL clusters of tests: a primary, and a standby to which each commit goes before it is acknowledged.

    fail_over    the primary is killed, the standby promoted, and a new standby made of its data: what an operator's
                 script or Patroni does
    cut_off      the standby gets nothing more of the primary

Whoever is the only one acknowledges by itself until it has a standby again.
"""

import os
import shutil
import signal
from urllib.parse import quote

from mongottl.storage.postgresql.local_cluster import (
    DATABASE,
    USER,
    LocalCluster,
    make_folder,
    run_program,
    start_local_cluster,
)
from tests import postgres
from tests.postgres import QUICK, Folder
from tests.waiting import PATIENCE_S, until


class Replicated:
    """promotions: how often a standby was promoted."""

    def __init__(self) -> None:
        self._folders = [Folder(), Folder()]
        self._primary = 0
        self._clusters: list[LocalCluster | None] = [self._start(0), None]
        self.promotions = 0
        self.add_standby()

    def _start(self, number: int) -> LocalCluster:
        binaries = postgres.chosen()
        assert binaries is not None, postgres.missing()
        return start_local_cluster(self._folders[number].path, [binaries], QUICK)

    @property
    def primary(self) -> LocalCluster:
        cluster = self._clusters[self._primary]
        assert cluster is not None
        return cluster

    @property
    def store(self) -> str:
        """The URI of both: whoever takes writes is used."""
        hosts = ",".join(quote(os.path.join(folder.path, "run"), safe="") for folder in self._folders)
        return f"postgresql://{USER}@/{DATABASE}?host={hosts}"

    def socket_of(self, number: int) -> str:
        """The path of the socket of one of both, the first of which is the primary at first."""
        return os.path.join(self._folders[number].path, "run", ".s.PGSQL.5432")

    def execute(self, *statements: str, on: int | None = None) -> list[tuple[object, ...]]:
        """Executes statements on the primary, or on this one, each by itself; the rows of the last one."""
        import psycopg

        cluster = self.primary if on is None else self._clusters[on]
        assert cluster is not None
        with psycopg.connect(cluster.uri, autocommit=True) as connection:
            for statement in statements[:-1]:
                connection.execute(statement.encode())
            found = connection.execute(statements[-1].encode())
            return found.fetchall() if found.description else []

    def kill_primary(self) -> None:
        """The machine of the primary is gone: none of its processes says anything any more."""
        cluster = self.primary
        with open(os.path.join(cluster.data, "postmaster.pid"), encoding="ascii") as file:
            postmaster = int(file.readline())
        os.killpg(os.getpgid(postmaster), signal.SIGSTOP)
        for name in os.listdir("/proc"):
            if name != str(postmaster) and _works_in(name, cluster.data):
                os.kill(int(name), signal.SIGKILL)
        os.kill(postmaster, signal.SIGKILL)
        cluster.release()
        self._clusters[self._primary] = None

    def cut_off(self) -> None:
        """The standby gets nothing more: commits wait for it."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()", on=1 - self._primary)
        until(lambda: not self.execute("SELECT 1 FROM pg_stat_replication"), "the standby still follows")

    def waiting(self) -> list[int]:
        """The sessions that wait for the standby, but for those in which servers renew their places."""
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query NOT LIKE '%nodes%'"
        found = self.execute(waiting)
        return [int(str(number)) for (number,) in found]

    def end_session(self, number: int) -> None:
        self.execute(f"SELECT pg_terminate_backend({number})")
        until(lambda: not self.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {number}"), "it has not ended")

    def cancel(self, number: int) -> None:
        """Cancels what a session is doing. One that waits for the standby then says that it has committed."""
        self.execute(f"SELECT pg_cancel_backend({number})")
        waiting = f"SELECT 1 FROM pg_stat_activity WHERE pid = {number} AND query LIKE 'INSERT%' AND state = 'active'"
        until(lambda: not self.execute(waiting), "it goes on")

    def promote(self) -> None:
        """Has the standby take the place of the primary; it takes writes when this returns."""
        self._primary = 1 - self._primary
        # It has nobody to wait for.
        self.execute("SELECT pg_promote(true, 60)")
        self.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        self.promotions += 1

    def fail_over(self) -> None:
        self.kill_primary()
        self.promote()
        self.add_standby()

    def add_standby(self) -> None:
        number = 1 - self._primary
        folder = self._folders[number].path
        data = os.path.join(folder, "data")
        until(lambda: not any(_works_in(name, data) for name in os.listdir("/proc")), "processes have survived SIGKILL")
        # With the socket, whose lock names a process whose number may be another's by now.
        for name in ("data", "run"):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        make_folder(data)
        primary = self.primary
        arguments = ["-h", primary.run_folder, "-U", USER, "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        said = run_program(primary.binaries, "pg_basebackup", arguments, PATIENCE_S)
        assert said is None, said
        self._clusters[number] = self._start(number)
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        states = "SELECT sync_state FROM pg_stat_replication"
        until(lambda: ("sync",) in self.execute(states), "the standby is not synchronous")

    def end_sessions(self, share: float = 1.0) -> int:
        """Ends the sessions of servers, or this share of them, chosen at random; how many."""
        [(count,)] = self.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE starts_with(application_name, 'mongottl') AND pid <> pg_backend_pid()"
            f" AND random() < {share}"
        )
        assert isinstance(count, int)
        return count

    def remove(self) -> None:
        for cluster in self._clusters:
            if cluster is not None:
                cluster.stop("immediate")
        for folder in self._folders:
            folder.remove()


def _works_in(process: str, data: str) -> bool:
    """Whether a process, by its name in /proc, works in the folder of a cluster."""
    if not process.isdigit():
        return False
    try:
        return os.readlink(f"/proc/{process}/cwd") == os.path.realpath(data)
    except OSError:
        return False
