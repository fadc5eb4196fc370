"""What accounts of Cosmos DB have answered: requests and replies that their users have published, as rows.

The sources are issues and pull requests of the repository named in a row, Microsoft's pages and samples ("Microsoft"),
and public programs and posts. A row without versions holds for all: the record does not name the account's.
"""

import re
from typing import Any

from bson import SON, Binary, Int64, ObjectId

from tests.drivers.answers import ABSENT, Document
from tests.drivers.cosmos.facts.facts import (
    GUID,
    SINCE_4_0,
    Fact,
    Step,
    advance,
    collection,
    containing,
    delete_many,
    fail,
    find,
    index,
    insert,
    refused,
    storage_failure,
    update,
    write_error,
)

EXCLUDED = "The index path corresponding to the specified order-by item is excluded."
NO_COMPOSITE = "The order by query does not have a corresponding composite index that it can be served from."
NO_SORT = refused(2, "BadValue", storage_failure(EXCLUDED))
NO_COMPOUND_SORT = refused(2, "BadValue", storage_failure(NO_COMPOSITE))
NOT_EMPTY: Document = {
    "": {
        "ok": 0.0,
        "errmsg": "Cannot create unique index when collection contains documents",
        "code": 67,
        "codeName": "CannotCreateIndex",
    }
}
FROZEN = (
    "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
)
TTL_ON_TS = refused(2, "BadValue", "The 'expireAfterSeconds' option is supported on '_ts' field only.")
NESTED = refused(115, "CommandNotSupported", "Unique and compound indexes do not support nested paths.")
NO_TEXT: Document = {
    "": {"ok": 0.0, "errmsg": "'text' is not supported", "code": 115, "codeName": "CommandNotSupported"}
}
UNTARGETED = refused(61, "ShardKeyNotFound", "query in command must target a single shard key")
NOT_ACTIVE = storage_failure("Transaction is not active", 1101)
INTERNAL = refused(1, "InternalError", re.compile(rf"\[ActivityId={GUID}\] Internal error\."))
CONTINUOUS: Document = {"backup": "continuous"}
ID: Document = {"key": {"_id": 1}, "name": "_id_"}
RATE = re.compile(
    r"Error=16500, RetryAfterMs=(?P<ms>\d+), Details='Response status code does not indicate success: "
    rf"TooManyRequests \(429\); Substatus: 3200; ActivityId: {GUID}; Reason: \(.*Request rate is large\..*",
    re.DOTALL,
)
GRADES: Document = {"_id": 1, "semester": 1, "grades": [70, 87, 90]}


def missing_command(name: str) -> Document:
    return refused(115, "CommandNotSupported", f"Command {name} not supported.")


def command(answer: Document | None = None, **fields: Any) -> Step:
    return Step(fields) if answer is None else Step(fields, answer)


def sorted_find(answer: Document, **sort: int) -> Step:
    return find(answer, sort=sort)


def sort_record(number: int, what: str, versions: tuple[str, ...] = SINCE_4_0) -> Fact:
    """A sort by one field without index."""
    return Fact(number, what, [insert({"_id": 1, "createdAt": 1}), sorted_find(NO_SORT, createdAt=-1)], versions)


def transaction(number: int) -> Document:
    """The fields of a statement of the first transaction of a session."""
    return {"lsid": {"id": Binary(number.to_bytes(16, "big"), 4)}, "txnNumber": Int64(1), "autocommit": False}


def in_transaction(record: int, *statements: Document, seconds: float = 6) -> list[Step]:
    """A transaction whose statements come some seconds after its first write."""
    belongs = transaction(record)
    first: Document = {"insert": "orders", "documents": [{"_id": 1}], **belongs, "startTransaction": True}
    inactive = write_error(2, NOT_ACTIVE)
    return [
        insert({"_id": 0}),
        Step(first, {"n": 1}),
        advance(seconds),
        *(Step({**statement, **belongs}, inactive) for statement in statements),
        Step({"find": "orders", **belongs}, refused(2, "BadValue", NOT_ACTIVE)),
        find({"cursor.firstBatch": [{"_id": 0}]}),
    ]


