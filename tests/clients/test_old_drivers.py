"""Drivers of years past, by name and version: what applications that run against Azure still use.

Each is a program in tests/clients/old that is given the URIs of nine servers, and does the same at each: it connects,
asks `buildInfo`, writes, reads with batches, closes a cursor, updates, aggregates, meets a duplicate key, and drops.
What it sends by OP_QUERY and what by OP_MSG, and how it logs in, depends on the driver and on the announced version.
"""

import base64
import hashlib
import hmac
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import bson
import pytest

import mongottl
from tests.clients.conftest import HERE, LIMIT_S, Installed
from tests.drivers.wire_client import WireClient
from tests.waiting import PATIENCE_S, until

Documents = dict[str, Any]

OLD = HERE / "old"
PARTS = "connect insert find close update aggregate duplicate drop"
KEY = "c2VjcmV0S2V5T2ZBbkFjY291bnQ9PQ=="
VERSIONS = {"plain": ("3.6", "4.2", "8.2"), "auth": ("3.6", "4.2", "8.2"), "account": ("3.6", "4.2", "7.0")}
# As in the portal's connection strings: accounts have no retryable writes by default.
NO_RETRIES = "&retryWrites=false"
# The versions that take any command by OP_QUERY.
WITH_OP_QUERY = ("3.6", "4.2")
# How drivers end that speak by OP_QUERY alone, where the server takes only the first commands so, as mongod since 5.1.
REFUSED = "connect: Unsupported OP_QUERY command: insert. The client driver may require an upgrade."
UNREACHABLE = ": no reachable servers"


class Target(NamedTuple):
    """A server that drivers are tried on. kind: a key of VERSIONS."""

    kind: str
    version: str
    server: mongottl.RunningServer

    @property
    def uri(self) -> str:
        at = f"127.0.0.1:{self.server.port}"
        if self.kind == "account":
            return f"mongodb://shop:{quote(KEY, safe='')}@{at}/?replicaSet=globaldb{NO_RETRIES}"
        return f"mongodb://ann:secret@{at}/?authSource=admin" if self.kind == "auth" else f"mongodb://{at}/"


@pytest.fixture(scope="module")
def targets() -> Iterator[list[Target]]:
    settings: dict[str, Documents] = {
        "plain": {},
        "auth": {"auth": True, "user": "ann", "password": "secret"},
        "account": {"dialect": "cosmos", "cosmos_account": "shop", "cosmos_key": KEY},
    }
    with ExitStack() as stack:
        yield [
            Target(kind, version, stack.enter_context(mongottl.start_server(server_version=version, **settings[kind])))
            for kind, versions in VERSIONS.items()
            for version in versions
        ]


def outcomes(
    targets: list[Target], command: list[str | Path], collection: str, without: str = "\n", **environment: str
) -> dict[str, str]:
    """What a program printed for each server, by kind and version. without: what is left out of the URIs."""
    ended = subprocess.run(
        [*command, collection, *(target.uri.replace(without, "") for target in targets)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **environment},
    )
    lines = ended.stdout.splitlines()
    assert (ended.returncode, len(lines)) == (0, len(targets)), ended.stdout + ended.stderr
    return {f"{target.kind} {target.version}": line for target, line in zip(targets, lines, strict=True)}


def check(targets: list[Target], told: dict[str, str], by_op_query: str = "") -> None:
    """Every server works, or, for a driver that speaks by OP_QUERY alone, every one that takes that; no cursor is left.

    by_op_query: how such a driver ends at the others.
    """
    expected = {name: f"{PARTS}: " if not by_op_query or name.endswith(WITH_OP_QUERY) else by_op_query for name in told}
    assert told == expected
    for target in targets:
        if target.kind == "plain":
            wire = WireClient(target.server.uri)
            until(partial(has_no_cursor, wire), f"a cursor was left open in {target.version}")
            assert wire.command({"serverStatus": 1}, "admin")["asserts"]["internal"] == 0
            wire.close()


def has_no_cursor(wire: WireClient) -> bool:
    total: int = wire.command({"serverStatus": 1}, "admin")["metrics"]["cursor"]["open"]["total"]
    return total == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "by_op_query"),
    [("2.2", REFUSED), ("3.1", REFUSED), ("3.7", ""), ("4.17", "")],
    ids=["2.2", "3.1", "3.7", "4.17"],
)
def test_node(installed: Installed, targets: list[Target], version: str, by_op_query: str) -> None:
    modules = str(installed("old/node") / "node_modules")
    program: list[str | Path] = ["node", OLD / "node" / "client.js", f"mongodb-{version}"]
    check(targets, outcomes(targets, program, f"node_{version}", NODE_PATH=modules), by_op_query)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.6.4", "3.12.14"])
