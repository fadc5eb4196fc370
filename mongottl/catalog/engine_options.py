"""Settings of mongod's storage engines, as `create` and `createIndexes` take them."""

from typing import Final

from mongottl.config import STORAGE_ENGINES
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode

# MongoDB's own engine, whose settings scripts for MongoDB name, and those that `serverStatus` announces.
_NAMES: Final = frozenset(["wiredTiger", *STORAGE_ENGINES])


def checked_storage_engine(option: str, value: bytes) -> bytes | None:
    """`storageEngine`: settings of mongod's storage engines, which are stored and shown, but have no effect.

    BadValue (2) for an engine without a document, InvalidOptions (72) for one that is neither MongoDB's own nor one of
    this server's.
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
    return None if is_empty(value) else value
