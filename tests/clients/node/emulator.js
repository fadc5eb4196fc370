// Does what an application of Cosmos DB does with the emulator at MONGODB_URI, and prints the name of each part that has
// worked. The first thing that does not work ends it with an error.
const assert = require("node:assert/strict");
const { MongoClient } = require("mongodb");

async function main() {
  // The string as it is, without options: the environment says which certificate is trusted.
  const client = await MongoClient.connect(process.env.MONGODB_URI);
  const sessions = client.db("shop").collection("sessions");
  await sessions.createIndex({ _ts: 1 }, { expireAfterSeconds: 3600 });
  console.log("ttlIndex");
  await sessions.insertOne({ _id: 1, user: "ann" });
  assert.deepEqual(await sessions.findOne({ _id: 1 }), { _id: 1, user: "ann" });
  console.log("insertAndFind");
  await client.db("admin").command({ advanceClock: 3600 });
  assert.equal(await sessions.findOne({ _id: 1 }), null);
  console.log("expire");
  await assert.rejects(sessions.find().sort({ at: 1 }).toArray(), { code: 2, codeName: "BadValue" });
  console.log("sortWithoutIndex");
  await client.close();

  const asPortalsShowIt = decodeURIComponent(process.env.MONGODB_URI);
  assert.throws(() => new MongoClient(asPortalsShowIt), { message: "Password contains unescaped characters" });
  console.log("unencodedKey");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