DELETE: Document = {"delete": "orders", "deletes": [{"q": {}, "limit": 0}]}
UPDATE: Document = {"update": "orders", "updates": [{"q": {"_id": 0}, "u": {"$set": {"a": 1}}}]}
INSERT: Document = {"insert": "orders", "documents": [{"_id": 2}]}
# As LINQ of the .NET driver makes them.
ANY: list[Document] = [{"$limit": 1}, {"$project": {"_id": 0, "_v": None}}]
STREAM: list[Document] = [{"$changeStream": {}}]
# That 7.0 does not have.
_STAGES: list[Document] = [
    {"$bucket": {"groupBy": "$a", "boundaries": [0, 1]}},
    {"$graphLookup": {"from": "b", "startWith": 1, "connectFromField": "a", "connectToField": "b", "as": "c"}},
    {"$collStats": {}},
    {"$indexStats": {}},
]


def aggregate(answer: Document, *stages: Document) -> Step:
    return command(answer, aggregate="orders", pipeline=list(stages), cursor={})


RECORDS = [
    # Sorts.
    sort_record(1, "growthbook/growthbook#1356 (2023)"),
    sort_record(2, "hcengineering/huly-selfhost#29 (2024)"),
    sort_record(3, "maryamaljanabi/bestbags-nodejs-ecommerce#27 (2022)"),
    sort_record(4, "loopbackio/loopback-next#10637 (2024)"),
    sort_record(5, "novuhq/novu#2589 (2023)"),
    sort_record(6, "mongodb/laravel-mongodb#2112 (3.6)", ("3.6",)),
    sort_record(7, "MicrosoftDocs/azure-docs#59826 (3.6)", ("3.6",)),
    sort_record(8, "microsoft/MCW-Cloud-native-applications#228 (2021)"),
    sort_record(9, "green-code-initiative/EcoSonar#21 (2023)"),
    sort_record(10, "telefonicaid/fiware-orion#3797 (2021)"),
    sort_record(11, "matteofabbri/AspNetCore.Identity.Mongo#133 (7.0)", ("7.0",)),
    sort_record(12, "nightscout/cgm-remote-monitor#8167 (2023)"),
    sort_record(13, "payloadcms/payload#1506 (2022)"),
    sort_record(14, "payloadcms/payload#4161 (4.2)", ("4.2",)),
    sort_record(15, "payloadcms/payload#7187 (2024)"),
    sort_record(16, "liquibase/liquibase-mongodb#493 (2024)"),
    *(
        Fact(
            number,
            f"{source}: a sort by two fields",
            [index({"name": 1}), insert({"_id": 1}), sorted_find(NO_COMPOUND_SORT, name=1, standard=1)],
        )
        for number, source in ((17, "pa11y/pa11y-webservice#151"), (18, "payloadcms/payload#10136"))
    ),
    Fact(
        19,
        "agenda/agenda#1416: findAndModify with a sort",
        [
            insert({"_id": 1}),
            command(
                NO_COMPOUND_SORT,
                findAndModify="orders",
                query={"nextRunAt": None},
                sort={"nextRunAt": 1, "priority": -1},
                update={"$set": {"lockedAt": 1}},
            ),
        ],
    ),
    Fact(
        20,
        "LearningLocker/learninglocker#1539: a compound index with _id, also reversed, but not mixed",
        [
            sorted_find({"ok": 1}, createdAt=-1, _id=1),
            index({"createdAt": -1, "_id": 1}),
            sorted_find({"ok": 1}, createdAt=-1, _id=1),
            sorted_find({"ok": 1}, createdAt=1, _id=-1),
            sorted_find(NO_COMPOUND_SORT, createdAt=1, _id=1),
        ],
    ),
    Fact(
        21,
        "payloadcms/payload#1506: a wildcard index serves a sort",
        [insert({"_id": 1}), index({"createdAt.$**": 1}), sorted_find({"ok": 1}, createdAt=-1)],
    ),
    # Indexes.
    Fact(
        23,
        "michaelklishin/quartz-mongodb#207 (2020)",
        [insert({"_id": 1}), index({"keyGroup": 1, "keyName": 1}, NOT_EMPTY, unique=True)],
    ),
    *(
        Fact(
            number,
            f"{source}: a unique index with continuous backup",
            [collection(), index({"thread_id": 1, "checkpoint_id": 1}, answer, unique=True)],
            settings=CONTINUOUS,
        )
        for number, source, answer in (
            (24, "langchain-ai/langchain-mongodb#237", refused(13, "Unauthorized", containing("Forbidden (403)"))),
            (25, "elsa-workflows/elsa-core#4658", {"ok": 0.0, "errmsg": containing(FROZEN)}),
            (26, "getporter/porter#2344", {"ok": 0.0, "errmsg": containing(FROZEN)}),
        )
    ),
    Fact(
        27,
        "flamingock/flamingock-java#556: CreateCollection takes the unique index, and createIndexes finds it",
        [
            collection(indexes=[ID, {"key": {"executionId": 1, "author": 1}, "name": "mongock", "unique": True}]),
            index(
                {"executionId": 1, "author": 1},
                {"numIndexesBefore": 2, "numIndexesAfter": 2},
                name="mongock",
                unique=True,
            ),
        ],
        settings=CONTINUOUS,
    ),
    Fact(28, "liatrio/gratibot#956 (2026)", [index({"a.b": 1, "c": 1}, NESTED)]),
    Fact(29, "formio/formio#1716 (2024), on some accounts", [index({"data.email": 1}, NESTED, unique=True)]),
    Fact(
        29,
        "formio/formio#1716 (2024), on others",
        [
            index({"data.email": 1}, unique=True),
            index({"form": 1, "data.email": 1}),
            index({"form": 1}),
            command({"cursor.firstBatch.1.name": "form_1", "cursor.firstBatch.2": ABSENT}, listIndexes="orders"),
        ],
        settings={"refuse": ["silent-nested-index"]},
    ),
    Fact(30, "automatiko-io/automatiko-engine#222 (2022)", [index({"a": "text"}, NO_TEXT)]),
    # Its other half, a positional update without a match, is not replayed: that is of 2019, today unknown.
    Fact(31, "Azure/helm-charts#5 (2019)", [index({"a": "text"}, {"errmsg": "'text' is not supported"})]),
    Fact(
        32,
        "parse-community/parse-server#8492: collation of an index",
        [index({"a": 1}, {"ok": 0.0}, collation={"locale": "en_US", "strength": 2})],
    ),
    Fact(
        33,
        "e2nIEE/pandahub#25: a unique index over documents, and a collation",
        [
            insert({"_id": 1, "email": "a"}),
            index({"email": 1}, {"ok": 0.0}, unique=True),
            find({"ok": 0.0}, collation={"locale": "en", "strength": 2}),
        ],
    ),
    Fact(
        34,
        "thunderbug1/LibreChatAzureDeployment#10: a sparse unique index, and two documents without the field",
        [
            index({"googleId": 1}, unique=True, sparse=True),
            insert({"_id": 1}),
            insert(
                {"_id": 2},
                answer=write_error(
                    11000,
                    "E11000 duplicate key error collection: shop.orders. Failed _id or unique index constraint.",
                ),
            ),
        ],
    ),
    Fact(
        35,
        "eclipse-basyx/basyx-java-server-sdk#80 (2023)",
        [
            index({"a": 1}, name="_id_1"),
            index(
                {"a": 1},
                refused(85, "IndexOptionsConflict", "Index with name _id_1 already exists with different options."),
                name="_id_1",
                unique=True,
            ),
        ],
    ),
    Fact(
        36,
        "mongodb-js/connect-mongodb-session#119 (2025)",
        [
            index({"_ts": 1}, expireAfterSeconds=10),
            index(
                {"_ts": 1},
                {"code": 85, "errmsg": containing("already exists with different options")},
                expireAfterSeconds=20,
            ),
        ],
    ),
    Fact(
        37,
        "opencb/opencga#952: the reply of createIndexes",
        [
            index(
                {"a": 1},
                {"": {"createdCollectionAutomatically": True, "numIndexesBefore": 1, "numIndexesAfter": 2, "ok": 1}},
            ),
            index({"b": 1}, {"numIndexesBefore": 2, "numIndexesAfter": 3}),
        ],
        ("3.6",),
    ),
    Fact(
        38,
        "flamingock/flamingock-java#256: a collection sharded by _id",
        [collection(shardKey="_id"), index({"executionId": 1}, {"code": 67}, unique=True)],
    ),
    Fact(
        39,
        'Microsoft, "Manage indexing": a unique index without the shard key',
        [
            collection(shardKey="university"),
            index(
                {"student_id": 1},
                refused(
                    67,
                    "CannotCreateIndex",
                    "cannot create unique index over {student_id : 1.0} with shard key pattern { university : 1.0 }",
                ),
                unique=True,
            ),
            index({"student_id": 1, "university": 1}, unique=True),
        ],
    ),
    Fact(40, "animir/node-rate-limiter-flexible#206", [index({"expire": -1}, TTL_ON_TS, expireAfterSeconds=0)]),
    Fact(41, "hashicorp/terraform-provider-azurerm", [index({"at": 1}, TTL_ON_TS, expireAfterSeconds=60)]),
    Fact(
        42,
        "Azure/azure-cli#13229: TTL of -1 as it is listed",
        [
            index({"_ts": 1}, expireAfterSeconds=-1),
            command(
                {
                    "cursor.firstBatch.1": {
                        "expireAfterSeconds": -1,
                        "v": 1,
                        "key": {"_ts": 1},
                        "name": "_ts_1",
                        "ns": "shop.orders",
                    }
                },
                listIndexes="orders",
            ),
        ],
    ),
    Fact(
        43,
        "mongodb-js/connect-mongodb-session#90: a TTL of 0",
        [index({"_ts": 1}, {"ok": 0.0}, expireAfterSeconds=0)],
    ),
    Fact(44, "gravitee-io/issues#3374 (3.6)", [index({"expireAt": 1}, {"ok": 0.0}, expireAfterSeconds=0)], ("3.6",)),
    Fact(
        45,
        "cjoakim/azure-cosmos-db: a ttl of 5 below 3,600",
        [
            index({"_ts": 1}, expireAfterSeconds=3600),
            insert({"_id": 1, "ttl": 5}),
            find({"cursor.firstBatch.0._id": 1}),
            advance(20),
            find({"cursor.firstBatch": []}),
        ],
    ),
    Fact(
        46,
        "cjoakim/azure-cosmos-db: indexes of a sharded collection",
        [
            collection(shardKey="pk"),
            index({"pk": 1}),
            index({"_ts": 1}, expireAfterSeconds=3600),
            command(
                {
                    "cursor.firstBatch": [
                        {"v": 1, "key": {"_id": 1}, "name": "_id_", "ns": "shop.orders"},
                        {"v": 1, "key": {"pk": 1}, "name": "pk_1", "ns": "shop.orders"},
                        {
                            "v": 1,
                            "key": {"_ts": 1},
                            "name": "_ts_1",
                            "ns": "shop.orders",
                            "expireAfterSeconds": 3600,
                        },
                    ]
                },
                listIndexes="orders",
            ),
        ],
    ),
    # Commands.
    Fact(47, "liquibase/liquibase-mongodb#235 (2022)", [command(missing_command("collMod"), collMod="orders")]),
    *(
        Fact(
            number,
            f"{source}: hello",
            [command(missing_command("hello"), hello=1), command({"ok": 1, "ismaster": True}, isMaster=1)],
            SINCE_4_0,
            {"refuse": ["hello"]},
        )
        for number, source in ((48, "Spring Boot's health check (2024)"), (49, "basyx-java-server-sdk#452 (7.0)"))
    ),
    Fact(50, "MicrosoftDocs/azure-docs#60180 (3.6)", [command(missing_command("hostInfo"), hostInfo=1)], ("3.6",)),
    Fact(51, "MicrosoftDocs/azure-docs#51725", [command({"code": 115}, connectionStatus=1)]),
    Fact(52, "apache/beam#17511", [command(missing_command("splitVector"), splitVector="shop.orders")]),
    Fact(53, "appsmithorg/appsmith#26872", [command({"code": 115}, replSetGetStatus=1)]),
    Fact(
        55,
        "liquibase/liquibase-mongodb#581 (2024): create of what exists",
        [
            command(create="DATABASECHANGELOG"),
            command(
                {
                    "": {
                        "ok": 0.0,
                        "errmsg": "a collection 'shop.DATABASECHANGELOG' already exists",
                        "code": 48,
                        "codeName": "NamespaceExists",
                    }
                },
                create="DATABASECHANGELOG",
            ),
        ],
    ),
    Fact(56, "microsoft/vscode-cosmosdb#328", [insert({"_id": 1}), command({"ok": 0.0}, create="orders")]),
    Fact(
        57,
        "gottscj/Hangfire.Mongo#259 (2020), with its typing error",
        [command({"ok": 0.0, "errmsg": "Capped collectiosn are not supported."}, create="c", capped=True, size=4096)],
    ),
    *(
        Fact(
            number,
            f"{source}: an entry of listCollections",
            [
                insert({"_id": 1}),
                command(
                    {"cursor.firstBatch": [{"name": "orders", "type": "collection", "options": {}}]}, listCollections=1
                ),
            ],
        )
        for number, source in ((58, "prisma/orm#14477 (2022)"), (59, "mqlens/mqlens-mongodb#332 (2026)"))
    ),
    *(
        Fact(
            number,
            f"{source}: listCollections with a filter",
            [
                insert({"_id": 1}),
                command({"cursor.firstBatch": []}, listCollections=1, filter={"name": name}),
                command({"cursor.firstBatch.0.name": "orders"}, listCollections=1, nameOnly=True),
            ],
            settings={"refuse": ["collection-filter"]},
        )
        for number, source, name in (
            (60, "eclipse-ditto/ditto#416 (2019)", {"$regex": "^orders$"}),
            (61, "liquibase/liquibase-mongodb#65 (2020)", "orders"),
        )
    ),
    Fact(63, "microsoft/vscode-cosmosdb#1819 (3.6)", [command(INTERNAL, create="a/b")], ("3.6",)),
    Fact(
        64,
        "microsoft/vscode-documentdb#342: explain has another form than MongoDB's",
        [insert({"_id": 1}), command({"queryPlanner": ABSENT, "stages": list}, explain={"find": "orders"})],
    ),
    *(
        Fact(
            65,
            f"MicrosoftDocs/azure-docs#84043: verbosity {verbosity}",
            [
                insert({"_id": 1}),
                command({"ok": 1, "stages": list}, explain={"find": "orders"}, verbosity=verbosity),
                command({"ok": 1}, explain={"count": "orders"}, verbosity=verbosity),
            ],
            ("3.6", "4.0"),
        )
        for verbosity in ("foo", "executionStatistics", "allPlansExecution", {"executionStatistics": True})
    ),
    Fact(
        66,
        "cjoakim/azure-cosmos-db: explain of a find",
        [
            collection(shardKey="pk"),
            index({"pk": 1}),
            insert({"_id": 1, "pk": "GB1"}),
            command(
                {
                    "command": re.compile(
                        re.escape("db.runCommand({explain: { 'find' : 'orders', 'filter' : { 'pk' : 'GB1' } }})")
                    ),
                    "stages.0.stage": "$query",
                    "stages.0.in": 1,
                    "stages.0.out": 1,
                    "stages.0.dependency.getNextPageCount": 1,
                    "stages.0.details.database": "shop",
                    "stages.0.details.collection": "orders",
                    "stages.0.details.query": {"pk": "GB1"},
                    "stages.0.details.indexUsage.pathsIndexed": {"individualIndexes": ["pk"], "compoundIndexes": []},
                    "stages.0.details.indexUsage.pathsNotIndexed": {"individualIndexes": [], "compoundIndexes": []},
                    "stages.0.details.shardInformation.0.shardKeyRangeId": "[,FF) move next",
                    "stages.0.details.shardInformation.0.retrievedDocumentCount": 1,
                    "stages.0.details.queryMetrics.outputDocumentCount": 1,
                    "stages.0.details.queryMetrics.indexHitRatio": 1.0,
                    "retriedDueToRateLimiting": False,
                    "continuation": {"hasMore": False},
                },
                explain={"find": "orders", "filter": {"pk": "GB1"}},
            ),
        ],
        SINCE_4_0,
    ),
    Fact(
        67,
        "cjoakim/azure-cosmos-db: explain of a point read",
        [
            collection(shardKey="pk"),
            insert({"_id": ObjectId("6419af49abbf183d7ec9bc81"), "pk": "GB1"}),
            command(
                {
                    "stages.0.stage": "$pointLookup",
                    "stages.0.details.items": [{"id": ObjectId("6419af49abbf183d7ec9bc81"), "shardKey": "GB1"}],
                    "totalRequestCharge": 1.0,
                },
                explain={"find": "orders", "filter": {"_id": ObjectId("6419af49abbf183d7ec9bc81"), "pk": "GB1"}},
            ),
        ],
        SINCE_4_0,
    ),
    Fact(
        76,
        "cjoakim/azure-cosmos-db: a deletion of many that takes too long",
        [insert({"_id": 1}), fail("cosmosTimeout"), delete_many({}, write_error(50, "Request timed out."))],
    ),
    Fact(
        77,
        "cjoakim/azure-cosmos-db: getLastRequestStatistics",
        [
            insert({"_id": 1}),
            command(
                {
                    "_t": ABSENT,
                    "CommandName": "insert",
                    "RequestCharge": float,
                    "RequestDurationInMilliSeconds": Int64,
                    "EstimatedDelayFromRateLimitingInMilliseconds": Int64,
                    "RetriedDueToRateLimiting": False,
                    "ActivityId": re.compile(GUID),
                    "ok": 1.0,
                },
                getLastRequestStatistics=1,
            ),
        ],
    ),
    # Queries.
    Fact(
        78,
        "featbit/featbit#513 (4.2): LINQ's Any with a condition; without one it works",
        [
            insert({"_id": 1, "key": "a"}),
            aggregate(INTERNAL, {"$match": {"key": "a"}}, *ANY),
            aggregate({"cursor.firstBatch": [{"_v": None}]}, *ANY),
        ],
        ("4.2",),
    ),
    *(
        Fact(
            number,
            f"{source}: $lookup with let",
            [
                aggregate(
                    {"ok": 0.0, "errmsg": containing("let")},
                    {"$lookup": {"from": "b", "let": {"x": "$_id"}, "pipeline": [], "as": "b"}},
                )
            ],
        )
        for number, source in ((79, "vivekratnavel/omniboard#145 (2019)"), (80, "GovAlta/adsp-monorepo#3237 (2024)"))
    ),
    Fact(
        81,
        "MicrosoftDocs/azure-docs#90395 (2022): a positional projection",
        [
            insert(GRADES),
            find(
                {"cursor.firstBatch": [{"_id": 1, "grades": []}]},
                filter={"semester": 1, "grades": {"$gte": 85}},
                projection={"grades.$": 1},
            ),
        ],
        settings={"refuse": ["positional-projection"]},
    ),
    # Transactions.
    Fact(84, "payloadcms/payload#6820 (2024)", in_transaction(84, DELETE), SINCE_4_0),
    Fact(85, "flamingock/flamingock-java#640 (4.2)", in_transaction(85, INSERT, UPDATE), ("4.2",)),
    Fact(86, "remult/remult#215 (2023)", in_transaction(86, UPDATE), SINCE_4_0),
    Fact(87, "payloadcms/payload#8588 (2024)", in_transaction(87, INSERT), SINCE_4_0),
    Fact(
        88,
        "prisma/orm#9566 (4.0)",
        [
            collection(shardKey="pk"),
            Step(
                {
                    "insert": "orders",
                    "documents": [{"_id": 1, "pk": 1}],
                    "lsid": {"id": Binary((88).to_bytes(16, "big"), 4)},
                    "txnNumber": Int64(1),
                    "autocommit": False,
                    "startTransaction": True,
                },
                {"code": 50841, "errmsg": "Multi-document transactions cannot be run in a sharded collection"},
            ),
        ],
        ("4.0",),
    ),
    # Throttling.
    Fact(
        89,
        "a log of 2026",
        [
            fail("cosmosThrottle", retryAfterMs=214),
            find(refused(16500, "RequestRateTooLarge", RATE)),
        ],
    ),
    *(
        Fact(
            number,
            f"{source}: a throttled batch",
            [
                fail("cosmosThrottle", retryAfterMs=10),
                insert({"_id": 1}, {"_id": 2}, answer=write_error(16500, text)),
            ],
            settings={"batchText": form},
        )
        for number, source, form, text in (
            (90, "an insertMany of a seat reservation", "single", RATE),
            (90, "the default", "batch", "Error=16500, RetryAfterMs=10, Details='Batch write error."),
            (91, "strapi/strapi#5590 (2020)", "bare", "Error=16500, Details='"),
            (92, "microsoft/vscode-documentdb#136 (2025)", "noHint", "Error=16500, Details='Insert error.'"),
        )
    ),
    Fact(
        93,
        "SkillsFundingAgency/das-recruit#408 (2019): a batch that is done in part",
        [
            fail("cosmosThrottle", item=2),
            insert(*({"_id": n} for n in range(5)), answer={"n": 2, **write_error(16500, containing(""), 2)}),
            insert({"_id": 1}, answer=write_error(11000, containing("E11000 duplicate key error collection:"))),
        ],
    ),
    # Sharded collections.
    Fact(
        94,
        "hpgrahsl/kafka-connect-mongodb#87 (2019)",
        [
            collection(shardKey="pk"),
            command(UNTARGETED, update="orders", updates=[{"q": {"_id": 1}, "u": {"_id": 1, "pk": 2}, "upsert": True}]),
        ],
    ),
    Fact(
        95,
        "microsoft/vscode-cosmosdb#1341 (2020)",
        [
            collection(shardKey="pk"),
            insert({"_id": 1}, answer=refused(61, "ShardKeyNotFound", "document does not contain shard key")),
        ],
        settings={"refuse": ["shard-key-command-error"]},
    ),
    Fact(
        96,
        "MicrosoftDocs/azure-docs#87716 (2022): an array on the path, but for the article before the text",
        [
            collection(shardKey="in_network.name"),
            insert(
                {"_id": 1, "in_network": [{"name": "a"}]},
                answer=write_error(61, containing("document does not contain shard key at 'in_network.name'")),
            ),
        ],
    ),
    Fact(
        97,
        "a post on writes by _id",
        [
            collection(shardKey="pk"),
            update({"_id": 1}, {"$set": {"a": 1}}, UNTARGETED),
            command(UNTARGETED, delete="orders", deletes=[{"q": {"_id": 1}, "limit": 1}]),
        ],
    ),
    Fact(
        98,
        "microsoft/vscode-cosmosdb#1343 (2020)",
        [
            command(
                refused(
                    2,
                    "BadValue",
                    "Retryable writes are not supported. Please disable retryable writes by specifying"
                    ' "retrywrites=false" in the connection string or an equivalent driver specific config.',
                ),
                insert="orders",
                documents=[{"_id": 1}],
                lsid={"id": Binary((98).to_bytes(16, "big"), 4)},
                txnNumber=Int64(1),
            )
        ],
    ),
    Fact(
        99,
        "lukas-krecan/ShedLock#170 (3.6): an upsert whose _id is taken",
        [
            insert({"_id": "task", "lockUntil": 9}),
            command(
                {
                    "": {
                        "ok": 0.0,
                        "errmsg": "Error=117, Details='",
                        "code": 117,
                        "codeName": "ConflictingOperationInProgress",
                    }
                },
                findAndModify="orders",
                query={"_id": "task", "lockUntil": {"$lte": 5}},
                update={"$set": {"lockUntil": 10}},
                upsert=True,
            ),
        ],
        ("3.6",),
    ),
    # Change streams.
    Fact(
        101,
        "rwynn/monstache#624 (2022)",
        [
            collection(),
            aggregate(
                refused(2, "BadValue", "Change stream must be followed by a match and then a project stage"), *STREAM
            ),
        ],
    ),
    Fact(
        102,
        'Microsoft, "Change streams": a missing collection',
        [
            aggregate(
                {"code": 26, "codeName": "NamespaceNotFound"},
                {"$changeStream": {"fullDocument": "updateLookup"}},
                {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}},
                {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}},
            )
        ],
    ),
    Fact(
        103,
        "Cratis/Arc#1468 (2025)",
        [find({"ok": 0.0, "errmsg": "Collection not found"}), insert({"_id": 1}), find({"ok": 1})],
        settings={"refuse": ["missing-collection"]},
    ),
    # Microsoft's tables.
    Fact(
        106,
        "Microsoft, table of error codes",
        [
            collection(shardKey="pk"),
            update({"_id": 1}, {"$set": {"a": 1}}, {"code": 61}),
            insert({"_id": 1, "pk": 1}),
            update({"_id": 1, "pk": 1}, {"$set": {"pk": 2}}, write_error(66, containing(""))),
            index({f"f{n}": 1 for n in range(9)}, {"code": 67}),
            command({"code": 115}, mapReduce="orders"),
            fail("cosmosThrottle"),
            find({"code": 16500}),
            aggregate({"code": 40324}, {"$unheardOf": 1}),
        ],
    ),
    Fact(
        106,
        "Microsoft, table of error codes: 112, writes of two transactions to a document",
        [
            insert({"_id": 0}),
            Step({**UPDATE, **transaction(1106), "startTransaction": True}, {"nModified": 1}),
            Step(
                {**UPDATE, **transaction(1107), "startTransaction": True},
                {"ok": 0.0, "code": 112, "codeName": "WriteConflict"},
            ),
            Step({"abortTransaction": 1, **transaction(1106)}, {"ok": 1}),
        ],
        SINCE_4_0,
    ),
    *(
        Fact(107, f"Microsoft, features of 7.0: no {next(iter(stage))}", [aggregate({"code": 40324}, stage)], ("7.0",))
        for stage in _STAGES
    ),
    *(
        Fact(108, f"Microsoft, features of 7.0: no {next(iter(filter))} {name}", [find({"code": 2}, filter=filter)])
        for name, filter in (
            ("$centerSphere", {"a": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}}),
            ("$bitsAllSet", {"a": {"$bitsAllSet": 1}}),
            ("", {"$text": {"$search": "a"}}),
            ("", {"$where": "true"}),
            ("", {"$jsonSchema": {}}),
        )
    ),
    Fact(
        109,
        "Microsoft, features: a comparison with an array literal",
        [find({"code": 2}, filter={"$expr": {"$eq": ["$a", [1]]}})],
    ),
    Fact(
        110,
        "Microsoft, sample for Python (3.6)",
        [
            command(
                {
                    "": {
                        "version": "3.6.0",
                        "versionArray": [3, 6, 0, 0],
                        "bits": 64,
                        "maxBsonObjectSize": 16_777_216,
                        "ok": 1,
                    }
                },
                buildInfo=1,
            )
        ],
        ("3.6",),
    ),
]
# Where accounts differ: the same requests in accounts of other versions, or that are configured otherwise.
OTHERS = [
    Fact(48, "hello is answered by default", [command({"ok": 1, "isWritablePrimary": True}, hello=1)]),
    Fact(50, "hostInfo of later versions", [command({"ok": 1}, hostInfo=1)], SINCE_4_0),
    Fact(50, "hostInfo, allowed", [command({"ok": 1}, hostInfo=1)], ("3.6",), {"allow": ["hostInfo"]}),
    Fact(50, "hostInfo, refused", [command({"code": 115}, hostInfo=1)], ("7.0",), {"refuse": ["hostInfo"]}),
    Fact(
        55,
        "create of what exists, allowed",
        [command(create="a"), command({"ok": 1}, create="a")],
        settings={"allow": ["create-existing"]},
    ),
    Fact(
        58,
        "listCollections with all that MongoDB has",
        [
            insert({"_id": 1}),
            command({"cursor.firstBatch.0.info.readOnly": False}, listCollections=1),
        ],
        settings={"allow": ["collection-info"]},
    ),
    Fact(
        61,
        "a filter of listCollections is applied by default",
        [
            insert({"_id": 1}),
            command({"cursor.firstBatch.0.name": "orders"}, listCollections=1, filter={"name": "orders"}),
        ],
    ),
    Fact(63, "a name with a slash in later versions", [command({"code": 73}, create="a/b")], SINCE_4_0),
    Fact(
        78,
        "LINQ's Any with a condition in other versions",
        [insert({"_id": 1}), aggregate({"cursor.firstBatch": [{"_v": None}]}, {"$match": {"_id": 1}}, *ANY)],
        ("3.6", "4.0", "5.0", "6.0", "7.0"),
    ),
    Fact(
        78,
        "LINQ's Any with a condition, allowed",
        [insert({"_id": 1}), aggregate({"cursor.firstBatch": [{"_v": None}]}, {"$match": {"_id": 1}}, *ANY)],
        ("4.2",),
        {"allow": ["null-projection"]},
    ),
    Fact(
        81,
        "a positional projection is applied by default",
        [
            insert(GRADES),
            find(
                {"cursor.firstBatch": [{"_id": 1, "grades": [87]}]},
                filter={"semester": 1, "grades": {"$gte": 85}},
                projection={"grades.$": 1},
            ),
        ],
    ),
    *(
        Fact(
            99,
            f"an upsert whose _id is taken, {versions}, {settings}",
            [
                insert({"_id": "task", "lockUntil": 9}),
                command(
                    {"code": code},
                    findAndModify="orders",
                    query={"_id": "task", "lockUntil": {"$lte": 5}},
                    update={"$set": {"lockUntil": 10}},
                    upsert=True,
                ),
            ],
            versions,
            settings,
        )
        for versions, settings, code in (
            (SINCE_4_0, None, 11000),
            (("7.0",), {"refuse": ["upsert-conflict"]}, 117),
            (("3.6",), {"allow": ["upsert-conflict"]}, 11000),
        )
    ),
    Fact(103, "a find in a missing collection is empty by default", [find({"cursor.firstBatch": []})]),
    Fact(
        20,
        "a sort by two fields beside an equality, by default",
        [
            index({"created_at": -1, "priority": -1}),
            find({"ok": 1}, filter={"status": "pending"}, sort=SON([("created_at", -1), ("priority", -1)])),
        ],
    ),
    Fact(
        20,
        "Azure/cosmos-explorer#1343 (2022): a sort by two fields beside an equality",
        [
            index({"created_at": -1, "priority": -1}),
            find(NO_COMPOUND_SORT, filter={"status": "pending"}, sort=SON([("created_at", -1), ("priority", -1)])),
            index({"status": 1, "created_at": -1, "priority": -1}),
            find({"ok": 1}, filter={"status": "pending"}, sort=SON([("created_at", -1), ("priority", -1)])),
            find({"ok": 1}, sort=SON([("created_at", -1), ("priority", -1)])),
            find({"ok": 1}, filter={"created_at": 1}, sort=SON([("created_at", -1), ("priority", -1)])),
        ],
        settings={"refuse": ["filtered-compound-sort"]},
    ),
]
