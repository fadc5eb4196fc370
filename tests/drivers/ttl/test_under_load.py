"""The reaper keeps its promise, a second at most, while clients write as fast as they can.

In real time, of which only that counts in which the server runs.

Due times are set in advance by moving the clock, so that four busy seconds show what hours would.
"""

import threading
import time
from typing import Any

import pymongo
import pytest

import mongottl
from tests.on_nodes import own_figures
from tests.tracing import untraced
from tests.waiting import PATIENCE_S

SECONDS = 3
DUE_EACH_SECOND = 1000
WRITERS = 2
# How long a document may be overdue, in seconds for which the server has run.
LATE_S = untraced(1.0)


def write_until(uri: str, stop: threading.Event, written: list[int]) -> None:
    with pymongo.MongoClient[dict[str, Any]](uri) as client:
        collection = client["load"]["busy"]
        while not stop.is_set():
            collection.insert_many([{"n": n, "ttl": 3600} for n in range(50)])
            collection.update_many({"n": 7}, {"$inc": {"m": 1}}, hint="n_1")
            written.append(50)


def servers_threads() -> list[threading.Thread]:
    """In the order of their starts."""
    return [thread for thread in threading.enumerate() if thread.name == "mongottl"]


def seconds_run(thread: threading.Thread) -> float:
    """How long a thread has run: seconds of CPU, so that what others do on this machine makes no difference.

    By the clock where the system does not tell. The server's thread is never idle while clients write, so both are the
    same where nobody else takes the processor.
    """
    if thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


@own_figures
@pytest.mark.slow
def test_documents_go_within_a_second_while_clients_write() -> None:
    others = servers_threads()
    with mongottl.start_server() as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        servers_thread = next(thread for thread in servers_threads() if thread not in others)  # the first one's
        database = client["load"]
        database["busy"].create_index("n")
        database["busy"].create_index("_ts", expireAfterSeconds=-1)
        due = database["due"]
        due.create_index("_ts", expireAfterSeconds=-1)
        # All of a second's documents are written within it, the first due about two seconds from now.
        server.clock.advance(1 - server.clock.now().timestamp() % 1)
        start_s = int(server.clock.now().timestamp())
        for second in range(SECONDS):
            due.insert_many([{"due": start_s + 2 + second, "ttl": 2 + second} for _ in range(DUE_EACH_SECOND)])
        stop = threading.Event()
        written: list[int] = []
        writers = [threading.Thread(target=write_until, args=(server.uri, stop, written)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        server.clock.freeze(False)
        late: list[tuple[float, int]] = []
        # For each second that has come, how long the server had run then.
        due_at_s: dict[int, float] = {}
        try:
            while True:
                # What is stored, not what is visible: expired documents are invisible at once in any case.
                asked_s = server.clock.now().timestamp()
                ran_s = seconds_run(servers_thread)
                for second in range(SECONDS):
                    if asked_s >= start_s + 2 + second:
                        due_at_s.setdefault(second, ran_s)
                status = client["admin"].command("serverStatus")
                overdue = sum(DUE_EACH_SECOND for second, since_s in due_at_s.items() if ran_s >= since_s + LATE_S)
                deleted = status["metrics"]["ttl"]["deletedDocuments"]
                if deleted < overdue:
                    late.append((asked_s - start_s, overdue - deleted))
                assert deleted <= sum(
                    DUE_EACH_SECOND
                    for second in range(SECONDS)
                    if server.clock.now().timestamp() >= start_s + 2 + second
                ), "something went too early"
                if deleted == SECONDS * DUE_EACH_SECOND:
                    break
                assert asked_s < start_s + 2 + SECONDS + PATIENCE_S, f"only {deleted} were deleted"
                time.sleep(0.02)  # lets the writers have the server
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        assert not late, f"(seconds, documents overdue): {late}"
        assert sum(written) > 1000
        assert due.estimated_document_count() == 0
