"""Settings of mongod's storage engines, as `create` and `createIndexes` take them."""

from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode


def checked_storage_engine(option: str, value: bytes) -> bytes | None:
    """`storageEngine`: settings of mongod's storage engines, which are stored and shown, but have no effect.

    BadValue (2) for an engine without a document, InvalidOptions (72) for another engine than MongoDB's own.
    """
    for engine, settings in fields(value):
        if not isinstance(settings, bytes):
            raise CommandError(ErrorCode.BadValue, f"'{option}.{engine}' must be an embedded document")
        if engine != "wiredTiger":
            raise CommandError(ErrorCode.InvalidOptions, f"{engine} is not a registered storage engine for this server")
        for name, setting in fields(settings):
            if name != "configString":
                raise CommandError(
                    ErrorCode.InvalidOptions, f"'{name}' is not a supported option in {option}.wiredTiger"
                )
            if not isinstance(setting, str):
                raise CommandError(ErrorCode.TypeMismatch, f"'{option}.wiredTiger.configString' must be a string")
    return None if is_empty(value) else value
