"""Replies without what every reply of a replica set member has."""

from typing import Any


def without_times(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply without `$clusterTime` and `operationTime`."""
    return {name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime")}
