"""Time to live by a table of test vectors, in both dialects and under each version of Cosmos DB.

The numbers are those of the project's table of test vectors, which is kept with its design notes.

    second   0          3                  9.999  10
             insert     $set: {ttl: 7}     there  not there any more
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bson import Decimal128, Int64

import mongottl
from tests.drivers.answers import ABSENT, CURSOR, Document, TableClient, check
from tests.drivers.wire_client import WireClient
from tests.on_nodes import node_uris

COSMOS_VERSIONS = ["3.6", "4.0", "4.2", "5.0", "6.0", "7.0"]
# Dialect and version; whether the data are in files; whether expired documents are deleted at once. Where they are not,
# it shows whether commands leave out what is expired.
SERVERS = [
    "mongodb",
    "mongodb stored",
    "mongodb stored purging",
    *(f"cosmos {version}" for version in COSMOS_VERSIONS),
    "cosmos 7.0 stored",
    "cosmos 7.0 stored purging",
]
COSMOS = [server for server in SERVERS if server.startswith("cosmos")]
# Those with TTL on a date field by the capability of the account.
WITH_CUSTOM_TTL = [server for server in COSMOS if "3.6" not in server and "4.0" not in server]

START_S = 1_800_000_000  # second 0 of most rows, in the year 2027
MOMENT_S = 0.001
NEVER = math.inf
FAR_S = 2**31  # seconds after which no int32 can let a document expire
OFF = None  # the default of a collection without TTL


class Server:
    """A client of a server whose clock stands still unless a row moves it."""

    def __init__(self, running: mongottl.RunningServer, purges: bool) -> None:
        self._running = running
        self._client = TableClient(running.uri)
        self._now_s = running.clock.now().timestamp()
        self.purges = purges
        self.close = self._client.close

    def go_to(self, second: float) -> None:
        """Sets the clock. second: since 1970."""
        self._running.clock.advance(second - self._now_s)
        self._now_s = second

    def command(self, command: Document, database: str = "vectors") -> Document:
        return self._client.command(command, database)

    def read(self, command: Document) -> Document:
        """The reply to a command that succeeds."""
        reply = self.command(command)
        assert reply["ok"] == 1, reply
        return reply

    def set_purging(self, purging: bool) -> None:
        """Whether expired documents are deleted."""
        for uri in node_uris(self._running):
            with closing(WireClient(uri)) as node:
                was = node.command({"configureCosmos": {"allow": ["missing-features"]}}, "admin").get("was")
                assert node.refusal({"setParameter": 1, "ttlMonitorEnabled": purging}, "admin") == (0, "")
                if was is not None:
                    node.command({"configureCosmos": was}, "admin")

    def shows(self) -> bool:
        """Whether document 1 is there, on which all kinds of reading must agree."""
        only: Document = {"_id": 1}
        by_id = self.read({"find": "documents", "filter": only})["cursor"]["firstBatch"]
        scanned = self.read({"find": "documents", "filter": {"$expr": {"$eq": ["$_id", 1]}}})["cursor"]["firstBatch"]
        counted = self.read({"count": "documents", "query": only})["n"]
        distinct = self.read({"distinct": "documents", "key": "_id", "query": only})["values"]
        found = [len(by_id), len(scanned), counted, len(distinct)]
        assert found in ([0] * 4, [1] * 4)
        return found == [1] * 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        opened: dict[str, Server] = {}
        for name in SERVERS:
            dialect, _, rest = name.partition(" ")
            version = rest.partition(" ")[0] if dialect == "cosmos" else ""
            folder: Path | None = tmp_path_factory.mktemp("data") if "stored" in name else None
            running = stack.enter_context(
                mongottl.start_server(
                    dialect=dialect, server_version=version or None, data_dir=None if folder is None else str(folder)
                )
            )
            opened[name] = Server(running, purges="purging" in name)
            stack.callback(opened[name].close)
            opened[name].set_purging(opened[name].purges)
        yield opened


SUCCESS: Document = {"ok": 1, "writeErrors": ABSENT}


class Step(NamedTuple):
    """A command at a second of the row's own time, and what its reply has; by default it succeeds."""

    second: float
    command: Document
    answer: Document = SUCCESS


