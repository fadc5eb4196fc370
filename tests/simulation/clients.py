"""The clients of a simulation; each checks the replies that it gets.

A writer owns its documents, `w<n>-<k>`: no other client writes them, so it knows their contents apart from commands
that have not been answered; `Model` records this for all clients. Readers read all documents by every kind of plan.
Tuners change the default TTL and build and drop indexes meanwhile. A ddl_client uses collections of its own database;
only its error codes are checked.
"""

from collections.abc import Callable
from typing import Any

import bson
from bson import Int64

from tests.replies import without_times
from tests.simulation.model import OPEN, Model, Version
from tests.simulation.world import Client, Document, Request, World
from tests.ttl_model import OFF

COLLECTION = "main"
# Of documents that several clients increment.
COUNTER_COLLECTION = "counters"
COUNTERS = 40
KEYS = 6
UNIQUE_VALUES = 12
DEFAULTS = [-1, 1, 2, 5, 10, 60, 2147483647]
TTLS: list[Any] = [None, None, -1, 0, 1, 2, 5, 30, 2.0, 2.5, "3", 2147483647]
DUPLICATE_KEY = 11000
# What failing storage is answered with: OperationFailed, WriteConflict.
STORAGE_CODES = (96, 112)
BAD_HINT = 2
CURSOR_NOT_FOUND = 43
CURSOR_TIMEOUT_S = 600
SESSION_TIMEOUT_S = 1800
# Several servers: what one has changed that was then killed, or has lost its place, may be known to others later, but
# not later than its place can be taken.
KNOWN_BY_ALL_S = 5.0
INDEX_NOT_FOUND = 27
QUERY_PLAN_KILLED = 175
INDEX_BUILD_ABORTED = 276
BUILD_IN_PROGRESS = 12587
# Errors that a ddl_client may get: no collection, no index, no cursor, clashes, builds under way, the same name twice.
DDL_CODES = (20, 26, 27, 43, 48, 85, 86, 175, 237, 276, 11000, 12587)


class Stage:
    """What the clients of one simulation share. faulty: whether storage fails now and then, with storage_codes."""

    def __init__(self, world: World, faulty: bool, storage_codes: tuple[int, ...] = STORAGE_CODES) -> None:
        self.world = world
        self.random = world.random
        self.model = Model()
        self.faulty = faulty
        self.storage_codes = storage_codes if faulty else ()
        self.token = 0
        self.acknowledged = 0
        self.refused = 0
        self.read = 0
        # The acknowledged increments: of which counter, in which turn, and whether as durable.
        self.increments: list[tuple[int, int, bool]] = []
        # How many increments each counter has been given at most.
        self.most = [0] * COUNTERS
        self.durable = 0
        self.retried = 0
        self.retried_after_crash = 0
        self.idle_closed = 0
        self.slow_builds = 0
        self.resumed = 0
        world.aged = self.model.age
        world.lost = self.lose
        world.compared = self.check_stored
        self.model.age(world.instants())

    def lose(self, turn: int) -> None:
        """A power cut: what is stored now is what was stored at some turn from this one on."""
        self.model.reopen(turn)
        self.increments = [increment for increment in self.increments if increment[1] < turn or increment[2]]

    def check_stored(self) -> None:
        """What is stored of each document is one of the versions that it may have."""
        collection = self.world.service.catalog.lookup("sim", COLLECTION)
        if collection is None:
            return
        stored = {}
        for record in collection.store.scan(0, 1_000_000)[0]:
            document = bson.decode(record[1])
            stored[document["_id"]] = document
        for key in self.model.versions:
            versions = self.model.open_versions(key)
            allowed: list[Document | None] = [version.content for version in versions]
            if any(version.mortal for version in versions):
                allowed.append(None)
            assert stored.get(key) in allowed, f"{key} is stored as {stored.get(key)}, which is not one of {allowed}"

    def check_error(self, reply: Document, *also: int) -> int:
        """The code of a reply that is an error, which must be one that may happen; 0 if it is none."""
        if reply["ok"]:
            return 0
        code: int = reply["code"]
        allowed = also + self.storage_codes
        assert code in allowed, reply
        return code


