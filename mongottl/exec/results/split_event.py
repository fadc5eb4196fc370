"""`$changeStreamSplitLargeEvent`: cuts change events that are larger than a document may be into fragments.

    {_id: {_data: <token of fragment 0>}, splitEvent: {fragment: 1, of: 2}, <small fields>}
    {_id: {_data: <token of fragment 1>}, splitEvent: {fragment: 2, of: 2}, <large fields>}

Fields are not cut, and the smallest come first, so that the first fragment has as many as possible.

Source: MongoDB's documentation of `$changeStreamSplitLargeEvent`.
"""

from mongottl.document.build import DocumentBuilder, encode
from mongottl.document.interrupt import give_way_after
from mongottl.document.types import DOCUMENT
from mongottl.document.walk import ElementCursor, find_field, get_value, skip_value
from mongottl.exec.results.cursors import MAX_RESULT_BYTES, too_large
from mongottl.exec.results.resume_token import identity_of, token_document, token_of


def split_event(event: bytes) -> list[bytes]:
    """The fragments of an event, or only itself if it is not too large. BSONObjectTooLarge (10334) for a field that
    fits into no fragment."""
    if len(event) <= MAX_RESULT_BYTES:
        return [event]
    identity = identity_of(str(get_value(token_in(event), "_data")))
    elements: list[bytes] = []
    cursor = ElementCursor(event, 0)
    while cursor.next():
        if cursor.name() != "_id":
            element = cursor.raw_element()
            give_way_after(len(element))
            elements.append(element)
    elements.sort(key=len)
    fragments: list[list[bytes]] = [[]]
    overhead = len(_fragment(identity, len(elements), len(elements), []))
    size = overhead
    for element in elements:
        if overhead + len(element) > MAX_RESULT_BYTES:
            raise too_large(event)
        if size + len(element) > MAX_RESULT_BYTES:
            fragments.append([])
            size = overhead
        fragments[-1].append(element)
        size += len(element)
    return [_fragment(identity, i, len(fragments), fragments[i]) for i in range(len(fragments))]


def _fragment(identity: bytes, number: int, of: int, elements: list[bytes]) -> bytes:
    builder = DocumentBuilder()
    builder.append("_id", token_document(token_of(identity, number)))
    builder.append("splitEvent", encode({"fragment": number + 1, "of": of}))
    for element in elements:
        builder.append_raw_element(element)
        give_way_after(len(element))
    document = builder.finish()
    give_way_after(len(document))
    return document


def token_in(event: bytes) -> bytes:
    """The resume token of an event, `{_data}`, undecoded; empty if a stage has removed it or replaced it by a value."""
    type_code, value = find_field(event, b"_id")
    return event[value : skip_value(event, type_code, value)] if type_code == DOCUMENT else b""
