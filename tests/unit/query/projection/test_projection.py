"""Projections: what is kept, computed and refused. Documents compared byte by byte."""

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.match.tree import MatchDetails
from mongottl.query.projection import Projection, parse_projection

DOC: dict[str, Any] = {
    "_id": 1,
    "a": 1,
    "b": {"c": 1, "d": {"e": 2, "f": 3}},
    "l": [{"x": 1, "y": 2}, 5, [{"x": 3}, 6], {"y": 4}],
    "n": [1, 2, 3, 4],
}


def parsed(spec: Any, for_find: bool = True) -> Projection:
    return parse_projection(bson.encode(spec), ParseContext(), for_find)


def projected(document: Any, spec: Any, query: Any = None) -> bytes:
    raw = bson.encode(document)
    projection = parsed(spec)
    details = None
    if query is not None:
        details = MatchDetails()
        assert parse_match(bson.encode(query), ParseContext()).matches_positional(raw, details)
    return projection.apply(raw, details)


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in DOC.items() if name not in names}


KEPT: list[tuple[Any, Any]] = [
    ({}, DOC),
    ({"a": 1}, {"_id": 1, "a": 1}),
    ({"n": True, "a": 2.5}, {"_id": 1, "a": 1, "n": [1, 2, 3, 4]}),
    ({"a": Int64(1), "_id": 0}, {"a": 1}),
    ({"_id": 1}, {"_id": 1}),
    ({"_id": Decimal128("0.0"), "z": Decimal128("1")}, {}),
    ({"z": 1}, {"_id": 1}),
    ({"a": 0}, without("a")),
    ({"a": False, "b": 0, "_id": 0}, without("a", "b", "_id")),
    ({"_id": 1, "b": 0, "l": 0}, without("b", "l")),
    ({"_id": 0}, without("_id")),
    ({"b.c": 1}, {"_id": 1, "b": {"c": 1}}),
    ({"b": {"c": 1, "d": {"f": 1}}}, {"_id": 1, "b": {"c": 1, "d": {"f": 3}}}),
    ({"b": {"d.e": 1}}, {"_id": 1, "b": {"d": {"e": 2}}}),
    ({"b.z": 1, "a.z": 1}, {"_id": 1, "b": {}}),
    ({"l.x": 1}, {"_id": 1, "l": [{"x": 1}, [{"x": 3}], {}]}),
    ({"l.x": 0}, {**DOC, "l": [{"y": 2}, 5, [{}, 6], {"y": 4}]}),
    ({"n.0": 1}, {"_id": 1, "n": []}),
    ({"n.0": 0, "a.b": 0}, DOC),
    ({"b.d.e": 0}, {**DOC, "b": {"c": 1, "d": {"f": 3}}}),
]


@pytest.mark.parametrize(("spec", "expected"), KEPT)
def test_inclusion_and_exclusion(spec: Any, expected: Any) -> None:
    assert projected(DOC, spec) == bson.encode(expected)
    assert parsed(spec).is_simple


def test_duplicate_fields_do_not_hide_others() -> None:
    elements = b"\x10a\x00\x01\x00\x00\x00\x10a\x00\x02\x00\x00\x00\x10b\x00\x03\x00\x00\x00"
    raw = (4 + len(elements) + 1).to_bytes(4, "little") + elements + b"\x00"
    assert parsed({"a": 1, "b": 1}).apply(raw) == raw
    assert parsed({"a": 0}).apply(raw) == bson.encode({"b": 3})


COMPUTED: list[tuple[Any, Any]] = [
    ({"s": {"$add": ["$a", 1]}}, {"_id": 1, "s": 2}),
    ({"z": "$b.c", "a": 1}, {"_id": 1, "a": 1, "z": 1}),
    ({"n": {"$literal": 0}, "a": 1}, {"_id": 1, "a": 1, "n": 0}),
    ({"t": "text", "u": None, "v": ["$a", 2]}, {"_id": 1, "t": "text", "u": None, "v": [1, 2]}),
    ({"z": "$missing", "a": 1}, {"_id": 1, "a": 1}),
    ({"b.new": "$a", "b.c": 1}, {"_id": 1, "b": {"c": 1, "new": 1}}),
    ({"p.q": "$a", "p.r": "$none"}, {"_id": 1, "p": {"q": 1}}),
    ({"p.q": "$none"}, {"_id": 1, "p": {}}),
    ({"a.q": "$b.c"}, {"_id": 1, "a": {"q": 1}}),
    ({"l.x": 1, "l.z": "$a"}, {"_id": 1, "l": [{"x": 1, "z": 1}, {"z": 1}, [{"x": 3, "z": 1}, {"z": 1}], {"z": 1}]}),
]


@pytest.mark.parametrize(("spec", "expected"), COMPUTED)
def test_computed_fields(spec: Any, expected: Any) -> None:
    assert projected(DOC, spec) == bson.encode(expected)
    assert not parsed(spec).is_simple