def write_errors(reply: Document) -> list[int]:
    return [error["code"] for error in reply.get("writeErrors", [])]


def writer(stage: Stage, number: int) -> Client:
    """Inserts, replaces, touches, upserts and deletes its own documents, singly and in batches."""
    own = Writer(stage, number)
    habits = [own.insert, own.insert, own.insert_many, own.replace, own.replace, own.touch, own.upsert, own.delete]
    habits += [own.update_many, own.find_and_modify, own.find_own]
    while True:
        yield from stage.random.choice(habits)()


class Writer:
    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.random = stage.random
        self.number = number

    def key(self) -> str:
        return f"w{self.number}-{self.random.randrange(KEYS)}"

    def content(self, key: str) -> Document:
        self.stage.token += 1
        document: Document = {"_id": key, "owner": self.number, "v": self.stage.token}
        if self.random.random() < 0.5:
            document["u"] = self.random.randrange(UNIQUE_VALUES)
        if (ttl := self.random.choice(TTLS)) is not None:
            document["ttl"] = ttl
        document["a"] = self.random.choice([1, 2, 3, [1, 2], [], None])
        return document

    def _send(self, command: Document, written: dict[str, Document | None]) -> "Exchange":
        if written and self.random.random() < 0.3:
            command["writeConcern"] = {"j": True}
        return Exchange(self.stage, command, written)

    def _is_refused(self, exchange: "Exchange", reply: Document, document: Document, by_id: bool) -> bool:
        """Whether a write of one document was refused, which is then recorded, and its code checked."""
        if not (self.stage.check_error(reply) or write_errors(reply)):
            return False
        exchange.refuse()
        for code in write_errors(reply):
            exchange.check_refusal(code, document, by_id=by_id)
        return True

    def insert(self) -> Client:
        key = self.key()
        document = self.content(key)
        exchange = self._send({"insert": COLLECTION, "documents": [document]}, {key: document})
        reply = yield exchange
        if reply is None or self._is_refused(exchange, reply, document, by_id=True):
            return
        assert reply["n"] == 1
        exchange.acknowledge()
        exchange.check_not_there_before(key)

    def insert_many(self) -> Client:
        keys = sorted({self.key() for _ in range(3)})
        documents = [self.content(key) for key in keys]
        command = {"insert": COLLECTION, "documents": documents, "ordered": False}
        exchange = self._send(command, {document["_id"]: document for document in documents})
        reply = yield exchange
        if reply is None:
            return
        if self.stage.check_error(reply):
            return  # storage failed midway: some may be there
        refused = {error["index"]: error["code"] for error in reply.get("writeErrors", [])}
        assert reply["n"] == len(documents) - len(refused)
        for place, document in enumerate(documents):
            if place in refused:
                exchange.refuse(document["_id"])
                exchange.check_refusal(refused[place], document, by_id=True)
            else:
                exchange.acknowledge(document["_id"])

    def replace(self, upsert: bool = False) -> Client:
        key = self.key()
        document = self.content(key)
        update = {name: value for name, value in document.items() if name != "_id"}
        statement = {"q": {"_id": key}, "u": update, "upsert": upsert}
        if self.random.random() < 0.3:
            statement["q"] = {"owner": self.number, "_id": {"$gte": key, "$lte": key}}  # not by the fast path
            statement["u"] = {"$set": update, "$unset": {name: 1 for name in ("u", "ttl") if name not in update}}
            statement["upsert"] = upsert = False
        exchange = self._send({"update": COLLECTION, "updates": [statement]}, {key: document})
        reply = yield exchange
        # An upsert that finds nothing inserts: by then the clock may be set back, and the document live.
        if reply is None or self._is_refused(exchange, reply, document, by_id=upsert):
            return
        if reply["n"] == 0:
            assert not upsert
            exchange.refuse()
            exchange.check_not_certain(key)
        else:
            assert reply["n"] == 1
            exchange.acknowledge()
            if "upserted" in reply:
                exchange.check_not_there_before(key)
            else:
                exchange.check_possible_before(key)

    def upsert(self) -> Client:
        yield from self.replace(upsert=True)

    def touch(self) -> Client:
        """An update that changes nothing but the time of the last write."""
        key = self.key()
        known = self.stage.model.open_versions(key)
        if len(known) != 1 or known[0].content is None:
            return
        content = known[0].content
        statement = {"q": {"_id": key}, "u": {"$set": {"v": content["v"]}}}
        exchange = self._send({"update": COLLECTION, "updates": [statement]}, {key: content})
        reply = yield exchange
        if reply is None:
            return
        if self.stage.check_error(reply) or reply["n"] == 0:
            exchange.refuse()
            for code in write_errors(reply):
                exchange.check_refusal(code, content, by_id=False)
            if reply["ok"] and not write_errors(reply):
                exchange.check_not_certain(key)
        else:
            assert (reply["n"], reply["nModified"]) == (1, 0)
            exchange.acknowledge()

    def update_many(self) -> Client:
        """Sets a new `v` in all its documents, by one statement. Only certain documents are checked in the reply."""
        self.stage.token += 1
        token = self.stage.token
        keys = [f"w{self.number}-{k}" for k in range(KEYS)]
        written: dict[str, Document | None] = {}
        for key in keys:
            known = self.stage.model.open_versions(key)
            if len(known) != 1:
                return
            if known[0].content is not None:
                written[key] = {**known[0].content, "v": token}
        statement: Document = {"q": {"owner": self.number}, "u": {"$set": {"v": token}}, "multi": True}
        if self.random.random() < 0.5:
            statement["hint"] = "owner_1_v_1"  # in which the update moves every document ahead of its scan
        exchange = self._send({"update": COLLECTION, "updates": [statement]}, written)
        reply = yield exchange
        if reply is None or self.stage.check_error(reply):
            return
        if write_errors(reply):  # some may have been updated before it was ended
            assert self.stage.faulty or write_errors(reply) in ([QUERY_PLAN_KILLED], [BAD_HINT])
            if write_errors(reply) == [BAD_HINT]:
                exchange.refuse()
            return
        updated = 0
        for key in written:
            if exchange.was_certain(key):
                exchange.acknowledge(key)
                updated += 1
            elif not exchange.was_possible(key):
                exchange.refuse(key)
        assert updated <= reply["n"] <= len(written)

    def delete(self) -> Client:
        key = self.key()
        statement = {"q": {"_id": key}, "limit": self.random.choice([0, 1])}
        exchange = self._send({"delete": COLLECTION, "deletes": [statement]}, {key: None})
        reply = yield exchange
        if reply is None or self._is_refused(exchange, reply, {"_id": key}, by_id=False):
            return
        if reply["n"] == 0:
            exchange.refuse()
            exchange.check_not_certain(key)
        else:
            exchange.acknowledge()
            exchange.check_possible_before(key)

    def find_and_modify(self) -> Client:
        key = self.key()
        document = self.content(key)
        update = {name: value for name, value in document.items() if name != "_id"}
        command = {"findAndModify": COLLECTION, "query": {"_id": key}, "update": update, "new": False}
        exchange = self._send(command, {key: document})
        reply = yield exchange
        if reply is None:
            return
        if code := self.stage.check_error(reply, DUPLICATE_KEY, QUERY_PLAN_KILLED):
            exchange.refuse()
            exchange.check_refusal(code, document, by_id=False)
        elif reply["value"] is None:
            exchange.refuse()
            exchange.check_not_certain(key)
        else:
            exchange.acknowledge()
            exchange.check_possible_before(key, reply["value"])

    def find_own(self) -> Client:
        key = self.key()
        exchange = self._send({"find": COLLECTION, "filter": {"_id": key}}, {})
        reply = yield exchange
        if reply is None or self.stage.check_error(reply):
            return
        found = reply["cursor"]["firstBatch"]
        if found:
            exchange.check_possible_before(key, found[0])
        else:
            exchange.check_not_certain(key)


