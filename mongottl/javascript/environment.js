// What scripts see besides ECMAScript: the types of BSON and the functions that MongoDB's manual lists for server-side
// JavaScript ("mapReduce", "$where": available properties and functions).
//
// The value of this file is a function `invoke(request)`, which the worker calls for each request; requests and replies
// are JSON, with values as `mongottl/javascript/values.py` describes them.
(function () {
"use strict";

const global = globalThis;
const { parse, stringify } = JSON;
const { defineProperty, getPrototypeOf, setPrototypeOf, freeze, keys, create } = Object;
const isArray = Array.isArray;
const RealDate = Date;
const realNow = Date.now;
const evaluate = eval; // indirect, so it runs in the global scope and in sloppy mode, as in MongoDB

const TAG = "\0"; // no BSON field has this name
const MAX_DEPTH = 150;
const MAX_LINES = 100, MAX_LINE_LENGTH = 1000; // of what one call prints
const INT_MIN = -2147483648, INT_MAX = 2147483647;

// By document: the names of its fields that are int32 in BSON. A number assigned to one of them later stays an int32
// if it can be one; all other numbers of scripts are doubles.
const intFields = new WeakMap();
// By RegExp: pattern and options as they are stored, which JavaScript may write otherwise.
const storedRegExps = new WeakMap();
const storedFunctions = new WeakMap(); // by function: the Code that it was made of
const printed = [];
let emitted = null;
let clockOffsetMs = 0;

function hide(object, name, value) {
  defineProperty(object, name, { value, writable: true, configurable: true, enumerable: false });
}

// A constructor that also works without `new`, as those of the shell do.
function define(name, length, construct, methods) {
  const type = {
    [name]: function (...args) {
      const object = new.target ? this : create(type.prototype);
      construct.apply(object, args);
      return object;
    },
  }[name];
  defineProperty(type, "length", { value: length });
  for (const method of keys(methods)) hide(type.prototype, method, methods[method]);
  hide(global, name, type);
  return type;
}

function show(name, ...args) {
  return `${name}(${args.map((arg) => stringify(arg)).join(", ")})`;
}

// Numbers

const longs = new WeakMap(); // by NumberLong: a BigInt
const NumberLong = define("NumberLong", 1, function (value = 0, bottom) {
  let number;
  if (bottom !== undefined) number = BigInt.asIntN(64, (BigInt(value) << 32n) | BigInt.asUintN(32, BigInt(bottom)));
  else if (value instanceof NumberLong) number = longs.get(value);
  else if (typeof value === "bigint") number = value;
  else if (typeof value === "string") {
    if (!/^\s*[-+]?\d+\s*$/.test(value)) throw new Error(`could not convert string to long long: ${value}`);
    number = BigInt(value.trim().replace(/^\+/, ""));
  } else {
    const double = Number(value);
    if (double !== double) number = 0n;
    else if (double >= 9223372036854775807) number = 9223372036854775807n;
    else if (double <= -9223372036854775808) number = -9223372036854775808n;
    else number = BigInt(Math.trunc(double));
  }
  if (BigInt.asIntN(64, number) !== number) throw new Error(`could not convert string to long long: ${value}`);
  longs.set(this, number);
}, {
  toNumber() { return Number(longs.get(this)); },
  valueOf() { return Number(longs.get(this)); },
  exactValueString() { return String(longs.get(this)); },
  toString() {
    const number = longs.get(this);
    return number >= INT_MIN && number <= INT_MAX ? `NumberLong(${number})` : `NumberLong("${number}")`;
  },
  compare(other) {
    const a = longs.get(this), b = longs.get(other instanceof NumberLong ? other : NumberLong(other));
    return a < b ? -1 : a > b ? 1 : 0;
  },
});
defineProperty(NumberLong.prototype, "floatApprox", { get() { return Number(longs.get(this)); } });
defineProperty(NumberLong.prototype, "top", { get() { return Number(longs.get(this) >> 32n); } });
defineProperty(NumberLong.prototype, "bottom", { get() { return Number(BigInt.asUintN(32, longs.get(this))); } });

const ints = new WeakMap(); // by NumberInt: a number
const NumberInt = define("NumberInt", 1, function (value = 0) { ints.set(this, Number(value) | 0); }, {
  toNumber() { return ints.get(this); },
  valueOf() { return ints.get(this); },
  toString() { return `NumberInt(${ints.get(this)})`; },
});

const decimals = new WeakMap(); // by NumberDecimal: its text, and its bytes in hexadecimal if it comes from BSON
const NumberDecimal = define("NumberDecimal", 1, function (value = "0", bytes = "") {
  const text = value instanceof NumberDecimal ? decimals.get(value)[0] : String(value).trim();
  if (!/^[-+]?(\d+\.?\d*(e[-+]?\d+)?|\.\d+(e[-+]?\d+)?|nan|inf(inity)?)$/i.test(text))
    throw new Error(`Input is not a valid Decimal128 value.`);
  decimals.set(this, [text, bytes]);
}, {
  toString() { return `NumberDecimal("${decimals.get(this)[0]}")`; },
});

// Other types

let nextObjectId = 0;
const objectIds = new WeakMap(); // 24 hexadecimal digits
const ObjectId = define("ObjectId", 1, function (hex) {
  if (hex === undefined) {
    const seconds = Math.floor(now() / 1000).toString(16).padStart(8, "0");
    if (nextObjectId === 0) nextObjectId = Math.floor(Math.random() * 2 ** 40);
    const rest = (BigInt(nextObjectId++) * 16777213n + 7n) & 0xffffffffffffffffn;
    hex = seconds + rest.toString(16).padStart(16, "0");
  } else if (hex instanceof ObjectId) hex = objectIds.get(hex);
  if (typeof hex !== "string" || !/^[0-9a-f]{24}$/i.test(hex)) throw new Error("invalid object id: length");
  objectIds.set(this, hex.toLowerCase());
}, {
  toString() { return `ObjectId("${objectIds.get(this)}")`; },
  valueOf() { return objectIds.get(this); },
  getTimestamp() { return new RealDate(parseInt(objectIds.get(this).slice(0, 8), 16) * 1000); },
  equals(other) { return other instanceof ObjectId && objectIds.get(this) === objectIds.get(other); },
});
defineProperty(ObjectId.prototype, "str", { get() { return objectIds.get(this); } });
hide(global, "ObjectID", ObjectId);

const Timestamp = define("Timestamp", 2, function (t = 0, i = 0) {
  for (const part of [t, i])
    if (typeof part !== "number" || part < 0 || part > 4294967295)
      throw new Error("Timestamp time and increment must be non-negative and not greater than 4294967295");
  this.t = t;
  this.i = i;
}, {
  getTime() { return this.t; },
  getInc() { return this.i; },
  toString() { return `Timestamp(${this.t}, ${this.i})`; },
});
hide(Timestamp.prototype, "tojson", Timestamp.prototype.toString);

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function hexOfBase64(text) {
  if (!/^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) throw new Error("invalid base64");
  let hex = "";
  for (let at = 0; at < text.length; at += 4) {
    let bits = 0;
    for (let i = 0; i < 4; i++) bits = bits * 64 + Math.max(0, DIGITS.indexOf(text[at + i]));
    const part = bits.toString(16).padStart(6, "0");
    hex += text[at + 2] === "=" ? part.slice(0, 2) : text[at + 3] === "=" ? part.slice(0, 4) : part;
  }
  return hex;
}

function base64OfHex(hex) {
  let text = "";
  for (let at = 0; at < hex.length; at += 6) {
    const part = hex.slice(at, at + 6);
    const bits = parseInt(part.padEnd(6, "0"), 16);
    for (let i = 0; i < 4; i++)
      text += i * 6 < part.length * 4 ? DIGITS[(bits >> (18 - 6 * i)) & 63] : "=";
  }
  return text;
}

function checkedHex(hex, what) {
  if (typeof hex !== "string" || hex.length % 2 || !/^[0-9a-f]*$/i.test(hex)) throw new Error(`invalid ${what}`);
  return hex.toLowerCase();
}

const binaries = new WeakMap(); // subtype and hexadecimal digits
const BinData = define("BinData", 2, function (subtype, base64) {
  if (typeof subtype !== "number" || subtype < 0 || subtype > 255)
    throw new Error("invalid BinData subtype -- range is 0..255");
  binaries.set(this, [subtype, hexOfBase64(String(base64))]);
}, {
  length() { return binaries.get(this)[1].length / 2; },
  subtype() { return binaries.get(this)[0]; },
  hex() { return binaries.get(this)[1]; },
  base64() { return base64OfHex(binaries.get(this)[1]); },
  toString() {
    const [subtype, hex] = binaries.get(this);
    return subtype === 4 && hex.length === 32 ? `UUID("${dashed(hex)}")` : `BinData(${subtype},"${base64OfHex(hex)}")`;
  },
});
hide(BinData.prototype, "len", BinData.prototype.length);
defineProperty(BinData.prototype, "type", { get() { return binaries.get(this)[0]; } });

function binary(subtype, hex) {
  const object = create(BinData.prototype);
  binaries.set(object, [subtype, hex]);
  return object;
}

function dashed(hex) {
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

hide(global, "HexData", function HexData(subtype, hex) { return binary(subtype, checkedHex(hex, "hex data")); });
hide(global, "MD5", function MD5(hex) { return binary(5, checkedHex(hex, "MD5")); });
hide(global, "UUID", function UUID(text) {
  if (text === undefined) {
    let hex = "";
    while (hex.length < 32) hex += Math.floor(Math.random() * 16).toString(16);
    return binary(4, hex.slice(0, 12) + "4" + hex.slice(13, 16) + "89ab"[parseInt(hex[16], 16) & 3] + hex.slice(17));
  }
  const hex = checkedHex(String(text).replace(/-/g, ""), "UUID");
  if (hex.length !== 32) throw new Error("UUID string must have 36 characters");
  return binary(4, hex);
});

const DBRef = define("DBRef", 2, function (collection, id, database) {
  this.$ref = collection;
  this.$id = id;
  if (database !== undefined) this.$db = database;
}, {
  getCollection() { return this.$ref; },
  getRef() { return this.$ref; },
  getId() { return this.$id; },
  getDb() { return this.$db; },
});

const DBPointer = define("DBPointer", 2, function (namespace, id) {
  this.ns = namespace;
  this.id = id;
}, {
  toString() { return `DBPointer("${this.ns}", ${this.id})`; },
});

const Code = define("Code", 2, function (code = "", scope) {
  this.code = String(code);
  if (scope !== undefined) this.scope = scope;
}, {
  toString() { return `Code(${tojson({ code: this.code, scope: this.scope || null }, "", true)})`; },
});

// MinKey and MaxKey are values and, called, give themselves, as in the shell.
function key(name) {
  const object = { [name]: function () { return object; } }[name];
  hide(object, "toString", () => `{ "$${name[0].toLowerCase()}${name.slice(1)}" : 1 }`);
  hide(global, name, object);
  return object;
}
const MinKey = key("MinKey");
const MaxKey = key("MaxKey");

// Dates: the server's clock, not the machine's.

function now() { return realNow() + clockOffsetMs; }

function ServerDate(...args) {
  if (!new.target) return new RealDate(now()).toString();
  return Reflect.construct(RealDate, args.length ? args : [now()], new.target);
}
ServerDate.prototype = RealDate.prototype;
hide(ServerDate, "now", now);
hide(ServerDate, "parse", RealDate.parse);
hide(ServerDate, "UTC", RealDate.UTC);
defineProperty(ServerDate, "name", { value: "Date" });
defineProperty(ServerDate, "length", { value: 7 });
hide(RealDate.prototype, "constructor", ServerDate);
hide(global, "Date", ServerDate);

hide(global, "ISODate", function ISODate(text) {
  if (text === undefined) return new RealDate(now());
  const found = /^(\d{4})-?(\d\d)-?(\d\d)([T ](\d\d)(:?(\d\d)(:?(\d\d(\.\d+)?))?)?(Z|[+-]\d\d:?\d\d)?)?$/.exec(text);
  if (!found) throw new Error(`invalid ISO date: ${text}`);
  const [, year, month, day, , hour = 0, , minute = 0, , second = 0, , zone] = found;
  let ms = RealDate.UTC(0, month - 1, day, hour, minute, 0) + Math.round(Number(second) * 1000);
  const date = new RealDate(ms);
  date.setUTCFullYear(date.getUTCFullYear() - 1900 + Number(year));
  ms = date.getTime();
  if (zone && zone !== "Z") {
    const minutes = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(-2));
    ms -= (zone[0] === "-" ? -1 : 1) * minutes * 60000;
  }
  if (ms !== ms) throw new Error(`invalid ISO date: ${text}`);
  return new RealDate(ms);
});

// Values from the server and to it

function decodeSpecial(object) {
  switch (object[TAG]) {
    case "long": return NumberLong(object.v);
    case "double": return Number(object.v);
    case "decimal": return NumberDecimal(object.v, object.b);
    case "objectId": return ObjectId(object.v);
    case "date": return new RealDate(object.v);
    case "undefined": return undefined;
    case "binary": return binary(object.s, object.v);
    case "timestamp": return Timestamp(object.t, object.i);
    case "regex": {
      const expression = new RegExp(object.v, object.o.replace(/[^imsu]/g, ""));
      storedRegExps.set(expression, [expression.source, expression.flags, object.v, object.o]);
      return expression;
    }
    case "code": return decodeCode(object);
    case "pointer": return DBPointer(object.v, ObjectId(object.i));
    case "minKey": return MinKey;
    case "maxKey": return MaxKey;
  }
  throw new Error(`unknown type ${object[TAG]}`);
}

// As in MongoDB, code is a function that scripts can call. What is no function stays a Code.
function decodeCode(object) {
  const scope = object.s === undefined ? undefined : decode(object.s);
  try {
    const found = compile(object.v);
    storedFunctions.set(found, scope === undefined ? Code(object.v) : Code(object.v, scope));
    return found;
  } catch (error) {
    return scope === undefined ? Code(object.v) : Code(object.v, scope);
  }
}

// Decodes in place.
function decode(value) {
  if (typeof value !== "object" || value === null) return value;
  if (isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const item = value[i];
      if (typeof item === "object" && item !== null) value[i] = decode(item);
    }
    return value;
  }
  const tag = value[TAG];
  if (typeof tag === "string") return decodeSpecial(value);
  if (tag !== undefined) {
    delete value[TAG];
    const names = new Set();
    for (const name of tag) names.add(name);
    intFields.set(value, names);
  }
  for (const name of keys(value)) {
    const item = value[name];
    if (typeof item === "object" && item !== null)
      defineProperty(value, name, { value: decode(item), writable: true, enumerable: true, configurable: true });
  }
  if ("$ref" in value && "$id" in value) setPrototypeOf(value, DBRef.prototype);
  return value;
}

function encodeNumber(number, integer) {
  if (integer && number >= INT_MIN && number <= INT_MAX && Number.isInteger(number)) return { [TAG]: "int", v: number };
  if (number !== number || number === Infinity || number === -Infinity || (number === 0 && 1 / number < 0))
    return { [TAG]: "double", v: number === 0 ? "-0" : String(number) };
  return number;
}

function encodeDate(date) {
  const ms = RealDate.prototype.getTime.call(date);
  if (ms !== ms) throw new RangeError("cannot convert an invalid Date to BSON");
  return { [TAG]: "date", v: ms };
}

function encode(value, depth, integer) {
  switch (typeof value) {
    case "string":
    case "boolean": return value;
    case "number": return encodeNumber(value, integer);
    case "undefined": return { [TAG]: "undefined" };
    case "bigint": return { [TAG]: "long", v: String(longs.get(NumberLong(value))) };
    case "function":
      if (value === MinKey) return { [TAG]: "minKey" };
      if (value === MaxKey) return { [TAG]: "maxKey" };
      if (storedFunctions.has(value)) return encode(storedFunctions.get(value), depth, false);
      return { [TAG]: "code", v: Function.prototype.toString.call(value) };
    case "symbol": throw new TypeError("cannot convert a symbol to BSON");
  }
  if (value === null) return null;
  if (depth > MAX_DEPTH) {
    const error = new Error(
      `Exceeded depth limit of ${MAX_DEPTH} when converting js object to BSON. Do you have a cycle?`);
    error.code = 17279;
    throw error;
  }
  if (isArray(value)) {
    const items = [];
    for (let i = 0; i < value.length; i++) items[i] = encode(value[i], depth + 1, false);
    return items;
  }
  if (longs.has(value)) return { [TAG]: "long", v: String(longs.get(value)) };
  if (objectIds.has(value)) return { [TAG]: "objectId", v: objectIds.get(value) };
  if (ints.has(value)) return { [TAG]: "int", v: ints.get(value) };
  if (decimals.has(value)) {
    const [text, bytes] = decimals.get(value);
    return { [TAG]: "decimal", v: text, b: bytes };
  }
  if (binaries.has(value)) {
    const [subtype, hex] = binaries.get(value);
    return { [TAG]: "binary", s: subtype, v: hex };
  }
  if (value instanceof RealDate) return encodeDate(value);
  if (value instanceof RegExp) return encodeRegExp(value);
  if (value instanceof Timestamp) return { [TAG]: "timestamp", t: value.t, i: value.i };
  if (value instanceof Code) {
    const code = { [TAG]: "code", v: value.code };
    if (value.scope !== undefined) code.s = encode(value.scope, depth + 1, false);
    return code;
  }
  if (value instanceof DBPointer) return { [TAG]: "pointer", v: value.ns, i: value.id.str };
  if (value instanceof Number || value instanceof String || value instanceof Boolean) return value.valueOf();
  const integers = intFields.get(value);
  const fields = create(null);
  for (const name of keys(value)) {
    if (name.includes("\0")) throw new Error("JavaScript property (name) contains a null char which is not allowed in BSON");
    fields[name] = encode(value[name], depth + 1, integers !== undefined && integers.has(name));
  }
  return fields;
}

function encodeRegExp(expression) {
  const stored = storedRegExps.get(expression);
  if (stored && stored[0] === expression.source && stored[1] === expression.flags)
    return { [TAG]: "regex", v: stored[2], o: stored[3] };
  return { [TAG]: "regex", v: expression.source, o: expression.flags.replace(/[^imsu]/g, "") };
}

// Functions

function isNumber(value) { return typeof value === "number"; }
function isString(value) { return typeof value === "string"; }
function isObject(value) { return typeof value === "object" && value !== null; }

function tojson(value, indent = "", oneLine = false, depth = 0) {
  switch (typeof value) {
    case "string": return stringify(value);
    case "undefined": return "undefined";
    case "function": return value === MinKey || value === MaxKey ? value.toString() : String(value);
    case "object": break;
    default: return String(value);
  }
  if (value === null) return "null";
  if (depth > MAX_DEPTH) return "[Object]";
  if (isArray(value)) {
    if (value.length === 0) return oneLine ? "[ ]" : "[ ]";
    const inner = indent + "\t";
    const items = Array.from(value, (item) => tojson(item, inner, oneLine, depth + 1));
    return oneLine ? `[ ${items.join(", ")} ]` : `[\n${inner}${items.join(`,\n${inner}`)}\n${indent}]`;
  }
  return tojsonObject(value, indent, oneLine, depth);
}

function tojsonObject(value, indent = "", oneLine = false, depth = 0) {
  if (value instanceof RealDate) {
    const ms = value.getTime();
    return ms === ms ? `ISODate(${stringify(value.toISOString().replace(".000Z", "Z"))})` : "ISODate(\"\")";
  }
  if (value instanceof RegExp || value instanceof Code || value instanceof DBPointer || value instanceof Timestamp)
    return value.toString();
  for (const known of [longs, ints, decimals, objectIds, binaries]) if (known.has(value)) return value.toString();
  if (value instanceof DBRef) return show("DBRef", value.$ref).slice(0, -1) + `, ${tojson(value.$id, "", true)})`;
  const names = keys(value);
  if (names.length === 0) return "{ }";
  const inner = indent + "\t";
  const members = names.map((name) => `${stringify(name)} : ${tojson(value[name], inner, oneLine, depth + 1)}`);
  return oneLine ? `{ ${members.join(", ")} }` : `{\n${inner}${members.join(`,\n${inner}`)}\n${indent}}`;
}

function tojsononeline(value) { return tojson(value, " ", true); }

function print(...args) {
  if (printed.length > MAX_LINES) return;
  const line = printed.length < MAX_LINES ? args.map((arg) => String(arg)).join(" ") : "more lines of this call are left out";
  printed.push(line.length <= MAX_LINE_LENGTH ? line : line.slice(0, MAX_LINE_LENGTH) + "…");
}

function doassert(message) {
  throw message instanceof Error ? message : new Error(typeof message === "string" ? message : tojson(message));
}

function assert(holds, message) {
  if (holds) return;
  const text = typeof message === "function" ? message() : message;
  doassert(text === undefined ? "assert failed" : `assert failed : ${typeof text === "string" ? text : tojson(text)}`);
}

// RFC 1321.
function hex_md5(text) {
  const bytes = [];
  for (const char of encodeURIComponent(String(text)).match(/%..|[^%]/g) || [])
    bytes.push(char.length === 3 ? parseInt(char.slice(1), 16) : char.charCodeAt(0));
  const length = bytes.length;
  bytes.push(128);
  while (bytes.length % 64 !== 56) bytes.push(0);
  for (let i = 0; i < 8; i++) bytes.push(Math.floor((length * 8) / 2 ** (8 * i)) & 255);
  const shifts = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
  let state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
  for (let block = 0; block < bytes.length; block += 64) {
    const word = (i) => bytes[block + 4 * i] | (bytes[block + 4 * i + 1] << 8) | (bytes[block + 4 * i + 2] << 16)
      | (bytes[block + 4 * i + 3] << 24);
    let [a, b, c, d] = state;
    for (let i = 0; i < 64; i++) {
      const round = i >> 4;
      const mixed = round === 0 ? (b & c) | (~b & d) : round === 1 ? (d & b) | (~d & c) : round === 2 ? b ^ c ^ d : c ^ (b | ~d);
      const at = round === 0 ? i : round === 1 ? (5 * i + 1) % 16 : round === 2 ? (3 * i + 5) % 16 : (7 * i) % 16;
      const sum = (a + mixed + Math.floor(Math.abs(Math.sin(i + 1)) * 4294967296) + word(at)) | 0;
      const shift = shifts[round][i % 4];
      [a, d, c, b] = [d, c, b, (b + ((sum << shift) | (sum >>> (32 - shift)))) | 0];
    }
    state = [(state[0] + a) | 0, (state[1] + b) | 0, (state[2] + c) | 0, (state[3] + d) | 0];
  }
  return state.map((word) => [0, 8, 16, 24].map((bit) => ((word >>> bit) & 255).toString(16).padStart(2, "0")).join("")).join("");
}

function sleep(ms) {
  const end = realNow() + Number(ms);
  while (realNow() < end);
}

for (const known of [isNumber, isString, isObject, tojson, tojsonObject, tojsononeline, print, doassert, assert, hex_md5, sleep])
  hide(global, known.name, known);
hide(global, "printjson", function printjson(value) { print(tojson(value)); });
hide(global, "printjsononeline", function printjsononeline(value) { print(tojsononeline(value)); });
hide(global, "gc", function gc() {});
hide(global, "version", function version() { return serverVersion; });
hide(global, "args", undefined);
delete global.performance;
let serverVersion = "";

hide(global, "emit", function emit(key, value) {
  if (emitted === null) throw new Error("emit is only available in the map function of mapReduce");
  if (arguments.length !== 2) throw new Error("emit takes 2 args");
  emitted.push([encode(key === undefined ? null : key, 0, false), encode(value, 0, false)]);
});

hide(Array, "contains", (array, item) => array.some((other) => other == item));
hide(Array, "sum", (array) => array.length === 0 ? null : array.reduce((sum, item) => sum + item));
hide(Array, "avg", (array) => array.length === 0 ? null : Array.sum(array) / array.length);
hide(Array, "stdDev", (array) => {
  const mean = Array.avg(array);
  return Math.sqrt(array.reduce((sum, item) => sum + (item - mean) ** 2, 0) / array.length);
});
hide(Array, "unique", (array) => array.filter((item, i) => array.findIndex((other) => other == item) === i));
hide(Array, "shuffle", (array) => {
  for (let i = array.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [array[i], array[j]] = [array[j], array[i]];
  }
  return array;
});
hide(Array, "tojson", (array, indent, oneLine) => tojson(array, indent, oneLine));
hide(Object, "extend", (target, source) => Object.assign(target, source));
hide(String.prototype, "ltrim", String.prototype.trimStart);
hide(String.prototype, "rtrim", String.prototype.trimEnd);

// The engine turns an exception that leaves a script into text by its `toString`, where no time limit applies. So
// scripts cannot replace it.
for (const type of [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, InternalError, AggregateError]) {
  defineProperty(type.prototype, Symbol.toPrimitive, { value: undefined });
  freeze(type.prototype);
}
defineProperty(Error, "prepareStackTrace", { value: undefined });
defineProperty(Error, "stackTraceLimit", { value: 10 });

// Requests

const functions = new Map();

// A function, an expression, or the statements of a function's body.
function compile(code) {
  const text = code.trim();
  if (/^(async\s+)?function\b|^(async\s+)?(\([^()]*\)|[A-Za-z_$][\w$]*)\s*=>/.test(text)) {
    try {
      const found = evaluate(`(${text.replace(/;+$/, "")}\n)`);
      if (typeof found === "function") return found;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
  }
  try {
    return Function(`return (${text.replace(/;+$/, "")}\n)`);
  } catch (error) {
    return Function(code);
  }
}

function functionOf(code) {
  let found = functions.get(code);
  if (found === undefined) {
    found = compile(code);
    functions.set(code, found);
  }
  return found;
}

const requests = {
  begin([nowMs, version]) {
    clockOffsetMs = nowMs - realNow();
    serverVersion = version;
    return null;
  },
  scope([variables]) {
    const scope = decode(variables);
    for (const name of keys(scope)) hide(global, name, scope[name]);
    return null;
  },
  // Whether a document matches.
  where([code, document]) {
    const found = functionOf(code);
    const self = decode(document);
    hide(global, "obj", self);
    return Boolean(found.call(self));
  },
  // The same for the first of these documents: until a millisecond is over, or the function fails.
  whereSome([code, documents]) {
    const end = realNow() + 1;
    const found = [];
    try {
      for (const document of documents) {
        found.push(requests.where([code, document]));
        if (realNow() > end) break;
      }
    } catch (error) {
      // Fails again for this document, if it is asked about.
    }
    return found;
  },
  // The value of a function.
  call([code, args]) {
    return encode(functionOf(code).apply({}, decode(args)), 0, false);
  },
  // The state of an $accumulator after these arguments.
  accumulate([code, state, calls]) {
    const found = functionOf(code);
    let current = decode(state);
    for (const args of calls) current = found.apply({}, [current, ...decode(args)]);
    return encode(current, 0, false);
  },
  // The [key, value] pairs that a map function emits for documents, a list for each document.
  map([code, documents]) {
    const found = functionOf(code);
    try {
      return documents.map((document) => {
        emitted = [];
        found.call(decode(document));
        return emitted;
      });
    } finally {
      emitted = null;
    }
  },
};

function describe(error) {
  if (error instanceof Error) {
    const code = Number.isInteger(error.code) && error.code > 0 && error.code <= INT_MAX ? error.code : 0;
    return { error: `${error.name}: ${error.message}`, stack: String(error.stack || ""), code };
  }
  if (error === null) return { error: "uncaught exception: null, or out of memory", stack: "", code: 0 };
  return { error: `uncaught exception: ${typeof error === "string" ? error : tojson(error, "", true)}`, stack: "", code: 0 };
}

return function invoke(request) {
  let reply;
  try {
    const [kind, ...args] = parse(request);
    reply = { value: requests[kind](args) };
  } catch (error) {
    reply = describe(error);
  }
  if (printed.length) reply.printed = printed.splice(0);
  return stringify(reply);
};
})()
