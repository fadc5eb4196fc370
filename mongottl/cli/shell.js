// The globals of scripts of `mongottl shell`, by mongosh's names. Python gives __run, __list, __print, __read, __sleep
// and __database.

class __Quit {
  constructor(status) {
    this.status = status
  }
}

class MongoServerError extends Error {
  constructor(reply) {
    super(reply.errmsg)
    this.name = 'MongoServerError'
    this.code = reply.code
    this.codeName = reply.codeName
    this.errorResponse = reply
  }
}

// Runs a command; its reply, whatever it is.
function __command(database, command) {
  const document = typeof command === 'string' ? {[command]: 1} : command
  const reply = JSON.parse(__run(database, JSON.stringify(document)))
  if (reply.thrown !== undefined) throw new Error(reply.thrown)
  return reply
}

// The same, for methods that throw what a server refuses.
function __checked(database, command) {
  const reply = __command(database, command)
  if (reply.ok !== 1) throw new MongoServerError(reply)
  if (reply.writeErrors?.length) throw new MongoServerError(reply.writeErrors[0])
  return reply
}

class __Cursor {
  constructor(database, command) {
    this._database = database
    this._command = command
  }
  sort(keys) { this._command.sort = keys; return this }
  limit(number) { this._command.limit = number; return this }
  skip(number) { this._command.skip = number; return this }
  toArray() {
    const documents = JSON.parse(__list(this._database, JSON.stringify(this._command)))
    if (documents.errmsg !== undefined) throw new MongoServerError(documents)
    return documents
  }
  forEach(action) { this.toArray().forEach(action) }
  count() { return this.toArray().length }
}

class __Collection {
  constructor(database, name) {
    this._database = database
    this._name = name
  }
  getName() { return this._name }
  find(filter = {}, projection = {}) {
    return new __Cursor(this._database, {find: this._name, filter, projection})
  }
  findOne(filter = {}, projection = {}) { return this.find(filter, projection).limit(1).toArray()[0] ?? null }
  aggregate(pipeline = []) {
    return new __Cursor(this._database, {aggregate: this._name, pipeline, cursor: {}})
  }
  countDocuments(filter = {}) {
    const [found] = this.aggregate([{$match: filter}, {$count: 'n'}]).toArray()
    return found === undefined ? 0 : found.n
  }
  insertMany(documents) {
    const reply = __checked(this._database, {insert: this._name, documents})
    return {acknowledged: true, insertedCount: reply.n}
  }
  insertOne(document) { return this.insertMany([document]) }
  insert(documents) { return this.insertMany([documents].flat()) }
  _update(q, u, multi, upsert = false) {
    const reply = __checked(this._database, {update: this._name, updates: [{q, u, multi, upsert}]})
    return {acknowledged: true, matchedCount: reply.n, modifiedCount: reply.nModified}
  }
  updateOne(filter, update, options = {}) { return this._update(filter, update, false, options.upsert) }
  updateMany(filter, update, options = {}) { return this._update(filter, update, true, options.upsert) }
  replaceOne(filter, document, options = {}) { return this._update(filter, document, false, options.upsert) }
  _delete(q, limit) {
    const reply = __checked(this._database, {delete: this._name, deletes: [{q, limit}]})
    return {acknowledged: true, deletedCount: reply.n}
  }
  deleteOne(filter) { return this._delete(filter, 1) }
  deleteMany(filter) { return this._delete(filter, 0) }
  createIndex(key, options = {}) {
    const name = Object.entries(key).map(([path, kind]) => `${path}_${kind}`).join('_')
    __checked(this._database, {createIndexes: this._name, indexes: [{key, name, ...options}]})
    return options.name ?? name
  }
  createIndexes(keys, options = {}) { return keys.map(key => this.createIndex(key, options)) }
  getIndexes() {
    return new __Cursor(this._database, {listIndexes: this._name}).toArray()
  }
  drop() { return __command(this._database, {drop: this._name}).ok === 1 }
}

