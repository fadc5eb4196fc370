"""The version that is installed, and whether its packages are compiled."""

import platform
import sys
from typing import Final

from mongottl.config import VERSION

# Two of the modules that setup.py compiles if there is a C compiler, and that every server imports when it starts.
_COMPILED_MODULES: Final = ("mongottl.document.walk", "mongottl.wire.decode")


def is_compiled() -> bool:
    """Whether the modules that were imported are mypyc's extension modules."""
    import importlib

    return all(not str(importlib.import_module(name).__file__).endswith(".py") for name in _COMPILED_MODULES)


def describe_version() -> str:
    """`mongottl 0.1.0 (compiled)`, or a line that says that it is interpreted, and how slow that is; of a bundle also
    with which Python.

    Why it is interpreted is not known: there was no C compiler at the installation, or MONGOTTL_PURE=1 asked for it.
    """
    how = "compiled" if is_compiled() else "interpreted: about ten times slower than compiled"
    # The launcher of scripts/bundle gives Python this option.
    bundle = f", a bundle with Python {platform.python_version()}" if "bundle" in sys._xoptions else ""
    return f"mongottl {VERSION} ({how}){bundle}"
