"""A client's connection, as commands see it."""

from typing import Final

from mongottl.catalog.catalog import new_uuid
from mongottl.document.types import BinData

UUID_SUBTYPE: Final = 4


class ClientInfo:
    """One connection. local, remote: "host:port" of its two ends. metadata: raw `client` document of its `hello`.

    subject: the distinguished name in the verified certificate that the client has presented, else empty.
    """

    def __init__(self, connection_id: int, local: str, remote: str) -> None:
        self.connection_id = connection_id
        self.local = local
        self.remote = remote
        self.uuid = BinData(new_uuid(), UUID_SUBTYPE)
        self.metadata: bytes | None = None
        self.app_name = ""
        self.subject = ""
