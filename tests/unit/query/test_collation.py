"""Collation documents: what they are completed to, what is refused, and how the texts compare."""

import os
import subprocess
import sys
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.document.collation import Collation, same_collation, with_keys
from mongottl.document.compare import compare_values
from mongottl.document.types import Regex, Symbol
from mongottl.errors import CommandError
from mongottl.query import icu
from mongottl.query.collation import parse_collation

pytestmark = pytest.mark.skipif(not icu.is_available(), reason="ICU is not installed")

DEFAULTS: dict[str, Any] = {
    "caseLevel": False,
    "caseFirst": "off",
    "strength": 3,
    "numericOrdering": False,
    "alternate": "non-ignorable",
    "maxVariable": "punct",
    "normalization": False,
    "backwards": False,
    "version": "57.1",
}


def collation_of(document: dict[str, Any]) -> Collation | None:
    return parse_collation(bson.encode(document))


def full(document: dict[str, Any]) -> dict[str, Any]:
    found = collation_of(document)
    assert found is not None
    return bson.decode(found.spec)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"locale": "en"}, {}),
        ({"locale": "en", "strength": 2}, {"strength": 2}),
        ({"locale": "en", "strength": 2.9}, {"strength": 2}),
        ({"locale": "en", "strength": Int64(5)}, {"strength": 5}),
        ({"locale": "en", "strength": Decimal128("2.5")}, {"strength": 2}),
        ({"locale": "en", "strength": None, "alternate": None, "caseFirst": None}, {}),
        ({"locale": "en", "caseLevel": True, "numericOrdering": True}, {"caseLevel": True, "numericOrdering": True}),
        ({"locale": "en", "caseFirst": "upper"}, {"caseFirst": "upper"}),
        ({"locale": "en", "caseFirst": "lower"}, {"caseFirst": "lower"}),
        (
            {"locale": "en", "alternate": "shifted", "maxVariable": "space"},
            {"alternate": "shifted", "maxVariable": "space"},
        ),
        ({"locale": "en", "normalization": True}, {"normalization": True}),
        ({"locale": "en", "version": "57.1"}, {}),
        # What the locales themselves say.
        ({"locale": "fr"}, {}),
        ({"locale": "fr_CA"}, {"backwards": True}),
        ({"locale": "fr_CA", "backwards": False}, {}),
        ({"locale": "da"}, {"caseFirst": "upper"}),
        ({"locale": "th"}, {"alternate": "shifted", "normalization": True}),
        ({"locale": "en_US_POSIX"}, {}),
        ({"locale": "de@collation=phonebook"}, {}),
        ({"locale": "zh_Hant"}, {}),
    ],
    ids=str,
)
def test_omitted_fields_have_the_defaults_of_the_locale(document: dict[str, Any], expected: dict[str, Any]) -> None:
    found = full(document)
    assert found == {"locale": document["locale"], **DEFAULTS, **expected}
    assert list(found) == ["locale", *DEFAULTS]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"locale": "simple"},
        {"locale": "simple", "strength": 1, "caseFirst": "upper"},
        {"locale": "simple", "backwards": True, "strength": 1},
    ],
    ids=str,
)
def test_the_simple_collation_is_none(document: dict[str, Any]) -> None:
    assert collation_of(document) is None


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"strength": 2}, 40414),
        ({"locale": None}, 40414),
        ({"locale": 1}, 14),
        ({"locale": "xx"}, 2),
        ({"locale": "english"}, 2),
        ({"locale": ""}, 2),
        ({"locale": "en\0"}, 2),
        ({"locale": "en-US"}, 2),
        ({"locale": "EN"}, 2),
        ({"locale": "simple", "strength": "1"}, 14),
        ({"locale": "en", "strength": 0}, 2),
        ({"locale": "en", "strength": 6}, 2),
        ({"locale": "en", "strength": float("nan")}, 2),
        ({"locale": "en", "strength": True}, 14),
        ({"locale": "en", "caseLevel": 1}, 14),
        ({"locale": "en", "caseFirst": "both"}, 2),
        ({"locale": "en", "alternate": "ignorable"}, 2),
        ({"locale": "en", "maxVariable": "symbol"}, 2),
        ({"locale": "en", "maxVariable": 1}, 14),
        ({"locale": "en", "backwards": True, "strength": 1}, 2),
        ({"locale": "en", "caseFirst": "upper", "strength": 2}, 2),
        ({"locale": "en_US_POSIX", "caseFirst": "upper", "strength": 1}, 2),
        ({"locale": "en", "version": "58"}, 161),
        ({"locale": "en", "version": 57}, 14),
        ({"locale": "en", "size": 1}, 40415),
    ],
    ids=str,
)
def test_invalid_collations_are_refused(document: dict[str, Any], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        collation_of(document)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("document", "a", "b", "order"),
    [
        ({"locale": "en"}, "a", "A", -1),
        ({"locale": "en"}, "A", "b", -1),
        ({"locale": "en", "strength": 2}, "a", "A", 0),
        ({"locale": "en", "strength": 2}, "e", "é", -1),
        ({"locale": "en", "strength": 1}, "e", "É", 0),
        ({"locale": "en", "strength": 1, "caseLevel": True}, "e", "é", 0),
        ({"locale": "en", "strength": 1, "caseLevel": True}, "e", "E", -1),
        ({"locale": "en", "caseFirst": "upper"}, "a", "A", 1),
        ({"locale": "en"}, "10", "9", -1),
        ({"locale": "en", "numericOrdering": True}, "10", "9", 1),
        ({"locale": "en", "alternate": "shifted"}, "a-b", "ab", 0),
        ({"locale": "en", "alternate": "shifted", "strength": 4}, "a-b", "ab", -1),
        ({"locale": "en", "alternate": "shifted", "maxVariable": "space"}, "a b", "ab", 0),
        ({"locale": "en", "alternate": "shifted", "maxVariable": "space"}, "a-b", "ab", -1),
        ({"locale": "fr", "strength": 2}, "côte", "coté", 1),
        ({"locale": "fr_CA", "strength": 2}, "côte", "coté", -1),
        ({"locale": "sv"}, "z", "å", -1),
        ({"locale": "de", "strength": 1}, "straße", "strasse", 0),
        ({"locale": "tr", "strength": 1}, "i", "I", 1),
        ({"locale": "en", "strength": 5}, "a\u200bb", "ab", 1),
        ({"locale": "en"}, "a\0b", "ab", 0),
        ({"locale": "en"}, "\U0001f34e", "a", -1),
        ({"locale": "en"}, "", "a", -1),
        ({"locale": "en"}, "e\u0301", "é", 0),
    ],
    ids=str,
)
def test_order(document: dict[str, Any], a: str, b: str, order: int) -> None:
    collation = collation_of(document)
    assert compare_values(a, b, collation) == order
    assert compare_values(b, a, collation) == -order
    assert compare_values([1, a], [1, b], collation) == order
    assert compare_values(bson.encode({"x": a}), bson.encode({"x": b}), collation) == order
    assert compare_values(Symbol(a), b, collation) == order


