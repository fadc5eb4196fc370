// What the Node driver does with the server at process.argv[2]; prints "done", or fails.
const assert = require("node:assert/strict");
const { MongoClient, Int32, Long, Double, Decimal128 } = require("mongodb");

async function main(uri) {
  const failed = [];
  const heartbeats = { failed: 0, awaited: 0 };
  const client = new MongoClient(uri, { monitorCommands: true, heartbeatFrequencyMS: 500, serverSelectionTimeoutMS: 5000 });
  client.on("commandFailed", (event) => failed.push(event.commandName));
  client.on("serverHeartbeatFailed", () => (heartbeats.failed += 1));
  client.on("serverHeartbeatSucceeded", (event) => (heartbeats.awaited += event.awaited ? 1 : 0));
  await client.connect();
  const db = client.db(`node_${process.pid}_${Date.now()}`);
  const coll = db.collection("things");

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
  const grouped = await coll.aggregate([{ $group: { _id: "$a", n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
  assert.deepEqual(grouped.map((d) => d.n), [167, 168, 166]);
  assert.deepEqual((await coll.distinct("a")).sort(), [0, 1, 2]);
  assert.equal(await coll.countDocuments({ a: 0 }), 167);
  assert.equal(await coll.estimatedDocumentCount(), 501);

  const types = { _id: "types", i: new Int32(1), l: Long.fromNumber(2), d: new Double(3), m: Decimal128.fromString("1.10") };
  await coll.insertOne(types);
  const raw = await coll.findOne({ _id: "types" }, { promoteValues: false });
  assert.deepEqual([raw.i._bsontype, raw.l._bsontype, raw.d._bsontype, raw.m.toString()], ["Int32", "Long", "Double", "1.10"]);

  assert.equal(await coll.createIndex({ _ts: 1 }, { expireAfterSeconds: 10 }), "_ts_1");
  assert.equal((await coll.indexes()).find((index) => index.name === "_ts_1").expireAfterSeconds, 10);
  const plan = await coll.find({ _id: 1 }).explain();
  assert.ok(JSON.stringify(plan.queryPlanner.winningPlan).includes("_id"));

  const session = client.startSession();
  await coll.insertOne({ _id: "in session" }, { session });
  await session.withTransaction(() => coll.insertOne({ _id: "in transaction" }, { session }));
  assert.ok(await coll.findOne({ _id: "in transaction" }));
  const conflict = session.withTransaction(async () => {
    await coll.insertOne({ _id: "never" }, { session });
    throw new Error("given up");
  });
  await assert.rejects(conflict, { message: "given up" });
  await session.endSession();
  assert.equal(await coll.findOne({ _id: "never" }), null);
  await assert.rejects(coll.insertOne({ _id: 1 }), { code: 11000 });
  failed.length = 0;

  await client.db("admin").command({ advanceClock: 10 });
  assert.equal(await coll.countDocuments({}), 0);
  await new Promise((resolve) => setTimeout(resolve, 1200));
  assert.equal(heartbeats.failed, 0);
  assert.ok(heartbeats.awaited >= 1, "the monitor streams");
  await db.dropDatabase();
  await client.close();
  assert.deepEqual(failed, []);
  console.log("done");
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