def test_a_computed_id_comes_behind_what_is_kept() -> None:
    assert list(bson.decode(projected(DOC, {"_id": "$a", "n": 1}))) == ["n", "_id"]


SLICES: list[tuple[Any, list[int]]] = [
    (2, [1, 2]),
    (-1, [4]),
    (0, []),
    (9, [1, 2, 3, 4]),
    (-9, [1, 2, 3, 4]),
    (1.9, [1]),
    (float("nan"), []),
    (float("inf"), [1, 2, 3, 4]),
    (Decimal128("3"), [1, 2, 3]),
    (Int64(-(2**63)), [1, 2, 3, 4]),
    ([1, 2], [2, 3]),
    ([-2, 1], [3]),
    ([-9, 2], [1, 2]),
    ([7, 2], []),
    ([-1.5, Int64(5)], [4]),
    ([2**31 - 1, 2**31 - 1], []),
]


@pytest.mark.parametrize(("argument", "kept"), SLICES)
def test_slice(argument: Any, kept: list[int]) -> None:
    assert projected(DOC, {"n": {"$slice": argument}}) == bson.encode({**DOC, "n": kept})
    assert projected(DOC, {"n": {"$slice": argument}, "a": 1}) == bson.encode({"_id": 1, "a": 1, "n": kept})


def test_slice_reaches_into_documents_and_arrays() -> None:
    document = {"_id": 1, "o": [{"t": [1, 2], "u": 0}, {"t": 5}, {"t": []}], "p": {"q": [1, 2]}, "z": 3}
    assert projected(document, {"o.t": {"$slice": 1}, "p.q": {"$slice": -1}}) == bson.encode(
        {"_id": 1, "o": [{"t": [1], "u": 0}, {"t": 5}, {"t": []}], "p": {"q": [2]}, "z": 3}
    )
    assert projected(document, {"p.q": {"$slice": 1}, "_id": 1}) == bson.encode({"_id": 1, "p": {"q": [1]}})
    assert projected(document, {"z": {"$slice": 1}, "o": 0, "p": 0}) == bson.encode({"_id": 1, "z": 3})


def test_slices_side_by_side_in_nested_arrays() -> None:
    below = {"x": [1, 2, 3], "y": [4, 5, 6], "z": [7, 8]}
    document: dict[str, Any] = {"_id": 1, "l": [below, [below, 9], 9], "x": [1, 2], "o": {"l": below, "m": {"n": [1]}}}
    spec = {
        "l.x": {"$slice": 1},
        "l.y": {"$slice": [-2, 1]},
        "x": {"$slice": 0},
        "o.l.x": {"$slice": 5},
        "o.l.z": {"$slice": -1},
        "o.m.n.p": {"$slice": 1},
    }
    cut = {"x": [1], "y": [5], "z": [7, 8]}
    expected = {"_id": 1, "l": [cut, [cut, 9], 9], "x": [], "o": {"l": {**below, "z": [8]}, "m": {"n": [1]}}}
    assert projected(document, spec) == bson.encode(expected)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"n": {"$elemMatch": {"$gt": 2}}}, {"_id": 1, "n": [3]}),
        ({"n": {"$elemMatch": {"$gt": 9}}}, {"_id": 1}),
        ({"l": {"$elemMatch": {"y": 4}}}, {"_id": 1, "l": [{"y": 4}]}),
        (
            {"l": {"$elemMatch": {"x": {"$exists": True}}}, "n": 1},
            {"_id": 1, "n": [1, 2, 3, 4], "l": [{"x": 1, "y": 2}]},
        ),
        ({"a": {"$elemMatch": {"$gt": 0}}, "z": {"$elemMatch": {}}}, {"_id": 1}),
        ({"n": {"$elemMatch": {"$gt": 2}}, "b": 0, "l": 0}, {"_id": 1, "a": 1, "n": [3]}),
        ({"_id": {"$elemMatch": {"$gt": 0}}}, {}),
        (
            {"n": {"$elemMatch": {"$gt": 2}}, "l": {"$slice": 1}},  # with $slice the other fields stay
            {"_id": 1, "a": 1, "b": {"c": 1, "d": {"e": 2, "f": 3}}, "l": [{"x": 1, "y": 2}], "n": [3]},
        ),
        (
            {"_id": 1, "n": {"$elemMatch": {"$gt": 2}}, "l": {"$slice": 1}},
            {"_id": 1, "l": [{"x": 1, "y": 2}], "n": [3]},
        ),
    ],
)
def test_elem_match(spec: Any, expected: Any) -> None:
    assert projected(DOC, spec) == bson.encode(expected)


