"""Index bounds as text for explain: "[1, 5)", "(5, MaxKey]", "[nan.0, inf.0]"."""

import math
from typing import Final

from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.compare import (
    BRACKET_ARRAY,
    BRACKET_BINARY,
    BRACKET_BOOL,
    BRACKET_CODE,
    BRACKET_CODE_WITH_SCOPE,
    BRACKET_DATE,
    BRACKET_DB_POINTER,
    BRACKET_MAX_KEY,
    BRACKET_MIN_KEY,
    BRACKET_NULL,
    BRACKET_NUMBER,
    BRACKET_OBJECT,
    BRACKET_OBJECT_ID,
    BRACKET_REGEX,
    BRACKET_STRING,
    BRACKET_TIMESTAMP,
    BRACKET_UNDEFINED,
)
from mongottl.document.freeing import freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.document.render import render_value
from mongottl.document.types import (
    BinData,
    Date,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval

# Maximum bytes of one index's bounds in explain. They appear in the plan and in its statistics, beside the filter and
# the command, and all of it must fit into one document.
MAX_BOUNDS_BYTES: Final = 2 << 20
_TEXT_OVERHEAD: Final = 12  # of an element of an array, roughly

# How mongod writes the ends of type brackets: the lowest and highest value, or the next bracket's lowest, exclusive.
_BRACKET_TEXTS: Final[dict[int, tuple[str, bool, str, bool]]] = {
    BRACKET_MIN_KEY: ("MinKey", True, "MinKey", True),
    BRACKET_UNDEFINED: ("undefined", True, "undefined", True),
    BRACKET_NULL: ("null", True, "null", True),
    BRACKET_NUMBER: ("nan.0", True, "inf.0", True),
    BRACKET_STRING: ('""', True, "{}", False),
    BRACKET_OBJECT: ("{}", True, "[]", False),
    BRACKET_ARRAY: ("[]", True, "BinData(0, )", False),
    BRACKET_BINARY: ("BinData(0, )", True, "ObjectId('000000000000000000000000')", False),
    BRACKET_OBJECT_ID: (
        "ObjectId('000000000000000000000000')", True, "ObjectId('ffffffffffffffffffffffff')", True,
    ),
    BRACKET_BOOL: ("false", True, "true", True),
    BRACKET_DATE: ("new Date(-9223372036854775808)", True, "new Date(9223372036854775807)", True),
    BRACKET_TIMESTAMP: ("Timestamp(0, 0)", True, "Timestamp(4294967295, 4294967295)", True),
    BRACKET_REGEX: ("//", True, "DBRef('', 000000000000000000000000)", False),
    BRACKET_DB_POINTER: ("DBRef('', 000000000000000000000000)", True, "", False),
    BRACKET_CODE: ("", True, "CodeWScope( , {})", False),
    BRACKET_CODE_WITH_SCOPE: ("CodeWScope( , {})", True, "MaxKey", False),
    BRACKET_MAX_KEY: ("MaxKey", True, "MaxKey", True),
}  # fmt: skip


# The lowest and the highest value of type brackets, where there are such.
_LOWEST: Final[dict[int, Value]] = {
    BRACKET_MIN_KEY: MinKey(),
    BRACKET_UNDEFINED: Undefined(),
    BRACKET_NULL: None,
    BRACKET_NUMBER: math.nan,
    BRACKET_STRING: "",
    BRACKET_OBJECT: EMPTY_DOCUMENT,
    BRACKET_ARRAY: [],
    BRACKET_BINARY: BinData(b""),
    BRACKET_OBJECT_ID: ObjectId(b"\0" * 12),
    BRACKET_BOOL: False,
    BRACKET_DATE: Date(-(2**63)),
    BRACKET_TIMESTAMP: Timestamp(0, 0),
    BRACKET_REGEX: Regex("", ""),
    BRACKET_MAX_KEY: MaxKey(),
}
_HIGHEST: Final[dict[int, Value]] = {
    BRACKET_MIN_KEY: MinKey(),
    BRACKET_UNDEFINED: Undefined(),
    BRACKET_NULL: None,
    BRACKET_NUMBER: math.inf,
    BRACKET_OBJECT_ID: ObjectId(b"\xff" * 12),
    BRACKET_BOOL: True,
    BRACKET_DATE: Date(2**63 - 1),
    BRACKET_TIMESTAMP: Timestamp(2**32 - 1, 2**32 - 1),
    BRACKET_MAX_KEY: MaxKey(),
}
_FOLLOWING: Final[dict[int, int]] = {
    BRACKET_STRING: BRACKET_OBJECT,
    BRACKET_OBJECT: BRACKET_ARRAY,
    BRACKET_ARRAY: BRACKET_BINARY,
    BRACKET_BINARY: BRACKET_OBJECT_ID,
}


def _end_text(end: Value, inclusive: bool, collated: bool) -> tuple[str, bool]:
    if isinstance(end, BracketStart):
        low_text, low_inclusive, _, _ = _BRACKET_TEXTS[end.bracket]
        return low_text, low_inclusive
    if isinstance(end, BracketEnd):
        _, _, high_text, high_inclusive = _BRACKET_TEXTS[end.bracket]
        return high_text, high_inclusive
    if collated and isinstance(end, str):
        return f"CollationKey(0x{end.encode('latin-1').hex()})", inclusive
    return render_value(end), inclusive


def _low_value(interval: Interval) -> tuple[Value, bool]:
    """The lower end of a range as a value, and whether it is in the range."""
    end = interval.low
    if isinstance(end, BracketStart):
        return _LOWEST.get(end.bracket, MinKey()), True
    if isinstance(end, BracketEnd):
        value, inclusive = _highest(end.bracket)
        return value, not inclusive
    return end, interval.low_inclusive


def _high_value(interval: Interval) -> tuple[Value, bool]:
    """The upper end of a range as a value, and whether it is in the range."""
    end = interval.high
    if isinstance(end, BracketEnd):
        return _highest(end.bracket)
    if isinstance(end, BracketStart):
        return _LOWEST.get(end.bracket, MinKey()), False
    return end, interval.high_inclusive


def _highest(bracket: int) -> tuple[Value, bool]:
    """The highest value of a type bracket; where there is none, the lowest of the next one, exclusive."""
    if bracket in _HIGHEST:
        return _HIGHEST[bracket], True
    following = _FOLLOWING.get(bracket)
    return (MaxKey(), True) if following is None else (_LOWEST[following], False)


def interval_text(interval: Interval, backward: bool, collated: bool = False) -> str:
    """An interval as text, in the direction of the scan: "[1, 5)", backward "(5, 1]".

    collated: whether strings in it are sort keys of a collation.
    """
    give_way()
    low, low_inclusive = _end_text(interval.low, interval.low_inclusive, collated)
    high, high_inclusive = _end_text(interval.high, interval.high_inclusive, collated)
    # A range that begins at the end of a type bracket excludes it, and one that ends at a bracket's start as well.
    if isinstance(interval.low, BracketEnd):
        low_inclusive = not low_inclusive
    if isinstance(interval.high, BracketStart):
        high_inclusive = not high_inclusive
    if backward:
        return f"{'[' if high_inclusive else '('}{high}, {low}{']' if low_inclusive else ')'}"
    return f"{'[' if low_inclusive else '('}{low}, {high}{']' if high_inclusive else ')'}"


def single_interval_details(bounds: IndexBounds) -> dict[str, Value] | None:
    """`{indexBounds: …}` of a COUNT_SCAN: the first and the last key. None where the bounds are several ranges."""
    components = bounds.components
    names = [component.path.dotted for component in components]
    if bounds.limits is None:
        if bounds.trailing or any(len(intervals) != 1 for intervals in bounds.intervals):
            return None
        first: list[Value] = []
        last: list[Value] = []
        first_inclusive = last_inclusive = True
        for i in range(len(components)):
            # The rest of an excluded key is excluded with it.
            low: Value = MinKey() if first_inclusive else MaxKey()
            high: Value = MaxKey() if last_inclusive else MinKey()
            if i < len(bounds.intervals):
                interval = bounds.intervals[i][0]
                low, first_inclusive = _low_value(interval)
                high, last_inclusive = _high_value(interval)
                if components[i].descending:
                    low, high = high, low
                    first_inclusive, last_inclusive = last_inclusive, first_inclusive
            elif components[i].descending:
                low = MaxKey() if first_inclusive else MinKey()
                high = MinKey() if last_inclusive else MaxKey()
            first.append(low)
            last.append(high)
        start = encode_fields(list(zip(names, first, strict=True)))
        end = encode_fields(list(zip(names, last, strict=True)))
    else:
        first_inclusive, last_inclusive = True, False
        start, end = bounds.limits
    details: dict[str, Value] = {
        "startKey": start,
        "startKeyInclusive": first_inclusive,
        "endKey": end,
        "endKeyInclusive": last_inclusive,
    }
    return {"indexBounds": details}


def bounds_details(bounds: IndexBounds, forward: bool) -> dict[str, Value]:
    """`{indexBounds: …}` for explain; `{warning: …}` if the bounds are too long."""
    described = describe_bounds(bounds, forward)
    size = 0
    for texts in described.values():
        if isinstance(texts, list):
            for text in texts:
                size += len(text) + _TEXT_OVERHEAD if isinstance(text, str) else 0
    if size > MAX_BOUNDS_BYTES:
        return {"warning": "index bounds omitted due to BSON size limit for explain"}
    return {"indexBounds": described}


def describe_bounds(bounds: IndexBounds, forward: bool) -> dict[str, Value]:
    """`indexBounds`: for each path of the index its intervals as text, in the direction of the scan."""
    described: dict[str, Value] = {}
    if bounds.limits is not None:
        first, last = bounds.limits if forward else bounds.limits[::-1]
        return {"startKey": first, "startKeyInclusive": forward, "endKey": last, "endKeyInclusive": not forward}
    expressed = [*bounds.intervals, *bounds.trailing]
    collated = bounds.index.descriptor.collation is not None
    for i in range(len(bounds.components)):
        component = bounds.components[i]
        backward = component.descending == forward
        texts: list[Value] = []
        if i < len(expressed):
            texts.extend([interval_text(interval, backward, collated and component.whole) for interval in expressed[i]])
            if backward:
                texts.reverse()
        else:
            texts.append("[MaxKey, MinKey]" if backward else "[MinKey, MaxKey]")
        described[component.path.dotted] = freed_in_slices(texts)
    return described
