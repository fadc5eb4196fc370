"""Commands that take several steps, and what other clients may do between two of them: two tables, and the fixtures
that both refer to.

`c` and `d` are collections, `v` is a view of `c`, `k` a capped collection. Every second document of `c` and of `d`
expires 30 seconds after it was written.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from bson import Binary, Int64

from mongottl.errors import ErrorCode

Document: TypeAlias = dict[str, Any]

SIZE: Final = 24
EXPIRES_S: Final = 30
LSID: Final = {"id": Binary(bytes(16), 4)}
OTHER_LSID: Final = {"id": Binary(b"o" * 16, 4)}
# Stands for the `_id` of the cursor that the last command of `before` has opened.
CURSOR: Final = Int64(0)
# Stands for the number of the operation under way.
OPERATION: Final = -1
# No command: the client of the command under way disconnects.
DISCONNECT: Final[Document] = {"disconnect": 1}
# What a transaction of another client has written, where a command waits for it.
CLAIMED: Final = 3
NEW_AND_CLAIMED: Final = 1000


class Case(NamedTuple):
    """A command. before: commands that run before it, to their end. waits: whether a transaction has written documents
    that the command writes, too. uses: collections that others change. codes: errors that it may answer with when
    others intervene, besides those of the intervention. whole: whether it changes all or nothing. dialect: of the
    server."""

    command: Document
    before: tuple[Document, ...] = ()
    waits: bool = False
    uses: str = "c"
    codes: frozenset[int] = frozenset()
    whole: bool = False
    dialect: str = "mongodb"


class Intervention(NamedTuple):
    """What another client does.

    commands: for the name of a collection, what it sends. codes: the errors that a command under way may answer with.
    harmless: whether a command that succeeds all the same must then have stored what it stores when it runs alone.
    ends: whether it ends the command, and changes nothing itself.
    """

    commands: Callable[[str], list[Document]]
    codes: frozenset[int] = frozenset()
    harmless: bool = False
    ends: bool = False


def documents(of: str) -> list[Document]:
    made = []
    for number in range(SIZE):
        document: Document = {
            "_id": number,
            "n": number % 7,
            "u": number,
            "of": of,
            "loc": [number, 0],
            "next": number + 1,
        }
        document["text"] = f"apple word{number % 3}"
        if number % 2:
            document["ttl"] = EXPIRES_S
        made.append(document)
    return made


def fixtures(dialect: str) -> list[Document]:
    made: list[Document] = []
    for name in ("c", "d"):
        specs: list[Document] = [
            {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": -1},
            {"key": {"n": 1}, "name": "n_1"},
        ]
        if dialect == "mongodb":
            specs += [
                {"key": {"u": 1}, "name": "u_1", "unique": True},
                {"key": {"text": "text"}, "name": "text_text"},
            ]
        made += [{"createIndexes": name, "indexes": specs}, {"insert": name, "documents": documents(name)}]
    if dialect == "mongodb":
        made += [
            {"create": "v", "viewOn": "c", "pipeline": [{"$match": {"n": {"$lt": 6}}}]},
            {"create": "k", "capped": True, "size": 100_000},
            {"insert": "k", "documents": [{"_id": number} for number in range(SIZE)]},
        ]
    return made


# What can be changed of the documents of a collection.
_INC: Final = {"$inc": {"mark": 1}}
_ALL: Final = {"q": {}, "u": _INC, "multi": True}
_UPSERTS: Final = [
    {"q": {"_id": number}, "u": {"$set": {"u": number}}, "upsert": True}
    for number in (CLAIMED - 1, *range(NEW_AND_CLAIMED - 1, NEW_AND_CLAIMED + 3), CLAIMED + 1)
]
_NEW: Final = [{"_id": number, "u": number} for number in range(NEW_AND_CLAIMED - 1, NEW_AND_CLAIMED + 3)]


def _codes(*codes: int) -> frozenset[int]:
    return frozenset(int(code) for code in codes)


def _aggregate(*stages: Document, of: str = "c", **options: Any) -> Document:
    return {"aggregate": of, "pipeline": list(stages), "cursor": {}, **options}


def _more(first: Document, of: str, **options: Any) -> Case:
    return Case({"getMore": CURSOR, "collection": of, "batchSize": 10_000, **options}, (first,), codes=_CURSOR_GONE)


def _index(key: Document, **options: Any) -> Document:
    return {"createIndexes": "c", "indexes": [{"key": key, "name": "made", **options}]}


_CURSOR_GONE: Final = _codes(ErrorCode.QueryPlanKilled, ErrorCode.CursorNotFound)
_ABORTED: Final = _codes(ErrorCode.NoSuchTransaction, ErrorCode.WriteConflict, ErrorCode.SnapshotUnavailable)
_CHANGED: Final = _codes(ErrorCode.CommandFailed)
# Of $out, if its target is a capped collection when it begins.
_CAPPED_TARGET: Final = 17152
_NO_INDEX: Final = _codes(ErrorCode.IndexNotFound)
_NO_HINTED: Final = _codes(ErrorCode.BadValue)
_BUILD_ABORTED: Final = _codes(ErrorCode.IndexBuildAborted, ErrorCode.IndexKeySpecsConflict)
_SMALL: Final = {"batchSize": 3}
_LOOKUP: Final = {"$lookup": {"from": "d", "localField": "n", "foreignField": "n", "as": "found"}}
_MARKED: Final = {"$set": {"mark": 1}}
_TO_D: Final = {"into": "d", "on": "u", "whenMatched": [{"$set": {"mark": "$$new.u"}}]}
_GRAPH: Final = {
    "$graphLookup": {
        "from": "d",
        "startWith": "$n",
        "connectFromField": "next",
        "connectToField": "_id",
        "maxDepth": 3,
        "as": "found",
    }
}
_WINDOW: Final = {
    "$setWindowFields": {"sortBy": {"u": 1}, "output": {"sum": {"$sum": "$n", "window": {"documents": [-2, 0]}}}}
}
LONG: Final[Document] = {
    "_id": "long",
    "u": [*range(2000, 2010)],
    "n": 6,
    "text": "apple pear",
    "ttl": EXPIRES_S,
    "filler": "x" * (1 << 20),
}
_WITH_LONG: Final = ({"insert": "c", "documents": [LONG]},)
STATEMENT: Final = {"lsid": LSID, "txnNumber": Int64(7), "autocommit": False}

CASES: Final[dict[str, Case]] = {
    # Reads
    "find": Case({"find": "c"}),
    "find with an index": Case({"find": "c", "filter": {"n": {"$gte": 1}}, "hint": "n_1"}, codes=_NO_HINTED),
    "find, sorted": Case({"find": "c", "sort": {"loc": -1}}),
    "find with $or": Case({"find": "c", "filter": {"$or": [{"n": 3}, {"u": {"$gt": 5}}]}, "skip": 2}),
    "find of words": Case({"find": "c", "filter": {"$text": {"$search": "apple"}}}, codes=_NO_INDEX),
    "find in a view": Case({"find": "v", "sort": {"u": -1}}),
    "find in a snapshot": Case({"find": "c", "readConcern": {"level": "snapshot"}}),
    "count": Case({"count": "c", "query": {"u": {"$gte": 0}, "loc": {"$exists": True}}}),
    "distinct": Case({"distinct": "c", "key": "text"}),
    "explain a find": Case({"explain": {"find": "c", "filter": {"n": {"$gte": 0}}}, "verbosity": "executionStats"}),
    "explain an update": Case({"explain": {"update": "c", "updates": [_ALL]}, "verbosity": "executionStats"}),
    "explain an aggregate": Case({"explain": _aggregate(_LOOKUP), "verbosity": "executionStats"}, uses="cd"),
    "aggregate, grouped": Case(_aggregate({"$group": {"_id": "$n", "sum": {"$sum": "$u"}}})),
    "aggregate with $lookup": Case(_aggregate(_LOOKUP), uses="cd"),
    "aggregate with $lookup of a view": Case(
        _aggregate({"$lookup": {**_LOOKUP["$lookup"], "from": "v"}}, of="d"), uses="cd"
    ),
    "aggregate with $graphLookup": Case(_aggregate(_GRAPH), uses="cd"),
    "aggregate with $unionWith": Case(_aggregate({"$unionWith": "d"}, {"$sort": {"u": 1}}), uses="cd"),
    "aggregate with $facet": Case(_aggregate({"$facet": {"a": [{"$sort": {"loc": 1}}], "b": [{"$count": "n"}]}})),
    "aggregate with $setWindowFields": Case(_aggregate(_WINDOW)),
    "aggregate with $sample": Case(_aggregate({"$sample": {"size": 3}})),
    "getMore of a find": _more({"find": "c", **_SMALL}, "c"),
    "getMore of an index": _more({"find": "c", "hint": "n_1", "filter": {"n": {"$gte": 0}}, **_SMALL}, "c"),
    "getMore of a sort": _more({"find": "c", "sort": {"loc": 1}, **_SMALL}, "c"),
    "getMore of $lookup": _more(_aggregate(_LOOKUP, cursor=_SMALL), "c")._replace(uses="cd"),
    "getMore of $unionWith": _more(_aggregate({"$unionWith": "d"}, cursor=_SMALL), "c")._replace(uses="cd"),
    "getMore of a view": _more({"find": "v", **_SMALL}, "v"),
    "getMore of a tailable cursor": _more(
        {"find": "k", "tailable": True, "awaitData": True, **_SMALL}, "k", maxTimeMS=100
    )._replace(uses="k", codes=_CURSOR_GONE | {ErrorCode.CappedPositionLost}),
    "getMore of a change stream": _more(_aggregate({"$changeStream": {}}), "c", maxTimeMS=1000)._replace(
        codes=_codes(ErrorCode.ChangeStreamHistoryLost)
    ),
    "validate": Case({"validate": "c", "full": True}),
    "dbHash": Case({"dbHash": 1}, uses="cd"),
    # Writes
    "insert": Case({"insert": "c", "documents": _NEW}, waits=True),
    "insert, unordered": Case({"insert": "c", "documents": _NEW, "ordered": False}, waits=True),
    "insert, retryable": Case({"insert": "c", "documents": _NEW, "lsid": LSID, "txnNumber": Int64(1)}, waits=True),
    "update of one": Case({"update": "c", "updates": [{"q": {"_id": CLAIMED}, "u": _INC}]}, waits=True),
    "updates by _id": Case(
        {"update": "c", "updates": [{"q": {"_id": number}, "u": _INC} for number in range(CLAIMED + 3)]}, waits=True
    ),
    "upserts by _id": Case({"update": "c", "updates": _UPSERTS, "ordered": False}, waits=True),
    "upserts by _id, retryable": Case(
        {"update": "c", "updates": _UPSERTS, "lsid": LSID, "txnNumber": Int64(1)}, waits=True
    ),
    "update of several": Case({"update": "c", "updates": [_ALL]}),
    "update of several, which waits": Case({"update": "c", "updates": [_ALL]}, waits=True),
    "update by an index": Case(
        {"update": "c", "updates": [{"q": {"n": {"$gt": 1}}, "u": {"$inc": {"n": 1}}, "multi": True}]}
    ),
    "update by a pipeline": Case(
        {
            "update": "c",
            "updates": [{"q": {"u": {"$gt": 1}}, "u": [{"$set": {"mark": "$n"}}], "multi": True}],
        }
    ),
    "update, or insert": Case(
        {
            "update": "c",
            "updates": [{"q": {"_id": NEW_AND_CLAIMED}, "u": {"$set": {"u": -1000}}, "upsert": True}],
        },
        waits=True,
    ),
    "delete of several": Case({"delete": "c", "deletes": [{"q": {"n": {"$lt": 5}}, "limit": 0}]}),
    "delete of several, which waits": Case({"delete": "c", "deletes": [{"q": {}, "limit": 0}]}, waits=True),
    "delete of one": Case({"delete": "c", "deletes": [{"q": {"u": CLAIMED}, "limit": 1}]}, waits=True),
    "deletes by _id": Case(
        {"delete": "c", "deletes": [{"q": {"_id": number}, "limit": 1} for number in range(CLAIMED + 3)]}, waits=True
    ),
    "findAndModify": Case({"findAndModify": "c", "query": {"u": CLAIMED}, "update": _INC}, waits=True),
    "findAndModify, sorted": Case(
        {"findAndModify": "c", "query": {"n": {"$gt": 0}}, "sort": {"u": -1}, "update": _INC}
    ),
    "findAndModify, removing": Case({"findAndModify": "c", "query": {"u": CLAIMED}, "remove": True}, waits=True),
    "bulkWrite": Case(
        {
            "bulkWrite": 1,
            "ops": [
                {"insert": 0, "document": {"_id": NEW_AND_CLAIMED, "u": NEW_AND_CLAIMED}},
                {"update": 1, "filter": {}, "updateMods": _INC, "multi": True},
                {"insert": 0, "document": {"_id": NEW_AND_CLAIMED + 1, "u": "new"}},
                {"delete": 1, "filter": {"n": {"$lt": 3}}, "multi": True},
            ],
            "nsInfo": [{"ns": "test.c"}, {"ns": "test.d"}],
            "ordered": False,
            "$db": "admin",
        },
        waits=True,
        uses="cd",
    ),
    "statement of a transaction": Case(
        {"update": "c", "updates": [_ALL], **STATEMENT, "startTransaction": True},
        codes=_ABORTED | {ErrorCode.OperationNotSupportedInTransaction},
    ),
    "read of a transaction": Case(
        {"find": "c", "sort": {"loc": 1}, **STATEMENT},
        ({"insert": "d", "documents": [{"_id": "t"}], **STATEMENT, "startTransaction": True},),
        uses="cd",
        codes=_ABORTED,
    ),
    "commit of a transaction": Case(
        {"commitTransaction": 1, **STATEMENT, "$db": "admin", "writeConcern": {"w": 1, "j": True}},
        ({"update": "c", "updates": [_ALL], **STATEMENT, "startTransaction": True},),
        codes=_ABORTED,
    ),
    "aggregate with $out": Case(_aggregate(_MARKED, {"$out": "made"}), codes=_CHANGED, whole=True),
    "aggregate with $out over its source": Case(
        _aggregate(_MARKED, {"$out": "c"}), codes=_CHANGED | {_CAPPED_TARGET}, whole=True
    ),
    "aggregate with $out over another": Case(
        _aggregate(_MARKED, {"$out": "d"}), uses="cd", codes=_CHANGED | {_CAPPED_TARGET}, whole=True
    ),
    "aggregate with $merge": Case(_aggregate(_MARKED, {"$merge": "made"})),
    "aggregate with $merge, which waits": Case(_aggregate(_MARKED, {"$merge": "c"}, of="d"), waits=True, uses="cd"),
    "aggregate with $merge of new ones": Case(
        _aggregate(
            {"$match": {"u": {"$gte": 0}}},
            {"$project": {"_id": {"$add": ["$u", NEW_AND_CLAIMED]}, "u": {"$add": ["$u", NEW_AND_CLAIMED]}}},
            {"$merge": {"into": "c", "whenMatched": "fail"}},
            of="d",
        ),
        waits=True,
        uses="cd",
    ),
    "aggregate with $merge by a pipeline": Case(
        _aggregate({"$merge": _TO_D}),
        uses="cd",
        codes=_codes(51183),
    ),
    # Documents that are so long that their keys are made before the unit of work
    "bulkWrite of long documents": Case(
        {
            "bulkWrite": 1,
            "ops": [
                {"insert": 0, "document": LONG},
                {"insert": 0, "document": {**LONG, "_id": "other", "u": 3000}},
                {"update": 0, "filter": {"_id": LONG["_id"]}, "updateMods": {"$push": {"u": 5000}}},
                {"update": 1, "filter": {}, "updateMods": _INC, "multi": True},
            ],
            "nsInfo": [{"ns": "test.c"}, {"ns": "test.d"}],
            "ordered": False,
            "$db": "admin",
        },
        uses="cd",
    ),
    "update of several, one long": Case(
        {"update": "c", "updates": [{"q": {}, "u": {"$set": {"n": 8}}, "multi": True}]}, _WITH_LONG
    ),
    "delete of a long document": Case({"delete": "c", "deletes": [{"q": {"n": 6}, "limit": 0}]}, _WITH_LONG),
    "createIndexes over a long document": Case(_index({"n": 1, "of": 1}), _WITH_LONG, codes=_BUILD_ABORTED, whole=True),
    # Collections and indexes
    "createIndexes": Case(_index({"loc": 1}), codes=_BUILD_ABORTED, whole=True),
    "createIndexes, unique": Case(_index({"u": 1, "n": 1}, unique=True), codes=_BUILD_ABORTED, whole=True),
    "createIndexes on the sphere": Case(_index({"loc": "2dsphere"}), codes=_BUILD_ABORTED, whole=True),
    "createIndexes for TTL": Case(_index({"at": 1}, expireAfterSeconds=5), codes=_BUILD_ABORTED, whole=True),
    "createIndexes, which waits": Case(_index({"loc": 1}), waits=True, codes=_BUILD_ABORTED, whole=True),
    "dropIndexes, which waits": Case({"dropIndexes": "c", "index": "n_1"}, waits=True, codes=_NO_INDEX, whole=True),
    "collMod to a unique index": Case(
        {"collMod": "c", "index": {"keyPattern": {"next": 1}, "unique": True}},
        (
            {"createIndexes": "c", "indexes": [{"key": {"next": 1}, "name": "next_1"}]},
            {"collMod": "c", "index": {"keyPattern": {"next": 1}, "prepareUnique": True}},
        ),
        codes=_codes(ErrorCode.IndexBuildAborted, ErrorCode.IndexNotFound),
        whole=True,
    ),
    "collMod, which waits": Case({"collMod": "c", "validator": {"u": {"$gte": 0}}}, waits=True, whole=True),
    "cloneCollectionAsCapped": Case(
        {"cloneCollectionAsCapped": "c", "toCollection": "made", "size": 100_000}, whole=True
    ),
    "cloneCollectionAsCapped of some": Case(
        {"cloneCollectionAsCapped": "c", "toCollection": "made", "size": 600}, whole=True
    ),
    "convertToCapped": Case({"convertToCapped": "c", "size": 100_000}, whole=True),
    "convertToCapped of some": Case({"convertToCapped": "c", "size": 600}, whole=True),
    "renameCollection, which waits": Case(
        {"renameCollection": "test.c", "to": "test.made", "$db": "admin"}, waits=True, whole=True
    ),
    "drop, which waits": Case({"drop": "c"}, waits=True, whole=True),
    "dropDatabase, which waits": Case({"dropDatabase": 1}, waits=True, uses="cd"),
    # The dialect cosmos
    "insert, throttled": Case(
        {"insert": "c", "documents": [{"_id": 1000, "text": "x" * 100_000}, {"_id": 1001}, {"_id": 1002}]},
        (
            {
                "configureCosmos": {"throughput": "enforced", "capabilities": ["DisableRateLimitingResponses"]},
                "$db": "admin",
            },
        ),
        dialect="cosmos",
    ),
    "customAction UpdateCollection": Case(
        {
            "customAction": "UpdateCollection",
            "collection": "c",
            "indexes": [
                {"key": {"_id": 1}, "name": "_id_1"},
                {"key": {"u": 1}, "name": "u_1"},
                {"key": {"loc": 1}, "name": "loc_1"},
            ],
        },
        codes=_BUILD_ABORTED,
        whole=True,
        dialect="cosmos",
    ),
    "reIndex": Case({"reIndex": "c"}, codes=_BUILD_ABORTED, whole=True, dialect="cosmos"),
}


_GONE: Final = _codes(ErrorCode.QueryPlanKilled, ErrorCode.NamespaceNotFound)
_ENDED: Final = _codes(ErrorCode.Interrupted)

INTERVENTIONS: Final[dict[str, Intervention]] = {
    "nothing": Intervention(lambda name: [{"ping": 1}], harmless=True),
    "drops it": Intervention(lambda name: [{"drop": name}], _GONE),
    "makes it again": Intervention(
        lambda name: [{"drop": name}, {"insert": name, "documents": [{"_id": 5, "u": 5}, {"_id": "new"}]}], _GONE
    ),
    "drops the database": Intervention(lambda name: [{"dropDatabase": 1}], _GONE),
    "renames it": Intervention(
        lambda name: [{"renameCollection": f"test.{name}", "to": "test.renamed", "$db": "admin"}], _GONE
    ),
    "renames another over it": Intervention(
        lambda name: [
            {"insert": "another", "documents": [{"_id": 5, "u": 5}, {"_id": "new"}]},
            {"renameCollection": "test.another", "to": f"test.{name}", "dropTarget": True, "$db": "admin"},
        ],
        _GONE,
    ),
    "empties it": Intervention(lambda name: [{"delete": name, "deletes": [{"q": {}, "limit": 0}]}]),
    "inserts and updates": Intervention(
        lambda name: [
            {"insert": name, "documents": [{"_id": -number, "u": -number, "n": number} for number in range(1, 6)]},
            {"update": name, "updates": [{"q": {"n": {"$gt": 3}}, "u": {"$inc": {"n": 1}}, "multi": True}]},
        ],
    ),
    "drops the indexes": Intervention(
        lambda name: [{"dropIndexes": name, "index": "*"}], _codes(ErrorCode.QueryPlanKilled), harmless=True
    ),
    "makes an index": Intervention(
        lambda name: [{"createIndexes": name, "indexes": [{"key": {"other": 1}, "name": "other_1"}]}], harmless=True
    ),
    "makes the index that it makes": Intervention(lambda name: [_index({"loc": 1})], harmless=True),
    "makes the collection that it makes": Intervention(
        lambda name: [{"insert": "made", "documents": [{"_id": "new"}]}],
        _codes(ErrorCode.NamespaceExists, ErrorCode.CommandFailed),
    ),
    "converts it to a capped one": Intervention(lambda name: [{"convertToCapped": name, "size": 100_000}], _GONE),
    "sets a validator": Intervention(
        lambda name: [{"collMod": name, "validator": {"no": True}}], _codes(ErrorCode.DocumentValidationFailure)
    ),
    "kills it": Intervention(lambda name: [{"killOp": 1, "op": OPERATION, "$db": "admin"}], _ENDED, True, True),
    "ends its session": Intervention(lambda name: [{"killSessions": [LSID]}], _ENDED, True, True),
    "lets documents expire": Intervention(lambda name: [{"advanceClock": EXPIRES_S + 1, "$db": "admin"}]),
    "lets documents expire, which are not purged": Intervention(
        lambda name: [
            {"setParameter": 1, "ttlMonitorEnabled": False, "$db": "admin"},
            {"advanceClock": EXPIRES_S + 1, "$db": "admin"},
        ]
    ),
    "lets documents expire, and drops it": Intervention(
        lambda name: [{"advanceClock": EXPIRES_S + 1, "$db": "admin"}, {"drop": name}], _GONE
    ),
    "saves the state": Intervention(lambda name: [{"saveState": "meanwhile", "$db": "admin"}], harmless=True),
    "restores the state": Intervention(lambda name: [{"restoreState": "fixtures", "$db": "admin"}], _ENDED),
    "aborts a transaction": Intervention(
        lambda name: [
            {"update": name, "updates": [_ALL], **_other(1), "startTransaction": True},
            {"abortTransaction": 1, **_other(1), "$db": "admin"},
        ],
        harmless=True,
    ),
    "commits a transaction": Intervention(
        lambda name: [
            {"delete": name, "deletes": [{"q": {"n": {"$gt": 4}}, "limit": 0}], **_other(1), "startTransaction": True},
            {"insert": name, "documents": [{"_id": "t"}], **_other(1)},
            {"commitTransaction": 1, **_other(1), "$db": "admin"},
        ],
        _codes(ErrorCode.WriteConflict),
    ),
    "locks and unlocks": Intervention(
        lambda name: [{"fsync": 1, "lock": True, "$db": "admin"}, {"fsyncUnlock": 1, "$db": "admin"}], harmless=True
    ),
    "ends its connection": Intervention(lambda name: [DISCONNECT], ends=True),
}


def _other(number: int) -> Document:
    """A statement of another client's transaction."""
    return {"lsid": OTHER_LSID, "txnNumber": Int64(number), "autocommit": False}


CLAIM: Final[list[Document]] = [
    {"update": "c", "updates": [{"q": {"_id": CLAIMED}, "u": _INC}], **_other(0), "startTransaction": True},
    {"insert": "c", "documents": [{"_id": NEW_AND_CLAIMED, "u": NEW_AND_CLAIMED}], **_other(0)},
]


def end_of_claim(commits: bool) -> Document:
    """Ends the transaction for which a command waits."""
    return {"commitTransaction" if commits else "abortTransaction": 1, **_other(0), "$db": "admin"}