def test_names_and_patterns_are_not_collated() -> None:
    collation = collation_of({"locale": "en", "strength": 1})
    assert compare_values(bson.encode({"a": 1}), bson.encode({"A": 1}), collation) == 1
    assert compare_values(Regex("a", ""), Regex("A", ""), collation) == 1


def test_keys_take_the_place_of_texts() -> None:
    collation = collation_of({"locale": "en", "strength": 1})
    assert with_keys("É", collation) == with_keys("e", collation) != "e"
    assert with_keys([1, "a", None], collation) == [1, with_keys("a", collation), None]
    assert with_keys(bson.encode({"a": {"b": "X"}}), collation) == with_keys(bson.encode({"a": {"b": "x"}}), collation)
    assert with_keys("a", None) == "a"


@pytest.mark.parametrize(
    "options",
    [
        {"locale": "en"},
        {"locale": "fr_CA", "strength": 1},
        {"locale": "de@collation=phonebook", "strength": 2, "caseLevel": True},
        {"locale": "en_US_POSIX", "alternate": "shifted", "maxVariable": "space"},
        {"locale": "ja", "alternate": "shifted", "strength": 4},
        {"locale": "cs", "numericOrdering": True, "caseFirst": "upper", "normalization": True},
        {"locale": "sv", "strength": 5, "backwards": True},
    ],
)
def test_keys_of_long_texts_are_those_of_short_ones(options: dict[str, Any]) -> None:
    """They are made by another function of the library."""
    keys = icu.SortKeys(options["locale"])
    for name in {"caseLevel", "numericOrdering", "normalization", "backwards"} & options.keys():
        keys.set_flag(name, True)
    keys.set_strength(options.get("strength", 3))
    keys.set_case_first(options.get("caseFirst", "off"))
    keys.set_shifted("alternate" in options)
    if "maxVariable" in options:
        keys.set_only_spaces_variable()
    text = "côte Chleba-12 chata 9 ÄÖ\u00a0ß e\u0301 カ゛が 漢字 \U0001f600\uffff \0\t_x" * 1500
    for long in (text, text + "x", "漢\ufffd" * 40_000, "\0" * 70_000):
        key = keys.sort_key(long.encode())
        assert keys._functions is not None
        assert key == keys._collator.getSortKey(long)[:-1]


