"""The addresses on which a server listens."""

import socket
from typing import Any

import pytest

from mongottl.server.listeners import open_listeners, port_of

# A family that the system knows by number and does not support, as IPv6 where the kernel runs without it.
UNSUPPORTED = 4  # AF_IPX
LOOPBACK: tuple[Any, ...] = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
WITHOUT_SUPPORT: tuple[Any, ...] = (UNSUPPORTED, socket.SOCK_STREAM, 0, "", ("::1", 0, 0, 0))


def test_one_family_that_the_system_supports_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ([LOOPBACK, WITHOUT_SUPPORT], [WITHOUT_SUPPORT, LOOPBACK]):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found, **__: found)
        (listener,) = open_listeners("localhost", 0)
        with listener:
            assert listener.getsockname() == ("127.0.0.1", port_of([listener]))


def test_a_host_without_a_usable_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [WITHOUT_SUPPORT])
    with pytest.raises(OSError, match=r"cannot listen on localhost:0: Address family not supported by protocol"):
        open_listeners("localhost", 0)
