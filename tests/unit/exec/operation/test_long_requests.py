"""Others run while long requests are parsed and planned: these have many steps, and give the result of a short one."""

from collections.abc import Iterator
from typing import Any, ClassVar

import bson
import pytest

from mongottl.commands import COMMANDS
from mongottl.commands.request import GenericArguments
from mongottl.document.interrupt import give_way
from mongottl.errors import CommandError
from mongottl.exec.operation.context import LONG_REQUEST_BYTES
from mongottl.exec.results.cursors import ClientCursor, ListPages
from mongottl.exec.running.stack import Steps
from tests.running import Document, Running, hurried_clock
from tests.steps import begin, counted, run_to_end

pytestmark = pytest.mark.slow

MANY = 600
OTHERS = [{"a": -number - 10} for number in range(MANY)]
LONG_FILTER: Document = {"$or": [{"a": 1}, {"a": 2}, *OTHERS]}
VALUES = [2, 1, 99, *range(-MANY, 0)]


@pytest.fixture
def server() -> Running:
    running = Running(clock=hurried_clock(0.01))
    running.leaves_evaluations = True
    running.least_request_bytes = LONG_REQUEST_BYTES
    running.insert(*({"_id": number, "a": number, "b": number % 2} for number in range(6)))
    return running


def first_ids(reply: Document) -> list[Any]:
    return [document["_id"] for document in reply["cursor"]["firstBatch"]]


