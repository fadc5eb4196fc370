"""Facts about reads and writes: limits, throttling, charges, shard keys and change streams."""

import re

from bson import Int64

from tests.drivers.answers import ABSENT, CURSOR, Document
from tests.drivers.cosmos.facts.facts import (
    GUID,
    SINCE_4_0,
    Fact,
    Step,
    advance,
    charged,
    collection,
    delete_many,
    fail,
    find,
    index,
    insert,
    refused,
    sized,
    update,
    write_error,
)

MB = 1024 * 1024
TOO_LARGE = re.compile(
    r"Error=16, Details='Response status code does not indicate success: RequestEntityTooLarge \(413\);.*"
)
UNTARGETED = refused(61, "ShardKeyNotFound", "query in command must target a single shard key")
ENFORCED: Document = {"throughput": "enforced"}


def rate_too_large(retry_after_ms: int) -> re.Pattern[str]:
    """The text of a single read or write."""
    return re.compile(
        rf"Error=16500, RetryAfterMs={retry_after_ms}, Details='Response status code does not indicate success: "
        rf"TooManyRequests \(429\); Substatus: 3200; ActivityId: {GUID}; Reason: \(.*Request rate is large\. More "
        r"Request Units may be needed, so no changes were made\. Please retry this request later\..*",
        re.DOTALL,
    )


def batch(first: int, count: int, answer: Document) -> Step:
    """An insert of documents of 1 KB, of which each costs 5.5 request units."""
    return insert(*(sized(n) for n in range(first, first + count)), answer=answer)


STREAM: Document = {"$changeStream": {"fullDocument": "updateLookup"}}
PROJECT: Document = {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}}


def watch(answer: Document, *stages: Document, watched: str | int = "orders") -> Step:
    return Step({"aggregate": watched, "pipeline": [STREAM, *stages], "cursor": {}}, answer)


RULE = refused(2, "BadValue", "Change stream must be followed by a match and then a project stage")
ALL_TYPES: Document = {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}}

