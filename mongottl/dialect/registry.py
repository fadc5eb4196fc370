"""Dialects by name: a module declares one by `@dialect`, and is imported when a server asks for it.

`config.DIALECTS` has the modules, so that a server imports the dialect that it speaks and no other.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final, TypeVar

from mongottl.config import DIALECTS, ServerConfig
from mongottl.dialect.interface import Dialect

_CLASSES: Final[dict[str, type[Dialect]]] = {}
_D = TypeVar("_D", bound=type[Dialect])


def dialect(name: str) -> Callable[[_D], _D]:
    """Registers the decorated class as the dialect of this name; ValueError if another one has it."""

    def register(declared: _D) -> _D:
        known = _CLASSES.get(name)
        if known is not None and known.__qualname__ != declared.__qualname__:
            raise ValueError(f"there are two dialects {name}: {known.__qualname__} and {declared.__qualname__}")
        _CLASSES[name] = declared
        return declared

    return register


def dialect_of(config: ServerConfig) -> Dialect:
    """The dialect of a server, as its configuration has it. LookupError if its module declares none of this name."""
    if config.dialect not in _CLASSES:
        import_module(DIALECTS[config.dialect].module)
    return _CLASSES[config.dialect](config)