class TestResults:
    """Many steps, in which others can run, and the same reply as for a short request."""

    def run(self, server: Running, command: Document, database: str = "test") -> Document:
        reply: Document
        reply, count = counted(server.steps(command, database))
        assert count > 5
        return reply

    def test_find(self, server: Running) -> None:
        assert first_ids(self.run(server, {"find": "c", "filter": LONG_FILTER})) == [1, 2]

    def test_find_by_an_index(self, server: Running) -> None:
        server.index({"a": 1})
        values = [2, 1, *range(-MANY, 0)]
        assert first_ids(self.run(server, {"find": "c", "filter": {"a": {"$in": values}}})) == [1, 2]

    def test_projection(self, server: Running) -> None:
        projection = {"b": 1, **{f"field{number}": 1 for number in range(MANY)}}
        reply = self.run(server, {"find": "c", "filter": {"a": 3}, "projection": projection})
        assert reply["cursor"]["firstBatch"] == [{"_id": 3, "b": 1}]

    def test_count(self, server: Running) -> None:
        assert self.run(server, {"count": "c", "query": LONG_FILTER}) == {"n": 2}

    def test_distinct(self, server: Running) -> None:
        assert self.run(server, {"distinct": "c", "key": "b", "query": LONG_FILTER})["values"] == [0, 1]

    def test_aggregate(self, server: Running) -> None:
        computed = {f"field{number}": {"$add": ["$missing", number]} for number in range(MANY)}
        pipeline = [{"$match": LONG_FILTER}, {"$project": {**computed, "a": 1}}, {"$project": {"a": 1}}]
        reply = self.run(server, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})
        assert reply["cursor"]["firstBatch"] == [{"_id": 1, "a": 1}, {"_id": 2, "a": 2}]

    @pytest.mark.parametrize("command", ["find", "count", "distinct", "aggregate"])
    def test_views(self, server: Running, command: str) -> None:
        server.run({"create": "v", "viewOn": "c", "pipeline": [{"$match": {"b": 1}}]})
        commands: dict[str, Document] = {
            "find": {"find": "v", "filter": LONG_FILTER},
            "count": {"count": "v", "query": LONG_FILTER},
            "distinct": {"distinct": "v", "key": "a", "query": LONG_FILTER},
            "aggregate": {"aggregate": "v", "pipeline": [{"$match": LONG_FILTER}], "cursor": {}},
        }
        reply = self.run(server, commands[command])
        if "cursor" in reply:
            assert first_ids(reply) == [1]
        else:
            assert reply.get("n", 1) == 1
            assert reply.get("values", [1]) == [1]

    @pytest.mark.parametrize("verbosity", ["queryPlanner", "executionStats"])
    def test_explain(self, server: Running, verbosity: str) -> None:
        reply = self.run(server, {"explain": {"find": "c", "filter": LONG_FILTER}, "verbosity": verbosity})
        assert reply["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"

    def test_update(self, server: Running) -> None:
        change = {"$set": {f"field{number}": 1 for number in range(20 * MANY)}}
        reply = self.run(server, {"update": "c", "updates": [{"q": LONG_FILTER, "u": change, "multi": True}]})
        assert reply == {"n": 2, "nModified": 2}
        assert server.run({"count": "c", "query": {"field7": 1}}) == {"n": 2}

    def test_update_by_id(self, server: Running) -> None:
        change = {"$set": {f"field{number}": 1 for number in range(20 * MANY)}}
        assert self.run(server, {"update": "c", "updates": [{"q": {"_id": 1}, "u": change}]})["nModified"] == 1

    def test_statements(self, server: Running) -> None:
        updates = [{"q": {"_id": number}, "u": {"$set": {"x": 1}}} for number in range(MANY)]
        assert self.run(server, {"update": "c", "updates": updates})["nModified"] == 6
        deletes = [{"q": {"_id": number}, "limit": 1} for number in range(1, MANY)]
        assert self.run(server, {"delete": "c", "deletes": deletes})["n"] == 5

    def test_refused_documents(self, server: Running) -> None:
        documents = [{"_id": number % 6} for number in range(MANY)]
        command = {"insert": "c", "documents": documents, "ordered": False}
        reply, count = counted(server.steps(command))
        assert len(reply["writeErrors"]) == MANY
        assert count >= MANY  # each is inserted, or looked up, by itself

    def test_delete(self, server: Running) -> None:
        assert self.run(server, {"delete": "c", "deletes": [{"q": LONG_FILTER, "limit": 0}]}) == {"n": 2}
        assert server.ids() == [0, 3, 4, 5]

    def test_find_and_modify(self, server: Running) -> None:
        command = {"findAndModify": "c", "query": LONG_FILTER, "sort": {"a": -1}, "update": {"$set": {"b": 9}}}
        assert self.run(server, command)["value"]["_id"] == 2
        assert self.run(server, {"findAndModify": "c", "query": LONG_FILTER, "remove": True})["value"]["_id"] == 1

    def test_bulk_write(self, server: Running) -> None:
        operations = [
            {"update": 0, "filter": LONG_FILTER, "updateMods": {"$set": {"b": 9}}, "multi": True},
            {"delete": 0, "filter": LONG_FILTER},
        ]
        reply = self.run(server, {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}]}, "admin")
        assert (reply["nModified"], reply["nDeleted"]) == (2, 1)

    def test_create_indexes(self, server: Running) -> None:
        partial = {"$or": [{"a": number} for number in range(MANY)]}
        indexes = [{"key": {"b": 1}, "name": "b", "partialFilterExpression": partial}]
        assert self.run(server, {"createIndexes": "c", "indexes": indexes})["numIndexesAfter"] == 2

    def test_errors(self, server: Running) -> None:
        with pytest.raises(CommandError) as caught:
            run_to_end(server.steps({"find": "c", "filter": {"$or": [*OTHERS, {"a": {"$unknown": 1}}]}}))
        assert caught.value.code == 2


class TestInterruption:
    def test_time_limit(self, server: Running) -> None:
        steps = server.steps({"find": "c", "filter": LONG_FILTER}, max_time_ms=100)
        with pytest.raises(CommandError) as caught:
            run_to_end(steps)
        assert caught.value.code == 50

    def test_abandoned(self, server: Running) -> None:
        steps = server.steps({"find": "c", "filter": LONG_FILTER})
        next(steps)
        steps.close()

    def test_not_started(self, server: Running) -> None:
        server.steps({"find": "c", "filter": LONG_FILTER}).close()


