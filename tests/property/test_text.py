"""Text search through the index against a slow, obvious model: the same documents, and the same scores."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.annotated import metadata_of
from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from tests.planning import Bench

WORDS = ["ab", "cd", "ef", "abcd", "gh"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(TEXTS, st.lists(st.one_of(TEXTS, st.integers(0, 9)), max_size=3), st.none()),
        "b": st.fixed_dictionaries({"c": TEXTS}),
        "n": st.integers(0, 2),
    },
)
PIECES = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS).map("-{}".format),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(lambda words: '"' + " ".join(words) + '"'),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(lambda words: '-"' + " ".join(words) + '"'),
)


def strings(document: dict[str, Any]) -> list[tuple[str, int]]:
    a = document.get("a")
    found = [(text, 3) for text in (a if isinstance(a, list) else [a]) if isinstance(text, str)]
    if "b" in document:
        found.append((document["b"]["c"], 1))
    return found


def modelled(pieces: list[str], document: dict[str, Any]) -> float | None:
    """The score of a document that matches, else None."""
    texts = strings(document)
    words = {word for text, _ in texts for word in text.split()}
    terms: set[str] = set()
    for piece in pieces:
        inner = piece.lstrip("-").strip('"')
        if piece.startswith('-"'):
            if any(inner in text for text, _ in texts):
                return None
        elif piece.startswith("-"):
            if inner in words:
                return None
        else:
            terms.update(inner.split())
            if piece.startswith('"') and not any(inner in text for text, _ in texts):
                return None
    if not terms & words:
        return None
    score = 0.0
    for term in terms:
        for text, weight in texts:
            tokens = text.split()
            count = tokens.count(term)
            if count:
                frequency = sum(1 / 2**i for i in range(count))
                score += weight * frequency * (0.5 * count / len(tokens) + 0.5) * (1.1 if text == term else 1)
    return score


@settings(max_examples=150, deadline=None)
@given(
    documents=st.lists(DOCUMENTS, max_size=8), pieces=st.lists(PIECES, min_size=1, max_size=4), narrowed=st.booleans()
)
def test_the_index_finds_what_the_model_finds(
    documents: list[dict[str, Any]], pieces: list[str], narrowed: bool
) -> None:
    bench = Bench()
    bench.index([("a", "text"), ("b.c", "text")], weights=encode({"a": 3, "b.c": 1}), default_language="none")
    bench.insert([{"_id": i, **document} for i, document in enumerate(documents)])
    expected: dict[Value, float] = {}
    for i, document in enumerate(documents):
        score = modelled(pieces, document)
        if score is not None and (not narrowed or document.get("n") == 1):
            expected[i] = score
    filter: dict[str, Any] = {"$text": {"$search": " ".join(pieces)}}
    if narrowed:
        filter["n"] = 1
    assert sorted(bench.find(filter), key=str) == sorted(expected, key=str)
    found = bench.drain(bench.plan(filter, metadata={"textScore"}).open())
    scores = {get_value(document, "_id"): metadata_of(document)["textScore"] for document in found}
    assert scores == pytest.approx(expected)
