"""Streams of documents, pulled batch by batch.

[] from `next_batch` means: nothing yet, ask again. A stage that must read everything first (`$sort`, `$group`)
takes in one batch per call and answers [] until it has, so that no call takes long and others get their turn.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from mongottl.document.types import Value

BATCH_SIZE: Final = 256  # documents; architecture decision 4
# Of documents that a stage makes anew in one call, before the last one: a batch of them may be waited for and kept.
BATCH_BYTES: Final = 4 << 20


@mypyc_attr(allow_interpreted_subclasses=True)
class DocumentSource:
    """A stream of raw documents."""

    def next_batch(self) -> list[bytes] | None:
        """The next documents, at most about BATCH_SIZE; [] if there are none yet; None behind the last.

        Those that a stage makes anew are BATCH_BYTES at most, and the last one.
        """
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


class MappedSource(TransformSource):
    """Base of stages that make one document of another, or none. They may be much larger than what they are made of."""

    def __init__(self, source: DocumentSource) -> None:
        super().__init__(source)
        self._batch: list[bytes] = []
        self._position = 0

    def next_batch(self) -> list[bytes] | None:
        batch = self._batch
        position = self._position
        if position >= len(batch):
            fresh = self.source.next_batch()
            if fresh is None:
                return None
            batch = fresh
            position = 0
        made: list[bytes] = []
        room: i64 = BATCH_BYTES
        while position < len(batch) and room > 0:
            document = self.mapped(batch[position])
            position += 1
            if document is not None:
                made.append(document)
                room -= i64(len(document))
        self._batch = batch if position < len(batch) else []
        self._position = position if position < len(batch) else 0
        return made

    def mapped(self, document: bytes) -> bytes | None:
        """What the stage makes of a document; None to leave it out."""
        raise NotImplementedError


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
