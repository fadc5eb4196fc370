// Does what an application with Mongoose does with the server at MONGODB_URI, and prints the name of each part that has
// worked. The first thing that does not work ends it with an error.
const assert = require("node:assert/strict");
const mongoose = require("mongoose");
const { Schema } = mongoose;

const uri = process.env.MONGODB_URI;

async function connect() {
  await mongoose.connect(uri, { dbName: "mongoose", serverSelectionTimeoutMS: 120_000 });
  assert.equal(mongoose.connection.readyState, 1);
  const { databases } = await mongoose.connection.listDatabases();
  assert.deepEqual(databases.map((database) => database.name), ["admin", "config", "local"]);
}

async function schemas() {
  const schema = new Schema(
    {
      name: { type: String, required: true, trim: true },
      email: { type: String, unique: true, lowercase: true },
      age: { type: Number, min: 0 },
      tags: [String],
      address: new Schema({ city: String, zip: String }, { _id: false }),
      scores: { type: Map, of: Number },
      price: Schema.Types.Decimal128,
      visits: BigInt,
      photo: Buffer,
      key: Schema.Types.UUID,
      extra: Schema.Types.Mixed,
    },
    { timestamps: true, optimisticConcurrency: true },
  );
  schema.index({ name: 1, age: -1 });
  const User = mongoose.model("User", schema);
  await User.init();
  assert.deepEqual((await User.listIndexes()).map((index) => index.name), ["_id_", "email_1", "name_1_age_-1"]);

  const ann = await User.create({
    name: " ann ", email: "ANN@example.org", age: 30, tags: ["a"], address: { city: "Paris" }, scores: { go: 1 },
    price: "1.10", visits: 2n ** 40n, photo: Buffer.from("abc"), key: "01234567-89ab-4def-8123-456789abcdef", extra: { x: [1] },
  });
  await assert.rejects(User.create({ age: 1 }), { name: "ValidationError" });
  await assert.rejects(User.create({ name: "bob", email: "ann@example.org" }), { code: 11000 });
  const found = await User.findById(ann.id);
  assert.deepEqual([found.name, found.address.city, found.scores.get("go"), found.visits], ["ann", "Paris", 1, 2n ** 40n]);
  assert.deepEqual([String(found.price), String(found.photo), found.key.toString()], ["1.10", "abc", ann.key.toString()]);
  assert.ok(found.createdAt instanceof Date);

  found.tags.push("b");
  found.scores.set("chess", 5);
  await found.save();
  ann.age = 31;
  await assert.rejects(ann.save(), { name: "VersionError" });
  const { createdAt, updatedAt } = await User.findOneAndUpdate({ name: "ann" }, { $inc: { age: 1 } }, { returnDocument: "after" }).lean();
  assert.ok(updatedAt >= createdAt);
  assert.equal((await User.updateOne({ name: "eve" }, { age: 5 }, { upsert: true })).upsertedCount, 1);
  assert.equal(await User.countDocuments({ tags: "b", "scores.chess": { $gt: 4 } }), 1);
  assert.deepEqual(await User.distinct("name"), ["ann", "eve"]);
  assert.deepEqual(await User.exists({ name: "nobody" }), null);
  let seen = 0;
  for await (const user of User.find().sort("name").cursor({ batchSize: 1 })) seen += user.name.length;
  assert.equal(seen, 6);
  assert.equal((await User.find({ name: /^A/i }).select("name -_id").lean())[0].name, "ann");
  const { queryPlanner } = await User.find({ name: "ann" }).explain("queryPlanner");
  assert.equal(queryPlanner.winningPlan.inputStage.indexName, "name_1_age_-1");
}

async function populate() {
  const Author = mongoose.model("Author", new Schema({ name: String }));
  const bookSchema = new Schema({
    title: String,
    author: { type: Schema.Types.ObjectId, ref: "Author" },
    reviews: [{ by: { type: Schema.Types.ObjectId, ref: "Author" }, stars: Number }],
  });
  const Book = mongoose.model("Book", bookSchema);
  Author.schema.virtual("books", { ref: "Book", localField: "_id", foreignField: "author", count: true });
  const [ann, bob] = await Author.insertMany([{ name: "ann" }, { name: "bob" }]);
  await Book.insertMany([
    { title: "one", author: ann, reviews: [{ by: bob, stars: 3 }] },
    { title: "two", author: ann, reviews: [] },
  ]);
  const book = await Book.findOne({ title: "one" }).populate("author").populate("reviews.by");
  assert.deepEqual([book.author.name, book.reviews[0].by.name], ["ann", "bob"]);
  assert.equal((await Author.findOne({ name: "ann" }).populate("books")).books, 2);
  const joined = await Author.aggregate()
    .lookup({ from: "books", localField: "_id", foreignField: "author", as: "books", pipeline: [{ $sort: { title: -1 } }] })
    .sort({ name: 1 })
    .project({ name: 1, titles: "$books.title" });
  assert.deepEqual(joined.map((author) => author.titles), [["two", "one"], []]);
}

async function discriminators() {
  const Event = mongoose.model("Event", new Schema({ at: Number }, { discriminatorKey: "kind" }));
  const Click = Event.discriminator("Click", new Schema({ url: { type: String, index: true } }));
  const SignUp = Event.discriminator("SignUp", new Schema({ user: String }));
  await Promise.all([Event.init(), Click.init(), SignUp.init()]);
  await Click.create({ at: 1, url: "/" });
  await SignUp.create({ at: 2, user: "ann" });
  await Event.create({ at: 3 });
  assert.equal(await Click.countDocuments(), 1);
  const events = await Event.find().sort("at");
  assert.deepEqual(events.map((event) => event.constructor.modelName), ["Click", "SignUp", "Event"]);
}

