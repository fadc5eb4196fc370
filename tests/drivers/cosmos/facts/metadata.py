"""Facts about databases, collections, indexes, and what a server says of itself."""

import re

from tests.drivers.answers import ABSENT, Document
from tests.drivers.cosmos.facts.facts import (
    BEFORE_4_2,
    SINCE_4_2,
    VERSIONS,
    Fact,
    Step,
    action,
    advance,
    collection,
    containing,
    fail,
    find,
    index,
    insert,
    refused,
    update,
)

FROZEN = refused(
    13,
    "Unauthorized",
    re.compile(
        r"Error=13, Details='.*Forbidden \(403\).*The unique index cannot be modified\. To change the unique index,"
        r" remove the collection and re-create a new one\..*"
    ),
)
NO_DATE_TTL = refused(2, "BadValue", "The 'expireAfterSeconds' option is supported on '_ts' field only.")
NESTED = refused(115, "CommandNotSupported", "Unique and compound indexes do not support nested paths.")
SECOND_TTL = refused(2, "BadValue", containing("TTL index is already set up"))
ID: Document = {"key": {"_id": 1}, "name": "_id_1"}
WIRE_VERSIONS = {"3.6": 6, "4.0": 7, "4.2": 8, "5.0": 13, "6.0": 17, "7.0": 21}
EXISTING: dict[str, Document] = {"CreateCollection": {"collection": "orders"}, "CreateDatabase": {}}
LIST_DATABASES: Document = {"listDatabases": 1, "nameOnly": True}


def sample(is_first: bool) -> list[Step]:
    """What Microsoft's sample for Python sends. is_first: whether it has not run before."""
    create = [
        Step(LIST_DATABASES, {"databases": []}),
        action("CreateDatabase", offerThroughput=400),
        Step({"listCollections": 1, "nameOnly": True}, {"cursor.firstBatch": []}),
        collection(),
    ]
    again = [
        Step(LIST_DATABASES, {"databases.0.name": "shop"}),
        Step({"listCollections": 1, "nameOnly": True}, {"cursor.firstBatch.0.name": "orders"}),
    ]
    written: Document = {"n": 1, "upserted": list if is_first else ABSENT}
    return [
        *(create if is_first else again),
        action("UpdateCollection", collection="orders", indexes=[ID, {"key": {"name": 2}, "name": "_id_2"}]),
        update({"name": "Yamba"}, {"$set": {"name": "Yamba", "sale": False}}, written, upsert=True),
        update({"name": "Adda"}, {"$set": {"name": "Adda", "sale": False}}, written, upsert=True),
        find(
            {"cursor.firstBatch.0.name": "Adda", "cursor.firstBatch.1.name": "Yamba", "cursor.firstBatch.2": ABSENT},
            sort={"name": 1},
        ),
    ]


