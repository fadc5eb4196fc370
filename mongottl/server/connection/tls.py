"""A connection over TLS: the handshake, and a warning if its client then leaves without a word."""

import socket
import ssl
from typing import Final

import trio

from mongottl.exec.running.client import ClientInfo
from mongottl.server.connection.exchange import HANDSHAKE, IDLE, SHAKEN
from mongottl.server.connection.task import Connection
from mongottl.server.shell import Shell
from mongottl.server.transport.tls import HandshakeError, TlsTransport, failure_reason

# Time limit of the TLS handshake.
HANDSHAKE_S: Final = 10.0


class TlsConnection(Connection):
    """One connection over TLS, and the task that serves it."""

    def __init__(self, shell: Shell, sock: socket.socket, tls: TlsTransport, client: ClientInfo) -> None:
        super().__init__(shell, sock, tls, client, HANDSHAKE, encrypts=True)
        self._tls = tls
        host = client.host
        tls.on_first_byte = lambda: shell.tls_hosts.note(host)

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._tls.close()

    async def _serve(self) -> None:
        """Serves a client after its TLS handshake; a warning if it leaves before its first byte.

        With TLS 1.3 the server's handshake is over before the client has looked at the certificate. .NET's driver then
        closes the connection, others send an alert. No warning while clients of the same machine do begin to speak:
        drivers also close connections that they have just opened, when their client ends.
        """
        if not await self._shake_hands():
            return
        channel = self.channel
        channel.exchange.move(SHAKEN, IDLE)
        reason = "the client has left without a word, as drivers do that do not trust the server's certificate"
        shell = channel.shell
        client = channel.client
        try:
            await super()._serve()
        except ssl.SSLError as error:
            reason = failure_reason(error)
            raise
        finally:
            if (
                not self._tls.has_received
                and not shell.stopping.is_set()
                and not shell.tls_hosts.has_spoken(client.host)
            ):
                shell.log.warning(
                    "network", "TLS ended before the first byte", channel.name, remote=client.remote, reason=reason
                )

    async def _shake_hands(self) -> bool:
        """Does the TLS handshake; whether it succeeded."""
        channel = self.channel
        reason = "the client has not ended the handshake in time"
        with trio.move_on_after(HANDSHAKE_S):
            try:
                await self._tls.handshake()
                channel.client.subject = self._tls.client_subject()
                return True
            except HandshakeError as error:
                reason = str(error)
        channel.shell.log.warning(
            "network", "TLS handshake failed", channel.name, remote=channel.client.remote, reason=reason
        )
        return False
