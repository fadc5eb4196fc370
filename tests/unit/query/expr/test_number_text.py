"""Long texts of numbers are parsed as short ones with the same value."""

import decimal
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.query.expr.number_text import SHORT, are_digits, shortened

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
# That of `$toDecimal`: digits are cut off, and what loses digits by a small exponent is refused.
CUTTING = decimal.Context(
    prec=34,
    rounding=decimal.ROUND_DOWN,
    Emin=-6143,
    Emax=6144,
    clamp=1,
    traps=[decimal.Overflow, decimal.Underflow],
)
DIGITS = st.lists(
    st.tuples(st.text("0123456789", min_size=1, max_size=40), st.sampled_from((1, 30, 400))), max_size=2
).map(lambda parts: "".join([digits * times for digits, times in parts]))
POWERS = st.one_of(
    st.just(""),
    st.tuples(
        st.sampled_from(("e", "E", "e+", "e-", "E-", "e ", "")),
        st.one_of(st.integers(0, 99_999).map(str), st.just("0" * 5000 + "300"), st.just("9" * 5000)),
    ).map("".join),
)


def decimal_of(text: str) -> str:
    try:
        return str(CUTTING.create_decimal(text))
    except decimal.DecimalException as refusal:
        return type(refusal).__name__


@given(st.sampled_from(("", "-", "+", "x")), DIGITS, st.sampled_from(("", ".")), DIGITS, POWERS)
def test_a_shortened_number_has_the_value_of_the_long_one(
    sign: str, whole: str, point: str, fraction: str, power: str
) -> None:
    text = sign + whole + point + fraction + power
    short = shortened(text)
    assert len(short) <= SHORT
    assert (NUMBER.match(short) is None) == (NUMBER.match(text) is None)
    if NUMBER.match(text) is not None:
        assert float(short) == float(text)
        assert decimal_of(short) == decimal_of(text)


@pytest.mark.parametrize("zeros", ["0" * 5000, "0" * 200_000])
def test_digits_that_decide_what_lies_half_way_between_two_doubles_count(zeros: str) -> None:
    half = "9007199254740993" + "." + zeros
    assert float(shortened(half)) == 9007199254740992.0
    assert float(shortened(half + "1")) == 9007199254740994.0


def test_other_characters_are_found_wherever_they_are() -> None:
    for place in (0, 65_535, 65_536, 199_999):
        digits = "1" * place + "٣" + "1" * (199_999 - place)
        assert not are_digits(digits)
        assert not are_digits(digits.replace("٣", "x"))
    assert are_digits("1" * 200_000)
