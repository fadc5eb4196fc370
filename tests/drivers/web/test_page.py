"""The page over real sockets: its files, its events, what its buttons send, and who may see and press what."""

import http.client
import json
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.exec.state.observation import KEPT_FAILURES, KEPT_SLOW, Observation, SlowCommand
from mongottl.server.web import live, site
from mongottl.server.web.live import percentile_ms
from mongottl.storage.errors import EngineUnavailable
from tests import postgres
from tests.drivers.web.requests import Reply, ask, basic, connect
from tests.drivers.wire_client import ask_each_node
from tests.on_nodes import own_page, wanted, whole_budget
from tests.on_store import PREFIX, with_schema
from tests.waiting import until

pytestmark = own_page

Client = pymongo.MongoClient[dict[str, Any]]
Event = dict[str, Any]


class Events:
    """The events of one connection."""

    def __init__(self, connection: http.client.HTTPConnection, headers: dict[str, str]) -> None:
        connection.request("GET", "/live", headers=headers)
        self.response = connection.getresponse()
        assert self.response.status == 200
        assert self.response.getheader("content-type") == "text/event-stream"

    def next(self, name: str) -> Event:
        """The data of the next event of this name."""
        found = ""
        while True:
            line = self.response.readline().decode()
            assert line, "the stream has ended"
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                found = value
            elif field == "data" and found == name:
                data: Event = json.loads(value)
                return data


@contextmanager
def events(server: mongottl.RunningServer, headers: dict[str, str] | None = None) -> Iterator[Events]:
    with closing(connect(server)) as connection:
        yield Events(connection, headers or {})


def token_of(server: mongottl.RunningServer, headers: dict[str, str] | None = None) -> str:
    found = re.search(r'<meta name="mongottl-token" content="([0-9a-f]{64})">', ask(server, "/", headers).body)
    assert found is not None
    return found[1]


def press(
    server: mongottl.RunningServer, body: object, token: str | None = None, headers: dict[str, str] | None = None
) -> Reply:
    """The reply to what a button sends."""
    given = {"X-Mongottl-Token": token_of(server, headers) if token is None else token, **(headers or {})}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(server, "/clock", given, "POST", data)


def counts(row: Event) -> list[int]:
    """What has expired, what expires in the next minute, hour and day, and later."""
    return [row["expired"], sum(row["minute"]), sum(row["hour"]), sum(row["day"]), row["later"]]


# The files


def test_the_page_comes_with_its_files_and_nothing_from_elsewhere(server: mongottl.RunningServer) -> None:
    page = ask(server, "/")
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    named = set(re.findall(r'(?:src|href)="([^"]+)"', page.body))
    types = {"/icon.svg": "image/svg+xml"}
    types |= {f"/{name}.css": "text/css" for name in ("page", "documents")}
    types |= {f"/{name}.js": "text/javascript" for name in ("page", "documents")}
    assert named == types.keys() | {"/metrics", "/healthz", "/readyz"}
    for path, content_type in types.items():
        reply = ask(server, path)
        assert reply.status == 200 and reply.headers["content-type"].startswith(content_type) and reply.body


def test_nothing_in_the_page_needs_a_weaker_policy(server: mongottl.RunningServer) -> None:
    page = ask(server, "/").body
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"\s(?:style|on\w+)=", page) == []
    for path in ("/page.js", "/documents.js"):
        script = ask(server, path).body
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script) == []


def test_every_start_has_its_own_token(server: mongottl.RunningServer) -> None:
    with mongottl.start_server(web_port=0) as other:
        assert token_of(server) == token_of(server) != token_of(other)


# What is shown


