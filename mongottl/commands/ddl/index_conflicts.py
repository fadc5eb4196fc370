"""Which indexes of a collection one more can be beside.

Error codes are those of MongoDB 8.2; the messages of Cosmos DB are its dialect's.
"""

from collections.abc import Iterable
from typing import Final

from mongottl.catalog.index import DIFFERENT, IDENTICAL, IndexDescriptor
from mongottl.dialect.interface import Dialect
from mongottl.document.render import render_beginning
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode

# New indexes with the same fields, where a dialect has no limit of indexes: each is compared with all others.
_MOST_SIMILAR: Final = 64


class KnownIndexes:
    """Indexes of one collection, those with which another one may be in conflict together.

    That may be thousands, where the dialect has no limit, and all happens in an undivided block.
    """

    def __init__(self, dialect: Dialect, known: Iterable[IndexDescriptor]) -> None:
        self._dialect: Final = dialect
        self._all: Final[list[IndexDescriptor]] = []
        self._by_name: Final[dict[str, IndexDescriptor]] = {}
        # By what they have in common, their positions.
        self._similar: Final[dict[object, list[int]]] = {}
        for descriptor in known:
            self.add(descriptor)

    def add(self, descriptor: IndexDescriptor) -> None:
        self._by_name.setdefault(descriptor.name, descriptor)
        for common in _in_common(descriptor):
            self._similar.setdefault(common, []).append(len(self._all))
        self._all.append(descriptor)

    def has_too_many_like(self, descriptor: IndexDescriptor) -> bool:
        """Whether there are too many with the same fields, which differ in their directions and options alone."""
        return len(self._similar.get(_names(descriptor), ())) >= _MOST_SIMILAR

    def identical(self, descriptor: IndexDescriptor) -> IndexDescriptor | None:
        """The index that is identical, or None if there is none and no conflict.

        IndexOptionsConflict (85) and IndexKeySpecsConflict (86) for conflicts, CannotCreateIndex (67) for a second
        index of a kind of which a collection has one at most.
        """
        other = self._by_name.get(descriptor.name)
        if other is not None:
            return self._identical_of_its_name(descriptor, other)
        positions = {at for common in _in_common(descriptor) for at in self._similar.get(common, ())}
        for at in sorted(positions):
            self._check(descriptor, self._all[at])
        return None

    def _identical_of_its_name(self, descriptor: IndexDescriptor, other: IndexDescriptor) -> IndexDescriptor:
        compared = descriptor.compared_with(other)
        if compared == IDENTICAL and descriptor.hidden == other.hidden:
            return other
        if compared == DIFFERENT and not (self._dialect.index_conflict and descriptor.has_key(other.key)):
            raise CommandError(
                ErrorCode.IndexKeySpecsConflict,
                "An existing index has the same name as the requested index. When index names are not specified,"
                " they are auto generated and can cause conflicts. Please refer to our documentation."
                f" {_both(descriptor, other)}",
            )
        raise self._options_conflict(
            descriptor, other, "An equivalent index already exists with the same name but different options."
        )

    def _check(self, descriptor: IndexDescriptor, other: IndexDescriptor) -> None:
        """The error of an index beside one of another name."""
        compared = descriptor.compared_with(other)
        if compared == IDENTICAL and not self._dialect.index_conflict:
            raise CommandError(
                ErrorCode.IndexOptionsConflict, f"Index already exists with a different name: {other.name}"
            )
        if compared != DIFFERENT:
            raise self._options_conflict(
                descriptor, other, "An equivalent index already exists with a different name and options."
            )
        if descriptor.kind.at_most_one and other.kind is descriptor.kind:
            raise CommandError(
                ErrorCode.CannotCreateIndex,
                f"only one {descriptor.kind.name} index per collection allowed, found existing {descriptor.kind.name}"
                f' index "{other.name}"',
            )
        if descriptor.is_ttl_setting and other.is_ttl_setting:
            raise self._options_conflict(
                descriptor,
                other,
                f"The default TTL of a collection is set once, and index {other.name} sets it.",
            )

    def _options_conflict(self, requested: IndexDescriptor, existing: IndexDescriptor, message: str) -> CommandError:
        """IndexOptionsConflict (85), with the dialect's message if it has one."""
        words = self._dialect.index_conflict
        text = words.format(name=existing.name) if words else f"{message} {_both(requested, existing)}"
        return CommandError(ErrorCode.IndexOptionsConflict, text)


def _in_common(descriptor: IndexDescriptor) -> list[object]:
    """What another index has, too, if it may be in conflict with this one."""
    found: list[object] = [_names(descriptor)]
    if descriptor.kind.at_most_one:
        found.append(descriptor.kind)
    if descriptor.is_ttl_setting:
        found.append(True)
    return found


def _names(descriptor: IndexDescriptor) -> tuple[str, ...]:
    """The names of the fields of the key."""
    return tuple([name for name, _ in fields(descriptor.key)])


def _both(requested: IndexDescriptor, existing: IndexDescriptor) -> str:
    return f"Requested index: {render_beginning(requested.spec)}, existing index: {render_beginning(existing.spec)}"
