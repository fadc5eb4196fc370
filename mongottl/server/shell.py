"""The parts of a server that its connections use."""

from typing import Final

import trio

from mongottl.clock import Clock
from mongottl.exec.service.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.durability import Durability
from mongottl.server.incoming import Incoming, IncomingMessages
from mongottl.server.log import Log
from mongottl.server.poller import Poller

# A machine whose clients have begun to speak over TLS within this time has clients that trust the certificate.
SPOKEN_S: Final = 5.0
_MAX_HOSTS: Final = 10_000


class TlsHosts:
    """When clients of each machine last began to speak over TLS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spoken_at_s: dict[str, float] = {}

    def note(self, host: str) -> None:
        """A client of this machine has sent its first byte."""
        if len(self._spoken_at_s) >= _MAX_HOSTS:
            self._spoken_at_s.clear()
        self._spoken_at_s[host] = self._clock.monotonic_s()

    def has_spoken(self, host: str) -> bool:
        """Whether a client of this machine has sent its first byte within SPOKEN_S."""
        spoken_at_s = self._spoken_at_s.get(host)
        return spoken_at_s is not None and self._clock.monotonic_s() - spoken_at_s < SPOKEN_S


class Shell:
    """The parts of a running server. stopping: set when the server begins to stop."""

    def __init__(self, service: ServiceContext, dispatcher: Dispatcher, durability: Durability, log: Log) -> None:
        self.service = service
        self.dispatcher = dispatcher
        self.durability = durability
        self.log = log
        self.clock = service.clock
        self.poller = Poller(service.clock, service.stacks)
        self.incoming = IncomingMessages(service.limits, service.metrics, service.clock, self._log_slow)
        self.stopping = trio.Event()
        self.tls_hosts = TlsHosts(service.clock)

    def _log_slow(self, incoming: Incoming) -> None:
        self.log.warning(
            "network",
            "Connection closed: its client sends a message too slowly",
            incoming.name,
            remote=incoming.remote,
            received=incoming.received_bytes,
        )
