"""`mongottl container` and `mongottl shell`: what starts, waits for and initiates other images does so with ours.

The command lines and scripts are those that the MongoDB modules of Testcontainers for .NET and Java execute, and that
compose files for the images of MongoDB and of Cosmos DB's emulator have.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.cli import container
from mongottl.cli.client import connect
from mongottl.cli.container import translate
from mongottl.cli.mongod_options import MONGOD_OPTIONS
from mongottl.cli.subcommands import UsageError
from mongottl.config import config_from
from mongottl.javascript.library import missing_reason
from tests.children import ended_after
from tests.drivers.process.test_process import COMMAND, Process, spawn
from tests.environment import without_settings
from tests.on_nodes import of_replica_set
from tests.on_store import takes_several_servers
from tests.waiting import PATIENCE_S

__all__ = ["spawn"]
Client = pymongo.MongoClient[dict[str, Any]]


def translated(arguments: list[str], **environment: str) -> list[str]:
    options = translate(arguments, environment).options[1:]
    return [option for option in options if option != "--topology=sharded"]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], []),
        (["--replSet", "rs0", "--bind_ip_all"], ["--replica-set=rs0", "--topology=replicaSet", "--host=*"]),
        (["--replSet=rs0"], ["--replica-set=rs0", "--topology=replicaSet"]),
        (["--replSet", "rs0", "--keyFile", "/k"], ["--replica-set=rs0", "--topology=replicaSet", "--auth"]),
        (["--port", "27018", "--dbpath", "/d"], ["--port", "27018", "--data-dir=/d"]),
        (["--quiet", "--auth", "--noscripting"], ["--quiet", "--auth", "--no-scripting"]),
        (["--setParameter", "enableTestCommands=1"], ["--enable-test-commands"]),
        (["--storageEngine", "wiredTiger", "--dialect", "cosmos"], ["--dialect", "cosmos"]),
        (["--configsvr", "--port=27019"], ["--port=27019"]),
        (["--configdb", "rs/localhost:27019", "--shardsvr"], []),
    ],
)
def test_options_of_mongod_mean_ours(arguments: list[str], options: list[str]) -> None:
    assert translated(arguments) == options


@pytest.mark.parametrize(
    ("arguments", "variables", "is_sharded"),
    [
        ([], {}, True),
        (["--replSet", "rs0"], {}, False),
        (["--replica-set", "rs0"], {}, False),
        (["--topology=replicaSet"], {}, False),
        ([], {"MONGOTTL_TOPOLOGY": "replicaSet"}, False),
        ([], {"AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT": "4.2"}, True),
    ],
)
def test_a_container_answers_as_a_mongos_unless_a_replica_set_is_asked_for(
    arguments: list[str], variables: dict[str, str], is_sharded: bool
) -> None:
    assert ("--topology=sharded" in translate(arguments, variables).options) is is_sharded


def test_variables_without_effect_are_reported() -> None:
    result = translate(["--wiredTigerCacheSizeGB", "1", "--keyFile", "/k"], {"MONGO_INITDB_DATABASE": "shop"})
    assert result.remarks == [
        "MONGO_INITDB_DATABASE has no effect here: a database is made by its first write",
        "--wiredTigerCacheSizeGB 1 has no effect here",
        "--keyFile means --auth here: there are no other members to check",
    ]
    with pytest.raises(UsageError, match="--dbpath needs a value"):
        translate(["--dbpath"], {})


def test_the_root_user_of_the_image_mongo(tmp_path: Path) -> None:
    result = translate([], {"MONGO_INITDB_ROOT_USERNAME": "root", "MONGO_INITDB_ROOT_PASSWORD": "secret"})
    assert result.options[1:3] == ["--auth", "--user=root"]
    assert result.environment == {"MONGOTTL_PASSWORD": "secret"}
    file = tmp_path / "password"
    file.write_text("from a file\n")
    result = translate([], {"MONGO_INITDB_ROOT_USERNAME": "root", "MONGO_INITDB_ROOT_PASSWORD_FILE": str(file)})
    assert result.environment == {"MONGOTTL_PASSWORD": "from a file"}
    # Testcontainers for .NET gives both variables an empty value for a server without login.
    assert translated([], MONGO_INITDB_ROOT_USERNAME="", MONGO_INITDB_ROOT_PASSWORD="") == []
    with pytest.raises(UsageError, match="both are needed, or neither"):
        translate([], {"MONGO_INITDB_ROOT_USERNAME": "root"})


EMULATOR = "AZURE_COSMOS_EMULATOR_"


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({"ENABLE_MONGODB_ENDPOINT": "4.2"}, ["--emulator", "--server-version=4.2"]),
        ({"ENABLE_MONGODB_ENDPOINT": "true"}, ["--emulator"]),
        ({"ENABLE_MONGODB_ENDPOINT": "false"}, []),
        ({"PARTITION_COUNT": "3"}, []),
        (
            {"ENABLE_MONGODB_ENDPOINT": "4.0", "ENABLE_DATA_PERSISTENCE": "true"},
            ["--emulator", "--server-version=4.0", "--data-dir=/tmp/cosmos/appdata"],
        ),
        (
            {"ENABLE_MONGODB_ENDPOINT": "3.6", "IP_ADDRESS_OVERRIDE": "192.168.1.7"},
            ["--emulator", "--server-version=3.6", "--advertise-host=192.168.1.7:10255"],
        ),
        (
            {"ARGS": "/EnableMongoDbEndpoint=4.2 /MongoPort=27017", "IP_ADDRESS_OVERRIDE": "127.0.0.1"},
            ["--emulator", "--server-version=4.2", "--port=27017", "--advertise-host=127.0.0.1:27017"],
        ),
    ],
)
def test_variables_of_the_emulator(variables: dict[str, str], options: list[str]) -> None:
    assert translated([], **{EMULATOR + name: value for name, value in variables.items()}) == options


def test_variables_of_the_emulator_without_effect_are_told() -> None:
    variables = {"ENABLE_MONGODB_ENDPOINT": "4.2", "PARTITION_COUNT": "3", "ARGS": "/NoUI /Key=b3duCg=="}
    result = translate([], {EMULATOR + name: value for name, value in variables.items()})
    assert result.environment == {"MONGOTTL_COSMOS_KEY": "b3duCg=="}
    assert result.remarks == [
        "AZURE_COSMOS_EMULATOR_ARGS: /noui has no effect here",
        "AZURE_COSMOS_EMULATOR_PARTITION_COUNT has no effect here: there are as many partitions as needed",
    ]
    # Testcontainers for Python gives the key a variable of its own.
    result = translate([], {EMULATOR + "ENABLE_MONGODB_ENDPOINT": "4.2", EMULATOR + "KEY": "b3duCg=="})
    assert result.environment == {"MONGOTTL_COSMOS_KEY": "b3duCg=="}
    # Files for the emulator's other API start a server that is not the emulator, at another port.
    for endpoint in ({}, {EMULATOR + "ENABLE_MONGODB_ENDPOINT": "false"}):
        result = translate([], {EMULATOR + "PARTITION_COUNT": "3", EMULATOR + "ARGS": "/NoUI", **endpoint})
        assert result.remarks == [
            "AZURE_COSMOS_EMULATOR_ARGS, AZURE_COSMOS_EMULATOR_PARTITION_COUNT: no effect without"
            " AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT, whose API is the only one here"
        ]
        assert "--emulator" not in result.options
    with pytest.raises(UsageError, match=r"ENABLE_MONGODB_ENDPOINT: one of 3.6, 4.0, .* is needed, not '3.2'"):
        translate([], {EMULATOR + "ENABLE_MONGODB_ENDPOINT": "3.2"})


def test_every_option_that_mongod_has_means_one_that_exists() -> None:
    from mongottl.cli.options import parse_arguments

    for ours, takes_value in MONGOD_OPTIONS.values():
        if ours is not None:
            parse_arguments([f"{ours}=1" if takes_value and ours != "--auth" else ours])


def lines_of(process: Process, last: str) -> list[str]:
    """The lines of output until one that contains `last`, that one included."""
    assert process.popen.stdout is not None
    lines = []
    for line in process.popen.stdout:
        lines.append(line)
        if last in line:
            break
    return lines


@pytest.mark.parametrize("options", [(), ("--quiet",)])
@pytest.mark.parametrize(("user", "expected"), [("", 1), ("mongo", 2)])
def test_waiting_for_connections_is_said_as_often_as_it_is_counted(
    spawn: Callable[..., Process], user: str, expected: int, options: tuple[str, ...]
) -> None:
    """Twice with a user, once without, in standard output and error together, with a log and without."""
    environment = {"MONGO_INITDB_ROOT_USERNAME": user, "MONGO_INITDB_ROOT_PASSWORD": user}
    process = spawn(*options, environment=environment, command=[*COMMAND, "container"])
    lines = [line for _ in range(expected) for line in lines_of(process, container.WAITING)]
    process.stop()
    assert process.popen.stdout is not None
    lines += process.popen.stdout.readlines()
    lines += process.log.read_text().splitlines()
    assert sum(container.WAITING in line for line in lines) == expected


def test_the_container_of_the_emulator_says_that_it_has_started(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    variables = {EMULATOR + "ENABLE_MONGODB_ENDPOINT": "4.2", "XDG_CACHE_HOME": str(tmp_path)}
    command = [*COMMAND, "container", "--port", "0", "--certificate-port", "0"]
    with ended_after(subprocess.Popen(command, stdout=subprocess.PIPE, env=without_settings(**variables))) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().split()[-1].decode()
        # The module for Java waits for a line with this end.
        assert any(line == b"Started\r\n" for line in process.stdout)
        with connect(uri, PATIENCE_S) as client:
            assert client.server_info()["version"].startswith("4.2.")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_a_program_in_the_place_of_options_is_run() -> None:
    ended = subprocess.run([*COMMAND, "container", "echo", "hello"], capture_output=True, text=True, check=True)
    assert ended.stdout == "hello\n"
    ended = subprocess.run([*COMMAND, "container", "no-such-program"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "there is no program 'no-such-program'" in ended.stderr
    for words in (["--version"], ["mongod", "--version"]):
        ended = subprocess.run([*COMMAND, "container", *words], capture_output=True, text=True, check=True)
        assert ended.stdout.startswith("mongottl ")


def test_the_settings_of_a_container_are_those_of_a_server() -> None:
    assert config_from({"host": "*"}).host == "*"


needs_scripts = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())


@pytest.fixture(scope="module")
def container_server() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(replica_set="docker-rs") as server:
        yield server


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "mongottl", "shell", *arguments],
        capture_output=True,
        text=True,
        env=without_settings(),
    )


@needs_scripts
@pytest.mark.parametrize(
    ("script", "status"),
    [
        # Testcontainers for .NET.
        ("var r=db.runCommand({hello:1}).isWritablePrimary;quit(r===true?0:1);", 0),
        pytest.param(
            'var r=rs.initiate({_id:"docker-rs",members:[{_id:0,host:"127.0.0.1:27017"}]});quit(r.ok===1?0:1);',
            0,
            marks=of_replica_set,
        ),
        # Testcontainers for Java.
        pytest.param("rs.initiate();", 0, marks=of_replica_set),
        (
            "var attempt = 0; while(db.runCommand( { isMaster: 1 } ).ismaster==false) { if (attempt > 60) {quit(1);} "
            "print('An attempt to await ' + attempt); sleep(100);  attempt++;  }",
            0,
        ),
        ("if(db.adminCommand({replSetGetStatus: 1})['myState'] != 1) quit(900)", 0),
        # Health checks of compose files.
        ("db.adminCommand('ping')", 0),
        ("db.runCommand('ping').ok", 0),
        ("rs.status().ok || rs.initiate({_id: 'docker-rs', members: [{_id: 0, host: 'mongo:27017'}]}).ok", 0),
        ("try { rs.status() } catch (err) { rs.initiate() }", 0),
        # What fails.
        ("quit(3)", 3),
        ("rs.initiate({_id: 'other'})", 1),
        ("db.c.find({$no: 1})", 1),
        ("db.c.foo.bar.baz()", 1),
        ("db.runCommand({no: 1}).ok", 0),
        ("syntax error", 1),
    ],
)
def test_scripts_of_others_end_as_they_expect(
    container_server: mongottl.RunningServer, script: str, status: int
) -> None:
    for words in (("--quiet",), ("mongo",)):
        ended = shell(*words, "--port", str(container_server.port), "--eval", script)
        assert ended.returncode == status, ended.stdout + ended.stderr


@needs_scripts
def test_a_script_fills_a_collection_and_reads_it_to_its_end(
    container_server: mongottl.RunningServer, tmp_path: Path
) -> None:
    script = tmp_path / "init.js"
    script.write_text(
        "db = db.getSiblingDB('filled')\n"
        "db.createCollection('things')\n"
        "for (let i = 0; i < 250; i++) db.things.insertOne({_id: i, at: new Date(0), n: NumberLong(i)})\n"
        "db.things.createIndex({_ts: 1}, {expireAfterSeconds: 60})\n"
        "db.things.updateMany({_id: {$lt: 10}}, {$set: {small: true}})\n"
        "db.things.deleteOne({_id: 0})\n"
        "print(db.things.find().toArray().length, db.things.countDocuments({small: true}))\n"
    )
    ended = shell(container_server.uri, str(script))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0] == "249 9"
    with Client(container_server.uri) as client:
        found = client.filled.things.find_one({"_id": 7})
        assert found is not None and found["n"] == 7 and found["at"].year == 1970
        assert "_ts_1" in client.filled.things.index_information()


@needs_scripts
def test_a_script_loads_a_file(container_server: mongottl.RunningServer, tmp_path: Path) -> None:
    """As `ExecScriptAsync` of Testcontainers for .NET, whose own test reads what follows from standard error."""
    script = tmp_path / "script"
    login = ("--username", "", "--password", "", "--quiet")
    named = 'db.adminCommand({listDatabases:1,nameOnly:true,filter:{"name":/^ADMIN$/i}})'
    for text, status, shown in (
        (f"printjson({named}.databases);", 0, "admin"),
        ("var loaded = 5", 0, ""),
        ("quit(7)", 7, ""),
        ("throw new Error('no')", 1, ""),
    ):
        script.write_text(text)
        ended = shell(*login, "--port", str(container_server.port), "--eval", f"load('{script}')")
        assert ended.returncode == status and shown in ended.stdout
        assert (ended.stderr == "") is (status != 1)
    script.write_text("var loaded = 5")
    ended = shell("--port", str(container_server.port), "--eval", f"load('{script}'); loaded + 1")
    assert ended.stdout == "6\n"
    ended = shell("--port", str(container_server.port), "--eval", "print('said')")
    assert ended.stdout == "said\n"
    ended = shell("--port", str(container_server.port), "--eval", "load('/no/such/file')")
    assert (ended.returncode, ended.stderr) == (1, "Error: cannot load /no/such/file: No such file or directory\n")


ADD_SHARD = "sh.addShard('shard-rs/localhost:27018').shardAdded"


@needs_scripts
@of_replica_set
def test_a_replica_set_takes_no_shards(container_server: mongottl.RunningServer) -> None:
    assert shell("--port", str(container_server.port), "--eval", ADD_SHARD).returncode == 1


@needs_scripts
@takes_several_servers
def test_a_router_takes_shards() -> None:
    with mongottl.start_server(topology="sharded") as server:
        ended = shell("--port", str(server.port), "--eval", ADD_SHARD)
        assert (ended.returncode, ended.stdout) == (0, "shard-rs\n")


def test_a_container_that_may_write_nowhere_usual_takes_other_folders(tmp_path: Path) -> None:
    environment = {"HOME": "/no/such/home", "XDG_CACHE_HOME": str(tmp_path)}
    container.use_folders_that_can_be_written(environment)
    assert environment["XDG_CACHE_HOME"] == str(tmp_path)
    environment["XDG_CACHE_HOME"] = "/no/such/folder"
    container.use_folders_that_can_be_written(environment)
    assert environment["XDG_CACHE_HOME"] in ("/tmp", "/dev/shm")


@needs_scripts
def test_the_shell_logs_in(tmp_path: Path) -> None:
    with mongottl.start_server(auth=True, user="root", password="it's secret") as server:
        login = ("--username", "root", "--password", "it's secret")
        ended = shell("--port", str(server.port), *login, "--eval", "db.c.insertOne({}).insertedCount")
        assert (ended.returncode, ended.stdout) == (0, "1\n")
        ended = shell("--port", str(server.port), "--username", "root", "--password", "x", "--eval", "db.c.find()")
        assert ended.returncode == 1
        # Also where no command is sent.
        ended = shell("--port", str(server.port), "--username", "root", "--password", "x", "--eval", "quit(0)")
        assert ended.returncode == 1
        assert shell("--nodb", "--port", "1", "--eval", "quit(7)").returncode == 7
        with Client(server.uri) as client:
            assert client.test.c.count_documents({}) == 1


def test_the_shell_needs_something_to_evaluate() -> None:
    assert shell("--port", "1").returncode == 2
    assert shell("a", "b", "--eval", "1").returncode == 2
    assert shell("/no/such/file.js").returncode == 1
