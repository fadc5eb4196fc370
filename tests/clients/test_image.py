"""The image, built and started: its users, folders, lines and programs, as those who use other images expect them.

`scripts/image` builds it without a daemon, which takes minutes, so this is done only where MONGOTTL_TEST_IMAGE=build
asks for it; MONGOTTL_TEST_IMAGE=NAME takes an image that podman has. A container is here what `chroot` and namespaces
of Linux make: a file system over the image's, with its own processes and its own network.

What is executed is what the modules for MongoDB and for the emulator of Testcontainers (Java, .NET, Node, Go, Python)
execute, and what compose files for these images have.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mongottl.cli.container import EMULATOR_CERTIFICATE, WAITING
from tests.children import ended_after
from tests.documents import ROOT
from tests.waiting import PATIENCE_S, until

IMAGE = os.environ.get("MONGOTTL_TEST_IMAGE")
TOOLS = ("podman", "buildah", "unshare", "nsenter", "ip", "setpriv")
PODMAN = ("podman", "--storage-driver=vfs")
CANNOT_BUILD = 75
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]


def reason_to_skip() -> str:
    if not IMAGE:
        return "building the image takes minutes: MONGOTTL_TEST_IMAGE=build does it"
    if MISSING:
        return f"not installed: {', '.join(MISSING)}"
    return "" if os.geteuid() == 0 else "containers by chroot need root"


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())]

# Prepares the file system of a container in a mount namespace of its own.
PREPARE = """
set -e
ip link set lo up
mount -t tmpfs tmpfs "$WORK"
mkdir "$WORK/upper" "$WORK/work" "$WORK/root"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
cd "$WORK/root"
for pair in $VOLUMES; do
    mkdir -p ".${pair#*:}"
    mount --bind "${pair%%:*}" ".${pair#*:}"
