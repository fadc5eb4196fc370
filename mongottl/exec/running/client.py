"""A client's connection, as commands see it."""

from typing import Final, NamedTuple

from mongottl.catalog.catalog import new_uuid
from mongottl.document.types import MISSING, BinData, Value
from mongottl.security.accounts import Login

UUID_SUBTYPE: Final = 4


class LastRequest(NamedTuple):
    """What the last operation of a connection has cost, in the dialect `cosmos`.

    hundredths: of request units. delay_ms: how long it has waited in the server, by the server's clock, because its
    budget was used up. waited: whether it has waited at all.
    """

    command: str
    hundredths: int
    duration_ms: int
    delay_ms: int
    waited: bool


NO_REQUEST: Final = LastRequest("", 0, 0, 0, False)


class LastError(NamedTuple):
    """What became of the last request of a connection, where there is getLastError.

    error: the text, with its code; None if it has not failed. documents: how many it has updated, upserted or removed.
    updated_existing: None if it was no update. upserted: the `_id`, or MISSING.
    """

    error: str | None
    code: int
    documents: int
    updated_existing: bool | None
    upserted: Value


NO_ERROR: Final = LastError(None, 0, 0, None, MISSING)


class ClientInfo:
    """One connection. local, remote: "host:port" of its two ends. metadata: raw `client` document of its `hello`.

    is_greeted: whether a `hello` was answered. subject: the distinguished name in the verified certificate that
    the client has presented, else empty. login: its user, or None. conversation: the login that has begun
    (`commands.security.login.Conversation`), or None.
    """

    def __init__(self, connection_id: int, local: str, remote: str) -> None:
        self.connection_id = connection_id
        self.local = local
        self.remote = remote
        self.uuid = BinData(new_uuid(), UUID_SUBTYPE)
        self.metadata: bytes | None = None
        self.app_name = ""
        self.is_greeted = False
        self.subject = ""
        self.login: Login | None = None
        self.conversation: object = None
        self.last_request = NO_REQUEST
        self.last_error = NO_ERROR

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.remote.rpartition(":")[0]