class Vector(NamedTuple):
    """default: of the collection at second 0. lives: when document 1 is there, from a second to another, in order."""

    number: int
    default: int | None
    steps: list[Step]
    lives: Sequence[tuple[float, float]] = ()
    servers: Sequence[str] = tuple(SERVERS)
    purges: bool | None = None  # None: as the server does
    start_s: int = START_S
    capabilities: Sequence[str] = ()


def insert(second: float = 0, **fields: Any) -> Step:
    return Step(second, {"insert": "documents", "documents": [{"_id": 1, **fields}]}, {"n": 1, "writeErrors": ABSENT})


def update(second: float, change: Document, answer: Document, **options: Any) -> Step:
    return Step(second, {"update": "documents", "updates": [{"q": {"_id": 1}, "u": change, **options}]}, answer)


def create_index(key: str, answer: Document, second: float = 0, **options: Any) -> Step:
    spec = {"key": {key: 1}, "name": f"{key}_1", **options}
    return Step(second, {"createIndexes": "documents", "indexes": [spec]}, answer)


def set_default(second: float, ttl: int) -> Step:
    return create_index("_ts", {"ok": 1}, second, expireAfterSeconds=ttl)


def drop_default(second: float) -> Step:
    return Step(second, {"dropIndexes": "documents", "index": "_ts_1"})


def find(second: float, answer: Document, **options: Any) -> Step:
    return Step(second, {"find": "documents", **options}, answer)


def aggregate(second: float, stage: Document, answer: Document, *more: Document) -> Step:
    return Step(second, {"aggregate": "documents", "pipeline": [stage, *more], "cursor": {}}, answer)


def get_more(second: float, answer: Document, **options: Any) -> Step:
    return Step(second, {"getMore": CURSOR, "collection": "documents", **options}, answer)


CHANGED = {"n": 1, "nModified": 1}
NO_DATE_TTL: Document = {
    "code": 2,
    "codeName": "BadValue",
    "errmsg": "The 'expireAfterSeconds' option is supported on '_ts' field only.",
}
MANY = Step(0, {"insert": "documents", "documents": [{"_id": n} for n in range(200)]}, {"n": 200})
STREAM = (
    {"$changeStream": {"fullDocument": "updateLookup"}},
    {"$match": {"operationType": {"$in": ["insert", "update", "replace"]}}},
    {"$project": {"_id": 1, "fullDocument": 1, "ns": 1, "documentKey": 1}},
)


def custom(number: int, value: Any, dead_at: float) -> Vector:
    """A row with TTL on the field `d`, 10 seconds after it. Second 0 is that of 1970."""
    document = {"_id": 1} if value is ABSENT else {"_id": 1, "d": value}
    return Vector(
        number,
        OFF,
        [create_index("d", {"ok": 1}, expireAfterSeconds=10), insert(**document)],
        [(0, dead_at)],
        WITH_CUSTOM_TTL,
        purges=True,
        start_s=0,
        capabilities=("EnableTtlOnCustomPath",),
    )


