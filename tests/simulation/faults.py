"""A storage engine that keeps the contract, fails at random calls as the contract allows, and reads little at once."""

import random

from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import NO_BYTE_LIMIT

# What the contract lets raise WriteConflict.
_CONFLICTING = ("update_records", "update_record", "delete_records", "delete_record", "commit")
# What a batch of records may hold at most, in bytes: a document of the simulation has about 70. Small batches make
# commands, purges and index builds over few documents take many steps.
_BATCH_BYTES = (1, 200, 1000, 100_000, 100_000, 100_000)
# What may not fail at all: handles, counters, and the hooks of a unit of work.
_SAFE = ("on_commit", "on_rollback", "record_store", "sorted_data", "idents", "statistics", "count", "size_bytes")


class FaultyEngine(ContractEngine):
    """The contract's checks around an engine; `rate` of the calls fail before they reach it, once `armed`.

    is_apart: whether those are answered who touch no data, so that none may come.
    """

    def __init__(self, inner: StorageEngine, generator: random.Random, rate: float) -> None:
        super().__init__(inner)
        self._random = generator
        self._rate = rate
        self.armed = False
        self.is_apart = False
        self.failures = 0

    def require_open(self, method: str) -> None:
        assert not self.is_apart, method
        super().require_open(method)
        self._may_fail(method)

    def require_unit(self, method: str) -> None:
        assert not self.is_apart, method
        super().require_unit(method)
        self._may_fail(method)

    def batch_bytes(self, max_bytes: int) -> int:
        # Who sets no limit wants everything.
        return max_bytes if max_bytes == NO_BYTE_LIMIT else min(max_bytes, self._random.choice(_BATCH_BYTES))

    def flush(self) -> None:
        self._may_fail("flush")
        super().flush()

    def _may_fail(self, method: str) -> None:
        if not self.armed or method in _SAFE or self._random.random() >= self._rate:
            return
        self.failures += 1
        if method in _CONFLICTING and self._random.random() < 0.5:
            raise WriteConflict(f"simulated: {method}")
        raise EngineUnavailable(f"simulated: {method}")
