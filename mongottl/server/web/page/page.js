// Shows what the server sends as server-sent events, and sends what the clock's buttons ask for.
"use strict";

const byId = (id) => document.getElementById(id);
const token = document.querySelector('meta[name="mongottl-token"]').content;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const PARTS = ["minute", "hour", "day"];
const OPERATIONS = ["insert", "query", "update", "delete", "getmore", "command"];

let schedule = null;
let clock = null;          // {nowMs, frozen, at}: the server's time, and when the page learned it

// Text and elements

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function say(id, text) {
  const target = byId(id);
  if (target.textContent !== text) target.textContent = text;
}

// A name that can be broken after its separators.
function breakable(name) {
  return name.split(/(?<=[._-])/).flatMap((part, place) => place > 0 ? [element("wbr", {}), part] : [part]);
}

function replaceRows(target, rows) {
  target.replaceChildren(...rows);
}

function count(number, singular, plural = singular + "s") {
  return `${whole.format(number)} ${number === 1 ? singular : plural}`;
}

function rate(number) {
  return number === 0 || number >= 10 ? whole.format(number) : number.toFixed(1);
}

// The largest unit, and the one below it if that is not zero: 1 h 5 min, 3 days. Of many days the hours say nothing.
function duration(seconds) {
  const units = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const whole = Math.floor(Math.abs(seconds));
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0\u00a0s";
  let left = whole;
  return units.slice(first, first + (whole < 100 * 86400 ? 2 : 1)).map(([unit, size]) => {
    const amount = Math.floor(left / size);
    left -= amount * size;
    if (amount === 0) return "";
    return unit === "day" ? count(amount, "day") : `${amount}\u00a0${unit}`;
  }).filter(Boolean).join(" ");
}

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (number >= 1024 && place < units.length - 1) {
    number /= 1024;
    place += 1;
  }
  return `${place > 0 && number < 10 ? number.toFixed(1) : whole.format(number)}\u00a0${units[place]}`;
}

