"""Sorts that an index must serve, as in Cosmos DB, while the index is being built."""

import pytest

from mongottl.errors import CommandError
from mongottl.exec.write.index_build import BUILD_BATCH
from tests.running import Running
from tests.steps import run_to_end


def test_an_index_serves_once_it_is_built() -> None:
    running = Running(dialect="cosmos")
    running.insert(*({"_id": i, "a": -i} for i in range(3 * BUILD_BATCH)))
    build = running.steps({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]})
    next(build)
    sorted_find = {"find": "c", "sort": {"a": 1}, "limit": 1}
    with pytest.raises(CommandError, match="order-by item is excluded"):
        running.run(sorted_find)
    run_to_end(build)
    found = running.run(sorted_find)["cursor"]["firstBatch"]
    assert found == [{"_id": 3 * BUILD_BATCH - 1, "a": 1 - 3 * BUILD_BATCH}]