class Exchange(Request):
    """One command of a writer: its new versions are possible from when it is sent, and settled by the reply."""

    def __init__(self, stage: Stage, command: Document, written: dict[str, Document | None]) -> None:
        super().__init__(command)
        self.stage = stage
        self.durable = "writeConcern" in command
        self.written = written
        self.new: dict[str, Version] = {}

    def begin(self, turn: int, now_s: int) -> None:
        super().begin(turn, now_s)
        for key, content in self.written.items():
            self.new[key] = Version(content, now_s, turn)
            self.stage.model.add(key, self.new[key])

    def note_instant(self, now_s: int) -> None:
        super().note_instant(now_s)
        for version in self.new.values():
            version.written_s.add(now_s)

    def acknowledge(self, key: str | None = None) -> None:
        """What was written is there; no certain document may have had its unique value."""
        self.stage.acknowledged += 1
        self.stage.durable += self.durable
        for name in self.new if key is None else [key]:
            self.stage.model.settle(name, self.new[name], self.ended, self.durable)
            content = self.new[name].content
            if content is not None and "u" in content:
                for other in self.stage.model.versions:
                    certain = None if other == name else self._certain(other)
                    assert certain is None or certain.content is None or certain.content.get("u") != content["u"], (
                        f"{name} was given a unique value of {other}"
                    )

    def refuse(self, key: str | None = None) -> None:
        """Records that nothing was written, or that it is unknown, if a command with `j: true` has failed."""
        self.stage.refused += 1
        if self.durable and self.reply is not None and not self.reply["ok"]:
            return
        for name in self.new if key is None else [key]:
            self.stage.model.remove(name, self.new[name])

    def _certain(self, key: str) -> Version | None:
        return self.stage.model.certain(key, self.started, self.ended, self.instants, self.new.get(key))

    def _possible(self, key: str) -> list[Version]:
        found = self.stage.model.possible(key, self.started, self.ended, self.instants)
        return [version for version in found if version is not self.new.get(key)]

    def was_certain(self, key: str) -> bool:
        return self._certain(key) is not None

    def was_possible(self, key: str) -> bool:
        return bool(self._possible(key))

    def check_refusal(self, code: int, document: Document, by_id: bool) -> None:
        """Checks a refused write: another document may have had the key, or an index was dropped, or storage failed."""
        if code == QUERY_PLAN_KILLED:
            return
        if code != DUPLICATE_KEY:
            assert code in self.stage.storage_codes, code
            return
        key = document["_id"]
        holders = [key] if by_id and self.was_possible(key) else []
        for other in self.stage.model.versions:
            if other != key and "u" in document:
                # Another document of the same command counts as well.
                for version in self.stage.model.possible(other, self.started, self.ended, self.instants):
                    if version.content is not None and version.content.get("u") == document["u"]:
                        holders.append(other)
        assert holders, f"{document} was refused, though nobody holds its keys"

    def check_not_there_before(self, key: str) -> None:
        assert not self.was_certain(key), f"{key} was inserted although it was there"

    check_not_certain = check_not_there_before

    def check_possible_before(self, key: str, found: Document | None = None) -> None:
        """The document was there, and was one of those that it may have been."""
        possible = [version.content for version in self._possible(key)]
        assert possible if found is None else found in possible, f"{key} was {found}, not one of {possible}"


