"""The storage contract stays small, and what wraps an engine forgets none of its methods."""

import ast

from tests.architecture.test_imports import PACKAGE

STORAGE = PACKAGE / "storage"
# What an engine has to implement, by class. A method that the others can be made of has a default instead.
MOST_ABSTRACT = {"RecordStore": 8, "SortedDataInterface": 4, "StorageEngine": 15, "WriteUnitOfWork": 5}
# The classes of `forwarding`, and what each of them forwards.
FORWARDED = {
    "ForwardingRecords": "RecordStore",
    "ForwardingEntries": "SortedDataInterface",
    "ForwardingEngine": "StorageEngine",
}


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
    contract = methods((STORAGE / "interface.py").read_text())
    abstract = {name: sum(kinds.values()) for name, kinds in contract.items() if any(kinds.values())}
    assert abstract == MOST_ABSTRACT


def test_wrappers_forward_every_method() -> None:
    contract = methods((STORAGE / "interface.py").read_text())
    forwarding = methods((STORAGE / "forwarding.py").read_text())
    for name, forwarded in FORWARDED.items():
        own = {method for method in forwarding[name] if method not in ("__init__", "inner_records")}
        assert own == set(contract[forwarded])
