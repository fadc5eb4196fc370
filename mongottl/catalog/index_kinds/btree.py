"""The ordinary index: values in their order, on one path or several."""

from typing import Final

from mongottl.catalog.index_kinds.kind import IndexKind, IndexPattern
from mongottl.catalog.keys import BtreeKeyGenerator, KeyGenerator
from mongottl.document.types import Value


class BtreeKind(IndexKind):
    """Every index whose key pattern names no other kind."""

    def __init__(self) -> None:
        super().__init__("btree", "", {})

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        return key, options

    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        return BtreeKeyGenerator(pattern.paths, pattern.descending, pattern.sparse, pattern.collation)


BTREE: Final = BtreeKind()