def date(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


VECTORS = [
    Vector(1, OFF, [insert(ttl=5)], [(0, NEVER)]),
    Vector(2, -1, [insert()], [(0, NEVER)]),
    Vector(3, -1, [insert(ttl=5)], [(0, 5)]),
    Vector(4, -1, [insert(ttl=-1)], [(0, NEVER)]),
    Vector(5, 10, [insert()], [(0, 10)]),
    Vector(6, 10, [insert(ttl=-1)], [(0, NEVER)]),
    Vector(7, 10, [insert(ttl=20)], [(0, 20)]),
    Vector(8, 10, [insert(ttl=3)], [(0, 3)]),
    Vector(9, 10, [insert(ttl=20.0)], [(0, 20)]),
    Vector(10, 10, [insert(ttl=Int64(20))], [(0, 20)]),
    Vector(11, 10, [insert(ttl=20.5)], [(0, 10)]),
    Vector(12, 10, [insert(ttl=Int64(2147483649))], [(0, 10)]),
    Vector(13, 10, [insert(ttl=2147483647)], [(0, 2147483647)]),
    Vector(14, 10, [insert(ttl=0)], [(0, 10)]),
    Vector(15, 10, [insert(ttl=-2)], [(0, 10)]),
    Vector(16, 10, [insert(ttl="20")], [(0, 10)]),
    Vector(17, 10, [insert(ttl=True)], [(0, 10)]),
    Vector(18, 10, [insert(ttl=Decimal128("20"))], [(0, 10)]),
    Vector(19, 10, [insert(TTL=3)], [(0, 10)]),
    Vector(20, 10, [insert(a={"ttl": 3})], [(0, 10)]),
    # What a write does to the time.
    Vector(21, 10, [insert(), update(6, {"$set": {"x": 1}}, CHANGED)], [(0, 16)]),
    Vector(22, 10, [insert(ttl=5), update(3, {"$set": {"ttl": 8}}, CHANGED)], [(0, 11)]),
    Vector(23, 10, [insert(ttl=5), update(3, {"$unset": {"ttl": 1}}, CHANGED)], [(0, 13)]),
    Vector(24, 10, [insert(), find(9, {"cursor.firstBatch": [{"_id": 1}]})], [(0, 10)]),
    Vector(25, 10, [insert(), update(10, {"$set": {"x": 1}}, {"n": 0, "nModified": 0})], [(0, 10)]),
    Vector(26, 10, [insert(), insert(10)], [(0, 20)]),
    Vector(
        27,
        10,
        [insert(), update(10, {"$set": {"x": 1}}, {"upserted": [{"index": 0, "_id": 1}]}, upsert=True)],
        [(0, 20)],
    ),
    # Another default.
    Vector(28, OFF, [insert(), set_default(100, 5)], [(0, 100)]),
    Vector(29, OFF, [insert(ttl=200), set_default(100, 5)], [(0, 200)]),
    Vector(30, 5, [insert(), drop_default(6)], [(0, 5), (6, NEVER)], purges=False),
    Vector(31, 5, [insert(), find(5.5, {"cursor.firstBatch": []}), drop_default(6)], [(0, 5)], purges=True),
    Vector(32, 5, [insert(), drop_default(3), set_default(3, -1)], [(0, NEVER)]),
    Vector(33, 5, [insert(), drop_default(7), set_default(7, 100)], [(0, 5), (7, 100)], purges=False),
    Vector(34, 100, [insert(), drop_default(50), set_default(50, 5)], [(0, 50)]),
    Vector(35, 10, [insert(0.9)], [(0.9, 10)]),
    # What commands see of it.
    Vector(
        36,
        10,
        [MANY, find(5, {"cursor.firstBatch": [{"_id": 0}]}, batchSize=1), get_more(11, {"cursor.nextBatch": []})],
    ),
    Vector(
        37,
        10,
        [
            create_index("v", {"ok": 1}, unique=True),
            insert(v=1),
            Step(10, {"insert": "documents", "documents": [{"_id": 2, "v": 1}]}, {"n": 1, "writeErrors": ABSENT}),
        ],
        [(0, 10)],
    ),
    Vector(38, 10, [insert(), aggregate(10, {"$count": "n"}, {"cursor.firstBatch": []})], [(0, 10)]),
    Vector(39, 10, [insert(), Step(10, {"distinct": "documents", "key": "_id"}, {"values": []})], [(0, 10)]),
    Vector(
        40,
        10,
        [
            insert(),
            aggregate(1, STREAM[0], {"cursor.firstBatch": []}, *STREAM[1:]),
            update(2, {"$set": {"ttl": 8}}, CHANGED),
            get_more(9, {"cursor.nextBatch.0.fullDocument": {"_id": 1, "ttl": 8}, "cursor.nextBatch.1": ABSENT}),
            get_more(10, {"cursor.nextBatch": []}, maxTimeMS=1),
            get_more(20, {"cursor.nextBatch": []}, maxTimeMS=1),
        ],
        [(0, 10)],
        COSMOS,
    ),
    # Indexes. MongoDB has TTL on other fields, and collMod.
    *(
        Vector(41, OFF, [create_index("d", NO_DATE_TTL, expireAfterSeconds=ttl)], servers=COSMOS)
        for ttl in (1, 0, -1, 2**31, "1")
    ),
    Vector(
        42,
        -1,
        [Step(0, {"listIndexes": "documents"}, {"cursor.firstBatch.1.expireAfterSeconds": -1})],
    ),
    Vector(43, 10, [create_index("_ts", {"code": 85, "codeName": "IndexOptionsConflict"}, expireAfterSeconds=20)]),
    Vector(
        44,
        10,
        [
            Step(
                0,
                {"collMod": "documents", "index": {"name": "_ts_1", "expireAfterSeconds": 5}},
                {"code": 115, "codeName": "CommandNotSupported", "errmsg": "Command collMod not supported."},
            ),
            insert(),
        ],
        [(0, 10)],
        COSMOS,
    ),
    *(
        Vector(
            45,
            default,
            [
                insert(a=1),
                find(1, {"cursor.firstBatch": [{"_id": 1, "a": 1}]}),
                find(1, {"cursor.firstBatch": [{"_id": 1}]}, projection={"_ts": 1}),
                find(1, {"cursor.firstBatch": []}, filter={"_ts": {"$exists": True}}),
                aggregate(1, {"$project": {"_ts": 1}}, {"cursor.firstBatch": [{"_id": 1}]}),
            ],
        )
        for default in (OFF, -1, 10)
    ),
    # TTL on a field of the client's, by a capability of the account.
    custom(46, date(1), 11),
    *(custom(47, number, 11) for number in (1000, Int64(1000), 1000.0)),
    custom(48, [date(7), "x", date(1)], 11),
    *(custom(49, value, NEVER) for value in ("1970", ABSENT)),
]


ROWS = [pytest.param(vector, server, id=f"{vector.number}-{server}") for vector in VECTORS for server in vector.servers]


def test_all_vectors_are_there() -> None:
    assert sorted({vector.number for vector in VECTORS}) == list(range(1, 50))


@pytest.mark.parametrize(("vector", "name"), ROWS)
def test_vector(servers: dict[str, Server], vector: Vector, name: str) -> None:
    server = servers[name]
    purges = server.purges if vector.purges is None else vector.purges
    was = None
    if vector.capabilities:
        was = server.command({"configureCosmos": {"capabilities": [*vector.capabilities]}}, "admin")["was"]
    if purges != server.purges:
        server.set_purging(purges)
    try:
        server.go_to(vector.start_s)
        if vector.default is not OFF:
            reply = set_default(0, vector.default)
            check(server.command(reply.command), reply.answer)
        _run(server, vector)
    finally:
        server.command({"dropDatabase": 1})
        if purges != server.purges:
            server.set_purging(server.purges)
        if was is not None:
            server.command({"configureCosmos": was}, "admin")


def _run(server: Server, vector: Vector) -> None:
    """What is there is looked at when it comes, one instant before it goes, and at the instant at which it goes."""
    looks: list[tuple[float, bool]] = []
    for begin, end in vector.lives:
        looks.append((begin, True))
        looks += [(FAR_S, True)] if end == NEVER else [(end - MOMENT_S, True), (end, False)]
    if looks and not looks[-1][1]:
        looks.append((looks[-1][0] + FAR_S, False))
    steps = list(vector.steps)
    for second in sorted({*(step.second for step in steps), *(look[0] for look in looks)}):
        server.go_to(vector.start_s + second)
        for step in steps:
            if step.second == second:
                check(server.command(step.command), step.answer)
        for at, there in looks:
            if at == second:
                assert server.shows() == there, f"at second {second}"
