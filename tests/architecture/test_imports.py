"""Who may import whom: the rows of the architecture as data, checked against the source.

A row imports the rows below it, never up and never sideways; inside a package modules import each other freely, also
where a row names some of them apart. Imports
for type checkers alone have no effect at run time; those that point up are listed here, so that they stay few.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "mongottl"

# From the bottom up. A name stands for the module or package and everything in it, the longest name first.
ROWS: tuple[tuple[str, ...], ...] = (
    ("clock", "extras"),
    ("errors", "config"),
    ("processes",),
    ("document", "build_info"),
    ("geometry", "javascript", "regex", "versions", "storage.waiting", "storage.log", "storage.nodes"),
    ("wire", "query", "ttl", "dump", "storage.errors", "storage.stores", "storage.interface"),
    ("catalog", "storage"),
    ("security",),
    ("oplog",),
    ("offline",),
    # The interface, which the server asks; what the dialects themselves need is below them, since nothing imports them.
    ("dialect",),
    ("exec.running",),
    ("exec.state",),
    ("exec.sessions",),
    ("exec.service",),
    ("exec.unit",),
    ("exec.operation",),
    # Which keys of an index a filter needs, and the plans by `_id`: of `plan`, the stages know only these modules.
    (
        "exec.plan.bounds",
        "exec.plan.bounds_text",
        "exec.plan.expr_bounds",
        "exec.plan.predicates",
        "exec.plan.partition",
        "exec.plan.express",
    ),
    ("exec.stages",),
    ("exec.plan",),
    ("exec.write",),
    ("exec.results",),
    ("exec",),
    ("commands",),
    ("server",),
    ("dialect.cosmos",),
    ("cli", "pytest_plugin", "__init__"),
    ("__main__",),
)
# The package's face names what it offers, wherever that lives; it imports it on first use.
FACE = "__init__"

# Row of the importer, name of the imported: imports under `if TYPE_CHECKING` that point up or sideways.
FOR_TYPES_ONLY: frozenset[tuple[str, str]] = frozenset()

# One module of each group of modules that need each other, at run time, within functions or for their types; and why.
CIRCLES: dict[str, str] = {}

# Where chance comes in: ids that must not be guessed or repeated, and what is asked to choose by chance.
CHANCE = {
    "catalog.catalog": {"os.urandom"},
    "commands.admin.session": {"os.urandom"},
    "dialect.cosmos.account_user": {"os.urandom"},
    "dialect.cosmos.wording": {"uuid"},
    "document.sorting": {"random"},
    "exec.results.aggregation": {"random"},
    "exec.sessions.cursor_registry": {"os.urandom"},
    "exec.state.object_ids": {"os.urandom"},
    "query.expr.misc": {"random"},
    "security.scram": {"os.urandom"},
    "storage.postgresql.engine": {"secrets"},
    "server.web.login": {"os.urandom"},
    "server.web.site": {"os.urandom"},
    "query.match.special": {"random"},
}

TIME_MODULES = {"time", "sched", "asyncio"}
TIME_CALLS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}


class Import:
    """One import. module: dotted, without `mongottl.` where it is ours. typed: under `if TYPE_CHECKING`."""

    def __init__(self, module: str, ours: bool, typed: bool, line: int) -> None:
        self.module = module
        self.ours = ours
        self.typed = typed
        self.line = line


def modules() -> list[str]:
    """Every module, dotted and without `mongottl.`; a package by its own name."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts))
    return found


@cache
def tree_of(module: str) -> ast.Module:
    """The source of a module, which every test of them reads: parsed once."""
    path = PACKAGE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports_of(module: str) -> list[Import]:
    return list(_imports(tree_of(module), False))


def _imports(node: ast.AST, typed: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield _import(name.name, typed, node.lineno)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import in line {node.lineno}"
        base = node.module or ""
        for name in node.names:
            whole = f"{base}.{name.name}"
            yield _import(whole if _is_module(whole) else base, typed, node.lineno)
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        for statement in node.body:
            yield from _imports(statement, True)
        for statement in node.orelse:
            yield from _imports(statement, typed)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, typed)


def _import(name: str, typed: bool, line: int) -> Import:
    ours = name == "mongottl" or name.startswith("mongottl.")
    return Import(name.partition(".")[2] or FACE if ours else name, ours, typed, line)


