"""Documents that carry metadata: what a query found out about a document and did not write into it.

    doc = annotated(raw, "textScore", 1.5)
    metadata_of(doc)                            # {"textScore": 1.5}; empty for plain bytes
    carried(doc, new)                           # `new` with what `doc` carries: a stage that rebuilds documents

An annotated document is its raw bytes and passes wherever they do, so filters, sorts, batches and joins neither know
nor pay. What is rebuilt, cut out or encoded is plain again, and a stage that keeps metadata says so by `carried`.
Nothing annotated may be stored: `plain` is for who writes results into a collection.

The keys are the keywords of `{$meta: …}`, and STORED_AS, which no client can ask for: the number of the collection and
the id of the record that a document of a pipeline was read from or made of.
"""

from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import fields


@mypyc_attr(native_class=False)  # a subclass of a built-in type cannot be a native class
class AnnotatedDocument(bytes):
    """metadata: never changed once others have the document; a further annotation makes another document."""

    metadata: dict[str, Value]


_NO_METADATA: Final[dict[str, Value]] = {}

STORED_AS: Final = "$storedAs"


def annotated(document: bytes, keyword: str, value: Value) -> bytes:
    """The document with one more piece of metadata, or another value for it."""
    return _with_metadata(document, {**metadata_of(document), keyword: value})


def metadata_of(document: bytes) -> dict[str, Value]:
    """What a document carries; not to be changed."""
    return document.metadata if isinstance(document, AnnotatedDocument) else _NO_METADATA


def carried(source: bytes, result: bytes) -> bytes:
    """A document with the metadata of the one that it was made of."""
    return _with_metadata(result, source.metadata) if isinstance(source, AnnotatedDocument) else result


def plain(document: bytes) -> bytes:
    """The raw bytes alone."""
    return bytes(memoryview(document)) if isinstance(document, AnnotatedDocument) else document


def encoded_metadata(document: bytes) -> bytes:
    """What a document carries, as a raw document, for a temporary file; empty for plain bytes."""
    return encode(document.metadata) if isinstance(document, AnnotatedDocument) else b""


def with_encoded_metadata(document: bytes, metadata: bytes) -> bytes:
    """The other way round."""
    return _with_metadata(document, dict(fields(metadata))) if metadata else document


def _with_metadata(document: bytes, metadata: dict[str, Value]) -> bytes:
    made = AnnotatedDocument(document)
    made.metadata = metadata
    return made
