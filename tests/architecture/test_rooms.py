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
# Lines of one file of a connection, which has one subject.
MOST_LINES_OF_A_CONNECTION = 400
CONNECTION = ROOT / "mongottl/server/connection"


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


@pytest.mark.parametrize("file", sorted(CONNECTION.glob("*.py")), ids=lambda file: file.stem)
def test_each_part_of_a_connection_fits_on_a_few_pages(file: Path) -> None:
    assert file.read_text(encoding="utf-8").count("\n") <= MOST_LINES_OF_A_CONNECTION


def empty_attributes(source: str) -> set[str]:
    """The attributes that classes set to None, or to what may be None."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        nullable = {each.arg for each in arguments if each.annotation and "None" in ast.unparse(each.annotation)}
        for node in ast.walk(function):
            targets: list[ast.expr] = []
            declared = ""
            if isinstance(node, ast.AnnAssign):
                targets.append(node.target)
                declared = ast.unparse(node.annotation)
            elif isinstance(node, ast.Assign):
                targets += node.targets
            else:
                continue
            value = node.value
            may_be_none = "None" in declared or (value is not None and ast.unparse(value) in {*nullable, "None"})
            found |= {each.attr for each in targets if isinstance(each, ast.Attribute) and may_be_none}
    return found


def test_empty_attributes_are_found() -> None:
    source = "class A:\n def f(self, a: int | None, b: int):\n  self.a = a\n  self.b = b\n  self.c: str | None = ''"
    assert empty_attributes(source + "\n  self.d = None") == {"a", "c", "d"}


def test_no_part_of_a_connection_may_be_missing() -> None:
    """What there is of a request, the state of its exchange says: its attributes are the data that exist in it."""
    found = {file.name: empty_attributes(file.read_text(encoding="utf-8")) for file in CONNECTION.glob("*.py")}
    assert {name: attributes for name, attributes in found.items() if attributes} == {}


def test_an_exchange_moves_only_by_its_table() -> None:
    setting = set()
    for file in (ROOT / "mongottl/server").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == "state":
                setting.add(file.relative_to(ROOT / "mongottl/server").as_posix())
    assert setting == {"connection/exchange.py"}


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
