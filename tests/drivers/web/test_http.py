"""The server's HTTP port over real sockets: who may ask, what is refused, and its limits."""

import http.client
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
import pytest

import mongottl
from mongottl.server.web import http as web_http
from tests.children import ended_after
from tests.drivers.process.test_process import COMMAND
from tests.drivers.security.test_tls import Files
from tests.drivers.web.requests import Reply, ask, connect
from tests.waiting import PATIENCE_S

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def shown() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(web_port=0) as server:
        yield server


def test_there_is_no_page_unless_it_is_asked_for() -> None:
    with mongottl.start_server() as server:
        assert server.web_url is None


def test_health_and_readiness(shown: mongottl.RunningServer) -> None:
    for path in ("/healthz", "/readyz"):
        reply = ask(shown, path)
        assert (reply.status, reply.body, reply.headers["content-type"]) == (200, "ok\n", "text/plain; charset=utf-8")


def test_every_response_forbids_what_a_page_could_be_abused_for(shown: mongottl.RunningServer) -> None:
    for path in ("/healthz", "/", "/nothing"):
        headers = ask(shown, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_a_connection_serves_many_requests(shown: mongottl.RunningServer) -> None:
    with closing(connect(shown)) as connection:
        for method in ("GET", "HEAD", "GET"):
            connection.request(method, "/healthz")
            reply = Reply(connection.getresponse())
            assert reply.status == 200 and reply.headers["content-length"] == "3"
            assert reply.body == ("" if method == "HEAD" else "ok\n")


def test_requests_that_are_sent_together_are_answered_in_order(shown: mongottl.RunningServer) -> None:
    with closing(connect(shown)) as connection:
        connection.connect()
        connection.sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        connection.sock.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with connection.sock.makefile("rb") as file:
            received = file.read()
    assert received.count(b"HTTP/1.1 200 ") == 2 and received.index(b"404") > received.rindex(b" 200 ")


def test_a_request_may_name_its_host_in_its_target(shown: mongottl.RunningServer) -> None:
    form = "GET http://{}/healthz?x=1 HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
    assert talk(shown, form.format("localhost:5", "example.org").encode()).startswith(b"HTTP/1.1 200 ")
    assert talk(shown, form.format("example.org", "localhost:5").encode()).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/healthz", 405)])
def test_other_paths_and_methods_are_refused(
    shown: mongottl.RunningServer, method: str, path: str, status: int
) -> None:
    assert ask(shown, path, method=method).status == status


# Who may ask


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:1", "127.0.0.1", "127.0.0.1:8080", "[::1]:9", "10.1.2.3", "mongottl:8081", "a.localhost"],
)
def test_hosts_that_nobody_else_can_own(shown: mongottl.RunningServer, host: str) -> None:
    assert ask(shown, "/healthz", {"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "example.org:80",
        "127.0.0.1.example.org",
        "localhost.example.org",
        "",
        # No names, though they begin like ours.
        "localhost:80@example.org",
        "user@localhost",
        "localhost/x",
        "localhost:x",
        "[::1",
        "[::1]x",
        "::1",
        "1:2:3",
        "caf\u00e9",
    ],
)
def test_names_that_others_can_own_are_refused(shown: mongottl.RunningServer, host: str) -> None:
    reply = ask(shown, "/healthz", {"Host": host})
    assert reply.status == 421 and "--advertise-host" in reply.body


def test_the_advertised_name_is_ours() -> None:
    with mongottl.start_server(web_port=0, advertise_host="db.example.org:27017") as server:
        assert ask(server, "/healthz", {"Host": "db.example.org:8081"}).status == 200
        assert ask(server, "/healthz", {"Host": "web.example.org:8081"}).status == 421


