"""The options of a collection, as `create` and `collMod` set them and `listCollections` shows them.

They are stored in the catalog as one document in mongod's form and order, and are read once into attributes. An option
that is not set is not in the document.

Source: MongoDB's create, collMod and listCollections references.
"""

from typing import Final

from mongottl.catalog.throughput import Throughput, throughput_from
from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields, fields_by_name, get_value

# The order in which listCollections shows them.
OPTION_ORDER: Final = (
    "capped",
    "size",
    "max",
    "autoIndexId",
    "temp",
    "changeStreamPreAndPostImages",
    "storageEngine",
    "indexOptionDefaults",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "idIndex",
    "timeseries",
    "clusteredIndex",
    "expireAfterSeconds",
    "encryptedFields",
    "cosmos",
)
# What the dialect `cosmos` stores, which listCollections does not show: {shardKey, throughput, largeDocuments}.
_COSMOS: Final = "cosmos"
# What a validator is parsed of.
_OF_VALIDATOR: Final = ("validator", "validationLevel", "validationAction", "collation", "encryptedFields")


class CollectionOptions:
    """The options of one collection. Immutable; `with_options` makes another object.

    raw: the document. capped_size_bytes, capped_max_documents: 0 if there is no such limit.
    validator: a filter that documents must match, or None. validation_level: `off`, `moderate` or `strict`.
    validation_action: `error`, `warn` or `errorAndLog`.
    temporary: whether it is dropped at a restart unless it was renamed (`temp`).
    collation, clustered_index, time_series: None where not given.
    expire_after_seconds: of a clustered or time series collection, or None.
    encrypted_paths: the paths of `encryptedFields`; None if the collection is not encrypted.
    shard_key: its path in Cosmos DB; empty if the collection is not sharded. throughput: what Cosmos DB provisions for
    the collection alone, or None. large_documents: whether the account had documents of 16 MB when the collection was
    created. listed: the document without these three, as replies show it.
    parsed_validator: the `Validator`, once it has been parsed (`validator_of`), which may take long; else None. Options
    that change nothing about it have the same.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.capped = False
        self.temporary = False
        self.capped_size_bytes: int = 0
        self.capped_max_documents: int = 0
        self.validator: bytes | None = None
        self.validation_level = "strict"
        self.validation_action = "error"
        self.collation: bytes | None = None
        self.clustered_index: bytes | None = None
        self.time_series: bytes | None = None
        self.expire_after_seconds: int | None = None
        self.records_images = False
        self.encrypted_paths: list[str] | None = None
        self.shard_key = ""
        self.throughput: Throughput | None = None
        self.large_documents = False
        self.listed = raw
        self.parsed_validator: object = None
        if raw != EMPTY_DOCUMENT:
            self._read()

    def _read(self) -> None:
        for name, value in fields(self.raw):
            if isinstance(value, bytes):
                if name == "validator":
                    self.validator = value
                elif name == "collation":
                    self.collation = value
                elif name == "clusteredIndex":
                    self.clustered_index = value
                elif name == "timeseries":
                    self.time_series = value
                elif name == "changeStreamPreAndPostImages":
                    self.records_images = get_value(value, "enabled") is True
                elif name == "encryptedFields":
                    self.encrypted_paths = _encrypted_paths(value)
                elif name == _COSMOS:
                    self._read_cosmos(value)
            elif isinstance(value, str):
                if name == "validationLevel":
                    self.validation_level = value
                elif name == "validationAction":
                    self.validation_action = value
            elif name == "capped":
                self.capped = value is True
            elif name == "temp":
                self.temporary = value is True
            elif isinstance(value, int):
                if name == "size":
                    self.capped_size_bytes = int(value)
                elif name == "max":
                    self.capped_max_documents = int(value)
                elif name == "expireAfterSeconds":
                    self.expire_after_seconds = int(value)

    def _read_cosmos(self, provisioned: bytes) -> None:
        shard_key = get_value(provisioned, "shardKey")
        if isinstance(shard_key, str):
            self.shard_key = shard_key
        self.throughput = throughput_from(get_value(provisioned, "throughput"))
        self.large_documents = get_value(provisioned, "largeDocuments") is True
        self.listed = encode_fields([option for option in fields(self.raw) if option[0] != _COSMOS])

    def provisioned(self, shard_key: str, throughput: Throughput | None) -> "CollectionOptions":
        """These options with a shard key, or "" for none, and what is provisioned for the collection alone."""
        return self._with_cosmos(shard_key, throughput, self.large_documents)

    def with_large_documents(self) -> "CollectionOptions":
        """These options with `large_documents`."""
        return self._with_cosmos(self.shard_key, self.throughput, True)

    def _with_cosmos(self, shard_key: str, throughput: Throughput | None, large_documents: bool) -> "CollectionOptions":
        stored: dict[str, Value] = {}
        if shard_key:
            stored["shardKey"] = shard_key
        if throughput is not None:
            stored["throughput"] = throughput.document()
        if large_documents:
            stored["largeDocuments"] = True
        return self.with_options({_COSMOS: encode(stored) if stored else MISSING})

    def with_options(self, changes: dict[str, Value]) -> "CollectionOptions":
        """These options with changes; MISSING removes an option."""
        options = fields_by_name(self.raw)
        options.update(changes)
        changed = CollectionOptions(options_document(options))
        if not any(name in changes for name in _OF_VALIDATOR):
            changed.parsed_validator = self.parsed_validator
        return changed


def _encrypted_paths(encrypted_fields: bytes) -> list[str]:
    described = get_value(encrypted_fields, "fields")
    paths: list[str] = []
    if isinstance(described, list):
        for field in described:
            path = get_value(field, "path") if isinstance(field, bytes) else MISSING
            if isinstance(path, str):
                paths.append(path)
    return paths


def options_document(options: dict[str, Value]) -> bytes:
    """The document of these options, in mongod's order, without those that are MISSING."""
    ordered: list[tuple[str, Value]] = []
    for name in OPTION_ORDER:
        value = options.get(name, MISSING)
        if value is not MISSING:
            ordered.append((name, value))
    return encode_fields(ordered)


NO_OPTIONS: Final = CollectionOptions(EMPTY_DOCUMENT)