FACTS = [
    # Unique indexes.
    Fact(
        1,
        "unique index over documents",
        [
            index({"a": 1}, unique=True),
            insert({"_id": 1, "a": 1, "b": 1}),
            index(
                {"b": 1},
                refused(67, "CannotCreateIndex", "Cannot create unique index when collection contains documents"),
                unique=True,
            ),
        ],
    ),
    Fact(
        2,
        "unique index by the wire with continuous backup",
        [
            index({"a": 1}, FROZEN, unique=True),
            collection(),
            index({"a": 1}, FROZEN, unique=True),
            insert({"_id": 1}),
            index({"a": 1}, FROZEN, unique=True),
            index({"a": 1}),
        ],
        settings={"backup": "continuous"},
    ),
    Fact(
        2,
        "unique index by CreateCollection with continuous backup",
        [
            collection(indexes=[ID, {"key": {"a": 1}, "name": "a_1", "unique": True}]),
            insert({"_id": 1, "a": 1}),
            insert(
                {"_id": 2, "a": 1},
                answer={"writeErrors.0.code": 11000, "writeErrors.0.errmsg": containing("E11000 duplicate key error")},
            ),
            Step({"dropIndexes": "orders", "index": "a_1"}, FROZEN),
        ],
        settings={"backup": "continuous"},
    ),
    Fact(
        3,
        "unique index without the shard key",
        [
            collection(shardKey="country"),
            index(
                {"name": 1},
                refused(
                    67,
                    "CannotCreateIndex",
                    re.compile(r"cannot create unique index over \{.*name.*\} with shard key pattern \{.*country.*\}"),
                ),
                unique=True,
            ),
            index({"country": 1, "name": 1}, unique=True),
        ],
    ),
    # What a server says of itself.
    *(
        Fact(
            4,
            "buildInfo",
            [
                Step(
                    {"buildInfo": 1},
                    {
                        "": {
                            "version": f"{version}.0",
                            "versionArray": [*map(int, version.split(".")), 0, 0],
                            "bits": 64,
                            "maxBsonObjectSize": 16_777_216,
                            "ok": 1,
                        }
                    },
                )
            ],
            [version],
        )
        for version in BEFORE_4_2
    ),
    *(
        Fact(
            4,
            "buildInfo with a type",
            [Step({"buildInfo": 1}, {"_t": "BuildInfoResponse", "version": f"{version}.0"})],
            [version],
        )
        for version in SINCE_4_2
    ),
    Fact(5, "serverStatus", [Step({"serverStatus": 1}, {"": {"ok": 1}})]),
    Fact(
        5,
        "serverStatus where what is missing is allowed",
        [Step({"serverStatus": 1}, {"process": "mongottl"})],
        settings={"allow": ["missing-features"]},
    ),
    *(
        Fact(
            number,
            "hello",
            [
                Step(
                    {"hello": 1},
                    {
                        "ok": 1,
                        "_t": "IsMasterResponse",
                        "setName": "globaldb",
                        "maxWireVersion": WIRE_VERSIONS[version],
                        "msg": ABSENT,
                        "operationTime": ABSENT,
                    },
                )
            ],
            [version],
        )
        for number in (46, 48)
        for version in (VERSIONS if number == 46 else ["3.6"])
    ),
    # Extension commands.
    Fact(
        6,
        "collection without shard key in a database with throughput",
        [
            action("CreateDatabase", offerThroughput=400),
            collection(),
            action(
                "GetCollection",
                {"ok": 1, "provisionedThroughput": ABSENT, "shardKeyDefinition": ABSENT},
                collection="orders",
            ),
        ],
    ),
    *(
        Fact(
            7,
            f"{name} of what exists",
            [
                action(name, **fields),
                action(
                    name,
                    {
                        "ok": 0.0,
                        "code": 117,
                        "errmsg": containing("Resource with specified id, name, or unique index already exists"),
                    },
                    **fields,
                ),
            ],
        )
        for name, fields in EXISTING.items()
    ),
    Fact(13, "Microsoft's sample, twice in a row", [*sample(True), *sample(False)]),
    Fact(
        14,
        "shardKeyDefinition",
        [
            collection(shardKey="address.country"),
            action("GetCollection", {"shardKeyDefinition": {"address.country": "hashed"}}, collection="orders"),
            action("CreateCollection", collection="unsharded"),
            action("GetCollection", {"ok": 1, "shardKeyDefinition": ABSENT}, collection="unsharded"),
        ],
    ),
    *(
        Fact(
            15,
            f"throughput {asked}",
            [collection({"code": 2}, **asked), action("CreateDatabase", {"code": 2}, **asked)],
        )
        for asked in (
            {"autoScaleSettings": {"maxThroughput": 999}},
            {"autoScaleSettings": {"maxThroughput": 1500}},
            {"offerThroughput": 450},
        )
    ),
    *(
        Fact(15, f"throughput {asked}", [collection(**asked), action("CreateDatabase", {"code": 117}, **asked)])
        for asked in (
            {"autoScaleSettings": {"maxThroughput": 1000}},
            {"autoScaleSettings": {"maxThroughput": 2000}},
            {"offerThroughput": 400},
            {"offerThroughput": 500},
        )
    ),
    # There, operations on metadata have a budget of their own; here, a fail point throttles them.
    Fact(
        18,
        "createIndexes is throttled",
        [
            fail("cosmosThrottle", commands=["createIndexes"]),
            index({"a": 1}, {"code": 16500, "codeName": "RequestRateTooLarge"}),
            index({"a": 1}),
        ],
    ),
    Fact(
        19,
        "creation while the service is unavailable",
        [
            fail("cosmosUnavailable", commands=["create"]),
            Step(
                {"create": "orders"},
                {"code": 1, "errmsg": re.compile(r"Error=1, .*ServiceUnavailable \(503\).*", re.DOTALL)},
            ),
            Step({"create": "orders"}),
        ],
    ),
    Fact(
        20,
        "creation that takes too long",
        [
            fail("cosmosTimeout", commands=["customAction"]),
            collection(refused(50, "ExceededTimeLimit", "Request timed out.")),
            collection(),
        ],
    ),
    # Indexes and TTL.
    Fact(33, "TTL on a date field", [index({"at": 1}, NO_DATE_TTL, expireAfterSeconds=10)]),
    *(
        Fact(
            33,
            f"TTL on {second} beside that on {first}",
            [
                index({first: 1}, expireAfterSeconds=10),
                index({second: 1}, SECOND_TTL, expireAfterSeconds=10),
            ],
            SINCE_4_2,
            {"capabilities": ["EnableTtlOnCustomPath"]},
        )
        for first, second in (("_ts", "at"), ("at", "_ts"), ("at", "due"))
    ),
    Fact(
        34,
        "collation of an index",
        [index({"a": 1}, {"code": 197, "codeName": "InvalidIndexSpecificationOption"}, collation={"locale": "en"})],
    ),
    Fact(
        35,
        "listIndexes",
        [
            index({"name": 1}),
            index({"_ts": 1}, expireAfterSeconds=10),
            Step(
                {"listIndexes": "orders"},
                {
                    "cursor.firstBatch": [
                        {"v": 1, "key": {"_id": 1}, "name": "_id_", "ns": "shop.orders"},
                        {"v": 1, "key": {"name": 1}, "name": "name_1", "ns": "shop.orders"},
                        {
                            "v": 1,
                            "key": {"_ts": 1},
                            "name": "_ts_1",
                            "ns": "shop.orders",
                            "expireAfterSeconds": 10,
                        },
                    ]
                },
            ),
        ],
    ),
    Fact(
        36,
        "an index with other options",
        [
            index({"_ts": 1}, expireAfterSeconds=10),
            index(
                {"_ts": 1},
                refused(85, "IndexOptionsConflict", containing("already exists with different options")),
                expireAfterSeconds=20,
            ),
        ],
    ),
    Fact(37, "unique index on a nested path", [index({"a.b": 1}, NESTED, unique=True)]),
    Fact(37, "compound index on a nested path", [index({"a.b": 1, "c": 1}, NESTED)]),
    Fact(
        37,
        "indexes on nested paths by a capability",
        [index({"a.b": 1, "c": 1}, unique=True)],
        settings={"capabilities": ["EnableUniqueCompoundNestedDocs"]},
    ),
    Fact(
        37,
        "TTL on a date field by a capability",
        [index({"at": 1}, expireAfterSeconds=10)],
        SINCE_4_2,
        {"capabilities": ["EnableTtlOnCustomPath"]},
    ),
    Fact(
        37,
        "TTL on a date field, which the capability does not bring before 4.2",
        [index({"at": 1}, NO_DATE_TTL, expireAfterSeconds=10)],
        BEFORE_4_2,
        {"capabilities": ["EnableTtlOnCustomPath"]},
    ),
    *(
        Fact(
            39,
            f"{capability} with continuous backup",
            [Step({"configureCosmos": {"capabilities": [capability], "backup": "continuous"}}, {"code": 2})],
        )
        for capability in ("EnableUniqueIndexReIndex", "EnableTtlOnCustomPath")
    ),
    Fact(
        40,
        "an expired document that is not deleted yet",
        [
            Step({"setParameter": 1, "ttlMonitorEnabled": False}),
            index({"_ts": 1}, expireAfterSeconds=10),
            insert({"_id": 1}),
            advance(11),
            find({"cursor.firstBatch": []}),
            Step({"count": "orders"}, {"n": 0}),
            Step({"setParameter": 1, "ttlMonitorEnabled": True}),
        ],
        settings={"allow": ["missing-features"]},
    ),
]
