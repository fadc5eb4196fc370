"""Dialects: whether the server behaves like MongoDB or like Azure Cosmos DB for MongoDB, apart from TTL.

    interface  `Dialect`: the questions that the server asks, with MongoDB's answers
    registry   dialects by name, loaded by name
    mongodb    the dialect `mongodb`, which takes all defaults
    cosmos     the dialect `cosmos`: everything that is Cosmos DB's. Nothing else imports it, so it may import all.

docs/building.md shows how to add one.
"""

from mongottl.dialect.interface import Dialect
from mongottl.dialect.registry import dialect_of

__all__ = ["Dialect", "dialect_of"]
