"""What is known of a connection, as far as commands may ask."""

from typing import Final

from mongottl.catalog.catalog import new_uuid
from mongottl.document.types import BinData

UUID_SUBTYPE: Final = 4


class ClientInfo:
    """What is known of a connection; lives as long as it does."""

    def __init__(self, connection_id: int, local: str, remote: str) -> None:
        self.connection_id = connection_id
        self.local = local
        self.remote = remote
        self.uuid = BinData(new_uuid(), UUID_SUBTYPE)
        self.metadata: bytes | None = None
        self.app_name = ""
