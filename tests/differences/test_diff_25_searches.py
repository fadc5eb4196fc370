"""Searches for regular expressions that may take long run in processes of their own.

MongoDB searches in the thread of the operation, and finds nothing if the library's machine code has too small a stack.
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]


def test_a_time_limit_ends_a_search(database: Database[Documents]) -> None:
    # It would take 20 minutes.
    database.c.insert_one({"t": "a" * 1_000_000})
    with pytest.raises(OperationFailure) as ended:
        list(database.c.find({"t": {"$regex": "(?=.*b)a"}}, max_time_ms=500))
    assert ended.value.code == 50
    counts = database.client.admin.command("serverStatus")["mongottl"]["searches"]
    assert (counts["used"], counts["waiting"]) == (0, 0)


def test_a_search_that_needs_more_than_the_stack_of_machine_code(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": 1, "t": "ab" * 5_000}, {"_id": 2, "t": "ab" * 5_000 + "c"}])
    assert [document["_id"] for document in database.c.find({"t": {"$regex": "^(a|b)*$"}})] == [1]


def test_a_search_that_needs_much_memory_finds_nothing(database: Database[Documents]) -> None:
    database.c.insert_one({"t": "ab" * 1_000_000})
    assert database.c.count_documents({"t": {"$regex": "^(a|b)*$"}}) == 0
