"""What an operation does in one piece ends with its time, and with the server's."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import AutoReconnect, ExecutionTimeout, PyMongoError

import mongottl
from tests.drivers.process.test_process import Process
from tests.waiting import PATIENCE_S, until

Client = pymongo.MongoClient[dict[str, Any]]

# On an array of 100,000 numbers this would take many minutes: each turn copies them.
TURN = {"$slice": [{"$concatArrays": [["$$this"], "$$value", "$a"]}, 100_000]}
ENDLESS = {"$reduce": {"input": "$a", "initialValue": [], "in": TURN}}
PIPELINE: list[dict[str, Any]] = [{"$project": {"n": {"$size": {"$filter": {"input": ENDLESS, "cond": True}}}}}]


def filled(client: Client) -> Any:
    client.shop.coll.insert_one({"_id": 1, "a": [*range(100_000)]})
    return client.shop.coll


@pytest.mark.parametrize("where", ["aggregate", "find", "update", "update pipeline", "count", "distinct", "delete"])
def test_the_time_of_an_operation_ends_what_it_does_in_one_piece(where: str) -> None:
    expression = {
        "$expr": {"$gt": [{"$size": {"$reduce": {**ENDLESS["$reduce"], "input": {"$range": [0, 100_000]}}}}, 0]}
    }
    with mongottl.start_server() as server, Client(server.uri) as client:
        coll = filled(client)
        commands: dict[str, dict[str, Any]] = {
            "aggregate": {"aggregate": "coll", "pipeline": PIPELINE, "cursor": {}},
            "find": {"find": "coll", "filter": expression},
            "count": {"count": "coll", "query": expression},
            "distinct": {"distinct": "coll", "key": "_id", "query": expression},
            "update": {"update": "coll", "updates": [{"q": expression, "u": {"$set": {"b": 1}}}]},
            "update pipeline": {"update": "coll", "updates": [{"q": {}, "u": [{"$set": {"b": {"$size": ENDLESS}}}]}]},
            "delete": {"delete": "coll", "deletes": [{"q": expression, "limit": 0}]},
        }
        try:
            reply = client.shop.command({**commands[where], "maxTimeMS": 200})
        except ExecutionTimeout:
            pass
        else:
            assert reply["writeErrors"][0]["code"] == 50, reply
        assert coll.find_one({}, {"a": 0}) == {"_id": 1}


def test_a_merge_whose_time_is_over_writes_no_more_of_its_batch() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        coll = filled(client)
        coll.insert_many([{"_id": n} for n in range(2, 40)])
        client.shop.target.insert_one({"_id": 1, "a": [*range(100_000)]})
        merge = {"into": "target", "whenMatched": [{"$set": {"b": {"$size": ENDLESS}}}]}
        with pytest.raises(ExecutionTimeout):
            coll.aggregate([{"$sort": {"_id": 1}}, {"$merge": merge}], maxTimeMS=200)
        assert list(client.shop.target.find({}, {"a": 0})) == [{"_id": 1}]


@pytest.mark.skipif(os.name != "posix", reason="signals and /proc are POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_an_operation_does_in_one_piece(tmp_path: Path, number: signal.Signals) -> None:
    process = Process(tmp_path / "log", "--port", "0")
    with Client(process.uri, retryReads=False) as client:
        coll = filled(client)
        errors: list[PyMongoError] = []

        def run() -> None:
            try:
                coll.aggregate(PIPELINE)
            except PyMongoError as error:
                errors.append(error)

        before_s = cpu_s(process.popen.pid)
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: cpu_s(process.popen.pid) > before_s + 0.5)
        process.popen.send_signal(number)
        assert process.popen.stdout is not None
        process.popen.stdout.close()
        assert process.popen.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()
        thread.join()
        assert errors
        assert isinstance(errors[0], AutoReconnect) or getattr(errors[0], "code", 0) == 11600


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_the_process_ends_even_if_nothing_checks() -> None:
    program = (
        "import os, signal\n"
        "from mongottl.cli import serve\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"  # coverage has a handler of its own
        "class Server:\n"
        "    is_stopping = False\n"
        "    def begin_stop(self): self.is_stopping = True\n"
        "with serve._stopping_in_time([Server()]):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    while True: pass\n"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
