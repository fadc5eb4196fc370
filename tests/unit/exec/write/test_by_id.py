"""Updates and deletes by `_id` that are executed together."""

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.errors import ErrorCode
from mongottl.exec.operation.context import OperationContext
from tests.running import Document, Running
from tests.steps import run_to_end, steps_of
from tests.unit.exec.operation.test_interleaving import Waiting

# Some are equal, some of them only under a collation.
ids = st.one_of(st.integers(0, 3), st.sampled_from([1.0, 2.5, "a", "A", "b", None, [1], bson.ObjectId(b"x" * 12)]))
there = st.lists(
    st.fixed_dictionaries(
        {"_id": ids}, optional={"k": st.integers(0, 3), "n": st.integers(0, 3), "ttl": st.sampled_from([-1, 5])}
    ),
    max_size=5,
)
changes: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            {"$inc": {"n": 1}},
            {"$inc": {"n": 0}},
            {"$set": {"n": 5}, "$unset": {"k": 1}},
            {"$set": {"a.0": 1}},
            {"$set": {"_id": 1}},
            {"$set": {"a.$": 1}},
            {"$setOnInsert": {"n": 7}},
            {"$push": {"n": 1}},
            {"$nothing": {"n": 1}},
            {"n": 3},
            {"k": -1},
            [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}],
            [{"$set": {"n": {"$divide": [1, 0]}}}],
        ]
    ),
    st.integers(0, 3).map(lambda k: {"$set": {"k": k}}),
)
filters = st.one_of(
    ids.map(lambda value: {"_id": value}),
    ids.map(lambda value: {"_id": {"$eq": value}}),
    st.just({"_id": 1, "k": 1}),
)
others = st.sampled_from([{"k": 1}, {}, {"_id": {"$in": [1, 2]}}])
updates = st.one_of(
    st.fixed_dictionaries({"q": filters, "u": changes}, optional={"upsert": st.booleans()}),
    st.fixed_dictionaries(
        {"q": st.one_of(filters, others), "u": changes},
        optional={"multi": st.just(True), "sort": st.just({"_id": -1})},
    ),
)
deletes = st.fixed_dictionaries({"q": filters, "limit": st.sampled_from([1, 1, 1, 0])})
collations = st.sampled_from([{}, {"collation": {"locale": "en", "strength": 2}}])


def running(documents: list[Document], options: Document) -> Running:
    """A server with a collection that has a unique index, a validator and an own time to live."""
    server = Running()
    server.run({"create": "c", "validator": {"k": {"$not": {"$lt": 0}}}, **options})
    server.index({"k": 1}, unique=True, sparse=True)
    server.index({"_ts": 1}, expireAfterSeconds=10)
    if documents:
        server.run({"insert": "c", "documents": documents, "ordered": False})
    server.advance(7)  # those with a `ttl` of 5 are expired
    return server


def stored(server: Running) -> list[bytes]:
    return sorted(map(bson.encode, server.listed({"find": "c"})))


def logged(server: Running) -> list[Document]:
    """What the oplog says of each operation, in their order."""
    operations: list[Document] = []
    for entry in server.listed({"find": "oplog.rs"}, "local"):
        operations += entry["o"].get("applyOps", [entry]) if entry["op"] == "c" else [entry]
    return [{name: one.get(name) for name in ("op", "ns", "o", "o2")} for one in operations if one["op"] in "iud"]


def counts(replies: list[Document], ordered: bool) -> Document:
    """The reply to a batch whose statements, each sent alone, had these replies."""
    total: Document = {"n": 0}
    upserted: list[Document] = []
    errors: list[Document] = []
    for index, reply in enumerate(replies):
        for name in ("n", "nModified"):
            if name in reply:
                total[name] = total.get(name, 0) + reply[name]
        upserted += [{**entry, "index": index} for entry in reply.get("upserted", [])]
        errors += [{**entry, "index": index} for entry in reply.get("writeErrors", [])]
        if errors and ordered:
            break
    return {**total, "upserted": upserted, "writeErrors": errors}


