"""The oplog as a model of the data: what its documents make of an empty server is what the server has stored."""

from collections.abc import Iterable
from typing import Any

import bson

from mongottl.oplog.log import Oplog
from mongottl.oplog.numbered import NumberedOplog
from mongottl.oplog.records import OplogRecords

Document = dict[str, Any]
# The documents of each namespace by their encoded `_id`.
Data = dict[str, dict[bytes, Document]]


def apply_diff(document: Any, diff: Document) -> Any:
    """What the `diff` of an update makes of a document or an array, as the format's readers do it."""
    if diff.get("a") is True:
        changed: Any = list(document)
        if "l" in diff:
            changed = changed[: diff["l"]]
        for name, value in diff.items():
            if name[0] in "us" and name != "a":
                index = int(name[1:])
                changed += [None] * (index + 1 - len(changed))
                changed[index] = value if name[0] == "u" else apply_diff(changed[index], value)
        return changed
    changed = dict(document)
    for name in diff.get("d", {}):
        del changed[name]
    changed |= diff.get("u", {})
    for name, value in diff.items():
        if name[0] == "s":
            changed[name[1:]] = apply_diff(changed[name[1:]], value)
    return changed


def records_of(oplog: Oplog) -> OplogRecords:
    """The records of `local.oplog.rs` over an embedded engine."""
    assert isinstance(oplog, NumberedOplog)
    return OplogRecords(oplog)


class Replay:
    """What the documents of `local.oplog.rs`, applied in their order from the first on, make of an empty server.

    What `$out` and `convertToCapped` write before they rename their collection is not in the oplog: such a collection
    is in `unknown` instead of the data, until it is dropped.
    """

    def __init__(self) -> None:
        self.data: Data = {}
        self.unknown: set[str] = set()

    def apply(self, documents: Iterable[Document]) -> None:
        """Applies the next documents."""
        for document in documents:
            if document["op"] == "n":
                continue
            operations = document["o"].get("applyOps") if document["op"] == "c" else None
            for operation in [document] if operations is None else operations:
                self._apply(operation)

    def _apply(self, operation: Document) -> None:
        namespace = operation["ns"]
        what = operation["o"]
        if operation["op"] == "c":
            self._command(namespace.partition(".")[0], what)
            return
        if namespace in self.unknown:
            return
        held = self.data[namespace]
        key = bson.encode({"": (what if operation["op"] == "d" else operation["o2"])["_id"]})
        if operation["op"] == "i":
            assert key not in held
            held[key] = what
        elif operation["op"] == "d":
            del held[key]
        elif "$v" in what:
            held[key] = apply_diff(held[key], what["diff"])
        else:
            assert key in held
            held[key] = what

    def _command(self, database: str, command: Document) -> None:
        name = next(iter(command))
        namespace = f"{database}.{command[name]}"
        if name == "create":
            assert namespace not in self.data and namespace not in self.unknown
            self.data[namespace] = {}
        elif name == "drop":
            self._drop(namespace)
        elif name == "renameCollection":
            source, target = command[name], command["to"]
            if source in self.data:
                self.unknown.discard(target)
                self.data[target] = self.data.pop(source)
            else:
                assert source in self.unknown or source.partition(".")[2].startswith("tmp."), command
                self.unknown.discard(source)
                self.data.pop(target, None)
                self.unknown.add(target)
        else:
            assert name in ("createIndexes", "dropIndexes", "collMod", "dropDatabase"), command

    def _drop(self, namespace: str) -> None:
        if namespace in self.unknown:
            self.unknown.remove(namespace)
        else:
            del self.data[namespace]


def replay(documents: Iterable[Document]) -> Data:
    """The data that the documents of `local.oplog.rs`, from the first on, describe."""
    whole = Replay()
    whole.apply(documents)
    return whole.data
