"""In a compiled function, errors of different types have different names.

mypyc gives a name one type, that of the first `except … as name`. Another error that is caught by the same name fails
as a TypeError.
"""

import ast

from tests.architecture.test_generators import compiled_files
from tests.architecture.test_imports import PACKAGE, ROOT


def shared_names(source: str) -> list[str]:
    """`line name` of names by which one function catches errors of different types."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            types: dict[str, set[str]] = {}
            for handler in ast.walk(node):
                if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                    types.setdefault(handler.name, set()).add(ast.unparse(handler.type))
            found += [f"{node.lineno} {name}" for name, caught in types.items() if len(caught) > 1]
    return found


def test_names_of_errors_are_found() -> None:
    source = "def f():\n    try:\n        g()\n    except {} as {}:\n        raise\n    except E as e:\n        raise"
    assert shared_names(source.format("F", "e")) == ["1 e"]
    assert shared_names(source.format("E", "e")) == []
    assert shared_names(source.format("F", "f")) == []


def test_no_name_has_errors_of_two_types() -> None:
    files = compiled_files()
    assert PACKAGE / "server" / "dispatch.py" in files
    found = [f"{file.relative_to(ROOT)}:{names}" for file in files for names in shared_names(file.read_text())]
    assert found == []
