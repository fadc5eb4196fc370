"""The dialect `mongodb`: what `Dialect` answers by default."""

from mongottl.dialect.interface import Dialect
from mongottl.dialect.registry import dialect


@dialect("mongodb")
class MongoDB(Dialect):
    """MongoDB of the announced version."""
