"""Single addresses of a URI of libpq, and what is shown of it."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from psycopg import pq

from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.opening import open_engine
from mongottl.storage.postgresql.address import Address
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of hosts that are known."""
    known = {"one": ["10.0.0.1"], "two": ["10.0.0.2", "fd00::2"]}

    def look_up(host: str, port: str, **_: Any) -> list[tuple[Any, ...]]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, int(port))) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGTARGETSESSIONATTRS", "PGCONNECT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)


def attempts(uri: str) -> list[dict[str, str]]:
    """The parameters of each attempt, without those by which dead connections are noticed."""
    found = []
    for attempt in Address(uri).attempts():
        parameters = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.parse(attempt) if each.val}
        assert parameters.pop("tcp_user_timeout") == "15000"
        found.append({name: value for name, value in parameters.items() if not name.startswith("keepalives")})
    return found


def test_each_address_of_each_host_is_an_attempt() -> None:
    assert attempts("postgresql://ann@one:1,two:2/store") == [
        {"user": "ann", "dbname": "store", "host": "one", "hostaddr": "10.0.0.1", "port": "1"} | READ_WRITE,
        {"user": "ann", "dbname": "store", "host": "two", "hostaddr": "10.0.0.2", "port": "2"} | READ_WRITE,
        {"user": "ann", "dbname": "store", "host": "two", "hostaddr": "fd00::2", "port": "2"} | READ_WRITE,
    ]


READ_WRITE = {"target_session_attrs": "read-write"}


def test_one_host_is_not_asked_whether_it_can_be_written() -> None:
    assert attempts("postgresql://one/store") == [{"dbname": "store", "host": "one", "hostaddr": "10.0.0.1"}]
    assert "target_session_attrs" not in attempts("host=one port=7")[0]
    assert attempts("host=one,two target_session_attrs=any")[0]["target_session_attrs"] == "any"


def test_folders_of_sockets_and_given_addresses_are_not_looked_up() -> None:
    assert attempts("postgresql:///store?host=/run/x") == [{"dbname": "store", "host": "/run/x"}]
    assert attempts("host=nowhere hostaddr=10.9.9.9")[0]["hostaddr"] == "10.9.9.9"
    assert attempts("service=mine") == [{"service": "mine"}]


def test_variables_of_libpq_count_where_the_uri_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "two,one")
    monkeypatch.setenv("PGPORT", "6543")
    assert [(each["hostaddr"], each["port"]) for each in attempts("dbname=store")] == [
        ("10.0.0.2", "6543"),
        ("fd00::2", "6543"),
        ("10.0.0.1", "6543"),
    ]


def test_hosts_that_are_known_are_tried_though_others_are_not() -> None:
    assert [each["host"] for each in attempts("host=three,one")] == ["one"]
    with pytest.raises(OSError, match="host three is unknown"):
        Address("host=three").attempts()


def look_up_never(monkeypatch: pytest.MonkeyPatch, gone: str) -> threading.Event:
    """Has the name server not answer for a host before the event is set."""
    look_up = socket.getaddrinfo
    answered = threading.Event()

    def look_up_slowly(host: str, port: str, **named: Any) -> list[tuple[Any, ...]]:
        if host == gone:
            answered.wait(PATIENCE_S)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return look_up(host, port, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_slowly)
    return answered


def test_nobody_waits_for_a_name_server_who_knows_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = look_up_never(monkeypatch, "one")
    address = Address("host=one,two connect_timeout=50")
    assert [b"host='two'" in each for each in address.attempts()] == [True, True]
    assert not answered.is_set()
    answered.set()


def test_a_host_has_the_addresses_that_were_found_last_while_no_name_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = Address("host=one,two connect_timeout=50")
    before = address.attempts()
    with monkeypatch.context() as patch:
        answered = look_up_never(patch, "one")
        assert address.attempts() == before
        # Then it says that it cannot say.
        answered.set()
        assert address.attempts() == before


def test_an_unknown_host_has_no_addresses_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("host=one,two")
    address.attempts()
    monkeypatch.setattr(socket, "getaddrinfo", partial(without, "one", socket.getaddrinfo))
    assert [b"host='two'" in each for each in address.attempts()] == [True, True]


def without(gone: str, look_up: Callable[..., Any], host: str, port: str, **named: Any) -> Any:
    return look_up("three" if host == gone else host, port, **named)


def test_a_host_of_which_no_name_server_says_anything_is_unknown_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = look_up_never(monkeypatch, "one")
    with pytest.raises(OSError, match="host one is unknown: no name server has answered"):
        Address("host=one connect_timeout=1").attempts()
    answered.set()


def test_passwords_with_special_characters_arrive() -> None:
    password = "it's \\ a b=c"
    assert attempts("postgresql://ann:it%27s%20%5C%20a%20b%3Dc@one/store")[0]["password"] == password


@pytest.mark.parametrize("uri", ["postgresql://ann:pa%ss@one/x", "nonsense", "postgresql://one/x?colour=red"])
def test_a_wrong_uri_is_refused_without_showing_it(uri: str) -> None:
    with pytest.raises(ValueError, match="the store's URI is not one of PostgreSQL") as caught:
        Address(uri)
    assert "pa" not in str(caught.value).replace("database", "")


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("postgresql://ann:pa%ss@one/x", "the store's URI is not one of PostgreSQL"),
        ("postgresql://one/x?colour=red", "the store's URI is not one of PostgreSQL"),
        ("postgresql://one/x?schema=", "the name of a schema has 1 to 63 bytes, not 0"),
        ("postgresql://one/x?schema=" + "%C3%A4" * 32, "the name of a schema has 1 to 63 bytes, not 64"),
    ],
)
def test_a_store_is_refused_by_the_error_that_a_start_shows_in_one_line(uri: str, error: str) -> None:
    with pytest.raises(DataDirectoryError, match=error):
        open_engine(uri)


def test_wrong_numbers_of_ports_and_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="2 hosts and 3 ports"):
        Address("host=one,two port=1,2,3").attempts()
    with pytest.raises(ValueError, match="2 hosts and 1 addresses"):
        Address("host=one,two hostaddr=10.0.0.1").attempts()


def test_an_address_is_shown_without_user_and_password() -> None:
    assert str(Address("postgresql://ann:secret@one,two:7,8/store".replace(":7,8", ":7"))) == "one:5432,two:7/store"
    assert str(Address("host=/run/x dbname=store password=secret")) == "/run/x/store"


def test_seconds_for_an_attempt_are_those_of_the_uri() -> None:
    assert Address("host=one").attempt_s == 5.0
    assert Address("host=one connect_timeout=2").attempt_s == 2.0
    assert Address("host=one connect_timeout=0").attempt_s == 5.0
