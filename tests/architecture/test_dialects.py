"""What is one dialect's own is in its package, is loaded by name, and answers questions that the server really asks."""

import ast
from pathlib import Path

import pytest

from mongottl.commands.families import FAMILIES
from mongottl.config import DIALECTS, SETTINGS, ServerConfig
from mongottl.dialect import dialect_of
from mongottl.exec.state.failpoints import DIALECT_FAIL_POINTS
from tests.architecture.test_imports import PACKAGE, imports_of, modules, tree_of

INTERFACES = {"dialect.interface": "Dialect", "commands.dialect_hooks": "CommandHooks"}
# Packages of single dialects.
PACKAGES = ("dialect.cosmos",)
# Where settings are checked, which the command line has to know whatever the dialect is.
KNOWS_SETTINGS = "config.server_config"


def others() -> list[str]:
    """The modules that are of no single dialect."""
    return [module for module in modules() if not f"{module}.".startswith(tuple(f"{name}." for name in PACKAGES))]


@pytest.mark.parametrize("module", others())
def test_no_dialect_is_imported(module: str) -> None:
    imported = {found.module for found in imports_of(module) if found.ours}
    assert [name for name in imported if f"{name}.".startswith(tuple(f"{package}." for package in PACKAGES))] == []
    assert "config.cosmos_choices" not in imported or module == KNOWS_SETTINGS


@pytest.mark.parametrize("module", others())
def test_no_question_is_whether_there_is_an_account(module: str) -> None:
    """Nor is one which dialect it is: what differs has a name in `Dialect`."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = [side.attr if isinstance(side, ast.Attribute) else getattr(side, "id", "") for side in sides]
            is_none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
            assert not (is_none and any(name.endswith("account") for name in names)), f"line {node.lineno}"
            named = {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
            # `--emulator` is short for other settings, among them the dialect.
            if "dialect" in ast.unparse(node) and module != KNOWS_SETTINGS:
                assert named.isdisjoint(DIALECTS), f"line {node.lineno}"


def class_named(module: str, name: str) -> ast.ClassDef:
    (found,) = (node for node in tree_of(module).body if isinstance(node, ast.ClassDef) and node.name == name)
    return found


def methods_of(node: ast.ClassDef) -> set[str]:
    return {one.name for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")}


def facts_of(node: ast.ClassDef) -> set[str]:
    """The public attributes that a class sets."""
    found = set()
    for one in ast.walk(node):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                found.add(target.attr)
    return {name for name in found if not name.startswith("_")}


def attributes_read(paths: list[str]) -> set[str]:
    """The names of attributes that modules read or call."""
    return {
        node.attr
        for module in paths
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_each_question_is_asked() -> None:
    asked = attributes_read([module for module in others() if module not in INTERFACES])
    asked |= attributes_read(["dialect.interface"])  # `code_name` asks `code_names`
    for module, name in INTERFACES.items():
        interface = class_named(module, name)
        assert methods_of(interface) | facts_of(interface) <= asked


def test_each_answer_is_to_a_question() -> None:
    """An answer under a wrong name would never be asked for, and MongoDB's be given."""
    interfaces = [class_named(module, name) for module, name in INTERFACES.items()]
    dialect = class_named("dialect.cosmos.dialect", "CosmosDialect")
    own = {"retries_writes"}  # what two of its answers have in common
    assert methods_of(dialect) - own <= {name for node in interfaces for name in methods_of(node)}
    assert facts_of(dialect) - {"account", "budgets"} <= facts_of(interfaces[0])


def test_each_question_says_what_it_is() -> None:
    for module, name in INTERFACES.items():
        for node in class_named(module, name).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), node.name


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_loaded_by_its_name(name: str) -> None:
    dialect = dialect_of(ServerConfig(dialect=name))
    assert dialect.name == name
    assert type(dialect).__module__ == DIALECTS[name].module


def test_fail_points_families_and_settings_name_existing_dialects() -> None:
    assert set(DIALECT_FAIL_POINTS.values()) <= set(DIALECTS)
    families = {family.split(".")[1] for family in FAMILIES if family.startswith("dialect.")}
    assert families <= set(DIALECTS)
    assert {row.group for row in SETTINGS if row.field.startswith("cosmos_")} == {"cosmos"}


def test_a_dialect_has_a_package_or_a_module() -> None:
    declared = set()
    for path in sorted((PACKAGE / "dialect").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "dialect":
                    declared.add(module_at(path))
    assert declared == {row.module for row in DIALECTS.values()}


def module_at(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
