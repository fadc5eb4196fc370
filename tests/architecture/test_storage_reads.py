"""No read of records or keys outside the storage engines is limited by their number alone: each may have 16 MB."""

import ast
import re

from tests.architecture.test_imports import PACKAGE

# Method and the place of its `max_bytes` among the arguments. `scan` is that of record stores.
LIMITED = {"scan": 3, "scan of keys": 3, "scan_fetch": 4, "scan_fetch_ranges": 4, "due": 3, "find_records": 1}
# The place of `limit`: a read of one record needs no other limit.
LIMIT_AT = {"scan": 1, "scan of keys": 2, "scan_fetch": 3, "scan_fetch_ranges": 3, "due": 2}


def are_records(receiver: str) -> bool:
    """Whether a call is one of a record store, by what that is called; sorted data have a `scan` too."""
    return receiver.endswith(("store", "records", "stored")) or ".records(" in receiver


def unlimited_reads(source: str) -> list[int]:
    """The lines of calls without `max_bytes`."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name not in LIMITED:
            continue
        if name == "scan" and not are_records(ast.unparse(node.func.value)):
            name = "scan of keys"
            if len(node.args) <= LIMIT_AT[name]:
                continue
        limit = node.args[LIMIT_AT[name]] if name in LIMIT_AT else None
        is_single = isinstance(limit, ast.Constant) and limit.value == 1
        if not is_single and len(node.args) <= LIMITED[name] and not any(k.arg == "max_bytes" for k in node.keywords):
            lines.append(node.lineno)
    return lines


def test_reads_without_a_byte_limit_are_found() -> None:
    assert unlimited_reads("records, more = collection.store.scan(position, 256, True)") == [1]
    assert unlimited_reads("op.recovery_unit.records(collection).scan(position, 256, True)") == [1]
    assert unlimited_reads("store.scan(MAX_RECORD_ID, 1, False)") == []
    assert unlimited_reads("store.scan(position, 256, True, BATCH_BYTES)") == []
    assert unlimited_reads("entries, more = data.scan(key_range, after, 256)") == [1]
    assert unlimited_reads("data.scan(key_range, None, 1)\ndata.scan(key_range, after, size, BATCH_BYTES)") == []
    assert unlimited_reads("store.due(by, now_s, 256, max_bytes=1)\nstore.find_records(ids)") == [2]


def test_reads_have_a_byte_limit() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "storage" not in path.relative_to(PACKAGE).parts
        for line in unlimited_reads(path.read_text())
    ]
    assert found == []


def test_parameters_of_sql_have_no_numbers() -> None:
    """Python counts `?1` as a name, and refuses names for a sequence of values from 3.14 on."""
    numbered = re.compile(r"\?[0-9]")
    found = [
        f"{path.name}: {node.value}"
        for path in sorted((PACKAGE / "storage" / "sqlite").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and numbered.search(node.value)
    ]
    assert found == []
