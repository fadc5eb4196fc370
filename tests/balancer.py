"""HAProxy in front of servers."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final

from tests.children import ended_after
from tests.waiting import until

HAPROXY: Final = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def by_haproxy(ports: Sequence[int], balance: str = "leastconn") -> Iterator[int]:
    """HAProxy in front of these ports, configured as in docs/operating.md. Its own port."""
    assert HAPROXY is not None
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    servers = "".join(f" server node{number} 127.0.0.1:{each} check inter 100ms\n" for number, each in enumerate(ports))
    configuration = (
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n option redispatch\n"
        f"listen mongodb\n bind 127.0.0.1:{port}\n balance {balance}\n{servers}"
    )
    with ended_after(
        subprocess.Popen([HAPROXY, "-db", "-f", "/dev/stdin"], stdin=subprocess.PIPE, text=True)
    ) as process:
        assert process.stdin is not None
        process.stdin.write(configuration)
        process.stdin.close()

        def accepts() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        until(accepts)
        yield port
        process.send_signal(signal.SIGTERM)
