"""Settings of mongod's storage engines, as `create` and `createIndexes` take them."""

from typing import Final

from mongottl.config import STORAGE_ENGINES
from mongottl.document.interrupt import give_way
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode

# MongoDB's own engine, whose settings scripts for MongoDB name, and those that `serverStatus` announces.
_NAMES: Final = frozenset(["wiredTiger", *STORAGE_ENGINES])
# The keys of WiredTiger's WT_SESSION.create. Source: WiredTiger's reference.
_KEYS: Final = frozenset(
    """
    access_pattern_hint allocation_size app_metadata assert block_allocation block_compressor block_manager
    cache_resident checksum colgroups collator columns dictionary encryption exclusive extractor format
    ignore_in_memory_cache_size immutable import internal_item_max internal_key_max internal_key_truncate
    internal_page_max key_format key_gap leaf_item_max leaf_key_max leaf_page_max leaf_value_max log lsm
    memory_page_image_max memory_page_max os_cache_dirty_max os_cache_max prefix_compression prefix_compression_min
    source split_deepen_min_child split_deepen_per_child split_pct tiered_object tiered_storage type value_format
    verbose write_timestamp_usage
    """.split()
)

# Characters of a configuration that are read at once, and what that takes, in the units of `give_way`.
_TOGETHER: Final = 256
_WEIGHT: Final = 16


def checked_storage_engine(option: str, value: bytes) -> bytes | None:
    """`storageEngine`: settings of mongod's storage engines, which are stored and shown, but have no effect.

    BadValue (2) for an engine without a document and for a configuration that mongod's engine would refuse,
    InvalidOptions (72) for one that is neither MongoDB's own nor one of this server's.
    """
    for engine, settings in fields(value):
        if not isinstance(settings, bytes):
            raise CommandError(ErrorCode.BadValue, f"'{option}.{engine}' must be an embedded document")
        if engine not in _NAMES:
            raise CommandError(ErrorCode.InvalidOptions, f"{engine} is not a registered storage engine for this server")
        for name, setting in fields(settings):
            if name != "configString":
                raise CommandError(ErrorCode.InvalidOptions, f"'{name}' is not a supported option in {option}.{engine}")
            if not isinstance(setting, str):
                raise CommandError(ErrorCode.TypeMismatch, f"'{option}.{engine}.configString' must be a string")
            _check_configuration(setting)
    return None if is_empty(value) else value


def _check_configuration(text: str) -> None:
    """A configuration of WiredTiger: `key=value,key=(key=value,…),…`. FailedToParse (9) with a zero byte, BadValue (2)
    for an unknown key or unbalanced brackets."""
    if "\0" in text:
        raise CommandError(ErrorCode.FailedToParse, "malformed 'configString' value.")
    depth = 0
    key = ""
    in_value = False
    for place, character in enumerate(f"{text},"):
        if place % _TOGETHER == 0:
            give_way(_WEIGHT)
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
            if depth < 0:
                break
        elif depth:
            continue
        elif character == ",":
            if key.strip() and key.strip() not in _KEYS:
                raise CommandError(ErrorCode.BadValue, f"unknown configuration key: '{key.strip()}'")
            key = ""
            in_value = False
        elif character in "=:" and key.strip():
            in_value = True
        elif not in_value:
            key += character
    if depth:
        raise CommandError(ErrorCode.BadValue, f"unbalanced brackets in 'configString': {text}")
