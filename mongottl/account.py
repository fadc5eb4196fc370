"""The Cosmos DB account that a server of the dialect `cosmos` stands for: capabilities, backup, and what is allowed.

All of it comes from the command line, and can be changed while the server runs by `configureCosmos`.

Source: Microsoft's "Configure your Azure Cosmos DB for MongoDB account capabilities".
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

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
    "create-existing": "`create` of a collection that exists with the same options (NamespaceExists).",
}


class Variant(NamedTuple):
    """A behaviour that differs between accounts. what: the behaviour. versions: the server versions that have it unless
    `allow` switches it off; in others `refuse` switches it on. source: the record of an account that shows it."""

    what: str
    versions: tuple[str, ...]
    source: str


_ALL_VERSIONS: Final = ("3.6", "4.0", "4.2", "5.0", "6.0", "7.0")
# Behaviours that were recorded of accounts, but not of all: each is there by default where its record names a version,
# or where nothing contradicts the record.
VARIANTS: Final = {
    "collection-filter": Variant(
        "listCollections with a `filter` finds nothing.", (), "liquibase/liquibase-mongodb#65 (2020) and #581 (2024)"
    ),
    "collection-info": Variant(
        "Entries of listCollections have neither `info` nor `idIndex`.",
        _ALL_VERSIONS,
        "prisma/orm#14477 (2022), mqlens/mqlens-mongodb#332 (2026)",
    ),
    "filtered-compound-sort": Variant(
        "A sort by several fields beside an equality on another field needs an index that begins with that field"
        " (BadValue).",
        (),
        "Azure/cosmos-explorer#1343 (2022); of the core API MicrosoftDocs/azure-docs#112818 and"
        " AzureCosmosDB/cosmosdb-agent-kit#101 (2026)",
    ),
    "hello": Variant(
        "`hello` is no command (CommandNotSupported), `isMaster` is.",
        (),
        "eclipse-basyx/basyx-java-server-sdk#452 (7.0, 2024), MicrosoftDocs/azure-dev-docs#1260 (2023); a change was"
        " announced in January 2025",
    ),
    "hostInfo": Variant(
        "`hostInfo` is no command (CommandNotSupported).", ("3.6",), "MicrosoftDocs/azure-docs#60180 (3.6, 2020)"
    ),
    "missing-collection": Variant(
        "A `find` in a collection that does not exist fails (NamespaceNotFound).", (), "Cratis/Arc#1468 (2025)"
    ),
    "null-projection": Variant(
        "An aggregation of `$match`, `$limit` and a `$project` of null fails (InternalError): LINQ's `Any` with a"
        " condition sends it.",
        ("4.2",),
        "featbit/featbit#513 (4.2, 2023)",
    ),
    "positional-projection": Variant(
        "`{'grades.$': 1}` returns an empty array in place of the element.",
        (),
        "MicrosoftDocs/azure-docs#90395 (2022), which the product's team took for a defect",
    ),
    "shard-key-command-error": Variant(
        "An insert without a value of the shard key fails as a command, by a text without the path, in place of a write"
        " error.",
        (),
        "microsoft/vscode-cosmosdb#1341 (2020)",
    ),
    "silent-nested-index": Variant(
        "A compound or unique index on nested paths is not made, and no error tells of it.",
        (),
        "formio/formio#1716 (2024)",
    ),
    "upsert-conflict": Variant(
        "An upsert of `findAndModify` whose `_id` is taken fails with ConflictingOperationInProgress in place of"
        " DuplicateKey.",
        ("3.6",),
        "lukas-krecan/ShedLock#170 (3.6, 2019)",
    ),
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


# The text of a throttled write of several statements: see `dialect.cosmos.throttling`.
BATCH: Final = "batch"
BATCH_TEXTS: Final = ("bare", BATCH, "noHint", "single")


class AccountSettings(NamedTuple):
    """capabilities: of `CAPABILITIES`. backup: one of `BACKUPS`. allow: names of `REFUSALS` and `VARIANTS` that are
    switched off. throughput: one of `THROUGHPUTS`. refuse: names of `VARIANTS` that are switched on. batch_text: one of
    `BATCH_TEXTS`."""

    capabilities: frozenset[str] = frozenset()
    backup: str = PERIODIC
    allow: frozenset[str] = frozenset()
    throughput: str = METERED
    refuse: frozenset[str] = frozenset()
    batch_text: str = BATCH


class Account:
    """settings: see `AccountSettings`. version: the server version that it announces, `major.minor`."""

    def __init__(self, version: str) -> None:
        self.version: Final = version
        self.settings = AccountSettings()
        self.throughput = METERED
        self._usual: Final = frozenset(REFUSALS) | {
            name for name, variant in VARIANTS.items() if version in variant.versions
        }
        self._in_force: frozenset[str] = self._usual

    def can(self, capability: str) -> bool:
        """Whether the account has a capability."""
        return capability in self.settings.capabilities

    def refuses(self, name: str) -> bool:
        """Whether a refusal, or a behaviour of `VARIANTS`, is in force."""
        return name in self._in_force

    @property
    def is_continuous(self) -> bool:
        """Whether the account has continuous backup."""
        return self.settings.backup == CONTINUOUS

    def configure(self, settings: AccountSettings) -> None:
        """Sets all of it. ValueError says what is wrong; then nothing is changed."""
        _check("capability", settings.capabilities, CAPABILITIES)
        _check("backup", [settings.backup], BACKUPS)
        _check("refusal", settings.allow, (*REFUSALS, *VARIANTS))
        _check("behaviour", settings.refuse, VARIANTS)
        _check("throughput", [settings.throughput], THROUGHPUTS)
        _check("text of batches", [settings.batch_text], BATCH_TEXTS)
        for capability in NOT_CONTINUOUS:
            if capability in settings.capabilities and settings.backup == CONTINUOUS:
                raise ValueError(f"{capability} cannot be had with continuous backup")
        for name in sorted(settings.allow & settings.refuse):
            raise ValueError(f"{name} cannot be both allowed and refused")
        self.settings = settings
        self.throughput = settings.throughput
        self._in_force = self._usual - settings.allow | settings.refuse


def _check(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; there is {', '.join(known)}")
