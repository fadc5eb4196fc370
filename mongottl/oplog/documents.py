"""Entries of the oplog as the documents of `local.oplog.rs`, for tools that read or tail it.

    {<operation>, ts, t: 1, v: 2, wall}                                              one operation (`operations`)
    {op: "c", ns: "admin.$cmd", o: {applyOps: [<operation>, …]}, ts, t: 1, v: 2, wall}     several

The entries of a transaction are linked by `prevOpTime`, all but the last with `partialTxn`, as mongod does with large
transactions.

Source: the manual's "Replica Set Oplog", the change events' documentation, and what MongoDB's drivers and tools read.
"""

from typing import Final

from mongottl.catalog import change_kinds as kinds
from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.freeing import list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.types import MISSING, BinData, Date, Int64, Timestamp, Value, integer
from mongottl.document.walk import fields, fields_by_name, get_value
from mongottl.oplog import operations as ops
from mongottl.oplog.change import LoggedChange
from mongottl.oplog.entry import OplogEntry
from mongottl.oplog.operations import Operation, several

_TERM: Final = Int64(1)
_VERSION: Final = Int64(2)
_Fields = list[tuple[str, Value]]


def oplog_document(entry: OplogEntry) -> bytes:
    """The document of an entry whose change is `described`."""
    at = _time_of(entry, 0)
    end: _Fields = [("ts", at), ("t", _TERM), ("v", _VERSION), ("wall", Date(entry.wall_ms))]
    operations = operations_of(entry.change)
    if entry.lsid is None:
        whole = operations[0] if len(operations) == 1 else several(operations, False)
        return encode_fields(whole.elements() + end)
    previous: _Fields = [("ts", Timestamp(0, 0)), ("t", Int64(-1))]
    if entry.first_index:
        previous = [("ts", _time_of(entry, 1)), ("t", _TERM)]
    session: _Fields = [("lsid", entry.lsid), ("txnNumber", Int64(entry.txn_number))]
    whole = several(operations, entry.following > 0)
    return encode_fields([*session, *whole.elements(), *end, ("prevOpTime", encode_fields(previous))])


def _time_of(entry: OplogEntry, before: int) -> Timestamp:
    """The time of the entry's own document, or of one of its transaction before it: the commit's is that of the
    last."""
    return Timestamp(entry.at_s, entry.at_i - entry.following - before)


def operations_of(change: LoggedChange) -> list[Operation]:
    """The operations of a change whose updates are `described`: one of each document, or of each index."""
    if change.kind not in (kinds.CREATE_INDEXES, kinds.DROP_INDEXES):
        return [_operation(change, index) for index in range(change.count)]
    assert isinstance(change.detail, bytes)
    specs = get_value(change.detail, "indexes")
    assert isinstance(specs, list)
    return [_on_index(change, spec) for spec in specs if isinstance(spec, bytes)]


def _on_index(change: LoggedChange, spec: bytes) -> Operation:
    """The creation of an index: `o` is its specification after the name of the collection. Or its deletion: `o` names
    it, and `o2` is its specification."""
    if change.kind == kinds.CREATE_INDEXES:
        return _command(change, encode_fields([("createIndexes", change.collection), *fields(spec)]))
    return _command(change, encode({"dropIndexes": change.collection, "index": get_value(spec, "name")}), spec)


def _operation(change: LoggedChange, index: int) -> Operation:
    kind = change.kind
    if kind == kinds.NOOP:
        assert isinstance(change.detail, bytes)
        return Operation(ops.NOTHING, "", change.detail)
    if kind > kinds.DELETE:
        return _command(change, _changing_command(change))
    namespace = f"{change.database}.{change.collection}"
    uuid = _uuid_of(change)
    key = change.key_of(index)
    if kind == kinds.INSERT:
        return Operation(ops.INSERT, namespace, change.after[index], key, uuid)
    if kind == kinds.UPDATE:
        changed = change.after[index] if change.replaced else _logged_update(change.description(index, True))
        return Operation(ops.UPDATE, namespace, changed, key, uuid)
    return Operation(ops.DELETE, namespace, key, EMPTY_DOCUMENT, uuid)


def _logged_update(description: bytes) -> bytes:
    return encode_fields([("$v", integer(2)), ("diff", update_diff(description))])


def _command(change: LoggedChange, command: bytes, key: bytes = EMPTY_DOCUMENT) -> Operation:
    return Operation(ops.COMMAND, f"{change.database}.$cmd", command, key, _uuid_of(change))