class TestPlanning:
    """The catalogue changes while a query is planned."""

    def stopped(self, server: Running, command: Document) -> Iterator[Steps[Document]]:
        """The command, stopped ever later in its parsing, planning and execution."""
        server.index({"a": 1})
        total = counted(server.steps(command))[1]
        for share in range(0, 100, 7):
            server.index({"a": 1})
            steps = server.steps(command)
            for _ in range(total * share // 100):
                next(steps)
            yield steps

    def test_dropped_index(self, server: Running) -> None:
        """Another plan is made, until the one that uses the index is carried out."""
        codes: set[int] = set()
        for steps in self.stopped(server, {"find": "c", "filter": {"a": {"$in": VALUES}, "b": {"$gte": 0}}}):
            server.run({"dropIndexes": "c", "index": "a_1"})
            try:
                assert sorted(first_ids(run_to_end(steps))) == [1, 2]
            except CommandError as error:
                codes.add(error.code)
            else:
                assert not codes
        assert codes <= {175}

    def test_index_becomes_multikey(self, server: Running) -> None:
        """The bounds of two predicates on one path may be combined only without arrays."""
        for steps in self.stopped(server, {"find": "c", "filter": {"$and": [{"a": {"$in": VALUES}}, {"a": 99}]}}):
            server.insert({"_id": "array", "a": [1, 99]})
            assert first_ids(run_to_end(steps)) == ["array"]
            server.run({"delete": "c", "deletes": [{"q": {"_id": "array"}, "limit": 1}]})
            server.run({"dropIndexes": "c", "index": "a_1"})

    def test_dropped_collection(self, server: Running) -> None:
        for steps in self.stopped(server, {"find": "c", "filter": {"a": {"$in": VALUES}}}):
            server.run({"drop": "c"})
            with pytest.raises(CommandError) as caught:
                run_to_end(steps)
            assert caught.value.code == 175
            server.insert({"_id": 1, "a": 1})

    def test_writes_see_a_collection_dropped_while_they_are_parsed(self, server: Running) -> None:
        steps = server.steps({"update": "c", "updates": [{"q": LONG_FILTER, "u": {"$set": {"b": 9}}, "upsert": True}]})
        next(steps)
        server.run({"drop": "c"})
        assert run_to_end(steps)["n"] == 1
        assert len(server.ids()) == 1


def test_others_run_while_something_is_computed(server: Running) -> None:
    others = 0

    def compute() -> int:
        for _ in range(20_000):
            give_way()
        return others

    op = server.op()

    def run() -> int:
        server.service.stacks.carry(op)
        return op.compute(compute)

    steps = begin(server.service, run)
    with pytest.raises(StopIteration) as stop:
        while True:
            next(steps)
            others += 1
    assert stop.value.value > 5


class TestStepsOfSlowFilters:
    """A scan examines as many records in one step as can be tested in two milliseconds."""

    @pytest.mark.parametrize("filter", [{"x": 1}, {"a": {"$gte": 0}, "x": 1}])
    def test_scans_obey(self, server: Running, filter: Document) -> None:
        server.index({"a": 1})
        server.insert(*({"_id": number, "a": number} for number in range(10, 60)))
        op = server.op()
        op.pace.step_records = 5
        spec = COMMANDS["find"]
        body = bson.encode({"find": "c", "filter": filter})
        request = spec.request._make(spec.parser.parse(body, [], GenericArguments()))
        steps = begin(server.service, lambda: spec.function(op, request))
        assert counted(steps)[1] >= 11

    def test_adaptation(self, server: Running) -> None:
        op = server.op()
        op.pace.adapt(1.0)  # no records were examined: it parsed or waited
        assert op.pace.step_records == 256
        op.pace.records_examined = 256
        op.pace.adapt(0.02)
        assert op.pace.step_records == 25
        op.pace.records_examined = 25
        op.pace.adapt(0.001)
        assert op.pace.step_records == 50
        op.pace.records_examined = 1
        op.pace.adapt(5.0)
        assert op.pace.step_records == 1

    def test_long_requests_begin_with_one_record(self, server: Running) -> None:
        op = server.op()
        op.set_request_bytes(LONG_REQUEST_BYTES)
        assert op.pace.step_records == 1

    def test_cursors_remember(self, server: Running) -> None:
        server.least_request_bytes = 0
        server.insert(*({"_id": number} for number in range(10, 600)))
        op = server.op()
        pages = ListPages([b""])
        cursor = ClientCursor("test.c", pages, None, 0.0)
        cursor.step_records = 3
        cursor.next_page(op, 1)
        assert op.pace.step_records == 3


class TestLargeDocuments:
    """The update of a document of more than 1 MiB is computed in turns; the request may be short."""

    SORT: ClassVar[Document] = {"$push": {"list": {"$each": [-1], "$sort": 1}}}

    @pytest.fixture
    def large(self, server: Running) -> Running:
        server.least_request_bytes = 0
        server.insert({"_id": "large", "list": [number * 7919 % 100_003 for number in range(100_003)]}, into="d")
        return server

    def commands(self, filter: Document) -> dict[str, tuple[Document, str]]:
        bulk = {"update": 0, "filter": filter, "updateMods": self.SORT}
        modify = {"findAndModify": "d", "query": filter, "update": self.SORT, "fields": {"_id": 1}}
        return {
            "update": ({"update": "d", "updates": [{"q": filter, "u": self.SORT}]}, "test"),
            "findAndModify": (modify, "test"),
            "bulkWrite": ({"bulkWrite": 1, "ops": [bulk], "nsInfo": [{"ns": "test.d"}]}, "admin"),
        }

    @pytest.mark.parametrize("command", ["update", "findAndModify", "bulkWrite"])
    def test_result(self, large: Running, command: str) -> None:
        request, database = self.commands({"_id": "large"})[command]
        assert counted(large.steps(request, database))[1] > 50
        assert large.listed({"find": "d"})[0]["list"] == list(range(-1, 100_003))

    def test_another_write_meanwhile_is_kept(self, large: Running) -> None:
        steps = large.steps(self.commands({"_id": "large"})["update"][0])
        for _ in range(10):
            next(steps)
        large.run({"update": "d", "updates": [{"q": {"_id": "large"}, "u": {"$set": {"list": [3, 2], "other": 1}}}]})
        run_to_end(steps)
        assert large.listed({"find": "d"}) == [{"_id": "large", "list": [-1, 2, 3], "other": 1}]

    def test_a_document_deleted_meanwhile_is_not_found(self, large: Running) -> None:
        steps = large.steps(self.commands({"_id": "large"})["update"][0])
        for _ in range(10):
            next(steps)
        large.run({"delete": "d", "deletes": [{"q": {}, "limit": 0}]})
        assert run_to_end(steps) == {"n": 0, "nModified": 0}

    def test_a_document_that_expires_meanwhile_is_not_found(self, large: Running) -> None:
        large.index({"_ts": 1}, on="d", expireAfterSeconds=10)
        steps = large.steps(self.commands({"_id": "large"})["update"][0])
        for _ in range(10):
            next(steps)
        large.advance(10)
        assert run_to_end(steps) == {"n": 0, "nModified": 0}

    def test_a_dropped_collection(self, large: Running) -> None:
        steps = large.steps(self.commands({"_id": "large"})["findAndModify"][0])
        for _ in range(10):
            next(steps)
        large.run({"drop": "d"})
        with pytest.raises(CommandError) as caught:
            run_to_end(steps)
        assert caught.value.code == 175

    def test_time_limit(self, large: Running) -> None:
        with pytest.raises(CommandError) as caught:
            run_to_end(large.steps(self.commands({"_id": "large"})["findAndModify"][0], max_time_ms=200))
        assert caught.value.code == 50
