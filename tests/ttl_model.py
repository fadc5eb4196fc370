"""The rules of expiry as Cosmos DB's articles tell them, for tests that compare a server with a model."""

from typing import Any

OFF = 0  # the default of a collection without TTL


def lives_s(ttl: Any, default: int) -> int | None:
    """Seconds that a document lives from its last write, or None for ever. default: of the collection, -1 or OFF."""
    if default == OFF:
        return None
    meaningful = isinstance(ttl, (int, float)) and not isinstance(ttl, bool) and ttl == int(ttl)
    if meaningful and (ttl == -1 or 1 <= ttl <= 2147483647):
        return None if ttl == -1 else int(ttl)
    return None if default == -1 else default
