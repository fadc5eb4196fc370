"""The details of a failed validation are true: each clause that they name is at fault by itself."""

from typing import Any

import bson
import pytest

from mongottl.document.build import encode
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.match.describe_failure import describe_failure
from tests.query_samples import Samples


def assert_true_of(details: dict[str, Any], document: bytes, inverted: bool) -> None:
    operator = details["operatorName"]
    if operator == "$not":
        assert_true_of(details["details"], document, not inverted)
        return
    for name, told_inverted in (("clausesNotSatisfied", False), ("clausesSatisfied", True)):
        if name in details:
            assert told_inverted == (inverted != (operator == "$nor"))
            # An empty filter matches for no reason.
            assert details[name] or (operator == "$and" and inverted)
            for clause in details[name]:
                assert_true_of(clause["details"], document, told_inverted)
            return
    assert details["reason"]
    alone = parse_match(bson.encode(details["specifiedAs"]), ParseContext())
    assert alone.matches(document) == inverted


@pytest.mark.parametrize("seed", range(20))
def test_every_clause_that_is_named_is_at_fault(seed: int) -> None:
    samples = Samples(seed, arrays=seed % 2 == 0)
    failed = 0
    while failed < 40:
        filter = bson.encode(samples.filter())
        document = bson.encode(samples.document())
        if parse_match(filter, ParseContext()).matches(document):
            continue
        failed += 1
        raw = encode({"details": describe_failure(filter, document, 0)})
        assert_true_of(bson.decode(raw)["details"], document, inverted=False)