def one_by_one(server: Running, command: str, statements: list[Document], ordered: bool) -> Document:
    replies: list[Document] = []
    for statement in statements:
        replies.append(server.run({command: "c", f"{command}s": [statement]}))
        if "writeErrors" in replies[-1] and ordered:
            break
    return counts(replies, ordered)


@given(there, st.lists(updates, min_size=2, max_size=8), collations, st.booleans())
def test_a_batch_of_updates_is_executed_as_one_after_the_other(
    documents: list[Document], statements: list[Document], options: Document, ordered: bool
) -> None:
    together = running(documents, options)
    single = running(documents, options)
    reply = together.run({"update": "c", "updates": statements, "ordered": ordered})
    expected = one_by_one(single, "update", statements, ordered)
    assert {"upserted": [], "writeErrors": [], **reply} == {"nModified": 0, **expected}
    assert stored(together) == stored(single)
    assert logged(together) == logged(single)


@given(there, st.lists(deletes, min_size=2, max_size=8), collations)
def test_a_batch_of_deletes_is_executed_as_one_after_the_other(
    documents: list[Document], statements: list[Document], options: Document
) -> None:
    together = running(documents, options)
    single = running(documents, options)
    reply = together.run({"delete": "c", "deletes": statements})
    expected = one_by_one(single, "delete", statements, True)
    assert {"upserted": [], "writeErrors": [], **reply} == expected
    assert stored(together) == stored(single)
    assert logged(together) == logged(single)


@given(there, st.lists(st.one_of(updates, deletes), min_size=2, max_size=8), st.booleans())
def test_operations_of_a_bulk_write_are_executed_as_one_after_the_other(
    documents: list[Document], statements: list[Document], ordered: bool
) -> None:
    together = running(documents, {})
    single = running(documents, {})
    operations: list[Document] = []
    for statement in statements:
        if "u" in statement:
            operation: Document = {"update": 0, "filter": statement["q"], "updateMods": statement["u"]}
            operations.append({**operation, **{name: statement[name] for name in statement if name not in "qu"}})
        else:
            operations.append({"delete": 0, "filter": statement["q"], "multi": statement["limit"] == 0})
    command = {"bulkWrite": 1, "nsInfo": [{"ns": "test.c"}], "ordered": ordered}
    results = together.run({**command, "ops": operations}, "admin")["cursor"]["firstBatch"]
    expected: list[Document] = []
    for index, operation in enumerate(operations):
        reply = single.run({**command, "ops": [operation]}, "admin")["cursor"]["firstBatch"]
        expected += [{**entry, "idx": index} for entry in reply]
        if ordered and not expected[-1]["ok"]:
            break
    assert results == expected
    assert stored(together) == stored(single)
    assert logged(together) == logged(single)


def updates_of(numbers: range, **options: Any) -> list[Document]:
    return [{"q": {"_id": number}, "u": {"$inc": {"n": number}}, **options} for number in numbers]


def units_of(server: Running, command: Document, reply: Document, database: str = "test") -> int:
    """How many units of work a command takes. reply: what it answers, as far as it is given."""
    before = server.engine.committed_number
    answered = server.run(command, database)
    assert {name: answered.get(name) for name in reply} == reply
    return server.engine.committed_number - before


