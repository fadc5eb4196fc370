"""What is known of a connection, as far as commands may ask."""


class ClientInfo:
    """What is known of a connection; lives as long as it does."""

    def __init__(self, connection_id: int, local: str, remote: str) -> None:
        self.connection_id = connection_id
        self.local = local
        self.remote = remote
        self.metadata: bytes | None = None
        self.app_name = ""
