"""TLS above a non-blocking socket, by `ssl.MemoryBIO`.

    socket ──recv──► incoming ──► SSLObject ──read──► recv()
    socket ◄──send── outgoing ◄── SSLObject ◄─write── send()

The poller watches the socket alone, so no received byte may stay in here unread: each chunk from the socket is
decrypted as a whole, and `recv` returns all of it. Only the beginning of an incomplete record stays in `incoming`.

Encrypted bytes for which the socket has no room stay in `_unsent`; `send` then raises BlockingIOError, and its next
call sends them first. So `send` reports bytes as sent only when the socket has taken them.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from mongottl.server.transport.names import distinguished_name

# Bytes read from the socket at once.
_RECEIVE_SIZE: Final = 64 * 1024
# Bytes of a message that are encrypted before the socket is asked to take them.
_SEND_SIZE: Final = 256 * 1024
# The largest record; SSLObject.read never returns more.
_RECORD_SIZE: Final = 16 * 1024
# The first byte of a client that begins a handshake.
_HANDSHAKE_RECORD: Final = 0x16

# Reasons of failed handshakes, as OpenSSL names them, in words.
_REASONS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate authority of the server's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the server's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the server's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the server's certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has sent no certificate",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate was refused",
    "UNSUPPORTED_PROTOCOL": "the client speaks only versions before TLS 1.2",
    "UNEXPECTED_EOF_WHILE_READING": "the client has disconnected during the handshake",
}


class HandshakeError(OSError):
    """The handshake failed. The text says why, for the log."""


class TlsTransport:
    """The server's side of a TLS connection."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Decrypted bytes that a peek has found, or that came with the end of the handshake.
        self._ready = b""
        # Encrypted bytes that the socket has not taken yet, and the number of plain bytes that `send` owes for them.
        self._unsent = b""
        self._owed = 0
        # Whether the client's stream has ended.
        self._ended = False
        # Whether the client has sent a byte after its handshake, and what is called with the first one.
        self.has_received = False
        self.on_first_byte: Callable[[], None] | None = None

    async def handshake(self) -> None:
        """Does the handshake. HandshakeError if it fails, ConnectionResetError if the client sent nothing."""
        first = True
        while True:
            done = False
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                # The client gets an alert that says why.
                with suppress(OSError):
                    self._take_outgoing()
                raise HandshakeError(failure_reason(error)) from None
            try:
                await self._flush_handshake()
                chunk = b"" if done else await self._receive_handshake()
            except ConnectionError:
                if first:
                    raise
                raise HandshakeError(_REASONS["UNEXPECTED_EOF_WHILE_READING"]) from None
            if done:
                try:
                    self._ready = self._decrypt()
                except ssl.SSLError as error:
                    raise HandshakeError(failure_reason(error)) from None
                return
            if first and not chunk:
                raise ConnectionResetError  # it only tried whether somebody listens
            if first and chunk[0] != _HANDSHAKE_RECORD:
                raise HandshakeError("the client does not speak TLS; this port takes only TLS (tls=true in the URI)")
            first = False
            if chunk:
                self._incoming.write(chunk)
            else:
                self._incoming.write_eof()

    async def _flush_handshake(self) -> None:
        while True:
            try:
                self._take_outgoing()
                return
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def _receive_handshake(self) -> bytes:
        while True:
            try:
                return self._socket.recv(_RECEIVE_SIZE)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)

    def client_subject(self) -> str:
        """The subject of the client's verified certificate, as the name of an X.509 user; empty without one."""
        certificate = self._tls.getpeercert()
        return distinguished_name(certificate["subject"]) if certificate else ""  # type: ignore[arg-type]

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """See `Transport.recv`. Returns what one chunk of the socket of `size` bytes contains, with what had come of
        its first record."""
        data = self._ready or self._receive(size if not flags & socket.MSG_PEEK else _RECEIVE_SIZE)
        self._ready = data if flags & socket.MSG_PEEK else b""
        return data

    def _receive(self, size: int) -> bytes:
        """The decrypted bytes of the socket's next chunk of up to `size` bytes that has some; empty at the end of the
        stream."""
        while not self._ended:
            chunk = self._socket.recv(size)
            if not chunk:
                # OpenSSL does not get this end: it would take an end without close_notify for an attack and end the
                # connection with an alert, but replies may still be sent.
                self._ended = True
                break
            self._incoming.write(chunk)
            data = self._decrypt()
            if data:
                return data
        return b""

    def _decrypt(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self._tls.read(_RECORD_SIZE):
                parts.append(part)
            self._ended = True  # close_notify
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._ended = True
        if self._outgoing.pending:
            # An answer to a message of TLS itself, as a change of keys.
            with suppress(BlockingIOError):
                self._take_outgoing()
        if parts and not self.has_received:
            self.has_received = True
            if self.on_first_byte is not None:
                self.on_first_byte()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes | memoryview, /) -> int:
        """See `Transport.send`."""
        if self._unsent:
            self._flush()
            owed = self._owed
            self._owed = 0
            if owed:
                return owed
        part = data if len(data) <= _SEND_SIZE else memoryview(data)[:_SEND_SIZE]
        size = len(part)
        encrypted = self._tls.write(part)
        while encrypted < size:
            encrypted += self._tls.write(memoryview(part)[encrypted:])
        self._owed = size
        self._take_outgoing()
        self._owed = 0
        return size

    def _take_outgoing(self) -> None:
        """Sends what TLS has encrypted. BlockingIOError: a part of it is left in `_unsent`."""
        encrypted = self._outgoing.read()
        self._unsent = self._unsent + encrypted if self._unsent else encrypted
        self._flush()

    def _flush(self) -> None:
        while self._unsent:
            sent = self._socket.send(self._unsent)
            self._unsent = self._unsent[sent:]

    def close(self) -> None:
        """Announces to the client that no more bytes come (close_notify), if the socket has room for it."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            self._take_outgoing()


def failure_reason(error: ssl.SSLError) -> str:
    """Why TLS has failed, in words."""
    reason = error.reason or ""
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return f"{_REASONS[reason]}: {getattr(error, 'verify_message', reason)}"
    return _REASONS.get(reason) or reason.replace("_", " ").lower() or str(error)
