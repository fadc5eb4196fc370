"""Keys of long documents that are made before the unit of work that writes them.

A unit of work is never left: an array of half a million numbers in an indexed field would keep everybody waiting for
as long as making its keys takes, which is most of what its insert takes. The keys of a document depend on its bytes
and on the index alone, so they are made beforehand, in an evaluation that others interrupt; `CollectionIndex.keys_of`
finds them, if the document that is written then is the same.

    insert, update or delete:   make the keys ............. (others run) ─► check again ─► unit of work
    index build, purge:         read ─► keys missing? ─► make the keys (others run) ─► read again ─► unit of work
"""

from types import TracebackType
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.keys import MadeKeys
from mongottl.document.interrupt import begin_evaluation, end_evaluation
from mongottl.errors import CommandError, is_interruption

# How often a write that others overtake, since they change the document meanwhile, makes its keys ahead: then it makes
# them within the unit of work. It would be overtaken again and again by writers of short keys.
MOST_OVERTAKEN: Final = 1


class KeysAhead:
    """A block in which keys that were made ahead are found: `with KeysAhead() as ahead: ahead.make(…)`."""

    def __init__(self) -> None:
        self._made: list[tuple[CollectionIndex, MadeKeys]] = []

    def __enter__(self) -> "KeysAhead":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()

    def forget(self) -> None:
        """Releases the keys made so far."""
        for index, made in self._made:
            index.made_ahead.remove(made)
        self._made = []

    def lacks(self, indexes: list[CollectionIndex], document: bytes) -> bool:
        """Whether the document is long and no operation has made its keys: `make` is still to be called for it."""
        for index in indexes:
            if len(document) >= index.descriptor.ahead_bytes and not index.finds_made(document):
                return True
        return False

    def make(self, indexes: list[CollectionIndex], document: bytes) -> None:
        """Makes the keys of a document in the indexes for which it is long. The errors of `check_interrupt`.

        A document that has no valid keys is not refused here, but where it is written.
        """
        begun = begin_evaluation()
        try:
            for index in indexes:
                if len(document) < index.descriptor.ahead_bytes or index.finds_made(document):
                    continue
                made = MadeKeys(document, index.descriptor.key_generator())
                try:
                    lent = index.descriptor.lend_partial_match()
                    made.keys = index.keys_by(made.generator, document, lent)
                    index.descriptor.take_back_partial_match(lent)
                except CommandError as error:
                    if is_interruption(error):
                        raise
                    made.error = error
                index.made_ahead.append(made)
                self._made.append((index, made))
        finally:
            if begun:
                end_evaluation()

    def make_for_update(self, collection: Collection, before: bytes, after: bytes) -> None:
        """Makes the keys of a document's old and new version, in the indexes in which they may differ."""
        size = max(len(before), len(after))
        if size >= collection.ahead_bytes:
            indexes = [
                index
                for index in collection.writable_indexes
                if size >= index.descriptor.ahead_bytes and not index.has_same_keys(before, after)
            ]
            self.make(indexes, before)
            self.make(indexes, after)
