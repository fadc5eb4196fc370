"""Clients with transactions: transfers between accounts that others write and read meanwhile.

Each transfer writes two accounts or more, counts the writes of each in its `v`, and records them in the ledger in the
same transaction. So in every snapshot the balances have the same total, and the `v` of all accounts together are the
writes in the ledger; and for each account the ledger has each `v` once, or an update was lost. Fleeting documents
expire beside the accounts, and the reaper purges them.
"""

from collections.abc import Generator
from typing import Any, TypeAlias

import bson
from bson import Int64

from tests.simulation.world import Client, Document, Request, World

ACCOUNTS = "accounts"
LEDGER = "ledger"
COUNT = 6
BALANCE = 100
FLEETING = 5
SESSION_TIMEOUT_S = 1800
WRITE_CONFLICT = 112
# A statement of a transaction beside a command that waits to change the collection.
LOCK_TIMEOUT = 24
NO_SUCH_TRANSACTION = 251
MAX_TIME_EXPIRED = 50
CURSOR_NOT_FOUND = 43
QUERY_PLAN_KILLED = 175
# What failing storage is answered with: OperationFailed; a WriteConflict may come at any time.
STORAGE_FAILED = 96
# Of snapshots: SnapshotTooOld, SnapshotUnavailable.
SNAPSHOT_GONE = (239, 246)
INDEX_CODES = (27, 276, 12587)
ALL: Document = {"kind": "account"}

# Part of a transaction: whether it goes on; a statement: its reply, or None if the transaction has come to its end.
Part: TypeAlias = Generator[Request, Document | None, bool]
Statement: TypeAlias = Generator[Request, Document | None, Document | None]


class Bank:
    """What the clients know. committed: the acknowledged transactions by number, with the turn of the answer and
    whether it was durable; aborted: those that were surely not committed.

    has_nodes: whether requests that belong to nothing of one node are sent to any of several.

    plain: the acknowledged increments outside transactions, in the same way; most: how many each account may have.
    """

    def __init__(self, world: World, faulty: bool, has_nodes: bool = False) -> None:
        self.world = world
        self.random = world.random
        self.faulty = faulty
        self.has_nodes = has_nodes
        self.token = 0
        self.committed: dict[int, tuple[int, bool]] = {}
        self.aborted: set[int] = set()
        self.plain: list[tuple[int, int, bool]] = []
        self.most = [0] * COUNT
        self.conflicts = 0
        self.waits = 0
        self.repeated = 0
        self.answered_after_crash = 0
        self.snapshots = 0
        self.created = 0
        self.resumed = 0
        world.lost = self.lose

    def lose(self, turn: int) -> None:
        """A power cut: what was answered since `turn` may be lost, unless it was durable."""
        self.committed = {t: c for t, c in self.committed.items() if c[0] < turn or c[1]}
        self.plain = [increment for increment in self.plain if increment[1] < turn or increment[2]]

    def lsid(self) -> Document:
        return {"id": bson.Binary(self.random.randbytes(16), 4)}

    def failed(self, reply: Document, *also: int) -> bool:
        """Whether a command or one of its statements failed; the code must be one that may come."""
        codes = [reply["code"]] if not reply["ok"] else [error["code"] for error in reply.get("writeErrors", [])]
        for code in codes:
            assert code in also or code in (WRITE_CONFLICT, LOCK_TIMEOUT) or (self.faulty and code == STORAGE_FAILED), (
                reply
            )
        return bool(codes)


def opening() -> list[Document]:
    """The commands that make the collections."""
    accounts = [{"_id": n, "kind": "account", "balance": BALANCE, "v": 0, "plain": 0, "ttl": -1} for n in range(COUNT)]
    specs = [
        {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 5},
        {"key": {"balance": 1}, "name": "balance_1"},
        {"key": {"kind": 1, "name": 1}, "name": "kind_name", "unique": True, "sparse": True},
    ]
    for account in accounts:
        account["name"] = f"n{account['_id']}"
    return [
        {"insert": ACCOUNTS, "documents": accounts},
        {"createIndexes": ACCOUNTS, "indexes": specs},
        {"create": LEDGER},
    ]


def transferrer(bank: Bank) -> Client:
    """Runs transactions, one after another; commits most of them, and leaves some of them to the server."""
    lsid = bank.lsid()
    number = 0
    while True:
        number += 1
        yield from Transfer(bank, lsid, number).run()
        if bank.random.random() < 0.1:
            lsid, number = bank.lsid(), 0