def test_schedule_events_count_documents_by_time_to_live(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
    lives = [4, 5, 6, 61, 3599, 3601, 86_400, 86_401]
    client.shop.carts.insert_many([{"ttl": seconds} for seconds in lives] + [{}, {"ttl": -1}])
    client.shop.coupons.create_index("until", expireAfterSeconds=60)
    client.shop.coupons.insert_one({"until": server.clock.now() + timedelta(days=2)})
    client.shop.products.insert_one({})
    with events(server) as live:
        schedule = live.next("schedule")
    carts, coupons, products = schedule["collections"]
    assert (carts["database"], carts["collection"], carts["documents"]) == ("shop", "carts", 10)
    assert counts(carts) == [0, 3, 3, 2, 1]
    assert carts["minute"][:3] == [2, 1, 0]
    assert carts["hour"][0] == 1 and carts["hour"][-1] == 2
    assert (carts["pending"], carts["purged"]) == (9, 0)
    assert carts["rules"] == [{"kind": "default", "seconds": 3600}]
    assert carts["nextDueMs"] == (int(server.clock.now().timestamp()) + 4) * 1000
    assert counts(coupons) == [0, 0, 0, 0, 1]
    assert coupons["rules"] == [{"kind": "date", "field": "until", "seconds": 60}]
    assert products["rules"] == [] and "pending" not in products
    assert schedule["omitted"] == 0


def test_schedule_counts_expired_and_purged_documents(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    client.shop.carts.insert_many([{}, {}, {"ttl": 1000}])
    ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": False})
    server.clock.advance(100)
    with events(server) as live:
        (carts,) = live.next("schedule")["collections"]
        assert counts(carts) == [2, 0, 1, 0, 0] and carts["purged"] == 0
        now_ms = int(server.clock.now().timestamp()) * 1000
        assert (carts["oldestDueMs"], carts["nextDueMs"]) == (now_ms - 40_000, now_ms + 900_000)
        ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": True})
        server.clock.advance(0)
        while carts["expired"]:
            (carts,) = live.next("schedule")["collections"]
        assert carts["documents"] == 1 and carts["oldestDueMs"] is None
        # Any of several nodes deletes what has expired, and shows what it has deleted itself.
        assert carts["purged"] == 2 or wanted() > 1


def test_of_many_collections_those_are_shown_that_expire_next(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(live, "MAX_COLLECTIONS", 3)
    for number in range(6):
        client.shop[f"c{number}"].create_index("_ts", expireAfterSeconds=100 - number)
        client.shop[f"c{number}"].insert_one({})
    client.shop.other.insert_one({})
    with events(server) as stream:
        schedule = stream.next("schedule")
    assert [row["collection"] for row in schedule["collections"]] == ["c5", "c4", "c3"]
    assert (schedule["omitted"], schedule["omittedExpiring"]) == (4, 3)


def test_schedule_lists_overdue_collections_first_and_then_the_next_to_expire(
    server: mongottl.RunningServer, client: Client
) -> None:
    for name in ("empty", "later", "next"):
        client.shop[name].create_index("_ts", expireAfterSeconds=3600)
    client.shop.later.insert_many([{"ttl": 500}, {"ttl": -1}])
    client.shop["next"].insert_one({"ttl": 400})
    client.shop.without.insert_one({})
    ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": False})
    server.clock.advance(200)
    client.shop["next"].insert_one({})
    with events(server) as stream:
        schedule = stream.next("schedule")
        assert [row["collection"] for row in schedule["collections"]] == ["next", "later", "empty", "without"]
        server.clock.advance(100)  # to 100 s before the first one
        client.shop.empty.insert_one({"ttl": 1})
        server.clock.advance(10)
        while schedule["collections"][0]["collection"] != "empty":
            schedule = stream.next("schedule")
    assert [row["collection"] for row in schedule["collections"]] == ["empty", "next", "later", "without"]
    assert counts(schedule["collections"][0]) == [1, 0, 0, 0, 0]


def test_status_events_count_cursors_streams_and_sessions(server: mongottl.RunningServer, client: Client) -> None:
    with events(server) as live:
        for number in range(10):
            client.shop.c.insert_one({"_id": number})
        with client.shop.c.find(batch_size=2) as cursor, client.shop.c.watch():
            next(cursor)
            status = live.next("status")
            while not status["perSecond"] or not status["latencies"] or status["cursors"] != 2:
                status = live.next("status")
    assert status["changeStreams"] == 1 and status["connections"] >= 1 and status["sessions"] >= 1
    rows = {row["command"]: row for row in status["latencies"]}
    assert rows["insert"]["count"] == 10 and 0 < rows["insert"]["p50"] <= rows["insert"]["p99"]
    assert status["latenciesS"] > 0 and sum(status["perSecond"].values()) >= 0
    assert status["memoryBytes"] > 1 << 20 and status["charges"] is None and status["frozen"] is True
    json.dumps(status, allow_nan=False)


def test_the_server_keeps_what_was_before_anybody_looked(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.c.create_index("_ts", expireAfterSeconds=60)
    client.shop.c.insert_many([{} for _ in range(50)])
    server.clock.advance(60)
    until(lambda: client.admin.command("serverStatus")["uptime"] >= 4, "the server's time does not go on")
    with events(server) as live:
        history = live.next("history")
        assert len(history["operations"]) == len(history["deleted"]) >= 3
        assert sum(history["deleted"]) == 50 and sum(history["operations"]) >= 51
        status = live.next("status")
        assert {"insert", "createIndexes"} <= {row["command"] for row in status["latencies"]}
        # From then on each status has the next point.
        client.shop.c.insert_many([{} for _ in range(70)])
        points = [live.next("status")["point"]]
        while sum(point["operations"] * point["seconds"] for point in points) < 69.5:
            points.append(live.next("status")["point"])
        numbers = [point["number"] for point in points]
        assert numbers == list(range(numbers[0], numbers[0] + len(points)))


def test_errors_that_were_most_frequent(server: mongottl.RunningServer, client: Client) -> None:
    refused: list[Event] = [{"nonsense": 1}, {"find": "c", "filter": {"$nonsense": 1}}, {"create": "c", "capped": True}]
    for times, command in zip((3, 2, 1), refused, strict=True):
        for _ in range(times):
            with pytest.raises(pymongo.errors.OperationFailure):
                client.shop.command(command)
    with events(server) as live:
        errors = live.next("status")["errors"]
    assert [(error["name"], error["count"]) for error in errors] == [
        ("CommandNotFound", 3),
        ("BadValue", 2),
        ("InvalidOptions", 1),
    ]


def test_failures_by_collection_and_text(server: mongottl.RunningServer, client: Client) -> None:
    for name, number in (("carts", 2), ("orders", 1)):
        for value in range(number):
            with pytest.raises(pymongo.errors.OperationFailure):
                client.shop[name].find_one({"a": {"$mod": [value]}})
    client.shop.carts.insert_many([{"_id": 1}, {"_id": "two"}])
    with pytest.raises(pymongo.errors.BulkWriteError):
        client.shop.carts.insert_many([{"_id": 1}, {"_id": "two"}], ordered=False)
    with pytest.raises(pymongo.errors.OperationFailure):
        client.admin.command("nonsense")
    with events(server) as live:
        failures = live.next("status")["failures"]
    shown = [(one["command"], one["namespace"], one["error"], one["times"]) for one in failures]
    assert shown == [
        ("<UNKNOWN>", "", "CommandNotFound", 1),
        ("insert", "shop.carts", "DuplicateKey", 2),
        ("find", "shop.orders", "BadValue", 1),
        ("find", "shop.carts", "BadValue", 2),
    ]
    assert failures[1]["text"].endswith('dup key: { _id: "two" }')


def test_no_more_kinds_of_failures_are_kept_than_are_needed() -> None:
    observation = Observation()
    for number in range(3 * KEPT_FAILURES):
        observation.record_error("find", f"shop.c{number}", 2, "x" * 10_000)
    kept = observation.failures()
    assert len(kept) == KEPT_FAILURES and kept[0].namespace == f"shop.c{3 * KEPT_FAILURES - 1}"
    assert all(len(failure.text) == 1000 for failure in kept)


def test_failures_that_differ_in_an_activity_id_are_counted() -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.c.insert_one({})
        for _ in range(2):
            with pytest.raises(pymongo.errors.OperationFailure):
                list(client.shop.c.find().sort("at"))
        with events(server) as live:
            (failure,) = live.next("status")["failures"]
    assert (failure["times"], failure["error"]) == (2, "BadValue")
    assert "The index path corresponding to the specified order-by item is excluded" in failure["text"]


def test_refusals_by_collection_and_advice() -> None:
    """Cosmos DB's text names no index; what is to be done differs all the same, and so do the rows."""
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        for name in ("carts", "orders"):
            client.shop[name].insert_one({})
            for field, number in (("at", 1), ("to", 2)):
                for _ in range(number):
                    with pytest.raises(pymongo.errors.OperationFailure):
                        list(client.shop[name].find().sort(field))
        with pytest.raises(pymongo.errors.BulkWriteError):
            client.shop.carts.insert_many([{"_id": "x" * 1024}, {"_id": "y" * 1024}], ordered=False)
        with pytest.raises(pymongo.errors.OperationFailure):
            client.shop.command("find", "carts", collation={"locale": "de"})
        with pytest.raises(pymongo.errors.OperationFailure):
            client.admin.command("nonsense")
        with events(server) as live:
            failures = live.next("status")["failures"]
    advice = "No index serves this sort: create the index {%s: 1}, or allow it with --cosmos-allow sort-without-index."
    assert [(one["namespace"], one["times"], one["advice"]) for one in failures] == [
        ("", 1, ""),
        ("shop.carts", 1, "Cosmos DB does not have find.collation: allow it with --cosmos-allow missing-features."),
        ("shop.carts", 2, "The _id has more than 1023 bytes: allow it with --cosmos-allow size-limits."),
        ("shop.orders", 2, advice % "to"),
        ("shop.orders", 1, advice % "at"),
        ("shop.carts", 2, advice % "to"),
        ("shop.carts", 1, advice % "at"),
    ]


def test_slow_commands(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.command("profile", 0, slowms=0)
    list(client.shop.c.find({"x": 5}, comment="seen"))
    with pytest.raises(pymongo.errors.OperationFailure):
        list(client.shop.c.find({"$no": 5}))
    client.shop.command("profile", 0, slowms=1000)
    with events(server) as live:
        status = live.next("status")
    assert status["slowMs"] == 1000
    failed, found = [slow for slow in status["slow"] if slow["namespace"] == "shop.c"][:2]
    assert failed["error"] == "BadValue"
    assert (found["operation"], found["plan"], found["error"]) == ("query", "EOF", "")
    assert "x: 5" in found["command"] and "lsid" not in found["command"]


def test_slow_commands_that_differ_in_values_alone_are_counted(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.command("profile", 0, slowms=0)
    for value in (1, -2.5, "x", 'a "quoted" one', "long" * 1000):
        list(client.shop.c.find({"x": value, "y": {"$in": [value, 7]}}))
    list(client.shop.c.find({"x": 1, "z": {"$in": [1, 7]}}))
    list(client.shop.c.find({"x": 2, "y": {"$in": [3, 4, 5, 6]}}))
    client.shop.command("profile", 0, slowms=1000)
    with events(server) as live:
        found = [slow for slow in live.next("status")["slow"] if slow["namespace"] == "shop.c"]
    assert [(slow["count"], slow["command"].count("y:")) for slow in found] == [(6, 1), (1, 0)]
    assert "x: 2," in found[0]["command"] and found[0]["longest"] >= found[0]["micros"]


def test_no_more_kinds_of_slow_commands_are_kept_than_are_needed() -> None:
    observation = Observation()
    for number in range(3 * KEPT_SLOW):
        kind = f"{{{number}:?}}"
        observation.record_slow(SlowCommand(number, "query", "shop.c", number, "", "", "", ""), kind)
    kept = observation.slow_kinds()
    assert [kind.last.at_ms for kind in kept] == list(range(3 * KEPT_SLOW - 1, 2 * KEPT_SLOW - 1, -1))


def test_the_beginning_of_a_long_slow_command_is_shown(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.command("profile", 0, slowms=0)
    list(client.shop.c.find({"x": {"$in": list(range(10_000))}}))
    client.shop.command("profile", 0, slowms=1000)
    with events(server) as live:
        (found,) = [slow for slow in live.next("status")["slow"] if slow["namespace"] == "shop.c"]
    assert found["command"].startswith('{ find: "c", filter: { x: { $in: [ 0, 1, 2,')


def test_request_units_of_the_dialect_cosmos() -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.c.insert_one({"_id": 1})
        with server.throttle("find", times=1), pytest.raises(pymongo.errors.OperationFailure):
            client.shop.c.find_one()
        with events(server) as live:
            assert live.next("server")["dialect"] == "cosmos"
            charges = live.next("status")["charges"]
    rows = {(row["command"], row["namespace"]): row for row in charges["rows"]}
    assert rows["insert", "shop.c"]["charge"] > 0
    assert rows["find", "shop.c"]["throttled"] == 1 == charges["throttled"]
    assert charges["total"] == pytest.approx(sum(row["charge"] for row in charges["rows"]))


def budgets_so_far(live: Events) -> Iterator[dict[str, Event]]:
    """Of each budget how much was spent and throttled so far, and what is provisioned; again with each point."""
    history = live.next("history")
    number = history["number"]
    found: dict[str, Event] = {}
    for budget in history["budgets"]:
        found[budget["holder"]] = {
            "units": sum(budget["units"]),
            "throttled": sum(budget["throttled"]),
            "provisioned": budget["provisioned"][-1],
        }
    while True:
        yield found
        point = live.next("status")["point"]
        if point is not None and point["number"] > number:
            number = point["number"]
            for budget in point["budgets"]:
                before = found.setdefault(budget["holder"], {"units": 0, "throttled": 0})
                before["units"] += budget["units"] * point["seconds"]
                before["throttled"] += budget["throttled"] * point["seconds"]
                before["provisioned"] = budget["provisioned"]


@whole_budget
def test_page_shows_spent_budgets_and_when_they_were_exhausted() -> None:
    with (
        mongottl.start_server(web_port=0, dialect="cosmos", cosmos_throughput="enforced") as server,
        Client(server.uri) as client,
    ):
        client.shop.command({"customAction": "CreateCollection", "collection": "own", "offerThroughput": 500})
        client.forum.command({"customAction": "CreateDatabase", "offerThroughput": 600})
        client.shop.own.insert_one({"text": "x"})
        for name in ("posts", "threads"):
            client.forum[name].insert_one({"text": "x"})
        # The clock stands still, and its second has one budget.
        with pytest.raises(pymongo.errors.OperationFailure, match="16500"):
            for _ in range(1000):
                client.shop.plain.insert_one({"text": "x"})
        rows = client.admin.command("getRequestUnits")["operations"]
        charges = {row["ns"]: row["charge"] for row in rows}
        with events(server) as live:
            assert live.next("server")["dialect"] == "cosmos"
            so_far = budgets_so_far(live)
            found = next(so_far)
            while not found.get("shop.plain", {}).get("throttled"):
                found = next(so_far)
            assert {name: budget["provisioned"] for name, budget in found.items()} == {
                "shop.own": 500,
                "forum": 600,
                "shop.plain": 400,
            }
            assert 400 <= found["shop.plain"]["units"] < 410
            assert found["shop.plain"]["units"] == pytest.approx(charges["shop.plain"], abs=0.1)
            assert found["forum"]["units"] == pytest.approx(charges["forum.posts"] + charges["forum.threads"], abs=0.1)
            assert (found["shop.plain"]["throttled"], found["shop.own"]["throttled"]) == (1, 0)
            client.shop.command({"customAction": "UpdateCollection", "collection": "own", "offerThroughput": 700})
            while found["shop.own"]["provisioned"] != 700:
                found = next(so_far)


def test_page_shows_spending_of_budgets_that_are_not_enforced() -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.c.insert_many([{"text": "x"} for _ in range(200)])
        with server.throttle("find", times=1), pytest.raises(pymongo.errors.OperationFailure):
            client.shop.c.find_one()
        charge = client.admin.command("getRequestUnits")["total"]
        with events(server) as live:
            so_far = budgets_so_far(live)
            found = next(so_far)
            while not found.get("shop.c", {}).get("throttled"):
                found = next(so_far)
    assert charge > 1000 and found["shop.c"]["units"] == pytest.approx(charge, abs=0.1)
    assert (found["shop.c"]["throttled"], found["shop.c"]["provisioned"]) == (1, 400)


def test_nothing_is_counted_while_nobody_looks(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.c.create_index("_ts", expireAfterSeconds=60)
    with events(server) as live:
        live.next("schedule")
    client.shop.c.insert_one({})
    with events(server) as live:
        (row,) = live.next("schedule")["collections"]
        while row["documents"] == 0:  # the last schedule comes first
            (row,) = live.next("schedule")["collections"]


def test_only_so_many_may_look(monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer) -> None:
    monkeypatch.setattr(site, "MAX_VIEWERS", 1)
    with events(server) as live:
        live.next("status")
        assert ask(server, "/live").status == 503


def test_only_so_many_may_look_who_begin_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer
) -> None:
    monkeypatch.setattr(site, "MAX_VIEWERS", 2)
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect(server))) for _ in range(20)]
        for connection in connections:
            connection.connect()
        for connection in connections:
            connection.request("GET", "/live")
        responses = [connection.getresponse() for connection in connections]
        # Those whose status was sent too early end at once.
        looking = [response for response in responses if response.status == 200 and response.readline()]
        assert len(looking) == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EngineUnavailable("the storage engine failed: disk I/O error"), "the storage engine failed: disk I/O error"),
        (RuntimeError("a defect"), "an internal error, of which the server's log says more"),
    ],
)
@pytest.mark.parametrize(("function", "event"), [("read_collection", "schedule"), ("oplog_window_s", "status")])
def test_a_page_that_cannot_be_made_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    server: mongottl.RunningServer,
    client: Client,
    function: str,
    event: str,
    error: Exception,
    told: str,
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    client.shop.c.insert_one({})
    with events(server) as live_events:
        live_events.next(event)
        with monkeypatch.context() as broken:
            broken.setattr(live, function, fail)
            for _ in range(2):
                while "error" not in (data := live_events.next(event)):
                    pass
                assert data == {"error": told}
        while "error" in live_events.next(event):
            pass
    lines = client.admin.command("getLog", "global")["log"]
    assert sum("The page could not be made" in line for line in lines) == 1  # not every second
    assert client.admin.command("ping")["ok"] == 1


def test_metrics_that_cannot_be_read_are_refused(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    def fail(*arguments: object) -> None:
        raise EngineUnavailable("the storage engine failed: disk I/O error")

    client.shop.c.insert_one({})
    assert ask(server, "/metrics").status == 200
    monkeypatch.setattr("mongottl.server.web.exposition.read_collection", fail)
    reply = ask(server, "/metrics")
    assert (reply.status, reply.body) == (503, "the storage engine failed: disk I/O error\n")


def test_the_stream_ends_when_the_server_stops() -> None:
    with mongottl.start_server(web_port=0) as server:
        connection = connect(server)
        stream = Events(connection, {})
        stream.next("status")
    with closing(connection), pytest.raises((http.client.IncompleteRead, ConnectionError)):
        stream.response.read()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({64: 50, 128: 45, 2048: 4, 3072: 1}, (0.128, 0.256, 3.072)),
        ({0: 100}, (0.001, 0.0019, 0.00198)),
        ({1024: 0, 2048: 100}, (2.56, 3.0208, 3.06176)),
        ({4096: 100}, (5.12, 6.0416, 6.12352)),
        ({6144: 1}, (7.168, 8.0896, 8.17152)),
    ],
)
def test_percentiles(counts: dict[int, int], expected: tuple[float, ...]) -> None:
    assert [percentile_ms(counts, percent) for percent in (50, 95, 99)] == pytest.approx(expected)


