"""A capped collection holds the longest row of newest documents that fits, however they came, and its indexes agree."""

from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import Running

SMALLEST = len(bson.encode({"_id": 0, "n": 0, "x": b""}))
sizes = st.integers(SMALLEST, SMALLEST + 200)


@st.composite
def operations(draw: st.DrawFn) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(("insert", "batch", "delete", "resize")))
        if kind == "insert":
            found.append((kind, [draw(sizes)]))
        elif kind == "batch":
            found.append(("insert", draw(st.lists(sizes, min_size=2, max_size=20))))
        elif kind == "delete":
            found.append((kind, draw(st.integers(0, 3))))
        else:
            found.append((kind, (draw(st.integers(1, 3000)), draw(st.integers(0, 6)))))
    return found


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(("memory", "sqlite")), st.integers(1, 2000), st.integers(0, 8), operations())
def test_newest_documents_that_fit(
    engine: str, most_bytes: int, most_documents: int, steps: list[tuple[str, Any]]
) -> None:
    server = Running(ContractEngine(open_engine(f"{engine}:")))
    limits = {"size": most_bytes, **({"max": most_documents} if most_documents else {})}
    server.run({"create": "c", "capped": True, **limits})
    server.index({"n": -1})
    model: list[tuple[int, int]] = []  # (_id, size), oldest first
    last = 0
    for kind, argument in steps:
        if kind == "insert":
            documents = []
            for size in argument:
                last += 1
                documents.append({"_id": last, "n": last, "x": b"x" * (size - SMALLEST)})
            server.run({"insert": "c", "documents": documents, "ordered": False})
            for document, size in zip(documents, argument, strict=True):
                model.append((document["_id"], size))
                # The newest one stays, also if it is larger than the collection may be.
                while len(model) > 1 and (
                    sum(s for _, s in model) > most_bytes or (most_documents and len(model) > most_documents)
                ):
                    del model[0]
        elif kind == "delete":
            doomed = {number for number, _ in model if number % 4 == argument}
            server.run({"delete": "c", "deletes": [{"q": {"_id": {"$mod": [4, argument]}}, "limit": 0}]})
            model = [entry for entry in model if entry[0] not in doomed]
        else:
            most_bytes, most_documents = argument
            server.run({"collMod": "c", "cappedSize": most_bytes, "cappedMax": most_documents})
        natural = [document["_id"] for document in server.listed({"find": "c"})]
        assert natural == [number for number, _ in model]
        indexed = [document["_id"] for document in server.listed({"find": "c", "hint": "n_-1"})]
        assert indexed == natural[::-1]
    assert server.run({"count": "c"}) == {"n": len(model)}
