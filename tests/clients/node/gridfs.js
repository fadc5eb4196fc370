// Stores and reads files by the driver's bucket on the server at MONGODB_URI, and prints the name of each part that has
// worked. The first thing that does not work ends it with an error.
const assert = require("node:assert/strict");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const { MongoClient, GridFSBucket } = require("mongodb");

const FIRST = "first ".repeat(1000);
const SECOND = "second ".repeat(1000);

async function upload(bucket, name, text) {
  const stream = bucket.openUploadStream(name);
  await pipeline(Readable.from([Buffer.from(text)]), stream);
  return stream.id;
}

async function contents(stream) {
  return Buffer.concat(await stream.toArray()).toString();
}

async function main() {
  const client = await MongoClient.connect(process.env.MONGODB_URI);
  const bucket = new GridFSBucket(client.db("shop"), { chunkSizeBytes: 1024 });
  const id = await upload(bucket, "report", FIRST);
  await new Promise((resolve) => setTimeout(resolve, 20)); // versions are ordered by their milliseconds
  await upload(bucket, "report", SECOND);
  console.log("upload");
  assert.equal(await contents(bucket.openDownloadStream(id)), FIRST);
  assert.equal(await contents(bucket.openDownloadStream(id, { start: 2000, end: 2010 })), FIRST.slice(2000, 2010));
  console.log("downloadById");
  assert.equal(await contents(bucket.openDownloadStreamByName("report")), SECOND);
  assert.equal(await contents(bucket.openDownloadStreamByName("report", { revision: 0 })), FIRST);
  assert.equal(await contents(bucket.openDownloadStreamByName("report", { revision: -2 })), FIRST);
  console.log("downloadByName");
  await bucket.rename(id, "renamed");
  assert.equal(await contents(bucket.openDownloadStreamByName("renamed")), FIRST);
  await bucket.delete(id);
  assert.equal((await bucket.find({}).toArray()).length, 1);
  console.log("renameAndDelete");
  await client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