@pytest.mark.parametrize("advertised", ["db.example.org:27017", "bücher.example:27017"])
def test_invalid_host_headers_get_status_421(advertised: str) -> None:
    """Browsers take names with such characters, and whoever owns the domain can let them resolve to this machine."""
    with mongottl.start_server(web_port=0, advertise_host=advertised) as server:
        for host in ("x!.example.org", "x~y", "localhost:1:2", ""):
            assert ask(server, "/healthz", {"Host": host}).status == 421, host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost:5"}, 200),
        ({"Origin": "http://localhost:6"}, 403),
        ({"Origin": "https://localhost:5"}, 403),
        ({"Origin": "https://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
)
def test_pages_of_other_origins_are_refused(
    shown: mongottl.RunningServer, headers: dict[str, str], status: int
) -> None:
    assert ask(shown, "/healthz", {"Host": "localhost:5", **headers}).status == status


# Limits


def talk(server: mongottl.RunningServer, data: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    with closing(connect(server)) as connection:
        connection.connect()
        connection.sock.sendall(data)
        with connection.sock.makefile("rb") as file:
            return file.read()


def test_long_heads_and_bodies_are_refused(shown: mongottl.RunningServer) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * web_http.MAX_HEAD_BYTES
    assert talk(shown, head).startswith(b"HTTP/1.1 431 ")
    announced = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    assert talk(shown, announced).startswith(b"HTTP/1.1 413 ")
    chunk = b"%x\r\n%b\r\n" % (web_http.MAX_BODY_BYTES + 1, b"x" * (web_http.MAX_BODY_BYTES + 1))
    chunked = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk
    assert talk(shown, chunked).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_sends_a_large_body_gets_to_read_the_refusal(shown: mongottl.RunningServer) -> None:
    for body in (b"x" * 10_000_000, iter([b"x" * 100_000] * 100)):
        with closing(connect(shown)) as connection:
            connection.request("POST", "/clock", body)  # reads nothing before all is sent
            reply = Reply(connection.getresponse())
            assert reply.status == 413 and reply.headers["connection"] == "close"


def test_of_a_refused_request_no_more_is_read_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, shown: mongottl.RunningServer
) -> None:
    monkeypatch.setattr(web_http, "MAX_DROPPED_BYTES", 100_000)
    with closing(connect(shown)) as connection, pytest.raises(ConnectionError):
        connection.request("POST", "/clock", b"x" * 50_000_000)


def test_a_refused_client_that_sends_no_more_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, shown: mongottl.RunningServer
) -> None:
    monkeypatch.setattr(web_http, "DROP_S", 0.05)
    with closing(connect(shown)) as connection:
        connection.connect()
        connection.sock.sendall(b"POST /clock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        deadline = time.monotonic() + PATIENCE_S
        with suppress(ConnectionError):
            while time.monotonic() < deadline:
                connection.sock.sendall(b"x")
        assert time.monotonic() < deadline


def test_a_body_with_two_lengths_is_refused_with_what_follows_it(shown: mongottl.RunningServer) -> None:
    ask_twice = (
        b"POST /clock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    answers = talk(shown, ask_twice)
    assert answers.startswith(b"HTTP/1.1 400 ") and answers.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_invalid_http_requests_get_status_400(shown: mongottl.RunningServer, data: bytes) -> None:
    assert talk(shown, data).startswith(b"HTTP/1.1 400 ")


def test_slow_and_silent_clients_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    with mongottl.start_server(web_port=0) as server:
        with monkeypatch.context() as patch:
            patch.setattr(web_http, "REQUEST_S", 0.05)
            assert talk(server, b"GET /healthz HT").startswith(b"HTTP/1.1 408 ")
        monkeypatch.setattr(web_http, "IDLE_S", 0.1)
        assert talk(server, b"") == b""


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HT", b"POST /clock HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"]
)
def test_clients_that_send_no_whole_request_keep_out_nobody(sent: bytes) -> None:
    with mongottl.start_server(web_port=0) as server, ExitStack() as stack:
        waiting = [stack.enter_context(closing(connect(server))) for _ in range(2 * web_http.MAX_CONNECTIONS)]
        for connection in waiting:
            connection.connect()
            connection.sock.sendall(sent)
        for _ in range(5):
            assert ask(server, "/healthz").status == 200
        # The one that has waited longest had to go.
        assert waiting[0].sock.recv(1) == b""


def test_a_connection_in_use_is_kept_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_http, "MAX_CONNECTIONS", 3)
    with mongottl.start_server(web_port=0) as server, ExitStack() as stack:
        used = stack.enter_context(closing(connect(server)))
        for _ in range(5):
            stack.enter_context(closing(connect(server))).connect()
            used.request("GET", "/healthz")
            assert Reply(used.getresponse()).status == 200


