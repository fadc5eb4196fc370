"""What is compiled: nothing that mypyc would lose, and all that an update by `_id` runs for its document."""

import ast

import pytest

from tests.architecture.test_generators import compiled_files
from tests.architecture.test_imports import PACKAGE, ROOT

# From a parsed message to its reply: modules of packages that are not compiled as a whole.
ON_THE_WAY_OF_A_WRITE = (
    "commands/collection_uuid.py",
    "commands/concerns.py",
    "commands/crud/delete.py",
    "commands/crud/insert.py",
    "commands/crud/statement_batch.py",
    "commands/crud/update.py",
    "commands/crud/write_batch.py",
    "commands/query_context.py",
    "commands/request.py",
    "server/connection/at_once.py",
    "server/connection/channel.py",
    "server/connection/exchange.py",
    "server/dispatch.py",
    "server/session_use.py",
    "server/transactions.py",
    "server/waits.py",
    "storage/sqlite/record_cache.py",
)


def annotated_tuples(source: str) -> list[str]:
    """Named tuples whose fields have more than a type in their annotations, which mypyc drops: the request of a command
    would have lost the names of its fields."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and "NamedTuple" in [ast.unparse(base) for base in node.bases]:
            fields = [statement.annotation for statement in node.body if isinstance(statement, ast.AnnAssign)]
            if any("Annotated" in ast.unparse(field) for field in fields):
                found.append(node.name)
    return found


def test_annotated_tuples_are_found() -> None:
    assert annotated_tuples("class A(NamedTuple):\n    a: Annotated[int, Field('a')]\n    b: int = 0") == ["A"]
    assert annotated_tuples("class A(NamedTuple):\n    a: int\nclass B(C):\n    a: Annotated[int, 1]") == []


def test_no_compiled_named_tuple_has_annotated_fields() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name}" for file in compiled_files() for name in annotated_tuples(file.read_text())
    ]
    assert found == []
    assert annotated_tuples((PACKAGE / "commands" / "crud" / "write_requests.py").read_text())


@pytest.mark.parametrize("module", ON_THE_WAY_OF_A_WRITE)
def test_modules_on_the_path_of_a_write_are_compiled(module: str) -> None:
    assert PACKAGE / module in compiled_files()


# Modules of the SQLite engine with statements that change rows, and which rows. Those of records are kept in memory, so
# who changes them has to change what is kept.
ROWS_ARE_CHANGED_BY = {
    "connection.py": "counters, in `stores`",
    "database.py": "the schema, when a folder is opened",
    "engine.py": "`catalog`",
    "idents.py": "`stores`, and the rows of dropped idents",
    "records.py": "records, and what is kept of them",
    "sorted_data.py": "index entries",
}


def test_only_these_modules_change_rows() -> None:
    changing = ("INSERT ", "UPDATE ", "DELETE FROM ", "REPLACE INTO ")
    found = set()
    for file in (PACKAGE / "storage" / "sqlite").glob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
        if any(isinstance(text, str) and text.startswith(changing) for text in texts):
            found.add(file.name)
    assert found == set(ROWS_ARE_CHANGED_BY)


def foreign_bases(source: str) -> dict[str, str]:
    """Module by base class, of the base classes that a module imports from another one of the package."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("mongottl.")
        for alias in node.names
    }
    bases = [ast.unparse(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return {base: imported[base] for base in bases if base in imported}


def test_imported_bases_are_found() -> None:
    assert foreign_bases("from mongottl.a import B\nfrom c import D\nclass E(B, D, F): ...") == {"B": "mongottl.a"}


def test_classes_that_compiled_ones_derive_from_are_compiled() -> None:
    """Else each call of their methods by the base's type goes through the interpreter, which nothing else shows: a find
    by `_id` took 1.2 % more instructions when the contract of the stores was not compiled. Errors are made seldom."""
    files = compiled_files()
    compiled = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files}
    found = {
        f"{file.relative_to(ROOT)}: {base} of {module}"
        for file in files
        for base, module in foreign_bases(file.read_text()).items()
        if module not in compiled and module != "mongottl.errors"
    }
    assert "mongottl.storage.stores" in compiled
    assert found == set()
