"""An index plan and a collection scan give the same documents, whatever the documents, indexes, filters and sorts are.

The collection scan (forced by the hint {$natural: 1}) is the model: it tests every document with the whole filter and
sorts what passes in memory.
"""

from typing import Any, TypeAlias

from bson import SON
from bson import encode as bson_encode
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mongottl.catalog.collection import Collection
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Value
from mongottl.errors import CommandError
from mongottl.exec.client import ClientInfo
from mongottl.exec.context import OperationContext, ServiceContext, run_to_end
from mongottl.exec.counting import count_documents
from mongottl.exec.planner import QueryPlan, plan_query
from mongottl.exec.writes import insert_document, prepare_document
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.storage.interface import open_storage_engine

NATURAL: Value = encode({"$natural": 1})
# (key pattern, options).
IndexSpec: TypeAlias = tuple[list[tuple[str, int]], dict[str, Any]]
PATHS = ["a", "b", "c", "a.x", "a.y", "b.x"]

scalars = st.one_of(
    st.integers(0, 4),
    st.sampled_from([0.0, 1.5, -1.0, float("nan"), float("inf")]),
    st.sampled_from(["", "a", "b", "ab"]),
    st.none(),
    st.booleans(),
)
elements = st.one_of(
    scalars,
    st.fixed_dictionaries({}, optional={"x": scalars, "y": scalars}),
    st.fixed_dictionaries({}, optional={"x": st.lists(scalars, max_size=2), "y": scalars}),
    st.lists(st.one_of(scalars, st.fixed_dictionaries({"x": scalars})), max_size=2),
)
values = st.one_of(scalars, elements, st.lists(elements, max_size=3))
documents = st.fixed_dictionaries({}, optional={"a": values, "b": values, "c": scalars})
plain_documents = st.fixed_dictionaries(
    {}, optional={"a": st.one_of(scalars, st.fixed_dictionaries({}, optional={"x": scalars, "y": scalars})),
                  "b": scalars, "c": scalars}
)  # fmt: skip
comparisons = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"])


def _operator(name: str, operand: Any) -> dict[str, Any]:
    return {name: operand}


leaf_conditions = st.one_of(
    scalars,
    st.builds(_operator, comparisons, scalars),
    st.builds(_operator, comparisons, st.one_of(elements, st.lists(scalars, max_size=2))),
    st.builds(_operator, st.sampled_from(["$in", "$nin"]), st.lists(scalars, max_size=4)),
    st.builds(_operator, st.just("$in"), st.lists(elements, max_size=3)),
    st.builds(_operator, st.just("$exists"), st.booleans()),
    st.builds(_operator, st.just("$type"), st.sampled_from(["number", "string", "null", "array", "object", "bool"])),
    st.builds(_operator, st.just("$regex"), st.sampled_from(["^a", "b", "^ab$"])),
    st.builds(_operator, st.just("$size"), st.integers(0, 2)),
    st.builds(_operator, st.just("$mod"), st.just([2, 1])),
    st.builds(lambda low, high: {"$gt": low, "$lt": high}, scalars, scalars),
    st.builds(lambda low, high: {"$elemMatch": {"$gte": low, "$lt": high}}, scalars, scalars),
    st.builds(lambda x, y: {"$elemMatch": {"x": x, "y": y}}, scalars, st.builds(_operator, comparisons, scalars)),
    st.builds(lambda v: {"$elemMatch": {"x": {"$ne": v}}}, scalars),
    st.builds(lambda name, v: {"$not": {name: v}}, comparisons, scalars),
    st.builds(lambda v: {"$all": v}, st.lists(scalars, min_size=1, max_size=2)),
    st.builds(lambda v: {"$elemMatch": {"$elemMatch": {"$gt": v}}}, scalars),
)
leaves = st.builds(lambda path, condition: {path: condition}, st.sampled_from(PATHS), leaf_conditions)
filters = st.recursive(
    st.one_of(leaves, st.just({})),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"$and": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"$or": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"$nor": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=5,
)
patterns = st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from([1, -1])), min_size=1, max_size=3).filter(
    lambda pairs: len({path for path, _ in pairs}) == len(pairs)
)
partial_filters = st.one_of(
    st.builds(lambda path: {path: {"$exists": True}}, st.sampled_from(PATHS)),
    st.builds(
        lambda path, name, value: {path: {name: value}},
        st.sampled_from(PATHS),
        st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq"]),
        scalars,
    ),
)
index_options = st.one_of(
    st.just({}),
    st.just({}),
    st.just({"sparse": True}),
    st.just({"unique": True}),
    st.builds(lambda partial: {"partialFilterExpression": partial}, partial_filters),
)
indexes = st.lists(st.tuples(patterns, index_options), min_size=1, max_size=4)


