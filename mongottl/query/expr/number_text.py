"""Texts of numbers of any length: a client may send 16 MB of digits, of which a double has at most 767 that count."""

from typing import Final

from mongottl.document.interrupt import give_way

# Texts up to this length are parsed as they are. Longer hexadecimal ones are refused.
SHORT: Final = 4096
# Significant digits that are kept. What follows can only decide what is half-way between two doubles, or between two
# decimals: then one more digit stands for it.
_KEPT: Final = 800
# Characters that are looked at in one step.
_STEP: Final = 1 << 16
# An exponent of more digits leads out of every range.
_MOST_EXPONENT_DIGITS: Final = 18


def are_digits(text: str) -> bool:
    """Whether a text consists of ASCII digits; an empty one does."""
    if not text.isascii():
        return False
    for start in range(0, len(text), _STEP):
        give_way(_STEP // 64)
        if not text[start : start + _STEP].isdigit():
            return False
    return True


def first_other_than_zero(text: str, start: int = 0) -> int:
    """Where a text first has another character than 0, from `start` on; its length if nowhere."""
    while start < len(text):
        give_way(_STEP // 64)
        part = text[start : start + _STEP]
        zeros = len(part) - len(part.lstrip("0"))
        start += zeros
        if zeros < len(part):
            break
    return start


def shortened(text: str) -> str:
    """A text of a decimal number, `[+-]digits[.digits][e[+-]digits]`, as a short one: it has the same nearest double,
    and as a decimal the same first digits and the same exponent, where that has room for all of them. What is no number
    becomes a short text that is none, but for one with white space around it."""
    if len(text) <= SHORT:
        return text
    sign = text[0] if text[0] in "+-" else ""
    marks = [mark for mark in (text.find("e"), text.find("E")) if mark >= 0]
    end = min(marks) if marks else len(text)
    whole, _, fraction = text[len(sign) : end].partition(".")
    if not (whole or fraction) or not are_digits(whole) or not are_digits(fraction):
        return "?"
    exponent = 0
    if marks:
        power = text[end + 1 :]
        power_sign = power[:1] if power[:1] in ("+", "-") else ""
        power = power[len(power_sign) :]
        if not power or not are_digits(power):
            return "?"
        power = power[first_other_than_zero(power) :]
        exponent = int(power or "0") if len(power) <= _MOST_EXPONENT_DIGITS else 10**_MOST_EXPONENT_DIGITS
        if power_sign == "-":
            exponent = -exponent
    digits = whole + fraction
    first = first_other_than_zero(digits)
    if first == len(digits):
        return f"{sign}0e{exponent - len(fraction)}"
    kept = digits[first : first + _KEPT]
    rest = "1" if first_other_than_zero(digits, first + _KEPT) < len(digits) else ""
    return f"{sign}0.{kept}{rest}e{exponent + len(whole) - first}"
