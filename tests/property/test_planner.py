"""An index plan and a collection scan give the same documents, whatever the documents, indexes, filters and sorts are.

The collection scan (forced by the hint {$natural: 1}) is the model: it tests every document with the whole filter and
sorts what passes in memory. Samples come from seeds: a failing seed is a test.
"""

from typing import Any

import pytest
from bson import encode as bson_encode
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.plan.planner import plan_query
from mongottl.exec.results.counting import count_documents
from mongottl.exec.write.writes import delete_batch, update_record
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern
from tests.planning import NATURAL, Bench, match_of, sort_of, stages_of
from tests.query_samples import Samples


def fill(bench: Bench, found: list[dict[str, Any]]) -> None:
    for number, document in enumerate(found):
        try:
            bench.insert_one({"_id": number, **document})
        except CommandError as error:
            assert error.code in (11000, 171)  # a duplicate key, or parallel arrays


def check(
    bench: Bench, match: MatchExpression, sort: SortPattern | None, skip: int, limit: int, hint: Value = MISSING
) -> str:
    """Compares a query's plan with the collection scan; the plan's stages."""
    op = bench.op
    collection = bench.collection
    plan = plan_query(op, collection, match, sort=sort, hint=hint, wanted=3)
    found = bench.drain(plan.open())
    expected = bench.drain(plan_query(op, collection, match, sort=sort, hint=NATURAL).open())
    assert sorted(found) == sorted(expected)
    if sort is not None:
        keys = [sort.sort_key(document) for document in expected]
        assert [sort.sort_key(document) for document in found] == keys
        page = plan_query(op, collection, match, sort=sort, skip=skip, limit=limit, hint=hint)
        part = [sort.sort_key(document) for document in bench.drain(page.open())]
        assert part == keys[skip : skip + limit if limit else None]
    assert count_documents(op, collection, match, hint=hint) == len(expected)
    counted = count_documents(op, collection, match, skip=skip, limit=limit, hint=hint)
    assert counted == len(range(len(expected))[skip : skip + limit if limit else None])
    return " < ".join(stages_of(plan))


def check_sample(seed: int, arrays: bool, documents: int, queries: int) -> dict[str, int]:
    """Fills a collection and checks queries on it; how often there was which plan."""
    samples = Samples(seed, arrays)
    bench = Bench()
    whole: list[str] = []
    for _ in range(samples.random.randint(1, 5)):
        pattern = samples.pattern()
        options = samples.index_options()
        if not arrays and samples.chance(0.2):
            pattern = samples.hashed(pattern)
            options.pop("unique", None)
        elif samples.chance(0.2):
            pattern, options = samples.wildcard()
        name = "_".join(f"{path}_{direction}" for path, direction in pattern)
        if bench.collection.index_named(name) is None:
            bench.index(pattern, **options)
            if (not options or "unique" in options) and not any("$" in path for path, _ in pattern):
                whole.append(name)
    fill(bench, [samples.document() for _ in range(documents)])
    seen: dict[str, int] = {}
    for _ in range(queries):
        match = match_of(samples.filter())
        sort = sort_of(samples.pattern()) if samples.chance(0.5) else None
        hint: Value = samples.random.choice(whole) if whole and samples.chance(0.3) else MISSING
        try:
            stages = check(bench, match, sort, samples.random.randint(0, 4), samples.random.randint(0, 8), hint)
        except CommandError as error:
            assert "parallel arrays" in error.message  # of the sort
        else:
            seen[stages] = seen.get(stages, 0) + 1
    return seen


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([3, 10, 40]))
def test_index_scan_is_collection_scan(seed: int, arrays: bool, documents: int) -> None:
    for stages in check_sample(seed, arrays, documents, 10):
        event(stages)


@pytest.mark.parametrize("seed", range(4))
def test_index_scan_is_collection_scan_where_plans_are_tried(seed: int) -> None:
    check_sample(seed, seed % 2 == 0, 200, 15)


def test_samples_reach_every_kind_of_plan() -> None:
    seen: set[str] = set()
    for seed in range(40):
        seen.update(check_sample(1000 + seed, seed % 2 == 0, 10, 20))
    assert {"COLLSCAN", "FETCH < IXSCAN", "SORT < FETCH < IXSCAN", "OR < FETCH < IXSCAN", "EOF"} <= seen


def check_wildcard_sample(seed: int, arrays: bool, documents: int, queries: int) -> dict[str, int]:
    """The same with a wildcard index that queries are made to use, if it can serve them; how often it could."""
    samples = Samples(seed, arrays)
    bench = Bench()
    pattern, options = samples.wildcard()
    index = bench.index(pattern, **options)
    fill(bench, [samples.document() for _ in range(documents)])
    seen = {"served": 0, "refused": 0}
    for _ in range(queries):
        match = match_of(samples.filter())
        sort = sort_of(samples.pattern()) if samples.chance(0.3) else None
        try:
            check(bench, match, sort, samples.random.randint(0, 4), samples.random.randint(0, 8), index.name)
            seen["served"] += 1
        except CommandError as error:
            assert error.code == 291 or "parallel arrays" in error.message  # of the sort
            seen["refused"] += 1
    return seen


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([3, 10, 40]))
def test_wildcard_scan_is_collection_scan(seed: int, arrays: bool, documents: int) -> None:
    check_wildcard_sample(seed, arrays, documents, 10)


def test_samples_reach_wildcard_scans() -> None:
    seen = check_wildcard_sample(7, False, 10, 60)
    assert seen["served"] > 5


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_scan_gives_what_stays_once_whatever_happens_to_the_rest(seed: int, arrays: bool) -> None:
    """Documents that nobody touches while a scan is under way are given exactly once if they match."""
    samples = Samples(seed, arrays)
    bench = Bench()
    bench.index([("a", 1)])
    bench.index([("c", -1), ("b", 1)])
    fill(bench, [samples.document() for _ in range(60)])
    match = match_of(samples.filter())
    sort = sort_of([("c", 1)]) if samples.chance(0.3) else None
    untouched = {number for number in range(60) if number % 3}
    stage = plan_query(bench.op, bench.collection, match, sort=sort, wanted=1).open()
    event(stage.node().stage)
    given_ids: list[Value] = []
    number = 60
    while (batch := stage.next_batch(bench.op)) is not None:
        given_ids.extend(get_value(record[1], "_id") for record in batch)
        try:
            records = bench.collection.store.scan(0, 1000)[0]
            mine = [record for record in records if get_value(record[1], "_id") not in untouched]
            victim = samples.random.choice(mine)
            choice = samples.random.randint(0, 2)
            if choice == 0:
                bench.insert_one({"_id": number, **samples.document()})
                number += 1
            elif choice == 1:
                document = {"_id": get_value(victim[1], "_id"), **samples.document()}
                update_record(bench.op, bench.collection, victim, bson_encode(document))
            else:
                delete_batch(bench.op, bench.collection, [victim])
        except CommandError as error:
            assert error.code == 171
    stored = bench.drain(plan_query(bench.op, bench.collection, match, hint=NATURAL).open())
    expected = [found for found in (get_value(document, "_id") for document in stored) if found in untouched]
    assert sorted(map(repr, (found for found in given_ids if found in untouched))) == sorted(map(repr, expected))
