"""/metrics as Prometheus reads it: by its own parsers, in both formats, against what was done to the server."""

import re
import threading
import uuid
from pathlib import Path
from typing import Any

import pymongo
import pytest
from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

import mongottl
from mongottl.server.web import exposition, metric_table
from tests import postgres
from tests.drivers.web.requests import ask, basic
from tests.drivers.wire_client import ask_each_node
from tests.on_nodes import own_page, wanted
from tests.on_store import PREFIX, needs_states, takes_several_servers, with_schema

pytestmark = own_page

Client = pymongo.MongoClient[dict[str, Any]]

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}


class Scrape:
    """The samples of one scrape."""

    def __init__(self, server: mongottl.RunningServer, headers: dict[str, str] | None = None) -> None:
        reply = ask(server, "/metrics", headers)
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.families: dict[str, Metric] = {m.name: m for m in parser.text_string_to_metric_families(reply.body)}
        self.values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, metric: str, /, **labels: str) -> float:
        return self.values[metric, frozenset(labels.items())]

    def has(self, metric: str, /, **labels: str) -> bool:
        return (metric, frozenset(labels.items())) in self.values


def test_the_table_is_complete_and_its_names_follow_the_rules() -> None:
    for metric in metric_table.METRICS:
        assert re.fullmatch(r"(mongodb_(ss|up|mongod|oplog|dbstats|collstats)[a-zA-Z_]*|mongottl_[a-z_]+)", metric.name)
        assert metric.help.endswith(".")
        assert len(metric.labels) == len(set(metric.labels))
        if metric.name.startswith("mongottl_"):
            assert metric.kind != metric_table.UNTYPED
            if metric.unit in ("seconds", "bytes", "documents"):
                assert metric.name.endswith(metric.unit), metric.name
    assert len(metric_table.BY_NAME) == len(metric_table.METRICS)


def test_every_metric_of_the_table_is_there_with_its_labels_and_no_other() -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.c.create_index("_ts", expireAfterSeconds=60)
        client.shop.c.insert_one({"_id": 1})
        with pytest.raises(DuplicateKeyError):
            client.shop.c.insert_one({"_id": 1})
        with pytest.raises(OperationFailure):
            client.shop.command("nothing")
        with server.throttle("find", times=1), pytest.raises(OperationFailure):
            client.shop.c.find_one()
        families = Scrape(server).families
    own = {name: family for name, family in families.items() if not name.startswith("process_")}
    # The text format has them under another name.
    infos = {metric.name for metric in metric_table.METRICS if metric.kind == "info"}
    plain = {metric.name for metric in metric_table.METRICS} - infos
    assert own.keys() == plain | {f"{name}_info" for name in infos}
    for metric in metric_table.METRICS:
        if metric.kind == "info":
            continue  # the text format has it as a gauge of 1
        family = own[metric.name]
        assert family.type == {"untyped": "unknown"}.get(metric.kind, metric.kind)
        assert family.documentation == metric.help
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels), metric.name
    assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= families.keys()


