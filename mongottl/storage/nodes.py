"""The nodes of a store: the servers that have it open, each with a place that it must renew.

    open        a place is taken, or refused in one line: beside a server that wants to be the only one, or by one
    attend      renews it every second; a server that has not done so for LEASE_S is taken for dead, and its place is
                cleared away by others
    close       gives it back

What a server keeps in memory of the catalog is true only as long as it has its place. Where several may have one
(`is_shared`), each change of the catalog has a version, and whoever makes one waits until all others know it or are
taken for dead:

    A    unit of work: version 8 ── settle ········· all have 8 ──► reply
    B                 heard ── reload ── attend: 8

    command on B    begin: the place is valid ── the command ── is_valid: what it has read is true ── end
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

# For how long a place lasts after it was taken or renewed, in seconds, and how often it is renewed.
LEASE_S: Final = 3.0
RENEW_S: Final = 1.0
# The longest message of a server to the others.
MAX_MESSAGE_BYTES: Final = 5_000

# The default of the setting `store_timeout`, in seconds.
STORE_TIMEOUT_S: Final = 5.0


class NodeFacts(NamedTuple):
    """What a server says of itself when it opens a store.

    topology: as which it answers, for others to show. may_share: whether others may open the store, too. timeout_s: for
    how long it repeats calls while the store is away. keys: by what it makes keys; who does it by something else cannot
    share the store with it. needs_data: whether the store is refused, and not made, if it is not there.
    """

    topology: str = ""
    may_share: bool = False
    timeout_s: float = STORE_TIMEOUT_S
    keys: str = ""
    needs_data: bool = False


# Of who is no server, as tools are, and tests of engines.
LONE_NODE: Final = NodeFacts()


class Node(NamedTuple):
    """A place. number: unique for ever. address: `host:port`, empty until the server listens. pid: of its process.

    version: of the catalog that it knows. is_current: whether that is the latest one. since_ms: when it was taken, and
    lease_ms: for how long it still lasts, both by the store's clock; 0 or less if that is over. has_duties: whether
    this server does what one of them does for all.
    """

    number: int
    topology: str
    address: str
    pid: int
    version: int
    is_current: bool
    since_ms: int
    lease_ms: int
    has_duties: bool

    @property
    def is_live(self) -> bool:
        return self.lease_ms > 0

    @property
    def state(self) -> str:
        """One of NODE_STATES."""
        return LOST if not self.is_live else CURRENT if self.is_current else RELOADING


# What a node does: it serves; it reads what another one has changed in the catalog; it has not renewed its place.
CURRENT: Final = "current"
RELOADING: Final = "reloading"
LOST: Final = "lost"
NODE_STATES: Final = (CURRENT, RELOADING, LOST)


class CatalogChange(NamedTuple):
    """What others have changed. before: by its key, what each changed entry was; None if it is new. made: the idents of
    new stores; dropped: of those that are gone."""

    before: dict[str, bytes | None]
    made: list[str]
    dropped: list[str]


def _nothing(change: CatalogChange) -> None:
    return None


def _ignore(message: bytes) -> None:
    return None


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreNodes(ABC):
    """The nodes of one store, as one of them sees them. number: its own.

    is_shared: whether others may have a place at the same time. found_others: whether some had one when it was opened.
    has_duties: whether this server does what one of them does for all; another takes that over when it is dead.
    on_message: called, as an operation that may wait, with what another one has sent by `send`. If it raises, it has
    not done what was asked for, and is called again if the other one still waits for that.
    latest: all places, as of the latest renewal.
    shares: into how many parts a budget of all nodes is divided, of which this one may use one; 0: none.
    has_left: whether dead servers may have left stores in no collection; known to the server that has duties.
    on_change: called when the engine has read what others have changed of the catalog; no unit of work is open.
    """

    def __init__(self) -> None:
        self.number = 0
        self.is_shared = False
        self.found_others = False
        self.has_duties = False
        self.latest: list[Node] = []
        self.has_left = False
        self.on_message: Callable[[bytes], None] = _ignore
        self.shares = 1
        self.on_change: Callable[[CatalogChange], None] = _nothing
        self._kept: list[CatalogChange] = []

    def keep_changes(self) -> None:
        """Has changes of others kept for `follow`. To be called before the catalog is loaded, each time that it is: the
        start goes on after that, and may have the engine read the catalog anew."""
        self._kept = []
        self.on_change = self._kept.append

    def follow(self, take: Callable[[CatalogChange], None]) -> None:
        """Has changes of others taken by `take` from now on, and first those that were kept."""
        kept, self._kept = self._kept, []
        self.on_change = take
        for change in kept:
            take(change)

    @abstractmethod
    def announce(self, address: str) -> None:
        """Has others show where this server listens, from the next renewal on."""
        raise NotImplementedError

    @abstractmethod
    def attend(self) -> None:
        """Renews the place of this server, reads what others have changed, and waits about RENEW_S, or until they
        change something. To be called again and again, within an operation; what fails is tried again by the next
        call."""
        raise NotImplementedError

    @abstractmethod
    def keep_place(self) -> None:
        """Does what `attend` does without waiting, if the place has to be renewed, and takes no duties, which nobody
        would perform yet. To be called between the steps of a start that may take long, before it is attended to."""
        raise NotImplementedError

    @property
    def is_unheard(self) -> bool:
        """Whether the store does not answer, and may have moved to another host."""
        return False

    def look_elsewhere(self) -> None:  # noqa: B027 - most stores have one place
        """Looks whether another host has taken the place of the one that does not answer; what waits for that one goes
        on then. A machine that is gone says nothing, and for each connection it takes the system a quarter of a minute
        to find that out. To be called again and again while it `is_unheard`, within an operation."""

    @abstractmethod
    def send(self, message: bytes) -> bool:
        """Sends a message of at most MAX_MESSAGE_BYTES to all others, and waits until each of them has done what it
        asks for, or has lost its place and with that the sessions in which it could still commit something: whether it
        was so, within somewhat more than LEASE_S. Does nothing where it is not shared. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def all(self) -> list[Node]:
        """All places. It may wait. EngineUnavailable."""
        raise NotImplementedError

    # Where it is shared

    @abstractmethod
    def clear_up(self) -> None:
        """Clears away the places of servers that are dead, and what nobody needs any more. To be called now and then by
        who has duties. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def left_of(self, idents: list[str]) -> list[str]:
        """Those of these stores which were made by servers that have no place any more. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def catch_up(self) -> None:
        """Reads what others have changed, and whether there are others. To be called outside of operations, after
        CatalogChanged. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def begin(self, after_change: bool = False) -> None:
        """Waits until the place of this server is valid, and the catalog not known to be old. To be called before a
        command is carried out. StoreUnreachable.

        after_change: whether it is carried out again since others have changed the catalog, or are about to: it waits
        for changes that are under way, too.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def has_kept_place(self) -> bool:
        """Whether this server has its place, and has had it ever since it was opened: nobody has taken it for dead and
        dropped stores that it has made and not put in a collection."""
        raise NotImplementedError

    @property
    @abstractmethod
    def is_valid(self) -> bool:
        """Whether what the present operation has read of the catalog since `begin` was true then: this server has not
        lost its place meanwhile, even if it has it again."""
        raise NotImplementedError

    @property
    @abstractmethod
    def has_committed(self) -> bool:
        """Whether the present operation has committed a unit of work since `begin`."""
        raise NotImplementedError

    @abstractmethod
    def disregard_commits(self) -> None:
        """Called when it would do no harm to carry out the present operation again, whatever it has committed."""
        raise NotImplementedError

    @abstractmethod
    def settle(self, is_held: bool = False) -> None:
        """Waits until all nodes know the changes of the catalog that the present operation has committed since `begin`.
        To be called where they have to before it goes on. EngineUnavailable.

        is_held: whether the operation holds off others of this server, which so cannot take over changes either. Of two
        servers that wait for each other then, the one with the higher number gives up: CatalogChanged.
        """
        raise NotImplementedError

    @abstractmethod
    def spread(self) -> None:
        """Has all servers know what transactions of dead servers may have changed of the catalog just before their end.
        To be called before somebody learns here that such a transaction was committed. EngineUnavailable."""
        raise NotImplementedError

    @abstractmethod
    def end(self) -> None:
        """`settle` at the end of the operation, before its reply."""
        raise NotImplementedError
