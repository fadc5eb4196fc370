"""The shard key of a collection of Cosmos DB: one path, whose value decides to which partition a document belongs.

`_id` is unique within a logical partition (the documents of one value), not in the collection. So the `_id` index of a
sharded collection is not unique. An index on (shard key, `_id`) is, which clients do not see and no plan uses. One by
the shard key alone is there from the beginning.

Source: Microsoft's "Partitioning and horizontal scaling" and "Manage indexing in Azure Cosmos DB for MongoDB".
"""

from typing import Final

from mongottl.catalog.index import IndexDescriptor
from mongottl.document.build import encode
from mongottl.document.keystring import encode_raw
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DOCUMENT, Value
from mongottl.document.walk import find_field_at
from mongottl.errors import CommandError, ErrorCode

# The name of the unique index on (shard key, `_id`).
PARTITION_ID_INDEX: Final = "$partition_id"
_ID: Final = "_id"


class ShardKey:
    """ids_are_unique: whether no two documents of the collection have the same `_id`, because that is the shard key."""

    def __init__(self, dotted: str) -> None:
        self.path = FieldPath(dotted)
        self.ids_are_unique = dotted == _ID

    def value_of(self, document: bytes) -> bytes | None:
        """The KeyString of a document's shard key value; None if there is none, or it is or lies in an array, which
        (assumed, as in MongoDB) is no value of a shard key."""
        type_code, pos = find_field_at(document, 0, self.path.part_bytes[0])
        for part in self.path.part_bytes[1:]:
            if type_code != DOCUMENT:
                return None
            type_code, pos = find_field_at(document, pos, part)
        if type_code == 0 or type_code == ARRAY:
            return None
        return encode_raw(document, type_code, pos)

    def check_unique_index(self, descriptor: IndexDescriptor) -> None:
        """CannotCreateIndex (67) for a unique index of which several shard key values may have the same key: an engine
        that keeps these apart cannot see it (`RecordStore.is_partitioned`)."""
        if descriptor.collation is not None or all(path.dotted != self.path.dotted for path in descriptor.paths):
            raise CommandError(
                ErrorCode.CannotCreateIndex,
                f"a unique index has the shard key {self.path.dotted} among its fields, and no collation, where the"
                " store is spread over several machines",
            )

    def first_index_specs(self) -> list[bytes]:
        """The indexes that a new collection has because of its shard key, besides that on `_id`."""
        if self.ids_are_unique:
            return []
        path = self.path.dotted
        return [
            encode({"v": 2, "key": {path: 1}, "name": f"{path}_1"}),
            encode(
                {
                    "v": 2,
                    "key": {path: 1, _ID: 1},
                    "name": PARTITION_ID_INDEX,
                    "unique": True,
                    "hidden": True,
                    "internal": True,
                }
            ),
        ]

    def pattern(self) -> dict[str, Value]:
        """The key as `shardCollection` takes it."""
        return {self.path.dotted: "hashed"}