def _is_module(name: str) -> bool:
    if not name.startswith("mongottl."):
        return False
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def place_of(module: str) -> tuple[int, str]:
    """The row of a module, and the name in it that it goes by."""
    best = (-1, "")
    for row, names in enumerate(ROWS):
        for name in names:
            if (module == name or module.startswith(name + ".")) and len(name) > len(best[1]):
                best = (row, name)
    return best


def package_of(name: str, row: int) -> tuple[int, str]:
    """What imports itself freely: a package, or the modules of a package that one row names."""
    package, _, _ = name.rpartition(".")
    return row, package if any(package in names for names in ROWS) else name


def test_every_module_has_a_row() -> None:
    assert [module for module in modules() if place_of(module)[0] < 0] == []


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    if module == FACE:
        return
    row, name = place_of(module)
    wrong = []
    for imported in imports_of(module):
        if not imported.ours or imported.module == FACE:
            continue
        other_row, other_name = place_of(imported.module)
        # `storage` holds its interface a row deeper, which its engines are built on.
        if other_row < row or package_of(other_name, other_row) == package_of(name, row):
            continue
        if imported.typed and (module, imported.module) in FOR_TYPES_ONLY:
            continue
        wrong.append(f"line {imported.line}: {imported.module} is not below {name}")
    assert wrong == []


def test_the_face_imports_settings_alone() -> None:
    """`import mongottl`, which a pytest run does for the plugin, must cost nothing."""
    assert {i.module for i in imports_of(FACE) if i.ours and not i.typed} <= {"config"}


def test_listed_exceptions_are_needed() -> None:
    for module, imported in FOR_TYPES_ONLY:
        assert any(i.typed and i.module == imported for i in imports_of(module)), (module, imported)


def imported_modules(module: str) -> set[str]:
    """The modules of ours that a module imports anywhere, functions and `if TYPE_CHECKING` included."""
    return {found.module for found in imports_of(module) if found.ours}


def circles() -> set[frozenset[str]]:
    """The groups of modules that import each other, directly or by way of others (Tarjan's strong components)."""
    known = set(modules())
    graph = {module: imported_modules(module) & known - {module} for module in known}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            group = path[path.index(module) :]
            del path[path.index(module) :]
            if len(group) > 1:
                found.add(frozenset(group))

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_no_circles_but_those_listed() -> None:
    found = {module for circle in circles() for module in (circle & CIRCLES.keys() or circle)}
    assert found == CIRCLES.keys()


SHELL = ROWS.index(("server",))
# Modules below the shell that know sockets all the same: pairs, to speak with processes of their own; names of hosts.
KNOW_SOCKETS = {
    "processes.pool",
    "processes.spawner",
    "storage.postgresql.address",
    "storage.postgresql.host_names",
}


@pytest.mark.parametrize("module", [m for m in modules() if place_of(m)[0] < SHELL])
def test_only_the_shell_knows_trio_and_sockets(module: str) -> None:
    for imported in imports_of(module):
        root = imported.module.partition(".")[0]
        if root == "socket" and module in KNOW_SOCKETS:
            continue
        assert imported.ours or root not in ("trio", "asyncio", "socket", "selectors", "ssl"), imported.line


@pytest.mark.parametrize("module", [m for m in modules() if m != "clock"])
def test_only_the_clock_reads_time(module: str) -> None:
    for imported in imports_of(module):
        assert imported.ours or imported.module.partition(".")[0] not in TIME_MODULES, f"line {imported.line}"
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in TIME_CALLS, f"line {node.lineno}"
            assert (node.value.id, node.attr) != ("trio", "current_time"), f"line {node.lineno}"


@pytest.mark.parametrize("module", modules())
def test_chance_is_where_it_is_listed(module: str) -> None:
    used: set[str] = set()
    for imported in imports_of(module):
        if not imported.ours and imported.module.partition(".")[0] in ("random", "secrets", "uuid"):
            used.add(imported.module.partition(".")[0])
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute) and node.attr == "urandom":
            used.add("os.urandom")
    assert used == CHANCE.get(module, set())


@pytest.mark.parametrize("module", modules())
def test_every_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(tree_of(module))