def counter(stage: Stage) -> Client:
    """Increments documents that others increment as well, by every way in which writes find them.

    None of the increments may be lost or carried out twice: `check_counters`. Some are sent as retryable writes, and
    some of these again.
    """
    lsid = {"id": bson.Binary(stage.random.randbytes(16), 4)}
    txn_number = 0
    near: Document = {"loc": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}
    while True:
        increment: Document = {"$inc": {"n": 1}}
        filters: list[Document] = [near, {}, {"n": {"$gte": 0}}, {"$or": [{"n": {"$gte": 0}}, {"_id": 0}]}]
        filter_ = stage.random.choice(filters)
        pick = stage.random.randrange(4)
        numbers = list(range(COUNTERS))
        if pick == 0:
            numbers = stage.random.sample(numbers, stage.random.randint(1, COUNTERS))
            statements: list[Document] = [{"q": {"_id": number}, "u": increment} for number in numbers]
            command: Document = {"update": COUNTER_COLLECTION, "updates": statements}
        elif pick == 1:
            command = {"findAndModify": COUNTER_COLLECTION, "query": filter_, "update": increment}
            if filter_ is not near or stage.random.random() < 0.5:
                command["sort"] = stage.random.choice([{"n": 1}, {"n": -1}, {"x": 1}])
        else:
            command = {"update": COUNTER_COLLECTION, "updates": [{"q": filter_, "u": increment, "multi": True}]}
        for place in numbers:
            stage.most[place] += 1
        if stage.random.random() < 0.3:
            command["writeConcern"] = {"j": True}
        crashes = stage.world.crashes
        power_cuts = stage.world.power_cuts
        if pick == 0:
            txn_number += 1
            command |= {"lsid": lsid, "txnNumber": Int64(txn_number)}
        request = Request(command)
        reply = yield request
        if reply is None or stage.check_error(reply, QUERY_PLAN_KILLED) or reply.get("writeErrors"):
            codes = [] if reply is None else write_errors(reply)
            assert stage.faulty or codes in ([], [QUERY_PLAN_KILLED]), reply
            continue
        done = numbers
        if "value" in reply:
            done = [] if reply["value"] is None else [reply["value"]["_id"]]
        else:
            assert reply["n"] == len(numbers), reply
        for place in numbers:
            stage.most[place] -= place not in done
        for place in done:
            stage.increments.append((place, request.ended, "writeConcern" in command))
        if pick == 0 and stage.random.random() < 0.3:
            for _ in range(stage.random.randrange(3)):
                yield Request({"ping": 1})
            again = Request(command)
            second = yield again
            idle_s = again.started_s - request.started_s
            if idle_s >= SESSION_TIMEOUT_S:
                for number in numbers:
                    stage.most[number] += 1  # the server may have forgotten the first
            elif second is not None and not stage.check_error(second):
                answers = f"{reply}, and when it was sent again {second}"
                again_done = second.pop("retriedStmtIds", None) is None
                assert without_times(second) == without_times(reply), answers
                # A power cut loses both the write and that it was executed, or neither.
                assert not again_done or stage.world.power_cuts > power_cuts, answers
                stage.retried += 1
                stage.retried_after_crash += stage.world.crashes > crashes


