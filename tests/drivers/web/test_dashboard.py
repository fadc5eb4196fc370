"""docs/grafana.json and docs/prometheus-alerts.yml, whose queries a real Prometheus answers about a real server."""

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pymongo
import pytest
import yaml
from pymongo.errors import OperationFailure

import mongottl
from mongottl.server.web.metric_table import BY_NAME
from tests.children import ended_after
from tests.waiting import PATIENCE_S, until

Client = pymongo.MongoClient[dict[str, Any]]

DOCS = Path(__file__).parents[3] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
ALERTS = DOCS / "prometheus-alerts.yml"
# What Grafana puts in place of the variables. A rate needs two scrapes, which are a second apart here.
VALUES = {"$job": "mongottl", "$instance": ".*", "$__rate_interval": "10s"}

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> dict[str, str]:
    """The queries of the panels and of the alerts without their thresholds, by where they stand."""
    found: dict[str, str] = {}
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VALUES.items():
                query = query.replace(name, value)
            found[f"{panel['title']} {target['refId']}"] = query
    for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]:
        found[rule["alert"]] = re.sub(r" (>|==) [\d.]+$", "", rule["expr"])
    return found


def test_the_queries_name_metrics_that_there_are() -> None:
    variables = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"][1:]]
    for query in [*queries().values(), *variables]:
        for name in re.findall(r"\bmong[a-zA-Z_]+\b(?=[{\[, )]|$)", re.sub(r'"[^"]*"', '""', query)):
            assert re.sub(r"_(total|bucket|info)$", "", name) in BY_NAME, query


def test_the_panels_fill_the_width_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    assert all((x, y) in taken for x in range(24) for y in range(max(y for _, y in taken) + 1))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"].endswith(".") for panel in panels())


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(web_port=0, data_dir=tmp_path / "data", dialect="cosmos", frozen=False) as running:
        yield running


@pytest.fixture
def prometheus(observed: mongottl.RunningServer, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the server, and has loaded the alerts."""
    assert observed.web_url is not None
    scraped = {"job_name": "mongottl", "static_configs": [{"targets": [urlsplit(observed.web_url).netloc]}]}
    config = {"global": {"scrape_interval": "1s"}, "rule_files": [str(ALERTS)], "scrape_configs": [scraped]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    program = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'series'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with ended_after(program):
        assert program.stderr is not None
        for line in program.stderr:
            if found := re.search(r'"Listening on" address=(\S+)', line):
                yield found[1]
                return
        pytest.fail("Prometheus did not start")


def asked(address: str, path: str) -> Any:
    with closing(http.client.HTTPConnection(address, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
    assert answer["status"] == "success", f"{path}: {answer}"
    return answer["data"]


def use(client: Client, uri: str) -> None:
    """Does a little of all that the dashboard shows."""
    orders = client.shop.orders
    orders.insert_many([{"ttl": 1}, {"ttl": 1_000_000}])
    client.admin.command({"advanceClock": 2})
    client.admin.command("configureFailPoint", "cosmosThrottle", mode={"times": 1}, data={"retryAfterMs": 1})
    for refused in ({"find": "orders"}, {"insert": "orders", "documents": [{"_id": 1}]}, {"noSuchCommand": 1}):
        try:
            client.shop.command(refused)
        except OperationFailure:
            continue
    with pytest.raises(OperationFailure), Client(uri, username="nobody", password="x") as stranger:
        stranger.admin.command("ping")


@needs_prometheus
def test_prometheus_answers_every_query(observed: mongottl.RunningServer, prometheus: str) -> None:
    missing = set(queries())
    with Client(observed.uri) as client:
        client.shop.orders.create_index("_ts", expireAfterSeconds=-1)

        def all_are_answered() -> bool:
            use(client, observed.uri)
            for name in list(missing):
                values = asked(prometheus, f"/api/v1/query?query={quote(queries()[name])}")["result"]
                if any(value["value"][1] != "NaN" for value in values):
                    missing.remove(name)
            return not missing

        try:
            until(all_are_answered)
        except AssertionError:
            pytest.fail(f"no answer: {sorted(missing)}")
    rules = asked(prometheus, "/api/v1/rules")["groups"][0]["rules"]
    assert [rule["health"] for rule in rules if rule["health"] == "err"] == []
