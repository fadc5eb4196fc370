"""Sort patterns, sort keys and the top k."""

import itertools

import pytest
from bson import Decimal128, Int64

from mongottl.document.annotated import annotated
from mongottl.document.build import encode
from mongottl.document.keystring import encode_key
from mongottl.document.types import Date, Undefined, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.query.sort import SortPattern, parse_sort
from tests.gaps import measured


def pattern(specification: dict[str, Value]) -> SortPattern:
    return parse_sort(encode(specification))


def doc(fields: dict[str, Value]) -> bytes:
    return encode(fields)


def test_directions() -> None:
    parsed = pattern({"a.b": 1, "c": -1.0, "d": Int64(-1), "e": Decimal128("1")})
    assert [path.dotted for path in parsed.paths] == ["a.b", "c", "d", "e"]
    assert parsed.descending == [False, True, True, False]
    assert parsed.describe() == {"a.b": 1, "c": -1, "d": -1, "e": 1}
    assert not parsed.is_empty()
    assert pattern({"a": 1.5}).descending == [False]


REFUSED: list[tuple[dict[str, Value], int]] = [
    ({"a": "foo"}, 15974),
    ({"a": True}, 15974),
    ({"a": None}, 15974),
    ({"a": [1]}, 15974),
    ({"a": 0}, 15975),
    ({"a": 2}, 15975),
    ({"a": -2.0}, 15975),
    ({"a": float("nan")}, 15975),
    ({"a": float("inf")}, 15975),
    ({"a": 0.5}, 15975),
    ({"a": Decimal128("NaN")}, 15975),
    ({"a": Decimal128("1E+6000")}, 15975),
    ({"a": 1, "b": Int64(2**40)}, 15975),
    ({"a": {"b": 1}}, 17312),
    ({"a": {}}, 17312),
    ({"a": {"$meta": "textScore", "x": 1}}, 9),
    ({"a": {"x": 1, "y": 1}}, 17312),
    ({"a": {"$meta": "indexKey"}}, 31138),
    ({"a": {"$meta": "geoNearPoint"}}, 31138),
    ({"a": Decimal128("1.5")}, 15975),
    ({"a": {"$meta": "unknown"}}, 31138),
    ({"a": {"$meta": 1}}, 31138),
    ({"": 1}, 40352),
    ({"a.": 1}, 40353),
    ({"a..b": 1}, 15998),
    ({"$a": 1}, 16410),
    ({f"f{i}": 1 for i in range(33)}, 13103),
    ({f"f{i}": {"$meta": "textScore"} for i in range(65)}, 13103),
]