async function writes() {
  const Item = mongoose.model("Item", new Schema({ n: Number, list: [Number] }, { timestamps: true }));
  const items = Array.from({ length: 20 }, (_, n) => new Item({ n, list: [n] }));
  const inserted = await Item.bulkSave(items);
  assert.equal(inserted.insertedCount, 20);
  items.forEach((item) => item.list.push(100));
  assert.equal((await Item.bulkSave(items)).modifiedCount, 20);
  const bulk = await Item.bulkWrite([
    { insertOne: { document: { n: 20 } } },
    { updateMany: { filter: { n: { $gte: 10, $lt: 20 } }, update: { $set: { "list.$[one]": 0 } }, arrayFilters: [{ one: { $lt: 100 } }] } },
    { deleteOne: { filter: { n: 0 } } },
    { replaceOne: { filter: { n: 1 }, replacement: { n: -1 } } },
  ]);
  assert.deepEqual([bulk.insertedCount, bulk.modifiedCount, bulk.deletedCount], [1, 11, 1]);
  assert.deepEqual((await Item.findOne({ n: 19 })).list, [0, 100]);
}

async function transactions() {
  const Account = mongoose.model("Account", new Schema({ _id: String, balance: Number }));
  await Account.create([{ _id: "ann", balance: 10 }, { _id: "bob", balance: 0 }]);
  await mongoose.connection.transaction(async (session) => {
    const ann = await Account.findById("ann").session(session);
    ann.balance -= 4;
    await ann.save();
    await Account.updateOne({ _id: "bob" }, { $inc: { balance: 4 } }, { session });
    assert.equal((await Account.findById("ann")).balance, 10);
  });
  const session = await mongoose.startSession();
  await assert.rejects(
    session.withTransaction(async () => {
      await Account.create([{ _id: "eve", balance: 1 }], { session });
      throw new Error("given up");
    }),
    { message: "given up" },
  );
  await session.endSession();
  assert.deepEqual((await Account.find().sort("_id").lean()).map((account) => account.balance), [6, 4]);
}

async function watch() {
  const Message = mongoose.model("Message", new Schema({ text: String }));
  await Message.createCollection();
  const stream = Message.watch([{ $match: { operationType: "insert" } }], { hydrate: true, fullDocument: "updateLookup" });
  await new Promise((resolve) => stream.once("ready", resolve));
  const seen = new Promise((resolve, reject) => stream.once("change", resolve).once("error", reject));
  // The driver opens the stream when something listens; until then there is nothing to see.
  while (!stream.driverChangeStream.cursor?.id) await new Promise((resolve) => setTimeout(resolve, 1));
  await Message.create({ text: "hello" });
  assert.equal((await seen).fullDocument.text, "hello");
  await stream.close();
}

async function ttl() {
  const Session = mongoose.model("Session", new Schema({ user: String, at: { type: Date, expires: 60, default: Date.now } }));
  await Session.init();
  assert.equal((await Session.listIndexes())[1].expireAfterSeconds, 60);
  const cosmos = new Schema({ ttl: Number }, { autoIndex: false });
  cosmos.index({ _ts: 1 }, { expireAfterSeconds: 10 });
  const Cached = mongoose.model("Cached", cosmos);
  await Cached.createIndexes();
  await Session.create({ user: "ann" });
  await Cached.create([{}, { ttl: 20 }, { ttl: -1 }]);
  const admin = mongoose.connection.db.admin();
  for (const left of [2, 1]) {
    await admin.command({ advanceClock: 10 });
    assert.equal(await Cached.countDocuments(), left);
  }
  await admin.command({ advanceClock: 60 });
  assert.equal(await Session.countDocuments(), 0);
}

async function indexes() {
  const Place = mongoose.model("Place", new Schema({ name: String, at: { type: [Number], index: "2dsphere" }, code: Number }));
  Place.schema.index({ code: 1 }, { partialFilterExpression: { code: { $gt: 5 } }, name: "codes" });
  Place.schema.index({ name: "text" });
  assert.deepEqual((await Place.diffIndexes()).toCreate.length, 3);
  await Place.syncIndexes();
  assert.deepEqual((await Place.listIndexes()).length, 4);
  await Place.create([{ name: "Eiffel tower", at: [2.29, 48.86] }, { name: "Big Ben", at: [-0.12, 51.5] }]);
  const near = { $near: { $geometry: { type: "Point", coordinates: [2, 48] }, $maxDistance: 200_000 } };
  assert.equal((await Place.findOne({ at: near })).name, "Eiffel tower");
  assert.equal((await Place.findOne({ $text: { $search: "towers" } })).name, "Eiffel tower");
  Place.schema._indexes.pop();
  assert.deepEqual(await Place.syncIndexes(), ["name_text"]);
  const sorted = mongoose.model("Sorted", new Schema({ name: String }, { collation: { locale: "en", strength: 2 } }));
  await sorted.createCollection();
  const capped = mongoose.model("Capped", new Schema({ n: Number }, { capped: { size: 4096, max: 2 } }));
  await capped.createCollection();
  await capped.insertMany([{ n: 1 }, { n: 2 }, { n: 3 }]);
  assert.deepEqual((await capped.find()).map((document) => document.n), [2, 3]);
}

async function main() {
  for (const part of [connect, schemas, populate, discriminators, writes, transactions, watch, ttl, indexes]) {
    await part();
    console.log(part.name);
  }
  await mongoose.connection.dropDatabase();
  await mongoose.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