def test_connections_beyond_the_limit_are_refused_while_all_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_http, "MAX_CONNECTIONS", 3)
    with mongottl.start_server(web_port=0) as server, ExitStack() as stack:
        looking = [stack.enter_context(closing(connect(server))) for _ in range(3)]
        for connection in looking:
            connection.request("GET", "/live")
            assert connection.getresponse().status == 200
        assert talk(server, b"").startswith(b"HTTP/1.1 503 ")
        looking.pop().close()
        received = b""
        deadline = time.monotonic() + PATIENCE_S
        while not received.startswith(b"HTTP/1.1 200 ") and time.monotonic() < deadline:
            with suppress(ConnectionError):  # refused, with the request unread
                received = talk(server, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 200 ")


def test_clients_that_disconnect_at_any_point_harm_nobody(shown: mongottl.RunningServer) -> None:
    request = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    for length in range(0, len(request) + 1, 7):
        with closing(connect(shown)) as connection:
            connection.connect()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not closed
            connection.sock.sendall(request[:length])
    assert ask(shown, "/healthz").status == 200


# Start and stop


def test_the_page_stops_with_the_server() -> None:
    with mongottl.start_server(web_port=0) as server:
        connection = connect(server)
        connection.request("GET", "/healthz")
        assert Reply(connection.getresponse()).status == 200
    with pytest.raises(OSError):
        connection.request("GET", "/healthz")
        connection.getresponse()
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/healthz")


def test_a_taken_port_is_refused_at_the_start(shown: mongottl.RunningServer) -> None:
    assert shown.web_url is not None
    port = urlsplit(shown.web_url).port
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"), mongottl.start_server(web_port=port):
        pass


def test_web_port_without_its_library_names_the_extra_to_install() -> None:
    for library in ("h11", "prometheus_client"):
        code = f"""if True:
            import importlib.util, sys
            find = importlib.util.find_spec
            importlib.util.find_spec = lambda name, *rest: None if name == "{library}" else find(name, *rest)
            from mongottl.cli import main
            sys.exit(main(sys.argv[1:]))
        """
        command = [*COMMAND[:2], "-c", code, "--port", "0", "--web-port", "0"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == 1 and f"--web-port needs {library}: pip install '.[web]'" in ended.stderr


def test_the_command_line_says_where_the_page_is() -> None:
    command = [*COMMAND, "--port", "0", "--web-port", "0"]
    with ended_after(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert first.split()[-1].startswith("mongodb://")
    assert second.split()[-1].startswith("http://127.0.0.1:")


def test_without_the_page_nothing_of_it_is_imported() -> None:
    code = """if True:
        import sys
        import mongottl
        with mongottl.start_server() as server:
            print([name for name in ("h11", "prometheus_client", "mongottl.server.web") if name in sys.modules])
    """
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ended.stdout == "[]\n"


# With users, and with TLS


@pytest.fixture(scope="module")
def guarded() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(web_port=0, auth=True, user="root", password="secret") as server:
        with Client(server.uri) as client:
            create = client.admin.command
            create("createUser", "ann", pwd="pässword:1", roles=["clusterMonitor"])
            create("createUser", "old", pwd="secret", roles=["clusterMonitor"], mechanisms=["SCRAM-SHA-1"])
            create("createUser", "bob", pwd="secret", roles=["readWriteAnyDatabase"])
            create(
                "createUser",
                "far",
                pwd="secret",
                roles=["clusterMonitor"],
                authenticationRestrictions=[{"clientSource": ["10.0.0.0/8"]}],
            )
        yield server


def test_health_needs_no_user(guarded: mongottl.RunningServer) -> None:
    assert [ask(guarded, path).status for path in ("/healthz", "/readyz")] == [200, 200]


def test_the_page_is_served_over_tls_if_the_server_is(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with mongottl.start_server(web_port=0, tls_cert=files.server, tls_key=files.key) as server:
        assert server.web_url is not None and server.web_url.startswith("https://127.0.0.1:")
        address = urlsplit(server.web_url).netloc
        context = ssl.create_default_context(cafile=files.ca)
        with closing(http.client.HTTPSConnection(address, timeout=PATIENCE_S, context=context)) as connection:
            connection.request("GET", "/healthz", headers={"Origin": f"https://{address}"})
            assert Reply(connection.getresponse()).status == 200
        assert talk(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")[:8] != b"HTTP/1.1"
