// Does what an application does with the server at MONGODB_URI, and prints the name of each part that has worked. The
// first thing that does not work ends it with an error.
const assert = require("node:assert/strict");
const { Readable } = require("node:stream");
const { MongoClient, GridFSBucket, Int32, Long, Double, Decimal128 } = require("mongodb");

const uri = process.env.MONGODB_URI;
const heartbeats = { failed: 0, awaited: 0 };

async function connect(client) {
  assert.equal((await client.db("admin").command({ ping: 1 })).ok, 1);
  assert.equal((await client.db("admin").command({ hello: 1 })).isWritablePrimary, true);
  const { databases } = await client.db().admin().listDatabases();
  assert.deepEqual(databases.map((database) => database.name), ["admin", "config", "local"]);
}

async function crud(client) {
  const coll = client.db("node").collection("things");
  assert.equal((await coll.insertOne({ _id: 1, a: 1 })).acknowledged, true);
  await coll.insertMany(Array.from({ length: 500 }, (_, n) => ({ _id: n + 2, a: n % 3 })));
  let seen = 0;
  for await (const document of coll.find({}, { batchSize: 50 })) seen += document._id > 0 ? 1 : 0;
  assert.equal(seen, 501);
  assert.deepEqual(await coll.findOne({ _id: 2 }, { projection: { a: 1 } }), { _id: 2, a: 0 });
  assert.equal((await coll.updateMany({ a: 2 }, { $inc: { b: 1 } })).modifiedCount, 166);
  assert.equal((await coll.updateOne({ _id: -1 }, { $set: { a: 1 } }, { upsert: true })).upsertedId, -1);
  assert.equal((await coll.replaceOne({ _id: -1 }, { a: 5 })).modifiedCount, 1);
  assert.deepEqual(await coll.findOneAndDelete({ _id: -1 }), { _id: -1, a: 5 });
  const bulk = await coll.bulkWrite([
    { insertOne: { document: { _id: 9001 } } },
    { updateOne: { filter: { _id: 9001 }, update: { $set: { x: 1 } } } },
    { deleteOne: { filter: { _id: 9001 } } },
  ]);
  assert.deepEqual([bulk.insertedCount, bulk.modifiedCount, bulk.deletedCount], [1, 1, 1]);
  const both = await client.bulkWrite([
    { namespace: "node.things", name: "insertOne", document: { _id: 9002 } },
    { namespace: "node.things", name: "deleteOne", filter: { _id: 9002 } },
  ]);
  assert.deepEqual([both.insertedCount, both.deletedCount], [1, 1]);
  const grouped = await coll.aggregate([{ $group: { _id: "$a", n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
  assert.deepEqual(grouped.map((d) => d.n), [167, 168, 166]);
  assert.deepEqual((await coll.distinct("a")).sort(), [0, 1, 2]);
  assert.equal(await coll.countDocuments({ a: 0 }), 167);
  assert.equal(await coll.estimatedDocumentCount(), 501);
  const plan = await coll.find({ _id: 1 }).explain();
  assert.ok(JSON.stringify(plan.queryPlanner.winningPlan).includes("_id"));

  const types = { _id: "types", i: new Int32(1), l: Long.fromNumber(2), d: new Double(3), m: Decimal128.fromString("1.10") };
  await coll.insertOne(types);
  const raw = await coll.findOne({ _id: "types" }, { promoteValues: false });
  assert.deepEqual([raw.i._bsontype, raw.l._bsontype, raw.d._bsontype, raw.m.toString()], ["Int32", "Long", "Double", "1.10"]);
}

async function ttl(client) {
  const coll = client.db("node").collection("expiring");
  assert.equal(await coll.createIndex({ _ts: 1 }, { expireAfterSeconds: 10 }), "_ts_1");
  assert.equal((await coll.indexes()).find((index) => index.name === "_ts_1").expireAfterSeconds, 10);
  await coll.insertMany([{ _id: 1 }, { _id: 2, ttl: 20 }, { _id: 3, ttl: Long.fromNumber(-1) }, { _id: 4, ttl: 20.5 }]);
  for (const left of [[2, 3], [3]]) {
    await client.db("admin").command({ advanceClock: 10 });
    assert.deepEqual(await coll.distinct("_id"), left);
  }
}

async function transactions(client) {
  const coll = client.db("node").collection("accounts");
  await client.withSession(async (session) => {
    const seen = await session.withTransaction(async () => {
      await coll.insertOne({ _id: "ann", balance: 10 }, { session });
      return [await coll.countDocuments(), await coll.countDocuments({}, { session })];
    });
    assert.deepEqual(seen, [0, 1]);
    const givenUp = session.withTransaction(async () => {
      await coll.deleteOne({ _id: "ann" }, { session });
      throw new Error("given up");
    });
    await assert.rejects(givenUp, { message: "given up" });
  });
  assert.equal(await coll.countDocuments(), 1);
}

async function changeStreams(client) {
  const coll = client.db("node").collection("watched");
  const stream = coll.watch([], { fullDocument: "updateLookup" });
  const first = stream.next();
  // The stream begins where the server opens it, which is not before its first read.
  while (!stream.cursor?.id) await new Promise((resolve) => setTimeout(resolve, 1));
  await coll.insertOne({ _id: 1 });
  // One reply could have the update as well, whose document would then still be found.
  const inserted = await first;
  await coll.updateOne({ _id: 1 }, { $set: { a: 2 } });
  await coll.deleteOne({ _id: 1 });
  assert.deepEqual([inserted.operationType, inserted.fullDocument], ["insert", { _id: 1 }]);
  const updated = await stream.next();
  assert.deepEqual([updated.operationType, updated.fullDocument], ["update", null]);
  await stream.close();
  const resumed = coll.watch([], { resumeAfter: inserted._id });
  assert.equal((await resumed.next()).operationType, "update");
  assert.equal((await resumed.next()).operationType, "delete");
  await resumed.close();
}

async function gridFS(client) {
  const bucket = new GridFSBucket(client.db("node"), { chunkSizeBytes: 1000 });
  const content = Buffer.from("0123456789".repeat(250));
  const upload = Readable.from(content).pipe(bucket.openUploadStream("digits.txt"));
  await new Promise((resolve, reject) => upload.on("finish", resolve).on("error", reject));
  assert.deepEqual(Buffer.concat(await bucket.openDownloadStreamByName("digits.txt").toArray()), content);
  await bucket.delete(upload.id);
  await assert.rejects(bucket.openDownloadStream(upload.id).toArray(), /FileNotFound/);
}

async function errorShapes(client) {
  const db = client.db("node");
  const coll = await db.createCollection("strict", { validator: { $jsonSchema: { required: ["name"] } } });
  await coll.insertOne({ _id: 1, name: "ann" });
  const duplicate = { code: 11000, keyPattern: { _id: 1 }, keyValue: { _id: 1 } };
  await assert.rejects(coll.insertOne({ _id: 1, name: "bob" }), duplicate);
  await assert.rejects(coll.insertOne({ _id: 2 }), (error) => error.code === 121 && error.errInfo.failingDocumentId === 2);
  const session = client.startSession();
  session.startTransaction();
  await coll.findOne({ _id: 1 }, { session });
  await coll.updateOne({ _id: 1 }, { $set: { n: 1 } });
  await assert.rejects(
    coll.updateOne({ _id: 1 }, { $set: { n: 2 } }, { session }),
    (error) => error.code === 112 && error.hasErrorLabel("TransientTransactionError"),
  );
  await session.abortTransaction();
  await session.endSession();
}

// Heartbeats are answered when something changes, or late: the driver's monitor streams.
async function monitoring() {
  for (let tries = 0; heartbeats.awaited === 0 && tries < 2400; tries++) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(heartbeats.awaited >= 1);
  assert.equal(heartbeats.failed, 0);
}

// Logs in as the same user with a password that is not theirs.
async function wrongPassword() {
  const username = decodeURIComponent(new URL(uri).username);
  const other = new MongoClient(uri, { auth: { username, password: "wrong" } });
  await assert.rejects(other.db("admin").command({ ping: 1 }), { code: 18 });
  await other.close();
}

async function main() {
  const client = new MongoClient(uri, { heartbeatFrequencyMS: 500, serverSelectionTimeoutMS: 120_000 });
  client.on("serverHeartbeatFailed", () => (heartbeats.failed += 1));
  client.on("serverHeartbeatSucceeded", (event) => (heartbeats.awaited += event.awaited ? 1 : 0));
  const parts = [connect, crud, ttl, transactions, changeStreams, gridFS, errorShapes, monitoring];
  if (uri.includes("@")) parts.push(wrongPassword);
  for (const part of parts) {
    await part(client);
    console.log(part.name);
  }
  await client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
