"""Tables of named operators: one per kind (match operators, expressions, stages, accumulators, update modifiers).

An operator is registered where its body stands, by a decorator of its family package; the family's `__init__` imports
its modules by name, so nothing is found by scanning. Names that MongoDB has and mongottl does not support yet are
registered too, as unsupported: the answer to them is honest, and the support table of the README is complete.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to items of one kind.

    kind: how the support table calls them, "query operator" for example.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}
        self._unsupported: dict[str, str] = {}
        self._refused_items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Registers a supported operator. ValueError if the name is taken: nothing is ever replaced."""
        if name in self._items or name in self._unsupported:
            raise ValueError(f"{self.kind} {name} is registered twice")
        self._items[name] = item

    def add_unsupported(self, name: str, reason: str, item: T | None = None) -> None:
        """Registers a name that MongoDB knows and we refuse; the reason is for the support table and the error.

        item: what is true of the operator nevertheless, for `known`.
        """
        if name in self._items or name in self._unsupported:
            raise ValueError(f"{self.kind} {name} is registered twice")
        self._unsupported[name] = reason
        if item is not None:
            self._refused_items[name] = item

    def get(self, name: str) -> T | None:
        return self._items.get(name)

    def known(self, name: str) -> T | None:
        """The item of a name, whether it is supported or refused; None for an unknown name."""
        item = self._items.get(name)
        return self._refused_items.get(name) if item is None else item

    def unsupported_reason(self, name: str) -> str | None:
        return self._unsupported.get(name)

    def names(self) -> list[str]:
        return sorted(self._items)

    def unsupported_names(self) -> list[str]:
        return sorted(self._unsupported)
