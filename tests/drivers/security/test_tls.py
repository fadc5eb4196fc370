"""TLS over real sockets: certificates from files and made by the server, client certificates, and clients that do not
speak the protocol of the port."""

import asyncio
import json
import re
import socket
import ssl
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
import trustme
from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError

import mongottl
from mongottl.server import server as server_module
from tests.drivers.process.test_process import Process
from tests.on_nodes import own_fail_points, own_log
from tests.waiting import until

Client = pymongo.MongoClient[dict[str, Any]]


class Files:
    """PEM files of an authority, a server's certificate and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        self.server = str(folder / "server.pem")
        self.key = str(folder / "key.pem")
        self.client = str(folder / "client.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.server)
        issued.private_key_pem.write_to_path(self.key)
        client = self.authority.issue_cert("ann@example.org", common_name="ann", organization_name="Shop")
        client.private_key_and_cert_chain_pem.write_to_path(self.client)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(files: Files) -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(tls_cert=files.server, tls_key=files.key) as server:
        yield server


def test_documents_of_every_size_go_both_ways(secure: mongottl.RunningServer, files: Files) -> None:
    with Client(secure.uri, tlsCAFile=files.ca) as client:
        documents = [{"_id": size, "text": "x" * size} for size in (0, 1000, 16_384, 70_000, 2_000_000)]
        client.shop.sizes.insert_many(documents)
        assert list(client.shop.sizes.find().sort("_id")) == documents
        many = [{"_id": number, "text": "y" * 200} for number in range(5000)]
        client.shop.many.insert_many(many)
        assert list(client.shop.many.find(batch_size=700)) == many


@pytest.mark.slow
def test_messages_of_48_megabytes(secure: mongottl.RunningServer, files: Files) -> None:
    with Client(secure.uri, tlsCAFile=files.ca) as client:
        documents = [{"_id": number, "text": "x" * 15_900_000} for number in range(3)]
        client.shop.large.insert_many(documents)
        assert list(client.shop.large.find()) == documents
        client.shop.large.drop()


def test_others_are_answered_while_a_client_waits(secure: mongottl.RunningServer, files: Files) -> None:
    """An idle connection waits in the poller; a getMore that waits for documents ends when its client leaves."""
    with Client(secure.uri, tlsCAFile=files.ca) as client:
        client.shop.create_collection("tail", capped=True, size=100_000)
        client.shop.tail.insert_one({"_id": 1})
        cursor = client.shop.tail.find(cursor_type=pymongo.CursorType.TAILABLE_AWAIT)
        cursor.max_await_time_ms(3_600_000)
        assert cursor.next() == {"_id": 1}
        writer = threading.Timer(0.05, client.shop.tail.insert_one, [{"_id": 2}])
        writer.start()
        assert cursor.next() == {"_id": 2}
        writer.join()
        cursor.close()


def test_asyncio_over_tls(secure: mongottl.RunningServer, files: Files) -> None:
    async def run() -> None:
        async with pymongo.AsyncMongoClient[dict[str, Any]](secure.uri, tlsCAFile=files.ca) as client:
            await asyncio.gather(*(client.shop.asynchronous.insert_one({"_id": number}) for number in range(50)))
            assert await client.shop.asynchronous.count_documents({}) == 50

    asyncio.run(run())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_versions(secure: mongottl.RunningServer, files: Files, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=files.ca)
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", secure.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        assert tls.version() == version.name.replace("v1_", "v1.")


def test_older_versions_are_refused(secure: mongottl.RunningServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", secure.port)) as plain, pytest.raises(OSError):
        context.wrap_socket(plain)


def ping(uri: str, **options: Any) -> None:
    with Client(uri, **options) as client:
        client.admin.command("ping")


def fail_to_connect(uri: str, **options: Any) -> None:
    """Returns when the client has failed to connect, and finds no server; behind a balancer it looks for none."""
    with Client(uri, serverSelectionTimeoutMS=100, **options) as client:
        is_balanced = "loadBalanced=true" in uri
        if not is_balanced:
            until(lambda: any(server.error for server in client.topology_description.server_descriptions().values()))
        with pytest.raises(AutoReconnect if is_balanced else ServerSelectionTimeoutError):
            client.admin.command("ping")


def test_client_certificates(files: Files, tmp_path: Path) -> None:
    stranger = trustme.CA().issue_cert("eve@example.org")
    foreign = str(tmp_path / "foreign.pem")
    stranger.private_key_and_cert_chain_pem.write_to_path(foreign)
    settings: dict[str, Any] = {"tls_cert": files.server, "tls_key": files.key, "tls_ca": files.ca}
    with mongottl.start_server(**settings) as server:
        ping(server.uri, tlsCertificateKeyFile=files.client)
        fail_to_connect(server.uri)
        fail_to_connect(server.uri, tlsCertificateKeyFile=foreign)
    with mongottl.start_server(tls_allow_connections_without_certificates=True, **settings) as server:
        ping(server.uri)
        ping(server.uri, tlsCertificateKeyFile=files.client)
        fail_to_connect(server.uri, tlsCertificateKeyFile=foreign)


def test_a_certificate_made_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ca & che"))
    uris = []
    for _ in range(2):
        with mongottl.start_server(tls_self_signed=True) as server:
            ping(server.uri)
            uris.append(server.uri.partition("?")[2])
    assert uris[0] == uris[1], "the certificate is kept"
    [key] = (tmp_path / "ca & che").rglob("server.pem")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    [ca] = (tmp_path / "ca & che").rglob("ca.pem")
    assert "PRIVATE" not in ca.read_text()


def test_a_certificate_beside_the_data(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost"):
        with mongottl.start_server(tls_self_signed=True, data_dir=str(tmp_path), host=host) as server:
            assert f"tlsCAFile={tmp_path}/tls/ca.pem" in server.uri
            ping(server.uri)


@pytest.mark.parametrize("host", ["*", "::", "0.0.0.0"])
def test_a_certificate_of_a_server_that_listens_on_all_addresses(tmp_path: Path, host: str) -> None:
    with mongottl.start_server(tls_self_signed=True, data_dir=str(tmp_path), host=host) as server:
        ping(server.uri)


def test_a_certificate_on_a_machine_whose_name_no_certificate_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("build_agent_1", "x" * 64, "ci--7.example", "agent-")):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        with mongottl.start_server(tls_self_signed=True, data_dir=str(tmp_path / str(number))) as server:
            ping(server.uri)
    wanted = "cannot make a certificate for .*, my_db: .*'my_db' not allowed"
    with pytest.raises(OSError, match=wanted):
        mongottl.start_server(tls_self_signed=True, data_dir=str(tmp_path / "other"), advertise_host="my_db:27017")


def test_files_that_cannot_be_used(files: Files, tmp_path: Path) -> None:
    """The error names the file that is to blame."""
    empty = tmp_path / "empty"
    empty.touch()
    nothing = str(tmp_path / "nothing.pem")
    for settings, text in [
        ({"tls_cert": nothing}, f"cannot use the certificate {nothing}: No such file"),
        ({"tls_cert": str(tmp_path)}, f"cannot use the certificate {tmp_path}: Is a directory"),
        ({"tls_cert": files.ca, "tls_key": nothing}, f"cannot use the key {nothing}: No such file"),
        ({"tls_cert": str(empty)}, f"cannot use the certificate {empty}: it is no certificate in PEM form"),
        ({"tls_cert": files.key}, f"cannot use the certificate {files.key}: it is no certificate in PEM form"),
        ({"tls_cert": files.ca}, f"cannot use the certificate {files.ca}: its key is missing"),
        (
            {"tls_cert": files.ca, "tls_key": str(empty)},
            f"cannot use the certificate {files.ca}: {empty} is no key in PEM form",
        ),
        ({"tls_cert": files.server, "tls_key": files.key, "tls_ca": nothing}, f"authority {nothing}: No such file"),
    ]:
        with pytest.raises(OSError, match=re.escape(text)):
            mongottl.start_server(**settings)  # type: ignore[arg-type]


def test_a_key_that_does_not_belong_to_the_certificate(files: Files) -> None:
    with pytest.raises(OSError, match="key"), mongottl.start_server(tls_cert=files.server, tls_key=files.client):
        pass


def test_the_first_line_and_the_log(tmp_path: Path) -> None:
    """The URI on the first line works; clients that do not trust it, or speak no TLS, find a line in the log."""
    log = tmp_path / "log"
    process = Process(
        log, "--port", "0", "--tls-self-signed", "--log-format", "json", "--data-dir", str(tmp_path / "d")
    )
    try:
        ping(process.uri)
        fail_to_connect(process.uri.partition("?")[0])
        fail_to_connect(f"mongodb://127.0.0.1:{process.port}/?tls=true")
        process.stop()
    finally:
        process.kill()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    reasons = {entry["attr"]["reason"] for entry in entries if entry["msg"] == "TLS handshake failed"}
    assert "the client does not speak TLS; this port takes only TLS (tls=true in the URI)" in reasons
    assert "the client does not trust the certificate authority of the server's certificate" in reasons


def network_warnings(secure: mongottl.RunningServer, files: Files) -> list[dict[str, Any]]:
    with Client(secure.uri, tlsCAFile=files.ca) as client:
        lines = [json.loads(line) for line in client.admin.command("getLog", "global")["log"]]
    return [line for line in lines if line["msg"].startswith("TLS ")]


@own_log
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("farewell", ["closes", "says so", "resets"])
def test_a_client_that_distrusts_the_certificate_after_the_handshake(
    files: Files, version: ssl.TLSVersion, farewell: str
) -> None:
    """With TLS 1.3 .NET's driver ends the handshake, looks at the certificate, and closes the connection."""
    context = ssl.create_default_context(cafile=files.ca)
    context.minimum_version = context.maximum_version = version
    with mongottl.start_server(tls_cert=files.server, tls_key=files.key, log_format="json") as secure:
        assert network_warnings(secure, files) == []
        # From another machine than those whose clients speak; a client of these may leave as it likes.
        for address in ("127.0.0.2",) if farewell == "resets" else ("127.0.0.2", "127.0.0.1"):
            with socket.create_connection(("127.0.0.1", secure.port), source_address=(address, 0)) as plain:
                if farewell == "resets":
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with context.wrap_socket(plain, server_hostname="localhost") as tls:
                    if farewell == "says so":
                        with suppress(OSError):
                            tls.unwrap()
        until(lambda: len(network_warnings(secure, files)) == 1, "the log says nothing")
        [line] = network_warnings(secure, files)
        assert line["s"] == "W"
        assert line["attr"]["remote"].startswith("127.0.0.2:")
        if line["msg"] == "TLS handshake failed":
            # The reset has overtaken the end of the client's handshake.
            assert farewell == "resets"
            assert line["attr"]["reason"] == "the client has disconnected during the handshake"
        else:
            assert "do not trust the server's certificate" in line["attr"]["reason"]


