"""Names of users and roles. Each belongs to a database: `ann@shop` and `ann@admin` are different users."""

from typing import NamedTuple

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
