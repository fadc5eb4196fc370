"""Operations access stored data through their recovery unit: no other module takes stores out of catalog objects."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mongottl"
# The modules that return them, the one that gives a transaction's writes to the engine, and the clock, which several
# servers store before there is a catalog.
RETURNED_BY = {
    "exec/service/stored_clock.py",
    "exec/unit/loading_unit.py",
    "exec/unit/recovery_unit.py",
    "exec/operation/snapshot_reads.py",
    "exec/operation/transaction_unit.py",
    "exec/unit/write_unit.py",
    "exec/write/commit.py",
}
MODULES = sorted(
    str(path.relative_to(PACKAGE))
    for package in ("exec", "commands", "server")
    for path in (PACKAGE / package).rglob("*.py")
)


def is_index(value: ast.expr) -> bool:
    """Whether an expression is called as index entries are."""
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return name.strip("_") in ("index", "entry", "id_index", "clustering")


@pytest.mark.parametrize("module", [module for module in MODULES if module not in RETURNED_BY])
def test_stores_are_reached_through_the_recovery_unit(module: str) -> None:
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (
            node.attr == "store" or (node.attr == "data" and is_index(node.value)) or node.attr == "unit_of_work"
        ):
            wrong.append(f"line {node.lineno}: {ast.unparse(node)}")
    assert wrong == []
