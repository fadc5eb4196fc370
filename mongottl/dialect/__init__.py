"""Dialects: whether the server behaves like MongoDB or like Azure Cosmos DB for MongoDB, apart from TTL.

    dialect  what a dialect consists of, and the two that exist
    cosmos   what Cosmos DB refuses, with its codes and texts, and the account that the server stands for

A dialect is data; code that depends on it asks a `Dialect`. The default dialect is `mongodb`.
"""

from mongottl.dialect.dialect import Dialect, dialect_named

__all__ = ["Dialect", "dialect_named"]
