"""Arguments that ended in an internal error (code 1) once, beside those in tests/unit/document/test_numbers.py."""

import pytest

from mongottl.errors import CommandError
from mongottl.query.icu import is_available
from tests.running import Document, Running

DIGITS = "9" * 5000


@pytest.mark.parametrize("method", ["locf", "linear"])
def test_fill_sorted_by_nothing(method: str) -> None:
    server = Running()
    server.insert({"_id": 1, "a": 1, "x": 5}, {"_id": 2, "a": 1})
    command = {
        "aggregate": "c",
        "pipeline": [{"$fill": {"sortBy": {}, "partitionBy": "$a", "output": {"x": {"method": method}}}}],
        "cursor": {},
    }
    if method == "linear":
        assert server.code(command) == 605001
    else:
        assert [document["x"] for document in server.listed(command)] == [5, 5]


@pytest.mark.skipif(not is_available(), reason="ICU is not installed")
def test_spaces_alone_variable_in_the_posix_locale() -> None:
    """Its rules sort the space as punctuation, so ICU does not accept it as the end of the group of spaces."""
    server = Running()
    server.insert({"_id": "a-b"}, {"_id": "ab"})
    collation = {"locale": "en_US_POSIX", "alternate": "shifted", "maxVariable": "space"}
    assert server.listed({"find": "c", "filter": {"_id": "ab"}, "collation": collation}) == [{"_id": "ab"}]


# Python converts no more than 4,300 digits.
@pytest.mark.parametrize(
    "update",
    [
        {"$set": {f"z.{DIGITS}": 1}},
        {"$set": {f"z.{DIGITS}.a": 1}},
        {"$rename": {f"z.{DIGITS}": "y"}},
        {"$push": {f"z.{DIGITS}": 1}},
    ],
    ids=["set", "below", "rename", "push"],
)
def test_array_index_of_many_digits_in_updates(update: Document) -> None:
    """A number beyond any array index is a field name, which an array cannot have."""
    server = Running()
    server.insert({"_id": 1, "z": [1]}, {"_id": 2})
    replies = [server.run({"update": "c", "updates": [{"q": {"_id": i}, "u": update}]}) for i in (1, 2)]
    codes = [error["code"] for reply in replies for error in reply.get("writeErrors", [])]
    assert all(code == 28 or code == 2 for code in codes)
    assert "writeErrors" not in replies[1]


def test_array_index_with_leading_zeros_in_updates() -> None:
    server = Running()
    server.insert({"_id": 1, "z": [1, 2]})
    server.run({"update": "c", "updates": [{"q": {}, "u": {"$set": {f"z.{'0' * 5000}1": 7}}}]})
    assert server.listed({"find": "c"}) == [{"_id": 1, "z": [1, 7]}]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 1e300])
def test_fail_points_of_odd_numbers(number: float) -> None:
    server = Running()
    data = {"failCommands": ["ping"], "errorCode": number, "blockTimeMS": number}
    for mode in ({"times": number}, {"skip": number}):
        command = {"configureFailPoint": "failCommand", "mode": mode, "data": data}
        try:
            server.run(command, "admin")
        except CommandError as error:
            assert error.code == 2
