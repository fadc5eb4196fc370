import pytest

from mongottl.catalog.namespace import (
    check_collection_name,
    check_database_name,
    check_new_collection_name,
    split_namespace,
)
from mongottl.errors import CommandError


@pytest.mark.parametrize("name", ["a", "test", "A-b_c", "ü", "x" * 63, "a'b", "config"])
def test_names_that_a_database_may_have(name: str) -> None:
    check_database_name(name)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "a\\b", 'a"b', "a$b", "a\0b", "x" * 64, "ü" * 32])
def test_names_that_a_database_may_not_have(name: str) -> None:
    with pytest.raises(CommandError) as caught:
        check_database_name(name)
    assert caught.value.code == 73


@pytest.mark.parametrize("name", ["c", "a.b.c", "a b", "_", "ü", "x" * 250, "system.js", "a..b", "a.", "1"])
def test_names_that_a_collection_may_be_given(name: str) -> None:
    check_new_collection_name("test", name)


@pytest.mark.parametrize("name", ["", ".a", "a\0b", "a$b", "system.foo", "x" * 251])
def test_names_that_a_collection_may_not_be_given(name: str) -> None:
    with pytest.raises(CommandError) as caught:
        check_new_collection_name("test", name)
    assert caught.value.code == 73


def test_names_that_can_only_be_looked_up() -> None:
    check_collection_name("test", "system.foo")
    check_collection_name("test", "$cmd.listCollections")


def test_namespaces_are_split_at_the_first_dot() -> None:
    assert split_namespace("db.a.b") == ("db", "a.b")


@pytest.mark.parametrize("full", ["", "db", "db.", ".c", "d b.c"])
def test_namespaces_that_lack_a_part_are_refused(full: str) -> None:
    with pytest.raises(CommandError) as caught:
        split_namespace(full)
    assert caught.value.code == 73
