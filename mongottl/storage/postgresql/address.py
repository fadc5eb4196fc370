"""Where the PostgreSQL server is: a URI or connection string of libpq, and the single addresses that it stands for.

libpq itself would look up hosts while everything else waits, and would try one address for minutes. So each host is
looked up here (`host_names`), which may block, and each of its addresses is one attempt, in the order given.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from psycopg import Error as PsycopgError
from psycopg import pq

from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.postgresql.host_names import HostNames

# Settings of libpq where the user gives none: what is dead is noticed in seconds, not in hours.
_DEFAULTS: Final = {
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
# Seconds for one attempt to connect, unless the user gives `connect_timeout`.
_CONNECT_S: Final = 5.0
_PORT: Final = "5432"


class Address:
    """The parameters of a connection string, over those of the environment (PGHOST and the others).

    uri: what libpq takes, such as postgresql://user:password@host1,host2/database?sslmode=require.
    revive: starts the server again if it has ended, which may block; None for one that is not ours to start. OSError.
    latest: the attempt that has succeeded last. on_move: called when another one has than before.
    """

    def __init__(self, uri: str, revive: Callable[[], None] | None = None) -> None:
        """ValueError, without the password, for what libpq does not take."""
        try:
            found: list[Any] = pq.Conninfo.parse(encode_text(uri))
        except PsycopgError:
            # libpq's own message may quote the password.
            raise ValueError("the store's URI is not one of PostgreSQL: postgresql://user@host/database") from None
        self.revive = revive
        self._parameters: dict[str, str] = {
            decode_text(each.keyword): decode_text(each.val) for each in found if each.val is not None
        }
        timeout = self._parameters.get("connect_timeout", os.environ.get("PGCONNECT_TIMEOUT", ""))
        self.attempt_s = float(timeout) if timeout.isdigit() and int(timeout) > 0 else _CONNECT_S
        self._host_names: Final = HostNames()
        self.latest = b""
        self.on_move: Callable[[], None] = _stay

    def __str__(self) -> str:
        """Host, port and database, without user and password."""
        hosts = self._list("host", "PGHOST") or self._list("hostaddr", "PGHOSTADDR") or ["localhost"]
        ports = self._ports(len(hosts))
        places = [host if _is_folder(host) else f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        return f"{','.join(places)}/{self._parameters.get('dbname', '')}"

    @property
    def has_several_hosts(self) -> bool:
        """Whether another server may take the place of one that fails."""
        return max(len(self._list("host", "PGHOST")), len(self._list("hostaddr", "PGHOSTADDR"))) > 1

    def attempts(self) -> list[bytes]:
        """Connection strings of one address each, first that which has succeeded last; looks up hosts, which may block.
        ValueError, OSError."""
        hosts = self._list("host", "PGHOST")
        addresses = self._list("hostaddr", "PGHOSTADDR")
        if addresses and hosts and len(addresses) != len(hosts):
            raise ValueError(f"the store's URI names {len(hosts)} hosts and {len(addresses)} addresses")
        count = len(hosts) or len(addresses) or 1
        ports = self._ports(count)
        is_given = bool(self._list("port", "PGPORT")) or count > 1
        is_named = [not addresses and bool(host) and not _is_folder(host) for host in hosts] or [False] * count
        looked_up = self._host_names.look_up(
            [(hosts[number], ports[number]) for number in range(count) if is_named[number]], self.attempt_s
        )
        found: list[bytes] = []
        unknown: OSError | None = None
        for number in range(count):
            host = hosts[number] if hosts else ""
            port = ports[number] if is_given else ""
            if not is_named[number]:
                found.append(self._string(host, addresses[number] if addresses else "", port, count))
                continue
            answer = looked_up[host, ports[number]]
            if isinstance(answer, OSError):
                unknown = OSError(f"host {host} is unknown: {answer.strerror}")
            else:
                found += [self._string(host, address, port, count) for address in answer]
        if unknown is not None and not found:
            raise unknown
        return sorted(found, key=lambda attempt: attempt != self.latest)

    def note_success(self, attempt: bytes) -> None:
        moved = self.latest not in (b"", attempt)
        self.latest = attempt
        if moved:
            self.on_move()

    def _string(self, host: str, address: str, port: str, count: int) -> bytes:
        parameters = {**_DEFAULTS, **self._parameters, "host": host, "hostaddr": address, "port": port}
        if count > 1 and "target_session_attrs" not in parameters and "PGTARGETSESSIONATTRS" not in os.environ:
            # A standby among several hosts is of no use.
            parameters["target_session_attrs"] = "read-write"
        # Attempts are made here one by one.
        parameters.pop("load_balance_hosts", None)
        return encode_text(" ".join(f"{name}={_quoted(value)}" for name, value in parameters.items() if value))

    def _list(self, name: str, variable: str) -> list[str]:
        value = self._parameters.get(name) or os.environ.get(variable, "")
        return value.split(",") if value else []

    def _ports(self, count: int) -> list[str]:
        ports = self._list("port", "PGPORT") or [_PORT]
        if len(ports) == 1:
            ports *= count
        if len(ports) != count:
            raise ValueError(f"the store's URI names {count} hosts and {len(ports)} ports")
        return [port or _PORT for port in ports]


def end_socket(fd: int) -> None:
    """Has whoever waits for the socket of another find that it has ended. Its owner closes it."""
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as same:
        same.shutdown(socket.SHUT_RDWR)


def _stay() -> None:
    return None


def _is_folder(host: str) -> bool:
    """Whether a host is the folder of a Unix socket, or an abstract one's name."""
    return host.startswith(("/", "@"))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
