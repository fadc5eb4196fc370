"""mongosh, as npm installs it, over a real socket."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.config import ServerConfig
from tests.clients.conftest import LIMIT_S, Installed, failed_commands

pytestmark = pytest.mark.slow

Shell = Callable[..., str]


@pytest.fixture
def mongosh(installed: Installed, tmp_path: Path) -> Shell:
    """Runs a script in mongosh, gives what it prints. Nothing may be said on standard error."""

    program = installed("node") / "node_modules/.bin/mongosh"

    def run(uri: str, script: str) -> str:
        ended = subprocess.run(
            [program, uri, "--quiet", "--norc", "--eval", script],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, "HOME": str(tmp_path), "MONGOSH_FORCE_DISABLE_TELEMETRY_FOR_TESTING": "1"},
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stderr == ""
        return ended.stdout.rstrip("\n")

    return run


# mongosh asks for parameters of other kinds of servers, to tell them from MongoDB by the answer.
PROBES = {"getParameter"}


@pytest.mark.parametrize("way", ["", "?replicaSet=globaldb", "?directConnection=true", "localhost"])
def test_mongosh_connects(mongosh: Shell, own: mongottl.RunningServer, way: str) -> None:
    uri = own.uri.replace("127.0.0.1", "localhost") if way == "localhost" else own.uri + way
    script = """
        db.coll.insertOne({_id: 1, a: 1});
        db.coll.updateOne({_id: 1}, {$inc: {a: 1}});
        print(EJSON.stringify(db.coll.find().toArray()), db.coll.deleteMany({}).deletedCount);
    """
    assert mongosh(uri, script) == '[{"_id":1,"a":2}] 1'
    assert failed_commands(own) <= PROBES


EXPRESSIONS = {
    "db.getName()": "test",
    "db.version()": ServerConfig().full_version(),
    "Number(db.stats().objects)": 250,
    "db.coll.stats().count": 250,
    "db.coll.stats({scale: 1024}).scaleFactor": 1024,
    "db.coll.totalSize() > 0": True,
    "db.serverStatus().metrics.ttl.passes >= 0": True,
    "db.serverBuildInfo().bits": 64,
    "db.serverCmdLineOpts().parsed.replication.replSet": "globaldb",
    "db.hello().setName": "globaldb",
    "db.hostInfo().ok": 1,
    "db.coll.getIndexes().map(index => index.name)": ["_id_", "a_1"],
    "db.coll.createIndex({_ts: 1}, {expireAfterSeconds: 10})": "_ts_1",
    "db.coll.dropIndex('_ts_1').ok": 1,
    "db.coll.explain().find({a: 1}).finish().queryPlanner.winningPlan.stage": "FETCH",
    "db.coll.find({b: 1}).explain('executionStats').executionStats.totalDocsExamined": 250,
    "db.coll.find().batchSize(10).toArray().length": 250,
    "db.coll.countDocuments({a: 1})": 1,
    "db.coll.estimatedDocumentCount()": 250,
    "db.coll.distinct('a', {a: {$lt: 2}})": [0, 1],
    "db.coll.aggregate([{$match: {a: {$lt: 3}}}, {$count: 'n'}]).next().n": 3,
    "db.coll.bulkWrite([{insertOne: {document: {b: 1}}}]).insertedCount": 1,
    "db.coll.isCapped()": False,
    "db.coll.exists().type": "collection",
    "db.getCollectionInfos()[0].name": "coll",
    "db.getCollectionNames()": ["coll"],
    "db.getMongo().getDBNames()": ["admin", "config", "local", "test"],
    "db.adminCommand({listCommands: 1}).commands.ping.help": "Replies at once; tests whether the server responds.",
    "db.adminCommand('ping').ok": 1,
    "db.commandHelp('ping')": "help for: ping Replies at once; tests whether the server responds.",
    "rs.status().members.map(member => member.stateStr)": ["PRIMARY"],
    "rs.conf()._id": "globaldb",
    "db.printCollectionStats().value.coll.ns": "test.coll",
    "db.currentOp().inprog.length > 0": True,
    "db.setProfilingLevel(1, {slowms: 10000}).was": 0,
    "db.getProfilingStatus().slowms": 10000,
    "db.setProfilingLevel(0).was": 1,
    "db.setLogLevel(0, 'query').ok": 1,
    "db.getLogComponents().query.verbosity": 0,
    "db.coll.validate().valid": True,
    "db.coll.getPlanCache().list()": [],
    "db.coll.hideIndex('a_1').hidden_new": True,
    "db.coll.unhideIndex('a_1').hidden_new": False,
    "db.coll.latencyStats()[0].ns": "test.coll",
    "db.getRole('read').isBuiltin": True,
    "Number(db.fsyncLock().lockCount)": 1,
    "Number(db.fsyncUnlock().lockCount)": 0,
    "(s => { s.getDatabase('test').coll.findOne(); s.endSession(); return 1; })(db.getMongo().startSession())": 1,
    "db.coll.renameCollection('other').ok": 1,
    "db.other.drop()": True,
    "db.dropDatabase().ok": 1,
}


def test_mongosh_commands(mongosh: Shell, own: mongottl.RunningServer) -> None:
    with pymongo.MongoClient[dict[str, Any]](own.uri) as client:
        client.test.coll.insert_many({"_id": n, "a": n} for n in range(250))
        client.test.coll.create_index("a")
    output = mongosh(own.uri, "\n".join(f"print(JSON.stringify({expression}));" for expression in EXPRESSIONS))
    assert dict(zip(EXPRESSIONS, map(json.loads, output.split("\n")), strict=True)) == EXPRESSIONS
    assert failed_commands(own) <= PROBES


@pytest.mark.parametrize(
    ("script", "begins"),
    [
        ("show('dbs')", "admin"),
        ("show('collections')", "coll"),
        ("show('users')", "[]"),
        ("show('roles')", "[\n  {\n    role: 'dbAdmin'"),
        ("show('profile')", "db.system.profile is empty."),
        ("show('logs')", "[ 'global', 'startupWarnings' ]"),
        ("show('log', 'global')", ""),
        ("show('startupWarnings')", ""),
    ],
)
def test_mongosh_shows(mongosh: Shell, own: mongottl.RunningServer, script: str, begins: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](own.uri) as client:
        client.test.coll.insert_one({})
    output = mongosh(own.uri, script)
    assert output.startswith(begins)
    assert "rror" not in output
    assert failed_commands(own) <= PROBES


def test_mongosh_prints_about_replication(mongosh: Shell, own: mongottl.RunningServer) -> None:
    script = """
        db.coll.insertOne({_id: 1});
        const { value } = rs.printReplicationInfo();
        print(value["configured oplog size"], Object.keys(value).length);
        rs.printSecondaryReplicationInfo();
    """
    assert mongosh(own.uri, script) == "64 MB 6"


def test_mongosh_refuses_what_needs_shards(mongosh: Shell, own: mongottl.RunningServer) -> None:
    script = """
        db.coll.insertOne({});
        for (const call of [() => sh.status(), () => sh.enableSharding("test"), () => db.coll.getShardDistribution()]) {
            try { call(); print("done"); } catch (error) { print(error.message); }
        }
    """
    output = mongosh(own.uri, script)
    assert "You are not connected to a mongos" in output
    assert output.split("\n")[-3:] == [
        "[SHAPI-10003] This db does not have sharding enabled. Be sure you are connecting to a mongos from the shell "
        "and not to a mongod.",
        "Command enableSharding not supported",
        "[SHAPI-10001] Collection coll is not sharded",
    ]


def test_transactions_of_mongosh(mongosh: Shell, own: mongottl.RunningServer) -> None:
    script = """
        const session = db.getMongo().startSession();
        const coll = session.getDatabase("test").coll;
        session.startTransaction();
        coll.insertOne({_id: 1});
        print(coll.countDocuments(), db.coll.countDocuments());
        session.commitTransaction();
        session.startTransaction();
        coll.deleteOne({_id: 1});
        session.abortTransaction();
        session.withTransaction(() => { coll.updateOne({_id: 1}, {$set: {n: 2}}); });
        print(EJSON.stringify(db.coll.find().toArray()));
    """
    assert mongosh(own.uri, script).split("\n") == ["1 0", '[{"_id":1,"n":2}]']


SEED = """
    const coll = db.getSiblingDB("seed").coll;
    const out = {};
    out.created = db.getSiblingDB("seed").runCommand(
        {createIndexes: "coll", indexes: [{key: {"_ts": 1}, name: "_ts_1", expireAfterSeconds: 10}]});
    delete out.created["$clusterTime"];
    delete out.created.operationTime;
    out.again = coll.createIndex({"_ts": 1}, {expireAfterSeconds: 10});
    coll.createIndex({id: 1});
    db.adminCommand({freezeClock: true});
    coll.insertMany([
        {id: 1, location: "Paris", ttl: Double(20.0)},
        {id: 2, location: "Paris", ttl: NumberInt(20)},
        {id: 3, location: "Paris", ttl: NumberLong("20")},
        {id: 4, location: "Paris", ttl: 20.5},
        {id: 5, location: "Paris", ttl: NumberLong("2147483649")},
    ]);
    const seen = () => coll.find({}, {_id: 0, id: 1}).toArray().map((document) => document.id);
    const advance = (seconds) => Number(db.adminCommand({advanceClock: seconds}).ttlDeleted);
    const ttls = coll.find({}, {_id: 0, ttl: 1}).map((document) => document.ttl).toArray();
    out.kept = EJSON.stringify(ttls, null, 0, {relaxed: false});
    out.steps = [[advance(9), seen()], [advance(1), seen()], [advance(9), seen()], [advance(1), seen()]];
    print(JSON.stringify(out));