@pytest.mark.parametrize(("specification", "code"), REFUSED)
def test_malformed_patterns_have_their_codes(specification: dict[str, Value], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        pattern(specification)
    assert caught.value.code == code


def test_a_pattern_of_too_many_fields_is_refused_before_all_are_read() -> None:
    raw = encode({f"f{number}": 1 for number in range(5_000)})
    with measured() as gaps, pytest.raises(CommandError):
        parse_sort(raw)
    assert gaps.count < 500


def test_a_path_twice_is_refused() -> None:
    element = encode({"a": 1})[4:-1]
    twice = (5 + 2 * len(element)).to_bytes(4, "little") + element * 2 + b"\0"
    with pytest.raises(CommandError) as caught:
        parse_sort(twice)
    assert caught.value.code == 7472500


def test_the_message_shows_the_key() -> None:
    with pytest.raises(CommandError, match=r'^Illegal key in \$sort specification: a: "foo"$'):
        pattern({"a": "foo"})


def test_an_empty_pattern_keeps_the_order() -> None:
    empty = pattern({})
    documents = [doc({"a": 2}), doc({"a": 1})]
    assert empty.is_empty()
    assert empty.sort(documents) == documents


KEYS: list[tuple[dict[str, Value], dict[str, Value], list[Value]]] = [
    # Plain values, missing fields, scalars where the path goes on.
    ({"a": 1}, {"a": 5}, [5]),
    ({"a": -1}, {"a": "x"}, ["x"]),
    ({"a": 1}, {"b": 1}, [None]),
    ({"a": -1}, {"b": 1}, [None]),
    ({"a": 1}, {"a": Undefined()}, [Undefined()]),
    ({"a.b": 1}, {"a": {"b": 5}}, [5]),
    ({"a.b": 1}, {"a": {"c": 5}}, [None]),
    ({"a.b": 1}, {"a": 5}, [None]),
    ({"a.b": 1}, {"a.b": 5}, [None]),
    ({"a": 1, "b.c": -1}, {"b": {"c": 2}, "a": 1}, [1, 2]),
    ({"a": 1}, {"a": {"x": [3, 1]}}, [encode({"x": [3, 1]})]),
    # Arrays at the end of the path.
    ({"a": 1}, {"a": [3, 1, 2]}, [1]),
    ({"a": -1}, {"a": [3, 1, 2]}, [3]),
    ({"a": 1}, {"a": []}, [Undefined()]),
    ({"a": -1}, {"a": []}, [Undefined()]),
    ({"a": 1}, {"a": [[2, 0]]}, [[2, 0]]),
    ({"a": 1}, {"a": [[]]}, [[]]),
    ({"a": 1}, {"a": [5, None]}, [None]),
    ({"a": -1}, {"a": ["x", Date(0), 7]}, [Date(0)]),
    ({"a.b": 1}, {"a": {"b": [4, 3]}}, [3]),
    ({"a.b": 1}, {"a": {"b": []}}, [Undefined()]),
    # Arrays on the way.
    ({"a.b": 1}, {"a": [{"b": 4}, {"b": 3}]}, [3]),
    ({"a.b": -1}, {"a": [{"b": 4}, {"b": 3}, {}]}, [4]),
    ({"a.b": 1}, {"a": [{"b": 4}, {}]}, [None]),
    ({"a.b": 1}, {"a": [{"b": 4}, 7]}, [None]),
    ({"a.b": 1}, {"a": [[{"b": 4}]]}, [None]),
    ({"a.b": 1}, {"a": []}, [None]),
    ({"a.b": 1}, {"a": [{"b": [9, 2]}, {"b": 3}]}, [2]),
    ({"a.b": 1}, {"a": [{"b": []}, {"b": 3}]}, [Undefined()]),
    ({"a.b.c": -1}, {"a": [{"b": [{"c": 1}, {"c": 5}]}, {"b": {"c": 3}}]}, [5]),
    # Numbers in paths: elements of arrays, names of fields.
    ({"a.0": 1}, {"a": {"0": 7}}, [7]),
    ({"a.0": 1}, {"a": [7, 1]}, [7]),
    ({"a.1": 1}, {"a": [7, 1]}, [1]),
    ({"a.2": 1}, {"a": [7, 1]}, [None]),
    ({"a.2": 1}, {"a": [{"2": 8}]}, [8]),
    ({"a.0": 1}, {"a": [[5, 4], 3]}, [4]),
    ({"a.0": 1}, {"a": []}, [None]),
    ({"a.0.b": 1}, {"a": [{"b": 6}, {"b": 1}]}, [6]),
    ({"a.0.b": 1}, {"a": [[{"b": 6}, {"b": 5}], {"b": 1}]}, [5]),
    ({"a.0.0": 1}, {"a": [[6, 5], 1]}, [6]),
    ({"a.0.b": 1}, {"a": [3, {"b": 1}]}, [None]),
    ({"a.01": 1}, {"a": [1, 2, {"01": 3}]}, [None]),
    # Several fields: those that share an array are taken from one element of it.
    ({"a.x": 1, "a.y": 1}, {"a": [{"x": 2, "y": 1}, {"x": 1, "y": 5}]}, [1, 5]),
    ({"a.x": 1, "a.y": -1}, {"a": [{"x": 1, "y": 5}, {"x": 1, "y": 8}, {"x": 2, "y": 9}]}, [1, 8]),
    ({"a.x": -1, "a.y": 1}, {"a": [{"x": 1, "y": 0}, {"x": 2, "y": 9}, {"x": 2, "y": 7}]}, [2, 7]),
    ({"a": 1, "a.x": 1}, {"a": [{"x": 2}, 5]}, [5, None]),
    ({"b": 1, "a": -1, "c": 1}, {"a": [1, 2], "b": 3}, [3, 2, None]),
    ({"a": 1, "b.c": 1}, {"a": [], "b": {"c": "x"}}, [Undefined(), "x"]),
    ({"a.x": 1, "a": 1, "b": 1}, {"a": [], "b": 1}, [None, Undefined(), 1]),
    ({"a.b.x": 1, "a.c": 1}, {"a": [{"b": [{"x": 3}, {"x": 2}], "c": 9}, {"b": {"x": 2}, "c": 8}]}, [2, 8]),
    ({"a.0": -1, "a.1": 1}, {"a": [4, 6, 5]}, [4, 6]),
    ({"a.0": 1, "a": -1}, {"a": [4, 6, 5]}, [4, 6]),
]


@pytest.mark.parametrize(("specification", "fields", "values"), KEYS)
def test_sort_keys(specification: dict[str, Value], fields: dict[str, Value], values: list[Value]) -> None:
    parsed = pattern(specification)
    assert parsed.sort_key(doc(fields)) == encode_key(values, parsed.descending)


@pytest.mark.parametrize(
    ("specification", "fields"),
    [
        ({"a": 1, "b": 1}, {"a": [1], "b": [1]}),
        ({"a": 1, "b": 1}, {"a": [], "b": []}),
        ({"a.x": 1, "b.y": 1}, {"a": [{"x": 1}], "b": {"y": [1]}}),
        ({"a.b": 1, "a.c": 1}, {"a": [{"b": [1], "c": [2]}]}),
        ({"a.0": 1, "a.1": 1}, {"a": [[1], [2]]}),
    ],
)
def test_parallel_arrays_cannot_be_sorted_by(specification: dict[str, Value], fields: dict[str, Value]) -> None:
    with pytest.raises(CommandError, match=r"^cannot sort with keys that are parallel arrays$") as caught:
        pattern(specification).sort_key(doc(fields))
    assert caught.value.code == 2


@pytest.mark.parametrize("fields", [{"a": [{"0": 2}]}, {"a": [2, {"0": 3}]}])
def test_a_number_that_is_place_and_name_is_ambiguous(fields: dict[str, Value]) -> None:
    with pytest.raises(CommandError) as caught:
        pattern({"a.0": 1}).sort_key(doc(fields))
    assert caught.value.code == 16746


def test_positions_in_positions_do_not_multiply() -> None:
    inner: Value = [1, 2]
    for _ in range(6):
        inner = [inner] + [0] * 20
    path = "a" + ".0" * 6
    assert pattern({path: 1}).sort_key(doc({"a": inner})) == encode_key([1], [False])


def test_documents_are_sorted_stably() -> None:
    documents = [doc({"_id": i, "a": a}) for i, a in enumerate([3, 1.0, "x", None, 1, [0, 9], Int64(3)])]
    documents.append(doc({"_id": 7}))
    ascending = [get_value(document, "_id") for document in pattern({"a": 1}).sort(documents)]
    assert ascending == [3, 7, 5, 1, 4, 0, 6, 2]
    descending = [get_value(document, "_id") for document in pattern({"a": -1}).sort(documents)]
    assert descending == [2, 5, 0, 6, 1, 4, 3, 7]


def test_every_order_of_arrival_gives_the_same_order() -> None:
    documents = [doc({"a": value}) for value in (1, "x", [5, 0], None)]
    sort = pattern({"a": -1})
    orders = {tuple(sort.sort(arrival)) for arrival in itertools.permutations(documents)}
    assert len(orders) == 1


def test_metadata_sorts_where_it_stands_in_the_pattern() -> None:
    rows: list[tuple[int, float, Value]] = [(1, 0.5, 2), (1, 0.75, 1), (0, 0.5, [3, 0]), (1, 0.5, 1), (0, 0.5, 1)]
    documents = [
        annotated(encode({"_id": i, "a": a, "b": b}), "textScore", score) for i, (a, score, b) in enumerate(rows)
    ]
    meta = encode({"$meta": "textScore"})
    specifications: list[tuple[dict[str, Value], list[int]]] = [
        ({"a": 1, "m": meta, "b": 1}, [2, 4, 1, 3, 0]),
        ({"m": meta, "b": -1}, [1, 2, 0, 3, 4]),
        ({"b": 1, "m": meta}, [2, 1, 3, 4, 0]),
    ]
    for specification, expected in specifications:
        by = pattern(specification)
        assert [get_value(document, "_id") for document in by.sort(documents)] == expected
        assert by.describe() == specification
        assert by.metadata == ["textScore"]
    assert pattern({"a": 1, "m": meta, "b": -1}).sort_values(documents[2]) == [0, 0.5, 3]
