"""distinct and `$group` give the same by an index as without one."""

from typing import Any

from bson import Int64
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.keystring import encode_value
from tests.running import Running

Document = dict[str, Any]

values = st.one_of(
    st.integers(0, 3),
    st.sampled_from([1.0, None, "x", "y", True, Int64(2), {"c": 1}, {"c": 1.0}, {}]),
)
rows = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), values), max_size=25)
# Arrays at `a` only: an index over two arrays of one document is refused (171).
arrays = st.sampled_from([[], [1, 2, "z"], [1, None], [[1], 3], [{"c": 1}, {"c": [2, None]}, {}, 5], [{"c": []}]])
rows_with_arrays = st.lists(
    st.fixed_dictionaries(
        {}, optional={"a": st.one_of(values, arrays), "b": values, "ttl": st.sampled_from([1, 1, 9])}
    ),
    max_size=25,
)
filters = st.one_of(
    st.just({}),
    st.builds(lambda op, value: {"a": {op: value}}, st.sampled_from(["$gt", "$lte", "$ne", "$eq"]), values),
    st.builds(lambda items: {"a": {"$in": items}}, st.lists(values, max_size=3)),
    st.sampled_from(
        [
            {"a": {"$exists": True}},
            {"a": None},
            {"b": 1},
            {"a": 1, "b": {"$gt": 0}},
            {"a": {"$in": [1, "x"]}},
            {"b": {"$lt": 2}},
        ]
    ),
)


def filled(documents: list[Document], ttl: bool = False) -> Running:
    """A server with a collection `c` of these documents.

    ttl: whether documents expire; those with a ttl of 1 are expired, and not purged.
    """
    server = Running()
    server.run({"create": "c"})
    if documents:
        server.run({"insert": "c", "documents": documents})
    if ttl:
        server.index({"_ts": 1}, expireAfterSeconds=100)
        server.advance(2)
    return server


@settings(max_examples=250, deadline=None)
@given(
    rows_with_arrays,
    filters,
    st.sampled_from([{"a": 1}, {"a": -1}, {"a": 1, "b": 1}, {"a": -1, "b": 1}, {"a.c": 1}, {"b": 1, "a": 1}]),
    st.sampled_from([{}, {}, {"sparse": True}]),
    st.sampled_from(["a", "a.c", "b"]),
    st.booleans(),
)
def test_distinct_by_an_index(
    found: list[Document], filter: Document, key: Document, options: Document, path: str, ttl: bool
) -> None:
    server = filled(found, ttl)
    command = {"distinct": "c", "key": path, "query": filter}
    expected = server.run({**command, "hint": {"$natural": 1}})["values"]
    server.index(key, "x", **options)
    # Of values that compare equal, 1 and 1.0, a compound index may give another one than comes first in the collection.
    assert [encode_value(value) for value in server.run(command)["values"]] == [encode_value(e) for e in expected]


@settings(max_examples=250, deadline=None)
@given(
    st.one_of(rows, rows_with_arrays),
    filters,
    st.sampled_from(
        [{"a": 1}, {"a": -1}, {"a": 1, "b": 1}, {"b": 1, "a": 1}, {"b": 1, "a": -1}, {"a.c": 1}, {"a.c": 1, "b": -1}]
    ),
    st.sampled_from(["a", "b", "a.c"]),
    st.sampled_from(
        [
            None,
            {"a": 1, "b": 1},
            {"a": -1},
            {"b": 1, "a": -1},
            {"b": -1, "a": 1},
            {"a": -1, "b": -1},
            {"a.c": 1, "b": -1},
            {"a.c": -1, "b": 1},
        ]
    ),
    st.sampled_from(["$first", "$last", "$top", "$bottom"]),
    st.booleans(),
    st.booleans(),
)
def test_groups_by_an_index(
    found: list[Document],
    filter: Document,
    key: Document,
    field: str,
    sort: Document | None,
    accumulator: str,
    named: bool,
    ttl: bool,
) -> None:
    server = filled(found, ttl)
    group: Document = {"_id": {"k": f"${field}"} if named else f"${field}"}
    stages: list[Document] = [{"$match": filter}]
    if sort is not None and accumulator in ("$first", "$last"):
        stages.append({"$sort": sort})
        group.update({"a": {accumulator: "$a"}, "c": {accumulator: "$a.c"}, "b": {accumulator: "$b"}})
    elif sort is not None:
        for name, path in (("a", "$a"), ("c", "$a.c"), ("b", "$b")):
            group[name] = {accumulator: {"sortBy": sort, "output": path}}
    command = {"aggregate": "c", "pipeline": [*stages, {"$group": group}], "cursor": {}}

    def grouped() -> list[list[bytes]]:
        groups = server.run(command)["cursor"]["firstBatch"]
        return sorted([encode_value(each.get(name)) for name in ("_id", *told)] for each in groups)

    # Documents that the sort does not tell apart come in any order: only its paths are compared if it has them all, and
    # not where an array sorts by one of its elements.
    told: list[str] = []
    if sort is not None and len(sort) == 2 and not any(isinstance(row.get("a"), list) for row in found):
        told = ["a", "b"] if "a" in sort else ["c", "b"]
    expected = grouped()
    server.run({"createIndexes": "c", "indexes": [{"key": key, "name": "x"}]})
    assert grouped() == expected