def test_openmetrics_is_given_to_those_who_ask_for_it(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.c.insert_one({})
    reply = ask(server, "/metrics", {"Accept": f"{OPENMETRICS},text/plain;version=0.0.4;q=0.5"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    parse: Any = openmetrics_parser.text_string_to_metric_families
    families: dict[str, Metric] = {metric.name: metric for metric in parse(reply.body)}
    assert families["mongodb_ss_opcounters"].type == "unknown"
    assert families["mongottl_command_duration_seconds"].type == "histogram"
    assert families["mongottl_build"].type == "info"


def test_metrics_count_documents_by_time_to_live(server: mongottl.RunningServer, client: Client) -> None:
    place = {"database": "shop", "collection": "carts"}
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    client.shop.carts.insert_many(
        [{"_id": n} for n in range(5)] + [{"_id": "long", "ttl": 1000}, {"_id": "ever", "ttl": -1}]
    )
    client.shop.plain.insert_one({"x": "y" * 1000})
    now_s = int(server.clock.now().timestamp())
    scrape = Scrape(server)
    assert scrape.value("mongottl_ttl_pending_documents", **place) == 6
    assert scrape.value("mongottl_ttl_expired_documents", **place) == 0
    assert scrape.value("mongottl_ttl_next_due_timestamp_seconds", **place) == now_s + 60
    assert scrape.value("mongodb_collstats_storageStats_count", **place) == 7
    assert scrape.value("mongodb_dbstats_objects", database="shop") == 8
    assert scrape.value("mongodb_dbstats_dataSize", database="shop") > 1000
    assert scrape.value("mongodb_dbstats_collections", database="shop") == 2
    assert not scrape.has("mongottl_ttl_pending_documents", database="shop", collection="plain")
    ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": False})
    server.clock.advance(100)
    scrape = Scrape(server)
    assert scrape.value("mongottl_ttl_monitor_enabled") == 0
    assert scrape.value("mongottl_ttl_expired_documents", **place) == 5
    assert scrape.value("mongottl_ttl_pending_documents", **place) == 1
    assert 40 <= scrape.value("mongottl_ttl_lag_seconds") < 41
    assert scrape.value("mongottl_clock_frozen") == 1
    ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": True})
    server.clock.advance(0)
    scrape = Scrape(server)
    assert scrape.value("mongottl_ttl_expired_documents", **place) == 0
    assert scrape.value("mongottl_ttl_lag_seconds") == 0
    if wanted() == 1:  # any of several nodes deletes what has expired, and counts what it has deleted itself
        assert scrape.value("mongottl_ttl_purged_documents_total", **place) == 5
        assert scrape.value("mongodb_ss_metrics_ttl_deletedDocuments") == 5
    assert 90 < scrape.value("mongottl_clock_offset_seconds") <= 100


def test_commands_their_times_and_their_errors(server: mongottl.RunningServer, client: Client) -> None:
    for _ in range(3):
        client.shop.c.find_one()
    with pytest.raises(OperationFailure):
        client.shop.c.find_one({"$nonsense": 1})
    with pytest.raises(OperationFailure):
        client.shop.command("nonsense")
    client.shop.c.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError):
        client.shop.c.insert_one({"_id": 1})
    scrape = Scrape(server)
    times = "mongottl_command_duration_seconds"
    assert scrape.value(f"{times}_count", command="find") == 4
    assert scrape.value(f"{times}_count", command="insert") == 2
    assert scrape.value(f"{times}_bucket", command="find", le="+Inf") == 4
    buckets = [
        sample.value
        for sample in scrape.families[times].samples
        if sample.name == f"{times}_bucket" and sample.labels["command"] == "find"
    ]
    assert buckets == sorted(buckets) and len(buckets) == 20
    assert 0 < scrape.value(f"{times}_sum", command="find") < 10
    assert scrape.value("mongottl_command_errors_total", code="2", name="BadValue") == 1
    assert scrape.value("mongottl_command_errors_total", code="59", name="CommandNotFound") == 1
    assert scrape.value("mongottl_statement_errors_total", code="11000", name="DuplicateKey") == 1
    assert scrape.value("mongodb_ss_opcounters", legacy_op_type="query") == 4
    assert scrape.value("mongodb_ss_asserts", assert_type="user") == 2


def test_operations_are_statements_of_write_commands(server: mongottl.RunningServer, client: Client) -> None:
    shop = client.shop
    shop.c.insert_many([{"_id": number} for number in range(1500)])
    shop.c.insert_one({"_id": 1500})
    with pytest.raises(BulkWriteError):
        shop.c.insert_many([{"_id": 2000}, {"_id": 0}, {"_id": 2001}])  # ends at the second one
    updates = [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}, {"q": {"b": 1}, "u": {"$set": {"a": 1}}, "multi": True}]
    shop.command("update", "c", updates=updates)
    shop.c.update_one({"_id": 1}, {"$set": {"a": 2}})
    shop.command("delete", "c", deletes=[{"q": {"_id": 1}, "limit": 1}] * 3)
    shop.c.delete_one({"_id": 2})
    with pytest.raises(BulkWriteError):
        shop.c.bulk_write([pymongo.UpdateOne({"_id": 5}, {"$set": {"_id": 6}}), pymongo.DeleteOne({})])
    operations = [
        {"insert": 0, "document": {"_id": "a"}},
        {"update": 0, "filter": {"_id": "a"}, "updateMods": {"$set": {"b": 1}}},
        {"delete": 0, "filter": {"_id": "a"}},
    ]
    client.admin.command("bulkWrite", 1, ops=operations, nsInfo=[{"ns": "shop.c"}])
    with pytest.raises(OperationFailure):
        shop.command("insert", "c", documents=[])
    scrape = Scrape(server)
    counted = {
        kind: scrape.value("mongodb_ss_opcounters", legacy_op_type=kind) for kind in ("insert", "update", "delete")
    }
    assert counted == {"insert": 1500 + 1 + 2 + 1, "update": 2 + 1 + 1 + 1, "delete": 3 + 1 + 1}
    assert client.admin.command("serverStatus")["opcounters"]["insert"] == counted["insert"]


def test_statements_that_fail_are_counted_whatever_the_form_of_the_reply(
    server: mongottl.RunningServer, client: Client
) -> None:
    client.shop.c.insert_one({"_id": 1})
    namespaces = [{"ns": "shop.c"}]
    inserts = [{"insert": 0, "document": {"_id": 1}} for _ in range(300)]
    updates = [{"update": 0, "filter": {}, "updateMods": {"$inc": {"_id": 1}}}] * 2
    for options in ({}, {"errorsOnly": True}, {"cursor": {"batchSize": 1}}):
        reply = client.admin.command(
            {"bulkWrite": 1, "ops": inserts + updates, "nsInfo": namespaces, "ordered": False, **options}
        )
        assert reply["nErrors"] == 302
        client.admin.command("killCursors", "$cmd.bulkWrite", cursors=[reply["cursor"]["id"]])
    client.shop.command("update", "c", updates=[{"q": {"_id": 1}, "u": {"$set": {"_id": 2}}}])
    client.shop.command("delete", "c", deletes=[{"q": {"$nonsense": 1}, "limit": 1}])
    scrape = Scrape(server)
    total = "mongottl_statement_errors_total"
    assert scrape.value(total, code="11000", name="DuplicateKey") == 900
    assert scrape.value(total, code="66", name="ImmutableField") == 7
    assert scrape.value(total, code="2", name="BadValue") == 1


def test_a_command_that_waits_is_timed_with_its_wait(server: mongottl.RunningServer, client: Client) -> None:
    fail = {
        "configureFailPoint": "failCommand",
        "mode": {"times": 1},
        "data": {"failCommands": ["find"], "blockConnection": True, "blockTimeMS": 30},
    }
    client.admin.command(fail)
    client.shop.c.find_one()
    assert Scrape(server).value("mongottl_command_duration_seconds_sum", command="find") >= 0.03


def test_cursors_streams_transactions_and_connections(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.c.insert_many([{} for _ in range(10)])
    with client.shop.c.find(batch_size=2) as cursor, client.shop.c.watch() as stream, client.start_session() as session:
        next(cursor)
        session.start_transaction()
        client.shop.c.insert_one({}, session=session)
        scrape = Scrape(server)
        assert scrape.value("mongodb_ss_metrics_cursor_open", csr_type="total") == 2
        assert scrape.value("mongottl_change_streams") == 1
        assert scrape.value("mongodb_ss_transactions_currentOpen") == 1
        assert scrape.value("mongodb_ss_connections", conn_type="current") >= 1
        assert stream.alive
    scrape = Scrape(server)
    assert scrape.value("mongodb_ss_metrics_cursor_open", csr_type="total") == 0
    assert scrape.value("mongodb_ss_transactions_totalAborted") == 1
    head = scrape.value("mongodb_mongod_replset_oplog_head_timestamp")
    assert head >= scrape.value("mongodb_mongod_replset_oplog_tail_timestamp") > 0


@takes_several_servers
def test_each_node_knows_the_oplog_of_all() -> None:
    if postgres.missing():
        pytest.skip(postgres.missing())
    options: dict[str, Any] = {"store": with_schema(PREFIX + uuid.uuid4().hex[:12]), "topology": "sharded"}
    with (
        mongottl.start_server(web_port=0, **options) as first,
        mongottl.start_server(web_port=0, **options) as second,
        Client(first.uri) as client,
    ):
        client.shop.c.insert_many([{} for _ in range(100)])
        client.shop.c.insert_one({})
        for node in (first, second):
            scrape = Scrape(node)
            assert scrape.value("mongodb_oplog_stats_count") >= 3  # with that of the create
            head = scrape.value("mongodb_mongod_replset_oplog_head_timestamp")
            assert head >= scrape.value("mongodb_mongod_replset_oplog_tail_timestamp") > 0
            assert scrape.value("mongodb_oplog_stats_size") > 101 * 20


@needs_states
def test_a_restored_state_takes_no_counter_back(server: mongottl.RunningServer, client: Client) -> None:
    carts = client.shop.carts
    carts.create_index("_ts", expireAfterSeconds=10)
    server.save()
    carts.create_index("n")
    carts.insert_one({})
    server.clock.advance(10)
    server.restore()
    scrape = Scrape(server)
    assert scrape.value("mongottl_ttl_purged_documents_total", database="shop", collection="carts") == 1
    assert scrape.value("mongodb_ss_metrics_ttl_deletedDocuments") == 1


def test_flushes_to_disk_are_timed(tmp_path: Path) -> None:
    with mongottl.start_server(web_port=0, data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        before = Scrape(server).value("mongottl_fsync_duration_seconds_count")
        client.shop.get_collection("c", write_concern=pymongo.WriteConcern(j=True)).insert_one({})
        scrape = Scrape(server)
        assert scrape.value("mongottl_fsync_duration_seconds_count") > before
        assert scrape.value("mongottl_storage_size_bytes") > 0


def test_many_collections_are_bounded(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(exposition, "MAX_COLLECTIONS", 3)
    for number in range(5):
        client.shop[f"c{number}"].insert_one({})
    client.shop.c4.create_index("_ts", expireAfterSeconds=5)
    scrape = Scrape(server)
    assert scrape.value("mongottl_collections_omitted") == 2
    shown = {s.labels["collection"] for s in scrape.families["mongodb_collstats_storageStats_count"].samples}
    assert shown == {"c0", "c1", "c4"}  # those whose documents expire come first
    assert scrape.value("mongodb_dbstats_collections", database="shop") == 5
    assert scrape.value("mongodb_dbstats_objects", database="shop") == 5


def test_the_lag_is_that_of_all_collections(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(exposition, "MAX_COLLECTIONS", 1)
    ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": False})
    for name, life_s in (("a", 50), ("b", 10)):
        client.shop[name].create_index("_ts", expireAfterSeconds=life_s)
        client.shop[name].insert_one({})
    server.clock.advance(100)
    assert 90 <= Scrape(server).value("mongottl_ttl_lag_seconds") < 91


def test_label_values_of_any_kind(server: mongottl.RunningServer, client: Client) -> None:
    name = 'quo"te\\ and {brace}, ümläut'
    client.shop[name].insert_one({})
    assert Scrape(server).value("mongodb_collstats_storageStats_count", database="shop", collection=name) == 1


def test_scrapes_and_commands_beside_each_other(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.c.create_index("_ts", expireAfterSeconds=5)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                client.shop[f"c{number}"].insert_one({"turn": turn})
                client.shop[f"c{number}"].drop()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        Scrape(server)
    for thread in threads:
        thread.join()
    assert failed == []


def test_metrics_need_a_user_where_users_are_checked() -> None:
    with mongottl.start_server(web_port=0, auth=True, user="root", password="secret") as server:
        with Client(server.uri) as client:
            add = client.admin.command
            add("createUser", "ann", pwd="pässword:1", roles=["clusterMonitor"])
            add("createUser", "old", pwd="secret", roles=["clusterMonitor"], mechanisms=["SCRAM-SHA-1"])
            add("createUser", "bob", pwd="secret", roles=["readWriteAnyDatabase"])
            far = [{"clientSource": ["10.0.0.0/8"]}]
            add("createUser", "far", pwd="secret", roles=["clusterMonitor"], authenticationRestrictions=far)
            reply = ask(server, "/metrics")
            assert reply.status == 401 and reply.headers["www-authenticate"].startswith("Basic realm=")
            for name, password, status in (
                ("root", "secret", 200),
                ("ann", "pässword:1", 200),
                ("old", "secret", 200),
                ("bob", "secret", 403),
                ("far", "secret", 401),
                ("ann", "wrong", 401),
                ("nobody", "secret", 401),
                ("ann", "", 401),
                ("", "", 401),
            ):
                assert ask(server, "/metrics", basic(name, password)).status == status, name
            for given in ("Bearer x", "Basic", "Basic !", "Basic bm9jb2xvbg==", "Basic " + "x" * 5000):
                assert ask(server, "/metrics", {"Authorization": given}).status == 401
            # A login is kept for a minute, but not the rights of a user that is gone.
            client.admin.command("dropUser", "ann")
            assert ask(server, "/metrics", basic("ann", "pässword:1")).status in (401, 403)
        assert ask(server, "/healthz").status == 200


def test_metrics_of_an_account_need_its_key() -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos", cosmos_account="acme", cosmos_key="c2VjcmV0") as server:
        assert ask(server, "/metrics").status == 401
        assert ask(server, "/metrics", basic("acme", "c2VjcmV0")).status == 200
