"""A server that is killed in mid-work, again and again, with transactions, retryable writes and change streams.

MONGOTTL_KILLS=100 kills it a hundred times.
"""

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import encode
from pymongo.change_stream import ChangeStream
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from tests.drivers.process.test_process import Process
from tests.oplog_replay import replay
from tests.waiting import until, until_connected

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]
KILLS = int(os.environ.get("MONGOTTL_KILLS", "5"))
ACCOUNTS = 8
BALANCE = 100
TRANSFERRERS = 3
WRITERS = 2


class History:
    """What the clients know. committed, inserted: ids of which they were told that they are stored; sent: all ids.

    told: the events of the stream, over all runs of the server, in its order.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.committed: set[str] = set()
        self.inserted: set[str] = set()
        self.sent = 0
        self.told: list[Documents] = []
        self.resume: Any = None
        self.stops = threading.Event()
        self.broken: list[BaseException] = []

    def new_id(self, kind: str) -> str:
        with self.lock:
            self.sent += 1
            return f"{kind}{self.sent}"


def transfer(client: Client, history: History, seed: int) -> None:
    """Moves money between two accounts and records it, in transactions, until the server is gone."""
    chance = random.Random(seed)
    database = client.bank
    while not history.stops.is_set():
        token = history.new_id("t")
        source, target = chance.sample(range(ACCOUNTS), 2)
        try:
            with client.start_session() as session, session.start_transaction():
                database.accounts.update_one({"_id": source}, {"$inc": {"balance": -1, "v": 1}}, session=session)
                database.ledger.insert_one({"_id": token, "from": source, "to": target}, session=session)
                database.accounts.update_one({"_id": target}, {"$inc": {"balance": 1, "v": 1}}, session=session)
                if chance.random() < 0.2:
                    session.abort_transaction()
                    continue
            history.committed.add(token)
        except OperationFailure as error:
            if not error.has_error_label("TransientTransactionError"):
                history.broken.append(error)
                return
        except ConnectionFailure:
            return
        except PyMongoError as error:
            history.broken.append(error)
            return


def insert(client: Client, history: History) -> None:
    """Inserts documents one by one, and updates each, as retryable writes."""
    database = client.bank
    while not history.stops.is_set():
        token = history.new_id("p")
        try:
            database.plain.insert_one({"_id": token, "n": 0})
            history.inserted.add(token)
            database.plain.update_one({"_id": token}, {"$inc": {"n": 1}})
        except ConnectionFailure:
            return
        except PyMongoError as error:
            history.broken.append(error)
            return


def follow(client: Client, history: History) -> None:
    """Reads the events of the database from where the last run ended."""
    try:
        with watch(client, history) as stream:
            while not history.stops.is_set():
                take(stream, history)
    except ConnectionFailure:
        return
    except PyMongoError as error:
        history.broken.append(error)


def watch(client: Client, history: History) -> ChangeStream[Documents]:
    return client.bank.watch(resume_after=history.resume, max_await_time_ms=20)


def take(stream: ChangeStream[Documents], history: History) -> bool:
    event = stream.try_next()
    if event is None:
        return False
    history.told.append(event)
    history.resume = event["_id"]
    return True


def check(client: Client, history: History) -> None:
    """What holds after each start: nothing is lost or half done, and the stream tells each write once."""
    database = client.bank
    assert not history.broken, history.broken
    accounts = list(database.accounts.find())
    ledger = {document["_id"] for document in database.ledger.find()}
    plain = {document["_id"]: document["n"] for document in database.plain.find()}
    assert sum(account["balance"] for account in accounts) == ACCOUNTS * BALANCE
    assert sum(account["v"] for account in accounts) == 2 * len(ledger)
    assert history.committed <= ledger
    assert history.inserted <= plain.keys()
    assert set(plain.values()) <= {0, 1}
    for name in ("accounts", "ledger", "plain"):
        assert database.command("validate", name)["valid"] is True
    with watch(client, history) as stream:
        while take(stream, history):
            pass
    inserted = Counter(event["documentKey"]["_id"] for event in history.told if event["operationType"] == "insert")
    assert inserted == Counter([*ledger, *plain])
    times = [event["clusterTime"] for event in history.told]
    assert times == sorted(times)
    check_transactions(history.told)
    logged = replay(client.local["oplog.rs"].find())
    assert logged["bank.accounts"] == documents_of(database, "accounts")
    assert logged["bank.plain"] == documents_of(database, "plain")


def documents_of(database: Database[Documents], name: str) -> dict[bytes, Documents]:
    return {encode({"": document["_id"]}): document for document in database[name].find()}


def check_transactions(told: list[Documents]) -> None:
    """The three events of each transaction come together."""
    of_transactions = [event for event in told if "txnNumber" in event and event["ns"]["coll"] != "plain"]
    assert len(of_transactions) % 3 == 0
    for place in range(0, len(of_transactions), 3):
        three = of_transactions[place : place + 3]
        assert [event["ns"]["coll"] for event in three] == ["accounts", "ledger", "accounts"]
        assert len({(str(event["lsid"]), event["txnNumber"], event["clusterTime"]) for event in three}) == 1


@pytest.mark.slow
def test_kills_lose_nothing_and_leave_nothing_half_done(tmp_path: Path) -> None:
    history = History()
    chance = random.Random(1)
    for run in range(KILLS + 1):
        process = Process(tmp_path / f"log{run}", "--port", "0", "--data-dir", str(tmp_path / "data"))
        try:
            with Client(process.uri, serverSelectionTimeoutMS=500) as client:
                until_connected(client)
                if run == 0:
                    accounts = [{"_id": n, "balance": BALANCE, "v": 0} for n in range(ACCOUNTS)]
                    with client.bank.watch() as stream:
                        client.bank.accounts.insert_many(accounts)
                        history.resume = [next(stream) for _ in accounts][-1]["_id"]
                    client.bank.create_collection("ledger")
                    client.bank.create_collection("plain")
                check(client, history)
                if run < KILLS:
                    work_until_killed(process, client, history, chance, is_last=run == KILLS - 1)
        finally:
            process.kill()
        assert "Traceback" not in process.log.read_text()
    assert len(history.committed) > KILLS
    assert len(history.inserted) > KILLS


def work_until_killed(process: Process, client: Client, history: History, chance: random.Random, is_last: bool) -> None:
    history.stops = threading.Event()
    workers = [
        *[
            threading.Thread(target=transfer, args=(client, history, chance.getrandbits(30)))
            for _ in range(TRANSFERRERS)
        ],
        *[threading.Thread(target=insert, args=(client, history)) for _ in range(WRITERS)],
        threading.Thread(target=follow, args=(client, history)),
    ]
    for worker in workers:
        worker.start()
    # The moment of the kill is what differs between the runs; nothing is expected to have happened by then.
    time.sleep(chance.uniform(0.05, 0.6))
    if is_last:
        until(lambda: history.broken or min(len(history.committed), len(history.inserted)) > KILLS)
    process.popen.kill()
    history.stops.set()
    for worker in workers:
        worker.join()
