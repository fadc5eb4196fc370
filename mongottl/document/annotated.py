"""Documents with metadata: what a query computed about a document without storing it in the document.

    doc = annotated(raw, "textScore", 1.5)
    metadata_of(doc)                            # {"textScore": 1.5}; empty for plain bytes
    copy_metadata(doc, new)                     # `new` with the metadata of `doc`, for stages that rebuild documents

An annotated document is a subclass of bytes, so filters, sorts, batches and joins treat it as raw BSON at no extra
cost. A document that is rebuilt, cut out or encoded has no metadata any more; a stage that keeps metadata calls
`copy_metadata`. Annotated documents must not be stored: whatever writes results into a collection calls `plain`.

The keys are the keywords of `{$meta: …}`, and STORED_AS, which clients cannot request: the number of the collection and
the id of the record from which a document of a pipeline was read or computed.
"""

from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import fields_by_name


@mypyc_attr(native_class=False)  # a subclass of a built-in type cannot be a native class
class AnnotatedDocument(bytes):
    """A raw document with metadata.

    metadata: must not be changed after construction; `annotated` makes another document.
    """

    metadata: dict[str, Value]


_NO_METADATA: Final[dict[str, Value]] = {}

STORED_AS: Final = "$storedAs"


def annotated(document: bytes, keyword: str, value: Value) -> bytes:
    """The document with the metadata of a keyword set to a value."""
    return _with_metadata(document, {**metadata_of(document), keyword: value})


def metadata_of(document: bytes) -> dict[str, Value]:
    """A document's metadata by keyword, which the caller must not change; empty for plain bytes."""
    return document.metadata if isinstance(document, AnnotatedDocument) else _NO_METADATA


def copy_metadata(source: bytes, result: bytes) -> bytes:
    """`result` with the metadata of `source`, from which it was computed."""
    return _with_metadata(result, source.metadata) if isinstance(source, AnnotatedDocument) else result


def plain(document: bytes) -> bytes:
    """The document's bytes without metadata."""
    return bytes(memoryview(document)) if isinstance(document, AnnotatedDocument) else document


def encoded_metadata(document: bytes) -> bytes:
    """A document's metadata as a raw document, for temporary files; b"" for plain bytes."""
    return encode(document.metadata) if isinstance(document, AnnotatedDocument) else b""


def with_encoded_metadata(document: bytes, metadata: bytes) -> bytes:
    """A document with the metadata that `encoded_metadata` encoded."""
    return _with_metadata(document, fields_by_name(metadata)) if metadata else document


def _with_metadata(document: bytes, metadata: dict[str, Value]) -> bytes:
    result = AnnotatedDocument(document)
    result.metadata = metadata
    return result