@pytest.mark.parametrize(
    ("spec", "query", "expected"),
    [
        ({"n.$": 1}, {"n": {"$gt": 2}}, {"_id": 1, "n": [3]}),
        ({"n.$": 1, "a": 1, "_id": 0}, {"n": 4}, {"a": 1, "n": [4]}),
        ({"l.$": 1}, {"l.y": 4}, {"_id": 1, "l": [{"y": 4}]}),
        ({"l.y.$": 1}, {"l.y": 4}, {"_id": 1, "l": [{"y": 4}]}),
        ({"n.$": 1, "l": {"$slice": 1}}, {"n": 2}, {"_id": 1, "l": [{"x": 1, "y": 2}], "n": [2]}),
        ({"a.$": 1}, {"a": 1}, {"_id": 1, "a": 1}),
    ],
)
def test_positional(spec: Any, query: Any, expected: Any) -> None:
    assert parsed(spec).needs_positional
    assert projected(DOC, spec, query) == bson.encode(expected)


@pytest.mark.parametrize(("query", "code"), [({"a": 1}, 51246), ({"l.y": 4}, 51247)])
def test_positional_without_an_element(query: Any, code: int) -> None:
    document = {"_id": 1, "a": 1, "l": [{}, {}, {"y": 4}], "n": [1, 2]}
    with pytest.raises(CommandError) as caught:
        projected(document, {"n.$": 1}, query)
    assert caught.value.code == code


ERRORS: list[tuple[Any, int]] = [
    ({"a": 1, "b": 0}, 31254),
    ({"b": 0, "a": 1}, 31253),
    ({"a": 0, "s": {"$add": [1, 1]}}, 31252),
    ({"a": 0, "s": "x"}, 31310),
    ({"s": "x", "a": 0}, 31254),
    ({"a": 1, "a.b": 1}, 31249),
    ({"a": 1, "a.b": 0}, 31249),
    ({"a": 0, "a.b": 1}, 31249),
    ({"a.b": 1, "a": 1}, 31250),
    ({"a.b": 1, "a": {"b": 1}}, 31250),
    ({"a": {"b": 1}, "a.b.c": 1}, 31249),
    ({"a": {}}, 51270),
    ({"a": {"b": {}}}, 51270),
    ({"": 1}, 40352),
    ({"a.": 1}, 40353),
    ({"a..b": 1}, 15998),
    ({".a": 1}, 15998),
    ({"$a": 1}, 16410),
    ({"a.$b": 1}, 16410),
    ({"a.$": 0}, 31395),
    ({"b": 0, "a.$": 1}, 31395),
    ({"a.$": 1, "b.$": 1}, 31276),
    ({"a.$.b": 1}, 31394),
    ({"a.$.b.$": 1}, 31287),
    ({"a.$": 1, "b": {"$elemMatch": {"c": 1}}}, 31255),
    ({"a.$": {"b": 1}}, 31271),
    ({"a.$": "x"}, 31308),
    ({"b": {"$elemMatch": {"c": 1}}, "a.$": 1}, 31256),
    ({"a.b": {"$elemMatch": {"c": 1}}}, 31275),
    ({"a": {"$elemMatch": 5}}, 31274),
    ({"a": {"$elemMatch": {"$bad": 1}}}, 2),
    ({"a": {"$nonsense": 1}}, 31325),
    ({"a": {"b": {"$nonsense": 1}}}, 31325),
    ({"a": {"$add": [1, {"$nonsense": 1}]}}, 168),
]


@pytest.mark.parametrize(("spec", "code"), ERRORS)
def test_refused(spec: Any, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        parsed(spec)
    assert caught.value.code == code


def test_pipelines_know_no_positional_operator() -> None:
    with pytest.raises(CommandError) as caught:
        parsed({"a.$": 1}, for_find=False)
    assert caught.value.code == 31324


@pytest.mark.parametrize(
    ("spec", "kind", "fields"),
    [
        ({"b": 1, "a.x": 1}, "inclusion", ["_id", "a", "b"]),
        ({"b": 1, "_id": 0}, "inclusion", ["b"]),
        ({"b": 0}, "exclusion", None),
        ({}, "exclusion", None),
        ({"_id": 0}, "exclusion", None),
        ({"s": {"$add": ["$a", "$b.c"]}}, "inclusion", ["_id", "a", "b"]),
        ({"s": "$$ROOT"}, "inclusion", None),
        ({"n": {"$slice": 1}}, "exclusion", None),
        ({"n": {"$elemMatch": {"x": 1}}}, "inclusion", ["_id", "n"]),
    ],
)
def test_kind_and_dependencies(spec: Any, kind: str, fields: list[str] | None) -> None:
    projection = parsed(spec)
    depends = projection.depends_on()
    assert projection.kind == kind
    assert (None if depends is None else sorted(depends)) == fields
    assert projection.describe() == bson.encode(spec)


@pytest.mark.parametrize("value", [float("nan"), Decimal128("NaN")])
def test_nan_includes(value: object) -> None:
    assert parsed({"a": value}).kind == "inclusion"
