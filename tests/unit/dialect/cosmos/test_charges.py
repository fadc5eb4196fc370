"""The model of request charges: each figure that a source gives, and how charges grow."""

import pytest

from mongottl.dialect.cosmos import charges
from mongottl.dialect.cosmos.charges import KB, MB, MODEL


@pytest.mark.parametrize("size", [0, 1, 500, KB])
def test_a_point_read_of_up_to_1_kb_is_1_unit(size: int) -> None:
    assert charges.point_read(size) == 100


def test_a_point_read_of_100_kb_is_10_units() -> None:
    assert charges.point_read(100 * KB) == 1000


def test_1000_results_of_1_kb_are_about_1000_units() -> None:
    """1,000 for what is returned, and what finding it costs."""
    assert charges.query(1, 0, 1000 * KB, 1000 * KB) == 100_000 + 280 + 3500


def test_the_parts_of_a_query_add_up() -> None:
    assert charges.query(0, 0, 0, 0) == 0
    assert charges.query(1, 0, 0, 0) == 280
    assert charges.query(1, 2, 0, 0) == 580
    assert charges.query(2, 1, MB, 3 * KB) == 560 + 150 + 3584 + 300


def test_an_insert_of_1_kb_without_indexes_is_5_and_a_half_units() -> None:
    assert charges.insert(KB, 0) == 550
    assert charges.insert(KB + 1, 0) == 1100


def test_a_replace_is_twice_an_insert() -> None:
    for size in (1, KB, 10 * KB, 100_000):
        assert charges.replace(size, 0) == 2 * charges.insert(size, 0)


def test_an_index_entry_is_1_unit() -> None:
    for charge in (charges.insert, charges.replace, charges.delete):
        assert charge(KB, 3) - charge(KB, 0) == 300


def test_charges_never_fall_as_documents_grow() -> None:
    sizes = range(0, 3 << 20, 997)
    for charge in (charges.point_read, lambda size: charges.query(1, 1, size, 0), lambda size: charges.insert(size, 0)):
        found = [charge(size) for size in sizes]
        assert found == sorted(found)


@pytest.mark.parametrize("name", MODEL)
def test_every_price_has_a_source(name: str) -> None:
    price = MODEL[name]
    assert price.hundredths > 0
    assert price.source.startswith(("Microsoft", "reported by", "recorded", "assumed"))
