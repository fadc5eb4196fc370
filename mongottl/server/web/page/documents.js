// The documents view: what a collection holds, page by page, and how long each document has left. Uses page.js.
"use strict";

// The collection and filter that are shown, the pages up to the present one (null: the first), the next one, and what
// to say of them.
let documentsShown = null;
let documentsAsked = 0;     // of several requests the latest counts
let documentItems = [];     // {item, left, button, dueMs, text, details}
let lastTick = null;        // {now, at}: when the countdowns were last written, to notice that the clock was moved
let movedAt = -Infinity;    // when a button here has moved it

function sayOfDocuments(text, failed = false) {
  say("documents-said", text);
  byId("documents-said").classList.toggle("failed", failed);
}

// The response's text. An exception whose message is for the reader if there is none.
async function answerOf(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer.");
  }
  const text = await response.text();
  if (!response.ok) throw new Error(text.trim());
  return JSON.parse(text);
}

// The first dot ends the name of the database.
function namespaceParts(namespace) {
  const dot = namespace.indexOf(".");
  return { database: namespace.slice(0, dot), collection: namespace.slice(dot + 1) };
}

async function openDocuments(wanted = "") {
  let listed;
  try {
    listed = await answerOf("/collections");
  } catch (error) {
    sayOfDocuments(error.message, true);
    return;
  }
  const groups = new Map();
  for (const { database, collection, type } of listed.collections) {
    if (!groups.has(database)) groups.set(database, []);
    const suffix = type === "view" ? " (view)" : type === "timeseries" ? " (time series)" : "";
    groups.get(database).push(element("option", { value: `${database}.${collection}` }, `${database}.${collection}${suffix}`));
  }
  const own = new Set(["admin", "config", "local"]);
  const ordered = [...groups].sort(([one], [other]) => own.has(one) - own.has(other));
  const select = byId("documents-collection");
  const before = wanted || select.value;
  select.replaceChildren(element("option", { value: "" }, "Choose a collection"),
    ...ordered.map(([database, options]) => element("optgroup", { label: database }, ...options)));
  const all = [...select.options].map((option) => option.value);
  select.value = all.includes(before) ? before : "";
  byId("documents-open").hidden = true;
  for (const id of ["documents-choice", "documents-filter", "documents-show"]) byId(id).hidden = false;
  if (listed.collections.length === 0) sayOfDocuments("There is no collection that may be looked at.");
  else if (!listed.complete) sayOfDocuments(`Only the first ${count(listed.collections.length, "collection")} can be chosen here.`);
  else sayOfDocuments("");
}

// Shows the first page of what is chosen.
function chooseDocuments() {
  const namespace = byId("documents-collection").value;
  if (!namespace) return;
  history.replaceState(null, "", `#documents=${encodeURIComponent(namespace)}`);
  documentsShown = { namespace, filter: byId("documents-filter").value, pages: [null], next: null, note: "" };
  loadDocuments();
}

// Asks for the present page. notice: a text to show before the description of the page.
async function loadDocuments(notice = "") {
  const shown = documentsShown;
  if (shown === null) return;
  const number = ++documentsAsked;
  let page;
  try {
    page = await answerOf("/documents", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Mongottl-Token": token },
      body: JSON.stringify({ ...namespaceParts(shown.namespace), filter: shown.filter, page: shown.pages.at(-1) }),
    });
  } catch (error) {
    if (number !== documentsAsked) return;
    showDocuments([]);
    byId("documents-pages").hidden = shown.pages.length === 1;
    byId("documents-next").disabled = true;
    sayOfDocuments(error.message, true);
    return;
  }
  if (number !== documentsAsked) return;
  shown.next = page.next;
  showDocuments(page.documents);
  byId("documents-pages").hidden = page.next === null && shown.pages.length === 1;
  byId("documents-first").disabled = byId("documents-before").disabled = shown.pages.length === 1;
  byId("documents-next").disabled = page.next === null;
  sayOfDocuments(`${notice} ${describePage(page, shown)}`.trim());
}

function describePage(page, shown) {
  const number = page.documents.length;
  if (number === 0 && shown.pages.length > 1) return "Nothing is left on this page.";
  if (number === 0) return shown.filter.trim() ? "No document matches the filter." : "There is no document.";
  const order = page.ordered ? "in the order of _id" : "in their own order, so that writes may shift the pages";
  const which = page.next === null && shown.pages.length === 1 ? "" : `Page ${whole.format(shown.pages.length)}: `;
  return `${which}${count(number, "document")}, ${order}.`;
}

