"""Sockets that listen."""

import os
import socket
from typing import Final

LISTEN_BACKLOG: Final = 1024


def open_listeners(host: str, port: int, is_shared: bool = False, listens: bool = True) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host, without blocking, on the same port; port 0 picks a free one.

    is_shared: whether other processes of the user may listen there, too: the system gives each of them a part of the
    connections. listens: whether they listen; otherwise they are only bound. OSError, which names the address, if it is
    taken or does not exist.
    """
    wanted = host_port((host, port))
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"cannot listen on {wanted}: {error.strerror}") from error
    except UnicodeError as error:
        raise OSError(f"cannot listen on {wanted}: no name of a host") from error
    listeners: list[socket.socket] = []
    unsupported: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            listener = socket.socket(family, kind, protocol)
        except OSError as error:  # such as IPv6 where the kernel runs without it
            unsupported = error
            continue
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if listeners:
                address = (address[0], port_of(listeners), *address[2:])
            listener.bind(address)
            if listens:
                listener.listen(LISTEN_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if listeners:
                continue  # one family is enough
            raise OSError(error.errno, f"cannot listen on {wanted}: {error.strerror}") from error
        listeners.append(listener)
    if not listeners and unsupported is not None:
        raise OSError(unsupported.errno, f"cannot listen on {wanted}: {unsupported.strerror}") from unsupported
    return listeners


def reserve_port(host: str, port: int) -> list[socket.socket]:
    """Sockets that keep a port for the processes that are to share it, and listen to nothing; port 0 picks a free one.
    OSError if another program has it, or the system lets no port be shared."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise OSError("this system does not let several processes listen on one port")
    alone = open_listeners(host, port, listens=False)  # fails where others share it, too
    port = port_of(alone)
    for listener in alone:
        listener.close()
    return open_listeners(host, port, is_shared=True, listens=False)


def port_of(listeners: list[socket.socket]) -> int:
    """The port that all of them have."""
    port: int = listeners[0].getsockname()[1]
    return port


def reachable(host: str) -> str:
    """By what clients of this machine reach a server that listens on `host`, as it stands in a URI."""
    if host in ("0.0.0.0", "", "*"):  # glibc takes the star as well
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host


def host_port(address: tuple[str, int]) -> str:
    """`host:port`, or `[::1]:port`."""
    host = address[0]
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
