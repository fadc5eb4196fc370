from mongottl.catalog.index_kinds.table import INDEX_KINDS
from mongottl.exec.plan.index_access import INDEX_ACCESS


def test_every_kind_of_index_says_how_it_serves_queries() -> None:
    assert sorted(INDEX_ACCESS) == sorted(kind.name for kind in INDEX_KINDS)


def test_an_option_belongs_to_one_kind_or_to_kinds_that_agree_on_its_type() -> None:
    types: dict[str, str] = {}
    for kind in INDEX_KINDS:
        for option, expected in kind.options.items():
            assert types.setdefault(option, expected) == expected
