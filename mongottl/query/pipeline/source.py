"""Streams of documents, pulled batch by batch.

[] from `next_batch` means: nothing yet, ask again. A stage that must read everything first (`$sort`, `$group`)
takes in one batch per call and answers [] until it has, so that no call takes long and others get their turn.
"""

from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.annotated import carried
from mongottl.document.types import Value

BATCH_SIZE: Final = 256  # documents; architecture decision 4


@mypyc_attr(allow_interpreted_subclasses=True)
class DocumentSource:
    """A stream of raw documents."""

    def next_batch(self) -> list[bytes] | None:
        """The next documents, at most about BATCH_SIZE; [] if there are none yet; None behind the last."""
        raise NotImplementedError

    def is_outdated(self) -> bool:
        """Whether one of the documents given so far may have expired since."""
        return False

    def statistics(self) -> dict[str, Value]:
        """What explain shows of the stage's work, in mongod's names, besides what it shows of every stage."""
        return {}

    def close(self) -> None:
        """Lets go of whatever is held; the stream is not asked again."""


class ListSource(DocumentSource):
    """Documents from memory."""

    def __init__(self, documents: list[bytes], batch_size: int = BATCH_SIZE) -> None:
        self._documents: Final = documents
        self._batch_size: Final = batch_size
        self._position = 0

    def next_batch(self) -> list[bytes] | None:
        start = self._position
        if start >= len(self._documents):
            return None
        self._position = start + self._batch_size
        return self._documents[start : self._position]


class TransformSource(DocumentSource):
    """Base of stages that read another stream."""

    def __init__(self, source: DocumentSource) -> None:
        self.source: Final = source

    def close(self) -> None:
        self.source.close()


def carry_all(batch: list[bytes], results: list[bytes]) -> list[bytes]:
    """Results with the metadata of the documents that they were made of, one of each."""
    return [carried(batch[i], results[i]) for i in range(len(results))]


class BlockingSource(DocumentSource):
    """Base of stages that must have read everything before they can give anything."""

    def __init__(self, source: DocumentSource) -> None:
        self.source: Final = source
        self._reading = True

    def next_batch(self) -> list[bytes] | None:
        if self._reading:
            batch = self.source.next_batch()
            if batch is not None:
                self.absorb(batch)
                return []
            self._reading = False
            self.finish()
        return self.emit()

    def absorb(self, batch: list[bytes]) -> None:
        """Takes in one batch."""
        raise NotImplementedError

    def finish(self) -> None:
        """Everything has been read."""

    def emit(self) -> list[bytes] | None:
        """The next batch of results, after `finish`."""
        raise NotImplementedError

    def close(self) -> None:
        self.source.close()


def drain(source: DocumentSource) -> list[bytes]:
    """All documents that are left."""
    documents: list[bytes] = []
    while True:
        batch = source.next_batch()
        if batch is None:
            return documents
        documents.extend(batch)


class OutputQueue:
    """Results that are ready, handed out in batches."""

    def __init__(self) -> None:
        self._documents: list[bytes] = []
        self._position = 0

    def put(self, documents: list[bytes]) -> None:
        self._documents.extend(documents)

    def take(self) -> list[bytes] | None:
        """The next batch; None if nothing is left."""
        start = self._position
        if start >= len(self._documents):
            self._documents = []
            self._position = 0
            return None
        self._position = start + BATCH_SIZE
        return self._documents[start : self._position]