class __Database {
  constructor(name) {
    this._name = name
  }
  getName() { return this._name }
  getSiblingDB(name) { return __database_named(name) }
  getCollection(name) { return new __Collection(this._name, name) }
  getCollectionNames() {
    const command = {listCollections: 1, nameOnly: true}
    return new __Cursor(this._name, command).toArray().map(each => each.name).sort()
  }
  runCommand(command) { return __command(this._name, command) }
  adminCommand(command) { return __command('admin', command) }
  hello() { return __checked(this._name, {hello: 1}) }
  isMaster() { return __checked(this._name, {isMaster: 1}) }
  version() { return __checked('admin', {buildInfo: 1}).version }
  serverStatus() { return __checked('admin', {serverStatus: 1}) }
  stats() { return __checked(this._name, {dbStats: 1}) }
  createCollection(name, options = {}) { return __checked(this._name, {create: name, ...options}) }
  dropDatabase() { return __checked(this._name, {dropDatabase: 1}) }
  createUser({user, ...rest}) { return __checked(this._name, {createUser: user, ...rest}) }
  createRole({role, ...rest}) { return __checked(this._name, {createRole: role, ...rest}) }
  auth() { return {ok: 1} }
}

// A database also has its collections as properties.
function __database_named(name) {
  return new Proxy(new __Database(name), {
    get: (database, property) =>
      property in database || typeof property === 'symbol' ? database[property] : database.getCollection(property),
  })
}

const rs = {
  status: () => __checked('admin', {replSetGetStatus: 1}),
  conf: () => __checked('admin', {replSetGetConfig: 1}).config,
  hello: () => __checked('admin', {hello: 1}),
  isMaster: () => __checked('admin', {isMaster: 1}),
  // The set is there from the start, so that what initiates it finds its work done.
  initiate(configuration) {
    const reply = __command('admin', {replSetInitiate: configuration ?? {}})
    const set = __checked('admin', {hello: 1}).setName
    if (reply.code !== 23 || set === undefined) throw new MongoServerError(reply)
    if (configuration?._id !== undefined && configuration._id !== set)
      throw new Error(`the replica set is named ${set}: start the server with --replSet ${configuration._id}`)
    return {ok: 1}
  },
}

const sh = {
  // The data of all shards is this server's own from the start, so that what adds one finds its work done.
  addShard(shard) {
    if (__checked('admin', {hello: 1}).msg !== 'isdbgrid') throw new Error('the server is no mongos')
    return {shardAdded: shard.split('/')[0], ok: 1}
  },
}

const ISODate = text => ({$date: new Date(text ?? Date.now()).toISOString()})
const ObjectId = text => ({$oid: text})
const NumberInt = value => ({$numberInt: String(value)})
const NumberLong = value => ({$numberLong: String(value)})
const NumberDecimal = value => ({$numberDecimal: String(value)})
const UUID = text => ({$uuid: text})
Date.prototype.toJSON = function () { return {$date: this.toISOString()} }
RegExp.prototype.toJSON = function () {
  return {$regularExpression: {pattern: this.source, options: [...this.flags].filter(flag => 'ims'.includes(flag)).join('')}}
}

const __shown = value => (typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value))
const print = (...values) => { __print(values.map(__shown).join(' ')) }
const printjson = value => { __print(JSON.stringify(value, null, 2)) }
const console = {log: print, error: print, info: print, warn: print}
const sleep = milliseconds => { __sleep(milliseconds) }
// Evaluates a file, whose variables are then global.
const load = path => {
  const {text, failure} = JSON.parse(__read(path))
  if (failure !== undefined) throw new Error(failure)
  ;(0, eval)(text)
  return true
}
const quit = (status = 0) => { throw new __Quit(status) }
const exit = quit
const use = name => { globalThis.db = __database_named(name); return `switched to db ${name}` }
const Mongo = undefined
const process = {exit: quit, env: {}}
var db

// Evaluates a script. What is shown of its value, undefined for none; `quit:STATUS` if it has quit.
function __evaluate(text) {
  if (db === undefined) db = __database_named(__database)
  try {
    const value = (0, eval)(text)
    if (value === undefined) return undefined
    return value instanceof __Cursor ? JSON.stringify(value.toArray(), null, 2) : __shown(value)
  } catch (thrown) {
    if (thrown instanceof __Quit) return `quit:${Number(thrown.status) & 255}`
    throw thrown
  }
}
