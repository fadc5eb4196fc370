"""The values that an expression holds at once have a bound of 256 MB.

MongoDB holds a field's value once, however often an expression names it, and has limits of 100 MB for some operators.
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]
TEXT = "x" * 15_000_000


def size_of(database: Database[Documents], expression: Documents) -> int:
    [found] = database.c.aggregate([{"$project": {"_id": 0, "v": expression}}])
    size: int = found["v"]
    return size


def test_values_that_are_held_together_are_counted(database: Database[Documents]) -> None:
    database.c.insert_one({"t": TEXT})
    assert size_of(database, {"$size": [["$t"] * 17]}) == 17
    with pytest.raises(OperationFailure) as refused:
        size_of(database, {"$size": [["$t"] * 18]})
    assert refused.value.code == 146


def test_values_that_are_let_go_are_not_counted(database: Database[Documents]) -> None:
    database.c.insert_one({"t": TEXT})
    assert size_of(database, {"$add": [{"$strLenBytes": "$t"}] * 40}) == 40 * len(TEXT)
    lengths = {"$reduce": {"input": {"$range": [0, 40]}, "initialValue": 0, "in": {"$strLenBytes": "$t"}}}
    assert size_of(database, lengths) == len(TEXT)
