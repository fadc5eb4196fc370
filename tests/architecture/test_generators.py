"""No compiled generator is suspended while it handles an exception.

mypyc keeps the exception that is handled in the thread's state and not, as the interpreter does, with the generator.
A generator that is suspended inside `except` or `finally` leaves it there for whatever runs next. When it goes on or is
closed, it puts back the state of a time that is past, and the process may crash.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.test_imports import PACKAGE, ROOT


def suspensions(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """The lines in which the function of these statements is suspended."""
    for node in nodes:
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            yield node.lineno
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from suspensions(ast.iter_child_nodes(node))


def suspended_handlers(source: str) -> list[int]:
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try):
            lines += suspensions([statement for handler in node.handlers for statement in handler.body])
            lines += suspensions(node.finalbody)
    return sorted(lines)


def compiled_files() -> list[Path]:
    """What `setup.py` compiles."""
    script = ast.parse((ROOT / "setup.py").read_text())
    value = next(node.value for node in script.body if isinstance(node, ast.Assign) and named(node, "COMPILED"))
    paths = [ROOT / name for name in ast.literal_eval(value)]
    return sorted(file for path in paths for file in ([path] if path.suffix else path.rglob("*.py")))


def named(assignment: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in assignment.targets)


def test_suspensions_in_handlers_are_found() -> None:
    assert suspended_handlers("try:\n    f()\nexcept E:\n    yield 1\nfinally:\n    yield from g()") == [4, 6]
    assert suspended_handlers("try:\n    yield 1\nexcept E as raised:\n    kept = raised\nyield kept") == []


def test_no_compiled_generator_is_suspended_in_a_handler() -> None:
    files = compiled_files()
    assert PACKAGE / "exec" / "write" / "modifying.py" in files
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in suspended_handlers(file.read_text())]
    assert found == []