def test_documents_that_are_found_are_one_unit_of_work_and_new_ones_another() -> None:
    server = Running()
    server.insert(*[{"_id": number, "n": 0} for number in range(50)])
    command: Document = {"update": "c", "updates": updates_of(range(80))}
    assert units_of(server, command, {"n": 50, "nModified": 49}) == 1
    command = {"update": "c", "updates": updates_of(range(80), upsert=True)}
    assert units_of(server, command, {"n": 80, "nModified": 49}) == 2
    assert len(logged(server)) == 50 + 49 + 49 + 30
    # As many as fit into a group; another kind of change is another unit.
    command = {"update": "c", "updates": updates_of(range(1, 251), upsert=True)}
    assert units_of(server, command, {"n": 250, "nModified": 79}) == 4
    replacements = [{"q": {"_id": number}, "u": {"n": 0}} for number in range(100, 120)]
    command = {"update": "c", "updates": updates_of(range(1, 20)) + replacements}
    assert units_of(server, command, {"n": 39, "nModified": 39}) == 2
    command = {"delete": "c", "deletes": [{"q": {"_id": number}, "limit": 1} for number in range(200, 300)]}
    assert units_of(server, command, {"n": 51}) == 1
    operations: list[Document] = [
        {"update": 0, "filter": {"_id": number}, "updateMods": {"$inc": {"n": 1}}} for number in range(30)
    ]
    operations += [{"delete": 0, "filter": {"_id": number}} for number in range(30)]
    command = {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}]}
    assert units_of(server, command, {"nModified": 30, "nDeleted": 30}, "admin") == 2
    metrics = server.service.metrics.documents
    assert (metrics["inserted"], metrics["updated"], metrics["deleted"]) == (50 + 30 + 171, 49 * 2 + 79 + 39 + 30, 81)


@pytest.mark.parametrize(
    ("updates", "units"),
    [
        # The second one needs what the first one does, or finds by something else, or is of another kind.
        ([{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}] * 2, 2),
        ([{"q": {"_id": 1}, "u": {"$set": {"n": 5}}}, {"q": {"n": 5}, "u": {"$set": {"n": 6}}}], 2),
        ([{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}, {"q": {"_id": 3}, "u": {"$inc": {"n": 1}}, "multi": True}], 2),
        # Two of the same kind, of which one cannot be written; those of another kind can, together.
        (
            [
                *updates_of(range(1, 4)),
                {"q": {"_id": 4}, "u": {"$set": {"k": 7}}},
                {"q": {"_id": 5}, "u": {"$set": {"k": 7}}},
            ],
            2,
        ),
    ],
)
def test_statements_that_depend_on_each_other_are_executed_alone(updates: list[Document], units: int) -> None:
    server = Running()
    server.index({"k": 1}, unique=True)
    server.insert(*[{"_id": number, "k": number, "n": 0} for number in range(1, 6)])
    assert units_of(server, {"update": "c", "updates": updates}, {}) == units


def test_an_expired_document_is_inserted_anew_by_an_upsert() -> None:
    server = Running()
    server.index({"_ts": 1}, expireAfterSeconds=10)
    server.insert(*[{"_id": number, "ttl": 5} for number in range(4)], {"_id": 4}, {"_id": 5})
    server.advance(7)
    reply = server.run({"update": "c", "updates": updates_of(range(2, 6), upsert=True)})
    assert reply == {"n": 4, "nModified": 2, "upserted": [{"index": 0, "_id": 2}, {"index": 1, "_id": 3}]}
    server.advance(8)  # an update begins a new lifetime
    assert server.ids() == [2, 3, 4, 5]


def test_the_error_of_a_statement_ends_an_ordered_batch_alone() -> None:
    server = Running()
    server.index({"k": 1}, unique=True)
    server.insert(*[{"_id": number, "k": number} for number in range(1, 6)])
    statements = [
        {"q": {"_id": number}, "u": {"$set": {"k": 3 if number == 2 else 10 + number}}} for number in range(1, 6)
    ]
    reply = server.run({"update": "c", "updates": statements})
    (error,) = reply["writeErrors"]
    assert (reply["n"], error["index"], error["code"]) == (1, 1, ErrorCode.DuplicateKey)
    assert [document["k"] for document in server.listed({"find": "c", "sort": {"_id": 1}})] == [11, 2, 3, 4, 5]
    reply = server.run({"update": "c", "updates": statements, "ordered": False})
    (error,) = reply["writeErrors"]
    assert (reply["n"], error["index"]) == (4, 1)


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_what_a_statement_by_id_does_not_need(count: int) -> None:
    """Variables have their values, and metadata is asked for, however the document is found."""
    server = Running()
    server.insert(*[{"_id": number} for number in range(count)])
    deletes = [{"q": {"_id": number}, "limit": 1} for number in range(count)]
    operations = [{"delete": 0, "filter": {"_id": number}} for number in range(count)]
    sort_key = [{"$set": {"n": {"$meta": "sortKey"}}}]
    updates = [{"q": {"_id": number}, "u": sort_key} for number in range(count)]
    (error,) = server.run({"delete": "c", "deletes": deletes, "let": {"x": "$a"}})["writeErrors"]
    assert error["code"] == 4890500
    command = {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}], "let": {"x": "$a"}}
    assert server.run(command, "admin")["nErrors"] == 1
    (error,) = server.run({"update": "c", "updates": updates})["writeErrors"]
    assert error["code"] == ErrorCode.BadValue
    assert server.ids() == list(range(count))