def check_counters(stage: Stage) -> None:
    """Each counter has been incremented as often as its clients were told."""
    collection = stage.world.service.catalog.lookup("sim", COUNTER_COLLECTION)
    assert collection is not None
    records, _ = collection.store.scan(0, 2 * COUNTERS)
    counters = [bson.decode(record[1]) for record in records]
    assert sorted(document["_id"] for document in counters) == list(range(COUNTERS))
    for document in counters:
        least = sum(place == document["_id"] for place, _, _ in stage.increments)
        most = stage.most[document["_id"]]
        assert least <= document["n"] <= most, f"{document} is not between {least} and {most}"


def reader(stage: Stage) -> Client:
    """Reads everything by every way, page by page."""
    while True:
        yield from stage.random.choice([find, find, find, count, aggregate])(stage)


def _some_filter(stage: Stage) -> tuple[Document, Callable[[Document], bool]]:
    """A filter, and the same in Python."""
    n = stage.random.randrange(UNIQUE_VALUES)
    since = stage.token - stage.random.randrange(30)
    owner = stage.random.randrange(1, 4)
    choices: list[tuple[Document, Callable[[Document], bool]]] = [
        ({}, lambda d: True),
        ({"u": n}, lambda d: d.get("u") == n),
        ({"u": {"$gte": n}}, lambda d: d.get("u", -1) >= n),
        ({"u": {"$in": [n, n + 1]}}, lambda d: d.get("u") in (n, n + 1)),
        ({"a": 1}, lambda d: d["a"] == 1 or (isinstance(d["a"], list) and 1 in d["a"])),
        ({"v": {"$gt": since}}, lambda d: d["v"] > since),
        ({"owner": owner, "v": {"$gt": since}}, lambda d: d["owner"] == owner and d["v"] > since),
        ({"$or": [{"u": n}, {"owner": owner}]}, lambda d: d.get("u") == n or d["owner"] == owner),
        ({"u": {"$exists": False}}, lambda d: "u" not in d),
    ]
    return stage.random.choice(choices)


