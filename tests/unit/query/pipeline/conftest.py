"""Stages written as dicts, over documents in memory: parsed, optimised and run as `aggregate` does it."""

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline import (
    DocumentSource,
    ListSource,
    RunContext,
    drain,
    open_pipeline,
    optimise,
    parse_pipeline,
)

Documents: TypeAlias = list[dict[str, Any]]

NOW_MS = 1_700_000_000_000


class InMemory(RunContext):
    """Other collections that stages read."""

    def __init__(self, collections: dict[str, Documents]) -> None:
        super().__init__()
        self._collections = collections
        self._random = random.Random(1)

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        documents = [bson.encode(document) for document in self._collections[collection]]
        if match is not None:
            tree = parse_match(match, ParseContext() if ctx is None else ctx)
            documents = [document for document in documents if tree.matches(document)]
        return ListSource(documents, 2)

    def random(self) -> float:
        return self._random.random()


def _aggregate(documents: Documents, *stages: dict[str, Any], **collections: Documents) -> Documents:
    ctx = ParseContext(NOW_MS, namespace="db.c")
    specs = parse_pipeline([bson.encode(stage) for stage in stages], ctx)
    raw = [bson.encode(document) for document in documents]
    found = drain(open_pipeline(optimise(specs, ctx), ListSource(raw, 2), InMemory(collections)))
    assert drain(open_pipeline(specs, ListSource(raw, 3), InMemory(collections))) == found
    return [bson.decode(document) for document in found]


@pytest.fixture
def aggregate() -> Callable[..., Documents]:
    """`aggregate(documents, stage, …, name=documents of another collection)` -> documents."""
    return _aggregate


@pytest.fixture
def refused() -> Callable[..., int]:
    """The same for a pipeline that must fail -> the error's code."""

    def code(documents: Documents, *stages: dict[str, Any], **collections: Documents) -> int:
        with pytest.raises(CommandError) as caught:
            _aggregate(documents, *stages, **collections)
        return caught.value.code

    return code
