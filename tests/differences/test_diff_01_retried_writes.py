"""Retried writes are remembered in memory.

MongoDB keeps the outcome of each session's last retryable writes in `config.transactions`, which survives a restart.
Source: MongoDB manual, "Retryable Writes". Cosmos DB has them only where `EnableMongoRetryableWrites` is on.
"""

from pathlib import Path

from tests.golden.runner import Runner

UPDATE = """{update: "c", updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}],
    lsid: {id: UUID("00112233-4455-6677-8899-aabbccddeeff")}, txnNumber: NumberLong(1)}"""


def test_a_retry_is_recognised_until_a_restart(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    try:
        runner.run('{insert: "c", documents: [{_id: 1, n: 0}]}')
        for _ in range(2):
            assert runner.run(UPDATE) == "{n: 1, nModified: 1, ok: 1.0}"
            assert "{_id: 1, n: 1}" in runner.run('{find: "c"}')
        runner.run("restart")
        assert runner.run(UPDATE) == "{n: 1, nModified: 1, ok: 1.0}"
        assert "{_id: 1, n: 2}" in runner.run('{find: "c"}')
    finally:
        runner.stop()
