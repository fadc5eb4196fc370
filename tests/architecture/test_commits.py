"""Commits have one place: who commits units of the engine, writes to the oplog, and remembers what statements did; and
what describes a change is never changed itself."""

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mongottl"
COMMIT_LOG = "exec/service/commit_log.py"
# The same of engines that keep the oplog themselves.
STORE_COMMIT_LOG = "exec/service/store_commit_log.py"

# Method, and the last name of the expression that it is called on ("" for any); the modules above the catalog and the
# oplog that may call it.
CALLERS: dict[tuple[str, str], set[str]] = {
    # Besides the one: what is loaded at the start is not logged, statements of a transaction commit into its write set,
    # and the clock of several servers is stored before there is a catalog.
    ("commit", "work"): {
        COMMIT_LOG,
        STORE_COMMIT_LOG,
        "exec/unit/loading_unit.py",
        "exec/operation/transaction_unit.py",
        "exec/service/stored_clock.py",
    },
    ("put", "oplog"): {COMMIT_LOG},
    ("append", "oplog"): {COMMIT_LOG},
    ("put_limit", ""): {COMMIT_LOG},
    ("committed", "sessions"): {COMMIT_LOG, STORE_COMMIT_LOG},
    ("arm_written", ""): {COMMIT_LOG},
    # Besides: the wheel is filled at the start, and what a transaction has held up comes after its end.
    ("arm", "wheel"): {"exec/service/expiry.py", "exec/write/expiry.py", "exec/operation/transaction_unit.py"},
    # Without a commit: an idle server, defaults with the time of their change, the floor of an oplog that begins again.
    ("tick", "cluster_clock"): {
        COMMIT_LOG,
        "commands/admin/rw_concern_defaults.py",
        "exec/operation/restoring.py",
        "server/dispatch.py",
    },
}
MODULES = sorted(
    str(path.relative_to(PACKAGE))
    for package in ("exec", "commands", "server")
    for path in (PACKAGE / package).rglob("*.py")
)
# Who knows the form of an operation in the oplog.
OPERATIONS = "oplog/operations.py"
FROZEN = {"oplog/change.py": {"Change", "LoggedChange"}, "oplog/entry.py": {"OplogEntry"}}


@cache
def calls_of(module: str) -> list[tuple[str, str, int]]:
    """The calls of methods in a module: the method, the last name of what it is called on, and the line."""
    found = []
    for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            value = node.func.value
            name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            found.append((node.func.attr, name.strip("_"), node.lineno))
    return found


def callers_of(method: str, target: str) -> set[str]:
    return {
        module
        for module in MODULES
        for called, name, _ in calls_of(module)
        if called == method and target in ("", name)
    }


@pytest.mark.parametrize(("method", "target"), list(CALLERS))
def test_commit_steps_have_one_caller_each(method: str, target: str) -> None:
    assert callers_of(method, target) == CALLERS[method, target]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in FROZEN.items() for name in names])
def test_classes_of_changes_are_frozen(module: str, name: str) -> None:
    """Each attribute is declared `Final` where it is first assigned, so that mypy refuses every other assignment."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    assigned = [
        node
        for node in ast.walk(found)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        and any(
            isinstance(target, ast.Attribute)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        )
    ]
    assert len(assigned) > 5
    for node in assigned:
        assert isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Final"), ast.unparse(node)


def test_the_form_of_operations_is_known_in_one_module() -> None:
    """Only there are the fields `o2` and `ui` named, by which operations are written and read."""
    knowing = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if '"o2"' in (source := path.read_text(encoding="utf-8")) or '"ui"' in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and node.value in ("o2", "ui")
    }
    assert knowing == {OPERATIONS}