def open_collection(
    found_indexes: list[IndexSpec],
) -> tuple[OperationContext, Collection]:
    service = ServiceContext(ServerConfig(), VirtualClock(), open_storage_engine("sqlite", None))
    op = OperationContext(service, ClientInfo(1, "", ""), "db")
    collection = service.catalog.create_collection("db", "c", encode({}))
    for number, (pattern, options) in enumerate(found_indexes):
        spec = bson_encode({"key": SON(pattern), "name": f"i{number}", **options})
        entry = service.catalog.start_index(collection, parse_index_spec(spec))
        service.catalog.finish_indexes(collection, [entry])
    return op, collection


def fill(op: OperationContext, collection: Collection, found: list[dict[str, Any]]) -> None:
    for number, document in enumerate(found):
        try:
            insert_document(op, collection, prepare_document(op, bson_encode({"_id": number, **document})))
        except CommandError:
            event("refused document")  # a duplicate key, or parallel arrays


def run(op: OperationContext, plan: QueryPlan) -> list[bytes]:
    stage = plan.open()
    found: list[bytes] = []
    while (batch := stage.next_batch(op)) is not None:
        found.extend(record[1] for record in batch)
    return found


def outline(plan: QueryPlan) -> str:
    node = plan.winning
    names = [node.stage]
    while node.inputs:
        node = node.inputs[0]
        names.append(node.stage)
    return " < ".join(names)


def check(
    op: OperationContext,
    collection: Collection,
    match: MatchExpression,
    sort: SortPattern | None,
    skip: int,
    limit: int,
    hint: Value = MISSING,
) -> None:
    plan = plan_query(op, collection, match, sort=sort, hint=hint, wanted=3)
    event(outline(plan))
    found = run(op, plan)
    expected = run(op, plan_query(op, collection, match, sort=sort, hint=NATURAL))
    assert sorted(found) == sorted(expected)
    if sort is not None:
        keys = [sort.sort_key(document) for document in expected]
        assert [sort.sort_key(document) for document in found] == keys
        part = run(op, plan_query(op, collection, match, sort=sort, skip=skip, limit=limit, hint=hint))
        assert [sort.sort_key(document) for document in part] == keys[skip : skip + limit if limit else None]
    assert run_to_end(count_documents(op, collection, match, hint=hint)) == len(expected)
    counted = run_to_end(count_documents(op, collection, match, skip=skip, limit=limit, hint=hint))
    assert counted == len(range(len(expected))[skip : skip + limit if limit else None])


def parallel(error: CommandError) -> bool:
    return "parallel arrays" in error.message


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    indexes,
    st.one_of(st.lists(documents, max_size=12), st.lists(plain_documents, max_size=12)),
    st.lists(st.tuples(filters, st.one_of(st.none(), patterns)), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_index_scan_is_collection_scan(
    found_indexes: list[IndexSpec],
    found_documents: list[dict[str, Any]],
    queries: list[tuple[dict[str, Any], list[tuple[str, int]] | None]],
    skip: int,
    limit: int,
) -> None:
    op, collection = open_collection(found_indexes)
    fill(op, collection, found_documents)
    for filter, pattern in queries:
        match = parse_match(bson_encode(filter), ParseContext())
        sort = None if pattern is None else parse_sort(bson_encode(SON(pattern)))
        try:
            check(op, collection, match, sort, skip, limit)
        except CommandError as error:
            assert parallel(error)
        for number, (_, options) in enumerate(found_indexes):
            if not options or "unique" in options:
                try:
                    check(op, collection, match, sort, skip, limit, f"i{number}")
                except CommandError as error:
                    assert parallel(error)
