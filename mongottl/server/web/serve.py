"""The page of a running server: its address, and the task that serves it in the server's own loop."""

import socket
import ssl

import trio

from mongottl.config import ServerConfig
from mongottl.exec.state.observation import Observation
from mongottl.server.listeners import open_listeners, port_of, reachable
from mongottl.server.shell import Shell
from mongottl.server.web.http import HttpServer
from mongottl.server.web.site import Site


class Page:
    """The page of one server. It listens when it is made; OSError if it cannot.

    port: of the server's protocol. context: of TLS, which the page uses if the server does.
    """

    def __init__(self, config: ServerConfig, shell: Shell, port: int, context: ssl.SSLContext | None) -> None:
        assert config.web_port is not None
        self._shell = shell
        self._scheme = "http" if context is None else "https"
        self._host = config.web_host
        self.listeners: list[socket.socket] = open_listeners(config.web_host, config.web_port)
        shell.service.observation = Observation()
        self._site = Site(shell, port, context is not None)
        self._http = HttpServer(self._site.answer, self._log_failure, context)

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        return f"{self._scheme}://{reachable(self._host)}:{port_of(self.listeners)}/"

    async def run(self) -> None:
        """Serves until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for listener in self.listeners:
                accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
                nursery.start_soon(self._http.run, accepting)
            nursery.start_soon(self._site.live.run)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()

    def _log_failure(self, error: Exception) -> None:
        self._shell.log.exception("network", "A request of the page failed", error)
