"""What the settings of a Cosmos DB account may be (`--cosmos-…`): capabilities, backup, refusals, behaviours.

The dialect `cosmos` gives them their meaning; they are here so that the command line knows them in any dialect.

Source: Microsoft's "Configure your Azure Cosmos DB for MongoDB account capabilities".
"""

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
        "A compound or unique index on nested paths is not made, and the reply has no error.",
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