# The clock's buttons


def test_moving_the_clock(server: mongottl.RunningServer, client: Client) -> None:
    for name, number in (("few", 1), ("many", 2)):
        client.shop[name].create_index("_ts", expireAfterSeconds=60)
        client.shop[name].insert_many([{} for _ in range(number)])
    before = server.clock.now()
    reply = press(server, {"action": "advance", "seconds": 59})
    assert reply.status == 200 and json.loads(reply.body)["deleted"] == 0
    moved = json.loads(press(server, {"action": "advance", "seconds": 1.5}).body)
    assert (moved["deleted"], moved["deletedIn"]) == (3, [["shop.many", 2], ["shop.few", 1]])
    assert server.clock.now() - before == timedelta(seconds=60.5)
    assert moved["nowMs"] == round(server.clock.now().timestamp() * 1000)
    assert json.loads(press(server, {"action": "advance", "seconds": -60}).body)["deleted"] == 0


def test_a_move_counts_what_somebody_else_s_move_deletes_meanwhile(
    server: mongottl.RunningServer, client: Client
) -> None:
    """The sum is that of the collections, whoever has moved the clock."""
    client.shop.c.create_index("_ts", expireAfterSeconds=60)
    client.shop.c.insert_many([{"ttl": second} for second in range(1, 401)])
    with ThreadPoolExecutor(4) as pool:
        moves = [pool.submit(press, server, {"action": "advance", "seconds": 50}) for _ in range(8)]
    for move in moves:
        moved = json.loads(move.result().body)
        assert moved["deleted"] == sum(number for _, number in moved["deletedIn"])
    assert client.shop.c.estimated_document_count() == 0


