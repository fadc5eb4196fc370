"""Query settings and cluster parameters are kept in memory.

MongoDB keeps them with the cluster's configuration, so that they survive a restart. Source: MongoDB manual,
"setQuerySettings" and "setClusterParameter". Index filters are in memory in MongoDB too.
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


def test_cluster_parameters_hold_until_a_restart(tmp_path: Path) -> None:
    asked = '{getClusterParameter: "changeStreams", $db: "admin"}'
    runner = Runner(tmp_path)
    try:
        runner.run('{setClusterParameter: {changeStreams: {expireAfterSeconds: 77}}, $db: "admin"}')
        assert "77" in runner.run(asked)
        runner.run("restart")
        assert "3600" in runner.run(asked)
    finally:
        runner.stop()
