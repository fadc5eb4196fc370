"""Texts that would hold up other clients have bounds.

MongoDB gives each of them a thread of its own for as long as they take.
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]


def evaluated(database: Database[Documents], expression: Documents) -> Any:
    [found] = database.aggregate([{"$documents": [{}]}, {"$project": {"_id": 0, "v": expression}}])
    return found["v"]


def code_of(database: Database[Documents], expression: Documents) -> int | None:
    with pytest.raises(OperationFailure) as refused:
        evaluated(database, expression)
    return refused.value.code


def test_a_pattern_that_refers_to_itself_too_often_is_refused(database: Database[Documents]) -> None:
    for count, code in ((400, None), (401, 51111)):
        search = {"$regexMatch": {"input": "(a)", "regex": "(?:a|\\((?R)\\))" + "(?R)?" * (count - 1)}}
        if code is None:
            assert evaluated(database, search)
        else:
            assert code_of(database, search) == code


def test_long_texts_and_formats_of_dates_are_refused(database: Database[Documents]) -> None:
    for size, code in ((996, None), (997, 241)):
        parsed = {"$dateFromString": {"dateString": "2024" + "x" * size, "format": "%Y" + "x" * size}}
        if code is None:
            assert evaluated(database, parsed).year == 2024
        else:
            assert code_of(database, parsed) == code


def test_long_names_and_passwords_of_other_characters_are_refused(database: Database[Documents]) -> None:
    database.command("createUser", "a" * 5_000, pwd="b" * 5_000, roles=[])
    database.command("dropUser", "a" * 5_000)
    for name, password in (("ä" * 4_097, "b"), ("a", "ä" * 4_097)):
        with pytest.raises(OperationFailure) as refused:
            database.command("createUser", name, pwd=password, roles=[])
        assert refused.value.code == 2


def test_an_error_shows_the_beginning_of_a_value(database: Database[Documents]) -> None:
    with pytest.raises(OperationFailure) as refused:
        evaluated(database, {"$replaceOne": {"input": {"$literal": [1.5] * 100_000}, "find": "a", "replacement": "b"}})
    assert "[1.5, 1.5, " in str(refused.value.details) and len(str(refused.value.details)) < 12_000
