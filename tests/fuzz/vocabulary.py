"""The names of arguments that an operator, a stage or a command looks for, read from its source.

Registries say which operators there are, but not all of them what their arguments are called: an operator with a
syntax of its own compares names where it parses. So the words are taken from the source: all strings that look like
names in the function that is registered under the operator's name, and in what that function uses of its module. What
is added to a registry is fuzzed with its own names without being listed here.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import mongottl

_WORD: Final = re.compile(r"\$?[A-Za-z_][A-Za-z0-9_]{0,30}")
# The folder of the sources; they lie beside the compiled modules.
_ROOT: Final = Path(mongottl.__file__).parent


class _Module:
    """What one module defines at its top level."""

    def __init__(self, tree: ast.Module) -> None:
        self.definitions: dict[str, ast.AST] = {}
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.definitions[statement.name] = statement
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self.definitions[statement.target.id] = statement
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.definitions[statement.targets[0].id] = statement

    def words(self, start: ast.AST) -> set[str]:
        """The words in a definition, and in those of this module that it uses, directly or not."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for part in ast.walk(waiting.pop()):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    if _WORD.fullmatch(part.value):
                        found.add(part.value)
                elif isinstance(part, ast.Name) and part.id in self.definitions and part.id not in seen:
                    seen.add(part.id)
                    waiting.append(self.definitions[part.id])
        return found


def _sources() -> Iterator[Path]:
    for folder in ("commands", "catalog", "query"):
        yield from (_ROOT / folder).rglob("*.py")


@cache
def _modules() -> list[tuple[_Module, ast.Module]]:
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(_sources())]
    return [(_Module(tree), tree) for tree in trees]


@cache
def _registered() -> dict[str, list[str]]:
    """Words by the name in the decorator, or in the call, that registers something: `@stage("$unwind")`."""
    found: dict[str, set[str]] = {}
    for module, tree in _modules():
        for definition in module.definitions.values():
            if isinstance(definition, ast.FunctionDef | ast.ClassDef):
                for decorator in definition.decorator_list:
                    for name in _first_texts(decorator):
                        found.setdefault(name, set()).update(module.words(definition))
        for part in ast.walk(tree):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "add":
                for name in _first_texts(part):
                    found.setdefault(name, set()).update(module.words(part))
    return {name: sorted(words - {name}) for name, words in found.items()}


def _first_texts(call: ast.AST) -> list[str]:
    if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
        value = call.args[0].value
        return [value] if isinstance(value, str) else []
    return []


def words_of(name: str) -> list[str]:
    """The words that what is registered under a name may look for; empty where it is registered in another manner."""
    return _registered().get(name, [])
