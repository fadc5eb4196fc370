"""The expiry policy on raw documents equals the rules as a slow, obvious program."""

import math
from decimal import Decimal

import bson
from hypothesis import example, given
from hypothesis import strategies as st

from mongottl.ttl import policy

EDGES = [-(2**31) - 1, -(2**31), -3, -2, -1, 0, 1, 2, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32 + 1]
INTEGERS = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 100))
TTL_VALUES = st.one_of(
    INTEGERS,
    INTEGERS.map(bson.Int64),
    INTEGERS.map(float),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text("-0123456789.", max_size=4),
    st.integers(-3, 30).map(lambda number: bson.Decimal128(Decimal(number))),
    st.lists(st.integers(-1, 20), max_size=2),
    st.dictionaries(st.sampled_from(["ttl", "x"]), st.integers(-1, 20), max_size=2),
)
OTHER_FIELDS = st.dictionaries(
    st.sampled_from(["_id", "a", "t", "tt", "TTL", "ttlx", "_ts", ""]),
    st.one_of(st.integers(0, 9), st.text(max_size=5)),
)
DEFAULTS = st.one_of(st.none(), st.just(-1), st.sampled_from([1, 2**31 - 1]), st.integers(1, 50))
SECONDS = st.one_of(st.integers(0, 100), st.integers(0, 2**32))


def model_item_ttl(value: object) -> int | None:
    """Section by section as the articles have it; None for what is treated as absent."""
    if type(value) is float:
        if math.isnan(value) or math.isinf(value) or value % 1 != 0:
            return None
    elif type(value) not in (int, bson.Int64):
        return None
    number = int(value)  # type: ignore[call-overload]
    if number == -1:
        return -1
    if 1 <= number <= 2147483647:
        return int(number)
    return None


def model_dead(ts_s: int, item: int | None, default: int | None, now_s: float) -> bool:
    if default is None:
        return False
    effective = default if item is None else item
    if effective == -1:
        return False
    return now_s >= ts_s + effective


@given(TTL_VALUES, OTHER_FIELDS, OTHER_FIELDS, DEFAULTS, SECONDS, st.integers(-2, 2), st.integers(0, 999))
@example(2147483647.0, {}, {}, -1, 2**32 - 1, 0, 0)
@example(-0.0, {}, {}, 1, 0, 0, 999)
def test_policy_equals_the_model(
    value: object,
    before: dict[str, object],
    after: dict[str, object],
    default: int | None,
    ts_s: int,
    off_s: int,
    fraction_ms: int,
) -> None:
    fields = {**before, "ttl": value, **{name: it for name, it in after.items() if name not in before}}
    item = model_item_ttl(value)
    ttl_s = policy.meaningful_ttl_s(bson.encode(fields))
    assert ttl_s == (policy.NO_TTL if item is None else item)
    assert policy.meaningful_ttl_s(bson.encode({**before, **after})) == policy.NO_TTL

    default_s = policy.NO_TTL if default is None else default
    for life_s in {item, default, 2**31 - 1}:
        now_s = max(0, ts_s + (life_s or 0) + off_s)
        dead = model_dead(ts_s, item, default, now_s + fraction_ms / 1000)
        assert policy.is_expired(ts_s, ttl_s, default_s, now_s) == dead
        assert (policy.expires_at_s(ts_s, ttl_s, default_s) <= now_s) == dead
        if item is None:
            assert (ts_s <= policy.default_cutoff_s(default_s, now_s)) == dead
        elif item > 0:
            assert (ts_s + item <= policy.own_cutoff_s(default_s, now_s)) == dead
