"""How much is in one room: a folder whose files nobody can take in at a glance is divided by subject."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

# Files of Python in one folder of the package.
MOST_MODULES = 37
# Attributes of the state that all operations share, and of one operation.
MOST_OF_SERVICE = 57
MOST_OF_OPERATION = 23
# And of a part of it.
MOST_OF_PART = 12
PARTS_OF_OPERATION = {
    "cost": "OperationCost",
    "pace": "Pace",
    "profile": "OperationProfile",
    "reading": "Reading",
    "resources": "OperationResources",
    "sent_command": "SentCommand",
    "session_statement": "SessionStatement",
    "time_limits": "TimeLimits",
    "write_options": "WriteOptions",
}
# Of them those that operations share, so that nothing may change them.
SHARED_PARTS = ("cost", "reading", "sent_command", "session_statement", "time_limits", "write_options")
# Files of tests in one folder.
MOST_TEST_FILES = 32


def files_by_folder(root: Path) -> Counter[str]:
    return Counter(str(path.parent.relative_to(ROOT)) for path in root.rglob("*.py"))


def test_no_folder_of_the_package_is_too_full() -> None:
    crowded = {folder: n for folder, n in files_by_folder(ROOT / "mongottl").items() if n > MOST_MODULES}
    assert crowded == {}


def test_no_folder_of_tests_is_too_full() -> None:
    crowded = {folder: n for folder, n in files_by_folder(ROOT / "tests").items() if n > MOST_TEST_FILES}
    assert crowded == {}


def test_the_life_of_a_request_fits_on_a_few_pages() -> None:
    lines = (ROOT / "mongottl/server/dispatch.py").read_text(encoding="utf-8").count("\n")
    assert lines <= 300


@pytest.mark.parametrize(
    "part", ["engine.py", "folder.py", "idents.py", "maintenance.py", "space.py", "database_files.py"]
)
def test_each_part_of_the_sqlite_engine_fits_on_a_few_pages(part: str) -> None:
    lines = (ROOT / "mongottl/storage/sqlite" / part).read_text(encoding="utf-8").count("\n")
    assert lines <= 400


def attributes_set_by(module: str, name: str) -> set[str]:
    """The attributes that the methods of a class set."""
    tree = ast.parse((ROOT / "mongottl" / module).read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    targets: list[ast.expr] = []
    for node in ast.walk(found):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    return {
        target.attr for target in targets if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    }


@pytest.mark.parametrize(
    ("module", "name", "most"),
    [
        ("exec/service/service.py", "ServiceContext", MOST_OF_SERVICE),
        ("exec/operation/context.py", "OperationContext", MOST_OF_OPERATION),
        *[(f"exec/operation/{module}.py", name, MOST_OF_PART) for module, name in PARTS_OF_OPERATION.items()],
    ],
)
def test_a_context_has_few_attributes(module: str, name: str, most: int) -> None:
    """What belongs together is a part of its own: `service.expiry`, `service.bounds`."""
    assert len(attributes_set_by(module, name)) <= most


@pytest.mark.parametrize("module", SHARED_PARTS)
def test_parts_that_operations_share_are_final(module: str) -> None:
    """So that mypy refuses to change the one that all operations have which do not need their own."""
    tree = ast.parse((ROOT / "mongottl/exec/operation" / f"{module}.py").read_text(encoding="utf-8"))
    [part] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == PARTS_OF_OPERATION[module]]
    declared = {
        ast.unparse(node.target): ast.unparse(node.annotation)
        for node in ast.walk(part)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
    }
    assert set(declared) == {
        f"self.{name}" for name in attributes_set_by(f"exec/operation/{module}.py", PARTS_OF_OPERATION[module])
    }
    assert {name: kind for name, kind in declared.items() if not kind.startswith("Final")} == {}
