"""Others beside the commit of a transaction that has written much: pings are answered, and nobody sees half of it."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from bson import Binary, Int64

import mongottl
from mongottl.document.interrupt import in_undivided
from mongottl.server.thread import RunningServer
from tests.drivers.wire_client import WireClient
from tests.on_store import is_wanted
from tests.waiting import until

COUNT = 3000
TRANSACTION: dict[str, Any] = {"lsid": {"id": Binary(bytes(16), 4)}, "txnNumber": Int64(1), "autocommit": False}


@pytest.fixture
def own_server() -> Iterator[RunningServer]:
    with mongottl.start_server() as running:
        yield running


@pytest.mark.skipif(is_wanted(), reason="with a store, others run while a commit waits for it")
def test_a_ping_is_answered_and_a_read_waits(own_server: RunningServer) -> None:
    """The two are sent when the unit of work has begun."""
    stacks = own_server._thread.server.service.stacks
    answer_apart = stacks.answer_apart
    answered: list[dict[str, Any]] = []
    with ExitStack() as clients:
        writer, reader, pinging = (clients.enter_context(closing(WireClient(own_server.uri))) for _ in range(3))

        def answered_apart() -> bool:
            answer_apart()
            return pinging.has_reply()

        def ask() -> None:
            """In the server's thread, in the middle of the commit."""
            assert in_undivided() or answered
            if not answered:
                reader.send({"count": "c"})
            pinging.send({"ping": 1}, "admin")
            until(answered_apart)
            answered.append(pinging.reply())
            assert not reader.has_reply()

        writer.command({"create": "c"})
        for client in (reader, pinging):
            assert client.command({"count": "c"})["n"] == 0  # so that it waits in the poller
        for number in range(3):
            documents = [{"_id": number * COUNT + place} for place in range(COUNT)]
            beginning = {} if number else {"startTransaction": True}
            reply = writer.command({"insert": "c", "documents": documents, **TRANSACTION, **beginning})
            assert reply["n"] == COUNT, reply
        assert reader.command({"count": "c"})["n"] == 0
        stacks.times.left_after_s = 0.0
        stacks.answer_apart = ask
        assert writer.command({"commitTransaction": 1, **TRANSACTION}, "admin")["ok"] == 1.0
        stacks.answer_apart = answer_apart
        assert reader.reply()["n"] == 3 * COUNT
    assert len(answered) > 10 and all(reply["ok"] == 1.0 for reply in answered)