class Noting(Running):
    """Keeps the latest operation."""

    def op(self, database: str = "test") -> OperationContext:
        self.latest = super().op(database)
        return self.latest


def test_lookups_are_counted_for_each_statement() -> None:
    """For the log of slow operations, and for `$indexStats`."""
    server = Noting()
    server.insert(*[{"_id": number} for number in range(3)])
    server.run({"update": "c", "updates": updates_of(range(1, 6))})
    assert (server.latest.profile.lookups_by_id, server.latest.profile.found_by_id) == (5, 2)
    server.run({"delete": "c", "deletes": [{"q": {"_id": number}, "limit": 1} for number in range(4)]})
    assert (server.latest.profile.lookups_by_id, server.latest.profile.found_by_id) == (4, 3)
    (stats,) = server.listed({"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}})
    assert stats["accesses"]["ops"] == 9


NAMED_1 = {"q": {"_id": 1}, "u": {"$set": {"n": 1}}}
ORDERED: list[tuple[Document, Document, Document]] = [
    # The second statement would change nothing, but for what the other one does first.
    ({"update": "c", "updates": [*updates_of(range(2, 3)), NAMED_1]}, {"_id": 1}, {"n": 1}),
    ({"update": "c", "updates": [*updates_of(range(2, 3)), *updates_of(range(9, 10))]}, {"_id": 9}, {"n": 9}),
    (
        {"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}, {"q": {"_id": 9}, "limit": 1}]},
        {"_id": 9},
        {},
    ),
]


@pytest.mark.parametrize(("command", "named", "expected"), ORDERED)
@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_statement_of_an_ordered_batch_sees_what_was_done_before_an_earlier_one(
    command: Document, named: Document, expected: Document, is_bulk: bool
) -> None:
    """Another client changes what the second statement names while the first is not executed yet, at each place where
    the command waits for its engine."""
    if is_bulk:
        operations: list[Document] = []
        for statement in command.get("updates", []):
            operations.append({"update": 0, "filter": statement["q"], "updateMods": statement["u"]})
        for statement in command.get("deletes", []):
            operations.append({"delete": 0, "filter": statement["q"]})
        command = {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": "test.c"}], "$db": "admin"}
    is_over = False
    place = 0
    while not is_over:
        server = Waiting({"insert": "c", "documents": [{"_id": number, "n": number} for number in range(3)]})
        server.leaves_evaluations = True
        server.suspension.rate = 1.0
        steps = steps_of(server.begun(command))
        try:
            for _ in range(place + 1):
                next(steps)
        except StopIteration:
            is_over = True
        if not is_over:
            first = {"find": "c", "filter": {"_id": 2}}
            change = {"update": "c", "updates": [{"q": named, "u": {"$set": {"n": 0}}, "upsert": True}]}
            server.run(change)
            is_first_left = server.listed(first) == [{"_id": 2, "n": 2}]
            run_to_end(steps)
            server.suspension.rate = 0.0
            found = server.listed({"find": "c", "filter": named})
            assert not is_first_left or found == ([{**named, **expected}] if expected else []), place
        place += 1
    assert place > 3
