// client.js MODULE COLLECTION URI…: does at each URI what an application does with a driver of the module's version, and
// prints a line for it: the names of the parts that have worked, and behind a colon the error that ended it.
const [, , module_, collection, ...uris] = process.argv;
const { MongoClient } = require(module_);

async function use(uri, done) {
  const options = module_ === "mongodb-4.17" ? {} : module_ === "mongodb-2.2" ? {} : { useNewUrlParser: true };
  if (module_ === "mongodb-3.7") options.useUnifiedTopology = true;
  const connected = await MongoClient.connect(uri, options);
  try {
    const db = connected.db("shop");
    const things = db.collection(collection);
    await db.command({ buildInfo: 1 });
    done.push("connect");
    await things.insertMany(Array.from({ length: 250 }, (_, n) => ({ _id: n, a: n % 5 })));
    done.push("insert");
    if ((await things.find({}).batchSize(50).toArray()).length !== 250) throw new Error("not all found");
    done.push("find");
    const cursor = things.find({}).batchSize(10);
    await cursor.next();
    await cursor.close();
    done.push("close");
    await things.updateMany({ a: 1 }, { $set: { b: 1 } });
    if ((await things.find({ b: 1 }).toArray()).length !== 50) throw new Error("not all updated");
    done.push("update");
    const groups = await things.aggregate([{ $group: { _id: "$a", n: { $sum: 1 } } }], { cursor: {} }).toArray();
    if (groups.length !== 5) throw new Error("not all groups");
    done.push("aggregate");
    const failed = await things.insertOne({ _id: 1 }).then(() => ({}), (error) => error);
    if (failed.code !== 11000) throw new Error("no error for a duplicate key");
    done.push("duplicate");
    await things.createIndex({ a: 1 });
    await things.deleteMany({ a: 1 });
    await things.drop();
    done.push("drop");
  } finally {
    await connected.close();
  }
}

(async () => {
  for (const uri of uris) {
    const done = [];
    let error = "";
    await use(uri, done).catch((caught) => { error = String(caught.message).replace(/\s+/g, " "); });
    console.log(`${done.join(" ")}: ${error}`);
  }
  process.exit(0);
})();
