"""`mongottl backup`: a copy as of one moment while others write, which a server can be started with."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure, PyMongoError

import mongottl
from mongottl.cli import main
from mongottl.offline import backup as offline_backup
from mongottl.offline.check import DataCheck
from tests.children import ended_after
from tests.drivers.process.test_process import Process
from tests.on_store import is_wanted
from tests.tracing import untraced
from tests.waiting import PATIENCE_S, until, until_connected

Client = pymongo.MongoClient[dict[str, Any]]
DATABASE = "mongottl.sqlite3"
LONGEST_PING_S = untraced(0.2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "one"


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """No partial copy remains, neither beside the target nor in the data directory."""
    (tmp_path / "backups").mkdir()
    yield
    left = {path.name for path in (tmp_path / "backups").iterdir()}
    assert left <= {"one", "two"}
    assert not list(tmp_path.glob("data/mongottl-copy-*"))


def hashes(client: Client) -> dict[str, Any]:
    """Of all databases of users."""
    return {
        name: client[name].command("dbHash")["collections"]
        for name in client.list_database_names()
        if name not in ("config", "local")
    }


def assert_sound(target: Path) -> None:
    assert list(DataCheck(str(target)).faults()) == []
    assert [path.name for path in target.iterdir()] == [DATABASE]


def test_of_a_running_server(data: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(data_dir=str(data)) as server, Client(server.uri) as client:
        shop = client.shop
        shop.carts.create_index("n", unique=True)
        shop.carts.create_index("_ts", expireAfterSeconds=1000)
        shop.carts.insert_many([{"n": number, "s": "x" * 1000} for number in range(3000)])
        shop.create_collection("view", viewOn="carts", pipeline=[])
        client.admin.command("createUser", "ann", pwd="s", roles=[])
        wanted = hashes(client)
        assert main(["backup", server.uri, str(target)]) == 0
        assert capsys.readouterr().out.startswith(f"{target}: ")
        shop.carts.insert_one({"n": -1})
        # A second one is another folder, and the first is not touched.
        assert main(["backup", server.uri, str(target)]) == 1
        assert "exists already" in capsys.readouterr().err
        assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0
    assert_sound(target)
    with mongottl.start_server(data_dir=str(target)) as server, Client(server.uri) as client:
        assert hashes(client) == wanted
        assert client.shop.carts.index_information()["n_1"]["unique"]
        server.clock.advance(2000)
        assert client.shop.carts.count_documents({}) == 0


def test_of_a_folder(data: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(data_dir=str(data)) as server, Client(server.uri) as client:
        client.shop.carts.insert_many([{"_id": number} for number in range(3000)])
        wanted = hashes(client)
        assert main(["backup", str(data), str(target)]) == 1
        assert "is in use by another server" in capsys.readouterr().err
    assert main(["backup", str(data), str(target)]) == 0
    assert_sound(target)
    with mongottl.start_server(data_dir=str(target)) as server, Client(server.uri) as client:
        assert hashes(client) == wanted
    assert main(["backup", str(data), str(target)]) == 1
    target.with_name("two").mkdir()
    assert main(["backup", str(data), str(target.with_name("two"))]) == 1
    assert capsys.readouterr().err.count("exists already") == 2


@pytest.mark.skipif(os.name != "posix", reason="directories cannot be synchronised")
def test_backup_is_on_the_disk_before_success_is_reported(
    data: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[tuple[str, bool]] = []

    def note(path: str) -> None:
        synchronised.append((path, target.exists()))

    monkeypatch.setattr(offline_backup, "sync_directory", note)
    with mongottl.start_server(data_dir=str(data)) as server:
        assert main(["backup", server.uri, str(target)]) == 0
    [(partial, _), _] = synchronised
    assert partial.endswith(".partial") and synchronised == [(partial, False), (str(target.parent), True)]


@pytest.mark.skipif(os.name != "posix", reason="kills the server")
def test_of_the_folder_of_a_killed_server(tmp_path: Path, data: Path, target: Path) -> None:
    """What is only in its log is copied, and the log stays."""
    process = Process(tmp_path / "log", "--port", "0", "--data-dir", str(data), "--quiet")
    with Client(process.uri) as client:
        client.shop.carts.insert_many([{"_id": number} for number in range(3000)])
        wanted = hashes(client)
    process.kill()
    log = (data / f"{DATABASE}-wal").read_bytes()
    assert main(["backup", str(data), str(target)]) == 0
    assert (data / f"{DATABASE}-wal").read_bytes() == log
    assert_sound(target)
    for path in (target, data):
        with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
            assert hashes(client) == wanted


def test_twenty_writers_go_on_and_the_copy_is_as_of_one_moment(data: Path, target: Path) -> None:
    """Each writer moves money between its two accounts in transactions, and numbers its inserts."""
    with mongottl.start_server(data_dir=str(data), quiet=True) as server, Client(server.uri) as client:
        bank = client.bank
        bank.accounts.insert_many([{"_id": f"{w}{side}", "money": 100} for w in range(20) for side in "ab"])
        bank.notes.create_index([("writer", 1), ("n", 1)], unique=True)
        bank.ballast.insert_many([{"s": os.urandom(1000)} for _ in range(20_000)])
        done = threading.Event()
        written = [0] * 20
        errors: list[BaseException] = []

        def write(writer: int) -> None:
            try:
                with Client(server.uri) as own, own.start_session() as session:
                    while not done.is_set():
                        own.bank.notes.insert_one({"writer": writer, "n": written[writer]})
                        written[writer] += 1
                        with session.start_transaction():
                            for side, change in (("a", -1), ("b", 1)):
                                own.bank.accounts.update_one(
                                    {"_id": f"{writer}{side}"}, {"$inc": {"money": change}}, session=session
                                )
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(20)]
        for thread in threads:
            thread.start()
        until(lambda: errors or min(written) >= 3)
        # Which threads of this process the system runs while a backup is made is up to it: once all have written.
        for _ in range(20):
            shutil.rmtree(target, ignore_errors=True)
            before = list(written)
            status = main(["backup", server.uri, str(target)])
            after = list(written)
            all_wrote = all(later > earlier for earlier, later in zip(before, after, strict=True))
            if all_wrote or status != 0:
                break
        done.set()
        for thread in threads:
            thread.join()
        assert (status, errors) == (0, [])
        assert all_wrote, "writers had to wait"
    assert_sound(target)
    with mongottl.start_server(data_dir=str(target)) as server, Client(server.uri) as client:
        bank = client.bank
        assert sum(account["money"] for account in bank.accounts.find()) == 20 * 200
        for account in bank.accounts.find({"_id": {"$regex": "a$"}}):
            other = bank.accounts.find_one({"_id": account["_id"][:-1] + "b"})
            assert other is not None and account["money"] + other["money"] == 200
        for writer in range(20):
            numbers = [note["n"] for note in bank.notes.find({"writer": writer}).sort("n")]
            assert numbers == list(range(len(numbers)))
            assert before[writer] <= len(numbers) <= after[writer] + 1
        for name in ("accounts", "notes", "ballast"):
            assert bank.validate_collection(name, full=True)["valid"]


def longest_ping_s(client: Client, uri: str, target: Path) -> float:
    """How long a ping waits at most while a backup is made."""
    longest_s = 0.0
    with ended_after(subprocess.Popen([sys.executable, "-P", "-m", "mongottl", "backup", uri, str(target)])) as backup:
        while backup.poll() is None:
            begun_s = time.monotonic()
            client.admin.command("ping")
            longest_s = max(longest_s, time.monotonic() - begun_s)
            time.sleep(0.002)  # leaves the server to the backup, which is measured through it
    assert backup.returncode == 0
    print(f"longest ping {longest_s * 1000:.0f} ms")
    return longest_s


@pytest.mark.slow
def test_other_clients_wait_little(tmp_path: Path, data: Path, target: Path) -> None:
    """Pings during a backup of 200 MB."""
    process = Process(tmp_path / "log", "--port", "0", "--data-dir", str(data), "--quiet")
    try:
        with Client(process.uri) as client:
            for _ in range(20):
                client.shop.carts.insert_many([{"s": os.urandom(10_000)} for _ in range(1000)])
            # By the clock, since it is another thread that makes the copy. What else runs on this machine only makes
            # pings longer, so that one of several backups tells.
            shortest_s = 60.0
            for _ in range(5):
                shutil.rmtree(target, ignore_errors=True)
                shortest_s = min(shortest_s, longest_ping_s(client, process.uri, target))
                if shortest_s < LONGEST_PING_S:
                    break
            assert shortest_s < LONGEST_PING_S
    finally:
        process.kill()
    assert (target / DATABASE).stat().st_size > 200e6


def test_only_who_may_read_everything(data: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(data_dir=str(data), auth=True, user="root", password="s") as server:
        with Client(server.uri) as client:
            client.admin.command("createUser", "reader", pwd="s", roles=["readAnyDatabase", "clusterMonitor"])
            client.admin.command("createUser", "saver", pwd="s", roles=["backup"])
        address = f"127.0.0.1:{server.port}"
        for login in ("", "reader:s@", "saver:wrong@"):
            assert main(["backup", f"mongodb://{login}{address}/", str(target)]) == 1
        errors = capsys.readouterr().err
        assert errors.count("not authorized") + errors.count("requires authentication") == 2, errors
        assert "Authentication failed" in errors
        assert main(["backup", f"mongodb://saver:s@{address}/", str(target)]) == 0
    assert_sound(target)


def test_a_server_without_a_folder_says_what_to_do(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server() as server:
        assert main(["backup", server.uri, str(target)]) == 1
    place = "PostgreSQL" if is_wanted() else "memory"
    assert f"keeps its data in {place}" in capsys.readouterr().err


def test_the_dialect_cosmos(data: Path, target: Path) -> None:
    with mongottl.start_server(data_dir=str(data), dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.carts.insert_one({"_id": 1})
        assert main(["backup", server.uri, str(target)]) == 0
    assert_sound(target)


@pytest.mark.parametrize(
    ("source", "target", "what"),
    [
        ("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50", "backups/one", "no answer: "),
        ("none", "backups/one", "none is not a folder"),
        ("mongodb://127.0.0.1:1", "none/one", "cannot be made: No such file or directory"),
        ("mongodb://127.0.0.1:1", "backups", "exists already"),
        ("redis://127.0.0.1:1", "backups/one", "backup: Invalid URI scheme"),
    ],
)
def test_backup_refuses_other_sources_and_targets(
    tmp_path: Path, source: str, target: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = source if "://" in source else str(tmp_path / source)
    assert main(["backup", source, str(tmp_path / target)]) == 1
    assert what in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_removes_what_was_written(tmp_path: Path, data: Path, target: Path, number: signal.Signals) -> None:
    with mongottl.start_server(data_dir=str(data), quiet=True) as server, Client(server.uri) as client:
        client.shop.carts.insert_many([{"s": os.urandom(1_000_000)} for _ in range(60)])
        # The writing of the file waits, so that the signal comes in the middle.
        backup = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                "import hashlib, os, sys\n"
                "from mongottl.cli import main\n"
                "real = hashlib.sha256\n"
                "class Slow:\n"
                "    def __init__(self): self.real = real()\n"
                "    def update(self, data):\n"
                "        print('piece', flush=True); sys.stdin.read(1)\n"
                "hashlib.sha256 = Slow\n"
                "sys.exit(main(sys.argv[1:]))\n",
                "backup",
                server.uri,
                str(target),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with ended_after(backup):
            assert backup.stdout is not None
            backup.stdout.readline()
            assert len(list(target.parent.iterdir())) == 1
            backup.send_signal(number)
            backup.communicate(timeout=PATIENCE_S)
        assert backup.returncode != 0
        assert list(target.parent.iterdir()) == []


def test_a_server_that_is_killed_in_the_middle(tmp_path: Path, data: Path, target: Path) -> None:
    """The client removes its part, and the next server the copy that was being made."""
    process = Process(tmp_path / "log", "--port", "0", "--data-dir", str(data), "--quiet")
    with Client(process.uri, serverSelectionTimeoutMS=500) as client:
        until_connected(client)
        client.shop.carts.insert_many([{"s": os.urandom(1_000_000)} for _ in range(60)])
        with client.admin.cursor_command("mongottlBackup") as pieces:
            assert next(pieces)["bytes"] > 60e6
            assert next(pieces)["offset"] == 0
            process.kill()
            with pytest.raises(PyMongoError):
                list(pieces)
    (data / "mongottl-copy-1-2").write_bytes(b"left")
    with mongottl.start_server(data_dir=str(data)) as server, Client(server.uri) as client:
        assert client.shop.carts.count_documents({}) == 60
        assert not (data / "mongottl-copy-1-2").exists()
        with pytest.raises(OperationFailure, match="may only be run against the admin database"):
            client.shop.command("mongottlBackup")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the open files of this process")
def test_the_copy_is_removed_if_it_is_not_read(data: Path) -> None:
    def held() -> list[str]:
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(os.readlink(entry))
        return [path for path in found if "mongottl-copy" in path]

    with mongottl.start_server(data_dir=str(data)) as server, Client(server.uri) as client:
        client.shop.carts.insert_many([{"s": os.urandom(1_000_000)} for _ in range(5)])
        pieces = client.admin.cursor_command("mongottlBackup")
        next(pieces)
        assert len(held()) == 1
        pieces.close()
        for thread in threading.enumerate():
            if thread.name == "mongottl-copy":
                thread.join()
        assert held() == []
