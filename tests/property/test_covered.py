"""What an index's keys tell is what the documents have."""

from typing import Any

import bson
from bson import Decimal128, Int64, ObjectId, Timestamp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mongottl.document.build import encode_fields
from mongottl.document.key_reader import BITS_PER_COMPONENT, KeyReader, determines_value, may_be_missing, type_bits_of
from mongottl.document.keystring import encode_key, encode_value
from mongottl.document.walk import fields, find_field_at
from tests.running import Running

Document = dict[str, Any]

ID = ObjectId("0123456789abcdef01234567")
texts = st.one_of(st.text(max_size=6), st.sampled_from(["", "\0", "\x01\x02\0a", "é"]))
others = st.one_of(
    texts,
    st.booleans(),
    st.just(ID),
    st.datetimes().map(lambda at: at.replace(microsecond=0)),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
)
numbers = st.sampled_from(
    [
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1).map(Int64),
        st.floats().filter(lambda value: value != 0.0 or str(value) == "0.0"),
    ]
)
columns = numbers.flatmap(
    lambda number: st.sampled_from([st.none(), st.just(...)]).flatmap(
        lambda nothing: st.lists(st.one_of(number, others, nothing), min_size=1, max_size=6)
    )
)


@given(st.lists(columns, min_size=1, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_values_come_back(rows: list[list[Any]], directions: list[bool]) -> None:
    """One column for each component; ... stands for no field."""
    width = len(rows)
    names = [chr(ord("a") + i).encode() for i in range(width)]
    type_bits = 0
    documents: list[bytes] = []
    for place in range(max(len(column) for column in rows)):
        values = [column[place % len(column)] for column in rows]
        document = bson.encode({chr(ord("a") + i): value for i, value in enumerate(values) if value is not ...})
        documents.append(document)
        for i, name in enumerate(names):
            type_bits |= type_bits_of(find_field_at(document, 0, name)[0]) << (i * BITS_PER_COMPONENT)
    assert all(determines_value(type_bits, i) for i in range(width))
    reader = KeyReader([[name] for name in names], directions[:width], type_bits)
    nested = KeyReader([[b"x", name] for name in names], directions[:width], type_bits)
    last = KeyReader([None] * (width - 1) + [[names[-1]]], directions[:width], type_bits)
    for document in documents:
        there = dict(fields(document))
        key = encode_key([there.get(name.decode()) for name in names], directions[:width])
        assert reader.document(key) == document
        assert nested.document(key) == (encode_fields([("x", document)]) if there else document)
        end = names[-1].decode()
        assert last.document(key) == encode_fields([(end, there[end])] if end in there else [])


anything = st.one_of(
    numbers.flatmap(lambda number: number),
    others,
    st.none(),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(Decimal128),
    st.binary(max_size=4),
    st.dictionaries(texts.filter(lambda text: "\0" not in text), st.integers(0, 9), max_size=2),
)


@given(anything, anything, st.lists(st.booleans(), min_size=3, max_size=3))
def test_components_that_are_left_out_are_passed_over(first: Any, second: Any, directions: list[bool]) -> None:
    values = dict(fields(bson.encode({"a": first, "b": second})))
    key = encode_key([values["a"], values["b"], "end"], directions)
    reader = KeyReader([None, None, [b"c"]], directions, 0)
    assert reader.document(key) == bson.encode({"c": "end"})


def test_type_bits_show_which_values_keys_determine() -> None:
    def kind(value: Any) -> int:
        return type_bits_of(find_field_at(bson.encode({} if value is ... else {"a": value}), 0, b"a")[0])

    assert determines_value(kind(1) | kind("x") | kind(None), 0)
    for together in [(1, 1.0), (1, Int64(1)), (None, ...), (Decimal128("1"),), ({},), (b"x",)]:
        type_bits = 0
        for value in together:
            type_bits |= kind(value)
        assert not determines_value(type_bits, 0)
        assert determines_value(type_bits, 1)
        assert not determines_value(type_bits << BITS_PER_COMPONENT, 1)
    assert determines_value(kind(1) | kind(1.0) << BITS_PER_COMPONENT, 1)
    assert may_be_missing(kind(...) << BITS_PER_COMPONENT, 1)
    assert not may_be_missing(kind(...) << BITS_PER_COMPONENT, 0)
    for type_bits, component in [(-1, 0), (0, 10)]:
        assert not determines_value(type_bits, component)
        assert may_be_missing(type_bits, component)


values = st.one_of(
    st.integers(0, 3),
    st.sampled_from([1.0, -0.0, 2.5, None, "x", "y", True, Int64(2), [1, 2], {"c": 1}, Decimal128("1")]),
    st.sampled_from([{}, {"c": 2.5, "d": 1}, {"d": "x", "c": None}, Decimal128("1.0"), Decimal128("NaN")]),
)
nested = st.sampled_from([{"c": 1, "d": "x"}, {"c": 2, "d": "y"}, {"d": "y", "c": 3}])
plain = st.one_of(st.integers(0, 3), st.sampled_from(["x", "y", True]))
rows_of = st.one_of(
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), plain), max_size=6),
    st.lists(st.fixed_dictionaries({"a": plain, "b": plain}), max_size=6),
    st.lists(st.fixed_dictionaries({"a": nested, "b": plain}), max_size=6),
    st.lists(st.fixed_dictionaries({"a": values, "b": plain}), max_size=6),
    st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), values), max_size=6),
)
conditions = st.one_of(
    plain,
    st.builds(lambda op, value: {op: value}, st.sampled_from(["$gt", "$lte", "$ne"]), plain),
    st.sampled_from([{"$exists": True}, {"$exists": False}, {"$type": "int"}, {"$in": [1, "x"]}, None]),
)
filters = st.builds(
    lambda parts, expression: {**parts, **expression},
    st.dictionaries(st.sampled_from(["a", "b", "c", "a.c", "a.d"]), conditions, max_size=2),
    st.sampled_from(
        [
            *({}, {}, {}),
            *({"$expr": {"$lte": ["$a", "$b"]}}, {"$expr": {"$gt": ["$a.c", 1]}}),
            *({"$or": [{"a": 1}, {"a": None, "b": 2}]}, {"$or": [{"b": {"$gt": 1}}, {"a.c": {"$in": [None, 2]}}]}),
        ]
    ),
)


