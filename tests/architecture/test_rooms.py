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
MOST_OF_OPERATION = 55
# And of tests.
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
    ],
)
def test_a_context_has_few_attributes(module: str, name: str, most: int) -> None:
    """What belongs together is a part of its own: `service.expiry`, `service.bounds`."""
    assert len(attributes_set_by(module, name)) <= most
