"""Dialects: whose rules apply beyond TTL. Data, not scattered conditions.

The default dialect is MongoDB's. `cosmos` refuses what Azure Cosmos DB for MongoDB refuses, with its codes and texts.
"""

from mongottl.dialect.dialect import Dialect, dialect_named

__all__ = ["Dialect", "dialect_named"]
