"""Names of users and roles. Each belongs to a database: `ann@shop` and `ann@admin` are different users."""

import hashlib
from typing import NamedTuple

from mongottl.document.utf8 import encode_text

# The database of users whose identity is checked by others: here by a certificate authority.
EXTERNAL = "$external"


class UserName(NamedTuple):
    """`ann@shop`."""

    name: str
    database: str

    def __str__(self) -> str:
        return f"{self.name}@{self.database}"

    @property
    def id(self) -> str:
        """The `_id` of its document in `admin.system.users`."""
        return f"{self.database}.{self.name}"

    @property
    def digest(self) -> bytes:
        """The SHA-256 by which sessions name their user; that of no bytes for the unnamed one (`NOBODY`)."""
        return hashlib.sha256(encode_text(str(self)) if any(self) else b"").digest()


# Of a connection without a login.
NOBODY = UserName("", "")


class RoleName(NamedTuple):
    """`readWrite@shop`."""

    name: str
    database: str

    def __str__(self) -> str:
        return f"{self.name}@{self.database}"

    @property
    def id(self) -> str:
        """The `_id` of its document in `admin.system.roles`."""
        return f"{self.database}.{self.name}"