def _uuid_of(change: LoggedChange) -> BinData | None:
    uuid = change.uuid
    return uuid if isinstance(uuid, BinData) else None


def _changing_command(change: LoggedChange) -> bytes:
    """The command that changes a collection or database as a change says."""
    kind = change.kind
    detail = fields(change.detail) if isinstance(change.detail, bytes) else []
    if kind == kinds.CREATE:
        return encode_fields([("create", change.collection), *detail])
    if kind == kinds.DROP:
        return encode({"drop": change.collection})
    if kind == kinds.RENAME:
        return _renaming(change)
    if kind == kinds.DROP_DATABASE:
        return encode({"dropDatabase": integer(1)})
    assert kind == kinds.MODIFY and isinstance(change.detail, bytes)
    described = get_value(change.detail, "operationDescription")
    detail = fields(described) if isinstance(described, bytes) else []
    return encode_fields([("collMod", change.collection), *detail])


def _renaming(change: LoggedChange) -> bytes:
    assert isinstance(change.detail, bytes)
    renaming: _Fields = [
        ("renameCollection", f"{change.database}.{change.collection}"),
        ("to", ".".join(change.renamed_to())),
        ("stayTemp", False),
    ]
    dropped = get_value(change.detail, "dropTarget")
    if dropped is not MISSING:
        renaming.append(("dropTarget", dropped))
    return encode_fields(renaming)


class _Node:
    """The changes below one document or array of a diff."""

    def __init__(self) -> None:
        self.is_array = False
        self.length: Value = None
        self.updated: _Fields = []
        self.removed: _Fields = []
        self.below: dict[str, _Node] = {}

    def child(self, part: Value) -> "_Node":
        """The changes below a field, or an element by its index."""
        give_way()
        if isinstance(part, int):
            self.is_array = True
        name = str(part)
        found = self.below.get(name)
        if found is None:
            found = self.below[name] = _Node()
        return found

    def described(self) -> bytes:
        """As mongod's `diff`: `{d, u, s<field>: …}` of a document, `{a: true, l, u<index>, s<index>: …}` of an array.

        The node has nothing any more then: a tree of many nodes would be freed at once.
        """
        described: _Fields = list_for(len(self.updated) + len(self.below))
        if self.is_array:
            described.append(("a", True))
            if self.length is not None:
                described.append(("l", self.length))
            for name, value in self.updated:
                give_way()
                described.append((f"u{name}", value))
        else:
            if self.removed:
                described.append(("d", encode_fields(self.removed)))
            if self.updated:
                described.append(("u", encode_fields(self.updated)))
        for name, node in self.below.items():
            described.append((f"s{name}", node.described()))
        put_aside(self.updated)
        put_aside(self.removed)
        put_aside(self.below)
        self.updated = []
        self.removed = []
        self.below = {}
        return encode_fields(described)


def update_diff(description: bytes) -> bytes:
    """The `diff` of an update: its `updateDescription`, with `disambiguatedPaths`, as a tree. It gives way, since an
    update may change a million fields."""
    described = fields_by_name(description)
    paths: dict[str, Value] = {}
    for path, parts in _fields_of(described["disambiguatedPaths"]):
        give_way()
        paths[path] = parts
    root = _Node()
    for path, value in _fields_of(described["updatedFields"]):
        give_way()
        parent, last = _parent(root, path, paths)
        if isinstance(last, int):
            parent.is_array = True
        parent.updated.append((str(last), value))
    removed = described["removedFields"]
    assert isinstance(removed, list)
    for path in removed:
        give_way()
        parent, last = _parent(root, str(path), paths)
        parent.removed.append((str(last), False))
    truncated = described["truncatedArrays"]
    assert isinstance(truncated, list)
    for item in truncated:
        give_way()
        assert isinstance(item, bytes)
        parent, last = _parent(root, str(get_value(item, "field")), paths)
        node = parent.child(last)
        node.is_array = True
        node.length = get_value(item, "newSize")
    put_aside(paths)
    return root.described()


def _parent(root: _Node, path: str, known: dict[str, Value]) -> tuple[_Node, Value]:
    """What holds the last component of a path, and that component: an index as a number."""
    parts = known.get(path)
    if not isinstance(parts, list):
        names = path.split(".")
        parts = [names[0], *[integer(int(name)) if name.isdigit() else name for name in names[1:]]]
    node = root
    for part in parts[:-1]:
        node = node.child(part)
    # A component says what holds it: a document for a string, an array for a number.
    return node, parts[-1]


def _fields_of(value: Value) -> _Fields:
    assert isinstance(value, bytes)
    return fields(value)