def test_stopping_and_restoring_the_clock(server: mongottl.RunningServer) -> None:
    def status() -> Event:
        with events(server) as live:
            return live.next("status")

    assert press(server, {"action": "run"}).status == 200
    assert status()["frozen"] is False
    assert json.loads(press(server, {"action": "freeze"}).body)["deleted"] is None
    press(server, {"action": "advance", "seconds": 86_400})
    assert status()["frozen"] is True and status()["offsetMs"] > 86_000_000
    press(server, {"action": "restore"})
    assert status()["frozen"] is True and abs(status()["offsetMs"]) < 10_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"5",
        {},
        {"action": "explode"},
        {"action": "advance"},
        {"action": "advance", "seconds": "60"},
        {"action": "advance", "seconds": True},
        {"action": "advance", "seconds": 1e300},
        {"action": "advance", "seconds": 10**400},
        b"[" * 2000 + b"]" * 2000,
        b'{"a":' * 600 + b"1" + b"}" * 600,
    ],
)
def test_invalid_page_actions_are_refused(server: mongottl.RunningServer, body: object) -> None:
    before = server.clock.now()
    assert press(server, body).status == 400
    assert press(server, b'{"action": "advance", "seconds": NaN}').status == 400
    assert server.clock.now() == before


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_actions_need_the_token_of_the_page(server: mongottl.RunningServer, token: str) -> None:
    before = server.clock.now()
    assert press(server, {"action": "advance", "seconds": 5}, token).status == 403
    assert server.clock.now() == before