"""


@pytest.mark.parametrize("dialect", ["mongodb", "cosmos"])
def test_the_example_of_the_ttl_articles(mongosh: Shell, dialect: str) -> None:
    """A default of 10 s; three documents whose `ttl` of 20 counts, and two whose `ttl` does not."""
    with mongottl.start_server(dialect=dialect) as server:
        out = json.loads(mongosh(server.uri, SEED))
    created: dict[str, Any] = {
        "numIndexesBefore": 1,
        "numIndexesAfter": 2,
        "createdCollectionAutomatically": True,
        "ok": 1,
    }
    if dialect == "cosmos":
        created = {"_t": "CreateIndexesResponse", **created}
    assert out["created"] == created
    assert out["again"] == "_ts_1"
    # Stored as they came, whether they count or not; what the shell itself makes of 20.0 when it reads it is an int.
    assert json.loads(out["kept"]) == [
        {"$numberInt": "20"},
        {"$numberInt": "20"},
        {"$numberLong": "20"},
        {"$numberDouble": "20.5"},
        {"$numberLong": "2147483649"},
    ]
    assert out["steps"] == [
        [0, [1, 2, 3, 4, 5]],
        [2, [1, 2, 3]],
        [0, [1, 2, 3]],
        [3, []],
    ]


USERS = """
    const shop = db.getSiblingDB("shop");
    shop.createRole({role: "seller", privileges: [{resource: {db: "shop", collection: "carts"}, actions: ["find"]}],
                     roles: []});
    shop.createUser({user: "ann", pwd: "apple", roles: ["seller"], customData: {badge: 7}});
    shop.carts.insertOne({_id: 1});
    const seen = [shop.getUser("ann").customData.badge, shop.getUsers().users.length, shop.getRole("seller").isBuiltin];
    shop.changeUserPassword("ann", "pear");
    shop.grantRolesToUser("ann", ["read"]);
    shop.revokeRolesFromUser("ann", ["read"]);
    seen.push(shop.getUser("ann").roles.map((role) => role.role));
    const other = new Mongo(WITHOUT_LOGIN);
    const codes = [];
    const attempt = (call) => { try { call(); codes.push(0); } catch (error) { codes.push(error.code); } };
    attempt(() => other.getDB("shop").carts.findOne());
    attempt(() => other.getDB("shop").auth("ann", "apple"));
    attempt(() => other.getDB("shop").auth("ann", "pear"));
    attempt(() => other.getDB("shop").carts.findOne());
    attempt(() => other.getDB("shop").carts.insertOne({}));
    shop.dropUser("ann");
    attempt(() => other.getDB("shop").carts.findOne());
    shop.dropRole("seller");
    print(JSON.stringify([seen, codes]));
"""


def test_mongosh_manages_users(mongosh: Shell, guarded: mongottl.RunningServer) -> None:
    head, _, rest = guarded.uri.partition("@")
    without_login = f"{head.partition('//')[0]}//{rest}"
    output = mongosh(guarded.uri, USERS.replace("WITHOUT_LOGIN", json.dumps(without_login)))
    assert json.loads(output) == [[7, 1, False, ["seller"]], [13, 18, 0, 0, 13, 13]]