def find(stage: Stage) -> Client:
    filter_, matches = _some_filter(stage)
    command: Document = {"find": COLLECTION, "filter": filter_}
    if stage.random.random() < 0.5:
        command["sort"] = stage.random.choice([{"v": 1}, {"_id": -1}, {"u": 1}, {"a": 1}, {"owner": 1, "v": 1}])
    if stage.random.random() < 0.2:
        command["hint"] = {"$natural": stage.random.choice([1, -1])}
    if stage.random.random() < 0.6:
        command["batchSize"] = stage.random.choice([0, 1, 3, 5])
    session: Document = {}
    if stage.random.random() < 0.3:
        session["lsid"] = {"id": bson.Binary(stage.random.randbytes(16), 4)}
    if no_timeout := stage.random.random() < 0.2:
        command["noCursorTimeout"] = True
    request = Request(command | session)
    started = -1
    crashes = stage.world.crashes
    used_s = 0.0
    pages: list[tuple[set[int], list[Document]]] = []
    while True:
        reply = yield request
        may_be_closed = started >= 0 and _may_be_closed(request.started_s - used_s, no_timeout, bool(session))
        codes = (QUERY_PLAN_KILLED, CURSOR_NOT_FOUND) if may_be_closed else (QUERY_PLAN_KILLED,)
        if reply is None or stage.world.crashes > crashes or (code := stage.check_error(reply, *codes)):
            stage.idle_closed += reply is not None and stage.world.crashes == crashes and code == CURSOR_NOT_FOUND
            return
        used_s = request.started_s
        started = request.started if started < 0 else started
        cursor = reply["cursor"]
        pages.append((request.instants, cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]))
        if not cursor["id"]:
            break
        more: Document = {"getMore": Int64(cursor["id"]), "collection": COLLECTION}
        if stage.random.random() < 0.7:
            more["batchSize"] = stage.random.choice([1, 3, 5])
        if stage.random.random() < 0.05:
            request = Request({"killCursors": COLLECTION, "cursors": [Int64(cursor["id"])]} | session)
            reply = yield request
            if reply is not None and stage.world.crashes == crashes:
                may_be_closed = _may_be_closed(request.started_s - used_s, no_timeout, bool(session))
                assert may_be_closed or reply["cursorsKilled"] == [cursor["id"]], reply
            return
        request = Request(more | session)
    stage.read += 1
    check_found(stage, pages, matches, (started, request.ended))


def _may_be_closed(idle_s: float, no_timeout: bool, in_session: bool) -> bool:
    """Whether the janitor may have closed a cursor that was not used for so long."""
    return (idle_s >= CURSOR_TIMEOUT_S and not no_timeout) or (idle_s >= SESSION_TIMEOUT_S and in_session)


def check_found(
    stage: Stage,
    pages: list[tuple[set[int], list[Document]]],
    matches: Callable[[Document], bool],
    turns: tuple[int, int],
) -> None:
    """What was certainly there was found once, and nothing was found that may not have been there.

    pages: the instants that each may have gone by, and its documents. A sort may have read a document for an earlier
    page, whose `ttl` has been over since then: if it was renewed meanwhile it lives, and is found as it was read.
    """
    model = stage.model
    by_key: dict[str, list[Document]] = {}
    instants: set[int] = set().union(*(seen for seen, _ in pages))
    earlier: set[int] = set()
    for seen, found in pages:
        earlier |= seen
        for document in found:
            key = document["_id"]
            by_key.setdefault(key, []).append(document)
            assert matches(document), (document, pages)
            lives = any(version.content is not None for version in model.possible(key, *turns, seen))
            possible = [version.content for version in model.possible(key, *turns, earlier if lives else seen)]
            assert document in possible, f"{document} was found; it may have been {possible}"
    for key in model.versions:
        certain = model.certain(key, *turns, instants)
        if certain is not None and certain.content is not None:
            expected = [certain.content] if matches(certain.content) else []
            assert by_key.get(key, []) == expected, f"{key}: {by_key.get(key)} was found, not {expected}"


