"""Capped collections and cursors that tail them. Source: MongoDB's pages on both."""

from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.exec.running.steps import Wait
from mongottl.exec.write.copying import copy_as_capped
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import Document, Running
from tests.steps import run_to_end


@pytest.fixture(params=["sqlite", "memory"])
def server(request: pytest.FixtureRequest) -> Running:
    return Running(ContractEngine(open_engine(f"{request.param}:")))


def make(server: Running, size: int = 100_000, most: int = 0, name: str = "c") -> None:
    limits = {"size": size, "max": most} if most else {"size": size}
    assert server.run({"create": name, "capped": True, **limits}) == {}


def found(server: Running, **options: Any) -> list[Any]:
    """The `_id`s in the order of a find."""
    return [document["_id"] for document in server.listed({"find": "c", **options})]


def document_of(number: int, size: int) -> Document:
    """A document of exactly this many bytes."""
    empty = len(bson.encode({"_id": number, "x": ""}))
    return {"_id": number, "x": "x" * (size - empty)}


class TestBounds:
    def test_number(self, server: Running) -> None:
        make(server, most=3)
        for number in range(5):
            server.insert({"_id": number})
        assert found(server) == [2, 3, 4]

    def test_number_in_one_batch(self, server: Running) -> None:
        make(server, most=3)
        server.insert(*({"_id": number} for number in range(1000)))
        assert found(server) == [997, 998, 999]

    def test_size(self, server: Running) -> None:
        make(server, size=300)
        for number in range(4):
            server.insert(document_of(number, 100))
        assert found(server) == [1, 2, 3]

    def test_one_large_document_displaces_several(self, server: Running) -> None:
        make(server, size=300)
        server.insert(*(document_of(number, 100) for number in range(3)))
        server.insert(document_of(3, 150))
        assert found(server) == [2, 3]
        server.insert(document_of(4, 300))
        assert found(server) == [4]

    @pytest.mark.parametrize("most", [0, 3])
    def test_a_document_larger_than_the_collection_stays_until_the_next_one(self, server: Running, most: int) -> None:
        make(server, size=300, most=most)
        server.insert(document_of(1, 100), document_of(2, 100))
        server.insert(document_of(3, 301))
        assert found(server) == [3]
        server.insert(document_of(4, 1000))
        assert found(server) == [4]
        server.insert(document_of(5, 100), document_of(6, 100))
        assert found(server) == [5, 6]

    @pytest.mark.parametrize("ordered", [True, False])
    def test_a_document_larger_than_the_collection_in_a_batch(self, server: Running, ordered: bool) -> None:
        make(server, size=300)
        batch = [document_of(1, 100), document_of(2, 301), document_of(3, 100), document_of(4, 100)]
        assert server.run({"insert": "c", "documents": batch, "ordered": ordered}) == {"n": 4}
        assert found(server) == [3, 4]
        batch = [document_of(5, 301), document_of(6, 302)]
        assert server.run({"insert": "c", "documents": batch, "ordered": ordered}) == {"n": 2}
        assert found(server) == [6]

    def test_a_document_larger_than_the_collection_displaces_more_than_one_step_deletes(self, server: Running) -> None:
        make(server, size=100_000)
        server.insert(*(document_of(number, 100) for number in range(1000)))
        server.insert(document_of(1000, 100_001))
        assert found(server) == [1000]

    def test_indexes_follow(self, server: Running) -> None:
        make(server, most=2)
        server.index({"x": 1}, unique=True)
        for number in range(6):
            server.insert({"_id": number % 3, "x": number % 3})
        assert found(server) == [1, 2]
        assert found(server, filter={"x": {"$lt": 2}}, hint="x_1") == [1]

    def test_a_key_is_free_again_in_the_same_batch(self, server: Running) -> None:
        make(server, most=2)
        server.insert({"_id": 1}, {"_id": 2}, {"_id": 3}, {"_id": 1})
        assert found(server) == [3, 1]

    def test_natural_order(self, server: Running) -> None:
        make(server, most=3)
        server.insert({"_id": 9}, {"_id": 3}, {"_id": 7}, {"_id": 5})
        assert found(server) == [3, 7, 5]
        assert found(server, sort={"$natural": -1}) == [5, 7, 3]

    def test_updates_may_grow_and_shrink(self, server: Running) -> None:
        make(server, size=300)
        server.insert(document_of(1, 100), document_of(2, 100))
        reply = server.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": document_of(1, 200)}]})
        assert reply == {"n": 1, "nModified": 1}
        assert found(server) == [1, 2]
        server.insert(document_of(3, 100))
        assert found(server) == [2, 3]

    def test_deletes_and_upserts(self, server: Running) -> None:
        make(server, most=3)
        server.insert({"_id": 1}, {"_id": 2}, {"_id": 3})
        assert server.run({"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]}) == {"n": 1}
        server.run({"update": "c", "updates": [{"q": {"_id": 4}, "u": {"$set": {"x": 1}}, "upsert": True}]})
        assert found(server) == [1, 3, 4]
        server.insert({"_id": 5})
        assert found(server) == [3, 4, 5]

    def test_listing(self, server: Running) -> None:
        make(server, size=1000, most=7)
        listed = server.listed({"listCollections": 1})
        assert [entry["options"] for entry in listed] == [{"capped": True, "size": 1000, "max": 7}]

    def test_statistics(self, server: Running) -> None:
        make(server, size=8192, most=7)
        reply = server.run({"collStats": "c", "scale": 1024})
        assert (reply["capped"], reply["max"], reply["maxSize"]) == (True, 7, 8)

    def test_expired_documents_go_first(self, server: Running) -> None:
        make(server, most=3)
        server.index({"_ts": 1}, "t", expireAfterSeconds=100)
        server.insert({"_id": 1})
        server.insert({"_id": 2, "ttl": 5}, {"_id": 3})
        server.advance(5)
        server.insert({"_id": 4})
        assert found(server) == [1, 3, 4]

    def test_a_failed_insert_displaces_nothing(self, server: Running) -> None:
        make(server, most=2)
        server.insert({"_id": 1}, {"_id": 2})
        assert "writeErrors" in server.run({"insert": "c", "documents": [{"_id": 2}]})
        assert found(server) == [1, 2]


def test_bounds_hold_after_a_restart(tmp_path: Any) -> None:
    first = Running(open_engine(f"sqlite:{tmp_path}"))
    make(first, most=2)
    first.insert({"_id": 1}, {"_id": 2}, {"_id": 3})
    first.engine.close()
    second = Running(open_engine(f"sqlite:{tmp_path}"))
    second.insert({"_id": 4})
    assert found(second) == [3, 4]
    second.engine.close()


class Tailing:
    """A tailable cursor of a collection `c`."""

    def __init__(self, server: Running, **options: Any) -> None:
        self.server = server
        self.first = server.run({"find": "c", "tailable": True, **options})["cursor"]
        self.id = self.first["id"]
        self.batch = [document["_id"] for document in self.first["firstBatch"]]

    def command(self, **options: Any) -> Document:
        return {"getMore": bson.Int64(self.id), "collection": "c", **options}

    def more(self, **options: Any) -> list[Any]:
        reply = self.server.run(self.command(**options))["cursor"]
        self.id = reply["id"]
        return [document["_id"] for document in reply["nextBatch"]]


class TestTailing:
    def test_tailing_returns_documents_inserted_later(self, server: Running) -> None:
        make(server)
        server.insert({"_id": 1}, {"_id": 2})
        cursor = Tailing(server)
        assert cursor.batch == [1, 2]
        assert cursor.more() == []
        server.insert({"_id": 3})
        server.insert({"_id": 0})
        assert cursor.more() == [3, 0]
        assert cursor.more() == []
        assert cursor.id != 0

    @pytest.mark.parametrize(
        ("options", "first", "then"),
        [
            ({"filter": {"_id": {"$gte": 2}}}, [2], [3, 4]),
            ({"filter": {"_id": 9}}, [], []),
            ({"skip": 1}, [2], [3, 4]),
            ({"skip": 3}, [], [4]),
            ({"limit": 1}, [1], []),
            ({"limit": 3}, [1, 2], [3]),
            ({"batchSize": 1}, [1], [2, 3, 4]),
            ({"batchSize": 0}, [], [1, 2, 3, 4]),
            ({"sort": {"$natural": 1}}, [1, 2], [3, 4]),
            ({"hint": "_id_"}, [1, 2], [3, 4]),
            ({"hint": {"$natural": -1}}, [2, 1], []),
            ({"noCursorTimeout": True, "allowDiskUse": True}, [1, 2], [3, 4]),
        ],
    )
    def test_options(self, server: Running, options: Document, first: list[int], then: list[int]) -> None:
        make(server)
        server.insert({"_id": 1}, {"_id": 2})
        cursor = Tailing(server, **options)
        assert cursor.batch == first
        server.insert({"_id": 3}, {"_id": 4})
        assert cursor.more() == then
        assert cursor.id != 0

    @pytest.mark.parametrize("option", [{"showRecordId": True}, {"projection": {"r": {"$meta": "recordId"}}}])
    def test_record_ids(self, server: Running, option: Document) -> None:
        make(server)
        server.insert({"_id": 1})
        cursor = Tailing(server, **option)
        server.insert({"_id": 2})
        more = server.run(cursor.command())["cursor"]["nextBatch"]
        assert [list(document.values()) for document in [*cursor.first["firstBatch"], *more]] == [[1, 1], [2, 2]]

    def test_without_documents_there_is_no_position(self, server: Running) -> None:
        assert Tailing(server).id == 0
        make(server)
        assert Tailing(server).id == 0
        opened = Tailing(server, batchSize=0)
        assert opened.id != 0
        assert opened.more() == []
        assert opened.id == 0

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"tailable": True, "sort": {"$natural": -1}}, 2),
            ({"tailable": True, "sort": {"x": 1}}, 2),
            ({"tailable": True, "sort": {"$natural": 1, "x": 1}}, 2),
            ({"tailable": True, "singleBatch": True}, 2),
            ({"tailable": True, "hint": "nonsense"}, 2),
            ({"tailable": True, "limit": -1}, 2),
            ({"awaitData": True}, 9),
        ],
    )
    def test_refusals(self, server: Running, options: Document, code: int) -> None:
        make(server)
        server.insert({"_id": 1})
        assert server.code({"find": "c", **options}) == code

    def test_an_ordinary_collection_has_no_tail(self, server: Running) -> None:
        server.insert({"_id": 1})
        assert server.code({"find": "c", "tailable": True}) == 2

    def test_a_position_that_was_displaced_is_lost(self, server: Running) -> None:
        make(server, most=3)
        server.insert({"_id": 1}, {"_id": 2}, {"_id": 3})
        cursor = Tailing(server)
        server.insert({"_id": 4}, {"_id": 5})
        assert cursor.more() == [4, 5]
        server.insert(*({"_id": number} for number in range(6, 9)))
        assert server.code(cursor.command()) == 136
        assert server.code(cursor.command()) == 43

    def test_a_position_that_was_deleted_is_lost(self, server: Running) -> None:
        make(server)
        server.insert({"_id": 1}, {"_id": 2})
        cursor = Tailing(server)
        server.run({"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]})
        assert server.code(cursor.command()) == 136

    def test_a_position_that_expired_is_not(self, server: Running) -> None:
        make(server)
        server.index({"_ts": 1}, "t", expireAfterSeconds=10)
        server.insert({"_id": 1})
        cursor = Tailing(server)
        server.advance(10)
        assert server.reap() == 1
        server.insert({"_id": 2})
        assert cursor.more() == [2]

    def test_other_reads_lose_their_position_too(self, server: Running) -> None:
        make(server, most=3)
        server.insert({"_id": 1}, {"_id": 2}, {"_id": 3})
        cursor = server.run({"find": "c", "batchSize": 1})["cursor"]
        server.insert({"_id": 4})
        assert server.code({"getMore": bson.Int64(cursor["id"]), "collection": "c"}) == 136

    def test_deleting_all_loses_nothing(self, server: Running) -> None:
        make(server)
        server.insert(*({"_id": number} for number in range(600)))
        assert server.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]}) == {"n": 600}

    def test_dropping(self, server: Running) -> None:
        make(server)
        server.insert({"_id": 1})
        cursor = Tailing(server)
        server.run({"drop": "c"})
        make(server)
        assert server.code(cursor.command()) == 175


