"""Tailable cursors over real connections: what an insert of one client does for another that waits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.cursor import Cursor, CursorType
from pymongo.errors import PyMongoError

import mongottl
from tests.waiting import PATIENCE_S

Document = dict[str, Any]


@pytest.fixture
def capped(database: Any) -> Collection[Document]:
    collection: Collection[Document] = database.create_collection("c", capped=True, size=100_000)
    collection.insert_one({"_id": 0})
    return collection


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def tailing(collection: Collection[Document]) -> Cursor[Document]:
    """A cursor that has given what was there, and waits an hour for more."""
    cursor = collection.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(3_600_000)
    assert next(cursor) == {"_id": 0}
    return cursor


def test_a_driver_tails(capped: Collection[Document]) -> None:
    cursor = capped.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(10)
    assert next(cursor) == {"_id": 0}
    capped.insert_many([{"_id": 1}, {"_id": 2}])
    assert [next(cursor), next(cursor)] == [{"_id": 1}, {"_id": 2}]
    assert cursor.alive
    cursor.close()


def test_an_insert_wakes_all_who_wait(capped: Collection[Document], pool: ThreadPoolExecutor) -> None:
    cursors = [tailing(capped) for _ in range(4)]
    waiting = [pool.submit(next, cursor) for cursor in cursors]
    capped.insert_one({"_id": 1})
    assert [answer.result(timeout=PATIENCE_S) for answer in waiting] == [{"_id": 1}] * 4
    for cursor in cursors:
        cursor.close()


def test_dropping_ends_the_waiting(capped: Collection[Document], pool: ThreadPoolExecutor) -> None:
    cursor = tailing(capped)
    waiting = pool.submit(next, cursor)
    capped.drop()
    with pytest.raises(StopIteration):  # what the driver makes of QueryPlanKilled (175) here
        waiting.result(timeout=PATIENCE_S)
    assert not cursor.alive


def test_stopping_the_server_ends_the_waiting(pool: ThreadPoolExecutor) -> None:
    with mongottl.start_server() as server, pymongo.MongoClient[Document](server.uri) as client:
        client.test.create_collection("c", capped=True, size=100_000).insert_one({"_id": 0})
        waiting = pool.submit(next, tailing(client.test.c))
        client.admin.command("ping")
    with pytest.raises((PyMongoError, StopIteration)):
        waiting.result(timeout=PATIENCE_S)


def test_without_waiting(capped: Collection[Document]) -> None:
    cursor = capped.find(cursor_type=CursorType.TAILABLE)
    assert list(cursor) == [{"_id": 0}]
    assert cursor.alive
    capped.insert_one({"_id": 1})
    assert list(cursor) == [{"_id": 1}]