function showDocuments(documents) {
  const opened = new Set(documentItems.filter((shown) => shown.details.open).map((shown) => shown.text));
  documentItems = documents.map((one) => makeDocument(one, opened.has(one.text)));
  byId("documents-list").replaceChildren(...documentItems.map((shown) => shown.item));
  showTimeLeft(serverNow());
}

function makeDocument({ text, sizeBytes, shortened, dueMs }, isOpen) {
  // Line breaks within values are escaped, so these are those of the layout.
  const line = text.replace(/([{[])\n */g, "$1").replace(/\n *([}\]])/g, "$1").replace(/\n */g, " ");
  const summary = element("summary", {}, line.slice(0, 300));
  const details = element("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    details.append(element("pre", { tabindex: "0" }, text));
    details.append(element("p", { class: "soft" }, shortened ? `Shortened: the document has ${bytes(sizeBytes)}.` : bytes(sizeBytes)));
  });
  details.open = isOpen;
  const left = element("span", { class: "ends" });
  const button = element("button", { type: "button" }, "Move clock to its end");
  button.addEventListener("click", () => moveToEnd(dueMs));
  const item = element("li", {}, details, left, button);
  return { item, left, button, dueMs, text, details };
}

async function moveToEnd(dueMs) {
  const now = serverNow();
  if (now === null) return;
  await ask("advance", Math.max(0, Math.ceil(dueMs - now)) / 1000);
  movedAt = performance.now();
  const said = byId("said");
  if (said.classList.contains("failed")) sayOfDocuments(said.textContent, true);
  else await loadDocuments(said.textContent);
}

// How long each document has left, by the server's clock.
function showTimeLeft(now) {
  const movable = !byId("controls").hidden;
  byId("documents-list").classList.toggle("fixed", !movable);
  for (const shown of documentItems) {
    const expires = shown.dueMs !== null;
    shown.button.hidden = !movable;
    shown.button.style.visibility = expires ? "" : "hidden";
    if (now === null) continue;
    const seconds = expires ? Math.ceil((shown.dueMs - now) / 1000) : null;
    const text = !expires ? "never expires" : seconds > 0 ? duration(seconds) : "expired";
    shown.item.classList.toggle("expired", expires && seconds <= 0);
    if (shown.left.dataset.text === text) continue;
    shown.left.dataset.text = text;
    shown.left.replaceChildren(...(expires && seconds > 0 ? ["expires in ", element("b", {}, text)] : [text]));
    shown.left.classList.toggle("zero", !expires);
  }
}

// Whether the clock was moved since the last time, elsewhere: more or less time has passed than by itself.
function wasMoved(now) {
  const at = performance.now();
  const before = lastTick;
  lastTick = { now, at };
  if (before === null || at - movedAt < 2000) return false;
  const passed = now - before.now;
  return passed < -1000 || passed > at - before.at + 1000;
}

setInterval(() => {
  const now = serverNow();
  if (now === null || !connected) return;
  showTimeLeft(now);
  if (wasMoved(now)) loadDocuments();
}, 250);

byId("documents-open").addEventListener("click", async () => {
  await openDocuments();
  byId("documents-collection").focus();
});
byId("documents-collection").addEventListener("change", chooseDocuments);
byId("documents-form").addEventListener("submit", (event) => {
  event.preventDefault();
  chooseDocuments();
});
byId("documents-first").addEventListener("click", () => {
  documentsShown.pages = [null];
  loadDocuments();
});
byId("documents-before").addEventListener("click", () => {
  documentsShown.pages.pop();
  loadDocuments();
});
byId("documents-next").addEventListener("click", () => {
  documentsShown.pages.push(documentsShown.next);
  byId("documents-next").disabled = true;
  loadDocuments();
});

// The address names what is shown, so that it is shown again when the page is loaded again.
const named = location.hash.match(/^#documents=(.+)$/);
if (named !== null) {
  let namespace = "";
  try {
    namespace = decodeURIComponent(named[1]);
  } catch { /* it is no name */ }
  openDocuments(namespace).then(chooseDocuments);
}
