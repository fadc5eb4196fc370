"""The bytes of one connection: received and split into messages, counted while a message is not answered, and sent.

`recv` and `send` of the transport (`server/transport`) are tried at once; where they would block, the connection's task
waits, or the poller for it.
"""

import socket
from contextlib import suppress
from typing import Final, final

from mongottl.exec.running.client import ClientInfo
from mongottl.server.connection.exchange import IDLE, PART, RECEIVING, Event, Exchange, State
from mongottl.server.incoming import NOT_COUNTED, Incoming
from mongottl.server.shell import Shell
from mongottl.server.transport import Transport
from mongottl.wire.connection import WireConnection
from mongottl.wire.messages import MAX_MESSAGE_SIZE

RECEIVE_SIZE: Final = 64 * 1024
# The same of a client that has not logged in where users are checked.
STRANGER_RECEIVE_SIZE: Final = 16 * 1024

# What `peek_client_state` sees of the client's side of the socket. CLOSED: the client will send nothing more. It has
# left, or waits for the answers to what it has sent: TCP shows no difference.
SILENT: Final = 0
TALKING: Final = 1
CLOSED: Final = 2
GONE: Final = 3


@final
class Channel:
    """One connection, as all that serves it shares it.

    transport: what is read from and written to; without TLS the socket itself. encrypts: whether it is TLS.
    exchange: the request that is received or answered now. memory: what counts of it; NOT_COUNTED if nothing does.
    receive_size: bytes to ask the transport for. last_reply_id: of the latest reply.
    """

    def __init__(
        self,
        shell: Shell,
        sock: socket.socket,
        transport: Transport,
        client: ClientInfo,
        state: State,
        encrypts: bool,
    ) -> None:
        self.shell = shell
        self.socket = sock
        self.transport = transport
        self.client = client
        self.encrypts = encrypts
        self.exchange = Exchange(state)
        self.wire = WireConnection()
        self.memory: Incoming = NOT_COUNTED
        # Where users are checked, the length of messages depends on whether the client has logged in.
        self.authorizes: bool = shell.service.authorizes
        self.receive_size: int = RECEIVE_SIZE
        self.last_reply_id: int = 0

    @property
    def name(self) -> str:
        """What the log calls the connection."""
        return f"conn{self.client.connection_id}"

    def stop_reading(self) -> None:
        """From now on reads see the client's side as closed, so that the connection ends after the present request."""
        with suppress(OSError):  # closed already
            self.socket.shutdown(socket.SHUT_RD)

    def bound_messages(self) -> None:
        """Bounds the length of messages before a login, as mongod does."""
        if self.client.login is not None:
            self.wire.max_message_bytes = MAX_MESSAGE_SIZE
            self.receive_size = RECEIVE_SIZE
        else:
            self.wire.max_message_bytes = self.shell.service.limits.pre_auth_message_bytes
            self.receive_size = STRANGER_RECEIVE_SIZE

    def may_receive(self) -> bool:
        """Counts the received bytes of a request that is not whole; whether more of it may be received at once."""
        self.exchange.move(PART, RECEIVING)
        wire = self.wire
        may: bool = self.shell.incoming.may_read(self.counted_memory(), wire.unread_size, wire.next_whole_size)
        return may

    def counted_memory(self) -> Incoming:
        """The memory of the present request, which counts from now on."""
        if self.memory is NOT_COUNTED:
            self.memory = Incoming(self.name, self.client.remote, self.stop_reading, self._is_sending)
        return self.memory

    def end_exchange(self, event: Event) -> None:
        """The request is answered: gives its memory back."""
        self.exchange.move(event, IDLE)
        self.forget_memory()

    def forget_memory(self) -> None:
        """Gives back what counts of a request that is answered, or whose connection has ended."""
        if self.memory is not NOT_COUNTED:
            self.shell.incoming.forget(self.memory)
            self.memory = NOT_COUNTED

    def _is_sending(self) -> bool:
        """Whether the client has sent bytes that were not read yet."""
        return self.peek_client_state() == TALKING

    def peek_client_state(self) -> int:
        """Whether the client has sent something, nothing, has closed its side, or is gone; does not wait, and consumes
        no bytes."""
        try:
            if self.transport.recv(1, socket.MSG_PEEK):
                return TALKING
        except BlockingIOError:
            return SILENT
        except OSError:
            return GONE
        # When the server stops, `stop_reading` has closed the client's side, not the client.
        return SILENT if self.shell.stopping.is_set() else CLOSED