@own_log
def test_an_alert_after_the_handshake_is_in_the_log(files: Files) -> None:
    """A client of TLS 1.3 sends its alert when the server's handshake may be over."""
    with mongottl.start_server(tls_cert=files.server, tls_key=files.key, log_format="json") as secure:
        for _ in range(5):
            fail_to_connect(f"mongodb://127.0.0.1:{secure.port}/?tls=true")
        with Client(secure.uri, tlsCAFile=files.ca) as client:
            lines = [json.loads(line) for line in client.admin.command("getLog", "global")["log"]]
    reasons = {line["attr"]["reason"] for line in lines if line["msg"].startswith("TLS ")}
    assert reasons == {"the client does not trust the certificate authority of the server's certificate"}


def test_a_tls_client_at_a_plain_port(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = Process(log, "--port", "0")
    try:
        fail_to_connect(f"mongodb://127.0.0.1:{process.port}/?tls=true")
        process.stop()
    finally:
        process.kill()
    assert (
        "this looks like a TLS handshake, but the server was started without TLS: leave tls=true or ssl=true out"
        in log.read_text()
    )


def test_a_handshake_has_a_time_limit(secure: mongottl.RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, where the limit is short."""
    program = (
        "import socket, mongottl, mongottl.server.connection.tls as connection\n"
        "connection.HANDSHAKE_S = 0.05\n"
        "with mongottl.start_server(tls_self_signed=True) as server:\n"
        "    with socket.create_connection(('127.0.0.1', server.port), timeout=120) as client:\n"
        "        assert client.recv(1) == b''\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True)


@own_fail_points
def test_running_command_is_answered_over_tls_when_the_server_stops(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's stream is shut for reading, which TLS takes for an attack if it is told."""
    monkeypatch.setattr(server_module, "GRACE_S", 3600.0)
    answers: list[dict[str, Any]] = []
    fail_point = {"failCommands": ["count"], "blockConnection": True, "blockTimeMS": 400}
    with ExitStack() as stack:
        secure = stack.enter_context(mongottl.start_server(tls_cert=files.server, tls_key=files.key))
        client = stack.enter_context(Client(secure.uri, tlsCAFile=files.ca))
        client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=fail_point)
        waiting = threading.Thread(target=lambda: answers.append(client.shop.command("count", "orders")))
        waiting.start()
        until(lambda: client.admin.command({"currentOp": 1, "command.count": "orders"})["inprog"])
        stack.pop_all().close()
        waiting.join()
    assert answers[0]["n"] == 0