function milliseconds(number) {
  if (number >= 1000) return `${rough.format(number / 1000)}\u00a0s`;
  return `${number < 10 ? rough.format(number) : whole.format(number)}\u00a0ms`;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

// The server's clock

function serverNow() {
  if (clock === null) return null;
  return clock.frozen ? clock.nowMs : clock.nowMs + performance.now() - clock.at;
}

function showTime() {
  const now = serverNow();
  if (now === null) return;
  const [date, time] = new Date(now).toISOString().split("T");
  const shown = byId("time");
  const text = `${date} ${time.slice(0, 8)} `;
  if (shown.firstChild?.data !== text) shown.replaceChildren(text, element("small", {}, "UTC"));
  showCountdowns(now);
}

function showPace(status) {
  const ahead = Math.round(status.offsetMs / 1000);
  const stands = status.frozen ? "The server’s time stands still" : "The server’s time";
  const apart = Math.abs(ahead) < 1 ? "" : `, ${duration(ahead)} ${ahead > 0 ? "ahead of" : "behind"} this machine`;
  say("pace", stands + (status.frozen ? apart : apart || ", that of this machine"));
  const freeze = byId("freeze");
  freeze.setAttribute("aria-pressed", String(status.frozen));
}

// What expires when

function showSchedule(next) {
  if (next.error !== undefined) {
    const why = `What expires when cannot be read: ${next.error}.`;
    const lead = byId("lead");
    lead.dataset.text = why;
    lead.textContent = why;
    return;
  }
  schedule = next;
  const expiring = next.collections.filter((row) => row.rules.length > 0);
  const others = next.collections.filter((row) => row.rules.length === 0);
  byId("timeline").hidden = expiring.length === 0;
  byId("empty").hidden = expiring.length > 0;
  listed = expiring;
  updateRows();
  showTime();
  const lead = byId("lead");
  const text = leadOf(expiring, next.omittedExpiring);
  if (lead.dataset.text !== text) {
    lead.dataset.text = text;
    lead.replaceChildren(...text.split(/(\*[^*]+\*)/).map((part) =>
      part.startsWith("*") ? element("b", {}, part.slice(1, -1)) : part));
  }
  const note = byId("others");
  note.hidden = others.length === 0 && next.omitted === 0;
  const named = others.slice(0, 8).map((row) => `${nameOf(row)} (${count(row.documents, "document")})`);
  if (others.length > 8) named.push(`${others.length - 8} more`);
  let rest = others.length > 0 ? `Without time to live: ${named.join(", ")}.` : "";
  if (next.omitted > 0) rest += ` ${count(next.omitted, "collection")} ${next.omitted === 1 ? "is" : "are"} not shown.`;
  say("others", rest.trim());
  byId("to-next").disabled = nextDue() === null;
}

function leadOf(rows, omitted) {
  if (rows.length === 0) return "Nothing expires here.";
  const minute = sum(rows.map((row) => sum(row.minute)));
  const hour = minute + sum(rows.map((row) => sum(row.hour)));
  const day = hour + sum(rows.map((row) => sum(row.day)));
  const later = sum(rows.map((row) => row.later));
  const expired = sum(rows.map((row) => row.expired));
  const oldest = Math.min(...rows.map((row) => row.oldestDueMs ?? Infinity));
  const expire = (number) => number === 1 ? "expires" : "expire";
  let text;
  const also = (number, before, span) => number > before ? `, ${whole.format(number)} within ${span}` : "";
  if (minute > 0) text = `*${count(minute, "document")}* ${expire(minute)} within a minute${also(hour, minute, "an hour")}`;
  else if (hour > 0) text = `*${count(hour, "document")}* ${expire(hour)} within an hour${also(day, hour, "a day")}`;
  else if (day > 0) text = `*${count(day, "document")}* ${expire(day)} within a day`;
  else if (later > 0) text = `*${count(later, "document")}* ${expire(later)}, none within a day`;
  else text = "No document is due to expire";
  if (expired > 0) text += `; ${expired === 1 ? "one is" : `${whole.format(expired)} are`} expired and not deleted yet`;
  const waits = (serverNow() - oldest) / 1000;
  if (expired > 0 && waits >= 1) text += `, ${expired === 1 ? "" : "the oldest "}for ${duration(waits)}`;
  if (omitted > 0) text += `. ${count(omitted, "more collection")}, of which nothing expires sooner, ${omitted === 1 ? "is" : "are"} not counted`;
  return text + ".";
}

function rulesOf(row) {
  return row.rules.map((rule) => {
    const at = `the date in ${rule.field}`;
    if (rule.kind === "date") return rule.seconds === 0 ? `at ${at}` : `${duration(rule.seconds)} after ${at}`;
    return rule.seconds === null ? "own ttl only" : `${duration(rule.seconds)} after the last write`;
  }).join(" or ");
}

const nameOf = (row) => `${row.database}.${row.collection}`;
const rowElements = new Map();
let listed = [];            // the rows of the timeline, what expires next first
let unfolded = false;

// How many rows there are on one screen, and with the button that opens the others.
function rowsOnScreen() {
  const body = byId("rows");
  const fold = byId("fold-row");
  const height = (at) => at.getBoundingClientRect().height;
  const row = body.firstElementChild === null ? 25 : height(body.firstElementChild);
  const free = window.innerHeight - height(body.previousElementSibling);
  if (listed.length * row <= free) return listed.length;
  fold.hidden = false;
  return Math.max(5, Math.floor((free - height(fold)) / row));
}

// Rows are changed in place, so that what a reader has selected or focused stays.
function updateRows() {
  const first = rowsOnScreen();
  const shown = unfolded ? listed : listed.slice(0, first);
  const kept = new Set(shown.map(nameOf));
  for (const key of rowElements.keys()) if (!kept.has(key)) rowElements.delete(key);
  const wanted = shown.map((row) => {
    const key = nameOf(row);
    let made = rowElements.get(key);
    if (made === undefined) {
      made = makeRow(row);
      rowElements.set(key, made);
    }
    fillRow(made, row);
    return made.row;
  });
  const isFirst = byId("rows").firstElementChild === null;
  const focused = document.activeElement;
  place(byId("rows"), wanted.slice(0, first));
  place(byId("more-rows"), wanted.slice(first));
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  const more = Math.max(0, listed.length - first);
  byId("fold-row").hidden = more === 0;
  say("fold", count(more, "more collection"));
  if (isFirst && wanted.length > 0 && rowsOnScreen() !== first) updateRows();  // now that the height of a row is known
}

// Makes these the children of an element, and moves as few as it can.
function place(parent, children) {
  children.forEach((child, at) => {
    const there = parent.children[at];
    if (there === child) return;
    if (there !== undefined && there.nextElementSibling === child) there.remove();
    else parent.insertBefore(child, there ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
}

byId("fold").addEventListener("click", () => {
  unfolded = !unfolded;
  byId("fold").setAttribute("aria-expanded", String(unfolded));
  updateRows();
  showTime();
});
window.addEventListener("resize", () => {
  updateRows();
  showTime();
});

function makeRow(row) {
  const cell = (kind, bars = 0) => {
    const made = { bars: [], text: document.createTextNode("") };
    const strip = element("span", { class: "bars", "aria-hidden": "true" });
    for (let place = 0; place < bars; place += 1) {
      const bar = element("i", {});
      made.bars.push(bar);
      strip.append(bar);
    }
    made.cell = element("td", { class: kind }, ...(bars ? [strip] : []), made.text);
    return made;
  };
  const name = element("div", { class: "cut" }, element("i", { class: "cut" }, `${row.database}.`), element("b", {}, row.collection));
  const made = {
    name: element("th", { scope: "row" }, name),
    rule: element("div", { class: "cut" }),
    next: cell("next"),
    expired: cell("expired", 1),
    later: cell("number"),
    never: cell("number"),
    deleted: cell("number"),
  };
  for (const part of PARTS) made[part] = cell("span", row[part].length);
  made.row = element("tr", {}, made.name, made.next.cell, made.expired.cell, ...PARTS.map((part) => made[part].cell),
    made.later.cell, made.never.cell, made.deleted.cell, element("td", { class: "rule" }, made.rule));
  return made;
}

function fillRow(made, row) {
  const key = JSON.stringify(row);
  if (made.key === key) return;
  made.key = key;
  made.data = row;
  made.name.title = `${nameOf(row)}: ${count(row.documents, "document")}, ${bytes(row.sizeBytes)}`;
  made.rule.textContent = rulesOf(row);
  made.rule.title = made.rule.textContent;
  const highest = Math.max(1, ...PARTS.flatMap((part) => row[part]));
  const fill = (cell, numbers, kind = "", most = highest) => {
    const total = sum(numbers);
    const text = total < 1e5 ? whole.format(total) : compact.format(total);
    cell.cell.title = text === whole.format(total) ? "" : whole.format(total);
    if (cell.text.data !== text) cell.text.data = text;
    cell.cell.classList.toggle("zero", total === 0);
    cell.bars.forEach((bar, place) => {
      bar.className = numbers[place] > 0 ? kind : "";
      bar.style.setProperty("--part", String(Math.sqrt(numbers[place] / most)));
    });
  };
  fill(made.expired, [row.expired], "past", Math.max(1, row.documents));
  for (const part of PARTS) fill(made[part], row[part], "some");
  fill(made.later, [row.later]);
  fill(made.never, [Math.max(0, row.documents - row.pending - row.expired)]);
  fill(made.deleted, [row.purged]);
}

function nextDue() {
  const now = serverNow();
  const due = (schedule?.collections ?? []).map((row) => row.nextDueMs).filter((ms) => typeof ms === "number");
  return now !== null && due.length > 0 ? Math.min(...due) - now : null;
}

function showCountdowns(now) {
  if (schedule === null) return;
  for (const made of rowElements.values()) {
    const row = made.data;
    const left = row.nextDueMs === null ? null : Math.ceil((row.nextDueMs - now) / 1000);
    const text = left === null ? "–" : left > 0 ? duration(left) : "now";
    if (made.next.text.data !== text) made.next.text.data = text;
  }
}

// What runs, and what is open

function showStatus(status) {
  byId("state").className = status.error === undefined ? "" : "lost";
  say("state", status.error === undefined ? "Live, every second." : `What runs cannot be read: ${status.error}.`);
  if (status.error !== undefined) return;
  clock = { nowMs: status.nowMs, frozen: status.frozen, at: performance.now() };
  showPace(status);
  showTime();
  if (status.perSecond === undefined) return;  // the reader may not see figures
  addPoint(status.point);
  showOperations(status);
  showDeleted();
  showFigures(status);
  showNodes(status.nodes);
  showCharges(status.charges);
  if (status.charges !== null) showBudgets(status.throughput === "enforced");
  showFailures(status);
  showSlow(status);
}

// The last ten minutes, second by second, which the server keeps: {number, keptS, operations, deleted}
let past = null;

function addPoint(point) {
  if (past === null || point === null || point.number <= past.number) return;
  past.number = point.number;
  const seconds = past.operations.length;
  const add = (values, value) => {
    values.push(...Array(point.seconds).fill(value));
    values.splice(0, Math.max(0, values.length - past.keptS));
  };
  for (const name of ["operations", "deleted"]) add(past[name], point[name]);
  const before = new Map(past.budgets.map((budget) => [budget.holder, budget]));
  past.budgets = point.budgets.map(({ holder, ...values }) => {
    const budget = before.get(holder) ?? { holder, ...Object.fromEntries(Object.keys(values).map((name) => [name, Array(seconds).fill(0)])) };
    for (const [name, value] of Object.entries(values)) add(budget[name], value);
    return budget;
  });
}

function spanOf(seconds) {
  return seconds >= past.keptS ? `the last ${duration(past.keptS)}` : `${duration(seconds)} since the server was started`;
}

const drawn = (name, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};

// Draws a value a second, the newest on the right.
function drawLine(svg, values, most = Math.max(1, ...values)) {
  const line = svg.querySelector("polyline") ?? svg.appendChild(drawn("polyline", {}));
  const points = values.map((value, place) => `${past.keptS - values.length + place},${54 - value / most * 50}`);
  line.setAttribute("points", points.join(" "));
}

function showDeleted() {
  const deleted = sum(past.deleted);
  byId("deleted").hidden = deleted === 0;
  if (deleted === 0) return;
  const most = Math.max(...past.deleted);
  say("deleted-note", `Deleted by TTL in ${spanOf(past.deleted.length)}: ${count(Math.round(deleted), "document")}, ${rate(most)} a second at most`);
  drawLine(byId("deleted-line"), past.deleted);
}

function showOperations(status) {
  const rates = status.perSecond;
  say("rate", rates === null ? "–" : rate(sum(Object.values(rates))));
  const kinds = byId("kinds");
  if (kinds.children.length === 0) {
    kinds.append(...OPERATIONS.map((kind) => element("div", {}, element("dt", {}, kind), element("dd", {}, "–"))));
  }
  OPERATIONS.forEach((kind, place) => {
    kinds.children[place].lastChild.textContent = rates === null ? "–" : rate(rates[kind]);
  });
  say("line-note", `In ${spanOf(past.operations.length)}: ${rate(Math.max(0, ...past.operations))} at most`);
  drawLine(byId("line"), past.operations);
  const span = status.latenciesS >= 60 ? "the last minute" : spanOf(status.latenciesS);
  say("latencies-note", `Time of commands in ${span}`);
  const rows = status.latencies.map((row) => element("tr", {}, element("td", {}, row.command),
    ...[rate(row.perSecond), milliseconds(row.p50), milliseconds(row.p95), milliseconds(row.p99)].map((text) => element("td", {}, text))));
  replaceRows(byId("latencies"), rows.length > 0 ? rows
    : [element("tr", {}, element("td", { colspan: "5", class: "zero" }, `No command in ${span}`))]);
}

function showFigures(status) {
  const figures = [
    ["Connections", whole.format(status.connections), `${whole.format(status.activeConnections)} active`],
    ["Cursors", whole.format(status.cursors), ""],
    ["Change streams", whole.format(status.changeStreams), ""],
    ["Transactions", whole.format(status.transactions), status.queued > 0 ? `${status.queued} wait` : ""],
    ["Sessions", whole.format(status.sessions), ""],
    ["Oplog", duration(status.oplogWindowS), bytes(status.oplogBytes)],
    ["Storage", bytes(status.storageBytes), status.logBytes > 0 ? `and log ${bytes(status.logBytes)}` : ""],
    ["Memory", bytes(status.memoryBytes), ""],
    ["Deleted by TTL", whole.format(status.deletedDocuments), (status.deletedDocuments === 1 ? "document" : "documents") + (status.monitorEnabled ? "" : ", paused")],
    ["Failed commands", whole.format(status.failed), status.errors.map((error) => `${error.name}\u00a0${whole.format(error.count)}`).join(", ")],
    ["Running for", duration(status.uptimeS), ""],
  ];
  const grid = byId("figures");
  if (grid.children.length === 0) {
    grid.append(...figures.map(([name]) => element("div", {}, element("dt", {}, name), element("dd", {}))));
  }
  figures.forEach(([, value, note], place) => {
    const target = grid.children[place].lastChild;
    const text = `${value} ${note}`;
    if (target.dataset.text !== text) {
      target.dataset.text = text;
      target.replaceChildren(value, ...(note ? [" ", element("small", {}, note)] : []));
    }
  });
}

// The servers of a store; the one that sends this is among them.
function showNodes(nodes) {
  byId("nodes-section").hidden = nodes.length === 0;
  replaceRows(byId("node-rows"), nodes.map((node) => element("tr", {},
    element("td", {}, whole.format(node.node), node.isOwn ? " (this one)" : ""),
    element("td", { class: "text" }, node.address), element("td", {}, String(node.pid)),
    element("td", { class: "text" }, node.state + (node.duties ? ", purges" : "")),
    element("td", {}, node.leaseMs > 0 ? milliseconds(node.leaseMs) : "–"),
    element("td", {}, String(node.catalogVersion)),
    element("td", { class: "text" }, new Date(node.sinceMs).toISOString().slice(0, 19).replace("T", " ")))));
}

function showCharges(charges) {
  byId("charges-section").hidden = charges === null;
  if (charges === null) return;
  const throttled = charges.throttled > 0 ? `${count(charges.throttled, "statement")} refused: throughput used up` : "none refused for throughput";
  say("charges-lead", `${exact.format(charges.total)} request units for ${count(charges.requests, "request")}, ${throttled}.`);
  replaceRows(byId("charge-rows"), charges.rows.map((row) => element("tr", {},
    element("td", {}, row.command), element("td", { class: "text" }, ...breakable(row.namespace)),
    element("td", {}, whole.format(row.requests)), element("td", {}, `${exact.format(row.charge)} RU`),
    element("td", { class: row.throttled ? "" : "zero" }, whole.format(row.throttled)))));
}

const units = (number) => number < 100 ? exact.format(number) : whole.format(number);
const budgetElements = new Map();
const SHOWN_BUDGETS = 6;

// Request units a second against what was provisioned, of the budgets of which most was spent.
function showBudgets(isEnforced) {
  const spent = past.budgets.filter((budget) => budget.holder !== "" && (sum(budget.units) > 0 || sum(budget.throttled) > 0));
  spent.sort((one, other) => sum(other.units) - sum(one.units));
  const shown = spent.slice(0, SHOWN_BUDGETS);
  place(byId("budgets"), shown.map((budget) => budgetElement(budget, isEnforced)));
  for (const holder of budgetElements.keys()) if (!shown.some((budget) => budget.holder === holder)) budgetElements.delete(holder);
  const others = past.budgets.filter((budget) => !shown.includes(budget));
  const left = sum(others.map((budget) => sum(budget.units)));
  const note = byId("budgets-note");
  note.hidden = shown.length === 0;
  let text = "Request units a second; dashed: what is provisioned. ";
  text += isEnforced ? "A mark below is a second in which statements were throttled." : "What is spent above it is not refused here (--cosmos-throughput enforced). A mark below is a second in which statements were throttled by a test.";
  if (left > 0) text += ` Of other budgets ${units(left)} RU were spent in ${spanOf(past.operations.length)}.`;
  say("budgets-note", text);
}

function budgetElement(budget, isEnforced) {
  let made = budgetElements.get(budget.holder);
  if (made === undefined) {
    const svg = drawn("svg", { class: "line", role: "img", "aria-label": `Request units a second of ${budget.holder}, and its budget`, viewBox: "0 0 599 56", preserveAspectRatio: "none" });
    made = { now: element("span", { class: "soft" }), note: element("p", { class: "soft" }), svg };
    made.marks = svg.appendChild(drawn("path", {}));
    made.provisioned = svg.appendChild(drawn("path", { class: "provisioned" }));
    made.all = element("div", {}, element("p", {}, element("b", {}, ...breakable(budget.holder)), " ", made.now), svg, made.note);
    budgetElements.set(budget.holder, made);
  }
  const { units: spent, throttled, provisioned } = budget;
  const write = (target, text) => {
    if (target.textContent !== text) target.textContent = text;
  };
  const now = provisioned.at(-1);
  write(made.now, `${units(spent.at(-1))} of ${now > 0 ? `${whole.format(now)} RU/s` : "a budget that is not provisioned any more"}`);
  const most = Math.max(1, ...spent, ...provisioned);
  const first = past.keptS - spent.length;
  drawLine(made.svg, spent, most);
  made.provisioned.setAttribute("d", provisioned.map((number, at) => {
    if (number === 0) return "";
    return `${number === provisioned[at - 1] ? "" : `M${first + at} ${54 - number / most * 50}`}H${first + at + 1}`;
  }).join(""));
  made.marks.setAttribute("d", throttled.map((number, at) => number > 0 ? `M${first + at} 56v-8` : "").join(""));
  const above = spent.filter((value, at) => provisioned[at] > 0 && value > provisioned[at]).length;
  const refused = throttled.filter((number) => number > 0).length;
  const notes = [`${units(sum(spent))} RU in ${spanOf(spent.length)}, ${units(Math.max(...spent))} in a second at most`];
  if (refused > 0) notes.push(`throttled in ${count(refused, "second")}`);
  if (!isEnforced && above > 0) notes.push(`above the budget in ${count(above, "second")}`);
  write(made.note, notes.join("; "));
  return made.all;
}

// An advice, whose options and indexes stay whole on a line.
const withCode = (advice) => advice.split(/(--[a-z-]+ [\w.-]*\w|\{.*?\})/).map((part, at) => at % 2 ? element("code", {}, part) : part);

function showFailures(status) {
  say("failed-note", status.failures.length === 0 ? "No command has failed." : "By command, collection and error, the newest first.");
  const list = byId("failed-rows");
  const key = JSON.stringify(status.failures);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...status.failures.map((failure) => element("li", {},
    element("p", { class: "what" }, element("b", {}, whole.format(failure.times)), `${failure.command} ${failure.namespace}`,
      element("span", { class: "soft" }, failure.error)),
    element("span", { class: "command" }, failure.text),
    ...(failure.advice ? [element("p", { class: "advice" }, ...withCode(failure.advice))] : []))));
}

function showSlow(status) {
  const from = milliseconds(status.slowMs);
  say("slow-note", status.slow.length === 0 ? `No command was slow; slow is ${from} or longer.` : `The last slow commands, the newest first; those that differ in values alone are counted. Slow is ${from} or longer.`);
  const key = status.slow.length > 0 ? `${status.slow.length} ${status.slow[0].at_ms} ${status.slow[0].micros} ${status.slow[0].count}` : "";
  const list = byId("slow-rows");
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...status.slow.map((slow) => element("li", {},
    element("p", { class: "what" }, element("b", {}, milliseconds(slow.micros / 1000)), `${slow.operation} ${slow.namespace}`,
      ...[slow.count > 1 ? `${whole.format(slow.count)} times, at most ${milliseconds(slow.longest / 1000)}` : "", slow.plan, slow.error, slow.app_name].filter(Boolean).map((text) => element("span", { class: "soft" }, text)),
      element("time", { class: "soft", datetime: new Date(slow.at_ms).toISOString() }, new Date(slow.at_ms).toISOString().slice(11, 19))),
    element("span", { class: "command" }, slow.command))));
}

let start = null;           // which start of the server the page belongs to

function showServer(server) {
  // The token of the clock's buttons, and perhaps the page itself, are those of the earlier start.
  if (start !== null && start !== server.start) location.reload();
  start = server.start;
  document.title = `${server.port} mongottl`;
  const as = server.dialect === "cosmos" ? `as Cosmos DB for MongoDB ${server.serverVersion}` : `as MongoDB ${server.serverVersion}`;
  const data = server.inMemory ? "data in memory" : "data on disk";
  const user = server.user ? `, seen by ${server.user}` : "";
  const node = server.node > 0 ? `Node ${server.node}, version` : "Version";
  say("server", `${node} ${server.version}, ${server.compiled ? "compiled" : "interpreted"}, ${as}, ${data}${user}`);
  byId("controls").hidden = !server.movable;
  document.body.classList.toggle("without-figures", !server.sees);
  if (!server.sees) say("lead", "What expires and what runs is shown to those who may run serverStatus.");
}

// The clock's buttons

// The collections that documents were deleted in, those with the most first.
function where(shares) {
  const most = shares.slice(0, 8);
  let named = most.map(([name, number]) => `${name} ${whole.format(number)}`).join(", ");
  if (shares.length > most.length) named += `, and ${count(shares.length - most.length, "other collection")}`;
  return named;
}

async function ask(action, seconds) {
  const said = byId("said");
  try {
    const response = await fetch("/clock", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Mongottl-Token": token },
      body: JSON.stringify(seconds === undefined ? { action } : { action, seconds }),
    });
    const text = await response.text();
    said.classList.toggle("failed", !response.ok);
    if (!response.ok) {
      said.textContent = text.trim();
      return;
    }
    const outcomes = { freeze: "The clock stands still.", run: "The clock runs.", restore: "The clock is as it was at the start." };
    const { deleted, deletedIn } = JSON.parse(text);
    const by = Math.abs(seconds) < 1 ? milliseconds(Math.abs(seconds) * 1000) : duration(seconds);
    const moved = seconds === undefined ? outcomes[action] : `Moved ${seconds < 0 ? "back " : ""}by ${by}.`;
    const gone = deleted === 0 ? "Nothing was deleted." : `${count(deleted, "document")} deleted: ${where(deletedIn)}.`;
    said.textContent = deleted === null ? moved : `${moved} ${gone}`;
  } catch {
    said.classList.add("failed");
    said.textContent = "the server does not answer.";
  }
}

byId("controls").addEventListener("submit", (event) => {
  event.preventDefault();
  const seconds = byId("by").valueAsNumber;
  if (Number.isFinite(seconds)) ask("advance", seconds);
});
for (const button of document.querySelectorAll("[data-seconds]")) {
  button.addEventListener("click", () => ask("advance", Number(button.dataset.seconds)));
}
byId("freeze").addEventListener("click", () => ask(byId("freeze").getAttribute("aria-pressed") === "true" ? "run" : "freeze"));
byId("restore").addEventListener("click", () => ask("restore"));
byId("to-next").addEventListener("click", () => {
  const due = nextDue();
  if (due !== null) ask("advance", Math.max(0, Math.ceil(due) / 1000));
});

// Events

let connected = false;      // whether the server's time is known to go on
const events = new EventSource("/live");
events.addEventListener("server", (event) => showServer(JSON.parse(event.data)));
events.addEventListener("history", (event) => { past = JSON.parse(event.data); });
events.addEventListener("status", (event) => showStatus(JSON.parse(event.data)));
events.addEventListener("schedule", (event) => showSchedule(JSON.parse(event.data)));
events.addEventListener("open", () => {
  say("state", "Live, every second.");
  byId("state").className = "";
  connected = true;
});
events.addEventListener("error", () => {
  say("state", events.readyState === EventSource.CLOSED ? "The server has refused; load the page again." : "No connection to the server; trying again.");
  byId("state").className = "lost";
  connected = false;
});
setInterval(() => {
  if (connected) showTime();
}, 250);