class Transfer:
    """One transaction. view: the accounts as it has read and written them; moves: what it records in the ledger."""

    def __init__(self, bank: Bank, lsid: Document, number: int) -> None:
        self.bank = bank
        self.random = bank.random
        bank.token += 1
        self.token = bank.token
        self.own: Document = {"lsid": lsid, "txnNumber": Int64(number), "autocommit": False}
        self.started = False
        self.view: dict[int, Document] = {}
        self.moves: list[list[int]] = []
        self.created = ""

    def statement(self, command: Document) -> Statement:
        """Runs a statement; gives its reply, or None if the transaction has come to its end."""
        own = dict(self.own)
        if not self.started:
            own["startTransaction"] = True
            if self.random.random() < 0.5:
                own["readConcern"] = {"level": self.random.choice(["local", "majority", "snapshot"])}
        self.started = True
        reply = yield Request({**command, **own})
        if reply is None or self.bank.failed(reply, NO_SUCH_TRANSACTION, *SNAPSHOT_GONE, QUERY_PLAN_KILLED):
            if reply is not None:
                self.bank.conflicts += WRITE_CONFLICT in (reply.get("code"), *_codes(reply))
            return None
        return reply

    def run(self) -> Client:
        habits = [self.read_all, self.read_all, self.read_one, self.total, self.move, self.move, self.move]
        habits += [self.touch, self.check_ledger, self.create]
        for _ in range(self.random.randrange(1, 6)):
            if not (yield from self.random.choice(habits)()):
                self.bank.aborted.add(self.token)
                return
        if self.moves:
            entry: Document = {"_id": self.token, "moves": self.moves, "created": self.created}
            if (yield from self.statement({"insert": LEDGER, "documents": [entry]})) is None:
                self.bank.aborted.add(self.token)
                return
        if self.started:
            yield from self.end()

    def end(self) -> Client:
        bank = self.bank
        dice = self.random.random()
        if dice < 0.75:
            yield from self.commit()
            return
        bank.aborted.add(self.token)
        if dice < 0.88:
            reply = yield Request({"abortTransaction": 1, **self.own}, "admin")
            if reply is not None:
                bank.failed(reply, NO_SUCH_TRANSACTION)
        elif dice < 0.93:
            name = self.random.choice(["endSessions", "killSessions"])
            yield Request({name: [self.own["lsid"]]}, "admin")

    def commit(self) -> Client:
        bank = self.bank
        command: Document = {"commitTransaction": 1, **self.own}
        if durable := self.random.random() < 0.3:
            command["writeConcern"] = {"j": True}
        request = Request(command, "admin")
        reply = yield request
        if reply is None:
            # The next run of the server knows whether it was committed, if it has written anything.
            sent_s = request.started_s
            request = Request(command, "admin")
            reply = yield request
            bank.answered_after_crash += reply is not None and bool(reply["ok"])
            if request.started_s - sent_s >= SESSION_TIMEOUT_S:
                return  # the server may have forgotten the session
        if reply is None:
            return
        if bank.failed(reply, NO_SUCH_TRANSACTION):
            if not (durable and reply["code"] == STORAGE_FAILED):
                bank.aborted.add(self.token)
                bank.conflicts += reply["code"] == WRITE_CONFLICT
            return
        if self.moves:
            bank.committed[self.token] = (request.ended, durable)
            bank.created += bool(self.created)
        crashes, power_cuts = bank.world.crashes, bank.world.power_cuts
        if self.random.random() < 0.5:
            for _ in range(self.random.randrange(8)):
                yield Request({"ping": 1})
            again = Request(command, "admin")
            second = yield again
            idle_s = again.started_s - request.started_s
            if second is None or idle_s >= SESSION_TIMEOUT_S:
                return
            elsewhere = bank.has_nodes or bank.world.crashes > crashes
            if elsewhere and (not self.moves or bank.world.power_cuts > power_cuts):
                return  # a transaction that has written nothing is not remembered, nor what a power cut loses
            assert second["ok"] or (bank.faulty and second["code"] == STORAGE_FAILED), second
            bank.repeated += 1
            bank.answered_after_crash += bank.world.crashes > crashes

    # Statements: each gives whether the transaction goes on

    def see(self, found: list[Document]) -> None:
        """Every account is as the transaction has seen or left it before."""
        for document in found:
            known = self.view.setdefault(document["_id"], document)
            assert document == known, f"{document} was read; it was {known} before in the same transaction"

    def read_all(self) -> Part:
        command: Document = {"find": ACCOUNTS, "filter": dict(ALL)}
        if self.random.random() < 0.5:
            command["batchSize"] = 2
        if self.random.random() < 0.5:
            command["sort"] = {"balance": 1}
        if self.random.random() < 0.3:
            command |= {"filter": {**ALL, "balance": {"$gte": -(2**31)}}, "hint": "balance_1"}
        reply = yield from self.statement(command)
        found: list[Document] = []
        while reply is not None:
            cursor = reply["cursor"]
            found += cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
            if not cursor["id"]:
                break
            reply = yield from self.statement({"getMore": Int64(cursor["id"]), "collection": ACCOUNTS})
        if reply is None:
            return False
        assert sorted(document["_id"] for document in found) == list(range(COUNT)), found
        assert sum(document["balance"] for document in found) == COUNT * BALANCE, found
        self.see(found)
        return True

    def read_one(self) -> Part:
        n = self.random.randrange(COUNT)
        filter_: Document = self.random.choice([{"_id": n}, {"kind": "account", "name": f"n{n}"}])
        reply = yield from self.statement({"find": ACCOUNTS, "filter": filter_})
        if reply is None:
            return False
        assert len(reply["cursor"]["firstBatch"]) == 1
        self.see(reply["cursor"]["firstBatch"])
        return True

    def total(self) -> Part:
        group = {"$group": {"_id": None, "balance": {"$sum": "$balance"}, "n": {"$sum": 1}}}
        command = {"aggregate": ACCOUNTS, "pipeline": [{"$match": dict(ALL)}, group], "cursor": {}}
        reply = yield from self.statement(command)
        if reply is None:
            return False
        assert reply["cursor"]["firstBatch"] == [{"_id": None, "balance": COUNT * BALANCE, "n": COUNT}], reply
        return True

    def move(self) -> Part:
        """Moves an amount from one account to another: by `$inc`, or with what it has read before."""
        places = self.random.sample(range(COUNT), 2)
        amount = self.random.randrange(1, 30)
        for n, delta in zip(places, (-amount, amount), strict=True):
            known = self.view.get(n)
            if known is not None and self.random.random() < 0.6:
                new = {**known, "balance": known["balance"] + delta, "v": known["v"] + 1}
                update = {name: value for name, value in new.items() if name != "_id"}
                command: Document = {"update": ACCOUNTS, "updates": [{"q": {"_id": n}, "u": update}]}
                reply = yield from self.statement(command)
                if reply is None:
                    return False
                assert reply["n"] == 1, reply
            else:
                command = {"findAndModify": ACCOUNTS, "query": {"kind": "account", "name": f"n{n}"}}
                command |= {"update": {"$inc": {"balance": delta, "v": 1}}}
                reply = yield from self.statement(command)
                if reply is None:
                    return False
                self.see([reply["value"]])
                known = reply["value"]
                new = {**known, "balance": known["balance"] + delta, "v": known["v"] + 1}
            self.view[n] = new
            self.moves.append([n, known["v"], delta])
        return True

    def touch(self) -> Part:
        """Inserts, changes or deletes fleeting documents, which may be expired."""
        filter_ = {"_id": f"f{self.random.randrange(FLEETING)}"}
        change = {"$set": {"x": self.token, "ttl": self.random.choice([-1, 1, 3, 10])}}
        writes: list[Document] = [
            {"update": ACCOUNTS, "updates": [{"q": filter_, "u": change, "upsert": True}]},
            {"update": ACCOUNTS, "updates": [{"q": {"x": {"$gt": 0}}, "u": change, "multi": True}]},
            {"delete": ACCOUNTS, "deletes": [{"q": filter_, "limit": 1}]},
        ]
        return (yield from self.statement(self.random.choice(writes))) is not None

    def check_ledger(self) -> Part:
        """The ledger has all writes that the accounts count, but for the own ones, which it does not have yet."""
        reply = yield from self.statement({"find": LEDGER, "batchSize": 100_000})
        if reply is None:
            return False
        recorded = sum(len(entry["moves"]) for entry in reply["cursor"]["firstBatch"])
        reply = yield from self.statement({"find": ACCOUNTS, "filter": dict(ALL)})
        if reply is None:
            return False
        counted = sum(document["v"] for document in reply["cursor"]["firstBatch"])
        assert counted == recorded + len(self.moves), (counted, recorded, self.moves)
        return True

    def create(self) -> Part:
        """Creates a collection by an insert."""
        if self.created or self.random.random() < 0.7:
            return True
        name = f"made{self.token}"
        if (yield from self.statement({"insert": name, "documents": [{"_id": self.token}]})) is None:
            return False
        self.created = name
        return True


