"""Updates written as dicts, applied through the real parser and driver; documents compared byte by byte."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.match.tree import MatchDetails
from mongottl.query.update import UpdateOutcome, new_document_for_upsert, parse_update

Document: TypeAlias = dict[str, Any]
Update: TypeAlias = Callable[..., UpdateOutcome]
Refusal: TypeAlias = Callable[..., CommandError]

NOW_MS = 1_700_000_000_123


def _parsed(update: Any) -> Any:
    return [bson.encode(stage) for stage in update] if isinstance(update, list) else bson.encode(update)


def _apply(
    document: Document, update: Any, query: Document | None = None, filters: Sequence[Document] = ()
) -> UpdateOutcome:
    ctx = ParseContext(now_ms=NOW_MS)
    driver = parse_update(_parsed(update), ctx, [bson.encode(one) for one in filters])
    raw = bson.encode(document)
    details = None
    if query is not None:
        details = MatchDetails()
        assert parse_match(bson.encode(query), ctx).matches_positional(raw, details)
    outcome = driver.apply(raw, details, False)
    assert outcome.modified or outcome.document is raw
    return outcome


@pytest.fixture
def apply() -> Update:
    """`apply(document, update, query, array_filters)` -> UpdateOutcome."""
    return _apply


@pytest.fixture
def refuse() -> Refusal:
    """The same for an update that must fail -> CommandError."""

    def refused(*arguments: Any, **options: Any) -> CommandError:
        with pytest.raises(CommandError) as caught:
            _apply(*arguments, **options)
        return caught.value

    return refused


@pytest.fixture
def upsert() -> Callable[[Document, Any], bytes]:
    """`upsert(query, update)` -> the document to insert."""

    def inserted(query: Document, update: Any) -> bytes:
        ctx = ParseContext(now_ms=NOW_MS)
        return new_document_for_upsert(parse_update(_parsed(update), ctx), parse_match(bson.encode(query), ctx), ctx)

    return inserted
