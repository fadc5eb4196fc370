"""Streams of documents, read batch by batch.

[] from `next_batch` means that there are no documents yet. A stage that must read its whole input first (`$sort`,
`$group`) reads one batch per call and returns [] until then, so that calls are short and other operations can run.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from mongottl.document.types import Value
from mongottl.query.spill import SpilledDocuments, SpillFile, SpillSpace

BATCH_SIZE: Final = 256  # documents; architecture decision 4
# Maximal size of the new documents that a stage creates in one call, the last one not counted, since a batch may
# wait in memory.
BATCH_BYTES: Final = 4 << 20


@mypyc_attr(allow_interpreted_subclasses=True)
class DocumentSource:
    """A stream of raw documents."""

    def next_batch(self) -> list[bytes] | None:
        """The next documents, at most about BATCH_SIZE; [] if there are none yet; None at the end.

        New documents of a stage are at most BATCH_BYTES, and one more.
        """
        raise NotImplementedError

    def is_outdated(self) -> bool:
        """Whether one of the documents returned so far may have expired since."""
        return False

    def statistics(self) -> dict[str, Value]:
        """Additional fields for explain's output of the stage, with mongod's names."""
        return {}

    def held_bytes(self) -> int:
        """Approximate bytes of the documents and states that it, and what it reads, keep in memory for later batches,
        if they may be many."""
        return 0

    def spill(self, space: SpillSpace) -> bool:
        """Moves some of them to temporary files, a few milliseconds' work; False if none can be moved."""
        return False

    def close(self) -> None:
        """Releases all resources; the stream must not be used afterwards."""


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
    """Base of stages that read another source."""

    def __init__(self, source: DocumentSource) -> None:
        self.source: Final = source

    def held_bytes(self) -> int:
        return self.source.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self.source.spill(space)

    def close(self) -> None:
        self.source.close()


class MappedSource(TransformSource):
    """Base of stages that output at most one document per input document, which may be much larger."""

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
        outputs: list[bytes] = []
        room: i64 = BATCH_BYTES
        while position < len(batch) and room > 0:
            document = self.mapped(batch[position])
            position += 1
            if document is not None:
                outputs.append(document)
                room -= i64(len(document))
        self._batch = batch if position < len(batch) else []
        self._position = position if position < len(batch) else 0
        return outputs

    def mapped(self, document: bytes) -> bytes | None:
        """The output document; None for no output."""
        raise NotImplementedError


def drain(source: DocumentSource) -> list[bytes]:
    """All remaining documents."""
    documents: list[bytes] = []
    while True:
        batch = source.next_batch()
        if batch is None:
            return documents
        documents.extend(batch)


class OutputQueue:
    """Results that are complete, returned in batches."""

    def __init__(self) -> None:
        # In reverse order.
        self._documents: list[bytes] = []
        self._size: i64 = 0
        # Those that come before them.
        self._spilled: SpilledDocuments | None = None
        self._file: SpillFile | None = None

    def put(self, documents: list[bytes]) -> None:
        """Sets the results."""
        documents.reverse()
        self._documents = documents
        for document in documents:
            self._size += i64(len(document))

    def take(self) -> list[bytes] | None:
        """The next batch; None if there are no more."""
        if self._spilled is not None:
            batch = self._spilled.take()
            if batch:
                return batch
            self._spilled = None
        if not self._documents:
            self.close()
            return None
        return self._pop()

    def _pop(self) -> list[bytes]:
        batch: list[bytes] = []
        room: i64 = BATCH_BYTES
        while self._documents and len(batch) < BATCH_SIZE and room > 0:
            document = self._documents.pop()
            batch.append(document)
            room -= i64(len(document))
        self._size -= BATCH_BYTES - room
        return batch

    def held_bytes(self) -> int:
        return int(self._size)

    def spill(self, space: SpillSpace) -> bool:
        """Moves the next of them to a temporary file; False if there are none in memory."""
        if not self._documents:
            return False
        if self._spilled is None:
            self._file = space.create()
            self._spilled = SpilledDocuments(self._file)
        self._spilled.put(self._pop())
        return True

    def close(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()
