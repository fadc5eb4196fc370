"""Dotted field paths."""

import pytest

from mongottl.document.disjoint_paths import DisjointPaths
from mongottl.document.path import MAX_DEPTH, FieldPath, array_index, check_field_path
from mongottl.errors import CommandError


def test_a_path_is_cut_into_components() -> None:
    path = FieldPath("a.0.bü.01")
    assert path.parts == ["a", "0", "bü", "01"]
    assert path.part_bytes == [b"a", b"0", "bü".encode(), b"01"]
    assert path.indexes == [-1, 0, -1, -1]
    assert path.depth == 4
    assert path == FieldPath("a.0.bü.01")
    assert hash(path) == hash(FieldPath("a.0.bü.01"))
    assert path != FieldPath("a")
    assert repr(path) == "FieldPath('a.0.bü.01')"


@pytest.mark.parametrize(
    ("part", "index"),
    [
        ("0", 0),
        ("12", 12),
        ("4294967295", 4294967295),
        *((part, -1) for part in ("01", "00", "-1", "+1", "", "1 ", "1_0", "٣", "²", "a", "12345678901")),
    ],
)
def test_array_indexes_are_plain_decimal_numbers(part: str, index: int) -> None:
    assert array_index(part) == index


@pytest.mark.parametrize(
    ("dotted", "code"),
    [
        ("", 40352),
        ("a.", 40353),
        (".", 40353),
        (".a", 15998),
        ("a..b", 15998),
        ("$a", 16410),
        ("a.$b", 16410),
        ("a\0", 16411),
        (".".join("a" * (MAX_DEPTH + 1)), 15),
    ],
)
def test_paths_that_expressions_may_not_use(dotted: str, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        check_field_path(dotted)
    assert caught.value.code == code


@pytest.mark.parametrize("dotted", ["a", "a.b", "a.0", "a b", "a$", ".".join("a" * MAX_DEPTH)])
def test_paths_that_they_may(dotted: str) -> None:
    check_field_path(dotted)


@pytest.mark.parametrize(
    ("known", "added", "other"),
    [
        (["a.b", "c"], "a.b", "a.b"),
        (["a.b", "c"], "a", "a.b"),
        (["a.b", "c"], "c.d.e", "c"),
        (["a.b", "c"], "a.c", ""),
        (["a.b", "c"], "ab", ""),
        (["a.b.c", "a.d"], "a.b", "a.b.c"),
    ],
)
def test_disjoint_paths_name_the_path_in_the_way(known: list[str], added: str, other: str) -> None:
    paths = DisjointPaths()
    assert [paths.add(path) for path in known] == [""] * len(known)
    assert paths.add(added) == other