def test_a_page_of_another_origin_cannot_act_even_with_the_token(server: mongottl.RunningServer) -> None:
    before = server.clock.now()
    token = token_of(server)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        reply = ask(
            server,
            "/clock",
            {"X-Mongottl-Token": token, **headers},
            "POST",
            json.dumps({"action": "advance", "seconds": 5}).encode(),
        )
        assert reply.status in (403, 421)
    assert server.clock.now() == before


def test_without_test_commands_nothing_can_be_moved() -> None:
    with mongottl.start_server(web_port=0, enable_test_commands=False) as server:
        with events(server) as live:
            assert live.next("server")["movable"] is False
        reply = press(server, {"action": "advance", "seconds": 5})
        assert reply.status == 400 and "advanceClock" in reply.body


# Users


@pytest.fixture(scope="module")
def guarded() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(web_port=0, auth=True, user="root", password="secret") as server:
        with Client(server.uri) as client:
            client.admin.command("createUser", "ann", pwd="secret", roles=["clusterMonitor"])
            client.admin.command("createUser", "hal", pwd="secret", roles=["clusterMonitor", "hostManager"])
            client.admin.command("createUser", "bob", pwd="secret", roles=["readWriteAnyDatabase"])
        yield server


@pytest.mark.parametrize(("path", "others"), [("/", 200), ("/metrics", 403)])
def test_page_needs_a_login_and_metrics_a_role(guarded: mongottl.RunningServer, path: str, others: int) -> None:
    assert ask(guarded, path).status == 401
    assert ask(guarded, path, basic("bob", "secret")).status == others
    assert ask(guarded, path, basic("ann", "secret")).status == 200