def test_java(installed: Installed, targets: list[Target], version: str) -> None:
    folder = installed("old/java")
    path = os.pathsep.join([str(folder / "jars" / f"mongo-java-driver-{version}.jar"), str(folder / "classes")])
    check(targets, outcomes(targets, ["java", "-cp", path, "Client"], f"java_{version}"))


@pytest.mark.slow
def test_pymongo_3_11(installed: Installed, targets: list[Target]) -> None:
    packages = str(installed("old/python") / "packages")
    program: list[str | Path] = ["python3", OLD / "python" / "old_pymongo.py"]
    check(targets, outcomes(targets, program, "pymongo", PYTHONPATH=packages))


@pytest.mark.slow
def test_mgo(installed: Installed, targets: list[Target]) -> None:
    # It refuses options that it does not know.
    check(targets, outcomes(targets, [installed("old/mgo") / "client"], "mgo", NO_RETRIES), UNREACHABLE)


@pytest.mark.slow
def test_c_1_23(installed: Installed, targets: list[Target]) -> None:
    check(targets, outcomes(targets, [installed("old/c") / "client"], "c"))


# Drivers of Debian's packages: the interpreter, what finds out whether the driver is there, its package, the program.
PACKAGED = {
    "php-mongodb 1.15": ("php", "extension_loaded('mongodb') or exit(1);", "-r", "php-mongodb", "client.php"),
    "libmongodb-perl 2.2": ("perl", "use MongoDB;", "-e", "libmongodb-perl", "client.pl"),
    "ruby-mongo 2.5": ("ruby", "require 'mongo'", "-e", "ruby-mongo", "client.rb"),
}


