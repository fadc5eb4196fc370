"""Tables of named operators: one per kind (match operators, expressions, stages, accumulators, update modifiers).

An operator is registered by a decorator on its implementation; the `__init__` of its package imports the modules by
name, not by scanning folders. Operators of MongoDB that mongottl does not support are registered as unsupported, for
correct errors and a complete support table in docs/supported.md.
"""

from typing import Generic, TypeVar

from mongottl.versions import INTRODUCED, NOT_SUPPORTED, OLDEST, Features, Version

T = TypeVar("T")


class Registry(Generic[T]):
    """Operators of one kind by name.

    kind: their name in the support table, "query operator" for example.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}
        self._unsupported: dict[str, str] = {}
        self._refused_items: dict[str, T] = {}
        self._removed: dict[str, T] = {}
        # Of those that came after OLDEST. `versions.Features` decides by them what an announced version lacks.
        self._introduced: dict[str, Version] = INTRODUCED.setdefault(kind, {})

    def add(self, name: str, item: T, since: Version) -> None:
        """Registers a supported operator.

        since: the version of MongoDB that introduced it; OLDEST for one that is as old or older. ValueError if the name
        is already registered.
        """
        self._add_name(name, since)
        self._items[name] = item

    def _add_name(self, name: str, since: Version) -> None:
        if name in self._items or name in self._unsupported:
            raise ValueError(f"{self.kind} {name} is registered twice")
        if since > OLDEST:
            self._introduced[name] = since

    def add_unsupported(self, name: str, reason: str, item: T | None = None, *, since: Version) -> None:
        """Registers an unsupported operator of MongoDB; the reason is shown in the support table and the error.

        item: returned by `known` all the same, for checks that do not depend on support. since: as for `add`.
        """
        self._add_name(name, since)
        self._unsupported[name] = reason
        if item is not None:
            self._refused_items[name] = item

    def add_removed(self, name: str, item: T) -> None:
        """Registers an operator that MongoDB does not have (any more), for servers that have it (`Features.keeps`)."""
        if name in self._items or name in self._unsupported or name in self._removed:
            raise ValueError(f"{self.kind} {name} is registered twice")
        self._removed[name] = item

    def advice(self, features: Features | None, name: str) -> str:
        """The advice for an operator that the announced version lacks; "" for one that it has, or that MongoDB does not
        have."""
        if features is None or not features.lacks(self.kind, name):
            return ""
        return features.advice(self.kind, name) if name in self._items else NOT_SUPPORTED

    def get(self, name: str) -> T | None:
        return self._items.get(name)

    def removed(self, name: str) -> T | None:
        """The item of an operator of `add_removed`."""
        return self._removed.get(name)

    def known(self, name: str) -> T | None:
        """The item of a supported or unsupported name; None for an unknown name."""
        item = self._items.get(name)
        return self._refused_items.get(name) if item is None else item

    def since(self, name: str) -> Version:
        """The version of MongoDB that introduced the operator."""
        return self._introduced.get(name, OLDEST)

    def unsupported_reason(self, name: str) -> str | None:
        return self._unsupported.get(name)

    def names(self) -> list[str]:
        return sorted(self._items)

    def removed_names(self) -> list[str]:
        return sorted(self._removed)

    def unsupported_names(self) -> list[str]:
        return sorted(self._unsupported)