def test_live_sends_only_the_time_to_users_without_the_role(guarded: mongottl.RunningServer) -> None:
    assert ask(guarded, "/live").status == 401
    with events(guarded, basic("bob", "secret")) as live:
        facts = live.next("server")
        assert (facts["sees"], facts["movable"], facts["user"]) == (False, False, "bob")
        assert live.next("status").keys() == {"nowMs", "frozen", "offsetMs"}
        assert live.next("status")["nowMs"] == round(guarded.clock.now().timestamp() * 1000)
    assert press(guarded, {"action": "advance", "seconds": 5}, headers=basic("bob", "secret")).status == 403


@pytest.mark.parametrize(("name", "may_move"), [("root", True), ("hal", True), ("ann", False)])
def test_moving_the_clock_needs_a_role(guarded: mongottl.RunningServer, name: str, may_move: bool) -> None:
    with events(guarded, basic(name, "secret")) as live:
        facts = live.next("server")
    assert facts["movable"] is may_move and facts["user"] == name
    reply = press(guarded, {"action": "advance", "seconds": 5}, headers=basic(name, "secret"))
    assert reply.status == (200 if may_move else 403)
    assert press(guarded, {"action": "freeze"}, token_of(guarded, basic(name, "secret")), {}).status == 401


def test_an_old_password_ends_at_once(guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri) as client:
        client.admin.command("createUser", "pat", pwd="old", roles=["clusterMonitor"])
        assert ask(guarded, "/", basic("pat", "old")).status == 200
        client.admin.command("updateUser", "pat", pwd="new")
        assert ask(guarded, "/", basic("pat", "old")).status == 401
        assert ask(guarded, "/", basic("pat", "new")).status == 200


def test_a_stream_ends_when_its_user_may_not_look_any_more(guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri) as client:
        client.admin.command("createUser", "eve", pwd="secret", roles=["clusterMonitor"])
        with events(guarded, basic("eve", "secret")) as live:
            assert "perSecond" in live.next("status")
            client.admin.command("revokeRolesFromUser", "eve", roles=["clusterMonitor"])
            assert live.response.read() is not None  # to its end
            assert live.response.isclosed()
        with events(guarded, basic("eve", "secret")) as live:
            assert "perSecond" not in live.next("status")
            client.admin.command("dropUser", "eve")
            assert live.response.read() is not None
            assert live.response.isclosed()


def test_events_have_the_nodes_of_a_store() -> None:
    if postgres.missing():
        pytest.skip(postgres.missing())
    store = with_schema(PREFIX + uuid.uuid4().hex[:12])
    with mongottl.start_server(store=store, web_port=0) as server, events(server) as seen:
        number = seen.next("server")["node"]
        while not (nodes := seen.next("status")["nodes"]) or not nodes[0]["address"].endswith(f":{server.port}"):
            pass
        assert [(node["node"], node["isOwn"], node["state"]) for node in nodes] == [(number, True, "current")]
