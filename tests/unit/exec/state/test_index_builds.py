"""currentOp of the dialect `cosmos`: the progress of index builds."""

import bson

from mongottl.catalog.index_spec import parse_index_spec
from mongottl.exec.write.index_build import BUILD_BATCH, build_indexes
from tests.running import Document, Running
from tests.steps import begin


def test_progress() -> None:
    """The shape of Microsoft's "Track index progress"; other operations do not show."""
    running = Running(dialect="cosmos")
    for batch in range(4):
        running.insert(*({"_id": batch * BUILD_BATCH + n} for n in range(BUILD_BATCH)))
    operations = running.service.operations
    operations.begin(running.op(), bson.encode({"find": "c", "$db": "test"}), "query", 0.0)
    op = running.op()
    operations.begin(op, bson.encode({"createIndexes": "c", "$db": "test"}), "command", 0.0)
    wanted = parse_index_spec(bson.encode({"key": {"a": 1}, "name": "a_1"}))
    build = begin(running.service, lambda: build_indexes(op, running.collection(), [wanted]))
    filters: list[Document] = [{}, {"command.createIndexes": "c", "command.$db": "test"}]
    shown: list[int] = []
    for _ in build:
        index = running.collection().index_named("a_1")
        assert index is not None
        percentage = 100 * index.built_through // (4 * BUILD_BATCH)
        shown.append(percentage)
        for filter in filters:
            (operation,) = running.run({"currentOp": 1, **filter}, "admin")["inprog"]
        described = operation["command"]
        assert (described["createIndexes"], described["$db"]) == ("c", "test")
        assert [index["name"] for index in described["indexes"]] == ["a_1"]
        assert operation["msg"] == f"Index Build (background) Index Build (background): {percentage} %"
        assert operation["progress"] == {"done": percentage, "total": 100}
    assert len(shown) >= 4
    assert shown == sorted(set(shown))
    assert running.run({"currentOp": 1}, "admin")["inprog"] == []