class TestAwaiting:
    """A getMore that waits; the test takes its steps one by one."""

    @pytest.fixture
    def cursor(self, server: Running) -> Tailing:
        make(server)
        server.insert({"_id": 1})
        return Tailing(server, awaitData=True, filter={"x": {"$ne": 0}})

    def wait_of(self, server: Running, cursor: Tailing, max_time_ms: int = 60_000) -> tuple[Any, Wait]:
        steps = server.steps(cursor.command(), max_time_ms=max_time_ms)
        step = self.next_wait(steps)
        return steps, step

    @staticmethod
    def next_wait(steps: Any) -> Wait:
        while (step := next(steps)) is None:
            pass
        assert isinstance(step, Wait)
        return step

    @staticmethod
    def result(steps: Any) -> list[Any]:
        return [document["_id"] for document in run_to_end(steps)["cursor"]["nextBatch"]]

    def test_an_insert_wakes(self, server: Running, cursor: Tailing) -> None:
        woken: list[int] = []
        steps, step = self.wait_of(server, cursor)
        assert 59 < step.seconds <= 60
        assert step.signal is not None
        step.signal.wake = lambda: woken.append(1)
        server.insert({"_id": 2})
        assert woken == [1]
        assert self.result(steps) == [2]

    def test_an_insert_that_does_not_match_does_not_end_it(self, server: Running, cursor: Tailing) -> None:
        steps, _ = self.wait_of(server, cursor)
        server.insert({"_id": 2, "x": 0})
        step = self.next_wait(steps)
        assert step.signal is not None
        assert not step.signal.notified
        server.insert({"_id": 3})
        assert self.result(steps) == [3]

    def test_other_collections_do_not_wake(self, server: Running, cursor: Tailing) -> None:
        make(server, name="d")
        steps, step = self.wait_of(server, cursor)
        server.insert({"_id": 2}, into="d")
        assert step.signal is not None
        assert not step.signal.notified
        steps.close()

    def test_time_is_up(self, server: Running, cursor: Tailing) -> None:
        steps, _ = self.wait_of(server, cursor)
        assert self.result(steps) == []
        server.insert({"_id": 2})
        assert self.result(server.steps(cursor.command())) == [2]

    def test_a_second_by_default(self, server: Running, cursor: Tailing) -> None:
        steps, step = self.wait_of(server, cursor, 0)
        assert 0.9 < step.seconds <= 1
        steps.close()

    def test_no_time_at_all(self, server: Running, cursor: Tailing) -> None:
        outcome = server.start(cursor.command(), max_time_ms=1)
        assert not isinstance(outcome, dict)
        assert self.result(outcome) == []

    def test_documents_that_are_there_are_given_at_once(self, server: Running, cursor: Tailing) -> None:
        server.insert({"_id": 2})
        assert self.result(server.steps(cursor.command(), max_time_ms=60_000)) == [2]

    def test_dropping_ends_it(self, server: Running, cursor: Tailing) -> None:
        steps, step = self.wait_of(server, cursor)
        server.run({"drop": "c"})
        assert step.signal is not None
        assert step.signal.notified
        with pytest.raises(Exception, match="dropped"):
            run_to_end(steps)

    def test_killing_ends_it(self, server: Running, cursor: Tailing) -> None:
        steps, step = self.wait_of(server, cursor)
        server.run({"killCursors": "c", "cursors": [bson.Int64(cursor.id)]})
        assert step.signal is not None
        assert step.signal.notified
        with pytest.raises(Exception, match="killed"):
            run_to_end(steps)

    def test_tailing_cursor_skips_documents_that_expire_while_it_waits(self, server: Running, cursor: Tailing) -> None:
        server.index({"_ts": 1}, "t", expireAfterSeconds=10)
        steps, _ = self.wait_of(server, cursor)
        server.insert({"_id": 2, "ttl": 5})
        server.advance(5)
        self.next_wait(steps)
        server.insert({"_id": 3, "ttl": 5})
        assert self.result(steps) == [3]

    def test_nobody_waits_on_when_it_has_ended(self, server: Running, cursor: Tailing) -> None:
        steps, step = self.wait_of(server, cursor)
        steps.close()
        server.insert({"_id": 2})
        assert step.signal is not None
        assert not step.signal.notified

    def test_a_time_limit_is_for_those_that_wait(self, server: Running) -> None:
        make(server)
        server.insert({"_id": 1})
        cursor = Tailing(server)
        with pytest.raises(Exception, match="non-awaitData"):
            server.steps(cursor.command(), max_time_ms=100)


