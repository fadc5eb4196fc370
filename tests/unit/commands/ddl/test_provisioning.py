"""customAction step by step: what ends one that is under way."""

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.steps import run_to_end
from tests.running import Document, Running

ID = {"key": {"_id": 1}, "name": "_id_1"}


class Recording(Running):
    """Keeps the operation of the latest command, so that a test can kill it."""

    latest: OperationContext

    def op(self, database: str = "test") -> OperationContext:
        self.latest = super().op(database)
        return self.latest


def action(name: str, *fields: str) -> Document:
    """An action on the collection `orders`, with indexes on `_id` and on each of these fields."""
    indexes = [ID, *({"key": {field: 1}, "name": field} for field in fields)]
    return {"customAction": name, "collection": "orders", "indexes": indexes}


def test_a_change_of_indexes_that_is_killed_leaves_those_that_were_there() -> None:
    running = Recording(dialect="cosmos")
    running.run(action("CreateCollection", "a"))
    running.insert(*[{"_id": number, "a": number, "b": number} for number in range(900)], into="orders")
    changing = running.steps(action("UpdateCollection", "b"))
    operation = running.latest
    while "b_1" not in [index.name for index in running.collection("orders").indexes]:
        next(changing)
    operation.kill()
    with pytest.raises(CommandError) as caught:
        run_to_end(changing)
    assert caught.value.code == ErrorCode.Interrupted
    assert running.index_names("orders") == ["_id_", "a_1"]