FACTS = [
    Fact(
        8,
        "code name of a throttled request",
        [
            fail("cosmosThrottle", retryAfterMs=34),
            find(refused(16500, "RequestRateTooLarge", rate_too_large(34))),
            find(),
        ],
    ),
    *(
        Fact(
            9,
            f"text of a request that takes too long, {form}",
            [fail("cosmosTimeout", form=form), find(refused(50, "ExceededTimeLimit", text))],
        )
        for form, text in {
            "plain": "Request timed out.",
            "rateLimited": "Request timed out. Retries due to rate limiting: True.",
            "notRateLimited": "Request timed out. Retries due to rate limiting: False.",
        }.items()
    ),
    Fact(
        10,
        "code name of a document that is too large",
        [
            Step(
                {"findAndModify": "orders", "query": {"_id": 1}, "update": sized(1, 2 * MB + 1), "upsert": True},
                refused(16, "InvalidLength", TOO_LARGE),
            ),
            insert(sized(1, 2 * MB + 1), answer=write_error(16, TOO_LARGE)),
            insert(sized(1, 2 * MB)),
        ],
    ),
    # The budget: 400 units in each second of the clock, which stands at a whole second.
    Fact(
        11,
        "a second begins with the whole budget",
        [
            collection(),
            advance(0.9),
            batch(0, 100, write_error(16500, re.compile("Error=16500, RetryAfterMs=100, .*"), index=73)),
            advance(0.1),
            batch(100, 70, {"n": 70, "writeErrors": ABSENT}),
        ],
        settings=ENFORCED,
    ),
    Fact(
        11,
        "nothing is saved for later seconds",
        [
            collection(),
            advance(100),
            batch(0, 100, {"n": 73, "writeErrors.0.code": 16500}),
        ],
        settings=ENFORCED,
    ),
    Fact(
        12,
        "charges of writes and point reads",
        [
            insert(sized(1)),
            charged(5.5),
            update({"_id": 1}, sized(1, n=1)),
            charged(11.0),
            find({"cursor.firstBatch.0._id": 1}, filter={"_id": 1}),
            charged(1.0),
            insert(sized(2, 100 * 1024)),
            find({"cursor.firstBatch.0._id": 2}, filter={"_id": 2}),
            charged(10.0),
        ],
    ),
    # Texts of throttled requests.
    Fact(
        21,
        "text of a throttled batch",
        [
            fail("cosmosThrottle", retryAfterMs=4),
            insert(
                {"_id": 1},
                {"_id": 2},
                answer=write_error(16500, "Error=16500, RetryAfterMs=4, Details='Batch write error."),
            ),
        ],
    ),
    Fact(
        22,
        "text without a hint",
        [
            fail("cosmosThrottle", form="noHint"),
            insert({"_id": 1}, answer=write_error(16500, "Error=16500, Details='Insert error.'")),
        ],
    ),
    *(
        Fact(
            23,
            f"ActivityId of a single {next(iter(step.command))}",
            [fail("cosmosThrottle", retryAfterMs=10), step],
        )
        for step in (
            find({"errmsg": rate_too_large(10)}),
            insert({"_id": 1}, answer=write_error(16500, rate_too_large(10))),
            update({"_id": 1}, {"$set": {"a": 1}}, write_error(16500, rate_too_large(10))),
            delete_many({}, write_error(16500, rate_too_large(10))),
        )
    ),
    *(
        Fact(
            24,
            f"hint of {hint} ms",
            [fail("cosmosThrottle", retryAfterMs=hint), find({"errmsg": rate_too_large(hint)})],
        )
        for hint in (4, 7, 8, 10, 34, 125, 214, 292, 500)
    ),
    Fact(
        25,
        "there is no field for the hint",
        [
            fail("cosmosThrottle"),
            find({"code": 16500, "RetryAfterMs": ABSENT, "retryAfterMs": ABSENT}),
            fail("cosmosThrottle"),
            insert(
                {"_id": 1},
                answer={"writeErrors.0.code": 16500, "writeErrors.0.RetryAfterMs": ABSENT, "RetryAfterMs": ABSENT},
            ),
        ],
    ),
    Fact(28, "charge of a throttled request", [fail("cosmosThrottle"), find({"code": 16500}), charged(0.38)]),
    # Charges.
    # 1,000 RU for what is returned, and what finding it costs by the model.
    Fact(
        29,
        "1,000 results of 1 KB, at once, again, and in pages",
        [
            insert(*(sized(n) for n in range(1000))),
            find({"cursor.id": 0}, batchSize=1001),
            charged(1037.8),
            find({"cursor.id": 0}, batchSize=1001),
            charged(1037.8),
            Step({"getRequestUnits": 1, "reset": True}),
            find(batchSize=300),
            Step({"getMore": CURSOR, "collection": "orders", "batchSize": 300}, {"ok": 1}),
            Step({"getMore": CURSOR, "collection": "orders"}, {"cursor.id": 0}),
            Step({"getRequestUnits": 1}, {"total": 1037.8}),
        ],
    ),
    Fact(
        31,
        "statistics of the last request",
        [
            index({"$**": 1}),
            insert({"_id": 1, "name": "a", "city": "b"}),
            Step(
                {"getLastRequestStatistics": 1},
                {
                    "_t": ABSENT,
                    "CommandName": "insert",
                    "RequestCharge": float,
                    "RequestDurationInMilliSeconds": Int64,
                    "ok": 1,
                },
            ),
        ],
    ),
    # Sharded collections.
    Fact(
        41,
        "an insert without shard key",
        [
            collection(shardKey="email"),
            insert({"_id": 1}, answer=write_error(61, "document does not contain shard key at 'email'")),
        ],
    ),
    Fact(
        42,
        "deletion of many without shard key",
        [collection(shardKey="email"), insert({"_id": 1, "email": "a"}), delete_many({"_id": 1}, {"ok": 1, "n": 1})],
    ),
    Fact(
        42,
        "deletion of many without shard key, with retryable writes",
        [
            collection(shardKey="email"),
            insert({"_id": 1, "email": "a"}),
            delete_many({"_id": 1}, UNTARGETED),
            delete_many({"email": "a"}, {"ok": 1, "n": 1}),
        ],
        SINCE_4_0,
        {"capabilities": ["EnableMongoRetryableWrites"]},
    ),
    Fact(
        42,
        "deletion of many without shard key, with a capability that has no effect before 4.0",
        [collection(shardKey="email"), insert({"_id": 1, "email": "a"}), delete_many({"_id": 1}, {"ok": 1, "n": 1})],
        ["3.6"],
        {"capabilities": ["EnableMongoRetryableWrites"]},
    ),
    # Change streams.
    *(
        Fact(
            44,
            f"operation types {match} select nothing",
            [
                collection(),
                insert({"_id": 1}),
                watch({"ok": 1}, {"$match": match}, PROJECT),
                update({"_id": 1}, {"$set": {"a": 1}}),
                Step(
                    {"getMore": CURSOR, "collection": "orders"},
                    {"cursor.nextBatch.0.fullDocument": {"_id": 1, "a": 1}, "cursor.nextBatch.1": ABSENT},
                ),
            ],
        )
        for match in (
            {"operationType": "insert"},
            {"operationType": {"$in": ["insert", "replace"]}},
            {"$or": [{"operationType": "insert"}]},
        )
    ),
    Fact(
        44,
        "a database cannot be watched",
        [watch(refused(14, "TypeMismatch", "Expected type string but found int."), ALL_TYPES, PROJECT, watched=1)],
    ),
    *(
        Fact(45, f"text for a stream followed by {len(stages)} stages", [collection(), watch(RULE, *stages)])
        for stages in ((), (ALL_TYPES,), (PROJECT, ALL_TYPES), (ALL_TYPES, PROJECT, {"$addFields": {"a": 1}}))
    ),
    Fact(45, "a match and then a project stage", [collection(), watch({"ok": 1}, ALL_TYPES, PROJECT)]),
]