def test_emptying(server: Running) -> None:
    make(server)
    server.insert(*({"_id": number} for number in range(600)))
    cursor = Tailing(server)
    assert server.run({"emptycapped": "c"}) == {}
    assert found(server) == []
    assert server.code(cursor.command()) == 136
    server.insert({"_id": 1}, into="d")
    assert server.code({"emptycapped": "d"}) == 20
    assert server.code({"emptycapped": "none"}) == 26


class TestConversion:
    def test_convert(self, server: Running) -> None:
        server.insert(*(document_of(number, 100) for number in range(1000)))
        server.index({"x": 1})
        assert server.run({"convertToCapped": "c", "size": 300}) == {}
        assert found(server) == [997, 998, 999]
        assert server.index_names() == ["_id_"]
        assert server.run({"collStats": "c"})["capped"] is True
        server.insert(document_of(1000, 100))
        assert found(server) == [998, 999, 1000]
        assert [entry["name"] for entry in server.listed({"listCollections": 1})] == ["c"]

    def test_clone(self, server: Running) -> None:
        server.insert(*(document_of(number, 100) for number in range(10)))
        assert server.run({"cloneCollectionAsCapped": "c", "toCollection": "d", "size": 300.9}) == {}
        assert server.ids("d") == [7, 8, 9]
        assert len(server.ids("c")) == 10
        assert server.run({"collStats": "d"})["maxSize"] == 300

    def test_documents_keep_their_age(self, server: Running) -> None:
        server.insert({"_id": 1}, {"_id": 2, "ttl": 20})
        server.advance(10)
        server.run({"convertToCapped": "c", "size": 1000})
        server.index({"_ts": 1}, "t", expireAfterSeconds=15)
        server.advance(5)
        assert found(server) == [2]
        server.advance(5)
        assert found(server) == []

    @pytest.mark.parametrize("options", [{"size": 1050}, {"size": 1_000_000, "max": 10}])
    def test_expired_documents_take_no_room(self, server: Running, options: Document) -> None:
        server.index({"_ts": 1}, "t", expireAfterSeconds=-1)
        for number in range(600):
            document = document_of(number, 100)
            server.insert(document if number % 20 == 0 else {**document, "ttl": 5})
        server.advance(5)
        if "max" in options:
            server.run({"create": "d", "capped": True, **options})
            source, target = server.collection(), server.collection("d")
            copy_as_capped(server.op(), source, "e", target.options)
            assert server.ids("e") == list(range(400, 600, 20))
            return
        assert server.run({"cloneCollectionAsCapped": "c", "toCollection": "d", **options}) == {}
        assert server.ids("d") == list(range(400, 600, 20))

    @pytest.mark.parametrize("size", [50, 150])
    def test_the_newest_document_is_copied_whatever_its_size(self, server: Running, size: int) -> None:
        server.insert(document_of(1, 100), document_of(2, 200))
        assert server.run({"cloneCollectionAsCapped": "c", "toCollection": "d", "size": size}) == {}
        assert server.ids("d") == [2]

    def test_capped_copy_omits_documents_that_expire_meanwhile(self, server: Running) -> None:
        server.index({"_ts": 1}, "t", expireAfterSeconds=-1)
        server.insert(*({"_id": number, "ttl": 5 if number > 300 else -1} for number in range(600)))
        steps = server.steps({"cloneCollectionAsCapped": "c", "toCollection": "d", "size": 1_000_000})
        next(steps)
        server.advance(5)
        run_to_end(steps)
        assert server.ids("d") == list(range(301))

    def test_capped_copy_keeps_documents_whose_expiry_is_postponed_meanwhile(self, server: Running) -> None:
        server.index({"_ts": 1}, "t", expireAfterSeconds=5)
        server.insert(*({"_id": number} for number in range(600)))
        server.advance(5)
        steps = server.steps({"convertToCapped": "c", "size": 1_000_000})
        next(steps)
        server.run({"collMod": "c", "index": {"name": "t", "expireAfterSeconds": 10}})
        run_to_end(steps)
        assert server.ids() == list(range(600))

    def test_writes_meanwhile_are_not_lost(self, server: Running) -> None:
        server.insert(*({"_id": number} for number in range(600)))
        steps = server.steps({"convertToCapped": "c", "size": 1_000_000})
        next(steps)
        server.insert({"_id": 600})
        server.run({"update": "c", "updates": [{"q": {"_id": 0}, "u": {"$set": {"x": 1}}}]})
        run_to_end(steps)
        assert len(server.ids()) == 601
        assert server.ids(filter={"x": 1}) == [0]

    def test_expiry_during_a_capped_copy_does_not_restart_it(self, server: Running) -> None:
        server.index({"_ts": 1}, "t", expireAfterSeconds=-1)
        server.insert(*({"_id": number, "ttl": 1 + number % 50} for number in range(2000)))
        seconds = 0
        for _ in server.steps({"convertToCapped": "c", "size": 1_000_000}):
            server.advance(1)
            server.reap()
            seconds += 1
        assert 3 < seconds < 40
        assert server.collection().options.capped
        assert server.ids() == [number for number in range(2000) if 1 + number % 50 > seconds]

    @pytest.mark.parametrize("drop", [{"drop": "c"}, {"dropDatabase": 1}])
    @pytest.mark.parametrize("size", [150_000, 1_000_000])
    def test_a_collection_that_is_dropped_meanwhile(self, server: Running, size: int, drop: Document) -> None:
        """While the first document that fits is looked for, and while documents are copied. With the database the copy
        is dropped, too."""
        server.index({"_ts": 1}, expireAfterSeconds=100)
        server.insert(*[document_of(number, 100) for number in range(2000)])
        steps = server.steps({"convertToCapped": "c", "size": size})
        next(steps)
        server.run(drop)
        while server.engine.drop_some(1000):
            pass
        with pytest.raises(CommandError) as caught:
            run_to_end(steps)
        assert caught.value.code == 175
        assert server.run({"listCollections": 1})["cursor"]["firstBatch"] == []

    def test_a_stopped_conversion_leaves_nothing(self, server: Running) -> None:
        server.insert(*({"_id": number} for number in range(600)))
        steps = server.steps({"convertToCapped": "c", "size": 1_000_000})
        next(steps)
        steps.close()
        assert [entry["name"] for entry in server.listed({"listCollections": 1})] == ["c"]

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            ({"convertToCapped": "none", "size": 1000}, 26),
            ({"convertToCapped": "c"}, 72),
            ({"convertToCapped": "c", "size": 0}, 72),
            ({"convertToCapped": "c", "size": -1}, 72),
            ({"convertToCapped": "c", "size": "1000"}, 72),
            ({"convertToCapped": "$c", "size": 1000}, 26),
            ({"convertToCapped": "v", "size": 1000}, 166),
            ({"cloneCollectionAsCapped": "c", "size": 1000}, 14),
            ({"cloneCollectionAsCapped": "c", "toCollection": 1, "size": 1000}, 14),
            ({"cloneCollectionAsCapped": 1, "toCollection": "d", "size": 1000}, 14),
            ({"cloneCollectionAsCapped": "none", "toCollection": "d", "size": 1000}, 26),
            ({"cloneCollectionAsCapped": "c", "toCollection": "c", "size": 1000}, 48),
            ({"cloneCollectionAsCapped": "c", "toCollection": "v", "size": 1000}, 48),
            ({"cloneCollectionAsCapped": "v", "toCollection": "d", "size": 1000}, 166),
            ({"cloneCollectionAsCapped": "c", "toCollection": "", "size": 1000}, 73),
            ({"cloneCollectionAsCapped": "c", "toCollection": "$d", "size": 1000}, 73),
        ],
    )
    def test_refusals(self, server: Running, command: Document, code: int) -> None:
        server.insert({"_id": 1})
        server.run({"create": "v", "viewOn": "c"})
        assert server.code(command) == code

    def test_unknown_fields_are_passed_over(self, server: Running) -> None:
        server.insert({"_id": 1})
        assert server.run({"convertToCapped": "c", "size": 1000, "whatever": 1}) == {}