def check_number(stage: Stage, n: int, matches: Callable[[Document], bool], request: Request) -> None:
    """Checks that the number of documents is a possible one, unless documents moved in an index meanwhile."""
    least = most = 0
    for key in stage.model.versions:
        certain = stage.model.certain(key, request.started, request.ended, request.instants)
        if certain is not None and certain.content is not None:
            least += matches(certain.content)
            most += matches(certain.content)
            continue
        possible = list(stage.model.possible(key, request.started, request.ended, request.instants))
        # A document that moves in an index under a scan may be met at both places.
        most += min(2, sum(matches(version.content) for version in possible if version.content is not None))
    assert least <= n <= most, f"{request.command}: {n} is not between {least} and {most}"


def count(stage: Stage) -> Client:
    filter_, matches = _some_filter(stage)
    request = Request({"count": COLLECTION, "query": filter_})
    reply = yield request
    if reply is None or stage.check_error(reply, QUERY_PLAN_KILLED):
        return
    stage.read += 1
    check_number(stage, reply["n"], matches, request)


def aggregate(stage: Stage) -> Client:
    filter_, matches = _some_filter(stage)
    group = {"$group": {"_id": None, "n": {"$sum": 1}}}
    request = Request({"aggregate": COLLECTION, "pipeline": [{"$match": filter_}, group], "cursor": {}})
    reply = yield request
    if reply is None or stage.check_error(reply, QUERY_PLAN_KILLED):
        return
    stage.read += 1
    results = reply["cursor"]["firstBatch"]
    check_number(stage, results[0]["n"] if results else 0, matches, request)


class DefaultChange(Request):
    """A command that changes the default TTL: from when it is sent both values are possible."""

    def __init__(self, stage: Stage, command: Document, value: int) -> None:
        super().__init__(command)
        self.stage = stage
        self.value = value
        self.entry: list[int] = []

    def begin(self, turn: int, now_s: int) -> None:
        super().begin(turn, now_s)
        self.entry = [self.value, turn, OPEN]
        self.stage.model.defaults.append(self.entry)
        self.stage.model.age(self.stage.world.instants())

    def acknowledge(self) -> None:
        for entry in self.stage.model.defaults:
            if entry is not self.entry and entry[2] == OPEN:
                entry[2] = self.ended

    def refuse(self) -> None:
        self.stage.model.defaults.remove(self.entry)


def ttl_tuner(stage: Stage) -> Client:
    """Switches the default TTL on and off and changes it."""
    settled_s = 0.0  # when all servers know what has become of a change that was not answered
    while True:
        value = stage.random.choice(DEFAULTS)
        known = {default for default, _, until in stage.model.defaults if until == OPEN}
        if known == {OFF}:
            spec = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": value}
            request = DefaultChange(stage, {"createIndexes": COLLECTION, "indexes": [spec]}, value)
        elif OFF in known or stage.random.random() < 0.4:
            request = DefaultChange(stage, {"dropIndexes": COLLECTION, "index": "_ts_1"}, OFF)
        else:
            change = {"name": "_ts_1", "expireAfterSeconds": value}
            request = DefaultChange(stage, {"collMod": COLLECTION, "index": change}, value)
        reply = yield request
        if reply is None:
            settled_s = stage.world.elapsed.current_time() + KNOWN_BY_ALL_S
            continue
        code = stage.check_error(reply, INDEX_NOT_FOUND, BUILD_IN_PROGRESS)
        if not code:
            request.acknowledge()
        elif code == INDEX_NOT_FOUND and request.started_s < settled_s:
            request.refuse()
        elif code == INDEX_NOT_FOUND:
            assert OFF in known
            request.acknowledge()  # it is off, as was wanted
        elif code == BUILD_IN_PROGRESS:
            request.refuse()
        for _ in range(stage.random.randrange(6)):
            yield Request({"ping": 1})


