"""$lookup: how much one call does."""

import bson

from mongottl.query.context import ParseContext
from mongottl.query.pipeline import DocumentSource, ListSource, RunContext, open_pipeline, parse_pipeline


class Counted(DocumentSource):
    """Documents in batches of ten, and how many batches were asked for."""

    def __init__(self, run: "Foreign", documents: list[bytes]) -> None:
        self._run = run
        self._source = ListSource(documents, 10)

    def next_batch(self) -> list[bytes] | None:
        self._run.asked += 1
        return self._source.next_batch()


class Foreign(RunContext):
    """A foreign collection of 5,000 documents."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self._documents = [bson.encode({"_id": n}) for n in range(5000)]

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        return Counted(self, self._documents)


def test_one_call_asks_a_foreign_collection_a_bounded_number_of_times() -> None:
    """Others run between two calls, however much there is to join to each document."""
    ctx = ParseContext(0, None, "test.outer")
    run = Foreign()
    stages = [bson.encode({"$lookup": {"from": "inner", "pipeline": [{"$count": "n"}], "as": "found"}})]
    outer = ListSource([bson.encode({"_id": n}) for n in range(4)])
    source = open_pipeline(parse_pipeline(list(stages), ctx), outer, run)
    joined: list[bytes] = []
    while True:
        before = run.asked
        batch = source.next_batch()
        assert run.asked - before <= 16
        if batch is None:
            break
        joined.extend(batch)
    assert [bson.decode(doc) for doc in joined] == [{"_id": n, "found": [{"n": 5000}]} for n in range(4)]
    assert run.asked == 4 * 501