MARKS = "\u0345\u0316"  # of two classes: in the order of Unicode the second one comes first


@pytest.mark.parametrize(("locale", "normalizes"), [("vi", False), ("fr", True)])
def test_many_marks_in_a_row_take_no_long_time(locale: str, normalizes: bool) -> None:
    """The library would take 30 s for the shorter one of these texts, and ten minutes for the longer one."""
    keys = icu.SortKeys(locale)
    keys.set_flag("normalization", normalizes)
    for count in (30_000, 500_000):
        text = "a" + MARKS * (count // 2)
        made = [keys.sort_key((text + end).encode()) for end in ("", "b", "c")]
        assert sorted(set(made)) == made


@pytest.mark.parametrize("row", [MARKS * 63, "\U0001f600" * 1000, "שָׁלוֹם " * 1000, "\U0001f600\u0345" * 500])
def test_texts_with_fewer_marks_in_a_row_are_left_as_they_are(row: str) -> None:
    keys = icu.SortKeys("en")
    keys.set_flag("normalization", True)
    keys.set_strength(5)
    text = f"a{row}b"
    assert keys.sort_key(text.encode()) == keys._collator.getSortKey(text)[:-1]
    long = text + MARKS * 200
    assert keys.sort_key(long.encode()) != keys._collator.getSortKey(long)[:-1]


def test_equal_marks_in_another_order_are_equal_in_parts_of_a_row() -> None:
    keys = icu.SortKeys("en")
    keys.set_flag("normalization", True)
    assert keys.sort_key(("a" + MARKS * 1000).encode()) == keys.sort_key(("a" + MARKS[::-1] * 1000).encode())


BYTES = [b"\xe6\xbc\xa2", b"\xf0\x9f\x98\x80", b"\x80", b"\xe6\xbc", b"\xf0\x9fa", b"\xff\xc3"]


@pytest.mark.parametrize("part", BYTES)
@pytest.mark.parametrize("offset", range(4))
def test_long_texts_are_divided_between_characters(part: bytes, offset: int) -> None:
    """Also where bytes belong to no character."""
    keys = icu.SortKeys("en")
    keys.set_strength(5)
    long = b"a" * offset + part * (600_000 // len(part))
    key = keys.sort_key(long)
    assert keys._functions is not None
    assert key == keys._collator.getSortKey(long.decode("utf-8", "replace"))[:-1]


def test_same() -> None:
    english = collation_of({"locale": "en"})
    assert same_collation(english, collation_of({"locale": "en", "strength": 3, "backwards": False}))
    assert not same_collation(english, collation_of({"locale": "en_US"}))
    assert not same_collation(english, None)
    assert same_collation(None, None)


WITHOUT_ICU = """
import sys
sys.modules["icu"] = None
import bson
from mongottl.errors import CommandError
from mongottl.query.collation import parse_collation

for document in ({"locale": "nl", "strength": 4}, {"locale": "xx"}, {"locale": "simple"}):
    try:
        print(parse_collation(bson.encode(document)))
    except CommandError as error:
        print(error.code, "pip install '.[collation]'" in error.message)
"""


@pytest.mark.slow
def test_without_the_library() -> None:
    """In a process of its own: what is imported stays imported."""
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_ICU],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["115 True", "2 False", "None"]
