"""The Cosmos DB account that a server of the dialect `cosmos` stands for: capabilities, backup, and what is allowed.

All of it comes from the command line, and can be changed while the server runs by `configureCosmos`.

Source: Microsoft's "Configure your Azure Cosmos DB for MongoDB account capabilities".
"""

from collections.abc import Iterable
from typing import Final

# Azure's names, and what each of them gives.
CAPABILITIES: Final = {
    "DisableRateLimitingResponses": "throttled requests wait in the server",
    "EnableMongo16MBDocumentSupport": "documents of up to 16 MB",
    "EnableMongoRetryableWrites": "retryable writes",
    "EnablePartialUniqueIndex": "partial unique indexes",
    "EnableTtlOnCustomPath": "TTL on a date field",
    "EnableUniqueCompoundNestedDocs": "unique and compound indexes on nested paths",
    "EnableUniqueIndexReIndex": "unique indexes over documents",
}
# The refusals that can be switched off, because porting is gradual and accounts differ, and what each refuses. What is
# allowed then works as in MongoDB.
#
# Not here are those that depend on a capability or on the backup, which are switched by these; and those that have no
# counterpart in MongoDB to fall back on: arguments of `customAction` and `shardCollection`, a change stream of a
# collection that does not exist (its tokens name the collection), what the read-only key may not do.
REFUSALS: Final = {
    "sort-without-index": "A sort that no index serves (BadValue).",
    "late-unique-index": "A unique index over a collection that has documents (CannotCreateIndex).",
    "unique-without-shard-key": "A unique index of a sharded collection without its shard key (CannotCreateIndex).",
    "index-kinds": "Kinds and options of indexes that Cosmos DB does not have: text, 2d, hashed, compound wildcard and"
    " partial indexes, collations, wildcardProjection (CommandNotSupported, CannotCreateIndex, 197). Allowed, `sparse`"
    " has its effect.",
    "index-limits": "Indexes beyond the limits on their number, on the fields of a compound one, on the depth of a path"
    " (CannotCreateIndex), and on TTL indexes of a collection (BadValue).",
    "missing-features": "Commands, stages, operators and options that no version of Cosmos DB lists, or not the"
    " announced one (the codes of unknown ones; CommandNotSupported for commands).",
    "missing-shard-key": "A document without a value of the shard key (ShardKeyNotFound).",
    "shard-key-change": "An update that changes a document's value of the shard key (ImmutableField).",
    "untargeted-write": "A write of one document whose filter does not name the shard key (ShardKeyNotFound).",
    "update-pipeline": "An update by an aggregation pipeline (FailedToParse).",
    "array-literal-comparison": 'A comparison expression with an array literal, `{$eq: ["$a", [1, 2]]}` (BadValue).',
    "cross-collection-transaction": "A transaction that uses several collections (50841).",
    "sharded-transaction": "A transaction that uses a sharded collection (50841).",
    "unordered-retryable-write": "A retryable write of several statements that is not ordered (BadValue).",
    "bare-watch": "A change stream without the `$match` and `$project` that Cosmos DB wants (BadValue).",
    "database-watch": "A change stream of a database or of the deployment (TypeMismatch).",
    "time-limits": "An operation of more than 60 seconds (50), a transaction of more than 5 (BadValue).",
    "size-limits": "An `_id` of more than 1,023 bytes, a value of the shard key of more than 2,048, a document of more"
    " than 128 levels (BadValue), a batch of more than 1,000 writes (InvalidLength), replies of more than 4 MB"
    " (10334).",
    "collection-names": "Characters in names of collections that Cosmos DB does not take (InvalidNamespace).",
}
PERIODIC: Final = "periodic"
CONTINUOUS: Final = "continuous"
BACKUPS: Final = (PERIODIC, CONTINUOUS)
OFF: Final = "off"
METERED: Final = "metered"
ENFORCED: Final = "enforced"
THROUGHPUTS: Final = (OFF, METERED, ENFORCED)
# Capabilities that accounts with continuous backup cannot have.
NOT_CONTINUOUS: Final = ("EnableTtlOnCustomPath", "EnableUniqueIndexReIndex")


class Account:
    """capabilities: of `CAPABILITIES`. backup: one of `BACKUPS`. allowed: names of `REFUSALS` that are switched off.
    throughput: one of `THROUGHPUTS`.
    """

    def __init__(self) -> None:
        self.capabilities: frozenset[str] = frozenset()
        self.backup = PERIODIC
        self.allowed: frozenset[str] = frozenset()
        self.throughput = METERED

    def can(self, capability: str) -> bool:
        """Whether the account has a capability."""
        return capability in self.capabilities

    def refuses(self, refusal: str) -> bool:
        """Whether a refusal is in force."""
        return refusal not in self.allowed

    @property
    def is_continuous(self) -> bool:
        """Whether the account has continuous backup."""
        return self.backup == CONTINUOUS

    def configure(self, capabilities: Iterable[str], backup: str, allowed: Iterable[str], throughput: str) -> None:
        """Sets all of it. ValueError says what is wrong; then nothing is changed."""
        _check("capability", capabilities, CAPABILITIES)
        _check("backup", [backup], BACKUPS)
        _check("refusal", allowed, REFUSALS)
        _check("throughput", [throughput], THROUGHPUTS)
        for capability in NOT_CONTINUOUS:
            if capability in capabilities and backup == CONTINUOUS:
                raise ValueError(f"{capability} cannot be had with continuous backup")
        self.capabilities = frozenset(capabilities)
        self.backup = backup
        self.allowed = frozenset(allowed)
        self.throughput = throughput


def _check(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; there is {', '.join(known)}")
