"""customAction step by step: what ends one that is under way."""

import shutil
from pathlib import Path

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import Document, Running
from tests.steps import run_to_end

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
    assert running.index_names("orders") == ["_id_", "a"]


@pytest.mark.parametrize("unique", [False, True])
def test_a_change_of_indexes_is_stored_whole_or_not_at_all(tmp_path: Path, unique: bool) -> None:
    """Whenever the server is killed. unique: whether an index is replaced by another one of its name."""

    def opened(folder: str) -> Running:
        return Running(ContractEngine(open_engine(f"sqlite:{tmp_path / folder}")), dialect="cosmos")

    def indexes_after_kill(number: int) -> list[Document]:
        shutil.copytree(tmp_path / "data", tmp_path / f"copy{number}")
        copy = opened(f"copy{number}")
        listed = copy.listed({"listIndexes": "orders"})
        copy.engine.close()
        return listed

    running = opened("data")
    first = {"key": {"a": 1}, "name": "a", "unique": unique}
    running.run({"customAction": "CreateCollection", "collection": "orders", "indexes": [ID, first]})
    running.insert(*[{"_id": number, "a": number, "b": number} for number in range(900)], into="orders")
    before = running.listed({"listIndexes": "orders"})
    wanted = ("a", "b") if unique else ("b",)
    steps = 0
    for _ in running.steps(action("UpdateCollection", *wanted)):
        steps += 1
        assert indexes_after_kill(steps) == before
    assert steps > 2
    after = indexes_after_kill(0)
    assert [index["name"] for index in after] == ["_id_", *(f"{field}_1" for field in wanted)]
    assert not any("unique" in index for index in after)
    running.engine.close()