INDEXES: list[tuple[str, list[Document]]] = [
    (COLLECTION, [{"key": {"v": 1}, "name": "v_1"}]),
    (COLLECTION, [{"key": {"a": 1}, "name": "a_1"}]),
    (COLLECTION, [{"key": {"owner": 1, "v": 1}, "name": "owner_1_v_1"}]),
    # As unique as `u_1`, which is always there: its builds succeed, whatever is written and expires meanwhile.
    (COLLECTION, [{"key": {"u": -1}, "name": "u_-1", "unique": True, "sparse": True}]),
    (COLLECTION, [{"key": {"v": 1}, "name": "v_1"}, {"key": {"a": 1}, "name": "a_1"}]),
    (COUNTER_COLLECTION, [{"key": {"n": -1}, "name": "n_-1"}]),
    (COUNTER_COLLECTION, [{"key": {"loc": "2dsphere", "n": 1}, "name": "loc_n"}]),
]


def index_tuner(stage: Stage) -> Client:
    """Builds and drops indexes, also one that another is building."""
    while True:
        collection, specs = stage.random.choice(INDEXES)
        built = Request({"createIndexes": collection, "indexes": specs})
        if stage.random.random() < 0.6:
            request = built
        else:
            request = Request({"dropIndexes": collection, "index": specs[0]["name"]})
        reply = yield request
        if reply is not None:
            code = stage.check_error(reply, INDEX_NOT_FOUND, INDEX_BUILD_ABORTED, BUILD_IN_PROGRESS)
            # The first turn makes one step, the last none.
            stage.slow_builds += request is built and not code and request.ended - request.started > 2
        for _ in range(stage.random.randrange(8)):
            yield Request({"ping": 1})


def ddl_client(stage: Stage) -> Client:
    """Fills, indexes, scans, renames and drops collections that only clients of this kind use."""
    names = ["x", "y", "z"]
    while True:
        name = stage.random.choice(names)
        other = stage.random.choice(names)
        pick = stage.random.randrange(12)
        command: Document
        database = "ddl"
        if pick < 3:
            documents = [
                {"n": stage.random.randrange(2000), "t": [1, n]} for n in range(stage.random.choice([1, 40, 600]))
            ]
            command = {"insert": name, "documents": documents}
        elif pick < 5:
            command = {
                "find": name,
                "filter": stage.random.choice([{}, {"n": {"$gt": 900}}, {"q": 1}]),
                "batchSize": 300,
            }
            if stage.random.random() < 0.3:
                command["sort"] = {"n": 1}
        elif pick == 5:
            command = {"update": name, "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": True}]}
        elif pick == 6:
            command = {"delete": name, "deletes": [{"q": {"n": {"$lt": 700}}, "limit": 0}]}
        elif pick == 7:
            options: Document = {"unique": True} if stage.random.random() < 0.3 else {}
            key = stage.random.choice([{"n": 1}, {"t": 1}, {"_ts": 1}])
            if "_ts" in key:
                options = {"expireAfterSeconds": 5}
            command = {"createIndexes": name, "indexes": [{"key": key, "name": "i", **options}]}
        elif pick == 8:
            command = {"dropIndexes": name, "index": "*"}
        elif pick == 9:
            command = {"renameCollection": f"ddl.{name}", "to": f"ddl.{other}", "dropTarget": True}
            database = "admin"
        elif pick == 10:
            command = {"dropDatabase": 1} if stage.random.random() < 0.2 else {"drop": name}
        else:
            command = {"aggregate": name, "pipeline": [{"$group": {"_id": "$t", "n": {"$sum": 1}}}], "cursor": {}}
        reply = yield Request(command, database)
        while reply is not None and not stage.check_error(reply, *DDL_CODES):
            cursor = reply.get("cursor")
            if cursor is None or not cursor["id"]:
                break
            more = {"getMore": Int64(cursor["id"]), "collection": cursor["ns"].partition(".")[2]}
            reply = yield Request(more, "ddl")