done
if [ "$READ_ONLY" = 1 ]; then mount -o remount,ro "$WORK/root"; fi
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
"""


class Image:
    """An image of podman: where its files are, and how its containers start."""

    def __init__(self, name: str) -> None:
        self.name = name
        [described] = json.loads(podman("image", "inspect", name))
        self.config: dict[str, Any] = described["Config"]
        self.health_check: list[str] = described["Healthcheck"]["Test"]
        self.size_bytes: int = described["Size"]
        self.layers: list[str] = described["RootFS"]["Layers"]
        self.root = podman("image", "mount", name).strip()

    def user_id(self) -> str:
        """`UID:GID` of the user that the image names."""
        for line in Path(self.root, "etc/passwd").read_text(encoding="utf-8").splitlines():
            fields = line.split(":")
            if fields[0] == self.config["User"]:
                return f"{fields[2]}:{fields[3]}"
        raise AssertionError(f"there is no user {self.config['User']}")


def podman(*arguments: str) -> str:
    return subprocess.run([*PODMAN, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    name = IMAGE
    assert name is not None
    if name == "build":
        command = [str(ROOT / "scripts" / "image"), "--build-arg", "MONGOTTL_PURE=1"]
        built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if built.returncode == CANNOT_BUILD:
            pytest.skip("scripts/image cannot be built here, and says why")
        assert built.returncode == 0
        name = built.stdout.strip()
    image = Image(name)
    yield image
    podman("image", "unmount", name)


class Container:
    """A running container. `command` None is the image's entry point with `arguments`."""

    def __init__(
        self,
        image: Image,
        folder: Path,
        arguments: tuple[str, ...],
        environment: dict[str, str],
        user_id: str | None,
        read_only: bool,
        volumes: dict[Path, str],
        command: tuple[str, ...] | None,
    ) -> None:
        self.image = image
        self.user_id = user_id or image.user_id()
        self.log = folder / "log"
        work = folder / "work"
        work.mkdir()
        # As Docker: a user that has no home there has the root folder.
        home = f"/home/{image.config['User']}" if user_id is None else "/"
        own = dict(pair.split("=", 1) for pair in image.config["Env"])
        self.environment = {**own, "HOME": home, **environment}
        words = [*(command or image.config["Entrypoint"]), *arguments]
        script = PREPARE + f'exec chroot . {self._as_user()} "$@"'
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "sh", "-c", script, "sh", *words],
                env={
                    **self.environment,
                    "PATH": f"{own['PATH']}:{os.environ['PATH']}",
                    "LOWER": image.root,
                    "WORK": str(work),
                    "VOLUMES": " ".join(f"{outer}:{inner}" for outer, inner in volumes.items()),
                    "READ_ONLY": "1" if read_only else "0",
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _as_user(self) -> str:
        uid, _, gid = self.user_id.partition(":")
        return f"setpriv --reuid {uid} --regid {gid} --clear-groups"

    @property
    def first_pid(self) -> int:
        """The container's process 1, by the number that it has outside."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def text(self) -> str:
        return self.log.read_bytes().decode()

    def wait_for(self, text: str, times: int = 1) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None or self.text().count(text) >= times, self.text()
            return self.text().count(text) >= times

        until(is_there, f"no {text!r}")

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a program as `docker exec` does."""
        uid, _, gid = self.user_id.partition(":")
        inside = ["nsenter", "-t", str(self.first_pid), "-p", "-n", "-m", "-r", "-w", "-S", uid, "-G", gid]
        return subprocess.run(
            [*inside, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def write(self, path: str, text: str) -> None:
        """Puts a file into the container as `docker cp` does, as root and for everybody."""
        inside = ["nsenter", "-t", str(self.first_pid), "-m", "-r", "-w", "sh", "-c"]
        script = 'mkdir -p "$(dirname "$0")" && cat >"$0" && chmod 755 "$0"'
        subprocess.run([*inside, script, path], input=text, text=True, check=True, env={"PATH": "/usr/bin:/bin"})

    def kill(self) -> None:
        """Ends all processes of the container: `unshare` no longer does once the first one has changed its user."""
        if self.process.poll() is None:
            with suppress(IndexError, OSError):
                os.kill(self.first_pid, signal.SIGKILL)

    def stop(self) -> int:
        """The exit status after SIGTERM, for which Docker would wait ten seconds, and Kubernetes thirty."""
        os.kill(self.first_pid, signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


Start = Callable[..., Container]


@pytest.fixture
def start(image: Image, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        count = 0

        def start(
            *arguments: str,
            environment: dict[str, str] | None = None,
            user_id: str | None = None,
            read_only: bool = False,
            volumes: dict[Path, str] | None = None,
            command: tuple[str, ...] | None = None,
        ) -> Container:
            nonlocal count
            count += 1
            folder = tmp_path / f"container-{count}"
            folder.mkdir()
            container = Container(
                image, folder, arguments, environment or {}, user_id, read_only, volumes or {}, command
            )
            process = container.process
            stack.enter_context(ended_after(process))
            stack.callback(container.kill)
            return container

        yield start


def succeed(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def healthy(container: Container) -> subprocess.CompletedProcess[str]:
    kind, *command = container.image.health_check
    assert kind == "CMD"
    return container.execute(*command)


def test_image_declares_user_ports_stop_signal_and_size(image: Image) -> None:
    assert image.config["User"] not in ("", "root", "0")
    assert set(image.config["ExposedPorts"]) == {"27017/tcp", "10255/tcp", "8081/tcp"}
    assert image.config["StopSignal"] == "SIGTERM"
    # The base, curl, the packages, the folders.
    base = json.loads(podman("image", "inspect", *base_names()))[0]
    assert len(image.layers) - len(base["RootFS"]["Layers"]) == 3
    assert image.size_bytes - base["Size"] < 220_000_000


def base_names() -> list[str]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return [line.split()[1] for line in text.splitlines() if line.startswith("FROM ") and line.endswith("-slim")]


def test_buildah_runs_what_the_image_holds(image: Image) -> None:
    buildah = ["buildah", "--storage-driver=vfs"]
    made = subprocess.run([*buildah, "from", "--pull-never", image.name], check=True, capture_output=True, text=True)
    name = made.stdout.strip()
    try:
        modules = "s2rst, quickjs, greenlet, snappy, Stemmer, trustme, h11, prometheus_client, zstandard, icu"
        run = [*buildah, "run", "--isolation=chroot", name, "--"]
        subprocess.run([*run, "python3", "-c", f"import {modules}"], check=True, capture_output=True)
        ended = subprocess.run([*run, "mongottl", "container", "--version"], check=True, capture_output=True, text=True)
        assert ended.stdout.startswith("mongottl ")
    finally:
        subprocess.run([*buildah, "rm", name], check=True, capture_output=True)


def test_container_ends_with_status_0_soon_after_sigterm(start: Start) -> None:
    container = start()
    container.wait_for(WAITING)
    assert succeed(healthy(container))
    assert container.stop() == 0
    assert '"signal": "SIGTERM"' in container.text()


def test_a_signal_that_comes_before_the_server_ends_it_too(start: Start) -> None:
    """The kernel ignores signals to the first process that it has no handler for, and Docker then waits and kills."""
    container = start(command=("python3", "-c", SIGNALLED))
    assert container.process.wait(PATIENCE_S) == 0
    assert container.text() == ""


# The container's command, with a SIGTERM to itself as the first thing after its handler is there.
SIGNALLED = """
import os, signal
from mongottl.cli import container
os.environ["MONGOTTL_PORT"] = "no number"  # what is read after the handler
handle = signal.signal
def handled(number, handler):
    handle(number, handler)
    os.kill(os.getpid(), number)
signal.signal = handled
container.main([])
"""


@pytest.mark.parametrize("options", [(), ("--quiet",)])
@pytest.mark.parametrize(("user", "expected"), [("", 1), ("mongo", 2)])
def test_testcontainers_for_dotnet(start: Start, user: str, expected: int, options: tuple[str, ...]) -> None:
    """It counts the line, and executes scripts from files."""
    environment = {"MONGO_INITDB_ROOT_USERNAME": user, "MONGO_INITDB_ROOT_PASSWORD": user}
    container = start(*options, environment=environment)
    container.wait_for(WAITING, expected)
    container.write(
        "/tmp/8f7/script",
        'printjson(db.adminCommand({listDatabases:1,nameOnly:true,filter:{"name":/^admin/}}));',
    )
    assert succeed(container.execute("which", "mongosh"))
    login = ("--username", user, "--password", user, "--quiet")
    ended = container.execute("mongosh", *login, "--eval", "load('/tmp/8f7/script')")
    assert '"name": "admin"' in succeed(ended) and ended.stderr == ""
    container.stop()
    assert sum(WAITING in line for line in container.text().splitlines()) == expected


def test_testcontainers_for_dotnet_with_a_replica_set(start: Start, tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "01-init-keyfile.sh").write_text(
        '#!/bin/bash\nopenssl rand -base64 32 > "/tmp/mongodb-keyfile"\nchmod 600 "/tmp/mongodb-keyfile"\n'
    )
    container = start(
        *("--replSet", "rs1", "--keyFile", "/tmp/mongodb-keyfile", "--bind_ip_all"),
        environment={"MONGO_INITDB_ROOT_USERNAME": "mongo", "MONGO_INITDB_ROOT_PASSWORD": "mongo"},
        volumes={scripts: "/docker-entrypoint-initdb.d"},
    )
    container.wait_for(WAITING, 2)
    assert succeed(container.execute("test", "-s", "/tmp/mongodb-keyfile")) == ""
    login = ("--username", "mongo", "--password", "mongo", "--quiet", "--eval", "load('/tmp/s')")
    for script in (
        "var r=db.runCommand({hello:1}).isWritablePrimary;quit(r===true?0:1);",
        'var r=rs.initiate({_id:"rs1",members:[{_id:0,host:"127.0.0.1:27017"}]});quit(r.ok===1?0:1);',
        "rs.status().ok;",
    ):
        container.write("/tmp/s", script)
        assert succeed(container.execute("mongosh", *login)) in ("", "1\n", "true\n")
    container.write("/tmp/s", "quit(7)")
    assert container.execute("mongosh", *login).returncode == 7
    # Who cannot log in evaluates nothing.
    assert container.execute("mongosh", *login[:3], "wrong", *login[4:]).returncode == 1


def in_java(command: str) -> tuple[str, ...]:
    return ("sh", "-c", f'mongosh mongo --eval "{command}"  || mongo --eval "{command}"')


def test_testcontainers_for_java(start: Start) -> None:
    container = start("--replSet", "docker-rs")
    container.wait_for(WAITING)
    for command in (
        "rs.initiate();",
        "var attempt = 0; while(db.runCommand( { isMaster: 1 } ).ismaster==false) { if (attempt > 60) {quit(1);} "
        "print('An attempt to await ' + attempt); sleep(100);  attempt++;  }",
        "if(db.adminCommand({replSetGetStatus: 1})['myState'] != 1) quit(900)",
    ):
        succeed(container.execute(*in_java(command)))


# What `withSharding` runs in the place of the entry point: three servers, of which the last one is the router.
SHARDED = """
mkdir -p /tmp/mongod/configsvr /tmp/mongod/shardsvr
mongod --bind_ip_all --configsvr --port 27019 --replSet configsvr-rs --dbpath /tmp/mongod/configsvr --logpath /tmp/c &
mongod --bind_ip_all --shardsvr --port 27018 --replSet shardsvr-rs --dbpath /tmp/mongod/shardsvr --logpath /tmp/s &
for port in 27019 27018; do
    until mongosh --quiet --port $port --eval "if(db.adminCommand({replSetGetStatus: 1})['myState'] != 1) quit(900)"; do
        :
    done
    mongosh --quiet --port $port --eval 'rs.initiate();'
done
mongos --bind_ip_all --configdb configsvr-rs/localhost:27019 --logpath /tmp/mongos.log &
until mongosh --eval "sh.addShard('shardsvr-rs/$(hostname):27018');"; do :; done
echo "mongos ready"
mongosh --quiet tctest --eval "db.testcollection.insertOne({});"
echo "inserted"
sleep 36000
"""


def test_testcontainers_for_java_with_sharding(start: Start) -> None:
    container = start("-c", SHARDED, command=("sh",))
    container.wait_for("mongos ready")
    container.wait_for("\ninserted\n")
    counted = "db.getSiblingDB('tctest').testcollection.countDocuments()"
    assert succeed(container.execute("mongosh", "--port", "27017", "--eval", counted)) == "1\n"


@pytest.mark.parametrize("shell", ["mongosh", "mongo admin"])
@pytest.mark.parametrize("login", ["", " -u customUsername -p customPassword"])
def test_testcontainers_for_node(start: Start, shell: str, login: str) -> None:
    options = ["--replSet", "rs0"]
    environment = {}
    if login:
        options += ["--keyFile", "/data/db/key.txt"]
        environment = {
            "MONGO_INITDB_ROOT_USERNAME": "customUsername",
            "MONGO_INITDB_ROOT_PASSWORD": "customPassword",
        }
    container = start(*options, environment=environment)
    container.wait_for(WAITING)
    script = "try { rs.status(); } catch (e) { rs.initiate(); } "
    if shell != "mongosh":
        script = "try { rs.initiate(); } catch (e) {} "
    script += "while (db.runCommand({isMaster: 1}).ismaster==false) { sleep(100); }"
    succeed(container.execute("/bin/sh", "-c", f"{shell}{login} --quiet --eval '{script}'"))


GO_ENTRY_POINT = """#!/bin/bash
set -Eeuo pipefail
group=$(cut -d: -f1,5 /etc/passwd | grep mongo)
start=$(find /usr/local/bin -name 'docker-entrypoint.*')
openssl rand -base64 756 > "${MONGO_KEYFILE}"
chown "${group}" "${MONGO_KEYFILE}"
chmod 400 "${MONGO_KEYFILE}"
exec ${start} "$@"
"""


def test_testcontainers_for_go_with_a_replica_set_and_a_user(start: Start) -> None:
    container = start(
        *("-c", GO_ENTRY_POINT, "entrypoint-tc.sh", "--replSet", "rs", "--keyFile", "/tmp/mongo_keyfile"),
        command=("bash",),
        environment={
            "MONGO_INITDB_ROOT_USERNAME": "root",
            "MONGO_INITDB_ROOT_PASSWORD": "secret",
            "MONGO_KEYFILE": "/tmp/mongo_keyfile",
        },
    )
    container.wait_for(WAITING)
    initiate = "rs.initiate({ _id: 'rs', members: [ { _id: 0, host: '172.17.0.2:27017' } ] })"
    for script in (initiate, "rs.status().ok"):
        words = f'--username root --password secret --quiet --eval "{script}"'
        succeed(container.execute("sh", "-c", f"mongosh {words} || mongo {words}"))


CLIENT = """
import ssl, sys, urllib.request, pymongo
asked = ssl._create_unverified_context()
pem = urllib.request.urlopen("https://localhost:8081/_explorer/emulator.pem", context=asked).read()
assert urllib.request.urlopen("https://localhost:8081/_explorer/index.html", context=asked).status == 200
open("/tmp/fetched.pem", "wb").write(pem)
assert pem == open(sys.argv[1], "rb").read()
key = "C2y6yDjf5%2FR%2Bob0N8A7Cgv30VRDJIWEHLM%2B4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw%2FJw%3D%3D"
uri = f"mongodb://localhost:{key}@localhost:10255/admin?ssl=true&retrywrites=false&tlsCAFile=/tmp/fetched.pem"
with pymongo.MongoClient(uri) as client:
    client.shop.carts.insert_one({"_id": int(sys.argv[2])})
    print(client.server_info()["version"].rpartition(".")[0], client.shop.carts.count_documents({}))
"""


def test_the_emulators_place(start: Start, tmp_path: Path) -> None:
    """With the variables of Testcontainers for Python, which gives those without a value as `None`."""
    environment = {
        "AZURE_COSMOS_EMULATOR_PARTITION_COUNT": "None",
        "AZURE_COSMOS_EMULATOR_IP_ADDRESS_OVERRIDE": "127.0.0.1",
        "AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE": "True",
        "AZURE_COSMOS_EMULATOR_KEY": (
            "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
        ),
    }
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    version = "AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT"
    for number in (1, 2):
        container = start(environment={version: "7.0", **environment}, volumes={data: "/tmp/cosmos/appdata"})
        container.wait_for("Started\r\n")
        succeed(healthy(container))
        told = succeed(container.execute("python3", "-c", CLIENT, str(EMULATOR_CERTIFICATE), str(number)))
        assert told == f"7.0 {number}\n"
        # The health check of many compose files.
        check = "curl -f -k https://localhost:8081/_explorer/emulator.pem || exit 1"
        assert succeed(container.execute("sh", "-c", check)).startswith("-----BEGIN CERTIFICATE-----")
        assert container.stop() == 0
    # Today's PyMongo refuses servers that announce a version before 4.4; the image's own programs do not.
    container = start(environment={version: "4.0", **environment}, volumes={data: "/tmp/cosmos/appdata"})
    container.wait_for("Started\r\n")
    succeed(healthy(container))
    assert succeed(container.execute("mongosh", "shop", "--eval", "db.carts.countDocuments()")) == "2\n"


@pytest.mark.parametrize("options", [(), ("--emulator",)])
@pytest.mark.parametrize("user_id", [None, "12345:0", "12345:12345"])
def test_a_read_only_file_system_and_any_user(start: Start, user_id: str | None, options: tuple[str, ...]) -> None:
    container = start(*options, user_id=user_id, read_only=True)
    container.wait_for(WAITING)
    succeed(healthy(container))
    assert succeed(container.execute("mongosh", "--eval", "db.c.insertOne({}).insertedCount")) == "1\n"
    assert container.stop() == 0


def test_a_user_of_the_group_root_can_keep_data(start: Start) -> None:
    container = start("--data-dir", "/data", user_id="12345:0")
    container.wait_for(WAITING)
    assert "data in /data" in container.text()
    assert container.stop() == 0


def test_data_outlive_containers(start: Start, tmp_path: Path) -> None:
    """In a volume that has what volumes and Testcontainers for Node put there before."""
    volume = tmp_path / "volume"
    (volume / "lost+found").mkdir(parents=True)
    (volume / "key.txt").write_text("1111111111")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "init.js").write_text("db.getSiblingDB('shop').carts.insertOne({_id: 1})")
    volume.chmod(0o777)
    for _ in range(2):
        container = start(volumes={volume: "/data/db", scripts: "/docker-entrypoint-initdb.d"})
        container.wait_for(WAITING)
        counted = container.execute("mongosh", "shop", "--quiet", "--eval", "db.carts.countDocuments()")
        assert succeed(counted) == "1\n"
        assert container.stop() == 0
        assert (volume / "mongottl.sqlite3").is_file()
