"""What runs here: the version, and whether the hot packages are compiled."""

from typing import Final

from mongottl.config import VERSION

# One module of each package that is compiled where a C compiler is there; see setup.py.
_WITNESSES: Final = ("mongottl.document.walk", "mongottl.query.match.tree")


def is_compiled() -> bool:
    """Whether mypyc's extension modules are what was really imported."""
    import importlib

    return all(not str(importlib.import_module(name).__file__).endswith(".py") for name in _WITNESSES)


def describe_version() -> str:
    """`mongottl 0.1.0 (compiled)`, or a line that says that it is slow and why."""
    if is_compiled():
        return f"mongottl {VERSION} (compiled)"
    return f"mongottl {VERSION} (interpreted: about ten times slower; install it where a C compiler is)"
