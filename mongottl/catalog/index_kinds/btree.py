"""The ordinary index: values in their order, on one path or several."""

from typing import TYPE_CHECKING

from mongottl.catalog.index_kinds.kind import IndexKind
from mongottl.catalog.keys import BtreeKeyGenerator, KeyGenerator
from mongottl.document.types import Value

if TYPE_CHECKING:
    from mongottl.catalog.index import IndexDescriptor


class BtreeKind(IndexKind):
    """Every index whose key pattern names no other kind."""

    def __init__(self) -> None:
        super().__init__("btree", "", {})

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        return key, options

    def key_generator(self, descriptor: "IndexDescriptor") -> KeyGenerator:
        return BtreeKeyGenerator(descriptor.paths, descriptor.descending, descriptor.sparse, descriptor.collation)