@pytest.mark.slow
@pytest.mark.parametrize("driver", PACKAGED)
def test_drivers_of_debian(targets: list[Target], driver: str) -> None:
    interpreter, probe, option, package, program = PACKAGED[driver]
    if shutil.which(interpreter) is None:
        pytest.skip(f"{interpreter} is not installed")
    if subprocess.run([interpreter, option, probe], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{interpreter} has no driver: apt-get install {package}")
    check(targets, outcomes(targets, [interpreter, OLD / program], interpreter))


# What the C# driver 2.x and 3.x sends, whose toolchain tests do not install: hello by OP_QUERY with
# speculativeAuthenticate and skipEmptyExchange, then saslContinue by OP_QUERY, and only then OP_MSG.


class CSharp:
    """The bytes of the C# driver on one connection, sent one at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request_id = 0

    def _exchange(self, opcode: int, contents: bytes) -> tuple[int, bytes]:
        """Sends a message; opcode and contents of its reply."""
        self.request_id += 1
        for byte in struct.pack("<iiii", 16 + len(contents), self.request_id, 0, opcode) + contents:
            self.socket.sendall(bytes([byte]))
        length, _, response_to, reply_opcode = struct.unpack("<iiii", self._receive(16))
        assert response_to == self.request_id
        return reply_opcode, self._receive(length - 16)

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            assert part, "the server has closed the connection"
            received += part
        return received

    def query(self, command: Documents, database: str = "admin") -> Documents:
        """A command by OP_QUERY: SlaveOk, skip 0, numberToReturn -1."""
        contents = struct.pack("<i", 4) + f"{database}.$cmd".encode() + b"\0" + struct.pack("<ii", 0, -1)
        opcode, reply = self._exchange(2004, contents + bson.encode(command))
        flags, cursor_id, starting_from, count = struct.unpack_from("<iqii", reply)
        assert (opcode, flags & 2, cursor_id, starting_from, count) == (1, 0, 0, 0, 1)
        return bson.decode(reply[20:])

    def message(self, command: Documents, database: str) -> Documents:
        """A command by OP_MSG."""
        opcode, reply = self._exchange(2013, bytes(5) + bson.encode({**command, "$db": database}))
        assert (opcode, reply[:5]) == (2013, bytes(5))
        return bson.decode(reply[5:])

    def hello(self, name: str, user: str, first: bytes, mechanism: str) -> Documents:
        return self.query(
            {
                name: 1,
                "helloOk": True,
                "client": {
                    "driver": {"name": "mongo-csharp-driver", "version": "2.30.0"},
                    "os": {"type": "Linux", "name": "Debian GNU/Linux 12", "architecture": "x86_64", "version": "12"},
                    "platform": ".NET 8.0.11",
                },
                "compression": [],
                "saslSupportedMechs": f"admin.{user}",
                "speculativeAuthenticate": {
                    "saslStart": 1,
                    "mechanism": mechanism,
                    "payload": first,
                    "options": {"skipEmptyExchange": True},
                    "db": "admin",
                },
            }
        )


def proof_of(first: bytes, answer: bytes, user: str, password: str, mechanism: str) -> tuple[bytes, bytes]:
    """The client's final message of SCRAM, and the server's that must answer it."""
    name = "sha256" if mechanism == "SCRAM-SHA-256" else "sha1"
    secret = password if name == "sha256" else hashlib.md5(f"{user}:mongo:{password}".encode()).hexdigest()
    nonce, salt, iterations = (part.partition("=")[2] for part in answer.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, secret.encode(), base64.b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = f"c=biws,r={nonce}".encode()
    signed = first[3:] + b"," + answer + b"," + without_proof
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    server = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    return without_proof + b",p=" + proof, b"v=" + base64.b64encode(server)


@pytest.fixture
def csharp() -> Iterator[Callable[[Target], CSharp]]:
    opened: list[CSharp] = []

    def connect(target: Target) -> CSharp:
        opened.append(CSharp(target.server.port))
        return opened[-1]

    yield connect
    for client in opened:
        client.socket.close()


def credentials(target: Target) -> tuple[str, str]:
    return ("shop", KEY) if target.kind == "account" else ("ann", "secret")


@pytest.mark.parametrize("name", ["isMaster", "hello"])
def test_csharp(targets: list[Target], csharp: Callable[[Target], CSharp], name: str) -> None:
    for target in targets:
        client = csharp(target)
        user, password = credentials(target)
        first = f"n,,n={user},r={base64.b64encode(os.urandom(24)).decode()}".encode()
        mechanism = "SCRAM-SHA-256"
        described = client.hello(name, user, first, mechanism)
        assert described["ok"] == 1.0
        if target.kind != "plain":
            begun = described.get("speculativeAuthenticate")
            assert (begun is None) == (target.version in WITH_OP_QUERY), target
            assert ("saslSupportedMechs" in described) == (target.version != "3.6"), target
            if begun is None:
                mechanism = "SCRAM-SHA-1"
                start = {"saslStart": 1, "mechanism": mechanism, "payload": first}
                begun = client.query({**start, "options": {"skipEmptyExchange": True}})
            final, expected = proof_of(first, begun["payload"], user, password, mechanism)
            conversation = begun["conversationId"]
            ended = client.query({"saslContinue": 1, "conversationId": conversation, "payload": final})
            assert (ended["done"], ended["payload"], ended["ok"]) == (True, expected, 1.0), target
        else:
            assert "speculativeAuthenticate" not in described
            assert "saslSupportedMechs" not in described
        info = client.query({"buildInfo": 1})
        assert info["version"].startswith(target.version)
        client.message({"insert": "csharp", "documents": [{"_id": 1}]}, "shop")
        assert client.message({"find": "csharp"}, "shop")["cursor"]["firstBatch"] == [{"_id": 1}], target
        client.message({"drop": "csharp"}, "shop")


def test_csharp_with_a_password_at_a_server_without_users(
    targets: list[Target], csharp: Callable[[Target], CSharp]
) -> None:
    """It is not told of any mechanism, so it begins with SCRAM-SHA-1, and shows the text of the error."""
    for target in targets:
        if target.kind != "plain":
            continue
        client = csharp(target)
        first = b"n,,n=ann,r=abcdefghijkl"
        described = client.hello("isMaster", "ann", first, "SCRAM-SHA-256")
        assert not {"speculativeAuthenticate", "saslSupportedMechs"} & set(described)
        begun = client.query({"saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": first})
        final, _ = proof_of(first, begun["payload"], "ann", "secret", "SCRAM-SHA-1")
        failed = client.query({"saslContinue": 1, "conversationId": begun["conversationId"], "payload": final})
        assert (failed["ok"], failed["code"]) == (0.0, 18)
        assert "This server has no users" in failed["errmsg"]
