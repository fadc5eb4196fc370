"""Tests that run in several processes: a server for each by `--per-worker`, a warning if they share one."""

import os
import sys

import pytest

from tests.drivers.process.test_run import run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs POSIX")]

# What a worker of a test runner does: it takes the server of its number, resets it, writes, and counts.
WORKER = """
import os, sys, pymongo
with pymongo.MongoClient(os.environ["MONGODB_URI_" + sys.argv[1]]) as client:
    for _ in range(20):
        client.admin.command("resetState", 1)
        client.shop.things.insert_many([{}, {}, {}])
        client.admin.command("advanceClock", 60)
        assert client.shop.things.count_documents({}) == 3
    # Workers share the standard output: a line is written at once, so that none stands within another's.
    os.write(1, b"%r\\n" % client.admin.command("hello")["localTime"].timestamp())
"""
WORKERS = f"""
import subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", {WORKER!r}, number]) for number in sys.argv[1:]]
sys.exit(max(worker.wait() for worker in workers))
"""
SHOW = 'echo "$MONGODB_URI $MONGODB_URI_0 $MONGODB_URI_1 $MONGODB_URI_2 $MONGODB_URI_3 $DB_1"'
# A test process, which resets and writes, and another that does what its argument says while it is connected.
SHARED = """
import os, subprocess, sys, pymongo
other = '''
import os, sys, pymongo
with pymongo.MongoClient(os.environ["MONGODB_URI"]) as client:
    if sys.argv[1] != "application":
        client.admin.command("resetState", 1)
    client.shop.things.insert_one({})
    print("ready", flush=True)
    sys.stdin.read()
'''
def begin():
    command = [sys.executable, "-c", other, sys.argv[1]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process
if sys.argv[1] == "before":
    begin().communicate()
with pymongo.MongoClient(os.environ["MONGODB_URI"]) as client:
    for _ in range(3):
        client.admin.command("resetState", 1)
        client.shop.things.insert_one({})
        if sys.argv[1] != "before":
            process = begin()
            client.admin.command("resetState", 1)
            process.communicate()
"""


@pytest.mark.parametrize("numbers", [("1", "2", "3"), ("0", "1", "2")])
def test_each_worker_has_a_server(numbers: tuple[str, ...]) -> None:
    ended = run("--per-worker", "3", "--", sys.executable, "-c", WORKERS, *numbers)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.split()) == 3


def test_variables_of_workers() -> None:
    ended = run("--per-worker=2", "--env", "DB", "--database", "shop", "--", "sh", "-c", SHOW)
    assert (ended.returncode, ended.stderr) == (0, "")
    template, zero, one, two, other = ended.stdout.split()  # there is no third
    assert template == "mongodb://each-worker:has-its-own-MONGODB_URI_1-to-2/"
    assert zero == two != one == other
    assert one.startswith("mongodb://127.0.0.1:") and one.endswith("/shop")


def test_a_worker_that_has_not_chosen_fails_at_once() -> None:
    program = 'import os, pymongo; pymongo.MongoClient(os.environ["MONGODB_URI"])'
    ended = run("--per-worker", "2", "--", sys.executable, "-c", program)
    assert ended.returncode == 1
    assert "Port contains non-digit characters" in ended.stderr


def test_one_for_each_processor() -> None:
    ended = run("--per-worker", "auto", "--", "sh", "-c", "env | grep -c '^MONGODB_URI_[1-9]'")
    assert (ended.returncode, ended.stdout.strip()) == (0, str(os.cpu_count()))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--per-worker", "0"], 2, "--per-worker: the number of workers is needed"),
        (["--per-worker", "many"], 2, "not 'many'"),
        (["--per-worker", "257"], 2, "up to 256"),
        (["--per-worker", "2", "--data-dir", "data"], 2, "--data-dir: not together with --per-worker"),
        (["--per-worker", "2", "--port", "27018"], 2, "--port: not together with --per-worker"),
        (["--per-worker", "2", "--load", "no-such-folder"], 1, "no-such-folder"),
    ],
)
def test_per_worker_refuses_invalid_numbers_and_options(arguments: list[str], status: int, said: str) -> None:
    ended = run(*arguments, "--", "echo", "it has run")
    assert (ended.returncode, ended.stdout) == (status, "")
    assert ended.stderr.count(said) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which process a connection is of")
@pytest.mark.parametrize(("other", "warnings"), [("resets", 1), ("application", 0), ("before", 0)])
def test_two_processes_that_reset_one_server(other: str, warnings: int) -> None:
    ended = run("--", sys.executable, "-c", SHARED, other)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("Two programs reset this server at the same time") == warnings
    assert ended.stderr.count("mongottl run --per-worker N") == warnings
    assert len(ended.stderr.splitlines()) == warnings