GROUPS: list[Document] = [
    {"_id": "$a", "n": {"$sum": 1}, "v": {"$max": "$b"}},
    {"_id": {"k": "$b", "c": "$a.c"}, "n": {"$sum": 1}, "v": {"$min": "$a"}},
    {"_id": {"$type": "$a"}, "n": {"$sum": {"$cond": [{"$gt": ["$b", 1]}, 1, 2]}}, "v": {"$max": "$a.d"}},
    {"_id": None, "n": {"$sum": {"$ifNull": ["$c", 1]}}, "v": {"$top": {"sortBy": {"b": 1, "a": 1}, "output": "$a"}}},
]
HINTS: list[Document] = [{"hint": "x"}, {"hint": {"$natural": 1}}]


def canonical(documents: list[Document]) -> list[bytes]:
    """Documents in one order, and their fields too: those of a covered query come in the order of the index."""
    return sorted(bson.encode(ordered(document)) for document in documents)


def ordered(document: Document) -> Document:
    return {name: ordered(value) if isinstance(value, dict) else value for name, value in sorted(document.items())}


@settings(max_examples=150, deadline=None)
@given(
    rows_of,
    rows_of,
    filters,
    st.sampled_from(
        [
            {"a": 1},
            {"a": -1, "b": 1},
            {"b": 1, "a.c": 1},
            {"b": -1, "c": -1, "a": 1},
            {"a.c": 1, "b": 1, "a.d": -1},
            {"a.d": -1, "a": 1, "b": 1},
        ]
    ),
    st.sampled_from(
        [
            {"_id": 0, "a": 1},
            {"_id": 0, "a": 1, "b": 1},
            {"_id": 0, "b": 1},
            {"_id": 0, "a.c": 1},
            {"_id": 0, "a": {"c": 1, "d": 1}, "b": 1},
            {"_id": 0, "s": {"$ifNull": ["$a", "none"]}},
            {"_id": 0, "b": 1, "s": {"$type": "$a.c"}, "t": ["$b", "$a.d"]},
            {"_id": 0, "s": "$a", "t": {"$eq": ["$b", "$c"]}},
        ]
    ),
    st.sampled_from([{}, {"a": 1}, {"b": -1, "a": 1}, {"c": 1}, {"a.d": 1, "b": 1}]),
)
def test_covered_queries_give_what_others_give(
    rows: list[Document], later: list[Document], filter: Document, key: Document, projection: Document, sort: Document
) -> None:
    # No index can be built over two arrays side by side (171); later ones fail by themselves.
    indexed = {path.partition(".")[0] for path in key}
    assume(all(sum(isinstance(row.get(field), list) for field in indexed) < 2 for row in rows))
    server = Running()
    server.run({"create": "c"})
    if rows:
        server.run({"insert": "c", "documents": rows})
    name = "x"
    server.run({"createIndexes": "c", "indexes": [{"key": key, "name": name}]})
    if later:
        server.run({"insert": "c", "documents": later})
        server.run({"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"a": 1.0}}, "multi": True}]})
    query = {"find": "c", "filter": filter, "projection": projection, "sort": sort}
    expected = server.run({**query, "hint": {"$natural": 1}})["cursor"]["firstBatch"]
    assert canonical(server.run({**query, "hint": name})["cursor"]["firstBatch"]) == canonical(expected)
    assert server.run({"count": "c", "query": filter, "hint": name})["n"] == len(expected)
    for part in ([], [{"$skip": 1}], [{"$limit": 2}], [{"$skip": 1}, {"$limit": 2}], [{"$limit": 3}, {"$skip": 1}]):
        pipeline = [{"$match": filter}, *part, {"$count": "n"}]
        counts = [server.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}, **hint}) for hint in HINTS]
        assert counts[0] == counts[1]
    for group in GROUPS:
        pipeline = [{"$match": filter}, {"$group": group}]
        groups: list[list[list[bytes]]] = []
        for hint in HINTS:
            given = server.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}, **hint})
            # Of values that compare equal, 1 and 1.0, either may come first.
            groups.append(sorted([encode_value(each[name]) for name in ("_id", "n", "v")] for each in given))
        assert groups[0] == groups[1]
