"""The certificate that clients have to trust, for scripts that fetch it by HTTPS before they trust it.

    /_explorer/emulator.pem    the certificate in PEM form, where Cosmos DB's emulator has it
    /                          how to use it

Source: Microsoft's "Develop locally using the Azure Cosmos DB emulator", "Import the emulator's TLS/SSL certificate".
"""

import socket
from pathlib import Path
from typing import Final

import trio

from mongottl.config import ServerConfig
from mongottl.server.listeners import open_listeners, port_of
from mongottl.server.log import Log
from mongottl.server.transport.certificates import ServerTls
from mongottl.server.web.http import HttpServer, Request, Response, text

PATH: Final = "/_explorer/emulator.pem"
_PEM_TYPE: Final = "application/x-pem-file"


class CertificateSite:
    """Answers on `certificate_port`. It listens when it is made; OSError if it cannot, or has no certificate to give.

    Whatever is asked is public: a certificate, which every TLS handshake shows as well.
    """

    def __init__(self, config: ServerConfig, tls: ServerTls, log: Log) -> None:
        assert config.certificate_port is not None
        if tls.ca_file is None:
            raise OSError("certificate_port: there is no certificate for clients to trust")
        self._pem = Path(tls.ca_file).read_bytes()
        self._log = log
        try:
            self.listeners: list[socket.socket] = open_listeners(config.host, config.certificate_port)
        except OSError as error:
            # Nobody has asked for this port: it comes with the emulator's place.
            advice = "--certificate-port N takes another, 0 none"
            raise OSError(error.errno, f"{error.strerror or error}; {advice}") from error
        self.url = f"https://localhost:{port_of(self.listeners)}{PATH}"
        self._http = HttpServer(self._answer, self._log_failure, tls.context)

    async def run(self) -> None:
        """Serves until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for listener in self.listeners:
                accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
                nursery.start_soon(self._http.run, accepting)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()

    async def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return text(405, "this method is not for this path", ("Allow", "GET, HEAD"))
        if request.path == PATH:
            return Response(200, _PEM_TYPE, self._pem)
        if request.path in ("/", "/_explorer/index.html"):
            return text(200, f"mongottl in the place of Cosmos DB's emulator; its certificate is at {PATH}")
        return text(404, f"there is nothing at this path; the certificate is at {PATH}")

    def _log_failure(self, error: Exception) -> None:
        self._log.exception("network", "A request for the certificate failed", error)