def _codes(reply: Document) -> list[int]:
    return [error["code"] for error in reply.get("writeErrors", [])]


def plain_writer(bank: Bank) -> Client:
    """Increments a field of accounts outside transactions: it waits for those that have written them."""
    while True:
        n = bank.random.randrange(COUNT)
        increment: Document = {"$inc": {"plain": 1}}
        pick = bank.random.randrange(3)
        numbers = [n]
        if pick == 0:
            command: Document = {"update": ACCOUNTS, "updates": [{"q": {"_id": n}, "u": increment}]}
        elif pick == 1:
            command = {"findAndModify": ACCOUNTS, "query": {"_id": n}, "update": increment}
        else:
            numbers = list(range(COUNT))
            command = {"update": ACCOUNTS, "updates": [{"q": dict(ALL), "u": increment, "multi": True}]}
        if bank.random.random() < 0.3:
            command["writeConcern"] = {"j": True}
        if bank.random.random() < 0.2:
            command["maxTimeMS"] = 50
        for place in numbers:
            bank.most[place] += 1
        request = Request(command)
        reply = yield request
        if reply is None or bank.failed(reply, MAX_TIME_EXPIRED, QUERY_PLAN_KILLED):
            continue
        assert reply.get("n", 1) == len(numbers), reply
        bank.waits += request.ended - request.started > 3
        for place in numbers:
            bank.plain.append((place, request.ended, "writeConcern" in command))
        if bank.random.random() < 0.2:
            yield Request({"delete": ACCOUNTS, "deletes": [{"q": {"x": {"$gt": 0}}, "limit": 0}], "maxTimeMS": 100})


