"""The parts of a server that its connections use."""

import trio

from mongottl.exec.operation.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.server.poller import Poller


class Shell:
    """The parts of a running server. stopping: set when the server begins to stop."""

    def __init__(self, service: ServiceContext, dispatcher: Dispatcher, durability: Durability, log: Log) -> None:
        self.service = service
        self.dispatcher = dispatcher
        self.durability = durability
        self.log = log
        self.clock = service.clock
        self.poller = Poller(service.clock)
        self.stopping = trio.Event()
