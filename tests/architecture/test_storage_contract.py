"""The storage contract stays small, what wraps an engine forgets none of its methods, and nobody asks which it is.

What differs between engines is asked of the engine (`persistent`, `folder`, `can_copy`), or goes by `storage.opening`.
"""

import ast

from tests.architecture.test_imports import PACKAGE, imports_of, modules, tree_of

STORAGE = PACKAGE / "storage"
CONTRACT = ("interface.py", "stores.py")
# What an engine has to implement, by class. A method that the others can be made of has a default instead.
MOST_ABSTRACT = {
    "RecordStore": 8,
    "SortedDataInterface": 4,
    "StorageEngine": 16,
    "WriteUnitOfWork": 5,
    # Which no engine without an isolation of its own implements.
    "Isolation": 4,
    "OpenSnapshot": 4,
    "OpenTransaction": 10,
    "KeptWrites": 5,
    "WatchedWrites": 3,
}
# The classes of `forwarding`, and what each of them forwards.
FORWARDED = {
    "ForwardingRecords": "RecordStore",
    "ForwardingEntries": "SortedDataInterface",
    "ForwardingEngine": "StorageEngine",
}


def contract() -> dict[str, dict[str, bool]]:
    """The methods of the classes of the contract."""
    found: dict[str, dict[str, bool]] = {}
    for name in CONTRACT:
        found.update(methods((STORAGE / name).read_text()))
    return found


def methods(source: str) -> dict[str, dict[str, bool]]:
    """The methods and properties of each class, and whether they are abstract."""
    found: dict[str, dict[str, bool]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                each.name: any(ast.unparse(decorator) == "abstractmethod" for decorator in each.decorator_list)
                for each in node.body
                if isinstance(each, ast.FunctionDef)
            }
    return found


def test_an_engine_implements_few_methods() -> None:
    abstract = {name: sum(kinds.values()) for name, kinds in contract().items() if any(kinds.values())}
    assert abstract == MOST_ABSTRACT


def test_wrappers_forward_every_method() -> None:
    forwarding = methods((STORAGE / "forwarding.py").read_text())
    for name, forwarded in FORWARDED.items():
        own = {method for method in forwarding[name] if method not in ("__init__", "inner_records")}
        assert own == set(contract()[forwarded])


# The engines, each in a package of its own.
ENGINES = ("storage.memory", "storage.sqlite")
# Who may read the setting of the data folder: where the engine's URI is made of it, before there is an engine, and
# where settings are shown. Everyone else asks the engine.
READ_DATA_DIR = {
    "cli.container",
    "cli.serve",
    "cli.trust",
    "commands.admin.diagnostics",
    "config.server_config",
    "server.transport.certificates",
}


def test_only_storage_imports_engines() -> None:
    importers = {module for module in modules() if any(is_engine(each.module) for each in imports_of(module))}
    assert {module for module in importers if not module.startswith("storage.")} == set()
    assert "storage.sqlite.engine" in importers  # so they are found


def is_engine(module: str) -> bool:
    """Whether a module belongs to an engine's package."""
    return any(module == engine or module.startswith(f"{engine}.") for engine in ENGINES)


def test_whether_data_is_kept_is_asked_of_the_engine() -> None:
    readers = {
        module
        for module in modules()
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute) and node.attr == "data_dir"
    }
    assert readers == READ_DATA_DIR


def test_whether_others_share_the_data_is_asked_of_the_engine() -> None:
    askers = {
        module
        for module in modules()
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("nodes.is_shared")
    }
    assert askers == {"storage.interface"}
