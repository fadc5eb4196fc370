"""The dialect's limits as they are now, for what is checked for each document, message and operation."""

from typing import Final

from mongottl.dialect.interface import Limits
from mongottl.document.types import MAX_DOCUMENT_BYTES

# What a reply may have besides the documents of its page.
_AROUND_PAGE_BYTES: Final = 64 * 1024
# A level takes at least seven bytes: type, empty name, length and end.
_LEVEL_BYTES: Final = 7


class Bounds:
    """The limits of one server. Sizes are in bytes; 0 for none."""

    def __init__(self, limits: Limits) -> None:
        # Of a stored document: its size, its levels, the length from which on it may have too many of them; of an `_id`
        # that is a string, and of a shard key's value.
        self.max_document_bytes: int = limits.max_document_bytes
        self.max_depth: int = limits.max_depth
        self.deep_bytes: int = _LEVEL_BYTES * limits.max_depth
        self.max_id_bytes: int = limits.max_id_bytes
        self.max_shard_key_bytes: int = limits.max_shard_key_bytes
        # Of a message, of the array of documents in a reply, and how many writes a command may have.
        self.max_message_bytes: int = limits.max_message_bytes
        self.max_page_bytes: int = min(MAX_DOCUMENT_BYTES, limits.max_message_bytes - _AROUND_PAGE_BYTES)
        self.max_write_batch_size: int = limits.max_write_batch_size
        # Of the time of an operation, and of a transaction besides its lifetime.
        self.max_operation_s: float = limits.max_operation_s
        self.max_transaction_ms: int = limits.max_transaction_ms
