"""Each module of the query language that registers a name is imported with its package.

Another test imports every module there is, and so would hide that a module is never imported at run time.
"""

import ast
import subprocess
import sys
from pathlib import Path

QUERY = Path(__file__).resolve().parent.parent.parent / "mongottl" / "query"
PACKAGES = ("match", "expr", "update", "pipeline")


def registers(source: str) -> bool:
    """Whether a decorator such as `@stage("$match", …)` is on a function or class of this module."""
    for node in ast.walk(ast.parse(source)):
        for decorator in getattr(node, "decorator_list", ()):
            for argument in getattr(decorator, "args", ()):
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("$"):
                    return True
    return False


def test_modules_that_register_are_found() -> None:
    assert registers('@match_operator("$size")\ndef parse_size() -> None: ...')
    assert not registers("@cache\ndef parse_size(name: str) -> None: ...")


def test_packages_import_what_registers_names() -> None:
    registering = {
        ".".join(("mongottl.query", *path.relative_to(QUERY).with_suffix("").parts))
        for path in QUERY.rglob("*.py")
        if registers(path.read_text(encoding="utf-8"))
    }
    assert len(registering) > 40
    for package in PACKAGES:
        program = f"import sys, mongottl.query.{package}; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        missing = {name for name in registering if name.startswith(f"mongottl.query.{package}.")} - set(loaded.split())
        assert not missing, f"mongottl/query/{package}/__init__.py does not import {missing}"