def snapshot_reader(bank: Bank) -> Client:
    """Reads accounts and ledger at one cluster time, page by page: both show the same transactions."""
    while True:
        crashes = bank.world.crashes
        command: Document = {"find": ACCOUNTS, "filter": dict(ALL), "batchSize": bank.random.choice([1, 2, 100])}
        reply = yield Request({**command, "readConcern": {"level": "snapshot"}})
        found: list[Document] = []
        at: Any = None
        while reply is not None and bank.world.crashes == crashes:
            if bank.failed(reply, *SNAPSHOT_GONE, CURSOR_NOT_FOUND, QUERY_PLAN_KILLED):
                break
            cursor = reply["cursor"]
            at = cursor.get("atClusterTime", at)
            found += cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
            if cursor["id"]:
                reply = yield Request({"getMore": Int64(cursor["id"]), "collection": ACCOUNTS})
                continue
            assert len(found) == COUNT, found
            assert sum(document["balance"] for document in found) == COUNT * BALANCE, found
            concern = {"level": "snapshot", "atClusterTime": at}
            reply = yield Request({"find": LEDGER, "batchSize": 100_000, "readConcern": concern})
            if reply is None or bank.world.crashes > crashes or bank.failed(reply, *SNAPSHOT_GONE, QUERY_PLAN_KILLED):
                break
            recorded = sum(len(entry["moves"]) for entry in reply["cursor"]["firstBatch"])
            assert sum(document["v"] for document in found) == recorded, (found, recorded)
            bank.snapshots += 1
            break


def index_builder(bank: Bank) -> Client:
    """Builds and drops indexes of the accounts, after the transactions that use them."""
    while True:
        spec: Document = bank.random.choice(
            [{"key": {"v": 1}, "name": "v_1"}, {"key": {"name": -1}, "name": "name", "unique": True, "sparse": True}]
        )
        if bank.random.random() < 0.6:
            command: Document = {"createIndexes": ACCOUNTS, "indexes": [spec]}
        else:
            command = {"dropIndexes": ACCOUNTS, "index": spec["name"]}
        reply = yield Request(command)
        if reply is not None:
            bank.failed(reply, *INDEX_CODES)
        for _ in range(bank.random.randrange(12)):
            yield Request({"ping": 1})


def check_bank(bank: Bank) -> None:
    """All that was acknowledged is there, nothing that was aborted, and no write was lost."""
    catalog = bank.world.service.catalog
    accounts_store, ledger_store = catalog.lookup("sim", ACCOUNTS), catalog.lookup("sim", LEDGER)
    assert accounts_store is not None and ledger_store is not None
    accounts = [bson.decode(record[1]) for record in accounts_store.store.scan(0, 1000)[0]]
    accounts = [document for document in accounts if document.get("kind") == "account"]
    entries = {d["_id"]: d for d in (bson.decode(record[1]) for record in ledger_store.store.scan(0, 100_000)[0])}
    missing = bank.committed.keys() - entries.keys()
    assert not missing, f"the transactions {missing} were committed, and are lost"
    appeared = bank.aborted & entries.keys()
    assert not appeared, f"the transactions {appeared} were aborted, and are there"
    for account in accounts:
        n = account["_id"]
        moves = sorted(move[1:] for entry in entries.values() for move in entry["moves"] if move[0] == n)
        assert [v for v, _ in moves] == list(range(account["v"])), f"a write of {account} was lost: {moves}"
        assert account["balance"] == BALANCE + sum(delta for _, delta in moves), f"{account}: {moves}"
        least = sum(place == n for place, _, _ in bank.plain)
        assert least <= account["plain"] <= bank.most[n], f"{account}: {least} to {bank.most[n]} plain writes"
    for entry in entries.values():
        if entry["created"]:
            made = catalog.lookup("sim", entry["created"])
            assert made is not None and made.store.count() == 1
    for token in bank.aborted:
        assert catalog.lookup("sim", f"made{token}") is None
