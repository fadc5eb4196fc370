"""Query settings are kept in memory.

MongoDB keeps them with the cluster's configuration, so that they survive a restart. Source: MongoDB manual,
"setQuerySettings". Index filters are in memory in MongoDB too.
"""

from pathlib import Path

from tests.golden.runner import Runner

QUERY = '{find: "c", filter: {a: 1}, $db: "test"}'


def test_settings_hold_until_a_restart(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    try:
        runner.run('{insert: "c", documents: [{_id: 1, a: 1}]}')
        assert "ok: 1.0" in runner.run(f'{{setQuerySettings: {QUERY}, settings: {{reject: true}}, $db: "admin"}}')
        assert "code: 411" in runner.run('{find: "c", filter: {a: 5}}')
        runner.run("restart")
        assert "ok: 1.0" in runner.run('{find: "c", filter: {a: 5}}')
    finally:
        runner.stop()
