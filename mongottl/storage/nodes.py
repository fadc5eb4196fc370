"""The nodes of a store: the servers that have it open, each with a place that it must renew.

    open        a place is taken, or refused in one line: beside a server that wants to be the only one, or by one
    attend      renews it every second; one that was not renewed for LEASE_S is given to nobody else, but its server is
                taken for dead, and its place is cleared away by others
    close       gives it back

What a server keeps in memory of the data can be true only as long as it has its place.
"""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

# For how long a place lasts after it was taken or renewed, in seconds, and how often it is renewed.
LEASE_S: Final = 3.0
RENEW_S: Final = 1.0


class NodeFacts(NamedTuple):
    """What a server says of itself when it opens a store. topology: as which it answers, for others to show."""

    topology: str = ""


# Of who is no server, as tools are, and tests of engines.
LONE_NODE: Final = NodeFacts()


class Node(NamedTuple):
    """A place. number: unique for ever. address: `host:port`, empty until the server listens. pid: of its process.

    is_live: whether its lease is not over.
    """

    number: int
    topology: str
    address: str
    pid: int
    is_live: bool


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreNodes(ABC):
    """The nodes of one store, as one of them sees them. number: its own."""

    number: int

    @abstractmethod
    def announce(self, address: str) -> None:
        """Has others show where this server listens, from the next renewal on."""
        raise NotImplementedError

    @abstractmethod
    def attend(self) -> None:
        """Renews the place of this server, and waits about RENEW_S. To be called again and again, within an operation;
        what fails is tried again by the next call."""
        raise NotImplementedError

    @abstractmethod
    def all(self) -> list[Node]:
        """All places. It may wait. EngineUnavailable."""
        raise NotImplementedError
