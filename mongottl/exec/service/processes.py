"""The processes that work for one server."""

from mongottl.clock import Clock
from mongottl.config import ServerConfig
from mongottl.dialect import Dialect
from mongottl.exec.running.stack import Stacks
from mongottl.exec.service.hooks import ServerHooks
from mongottl.exec.service.scripts import ServerScripts
from mongottl.exec.service.searches import ServerSearches


class ServerProcesses:
    """What the processes of one server do: scripts in JavaScript, and searches for regular expressions.

    stacks: of its operations, which wait for them.
    """

    def __init__(
        self, config: ServerConfig, dialect: Dialect, clock: Clock, hooks: ServerHooks, stacks: Stacks
    ) -> None:
        self.scripts = ServerScripts(config, dialect, clock, hooks)
        self.searches = ServerSearches(clock, stacks)

    def end_idle(self) -> None:
        """Ends those that no operation has used for some seconds."""
        self.scripts.end_idle()
        self.searches.end_idle()

    def close(self) -> None:
        """Ends all of them."""
        self.scripts.close()
        self.searches.close()
