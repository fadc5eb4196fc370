"""TLS above a socket: what is written at one end is read at the other, whatever the sockets split and refuse."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.server.transport.names import Subject, distinguished_name
from mongottl.server.transport.tls import HandshakeError, TlsTransport

AUTHORITY = trustme.CA()
CLIENT = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
AUTHORITY.configure_trust(CLIENT)
SERVER = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
AUTHORITY.issue_cert("localhost").configure_cert(SERVER)


class NarrowSocket:
    """A non-blocking end of a pair of byte streams that takes and gives at most so many bytes at once.

    limits: how many, call by call, and then from the beginning; at 0 the call would block.
    """

    def __init__(self, received: bytearray, sent: bytearray, limits: list[int]) -> None:
        self._received = received
        self._sent = sent
        self._limits = limits
        self._calls = 0

    def _limit(self) -> int:
        limit = self._limits[self._calls % len(self._limits)]
        self._calls += 1
        if limit == 0:
            raise BlockingIOError
        return limit

    def recv(self, size: int) -> bytes:
        if not self._received:
            raise BlockingIOError
        count = min(size, self._limit())
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def send(self, data: bytes) -> int:
        part = data[: self._limit()]
        self._sent += part
        return len(part)


class Client:
    """The client's side of TLS, in memory."""

    def __init__(self) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = CLIENT.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def read(self, received: bytearray) -> bytes:
        self.incoming.write(bytes(received))
        received.clear()
        data = b""
        try:
            while part := self.tls.read(65536):
                data += part
        except ssl.SSLWantReadError:
            pass
        return data


def connected(limits: list[int]) -> tuple[TlsTransport, Client, bytearray, bytearray]:
    """Both ends after the handshake; from client to server, from server to client."""
    to_server, to_client = bytearray(), bytearray()
    narrow = NarrowSocket(to_server, to_client, [65536])
    server = TlsTransport(narrow, SERVER)  # type: ignore[arg-type]
    client = Client()
    shaken = False
    for _ in range(10):
        with suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        to_server += client.outgoing.read()
        if not shaken and to_server:
            shaken = _advance(server, to_server)
        client.incoming.write(bytes(to_client))
        to_client.clear()
        if shaken and client.tls.version():
            break
    assert shaken
    narrow._limits = limits
    return server, client, to_server, to_client


def _advance(server: TlsTransport, to_server: bytearray) -> bool:
    """Continues the handshake as far as the received bytes go; whether it is done."""
    server._incoming.write(bytes(to_server))
    to_server.clear()
    try:
        server._tls.do_handshake()
    except ssl.SSLWantReadError:
        server._take_outgoing()
        return False
    server._take_outgoing()
    return True


LIMITS = st.lists(st.sampled_from([0, 7, 100, 5000]), min_size=1, max_size=6).filter(any)
MESSAGES = st.lists(st.integers(1, 300_000), min_size=1, max_size=3)
FEW = settings(max_examples=25)


@FEW
@given(limits=LIMITS, sizes=MESSAGES)
def test_sent_bytes_arrive_and_are_reported_once(limits: list[int], sizes: list[int]) -> None:
    server, client, _, to_client = connected([limit * 100 for limit in limits])
    for number, size in enumerate(sizes):
        message = bytes([number + 1]) * size
        sent = 0
        arrived = b""
        for _ in range(10_000):
            with suppress(BlockingIOError):
                sent += server.send(memoryview(message)[sent:])
            arrived += client.read(to_client)
            if sent == size:
                break
        assert sent == size
        assert arrived == message


@FEW
@given(limits=LIMITS, sizes=MESSAGES)
def test_no_decrypted_byte_is_left_when_the_socket_is_drained(limits: list[int], sizes: list[int]) -> None:
    server, client, to_server, _ = connected(limits)
    expected = b""
    arrived = b""
    for number, size in enumerate(sizes):
        size = size // 100 + 1
        client.tls.write(bytes([number + 1]) * size)
        expected += bytes([number + 1]) * size
        to_server += client.outgoing.read()
        for turn in range(100_000):
            try:
                if turn % 2:
                    peeked = server.recv(65536, socket.MSG_PEEK)
                    assert peeked
                arrived += server.recv(65536)
            except BlockingIOError:
                if not to_server:
                    break
        assert arrived == expected


def test_the_end_of_the_clients_stream() -> None:
    server, client, to_server, to_client = connected([65536])
    client.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    to_server += client.outgoing.read()
    assert server.recv(65536) == b"last"
    assert server.recv(65536) == b""
    server.close()
    client.incoming.write(bytes(to_client))
    client.tls.unwrap()  # an SSLError without the server's close_notify


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xdd\x07\x00\x00", "does not speak TLS"),
        (b"\x16\x03\x01\x00\x04nope", "handshake|record|length|unexpected|message"),
        (b"\x16\x03\x01", "disconnected"),
    ],
)
def test_handshakes_that_fail_say_why(pair: tuple[socket.socket, socket.socket], sent: bytes, reason: str) -> None:
    ours, theirs = pair
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(HandshakeError, match=reason):
        trio.run(TlsTransport(ours, SERVER).handshake)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (
            ((("countryName", "DE"),), (("organizationName", "Shop"),), (("commonName", "ann"),)),
            "CN=ann,O=Shop,C=DE",
        ),
        (((("commonName", "a,b"),), (("organizationalUnitName", "x"), ("userId", "7"))), "OU=x+UID=7,CN=a\\,b"),
        (((("commonName", "#a "),),), "CN=\\#a\\ "),
        (((("emailAddress", "a@b"),),), "emailAddress=a@b"),
    ],
)
def test_names_of_subjects(subject: Subject, name: str) -> None:
    assert distinguished_name(subject) == name
