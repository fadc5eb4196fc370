"""Resume tokens: what is written is read, whatever a document key is; other tokens are refused by a code."""

import bson
import pytest
from bson import Timestamp

from mongottl.document.types import BinData, Date, Decimal128, Int64, ObjectId, Value
from mongottl.document.validate import MAX_DEPTH
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.results.resume_token import EventIdentity, high_water_mark, parse_token, token_of

DEEPEST: dict[str, object] = {}
for _ in range(MAX_DEPTH - 1):
    DEEPEST = {"a": DEEPEST}
UUID = BinData(bytes(range(16)), 4)
# As MongoDB writes the key `{_id: VALUE}` of an inserted document: time, version, event, index, no invalidation, UUID.
HEAD = "82 65000001 00000002 2B04 2C0100 29 6E 5A1004" + bytes(range(16)).hex()
KEY = "46 3C 6F7065726174696F6E5479706500 3C 696E7365727400 46 646F63756D656E744B657900 46 1E 5F696400"


def parse(data: str) -> tuple[int, int, bool, int, bool, str, int | None]:
    point = parse_token(bson.encode({"_data": data}))
    return (
        point.at.time,
        point.at.inc,
        point.is_event,
        point.operation,
        point.invalidates,
        point.identity.hex().upper(),
        point.fragment,
    )


def code_of(token: dict[str, object]) -> int:
    with pytest.raises(CommandError) as caught:
        parse_token(bson.encode(token))
    return caught.value.code


@pytest.mark.parametrize(
    "value",
    [
        0,
        127,
        128,
        2**31,
        -1,
        Int64(2**55),
        Int64(2**63 - 1),
        2.0,
        -0.5,
        float("nan"),
        True,
        False,
        None,
        "",
        "text",
        "a\0b\0",
        "\0",
        ObjectId("65a000000000000000000001"),
        Date(-1),
        BinData(b"", 0),
        BinData(bytes(254), 5),
        BinData(bytes(300), 0),
        Decimal128("1.50"),
        [],
        [1, ["\0", None], bson.encode({"a": 1})],
        bson.encode({}),
        bson.encode({"a": [{"b": "c"}], "d": 2}),
        bson.encode(DEEPEST),
    ],
)
@pytest.mark.parametrize("fragment", [None, 0, 3, 1000])
def test_encoded_tokens_parse_to_the_same_point(value: Value, fragment: int | None) -> None:
    identity = EventIdentity(1_700_000_001, 2, "insert", UUID, "documentKey").of(5, False, bson.encode({"n": 1}))
    assert parse(token_of(identity, fragment)) == (1_700_000_001, 2, True, 5, False, identity.hex().upper(), fragment)
    keyed = EventIdentity(1, 2, "invalidate", None, "x").of(300, True, value)
    assert parse(token_of(keyed, fragment)) == (1, 2, True, 300, True, keyed.hex().upper(), fragment)


def test_a_high_water_mark() -> None:
    assert parse(high_water_mark(7, 8))[:5] == (7, 8, False, 0, False)


@pytest.mark.parametrize(
    "value",
    {
        "MinKey": "0A",
        "undefined": "0F",
        "NaN": "1E",
        "-2**62 and less": "1F 0000000000000001",
        "-1": "28 FD",
        "0": "29",
        "300": "2C 0258",
        "2**62 and more": "33 4000000000000000",
        "a string with a NUL": "3C 61 00FF 62 00",
        "an array of an object": "50 46 1E 6100 2B02 00 00",
        "a long binary": "5A FF 00000100 00" + 256 * "00",
        "a date": "78 8000000000000001",
        "a regular expression": "8C 6100 6900",
        "MaxKey": "F0",
    }.items(),
    ids=lambda item: item[0],
)
def test_keys_of_other_servers_are_passed_over(value: tuple[str, str]) -> None:
    """Also of types that a token of this server does not have. Cut off anywhere, a token is refused."""
    data = "".join((HEAD + KEY + value[1] + "00 00 04").split()).upper()
    assert parse(data) == (0x65000001, 2, True, 0, False, data[:-2], None)
    for length in range(2, len(data) - 4, 2):
        try:
            assert parse(data[:length])[2]  # what is left may be a token as well
        except CommandError as error:
            assert error.code in (ErrorCode.Overflow, ErrorCode.InvalidResumeToken)


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ({}, 40647),
        ({"_data": 1}, 40647),
        ({"_data": "82", "_typeBits": 1}, 40648),
        ({"_data": ""}, 40649),
        ({"_data": "8"}, ErrorCode.FailedToParse),
        ({"_data": "8Z"}, ErrorCode.FailedToParse),
        ({"_data": "04"}, ErrorCode.InvalidResumeToken),
        ({"_data": "01"}, 50811),
        ({"_data": "82650000"}, ErrorCode.Overflow),
        ({"_data": HEAD.replace(" ", "") + "50" * 200}, ErrorCode.Overflow),
        ({"_data": HEAD.replace(" ", "") + "50" * 1_000_000}, ErrorCode.Overflow),
        ({"_data": HEAD.replace(" ", "") + "466100" * 1_000_000}, ErrorCode.Overflow),
        # Another version, type, index, invalidation and fragment.
        ({"_data": "82 65000001 00000002 2B02 29 29 6E 14 04"}, ErrorCode.InvalidResumeToken),
        ({"_data": "82 65000001 00000002 2B04 2B02 29 6E 14 04"}, ErrorCode.InvalidResumeToken),
        ({"_data": "82 65000001 00000002 2B04 29 28FD 6E 14 04"}, ErrorCode.InvalidResumeToken),
        ({"_data": "82 65000001 00000002 2B04 29 29 14 14 04"}, ErrorCode.InvalidResumeToken),
        ({"_data": "82 65000001 00000002 2B04 2C0100 29 6E 14 4600 28FD 04"}, ErrorCode.InvalidResumeToken),
    ],
)
def test_parse_refuses_damaged_tokens(token: dict[str, object], code: int) -> None:
    data = token.get("_data")
    assert code_of({**token, "_data": data.replace(" ", "")} if isinstance(data, str) else token) == code


def test_type_bits_are_not_needed() -> None:
    assert parse_token(bson.encode({"_data": high_water_mark(7, 8), "_typeBits": b"\0"})).at == Timestamp(7, 8)
